//! Code of the caller's, whose panics become errors.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, Result};

/// Runs code of the caller's; a panic becomes an error.
pub(crate) fn guarded<T>(what: impl FnOnce() -> String, code: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(code))
        .unwrap_or_else(|payload| Err(Error::Panicked { what: what(), message: message(payload.as_ref()) }))
}

/// The text of a panic.
pub(crate) fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}
