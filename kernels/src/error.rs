//! The errors of planning, compiling and running kernels.

use std::fmt;

use crate::ir::VerifyError;

/// The error of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A plan that is not well formed.
    Plan(String),
    /// A kernel that is not well formed.
    Kernel(VerifyError),
    /// Memory or executable pages that the system refuses.
    Runtime(retape_runtime::Error),
    /// Buffers that do not fit the plan they are passed to.
    Buffers(String),
    /// The sink of printed lines panicked, with this message.
    Panicked(String),
    /// Workers that do not come to a collective, or come to another one.
    Communication(String),
    /// The machine is not one that code can be made for.
    Unsupported(String),
    /// A broken assumption of this crate.
    Internal(String),
}

/// The result of planning, compiling or running.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Plan(reason) => write!(f, "malformed plan: {reason}"),
            Error::Kernel(error) => write!(f, "malformed kernel: {error}"),
            Error::Runtime(error) => error.fmt(f),
            Error::Buffers(reason) => write!(f, "wrong buffers: {reason}"),
            Error::Panicked(message) => write!(f, "the sink of printed lines panicked: {message}"),
            Error::Communication(reason) => f.write_str(reason),
            Error::Unsupported(reason) => write!(f, "no code for this machine: {reason}"),
            Error::Internal(reason) => write!(f, "internal error: {reason}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<retape_runtime::Error> for Error {
    fn from(error: retape_runtime::Error) -> Error {
        Error::Runtime(error)
    }
}

impl From<VerifyError> for Error {
    fn from(error: VerifyError) -> Error {
        Error::Kernel(error)
    }
}
