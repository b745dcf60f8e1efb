//! Code of plans over tensors: what it is compiled for, takes and gives.

use retape_kernels::{AnyInput, CompiledPlan, Input, Inputs, Modes, Outputs, Plan};
use retape_runtime::{Buffer, Device, DeviceBuffer};

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

    /// Verifies and compiles a plan.
    pub(crate) fn compile(self, plan: Plan) -> Result<CompiledPlan> {
        let gpu = (self.device != Device::Cpu).then(|| gpu(self.device)).transpose()?;
        Ok(CompiledPlan::compile(plan, gpu, self.is_fast, self.modes)?)
    }
}

/// The inputs of a run: tensors that are passed, then captured ones.
#[derive(Clone, Copy)]
pub(crate) struct Operands<'a> {
    pub(crate) args: &'a [&'a Tensor],
    pub(crate) captures: &'a [Capture],
}

impl<'a> Operands<'a> {
    /// Tensors that are all passed.
    pub(crate) fn of(args: &'a [&'a Tensor]) -> Operands<'a> {
        Operands { args, captures: &[] }
    }

    #[inline]
    fn tensor(&self, input: usize) -> Option<&'a Tensor> {
        match self.args.get(input) {
            Some(arg) => Some(arg),
            None => Some(&self.captures.get(input - self.args.len())?.tensor),
        }
    }
}

impl Inputs for Operands<'_> {
    #[inline]
    fn count(&self) -> usize {
        self.args.len() + self.captures.len()
    }

    #[inline]
    fn buffer(&self, input: usize) -> Option<&Buffer> {
        self.tensor(input)?.as_concrete()?.host_bytes()
    }

    fn device_buffer(&self, input: usize) -> Option<&DeviceBuffer> {
        self.tensor(input)?.as_concrete()?.device_bytes()
    }
}

/// A tensor as an input that stays as it is.
pub(crate) fn borrowed(tensor: &Tensor) -> Result<AnyInput<'_>> {
    let concrete = tensor.as_concrete();
    let there =
        || concrete.and_then(|concrete| concrete.device_bytes()).map(|bytes| AnyInput::Gpu(Input::borrowed(bytes)));
    let here = concrete.and_then(|concrete| concrete.host_bytes()).map(|bytes| AnyInput::Host(Input::borrowed(bytes)));
    here.or_else(there).ok_or_else(|| Error::Internal("code was given a tensor without bytes".into()))
}

/// The outputs as tensors of these types.
pub(crate) fn tensors<'t>(outputs: Outputs, types: impl IntoIterator<Item = &'t TensorType>) -> Vec<Tensor> {
    outputs.zip_with(types, |memory: Memory, ty| Tensor::concrete(ty.clone(), memory))
}
