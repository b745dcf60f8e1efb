//! Memory that is refused: how much was asked for, how much is in use, and who refused.

use std::fmt;

use crate::device::Device;

/// A number of bytes, which displays with a unit: `512 B`, `1.5 KiB`, `2.0 GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteCount(pub usize);

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_u64 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match units.iter().find(|(size, _)| self.0 as u64 >= *size) {
            Some((size, unit)) => write!(f, "{:.1} {unit}", self.0 as f64 / *size as f64),
            None => write!(f, "{} B", self.0),
        }
    }
}

/// Memory that a limit, the system or a device refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shortage {
    /// The bytes asked for.
    pub bytes: usize,
    /// The bytes in buffers of this process, in the same memory.
    pub in_use: usize,
    /// The most that may be in use.
    pub limit: usize,
    /// Where the memory is.
    pub device: Device,
    /// The reason.
    pub refusal: Refusal,
}

/// Why memory is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// More would be in use than the limit that was set.
    Limit,
    /// More would be in use than there is.
    Size,
    /// The system or the driver has no more to give.
    System,
    /// No address reaches so far.
    AddressSpace,
}

impl Shortage {
    /// Memory that no address reaches.
    pub fn unaddressable(bytes: usize, device: Device) -> Shortage {
        Shortage { bytes, in_use: 0, limit: isize::MAX as usize, device, refusal: Refusal::AddressSpace }
    }

    /// The memory that there is, beside the bytes asked for: `1.2 GiB in use, limit 2.0 GiB`.
    pub fn state(&self) -> String {
        let (in_use, limit) = (ByteCount(self.in_use), ByteCount(self.limit));
        let place = match self.device {
            Device::Cpu => String::new(),
            device => format!(" on {device}"),
        };
        match self.refusal {
            Refusal::Limit => format!("{in_use} in use{place}, limit {limit}"),
            Refusal::Size => format!("{in_use} in use{place} of {limit} that there are"),
            Refusal::System => format!("{in_use} in use{place}, and the system has no more"),
            Refusal::AddressSpace => "more than can be addressed".to_owned(),
        }
    }

    /// The remedy.
    pub fn remedy(&self) -> &'static str {
        match (self.refusal, self.device) {
            (Refusal::Limit, Device::Cpu) => {
                "drop tensors, pass arguments by value, work on less at a time, or raise the limit by \
                 `retape_runtime::set_memory_limit`"
            }
            (Refusal::Limit, _) => {
                "drop tensors, pass arguments by value, work on less at a time, or raise the limit by \
                 `retape_runtime::Gpu::set_memory_limit`"
            }
            (Refusal::Size | Refusal::System, _) => "drop tensors, pass arguments by value, or work on less at a time",
            (Refusal::AddressSpace, _) => "work on less at a time",
        }
    }
}

/// Such as `4.0 GiB asked for, 1.2 GiB in use, limit 2.0 GiB`.
impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} asked for, {}", ByteCount(self.bytes), self.state())
    }
}

impl std::error::Error for Shortage {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_with_a_unit() {
        let text = |bytes: usize| ByteCount(bytes).to_string();
        assert_eq!([0, 1023, 1024, 1536].map(text), ["0 B", "1023 B", "1.0 KiB", "1.5 KiB"]);
        assert_eq!([5 << 20, 3 << 29, 1 << 41, 1 << 55].map(text), ["5.0 MiB", "1.5 GiB", "2.0 TiB", "32.0 PiB"]);
    }

    #[test]
    fn a_shortage_says_what_there_is() {
        let shortage =
            Shortage { bytes: 4 << 30, in_use: 5 << 28, limit: 2 << 30, device: Device::Cpu, refusal: Refusal::Limit };
        assert_eq!(shortage.to_string(), "4.0 GiB asked for, 1.2 GiB in use, limit 2.0 GiB");
        assert!(shortage.remedy().contains("set_memory_limit"));
        let of_gpu = Shortage { device: Device::Cuda(1), refusal: Refusal::Size, ..shortage.clone() };
        assert_eq!(of_gpu.to_string(), "4.0 GiB asked for, 1.2 GiB in use on cuda:1 of 2.0 GiB that there are");
        assert!(!of_gpu.remedy().contains("limit"));
        let system = Shortage { refusal: Refusal::System, ..shortage };
        assert_eq!(system.to_string(), "4.0 GiB asked for, 1.2 GiB in use, and the system has no more");
        let endless = Shortage::unaddressable(usize::MAX, Device::Cpu);
        assert!(endless.to_string().ends_with("asked for, more than can be addressed"), "{endless}");
    }
}
