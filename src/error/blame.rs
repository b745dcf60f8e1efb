//! Where an error arose, beyond the line of an op: the call whose function was being traced.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use retape_runtime::panic_message;

use super::{Caller, Error};

/// The call whose function was being traced when an error arose in it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TracedCall {
    /// The name of the accelerated function, as [`named`](crate::Accelerated::named) gives it, or the function that
    /// differentiates, such as `value_and_grad`.
    pub function: Arc<str>,
    /// The line of the call.
    pub called_at: Caller,
}

/// Such as ``in `step`, called at src/main.rs:20:9``.
impl fmt::Display for TracedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let called_at = self.called_at.to_string();
        // A function without a name is known by the line that accelerated it, which may be that of the call.
        if *self.function != *called_at {
            write!(f, "in `{}`, ", self.function)?;
        }
        write!(f, "called at {called_at}")
    }
}

/// A panic of code that was called back. The panic hook of the program has been told its place, and prints it if it is the
/// one of the standard library (ADR 50).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Panic {
    /// Its message.
    pub message: String,
    /// The call that traced the code, if it was traced.
    pub call: Option<Box<TracedCall>>,
}

impl Panic {
    /// The panic that was caught with this payload on this thread.
    #[cold]
    pub(crate) fn of(payload: Box<dyn Any + Send>) -> Panic {
        Panic { message: panic_message(payload), call: None }
    }
}

/// Such as ``index out of bounds (in `step`, called at src/main.rs:20:9)``.
impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.call {
            Some(call) => write!(f, "{} ({call})", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// The end of an error's text: the line of the op, and the call that traced it.
pub(super) struct ErrorEnd<'e>(pub(super) Caller, pub(super) &'e Option<Box<TracedCall>>);

impl fmt::Display for ErrorEnd<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorEnd(at, Some(call)) => write!(f, "(at {at}; {call})"),
            ErrorEnd(at, None) => write!(f, "(at {at})"),
        }
    }
}

impl Error {
    /// The error as the caller of the function that was traced knows it: with the name of that and the line of the call.
    /// An error that has these already, of a call inside, keeps them.
    #[cold]
    pub(crate) fn in_call(mut self, function: impl FnOnce() -> Arc<str>, called_at: Caller) -> Error {
        let call = match &mut self {
            Error::Type { call, .. }
            | Error::Traced { call, .. }
            | Error::Escaped { call, .. }
            | Error::Gradient { call, .. } => call,
            Error::Panicked(panic) => &mut panic.call,
            Error::Tree(_)
            | Error::Communication(_)
            | Error::Cache(_)
            | Error::Check(_)
            | Error::NonFinite(_)
            | Error::Artefact(_)
            | Error::Data(_)
            | Error::Memory(_)
            | Error::Device(_)
            | Error::Internal(_) => return self,
        };
        call.get_or_insert_with(|| Box::new(TracedCall { function: function(), called_at }));
        self
    }
}
