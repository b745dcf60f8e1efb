//! Devices: where bytes live and kernels run.
//!
//! Guarantees that the CPU is always there. The enum is open, so that callers match other devices by a fallback arm.

use std::fmt;

use crate::error::{Error, Result};

/// A place that holds bytes and runs kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Device {
    /// The processor of this machine and its main memory.
    #[default]
    Cpu,
}

impl Device {
    /// The devices that this process can use, the CPU first.
    pub fn available() -> Vec<Device> {
        vec![Device::Cpu]
    }

    /// A number that tells devices apart.
    pub const fn code(self) -> u32 {
        match self {
            Device::Cpu => 0,
        }
    }

    /// The device called `name`, as `Display` prints it.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if no device has that name.
    pub fn parse(name: &str) -> Result<Device> {
        match name {
            "cpu" => Ok(Device::Cpu),
            other => Err(Error::Device(other.to_owned())),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        let devices = Device::available();
        assert_eq!(devices.first(), Some(&Device::Cpu));
        for device in devices {
            assert_eq!(Device::parse(&device.to_string()), Ok(device));
        }
    }

    #[test]
    fn unknown_names_are_refused() {
        let refused = Device::parse("gpu7").unwrap_err();
        assert_eq!(refused.to_string(), "no device is called `gpu7`");
    }
}
