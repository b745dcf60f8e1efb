//! The closure of a user, entered to trace it.

use std::cell::Cell;
use std::sync::Arc;

use retape_runtime::{Device, in_user_code};

use super::CallContext;
use crate::accelerate::entry::Entry;
use crate::collective;
use crate::compile::Stages;
use crate::error::{Caller, Error, Result};
use crate::identity::Identity;
use crate::observe::profile;
use crate::placement::common_device;
use crate::signature::Signature;
use crate::tape::Tape;
use crate::tensor::Tensor;
use crate::trace::Trace;
use crate::tree::Reader;

/// Traces and compiles.
pub(super) fn trace_and_compile(
    signature: &Signature,
    args: &[&Tensor],
    context: &CallContext<'_>,
    function: &Identity,
) -> Result<Entry> {
    let mut stages = Stages::default();
    let traced = stages.run("trace", || traced(Tape::describing, signature.words(), args, context, function))?;
    collective::agree(&traced.graph, signature.words())?;
    Entry::new(signature.clone(), traced, stages, function)
}

/// Runs the function on traced stand-ins for the arguments.
pub(super) fn traced(
    tape: fn(Device) -> Arc<Tape>,
    words: &[u64],
    args: &[&Tensor],
    context: &CallContext<'_>,
    function: &Identity,
) -> Result<Trace> {
    let tape = &tape(common_device("call", args, context.caller)?);
    let parameter = |arg: &&Tensor| arg.ty().map(|ty| tape.parameter_on(ty.clone(), arg.device()));
    let parameters: Vec<Tensor> = args
        .iter()
        .map(parameter)
        .collect::<Option<_>>()
        .ok_or_else(|| Error::Internal("a poisoned argument reached the tracer".into()))?;
    let trace = || (context.trace)(tape, &mut Reader::new(words, &parameters));
    let traced = profile::suspended(|| entered(context.caller, || in_user_code(trace)));
    traced.map_err(|error| {
        let error = tape.in_words_of_caller(error, |position| (context.describe)().tensor_path(position));
        tape.in_call(error, || function.name(), context.caller)
    })
}

/// Closures that are entered inside closures: deeper than this, a function most likely calls itself.
const MAX_NESTED: u32 = 64;

/// Enters a closure of a user.
pub(super) fn entered<T>(at: Caller, body: impl FnOnce() -> Result<T>) -> Result<T> {
    thread_local!(static DEPTH: Cell<u32> = const { Cell::new(0) });
    /// Leaves, also when the closure panics.
    struct Leave;

    impl Drop for Leave {
        fn drop(&mut self) {
            DEPTH.set(DEPTH.get() - 1);
        }
    }

    if DEPTH.get() == MAX_NESTED {
        let message = format!("accelerated functions are nested {MAX_NESTED} deep: does one call itself? (at {at})");
        return Err(Error::Cache(message));
    }
    DEPTH.set(DEPTH.get() + 1);
    let _leave = Leave;
    body()
}
