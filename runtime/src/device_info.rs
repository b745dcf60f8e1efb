//! Facts about a device, for people and for programs that choose one.

use std::fs;

use crate::cuda::Gpu;
use crate::device::Device;
use crate::error::Result;
use crate::processor::processor_model;
use crate::threads::n_threads;

/// Facts about a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The device.
    pub device: Device,
    /// The model, as its maker calls it.
    pub name: String,
    /// The compute capability of an NVIDIA GPU, major and minor: `(9, 0)` for an H100.
    pub compute_capability: Option<(u32, u32)>,
    /// The number of multiprocessors of a GPU; of the processor, the number of threads that kernels use.
    pub n_units: usize,
    /// The bytes of its memory, as far as the system says.
    pub total_bytes: Option<u64>,
    /// The bytes that no process has in use, as far as the system says.
    pub free_bytes: Option<u64>,
}

impl Device {
    /// Facts about the device: its model, compute capability and memory.
    ///
    /// # Errors
    ///
    /// [`Error::Unusable`](crate::Error::Unusable) if there is no such device, with what is missing.
    pub fn info(self) -> Result<DeviceInfo> {
        match self {
            Device::Cpu => Ok(DeviceInfo {
                device: self,
                name: processor_model().unwrap_or("processor").to_owned(),
                compute_capability: None,
                n_units: n_threads(),
                total_bytes: main_memory("MemTotal:"),
                free_bytes: main_memory("MemAvailable:"),
            }),
            Device::Cuda(ordinal) => {
                let gpu = Gpu::open(ordinal)?;
                Ok(DeviceInfo {
                    device: self,
                    name: gpu.name().to_owned(),
                    compute_capability: Some(gpu.capability()),
                    n_units: gpu.n_multiprocessors() as usize,
                    total_bytes: Some(gpu.total_bytes() as u64),
                    free_bytes: gpu.free_bytes().ok().map(|bytes| bytes as u64),
                })
            }
        }
    }
}

/// A figure of Linux about main memory, in bytes.
fn main_memory(field: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with(field))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri does not execute `cpuid`")]
    fn the_processor_says_what_it_is() {
        let info = Device::Cpu.info().unwrap();
        assert!(!info.name.is_empty() && info.n_units > 0, "{info:?}");
        if let (Some(total), Some(free)) = (info.total_bytes, info.free_bytes) {
            assert!(free <= total && total > 1 << 20, "{info:?}");
        }
    }

    #[test]
    fn a_device_that_is_not_there_is_an_error() {
        assert!(Device::Cuda(4000).info().is_err());
    }
}
