//! Plans on a GPU.
//!
//! All steps of a plan become kernels that are queued on the GPU's stream, by one graph from the second run on. A run
//! returns before the device is done; reading a result waits for it. Since the stream runs in order, one arena is
//! enough for all runs of an executable, inputs may be dropped as soon as a run returns, and so may the executable.

mod call;
mod collective;
mod instrument;
mod pending;
mod program;

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use retape_runtime::cuda::{Address, Chain, Idle, Launch, Source};
use retape_runtime::{Buffer, DeviceBuffer, Gpu, lock, try_lock};

use crate::donation::{Input, take_donated};
use crate::error::{Error, Result};
use crate::library::Library;
use crate::plan::{BufferType, Operand, Place, Plan, Step, Work};
use crate::program::{LaunchTime, Modes};
use crate::ptx::{self, Target};

use self::collective::Exchanged;
use self::pending::{ArgumentTarget, PendingSegment, PlacedLaunch, Task};

/// The alignment of scratch memory that kernels expect.
const SCRATCH_ALIGN: usize = 256;

/// A plan with its code on a GPU.
#[derive(Debug)]
pub struct DeviceExecutable {
    plan: Plan,
    gpu: Arc<Gpu>,
    target: Target,
    /// Each step has launches of its own.
    separate: bool,
    segments: Vec<Segment>,
    /// The task of each launch and of each step of the host.
    tasks: Vec<Task>,
    /// Arena and scratch.
    arena_bytes: usize,
    arena: Arc<Arena>,
}

/// A part that runs without the host in between, or on the host.
#[derive(Debug)]
enum Segment {
    Chain(Chain),
    /// A step of the host, with what it reads and then writes.
    Host {
        library: Box<Library>,
        operands: Vec<Operand>,
    },
    /// A step that takes other workers. It is one of the host if their GPUs have no link.
    Exchanged(Box<Exchanged>),
}

/// The memory of an executable, if it has some now.
#[derive(Debug, Default)]
struct Arena(Mutex<Option<DeviceBuffer>>);

impl Arena {
    /// Held while work is queued, so that runs do not mingle in the memory.
    fn lock(&self) -> MutexGuard<'_, Option<DeviceBuffer>> {
        lock(&self.0)
    }

    /// As [`lock`](Arena::lock), but does not wait.
    fn try_lock(&self) -> Option<MutexGuard<'_, Option<DeviceBuffer>>> {
        try_lock(&self.0)
    }
}

impl Idle for Arena {
    fn give_up(&self) {
        if let Some(mut arena) = self.try_lock() {
            *arena = None;
        }
    }
}

impl DeviceExecutable {
    /// Verifies and compiles a plan. Approximations of the hardware may stand for exact operations if it is `fast`.
    ///
    /// # Errors
    ///
    /// Fails if the plan is malformed, a step cannot run on the device, or the driver refuses code or memory.
    pub fn compile(plan: Plan, gpu: Arc<Gpu>, fast: bool) -> Result<DeviceExecutable> {
        DeviceExecutable::compile_with(plan, gpu, fast, Modes::default())
    }

    /// As [`compile`](DeviceExecutable::compile), in these modes; nothing is needed to trap.
    ///
    /// # Errors
    ///
    /// As [`compile`](DeviceExecutable::compile).
    pub fn compile_with(plan: Plan, gpu: Arc<Gpu>, fast: bool, modes: Modes) -> Result<DeviceExecutable> {
        plan.verify()?;
        let (major, minor) = gpu.capability();
        let scratch_at = plan.arena_bytes.next_multiple_of(SCRATCH_ALIGN);
        let target = Target { sm: 10 * major + minor, fast, nondeterministic: modes.nondeterministic };
        let (pending, scratch) =
            pending::segments(&plan, target, modes.separate).map_err(|error| as_device_error(&gpu, error))?;
        let tasks = pending::tasks(&pending);
        let segments = segments(&plan, &gpu, pending, scratch_at)?;
        let arena = Arc::new(Arena::default());
        let idle: Arc<dyn Idle> = Arc::<Arena>::clone(&arena);
        gpu.on_shortage(Arc::downgrade(&idle));
        let arena_bytes = if scratch > 0 { scratch_at + scratch } else { plan.arena_bytes };
        let separate = modes.separate;
        Ok(DeviceExecutable { plan, gpu, target, separate, segments, tasks, arena_bytes, arena })
    }

    /// The PTX of all launches, each with the steps that it does.
    ///
    /// # Errors
    ///
    /// None that compiling did not have.
    pub fn text(&self) -> Result<String> {
        let (pending, _) = pending::segments(&self.plan, self.target, self.separate)?;
        let head = |steps: &Range<usize>| {
            let labels: Vec<&str> = self.plan.steps[steps.clone()].iter().map(|step| step.label.as_str()).collect();
            format!("; {}", labels.join(", "))
        };
        let launch = |placed: &PlacedLaunch| {
            let ptx::Launch { module, grid, block, shared, .. } = &placed.launch;
            let size = format!("grid {grid:?}, {block} threads a block, {shared} bytes of dynamic shared memory");
            format!("{}\n// {size}\n{}\n", head(&placed.task.steps), module.text())
        };
        let text = |pending: &PendingSegment| match pending {
            PendingSegment::Host(n) => {
                let place = match &self.plan.steps[*n].work {
                    Work::Library { kernel: Library::Collective(_), .. } => "with other workers",
                    _ => "on the host",
                };
                format!("{}\n// {place}\n\n", head(&(*n..n + 1)))
            }
            PendingSegment::Launches(launches) => launches.iter().map(launch).collect(),
        };
        Ok(pending.iter().map(text).collect())
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Queues the plan, with new buffers for its results.
    ///
    /// # Errors
    ///
    /// Fails if the inputs do not fit the plan or lie elsewhere, memory is refused, or earlier work broke the device.
    pub fn run(&self, inputs: &[&DeviceBuffer]) -> Result<Vec<DeviceBuffer>> {
        self.verify_inputs(inputs)?;
        let outputs = self.new_outputs()?;
        self.call(inputs, &outputs, |buffers| self.queue(buffers))?;
        Ok(outputs)
    }

    /// Queues the plan; results take the memory of donated inputs where the plan has a donation for them.
    ///
    /// # Errors
    ///
    /// As [`run`](DeviceExecutable::run); donated inputs are gone then, too.
    pub fn run_donating<'a>(&self, mut inputs: impl AsMut<[Input<'a, DeviceBuffer>]>) -> Result<Vec<DeviceBuffer>> {
        let inputs = inputs.as_mut();
        Input::check_not_moved(inputs)?;
        self.verify_inputs(&inputs.iter().map(|input| input.buffer(&[])).collect::<Result<Vec<_>>>()?)?;
        let taken = take_donated(&self.plan.donations, inputs, self.plan.outputs.len(), |_, _| true);
        let make = |(taken, ty): (Option<DeviceBuffer>, &BufferType)| {
            taken.map_or_else(|| DeviceBuffer::alloc(&self.gpu, ty.bytes()), Ok)
        };
        let outputs = taken.into_iter().zip(&self.plan.outputs).map(make).collect::<Result<Vec<_>, _>>()?;
        let inputs = inputs.iter().map(|input| input.buffer(&outputs)).collect::<Result<Vec<&DeviceBuffer>>>()?;
        self.call(&inputs, &outputs, |buffers| self.queue(buffers))?;
        Ok(outputs)
    }

    /// Runs the plan launch by launch, waits for it, and measures the launches, in the order of
    /// [`launch_steps`](DeviceExecutable::launch_steps).
    ///
    /// # Errors
    ///
    /// As [`run`](DeviceExecutable::run), and if the work fails.
    pub fn profile(&self, inputs: &[&DeviceBuffer]) -> Result<(Vec<DeviceBuffer>, Vec<LaunchTime>)> {
        self.verify_inputs(inputs)?;
        let outputs = self.new_outputs()?;
        let mut times = Vec::with_capacity(self.tasks.len());
        self.call(inputs, &outputs, |buffers| {
            for segment in &self.segments {
                self.gpu.sync()?;
                let start = Instant::now();
                match segment {
                    Segment::Chain(chain) => {
                        times.extend(call::run_timed(chain, buffers)?.into_iter().map(|span| LaunchTime {
                            start: start + Duration::from_nanos(span.start),
                            nanos: span.nanos,
                        }))
                    }
                    Segment::Host { .. } | Segment::Exchanged(_) => {
                        self.run_segment(segment, buffers)?;
                        self.gpu.sync()?;
                        times.push(LaunchTime { start, nanos: start.elapsed().as_nanos() as u64 });
                    }
                }
            }
            Ok(())
        })?;
        Ok((outputs, times))
    }

    /// The steps of the plan that each launch does: one, or a part of one, or some that do not depend on each other.
    pub fn launch_steps(&self) -> impl ExactSizeIterator<Item = Range<usize>> {
        self.tasks.iter().map(|task| task.steps.clone())
    }

    /// The number of launches that the steps became, and of steps of the host.
    pub fn n_launches(&self) -> usize {
        self.tasks.len()
    }

    /// Bytes of arena and scratch on the device.
    pub fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }

    /// Bytes of code on the device; code that other plans share is counted by each.
    pub fn code_bytes(&self) -> usize {
        let bytes = self.segments.iter().map(|segment| match segment {
            Segment::Chain(chain) => code_bytes(chain),
            Segment::Host { .. } => 0,
            Segment::Exchanged(exchanged) => exchanged.code_bytes(),
        });
        bytes.sum()
    }

    /// Bytes of the arena that a run has left for later ones.
    pub fn idle_bytes(&self) -> usize {
        let is_idle = self.arena.try_lock().is_some_and(|arena| arena.is_some());
        if is_idle { self.arena_bytes } else { 0 }
    }

    fn new_outputs(&self) -> Result<Vec<DeviceBuffer>> {
        let make = |ty: &BufferType| DeviceBuffer::alloc(&self.gpu, ty.bytes());
        Ok(self.plan.outputs.iter().map(make).collect::<Result<_, _>>()?)
    }

    fn verify_inputs(&self, inputs: &[&DeviceBuffer]) -> Result<()> {
        let refuse = |reason: String| Err(Error::Buffers(reason));
        if inputs.len() != self.plan.inputs.len() {
            return refuse(format!("{} inputs instead of {}", inputs.len(), self.plan.inputs.len()));
        }
        for (n, (input, ty)) in inputs.iter().zip(&self.plan.inputs).enumerate() {
            if input.len() != ty.bytes() {
                return refuse(format!("input {n} has {} bytes, which is not {ty}", input.len()));
            }
            if !Arc::ptr_eq(input.gpu(), &self.gpu) {
                let (here, there) = (self.gpu.device(), input.gpu().device());
                return refuse(format!("input {n} lies on {there}, the code on {here}"));
            }
        }
        Ok(())
    }

    /// Works with all buffers of a call, in the order of [`base`].
    fn call(
        &self,
        inputs: &[&DeviceBuffer],
        outputs: &[DeviceBuffer],
        work: impl FnOnce(&[&DeviceBuffer]) -> Result<()>,
    ) -> Result<()> {
        let mut place = self.arena.lock();
        let arena = match place.take() {
            Some(arena) => arena,
            None => DeviceBuffer::alloc(&self.gpu, self.arena_bytes)?,
        };
        // A print's sink may run the same plan again: it gets another arena.
        let held = if self.enters_host() { None } else { Some(&mut place) };
        let buffers: Vec<&DeviceBuffer> = [&arena].into_iter().chain(inputs.iter().copied()).chain(outputs).collect();
        match held {
            Some(place) => {
                let done = work(&buffers);
                **place = Some(arena);
                done
            }
            None => {
                drop(place);
                let done = work(&buffers);
                self.arena.lock().get_or_insert(arena);
                done
            }
        }
    }

    fn enters_host(&self) -> bool {
        self.segments.iter().any(|segment| !matches!(segment, Segment::Chain(_)))
    }

    fn queue(&self, buffers: &[&DeviceBuffer]) -> Result<()> {
        self.segments.iter().try_for_each(|segment| self.run_segment(segment, buffers))
    }

    /// Runs a part.
    fn run_segment(&self, segment: &Segment, buffers: &[&DeviceBuffer]) -> Result<()> {
        match segment {
            Segment::Chain(chain) => call::run(chain, buffers),
            Segment::Host { library, operands } => self.run_on_host(library, operands, buffers),
            Segment::Exchanged(exchanged) => exchanged.run(self, buffers),
        }
    }

    /// Waits for what a kernel reads, runs it on the host, and sends back what it wrote.
    fn run_on_host(&self, library: &Library, operands: &[Operand], buffers: &[&DeviceBuffer]) -> Result<()> {
        let mut host = Buffer::alloc_all(&operands.iter().map(|operand| operand.ty().bytes()).collect::<Vec<_>>())?;
        let (read, written) = host.split_at_mut(library.inputs().len());
        for (operand, bytes) in operands.iter().zip(&mut *read) {
            self.read(operand, buffers, bytes.bytes_mut())?;
        }
        let inputs: Vec<&[u8]> = read.iter().map(Buffer::bytes).collect();
        let mut outputs: Vec<&mut [u8]> = written.iter_mut().map(Buffer::bytes_mut).collect();
        library.launch(&inputs, &mut outputs)?;
        for (operand, bytes) in operands[inputs.len()..].iter().zip(&outputs) {
            let Address { base, offset } = address(&self.plan, operand);
            buffers[base].write_at(offset, bytes)?;
        }
        Ok(())
    }

    /// Waits for an operand and copies it to the host.
    fn read(&self, operand: &Operand, buffers: &[&DeviceBuffer], bytes: &mut [u8]) -> Result<()> {
        let Address { base, offset } = address(&self.plan, operand);
        Ok(buffers[base].read_at(offset, bytes)?)
    }
}

/// Where an operand lies among the buffers of a call: the arena, the inputs and the outputs.
fn address(plan: &Plan, operand: &Operand) -> Address {
    let inputs = 1;
    let outputs = inputs + plan.inputs.len();
    match operand.place {
        Place::Slot { offset } => Address { base: 0, offset },
        Place::Input(n) => Address { base: inputs + n as usize, offset: 0 },
        Place::Output(n) => Address { base: outputs + n as usize, offset: 0 },
    }
}

/// Bytes of the code of launches.
fn code_bytes(chain: &Chain) -> usize {
    chain.launches().iter().map(|launch| launch.function.bytes()).sum()
}

/// Reports unsupported code as an error of the device: its limits are no fault of this crate.
fn as_device_error(gpu: &Gpu, error: Error) -> Error {
    match error {
        Error::Unsupported(reason) => retape_runtime::Error::Gpu { device: gpu.device(), reason }.into(),
        other => other,
    }
}

/// Loads the code of all drafts at once.
fn segments(plan: &Plan, gpu: &Arc<Gpu>, pending: Vec<PendingSegment>, scratch_at: usize) -> Result<Vec<Segment>> {
    let launches = pending.iter().flat_map(|pending| match pending {
        PendingSegment::Launches(launches) => launches.as_slice(),
        PendingSegment::Host(_) => &[],
    });
    let texts: Vec<(&str, String)> =
        launches.map(|placed| (placed.launch.module.name.as_str(), placed.launch.module.text())).collect();
    let sources: Vec<Source<'_>> = texts.iter().map(|(name, text)| Source { name, text }).collect();
    let mut functions = gpu.load(&sources)?.into_iter();
    drop(texts);
    let mut segments = vec![];
    for pending in pending {
        match pending {
            PendingSegment::Host(n) => {
                let Step { work, operands, .. } = &plan.steps[n];
                let operands = operands.to_vec();
                match work {
                    Work::Library { kernel: Library::Collective(collective), .. } => {
                        segments.push(Segment::Exchanged(Box::new(Exchanged::new(collective.clone(), operands))));
                    }
                    Work::Library { kernel, .. } => {
                        segments.push(Segment::Host { library: Box::new(kernel.clone()), operands })
                    }
                    Work::Kernel(_) => {}
                }
            }
            PendingSegment::Launches(launches) => {
                let place = |placed: PlacedLaunch| {
                    let function = functions.next()?;
                    let ptx::Launch { grid, block, shared, .. } = placed.launch;
                    let at = |at: &ArgumentTarget| match at {
                        ArgumentTarget::Operand(operand) => address(plan, operand),
                        ArgumentTarget::Scratch(offset) => Address { base: 0, offset: scratch_at + offset },
                    };
                    Some(Launch { function, grid, block, shared, arguments: placed.arguments.iter().map(at).collect() })
                };
                let launches: Option<Vec<Launch>> = launches.into_iter().map(place).collect();
                let launches = launches.ok_or_else(|| Error::Internal("a kernel was not loaded".into()))?;
                segments.push(Segment::Chain(Chain::new(gpu, launches)?));
            }
        }
    }
    Ok(segments)
}
