//! Errors of the runtime: memory, devices, executable code.
//!
//! Guarantees that running out of memory is a value and never an abort.

use std::fmt;

use crate::device::Device;
use crate::shortage::Shortage;

/// The errors beneath a tensor.
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
        /// The obstacle.
        reason: String,
    },
    /// Work on a device that failed.
    Gpu {
        /// The device.
        device: Device,
        /// The message of its driver.
        reason: String,
    },
    /// A cached value that would have to wait for itself.
    Deadlock(Deadlock),
}

/// The refusal to wait for a value that would have to wait for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deadlock {
    /// The code that makes the value asks for it, on the same thread or through values that other threads make.
    Reentrant,
    /// Threads that make the value stand still in code of a user, each after it has waited in vain for the one before:
    /// that code seems to wait for a thread that asks for the value.
    Stuck,
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

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Deadlock::Reentrant => "a cached value was asked for while it was being made by its asker",
            Deadlock::Stuck => {
                "a cached value does not come: what makes it seems to wait for a thread that asks for it"
            }
        })
    }
}

impl std::error::Error for Deadlock {}

impl From<Deadlock> for Error {
    fn from(source: Deadlock) -> Error {
        Error::Deadlock(source)
    }
}
