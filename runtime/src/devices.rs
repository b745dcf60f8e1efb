//! The devices of this machine: which there are, by number and by name, and the end of their work.

use crate::cuda::Gpu;
use crate::device::Device;
use crate::error::{Error, Result};

impl Device {
    /// The devices that this process can use, the CPU first. Without an NVIDIA driver it is the only one.
    pub fn available() -> Vec<Device> {
        let gpus = Gpu::ordinals().into_iter().map(Device::Cuda);
        [Device::Cpu].into_iter().chain(gpus).collect()
    }

    /// The NVIDIA GPU with this ordinal, ready to be used.
    ///
    /// # Errors
    ///
    /// [`Error::Unusable`] with what is missing: the driver, which is looked for when this is called, or the device.
    pub fn cuda(ordinal: u32) -> Result<Device> {
        Gpu::open(ordinal).map(|gpu| gpu.device())
    }

    /// Waits until the work that was queued on the device is done; the CPU has none.
    ///
    /// # Errors
    ///
    /// [`Error::Gpu`] if the work failed, [`Error::Unusable`] if there is no such device.
    pub fn sync(self) -> Result<()> {
        match self {
            Device::Cpu => Ok(()),
            Device::Cuda(ordinal) => Gpu::open(ordinal)?.sync(),
        }
    }

    /// The device called `name`, as `Display` prints it; that it can be used is not said.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if no device has that name.
    pub fn parse(name: &str) -> Result<Device> {
        let cuda = || {
            let ordinal = name.strip_prefix("cuda:")?.parse().ok()?;
            // Each device has one name, and a code.
            Some(Device::Cuda(ordinal)).filter(|device| ordinal < u32::MAX && device.to_string() == name)
        };
        match name {
            "cpu" => Ok(Device::Cpu),
            other => cuda().ok_or_else(|| Error::Device(other.to_owned())),
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
    fn gpus_have_names_and_codes() {
        assert_eq!(Device::parse("cuda:3"), Ok(Device::Cuda(3)));
        assert_eq!(Device::Cuda(12).to_string(), "cuda:12");
        assert_eq!([Device::Cpu, Device::Cuda(0), Device::Cuda(3)].map(Device::code), [0, 1, 4]);
    }

    #[test]
    fn unknown_names_are_refused() {
        let refused = Device::parse("gpu7").unwrap_err();
        assert_eq!(refused.to_string(), "no device is called `gpu7`");
        for name in ["", "cuda", "cuda:", "cuda:-1", "cuda:+1", "cuda:01", "cuda:4294967295", "cuda:x", "CPU"] {
            assert_eq!(Device::parse(name), Err(Error::Device(name.to_owned())));
        }
    }
}
