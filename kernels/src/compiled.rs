//! A plan with its code on whichever device: one face of the executables of the processor and of GPUs.
//!
//! Guarantees that who runs, measures or looks at code need not know where it runs: inputs come from the memory that
//! they lie in, those in main memory are sent to a GPU that needs them, and outputs lie where the code ran.

use std::ops::Range;
use std::sync::Arc;

use retape_runtime::{Buffer, Device, DeviceBuffer, Gpu};
use smallvec::SmallVec;

use crate::donation::Input;
use crate::error::{Error, Result};
use crate::execute::{Executable, Inputs};
use crate::gpu::DeviceExecutable;
use crate::plan::Plan;
use crate::program::{LaunchTime, Modes};

/// A plan with its code on one device.
///
/// ```
/// use retape_kernels::ir::parse;
/// use retape_kernels::{BufferType, CompiledPlan, Modes, Operand, Place, Plan, Step, Work};
/// use retape_runtime::{Buffer, DType, Device};
///
/// let kernel = parse(
///     "kernel (p0: f32[2], p1: f32[2] out) {
///        axes a0 = 2
///        %0 = load p0[a0]
///        %1 = exp %0
///        store p1[a0], %1
///      }",
/// )?;
/// let (dtype, len) = (DType::F32, 2);
/// let operands = [Place::Input(0), Place::Output(0)].map(|place| Operand { place, dtype, len });
/// let steps = vec![Step { work: Work::Kernel(kernel), operands: operands.into_iter().collect(), label: "exp".into() }];
/// let ty = BufferType { dtype, len };
/// let plan = Plan { inputs: vec![ty], outputs: vec![ty], steps, ..Plan::default() };
///
/// let code = CompiledPlan::compile(plan, None, false, Modes::default())?;
/// let (input, mut found) = (Buffer::copy_of(&[0.0_f32, f32::NEG_INFINITY])?, vec![]);
/// code.run_stepwise(&[&input][..], &mut |step, _, bytes| found.push((step, bytes.to_vec())))?;
/// assert_eq!(code.device(), Device::Cpu);
/// assert_eq!(found, [(0, Buffer::copy_of(&[1.0_f32, 0.0])?.bytes().to_vec())]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct CompiledPlan(DeviceCode);

#[derive(Debug)]
enum DeviceCode {
    Host(Box<Executable>),
    Gpu(Box<DeviceExecutable>),
}

/// An input of a run that may be written over, in either kind of memory.
#[derive(Debug)]
pub enum AnyInput<'a> {
    /// In main memory.
    Host(Input<'a, Buffer>),
    /// On a GPU.
    Gpu(Input<'a, DeviceBuffer>),
}

/// The results of a run, in the order of the plan's outputs and in the memory of the device that it ran on.
#[derive(Debug)]
pub struct Outputs(OutputBuffers);

#[derive(Debug)]
enum OutputBuffers {
    Host(Vec<Buffer>),
    Gpu(Vec<DeviceBuffer>),
}

/// Sees what a step wrote: the step's number, the position among its written operands, and the bytes.
pub type SeeStep<'s> = dyn FnMut(usize, usize, &[u8]) + 's;

impl Outputs {
    fn host(buffers: Vec<Buffer>) -> Outputs {
        Outputs(OutputBuffers::Host(buffers))
    }

    fn gpu(buffers: Vec<DeviceBuffer>) -> Outputs {
        Outputs(OutputBuffers::Gpu(buffers))
    }

    /// Makes something of each output and of the item that belongs to it.
    #[inline]
    pub fn zip_with<M, I: IntoIterator, T>(self, items: I, make: impl Fn(M, I::Item) -> T) -> Vec<T>
    where
        M: From<Buffer> + From<DeviceBuffer>,
    {
        match self.0 {
            // Collected in the memory of the list.
            OutputBuffers::Host(buffers) if !Buffer::is_long_list(&buffers) => {
                buffers.into_iter().zip(items).map(|(b, item)| make(b.into(), item)).collect()
            }
            others => others.zip_with(items, make),
        }
    }
}

impl OutputBuffers {
    /// As [`Outputs::zip_with`], of many outputs or of those on a GPU.
    #[inline(never)]
    fn zip_with<M, I: IntoIterator, T>(self, items: I, make: impl Fn(M, I::Item) -> T) -> Vec<T>
    where
        M: From<Buffer> + From<DeviceBuffer>,
    {
        match self {
            OutputBuffers::Host(mut buffers) => {
                let all = buffers.drain(..).zip(items).map(|(b, item)| make(b.into(), item)).collect();
                Buffer::leave_list(buffers);
                all
            }
            OutputBuffers::Gpu(buffers) => {
                buffers.into_iter().zip(items).map(|(b, item)| make(b.into(), item)).collect()
            }
        }
    }
}

impl CompiledPlan {
    /// Verifies and compiles a plan for a GPU, or for the processor if none is given. On a GPU, approximations of the
    /// hardware may stand for exact operations if the code is `fast`.
    ///
    /// # Errors
    ///
    /// As [`Executable::compile`] and [`DeviceExecutable::compile`].
    pub fn compile(plan: Plan, gpu: Option<Arc<Gpu>>, fast: bool, modes: Modes) -> Result<CompiledPlan> {
        Ok(CompiledPlan(match gpu {
            None => DeviceCode::Host(Box::new(Executable::compile_with(plan, modes)?)),
            Some(gpu) => DeviceCode::Gpu(Box::new(DeviceExecutable::compile_with(plan, gpu, fast, modes)?)),
        }))
    }

    /// The device that it runs on.
    pub fn device(&self) -> Device {
        match &self.0 {
            DeviceCode::Host(_) => Device::Cpu,
            DeviceCode::Gpu(code) => code.gpu().device(),
        }
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        match &self.0 {
            DeviceCode::Host(code) => code.plan(),
            DeviceCode::Gpu(code) => code.plan(),
        }
    }

    /// The code for people: machine instructions of every step, or PTX of every launch.
    pub fn text(&self) -> String {
        match &self.0 {
            DeviceCode::Host(code) => code.text(),
            DeviceCode::Gpu(code) => code.text().unwrap_or_else(|e| e.to_string()),
        }
    }

    /// The steps of the plan that each launch does: several small ones together, or one, or a part of one.
    pub fn launch_steps(&self) -> Vec<Range<usize>> {
        match &self.0 {
            DeviceCode::Host(code) => code.launch_steps().collect(),
            DeviceCode::Gpu(code) => code.launch_steps().collect(),
        }
    }

    /// Bytes of arena and scratch that one run uses.
    pub fn arena_bytes(&self) -> usize {
        match &self.0 {
            DeviceCode::Host(code) => code.arena_bytes(),
            DeviceCode::Gpu(code) => code.arena_bytes(),
        }
    }

    /// Bytes of machine code; code that other plans share is counted by each.
    pub fn code_bytes(&self) -> usize {
        match &self.0 {
            DeviceCode::Host(code) => code.code_bytes(),
            DeviceCode::Gpu(code) => code.code_bytes(),
        }
    }

    /// Runs the plan. On a GPU the work is queued.
    ///
    /// # Errors
    ///
    /// Fails if the inputs do not fit the plan or lie on another GPU, or if memory is refused.
    #[inline]
    pub fn run<I: Inputs + ?Sized>(&self, inputs: &I) -> Result<Outputs> {
        match &self.0 {
            DeviceCode::Host(code) => Ok(Outputs::host(code.run_from(inputs)?)),
            DeviceCode::Gpu(code) => Ok(Outputs::gpu(code.run(&refs(&sent(inputs, code.gpu())?)?)?)),
        }
    }

    /// Runs the plan; results take the memory of donated inputs where the plan has a donation for them.
    ///
    /// # Errors
    ///
    /// Those of an input, and as [`run`](CompiledPlan::run); donated inputs are gone then, too.
    pub fn run_donating<'a, E: From<Error>>(
        &self,
        inputs: impl Iterator<Item = std::result::Result<AnyInput<'a>, E>>,
    ) -> std::result::Result<Outputs, E> {
        match &self.0 {
            DeviceCode::Host(code) => {
                let inputs = inputs.map(|input| Ok(on_host(input?)?));
                let inputs = inputs.collect::<std::result::Result<SmallVec<[Input<'_>; 24]>, E>>()?;
                Ok(Outputs::host(code.run_donating(inputs)?))
            }
            DeviceCode::Gpu(code) => {
                let inputs = inputs.map(|input| Ok(on_gpu(input?, code.gpu())?));
                Ok(Outputs::gpu(code.run_donating(inputs.collect::<std::result::Result<Vec<_>, E>>()?)?))
            }
        }
    }

    /// Runs the plan and measures its launches, in the order of [`launch_steps`](CompiledPlan::launch_steps).
    ///
    /// # Errors
    ///
    /// As [`run`](CompiledPlan::run), and if work on a GPU fails.
    pub fn profile<I: Inputs + ?Sized>(&self, inputs: &I) -> Result<(Outputs, Vec<LaunchTime>)> {
        match &self.0 {
            DeviceCode::Host(code) => {
                code.profile(&borrowed(inputs)?).map(|(outputs, times)| (Outputs::host(outputs), times))
            }
            DeviceCode::Gpu(code) => {
                let (outputs, times) = code.profile(&refs(&sent(inputs, code.gpu())?)?)?;
                Ok((Outputs::gpu(outputs), times))
            }
        }
    }

    /// Runs the plan, which was compiled with a trap; also says which steps first stored NaN or an infinity.
    ///
    /// # Errors
    ///
    /// As [`profile`](CompiledPlan::profile), and if the plan was compiled without a trap.
    pub fn run_trapped<I: Inputs + ?Sized>(&self, inputs: &I) -> Result<(Outputs, Option<String>)> {
        match &self.0 {
            DeviceCode::Host(code) => {
                code.run_trapped(&borrowed(inputs)?).map(|(outputs, first)| (Outputs::host(outputs), first))
            }
            DeviceCode::Gpu(code) => {
                let (outputs, first) = code.run_trapped(&refs(&sent(inputs, code.gpu())?)?)?;
                Ok((Outputs::gpu(outputs), first))
            }
        }
    }

    /// Runs the plan one step at a time and hands out what each step wrote; nothing is printed.
    ///
    /// # Errors
    ///
    /// As [`profile`](CompiledPlan::profile).
    pub fn run_stepwise<I: Inputs + ?Sized>(&self, inputs: &I, see: &mut SeeStep<'_>) -> Result<()> {
        match &self.0 {
            DeviceCode::Host(code) => code.run_stepwise(&borrowed(inputs)?, see).map(drop),
            DeviceCode::Gpu(code) => code.run_stepwise(&refs(&sent(inputs, code.gpu())?)?, see).map(drop),
        }
    }
}

/// All inputs in main memory.
fn borrowed<I: Inputs + ?Sized>(inputs: &I) -> Result<SmallVec<[&Buffer; 24]>> {
    (0..inputs.count()).map(|n| inputs.buffer(n).ok_or_else(|| elsewhere(n, Device::Cpu))).collect()
}

/// All inputs on a GPU.
fn sent<'a, I: Inputs + ?Sized>(inputs: &'a I, gpu: &Arc<Gpu>) -> Result<Vec<Input<'a, DeviceBuffer>>> {
    let input = |n| match (inputs.device_buffer(n), inputs.buffer(n)) {
        (Some(there), _) => Ok(Input::borrowed(there)),
        (None, Some(here)) => on_gpu(AnyInput::Host(Input::borrowed(here)), gpu),
        (None, None) => Err(elsewhere(n, gpu.device())),
    };
    (0..inputs.count()).map(input).collect()
}

fn refs<'a>(inputs: &'a [Input<'_, DeviceBuffer>]) -> Result<Vec<&'a DeviceBuffer>> {
    inputs.iter().map(|input| input.buffer(&[])).collect()
}

fn on_host(input: AnyInput<'_>) -> Result<Input<'_>> {
    match input {
        AnyInput::Host(input) => Ok(input),
        AnyInput::Gpu(input) => {
            let device = input.buffer(&[])?.gpu().device();
            Err(Error::Internal(format!("code on {} was given an input on {device}", Device::Cpu)))
        }
    }
}

/// An input as code on a GPU needs it; numbers in main memory are sent along.
fn on_gpu<'a>(input: AnyInput<'a>, gpu: &Arc<Gpu>) -> Result<Input<'a, DeviceBuffer>> {
    match input {
        AnyInput::Gpu(input) => Ok(input),
        AnyInput::Host(input) => Ok(Input::donated(DeviceBuffer::from_bytes(gpu, input.buffer(&[])?.bytes())?)),
    }
}

/// An input that should not have come here.
fn elsewhere(n: usize, device: Device) -> Error {
    Error::Internal(format!("input {n} has no bytes that code on {device} can read"))
}
