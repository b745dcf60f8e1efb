//! On which device something runs, from where its tensors are.
//!
//! All tensors of a call lie on one device. Tensors without axes in main memory fit anywhere: they are numbers, and are
//! sent along. A host tensor that a closure captured is sent once.

use retape_runtime::Device;

use crate::error::{Caller, Result, ill_typed};
use crate::tensor::Tensor;

/// The device of some tensors.
///
/// # Errors
///
/// Fails if they lie on two, naming both.
pub(crate) fn common_device(op: &'static str, tensors: &[&Tensor], at: Caller) -> Result<Device> {
    let mut found: Option<(usize, Device)> = None;
    for (position, tensor) in tensors.iter().enumerate().filter(|(_, tensor)| !is_number(tensor)) {
        let device = tensor.device();
        match found {
            Some((first, other)) if other != device => {
                let place = |position: usize| format!("argument {position} ({})", tensors[position].type_text());
                let remedy = "bring them together with `Tensor::to`";
                let (first, second) = (place(first), place(position));
                let message = format!("{first} is on {other} and {second} on {device}; {remedy}");
                return Err(ill_typed(op, message, at));
            }
            Some(_) => {}
            None => found = Some((position, device)),
        }
    }
    Ok(found.map_or(Device::Cpu, |(_, device)| device))
}

/// The device of tensors that a graph is run on: the GPU that one of them is on, or the processor.
pub(crate) fn device_of<'t>(tensors: impl IntoIterator<Item = &'t Tensor>) -> Device {
    let mut devices = tensors.into_iter().map(Tensor::device);
    devices.find(|&device| device != Device::Cpu).unwrap_or_default()
}

/// Whether a tensor is a number that fits anywhere.
pub(crate) fn is_number(tensor: &Tensor) -> bool {
    tensor.rank() == 0 && tensor.device() == Device::Cpu
}
