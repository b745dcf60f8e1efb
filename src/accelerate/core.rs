//! The non-generic body of an accelerated function: cache lookup, single-flight misses, the un-accelerated path.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use retape_runtime::{Cache, Capacity};

use super::entry::Entry;
use super::signature::Signature;
use super::stats::Stats;
use crate::eager;
use crate::error::{Caller, Error, Result};
use crate::tape::Tape;
use crate::tensor::Tensor;
use crate::trace::Trace;
use crate::tree::{Reader, Writer};

/// Traces the function on arguments read from a stream.
type TraceFn<'f> = dyn Fn(&Arc<Tape>, &mut Reader<'_>) -> Result<Trace> + 'f;

pub(super) struct Core {
    cache: Cache<Signature, Entry>,
    enabled: AtomicBool,
}

/// The results of a call, flattened.
pub(super) enum Outcome {
    Ran { entry: Arc<Entry>, tensors: Vec<Tensor> },
    Evaluated { trace: Trace, tensors: Vec<Tensor> },
}

impl Outcome {
    pub(super) fn words(&self) -> &[u64] {
        match self {
            Outcome::Ran { entry, .. } => &entry.trace.words,
            Outcome::Evaluated { trace, .. } => &trace.words,
        }
    }

    pub(super) fn tensors(&self) -> &[Tensor] {
        match self {
            Outcome::Ran { tensors, .. } | Outcome::Evaluated { tensors, .. } => tensors,
        }
    }
}

impl Core {
    pub(super) fn new() -> Core {
        Core { cache: Cache::new(Capacity::default()), enabled: AtomicBool::new(true) }
    }

    /// The hot path: a signature, a lookup, a run.
    pub(super) fn call(&self, mut leaves: Writer<'_>, _caller: Caller, trace: &TraceFn<'_>) -> Result<Outcome> {
        if let Some(error) = leaves.tensors.iter().find_map(|tensor| tensor.error()) {
            return Err(error.clone());
        }
        if !self.enabled.load(Ordering::Relaxed) {
            return self.evaluate(&leaves, trace);
        }
        let signature = Signature::new(std::mem::take(&mut leaves.words));
        let hash = signature.hash();
        let args = &leaves.tensors;
        let (entry, _) = self.cache.get_or_try_insert_with(&hash, &signature, || make(&signature, args, trace))?;
        let tensors = entry.run(args)?;
        Ok(Outcome::Ran { entry, tensors })
    }

    /// The un-accelerated path.
    fn evaluate(&self, leaves: &Writer<'_>, trace: &TraceFn<'_>) -> Result<Outcome> {
        let trace = traced(&leaves.words, &leaves.tensors, trace)?;
        let tensors = eager::evaluate(&trace, &leaves.tensors)?;
        Ok(Outcome::Evaluated { trace, tensors })
    }

    /// A call inside another trace: the function becomes part of it.
    pub(super) fn inline<R>(&self, leaves: &Writer<'_>, body: &dyn Fn(&mut Reader<'_>) -> Result<R>) -> Result<R> {
        if let Some(error) = leaves.tensors.iter().find_map(|tensor| tensor.error()) {
            return Err(error.clone());
        }
        let tensors: Vec<Tensor> = leaves.tensors.iter().copied().cloned().collect();
        body(&mut Reader::new(&leaves.words, &tensors))
    }

    pub(super) fn stats(&self) -> Stats {
        Stats::of(&self.cache)
    }

    pub(super) fn clear(&self) {
        self.cache.clear();
    }

    pub(super) fn capacity(&self) -> usize {
        self.cache.capacity().entries
    }

    pub(super) fn set_capacity(&self, entries: usize) {
        self.cache.resize(Capacity { entries: entries.max(1), ..self.cache.capacity() });
    }

    pub(super) fn enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    pub(super) fn set_enabled(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Relaxed);
    }
}

/// The cold path: traces and compiles; one thread per signature does, the others wait for it.
#[cold]
fn make(signature: &Signature, args: &[&Tensor], trace: &TraceFn<'_>) -> Result<(Entry, usize)> {
    let start = Instant::now();
    let traced = traced(signature.words(), args, trace)?;
    let types: Vec<String> = args.iter().filter_map(|arg| arg.ty()).map(ToString::to_string).collect();
    let entry = Entry::new(traced, types.join(", "), start.elapsed())?;
    let weight = entry.n_bytes();
    Ok((entry, weight))
}

/// Runs the function on traced stand-ins for the arguments.
fn traced(words: &[u64], args: &[&Tensor], trace: &TraceFn<'_>) -> Result<Trace> {
    let tape = Tape::new();
    let parameter = |arg: &&Tensor| arg.ty().map(|ty| tape.parameter(ty.clone()));
    let parameters: Vec<Tensor> = args
        .iter()
        .map(parameter)
        .collect::<Option<_>>()
        .ok_or_else(|| Error::Internal("a poisoned argument reached the tracer".into()))?;
    trace(&tape, &mut Reader::new(words, &parameters))
}
