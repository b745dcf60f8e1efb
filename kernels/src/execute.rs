//! Compiled plans.
//!
//! Consecutive small nests are merged into one function of bounded size, so that tiny graphs cost few calls; nests
//! with much work are split over threads. Neither changes a bit of a result.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use retape_runtime::{Buffer, CachePadded, DeviceBuffer, thread_number};

use crate::call::Workspace;
use crate::cpu::{Unit, compile, machine_text};
use crate::donation::{Bytes, Input, take_donated};
use crate::error::{Error, Result};
use crate::ir::{Kernel, evaluate};
use crate::library::Library;
use crate::plan::{Operand, Place, Plan, Step, Work};
use crate::program::{BoundEntries, Entry, FLAG_BYTES, HostLaunch, Job, LaunchTime, Modes, Program, Site};
use crate::schedule::{Nest, Schedule, Source, prepared_all, schedule, share_code};

/// Nests of at most this much work, in scalar instructions, are merged with their neighbours.
const SMALL_WORK: u64 = 1 << 13;
/// Bounds on a merged function: compile time grows faster than size.
const MAX_MERGED_NESTS: usize = 24;
const MAX_MERGED_INSTS: usize = 240;
/// Frames kept for later calls; calls beyond so many at once make their own.
const N_WORKSPACES: usize = 8;
/// Arenas of at most so many bytes are not shared between threads: it would cost more than memory is worth.
const SMALL_ARENA: usize = 64 << 10;

/// The inputs of a call, wherever the caller has them.
///
/// A call asks for the number of inputs once, and for each input once. It looks at the length of what it is given and
/// fails if that does not fit, so an implementation can do no harm, whatever it answers.
pub trait Inputs {
    /// How many there are.
    fn count(&self) -> usize;

    /// The bytes of one; nothing if it has none.
    fn buffer(&self, input: usize) -> Option<&Buffer>;

    /// The bytes of one on a GPU; nothing if it has none there.
    #[inline]
    fn device_buffer(&self, _input: usize) -> Option<&DeviceBuffer> {
        None
    }
}

impl Inputs for [&Buffer] {
    #[inline]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline]
    fn buffer(&self, input: usize) -> Option<&Buffer> {
        self.get(input).copied()
    }
}

/// A plan with its machine code.
#[derive(Debug)]
pub struct Executable {
    pub(crate) plan: Plan,
    pub(crate) program: Program,
    /// A call locks its workspace while it runs. Threads look in different places first, so that they do not fight.
    workspaces: [CachePadded<Mutex<Option<Workspace>>>; N_WORKSPACES],
}

/// A launch before its code exists.
enum PendingLaunch<'a> {
    Code { nests: Vec<&'a Nest> },
    Library(&'a Library),
}

impl Executable {
    /// Verifies and compiles a plan.
    ///
    /// # Errors
    ///
    /// Fails if the plan is malformed, the machine is not supported, or the system refuses executable memory.
    pub fn compile(plan: Plan) -> Result<Executable> {
        Executable::compile_with(plan, Modes::default())
    }

    /// Verifies and compiles a plan in some modes.
    ///
    /// # Errors
    ///
    /// As [`compile`](Executable::compile).
    pub fn compile_with(plan: Plan, modes: Modes) -> Result<Executable> {
        plan.verify()?;
        for step in &plan.steps {
            if let Work::Library(library) = &step.work {
                library.check_host()?;
            }
        }
        let program = program(&plan, modes)?;
        Ok(Executable { plan, program, workspaces: Default::default() })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The machine instructions of every step.
    pub fn text(&self) -> String {
        let text = |step: &Step| match &step.work {
            Work::Kernel(kernel) => machine_text(kernel).unwrap_or_else(|e| e.to_string()),
            Work::Library(library) => format!("; library {library}"),
        };
        self.plan.steps.iter().map(|step| format!("; {}\n{}\n", step.label, text(step))).collect()
    }

    /// Runs the plan into new buffers.
    ///
    /// # Errors
    ///
    /// Fails if the inputs do not fit the plan or memory is refused.
    pub fn run(&self, inputs: &[&Buffer]) -> Result<Vec<Buffer>> {
        self.run_from(inputs)
    }

    /// As [`run`](Executable::run), with inputs that need not lie in a list.
    ///
    /// # Errors
    ///
    /// As [`run`](Executable::run).
    pub fn run_from<I: Inputs + ?Sized>(&self, inputs: &I) -> Result<Vec<Buffer>> {
        let mut outputs = self.new_outputs()?;
        self.call_borrowed(inputs, &mut outputs, None)?;
        Ok(outputs)
    }

    /// Runs the plan into `outputs`, whose contents do not matter, and returns them.
    ///
    /// # Errors
    ///
    /// Fails if the buffers do not fit the plan or memory is refused.
    pub fn run_into(&self, inputs: &[&Buffer], mut outputs: Vec<Buffer>) -> Result<Vec<Buffer>> {
        self.call_borrowed(inputs, &mut outputs, None)?;
        Ok(outputs)
    }

    /// Runs the plan and measures its launches, in the order of [`launch_steps`](Executable::launch_steps).
    ///
    /// # Errors
    ///
    /// As [`run`](Executable::run).
    pub fn profile(&self, inputs: &[&Buffer]) -> Result<(Vec<Buffer>, Vec<LaunchTime>)> {
        let mut outputs = self.new_outputs()?;
        let mut times = Vec::with_capacity(self.program.launches.len());
        self.call_borrowed(inputs, &mut outputs, Some(&mut times))?;
        Ok((outputs, times))
    }

    /// The steps of the plan that each launch does: several small ones together, or one, or a part of one.
    pub fn launch_steps(&self) -> impl ExactSizeIterator<Item = Range<usize>> {
        self.program.launches.iter().map(|launch| launch.steps.clone())
    }

    /// Runs the plan; results take the memory of donated inputs where the plan has a donation for them.
    ///
    /// # Errors
    ///
    /// As [`run`](Executable::run); donated inputs are gone then, too.
    pub fn run_donating<'a>(&self, mut inputs: impl AsMut<[Input<'a>]>) -> Result<Vec<Buffer>> {
        let inputs = inputs.as_mut();
        self.check_count(inputs.len())?;
        Input::check_not_moved(inputs)?;
        let fits = |buffer: &Buffer, input: usize| buffer.len() == self.program.inputs[input];
        let taken = take_donated(&self.plan.donations, inputs, self.program.outputs.len(), fits);
        let make = |(buffer, &len): (Option<Buffer>, &usize)| buffer.map_or_else(|| Buffer::alloc(len), Ok);
        let outputs = taken.into_iter().zip(&self.program.outputs).map(make);
        let mut outputs = outputs.collect::<std::result::Result<Vec<Buffer>, _>>()?;
        self.call(inputs.len(), |n| inputs.get(n).map(Input::bytes), &mut outputs, None)?;
        Ok(outputs)
    }

    /// Runs the plan with the evaluator and the reference library kernels: slow and obviously right.
    ///
    /// # Errors
    ///
    /// As [`run`](Executable::run).
    pub fn evaluate(&self, inputs: &[&Buffer]) -> Result<Vec<Buffer>> {
        let expected = self.plan.inputs.iter().map(|t| t.bytes());
        if !inputs.iter().map(|b| b.len()).eq(expected) {
            return Err(Error::Buffers("the inputs do not fit the plan".into()));
        }
        let mut outputs = self.new_outputs()?;
        let mut arena = Buffer::zeroed(self.plan.arena_bytes)?;
        for step in &self.plan.steps {
            let (_, n_read) = step.work.signature();
            let read = |o: &Operand| {
                Buffer::from_bytes(match o.place {
                    Place::Input(n) => inputs[n as usize].bytes(),
                    Place::Output(n) => outputs[n as usize].bytes(),
                    Place::Slot { offset } => &arena.bytes()[offset..offset + o.ty().bytes()],
                })
            };
            let reads = step.operands[..n_read].iter().map(read).collect::<std::result::Result<Vec<Buffer>, _>>()?;
            let mut writes = step.operands[n_read..]
                .iter()
                .map(|operand| Buffer::from_bytes(memory(operand, &mut outputs, arena.bytes_mut())))
                .collect::<std::result::Result<Vec<Buffer>, _>>()?;
            let reads: Vec<&[u8]> = reads.iter().map(Buffer::bytes).collect();
            let mut slices: Vec<&mut [u8]> = writes.iter_mut().map(Buffer::bytes_mut).collect();
            match &step.work {
                Work::Kernel(kernel) => evaluate(kernel, &reads, &mut slices),
                Work::Library(library) => library.evaluate(&reads, &mut slices)?,
            }
            for (operand, write) in step.operands[n_read..].iter().zip(&writes) {
                memory(operand, &mut outputs, arena.bytes_mut()).copy_from_slice(write.bytes());
            }
        }
        Ok(outputs)
    }

    /// The number of calls that the steps became.
    pub fn n_launches(&self) -> usize {
        self.program.launches.len()
    }

    /// The number of functions that the steps became; launches may share one.
    pub fn n_functions(&self) -> usize {
        let functions = self.program.launches.iter().filter_map(|launch| match &launch.job {
            Job::Code { function, .. } => Some(Arc::as_ptr(function)),
            Job::Library { .. } => None,
        });
        functions.collect::<HashSet<_>>().len()
    }

    /// Bytes of arena and scratch that one call uses.
    pub fn arena_bytes(&self) -> usize {
        self.program.arena_bytes
    }

    /// Bytes of machine code that the steps use; code that other plans share is counted by each.
    pub fn code_bytes(&self) -> usize {
        let bytes = self.program.launches.iter().map(|launch| match &launch.job {
            Job::Code { function, .. } => function.bytes(),
            Job::Library { .. } => 0,
        });
        bytes.sum()
    }

    /// Bytes of the arenas that calls have left for later ones; those in use now are not counted.
    pub fn idle_bytes(&self) -> usize {
        let n_idle =
            self.workspaces.iter().filter(|place| try_lock(place).is_some_and(|place| place.is_some())).count();
        n_idle * self.arena_bytes()
    }

    pub(crate) fn new_outputs(&self) -> Result<Vec<Buffer>> {
        Ok(Buffer::alloc_all(&self.program.outputs)?)
    }

    fn call_borrowed<I: Inputs + ?Sized>(
        &self,
        inputs: &I,
        outputs: &mut [Buffer],
        clock: Option<&mut Vec<LaunchTime>>,
    ) -> Result<()> {
        self.call(inputs.count(), |n| inputs.buffer(n).map(Bytes::Borrowed), outputs, clock)
    }

    /// Runs the plan on inputs that are asked for by number, once each.
    pub(crate) fn call<'b>(
        &self,
        n_inputs: usize,
        input: impl Fn(usize) -> Option<Bytes<'b>>,
        outputs: &'b mut [Buffer],
        clock: Option<&mut Vec<LaunchTime>>,
    ) -> Result<()> {
        self.check_count(n_inputs)?;
        self.with_workspace(|workspace| workspace.run(&self.program, input, outputs, clock))
    }

    /// Refuses another number of inputs than the plan has.
    pub(crate) fn check_count(&self, n_inputs: usize) -> Result<()> {
        match self.program.inputs.len() {
            expected if n_inputs == expected => Ok(()),
            expected => Err(Error::Buffers(format!("{n_inputs} inputs instead of {expected}"))),
        }
    }

    /// Works on a workspace that no other call uses.
    pub(crate) fn with_workspace(&self, work: impl FnOnce(&mut Workspace) -> Result<()>) -> Result<()> {
        match self.place() {
            Some(mut place) => match &mut *place {
                Some(workspace) => work(workspace),
                empty => work(empty.insert(Workspace::new(&self.program)?)),
            },
            None => work(&mut Workspace::new(&self.program)?),
        }
    }

    /// A place for a workspace that nobody uses: this thread's, or another.
    fn place(&self) -> Option<MutexGuard<'_, Option<Workspace>>> {
        let home = thread_number() % N_WORKSPACES;
        let own = try_lock(&self.workspaces[home]);
        if own.as_ref().is_some_and(|place| place.is_some() || self.arena_bytes() <= SMALL_ARENA) {
            return own;
        }
        let others = || (1..N_WORKSPACES).filter_map(|step| try_lock(&self.workspaces[(home + step) % N_WORKSPACES]));
        // An idle large arena rather than another one.
        others().find(|place| place.is_some()).or(own).or_else(|| others().next())
    }
}

/// Locks a workspace's place unless it is in use; a workspace is bound anew for each call, so a panic elsewhere does not
/// matter.
fn try_lock<T>(place: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match place.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The memory of a written operand for the evaluator.
fn memory<'a>(operand: &Operand, outputs: &'a mut [Buffer], arena: &'a mut [u8]) -> &'a mut [u8] {
    let bytes = operand.ty().bytes();
    match operand.place {
        Place::Output(n) => outputs[n as usize].bytes_mut(),
        Place::Slot { offset } => &mut arena[offset..offset + bytes],
        // A verified plan writes no input.
        Place::Input(_) => &mut [],
    }
}

fn kernel(step: &Step) -> Option<&Kernel> {
    match &step.work {
        Work::Kernel(kernel) => Some(kernel),
        Work::Library(_) => None,
    }
}

fn program(plan: &Plan, modes: Modes) -> Result<Program> {
    let mut prepared = prepared_all(&plan.steps.iter().filter_map(kernel).collect::<Vec<_>>()).into_iter();
    let mut next = || prepared.next().map(|kernel| schedule(&kernel));
    let mut schedules: Vec<Option<Schedule>> =
        plan.steps.iter().map(|step| kernel(step).and_then(|_| next())).collect();
    let scratch_at = plan.arena_bytes.next_multiple_of(64);
    let scratch = schedules.iter().flatten().map(|s| s.scratch).max().unwrap_or(0);
    if scratch > Plan::MOST_SCRATCH {
        return Err(Error::Plan(format!("partial results of {scratch} bytes cannot be addressed")));
    }
    let scratch_len = scratch.next_multiple_of(64);
    let constants = share_code(schedules.iter_mut().flatten().flat_map(|s| &mut s.nests), scratch_len);
    let scratch_end = match constants.len() {
        0 if scratch == 0 => plan.arena_bytes,
        0 => scratch_at + scratch,
        len => scratch_at + scratch_len + len,
    };
    let flags_at = modes.trap.then(|| scratch_end.next_multiple_of(64));
    let mut drafts: Vec<(PendingLaunch<'_>, usize, std::ops::Range<usize>)> = Vec::new();
    let mut entries: Vec<Entry> = Vec::new();
    for (n, (step, schedule)) in plan.steps.iter().zip(&schedules).enumerate() {
        match (&step.work, schedule) {
            (Work::Library(library), _) => {
                drafts.push((PendingLaunch::Library(library), entries.len(), n..n + 1));
                entries.extend(step.operands.iter().map(entry));
            }
            (Work::Kernel(_), Some(schedule)) => {
                for nest in &schedule.nests {
                    let n_drafts = drafts.len();
                    place(&mut drafts, nest, entries.len(), n, modes.separate);
                    if let Some(flags_at) = flags_at.filter(|_| drafts.len() > n_drafts) {
                        let offset = flags_at + FLAG_BYTES * n_drafts;
                        entries.push(Entry { site: Site::Arena, offset, len: FLAG_BYTES });
                    }
                    entries.extend(nest.sources.iter().map(|source| match *source {
                        Source::Param(p) => entry(&step.operands[p]),
                        Source::Scratch(at) => Entry { site: Site::Arena, offset: scratch_at + at, len: 0 },
                    }));
                }
            }
            (Work::Kernel(_), None) => {}
        }
    }
    let launches = launches(drafts, entries.len(), modes.trap)?;
    let n_launches = launches.len();
    Ok(Program {
        launches,
        bound: BoundEntries::of(&entries, plan.inputs.len(), plan.outputs.len()),
        entries,
        inputs: plan.inputs.iter().map(|t| t.bytes()).collect(),
        outputs: plan.outputs.iter().map(|t| t.bytes()).collect(),
        donations: plan.donations.clone(),
        constants,
        constants_at: scratch_at + scratch_len,
        arena_bytes: flags_at.map_or(scratch_end, |flags_at| flags_at + FLAG_BYTES * n_launches),
        flags_at,
    })
}

/// Adds a nest to the last function if both are small, else begins another.
fn place<'a>(
    drafts: &mut Vec<(PendingLaunch<'a>, usize, std::ops::Range<usize>)>,
    nest: &'a Nest,
    first: usize,
    step: usize,
    separate: bool,
) {
    if let Some((PendingLaunch::Code { nests }, _, steps)) = drafts.last_mut().filter(|_| !separate) {
        let insts: usize = nests.iter().map(|n| n.kernel.insts.len()).sum();
        let small = nest.work <= SMALL_WORK && nests.iter().all(|n| n.work <= SMALL_WORK);
        if small && nests.len() < MAX_MERGED_NESTS && insts + nest.kernel.insts.len() <= MAX_MERGED_INSTS {
            nests.push(nest);
            steps.end = step + 1;
            return;
        }
    }
    drafts.push((PendingLaunch::Code { nests: vec![nest] }, first, step..step + 1));
}

fn launches(
    drafts: Vec<(PendingLaunch<'_>, usize, std::ops::Range<usize>)>,
    n_entries: usize,
    trap: bool,
) -> Result<Vec<HostLaunch>> {
    let units: Vec<Unit<'_>> = drafts
        .iter()
        .filter_map(|(pending, ..)| match pending {
            PendingLaunch::Code { nests } => Some(Unit { nests: nests.clone(), trap }),
            PendingLaunch::Library(_) => None,
        })
        .collect();
    let mut functions = compile(&units)?.into_iter();
    let ends: Vec<usize> = drafts.iter().skip(1).map(|(_, first, _)| *first).chain([n_entries]).collect();
    let mut launches = Vec::with_capacity(drafts.len());
    for ((pending, first, steps), end) in drafts.into_iter().zip(ends) {
        let job = match pending {
            PendingLaunch::Library(library) => {
                Job::Library { library: library.clone(), n_inputs: library.inputs().len() }
            }
            PendingLaunch::Code { nests } => {
                let function = functions.next().ok_or_else(|| Error::Internal("a function is missing".into()))?;
                let (items, task) = match nests.as_slice() {
                    [nest] => (nest.items, nest.task),
                    // Several nests run whole.
                    _ => (1, 1),
                };
                Job::Code { function, items, task }
            }
        };
        launches.push(HostLaunch { job, first, count: end - first, steps });
    }
    Ok(launches)
}

fn entry(operand: &Operand) -> Entry {
    let (site, offset) = match operand.place {
        Place::Input(n) => (Site::Input(n as usize), 0),
        Place::Output(n) => (Site::Output(n as usize), 0),
        Place::Slot { offset } => (Site::Arena, offset),
    };
    Entry { site, offset, len: operand.ty().bytes() }
}
