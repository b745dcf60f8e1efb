//! Compiled plans.
//!
//! A call takes a workspace, which knows where everything lies, and runs the launches of the program in order.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use retape_runtime::{Buffer, CachePadded, DeviceBuffer, thread_number, try_lock};
use smallvec::{SmallVec, smallvec};

use crate::call::Workspace;
use crate::cpu::{Function, machine_text, nest_text};
use crate::donation::{Bytes, Input, take_donated};
use crate::epilogue::Epilogue;
use crate::error::{Error, Result};
use crate::ir::evaluate;
use crate::library::Library;
use crate::pending::{nest_on_tiles, program};
use crate::phase::Phase;
use crate::plan::{Operand, Place, Plan, Step, Work};
use crate::program::{Job, LaunchTime, Modes, Program};

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
            if let Work::Library { kernel, .. } = &step.work {
                kernel.check_host()?;
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
            Work::Library { kernel, epilogue: None } => format!("; library {kernel}"),
            Work::Library { kernel, epilogue: Some(epilogue) } => {
                format!("; library {kernel}\n; epilogue\n{}", text_of_epilogue(step, epilogue))
            }
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
                Work::Library { kernel, epilogue: None } => kernel.evaluate(&reads, &mut slices)?,
                Work::Library { kernel, epilogue: Some(epilogue) } => {
                    evaluate_with_epilogue(kernel, epilogue, &reads, &mut slices)?;
                }
            }
            for (operand, write) in step.results().iter().zip(&writes) {
                memory(operand, &mut outputs, arena.bytes_mut()).copy_from_slice(write.bytes());
            }
        }
        Ok(outputs)
    }

    /// The number of calls that the steps became.
    pub fn n_launches(&self) -> usize {
        self.program.launches.len()
    }

    /// The launches, by number, that a call runs before its threads meet: one, or those of a region, or some that may run
    /// at once.
    pub fn phases(&self) -> impl ExactSizeIterator<Item = Vec<usize>> {
        self.program.phases.iter().map(Phase::launches)
    }

    /// The number of functions that the steps became; launches may share one.
    pub fn n_functions(&self) -> usize {
        self.functions().map(Arc::as_ptr).collect::<HashSet<_>>().len()
    }

    /// Bytes of arena and scratch that one call uses.
    pub fn arena_bytes(&self) -> usize {
        self.program.arena_bytes
    }

    /// Bytes of machine code that the steps use; code that other plans share is counted by each.
    pub fn code_bytes(&self) -> usize {
        self.functions().map(|function| function.bytes()).sum()
    }

    /// The function of each launch, or those of a chain.
    fn functions(&self) -> impl Iterator<Item = &Arc<Function>> {
        self.program.launches.iter().flat_map(|launch| -> SmallVec<[&Arc<Function>; 1]> {
            match &launch.job {
                Job::Code { function, .. } => smallvec![function],
                Job::Chain { links, .. } => links.iter().map(|link| &link.function).collect(),
                Job::Library { epilogue, .. } => epilogue.iter().collect(),
            }
        })
    }

    /// Bytes of the arenas that calls have left for later ones; those in use now are not counted.
    pub fn idle_bytes(&self) -> usize {
        let n_idle =
            self.workspaces.iter().filter(|place| try_lock(place).is_some_and(|place| place.is_some())).count();
        n_idle * self.arena_bytes()
    }

    #[inline]
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

/// Evaluates a library kernel, and then its epilogue.
fn evaluate_with_epilogue(
    library: &Library,
    epilogue: &Epilogue,
    reads: &[&[u8]],
    writes: &mut [&mut [u8]],
) -> Result<()> {
    let (sources, others) = reads.split_at(library.inputs().len());
    let Some((accumulator, written)) = writes.split_last_mut() else { return Ok(()) };
    library.evaluate(sources, &mut [&mut **accumulator])?;
    let mut reads = others.to_vec();
    reads.insert(epilogue.accumulator().index(), &**accumulator);
    evaluate(epilogue.kernel(), &reads, written);
    Ok(())
}

/// The machine instructions of an epilogue in the form that it has when nothing is watched.
fn text_of_epilogue(step: &Step, epilogue: &Epilogue) -> String {
    let text = match nest_on_tiles(step) {
        Some(nest) => nest_text(&nest),
        None => machine_text(epilogue.kernel()),
    };
    text.unwrap_or_else(|e| e.to_string())
}
