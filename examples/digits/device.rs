//! The option `--device` of the examples: `cpu`, `cuda:N`, or `auto` for the first GPU, and the processor without one.

use retape::Device;

/// The device of this name, ready to be used.
///
/// # Errors
///
/// Fails if nothing is called so, or the GPU cannot be used; says what is missing.
pub(crate) fn chosen(name: &str) -> Result<Device, String> {
    let named = |e: &dyn std::fmt::Display| format!("--device {name}: {e}");
    let device = match name {
        "auto" => Device::available().into_iter().find(|&device| device != Device::Cpu).unwrap_or_default(),
        name => {
            Device::parse(name).map_err(|e| format!("{}; it may be auto, cpu or cuda:0, cuda:1, ...", named(&e)))?
        }
    };
    match device {
        Device::Cuda(ordinal) => Device::cuda(ordinal).map_err(|e| named(&e)),
        device => Ok(device),
    }
}
