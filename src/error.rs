//! The crate's one error type.
//!
//! A variant says whose turn it is: the caller's program, the caller's use of tensors, the device, or ourselves.
//! Every error that an op of the caller's program causes names the op and the caller's source line.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use crate::accelerate::{ArtefactError, Deviation, NonFinite};

/// The source line an op was called from.
pub type Caller = &'static Location<'static>;

/// The result of whatever leaves the world of tensors.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// An op was given arguments of wrong shapes, dtypes or values.
    Type {
        /// The method that the caller's line calls, or the op of an operator, such as `add`.
        op: &'static str,
        /// What does not fit, with both shapes or dtypes.
        message: String,
        /// The caller's line.
        at: Caller,
    },
    /// The value of a traced tensor was asked for while tracing.
    Traced {
        /// The method that needs the value.
        op: &'static str,
        /// What to write instead.
        remedy: &'static str,
        /// The caller's line.
        at: Caller,
    },
    /// A traced tensor was used after its trace had ended, or in another trace.
    Escaped {
        /// The op that used it.
        op: &'static str,
        /// How it got away.
        message: &'static str,
        /// The caller's line.
        at: Caller,
    },
    /// A gradient that does not exist was asked for.
    Gradient {
        /// Which and why.
        message: String,
        /// The caller's line.
        at: Caller,
    },
    /// A structure does not have the form that is needed here.
    Tree(String),
    /// The traced closure panicked.
    Panicked(String),
    /// The cache refused: a nested call for the signature being traced, or a locked cache.
    Cache(String),
    /// A checked call computed something else than the un-accelerated path.
    Check(Box<Deviation>),
    /// An op made NaN or an infinity from finite numbers, and the function traps that.
    NonFinite(Box<NonFinite>),
    /// An artefact was not written or not read.
    Artefact(ArtefactError),
    /// Reading a file of data failed.
    Data(String),
    /// The device or the operating system refused.
    Device(retape_runtime::Error),
    /// A verifier or an invariant failed: a bug of this library.
    Internal(String),
}

impl Error {
    /// Shares the error, as poisoned tensors do.
    pub(crate) fn shared(self) -> Arc<Error> {
        Arc::new(self)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Type { op, message, at } => write!(f, "{op}: {message} (at {at})"),
            Error::Traced { op, remedy, at } => {
                write!(f, "{op}: the tensor is being traced and has no value yet; {remedy} (at {at})")
            }
            Error::Escaped { op, message, at } => write!(f, "{op}: {message} (at {at})"),
            Error::Gradient { message, at } => write!(f, "gradient: {message} (at {at})"),
            Error::Tree(message) => write!(f, "tree: {message}"),
            Error::Panicked(message) => write!(f, "the traced closure panicked: {message}"),
            Error::Cache(message) => write!(f, "cache: {message}"),
            Error::Check(deviation) => write!(f, "check: {deviation}"),
            Error::NonFinite(found) => write!(f, "non-finite: {found}"),
            Error::Artefact(source) => write!(f, "artefact: {source}"),
            Error::Data(message) => write!(f, "data: {message}"),
            Error::Device(source) => write!(f, "device: {source}"),
            Error::Internal(message) => write!(f, "internal error, please report: {message}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Device(source) => Some(source),
            Error::Artefact(source) => Some(source),
            Error::Type { .. }
            | Error::Traced { .. }
            | Error::Escaped { .. }
            | Error::Gradient { .. }
            | Error::Tree(_)
            | Error::Panicked(_)
            | Error::Cache(_)
            | Error::Check(_)
            | Error::NonFinite(_)
            | Error::Data(_)
            | Error::Internal(_) => None,
        }
    }
}

impl From<ArtefactError> for Error {
    fn from(source: ArtefactError) -> Error {
        Error::Artefact(source)
    }
}

impl From<retape_runtime::Error> for Error {
    fn from(source: retape_runtime::Error) -> Error {
        Error::Device(source)
    }
}

impl From<retape_runtime::Reentrant> for Error {
    fn from(_: retape_runtime::Reentrant) -> Error {
        Error::Cache("the function called itself with the signature that is being traced".into())
    }
}

impl From<retape_kernels::Error> for Error {
    fn from(source: retape_kernels::Error) -> Error {
        match source {
            retape_kernels::Error::Runtime(source) => Error::Device(source),
            other => Error::Internal(format!("{other:?}")),
        }
    }
}
