//! The crate's one error type.
//!
//! A variant says whose turn it is: the caller's program, the caller's use of tensors, the device, or ourselves.
//! Every error that an op of the caller's program causes names the op and the caller's source line.

mod artefact;
mod blame;
mod deviation;
mod nonfinite;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use retape_runtime::{ByteCount, Device, Shortage};

use crate::method::reported;

pub use self::artefact::ArtefactError;
use self::blame::ErrorEnd;
pub use self::blame::{Panic, TracedCall};
pub(crate) use self::deviation::shown;
pub use self::deviation::{Deviation, ElementPair, Gap};
pub use self::nonfinite::{InputSummary, NonFinite};
pub use crate::method::{Caller, Origin};

/// The result of whatever leaves the world of tensors.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error type of this crate.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// An op was given arguments of wrong shapes, dtypes or values.
    Type {
        /// The method that the caller's line calls, or the op of an operator, such as `add`.
        op: &'static str,
        /// The mismatch, with both shapes or dtypes.
        message: String,
        /// The caller's line.
        at: Caller,
        /// The call that traced the op, if one did.
        call: Option<Box<TracedCall>>,
    },
    /// The value of a traced tensor was asked for while tracing.
    Traced {
        /// The method that needs the value.
        op: &'static str,
        /// The code to write instead.
        remedy: &'static str,
        /// The caller's line.
        at: Caller,
        /// The call that traced the op, if one did.
        call: Option<Box<TracedCall>>,
    },
    /// A traced tensor was used after its trace had ended, or in another trace.
    Escaped {
        /// The op that used it.
        op: &'static str,
        /// How it got away.
        message: &'static str,
        /// The caller's line.
        at: Caller,
        /// The call that traced the op, if one did.
        call: Option<Box<TracedCall>>,
    },
    /// A gradient that does not exist was asked for.
    Gradient {
        /// Which and why.
        message: String,
        /// The caller's line.
        at: Caller,
        /// The call that traced the op, if one did.
        call: Option<Box<TracedCall>>,
    },
    /// A structure does not have the form that is needed here.
    Tree(String),
    /// Code of the program that was called back panicked: a closure, a sink of printed lines, a listener for events, or
    /// the methods of a type of an argument or a result.
    Panicked(Box<Panic>),
    /// Workers that do not come to a collective, come to another one, or traced other graphs.
    Communication(String),
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
    /// Memory that an op or a call needs was refused, on the processor or on a GPU.
    Memory(Box<OutOfMemory>),
    /// The device or the operating system refused.
    Device(retape_runtime::Error),
    /// A verifier or an invariant failed: a bug of this library.
    Internal(String),
}

/// Memory that was refused to an op or a call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// The op, such as `` `matmul` ``, or the call, with the line that accelerated the function and the arguments.
    pub by: String,
    /// The line of the op or the call.
    pub at: Caller,
    /// The bytes that were asked for, those in use, and the limit.
    pub shortage: Shortage,
}

/// Such as ``4.0 GiB asked for by `matmul` (at src/main.rs:10:5), 1.2 GiB in use, limit 2.0 GiB``, with the remedy.
impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OutOfMemory { by, at, shortage } = self;
        let (bytes, state, remedy) = (ByteCount(shortage.bytes), shortage.state(), shortage.remedy());
        write!(f, "{bytes} asked for by {by} (at {at}), {state}; {remedy}")
    }
}

impl Error {
    /// Shares the error, as poisoned tensors do.
    pub(crate) fn shared(self) -> Arc<Error> {
        Arc::new(self)
    }

    /// Names what asked for memory at a line, if the error is a refusal of it that names nobody yet.
    #[cold]
    pub(crate) fn asked_by(self, by: impl FnOnce() -> String, at: Caller) -> Error {
        match self {
            Error::Device(retape_runtime::Error::Allocation(shortage)) => {
                Error::Memory(Box::new(OutOfMemory { by: by(), at, shortage }))
            }
            other => other,
        }
    }

    /// As [`asked_by`](Error::asked_by), for an op.
    #[cold]
    pub(crate) fn of_op(self, op: &'static str, at: Caller) -> Error {
        let (op, at) = reported(op, at);
        self.asked_by(|| format!("`{op}`"), at)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Type { op, message, at, call } => write!(f, "{op}: {message} {}", ErrorEnd(at, call)),
            Error::Traced { op, remedy, at, call } => {
                write!(f, "{op}: the tensor is being traced and has no value yet; {remedy} {}", ErrorEnd(at, call))
            }
            Error::Escaped { op, message, at, call } => write!(f, "{op}: {message} {}", ErrorEnd(at, call)),
            Error::Gradient { message, at, call } => write!(f, "gradient: {message} {}", ErrorEnd(at, call)),
            Error::Tree(message) => write!(f, "tree: {message}"),
            Error::Panicked(panic) => write!(f, "code that was called back panicked: {panic}"),
            Error::Communication(message) => write!(f, "communication: {message}"),
            Error::Cache(message) => write!(f, "cache: {message}"),
            Error::Check(deviation) => write!(f, "check: {deviation}"),
            Error::NonFinite(found) => write!(f, "non-finite: {found}"),
            Error::Artefact(source) => write!(f, "artefact: {source}"),
            Error::Data(message) => write!(f, "data: {message}"),
            Error::Memory(refused) => write!(f, "memory: {refused}"),
            Error::Device(source) => write!(f, "device: {source}"),
            Error::Internal(message) => write!(f, "internal error, please report: {message}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Device(source) => Some(source),
            Error::Memory(refused) => Some(&refused.shortage),
            Error::Artefact(source) => Some(source),
            Error::Type { .. }
            | Error::Traced { .. }
            | Error::Escaped { .. }
            | Error::Gradient { .. }
            | Error::Tree(_)
            | Error::Panicked(_)
            | Error::Communication(_)
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

impl From<retape_runtime::Deadlock> for Error {
    fn from(source: retape_runtime::Deadlock) -> Error {
        Error::Cache(source.to_string())
    }
}

/// Runs code that may call back the program's; a panic in it becomes an error.
///
/// Nothing of this crate is left half done by an unwinding: locks are held for single steps only, and what is under way
/// is ended by guards.
#[inline]
pub(crate) fn caught<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result,
        Err(payload) => Err(Error::Panicked(Box::new(Panic::of(payload)))),
    }
}

impl From<retape_kernels::Error> for Error {
    fn from(source: retape_kernels::Error) -> Error {
        match source {
            retape_kernels::Error::Runtime(source) => Error::Device(source),
            retape_kernels::Error::Panicked(message) => Error::Panicked(Box::new(Panic { message, call: None })),
            retape_kernels::Error::Communication(message) => Error::Communication(message),
            // A limit of the processor's kernels; those of a GPU say so themselves.
            retape_kernels::Error::Unsupported(reason) => {
                Error::Device(retape_runtime::Error::Unusable { device: Device::Cpu, reason })
            }
            other => Error::Internal(format!("{other:?}")),
        }
    }
}

/// The error of an op or method that does not take its arguments.
pub(crate) fn ill_typed(op: &'static str, message: String, at: Caller) -> Error {
    let (op, at) = reported(op, at);
    Error::Type { op, message, at, call: None }
}
