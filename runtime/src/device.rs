//! Devices: where bytes live and kernels run.
//!
//! Guarantees that the CPU is always there. The enum is open, so that callers match other devices by a fallback arm.

use std::fmt;

/// A place that holds bytes and runs kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Device {
    /// The processor of this machine and its main memory.
    #[default]
    Cpu,
    /// The NVIDIA GPU with this ordinal.
    Cuda(u32),
}

impl Device {
    /// A number that tells devices apart.
    pub const fn code(self) -> u32 {
        match self {
            Device::Cpu => 0,
            Device::Cuda(ordinal) => ordinal.saturating_add(1),
        }
    }

    /// The device with this code, if there can be one.
    pub fn from_code(code: u64) -> Option<Device> {
        match u32::try_from(code).ok()? {
            0 => Some(Device::Cpu),
            code => Some(Device::Cuda(code - 1)),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}
