//! Machine code of a plan, for the processor or for a GPU, and what it takes and gives.

use std::ops::Range;
use std::sync::Arc;

use retape_kernels::{DeviceExecutable, Executable, Input, Inputs, LaunchTime, Modes, Plan, Step, Work, machine_text};
use retape_runtime::{Buffer, Device, DeviceBuffer, Gpu};
use smallvec::SmallVec;

use crate::determinism;
use crate::error::{Error, Result};
use crate::tape::Capture;
use crate::tensor::{Memory, Tensor, gpu};
use crate::types::TensorType;

/// The device and the modes that a plan is compiled for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    pub(crate) device: Device,
    /// Whether approximations of a GPU may stand for exact operations.
    pub(crate) is_fast: bool,
    pub(crate) modes: Modes,
}

impl Target {
    /// The code of single ops on a device, exact and in the present state of the process.
    pub(crate) fn of_ops_on(device: Device) -> Target {
        let nondeterministic = device != Device::Cpu && determinism::is_off();
        Target { device, is_fast: false, modes: Modes { nondeterministic, ..Modes::default() } }
    }
}

/// The code of a plan on one device.
#[derive(Debug)]
pub(crate) enum Code {
    Host(Box<Executable>),
    Device(Box<DeviceExecutable>),
}

/// The inputs of a run: tensors that are passed, then captured ones.
#[derive(Clone, Copy)]
pub(crate) struct Operands<'a> {
    pub(crate) args: &'a [&'a Tensor],
    pub(crate) captures: &'a [Capture],
}

/// The results of a run, in the order of the plan's outputs.
pub(crate) enum Outputs {
    Host(Vec<Buffer>),
    Device(Vec<DeviceBuffer>),
}

/// Sees what a step wrote: the step's number, the position among its written operands, and the bytes.
pub(crate) type SeeStep<'s> = dyn FnMut(usize, usize, &[u8]) + 's;

impl<'a> Operands<'a> {
    /// Tensors that are all passed.
    pub(crate) fn of(args: &'a [&'a Tensor]) -> Operands<'a> {
        Operands { args, captures: &[] }
    }

    fn iter(&self) -> impl Iterator<Item = &'a Tensor> + use<'a> {
        self.args.iter().copied().chain(self.captures.iter().map(|capture| &capture.tensor))
    }

    fn on_host(&self) -> Result<SmallVec<[&'a Buffer; 24]>> {
        self.iter().map(bytes_on_host).collect()
    }

    fn on_device(&self, gpu: &Arc<Gpu>) -> Result<Vec<Sent<'a>>> {
        self.iter().map(|tensor| sent(tensor, gpu)).collect()
    }
}

impl Inputs for Operands<'_> {
    #[inline]
    fn count(&self) -> usize {
        self.args.len() + self.captures.len()
    }

    #[inline]
    fn buffer(&self, input: usize) -> Option<&Buffer> {
        let tensor = match self.args.get(input) {
            Some(arg) => arg,
            None => &self.captures.get(input - self.args.len())?.tensor,
        };
        tensor.as_concrete()?.host_bytes()
    }
}

impl Outputs {
    /// The outputs as tensors of these types.
    pub(crate) fn into_tensors<'t>(self, types: impl IntoIterator<Item = &'t TensorType>) -> Vec<Tensor> {
        fn typed<'t, B: Into<Memory>>(buffers: Vec<B>, types: impl IntoIterator<Item = &'t TensorType>) -> Vec<Tensor> {
            buffers.into_iter().zip(types).map(|(bytes, ty)| Tensor::concrete(ty.clone(), bytes)).collect()
        }
        match self {
            Outputs::Host(buffers) => typed(buffers, types),
            Outputs::Device(buffers) => typed(buffers, types),
        }
    }
}

impl Code {
    /// Verifies and compiles a plan.
    pub(crate) fn compile(plan: Plan, target: Target) -> Result<Code> {
        match target.device {
            Device::Cpu => Ok(Code::Host(Box::new(Executable::compile_with(plan, target.modes)?))),
            device => Ok(Code::Device(Box::new(DeviceExecutable::compile_with(
                plan,
                gpu(device)?,
                target.is_fast,
                target.modes,
            )?))),
        }
    }

    /// The device that it runs on.
    pub(crate) fn device(&self) -> Device {
        match self {
            Code::Host(_) => Device::Cpu,
            Code::Device(code) => code.gpu().device(),
        }
    }

    /// The plan.
    pub(crate) fn plan(&self) -> &Plan {
        match self {
            Code::Host(code) => code.plan(),
            Code::Device(code) => code.plan(),
        }
    }

    /// The code for people: machine instructions of every step, or PTX of every launch.
    pub(crate) fn text(&self) -> String {
        let text = |step: &Step| match &step.work {
            Work::Kernel(kernel) => machine_text(kernel).unwrap_or_else(|e| e.to_string()),
            Work::Library(library) => format!("; library {library}"),
        };
        match self {
            Code::Device(code) => code.text().unwrap_or_else(|e| e.to_string()),
            Code::Host(_) => {
                self.plan().steps.iter().map(|step| format!("; {}\n{}\n", step.label, text(step))).collect()
            }
        }
    }

    /// The steps of the plan that each launch does: several small ones together, or one, or a part of one.
    pub(crate) fn launch_steps(&self) -> Vec<Range<usize>> {
        match self {
            Code::Host(code) => code.launch_steps().collect(),
            Code::Device(code) => code.launch_steps().collect(),
        }
    }

    /// Bytes of arena and scratch that one run uses.
    pub(crate) fn arena_bytes(&self) -> usize {
        match self {
            Code::Host(code) => code.arena_bytes(),
            Code::Device(code) => code.arena_bytes(),
        }
    }

    /// Bytes of machine code; code shared by several plans is counted by each.
    pub(crate) fn code_bytes(&self) -> usize {
        match self {
            Code::Host(code) => code.code_bytes(),
            Code::Device(code) => code.code_bytes(),
        }
    }

    /// Runs it. On a GPU the work is queued.
    #[inline]
    pub(crate) fn run(&self, inputs: Operands<'_>) -> Result<Outputs> {
        match self {
            Code::Host(code) => Ok(Outputs::Host(code.run_from(&inputs)?)),
            Code::Device(code) => Ok(Outputs::Device(code.run(&refs(&inputs.on_device(code.gpu())?))?)),
        }
    }

    /// Runs it; results take the memory of what is given where the plan allows it.
    pub(crate) fn run_over<'a>(&self, inputs: impl Iterator<Item = Result<Passed<'a>>>) -> Result<Outputs> {
        match self {
            Code::Host(code) => {
                let input = |passed| match passed? {
                    Passed::Given(Memory::Host(buffer)) => Ok(Input::given(buffer)),
                    Passed::Given(other) => Err(Error::Internal(format!("an argument is on {}", other.device()))),
                    Passed::Lent(tensor) => bytes_on_host(tensor).map(Input::lent),
                };
                Ok(Outputs::Host(code.run_over(inputs.map(input).collect::<Result<SmallVec<[Input<'_>; 24]>>>()?)?))
            }
            Code::Device(code) => {
                let gpu = code.gpu();
                let input = |passed| match passed? {
                    Passed::Given(memory) => match memory.into_device() {
                        Ok(buffer) => Ok(Input::given(buffer)),
                        Err(number) => Ok(Input::given(DeviceBuffer::from_bytes(gpu, number.on_host()?.bytes())?)),
                    },
                    Passed::Lent(tensor) => Ok(match sent(tensor, gpu)? {
                        Sent::Is(buffer) => Input::lent(buffer),
                        Sent::Was(buffer) => Input::given(buffer),
                    }),
                };
                Ok(Outputs::Device(code.run_over(inputs.map(input).collect::<Result<Vec<_>>>()?)?))
            }
        }
    }

    /// Runs it and measures its launches, in the order of [`launch_steps`](Code::launch_steps).
    pub(crate) fn profile(&self, inputs: Operands<'_>) -> Result<(Outputs, Vec<LaunchTime>)> {
        match self {
            Code::Host(code) => {
                let (outputs, times) = code.profile(&inputs.on_host()?)?;
                Ok((Outputs::Host(outputs), times))
            }
            Code::Device(code) => {
                let (outputs, times) = code.profile(&refs(&inputs.on_device(code.gpu())?))?;
                Ok((Outputs::Device(outputs), times))
            }
        }
    }

    /// Runs code with a trap; also says which steps first stored NaN or an infinity.
    pub(crate) fn run_trapped(&self, inputs: Operands<'_>) -> Result<(Outputs, Option<String>)> {
        match self {
            Code::Host(code) => {
                let (outputs, first) = code.run_trapped(&inputs.on_host()?)?;
                Ok((Outputs::Host(outputs), first))
            }
            Code::Device(code) => {
                let (outputs, first) = code.run_trapped(&refs(&inputs.on_device(code.gpu())?))?;
                Ok((Outputs::Device(outputs), first))
            }
        }
    }

    /// Runs it one step at a time and hands out what each step wrote.
    pub(crate) fn run_stepwise(&self, inputs: Operands<'_>, see: &mut SeeStep<'_>) -> Result<()> {
        match self {
            Code::Host(code) => drop(code.run_stepwise(&inputs.on_host()?, see)?),
            Code::Device(code) => drop(code.run_stepwise(&refs(&inputs.on_device(code.gpu())?), see)?),
        }
        Ok(())
    }
}

/// An input of a run that may be written over.
pub(crate) enum Passed<'a> {
    Given(Memory),
    Lent(&'a Tensor),
}

/// An input on a GPU.
enum Sent<'a> {
    /// It lies there.
    Is(&'a DeviceBuffer),
    /// A number that was sent along.
    Was(DeviceBuffer),
}

fn refs<'a>(sent: &'a [Sent<'_>]) -> Vec<&'a DeviceBuffer> {
    let buffer = |sent: &'a Sent<'_>| match sent {
        Sent::Is(buffer) => *buffer,
        Sent::Was(buffer) => buffer,
    };
    sent.iter().map(buffer).collect()
}

fn bytes_on_host(tensor: &Tensor) -> Result<&Buffer> {
    tensor.as_concrete().and_then(|concrete| concrete.host_bytes()).ok_or_else(|| elsewhere(tensor, Device::Cpu))
}

fn sent<'a>(tensor: &'a Tensor, gpu: &Arc<Gpu>) -> Result<Sent<'a>> {
    let concrete = tensor.as_concrete().ok_or_else(|| elsewhere(tensor, gpu.device()))?;
    match (concrete.device_bytes(), concrete.host_bytes()) {
        (Some(buffer), _) => Ok(Sent::Is(buffer)),
        (None, Some(bytes)) => Ok(Sent::Was(DeviceBuffer::from_bytes(gpu, bytes.bytes())?)),
        (None, None) => Err(elsewhere(tensor, gpu.device())),
    }
}

/// A tensor that should not have come here.
fn elsewhere(tensor: &Tensor, device: Device) -> Error {
    Error::Internal(format!("code on {device} was given a tensor on {}, or without bytes", tensor.device()))
}
