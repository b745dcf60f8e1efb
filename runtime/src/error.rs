//! Errors of the runtime: memory, devices, executable code.
//!
//! Guarantees that running out of memory is a value and never an abort.

use std::fmt;

use crate::cache::Deadlock;
use crate::device::Device;
use crate::shortage::Shortage;

/// What can go wrong beneath a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Memory that the limit or the system refuses.
    Allocation(Shortage),
    /// Executable memory that the system refuses.
    Code(String),
    /// A device name that no device has.
    Device(String),
    /// A device that cannot be used, and why.
    Unusable {
        /// The device that was asked for.
        device: Device,
        /// What stands in the way.
        reason: String,
    },
    /// Work on a device that failed.
    Gpu {
        /// The device.
        device: Device,
        /// What its driver said.
        reason: String,
    },
    /// A cached value that would have to wait for itself.
    Deadlock(Deadlock),
}

/// The result of a runtime operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Allocation(shortage) => write!(f, "cannot allocate: {shortage}"),
            Error::Code(reason) => write!(f, "cannot map executable memory: {reason}"),
            Error::Device(name) => write!(f, "no device is called `{name}`"),
            Error::Unusable { device, reason } => write!(f, "{device} cannot be used: {reason}"),
            Error::Gpu { device, reason } => write!(f, "{device}: {reason}"),
            Error::Deadlock(source) => source.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<Shortage> for Error {
    fn from(source: Shortage) -> Error {
        Error::Allocation(source)
    }
}
