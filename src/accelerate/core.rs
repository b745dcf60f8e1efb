//! The non-generic body of an accelerated function: cache lookup, single-flight misses, the un-accelerated path.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use retape_runtime::{Cache, Capacity, EventKind, Insertion};

use super::entry::Entry;
use super::signature::Signature;
use super::stats::Stats;
use crate::eager;
use crate::error::{Caller, Error, Result};
use crate::event::{Event, Observer};
use crate::tape::Tape;
use crate::tensor::Tensor;
use crate::trace::{Trace, stand_ins};
use crate::tree::{Reader, Tree, Writer};

/// Traces the function on arguments read from a stream.
type TraceFn<'f> = dyn Fn(&Arc<Tape>, &mut Reader<'_>) -> Result<Trace> + 'f;

pub(super) struct Core {
    cache: Cache<Signature, Entry>,
    enabled: AtomicBool,
    is_observed: bool,
}

/// The results of a call, flattened.
pub(super) enum Outcome {
    Ran { entry: Arc<Entry>, tensors: Vec<Tensor> },
    Evaluated { trace: Trace, tensors: Vec<Tensor> },
}

impl Outcome {
    /// The results as the tree that was flattened.
    pub(super) fn read<R: Tree>(self) -> Result<R> {
        match self {
            Outcome::Ran { entry, tensors } => R::read(&mut Reader::giving(&entry.trace.words, tensors)),
            Outcome::Evaluated { trace, tensors } => R::read(&mut Reader::giving(&trace.words, tensors)),
        }
    }
}

impl Core {
    pub(super) fn new() -> Core {
        Core { cache: Cache::new(Capacity::default()), enabled: AtomicBool::new(true), is_observed: false }
    }

    /// A core without entries that tells `observer` of events.
    pub(super) fn observed_by(self, observer: impl Observer + 'static) -> Core {
        let cache = Cache::new(self.cache.capacity()).with_observer(move |event| {
            let arguments = event.key.and_then(Signature::text).unwrap_or_default();
            match event.kind {
                EventKind::Hit => observer.observe(&Event::Hit { arguments }),
                EventKind::Miss => observer.observe(&Event::Miss { arguments }),
                EventKind::Wait => observer.observe(&Event::Wait { arguments }),
                EventKind::Evict => observer.observe(&Event::Evict { arguments }),
                EventKind::Clear => observer.observe(&Event::Clear),
                // That a value went in is no news after its miss.
                _ => {}
            }
        });
        Core { cache, is_observed: true, ..self }
    }

    /// What takes the arguments of a call; notes the paths of leaves if someone is to be told of them.
    #[inline]
    pub(super) fn writer<'t>(&self) -> Writer<'t> {
        if self.is_observed { Writer::with_paths() } else { Writer::default() }
    }

    /// The hot path: a signature, a lookup, a run.
    pub(super) fn call(&self, mut leaves: Writer<'_>, _caller: Caller, trace: &TraceFn<'_>) -> Result<Outcome> {
        if let Some(error) = leaves.tensors.iter().find_map(|tensor| tensor.error()) {
            return Err(error.clone());
        }
        if !self.enabled.load(Ordering::Relaxed) {
            return self.evaluate(&leaves, trace);
        }
        let entry = match self.cache.get_recent(&leaves.words[..]) {
            Some(entry) => entry,
            None => self.entry(&mut leaves, trace)?,
        };
        let tensors = entry.run(&leaves.tensors)?;
        Ok(Outcome::Ran { entry, tensors })
    }

    /// The entry for these arguments: found by its hash, or made.
    fn entry(&self, leaves: &mut Writer<'_>, trace: &TraceFn<'_>) -> Result<Arc<Entry>> {
        let signature = Signature::take(leaves);
        let args = &leaves.tensors;
        let make = || make(&signature, args, trace);
        Ok(self.cache.get_or_try_insert_with(&signature.hash(), &signature, make)?.0)
    }

    /// The un-accelerated path.
    fn evaluate(&self, leaves: &Writer<'_>, trace: &TraceFn<'_>) -> Result<Outcome> {
        let trace = traced(&leaves.words, &leaves.tensors, trace)?;
        let tensors = eager::evaluate(&trace, &leaves.tensors)?;
        Ok(Outcome::Evaluated { trace, tensors })
    }

    /// A call inside another trace: the function becomes part of it.
    pub(super) fn inline<R>(
        &self,
        leaves: &Writer<'_>,
        caller: Caller,
        body: &dyn Fn(&mut Reader<'_>) -> Result<R>,
    ) -> Result<R> {
        if let Some(error) = leaves.tensors.iter().find_map(|tensor| tensor.error()) {
            return Err(error.clone());
        }
        let traced = leaves.tensors.iter().find_map(|tensor| tensor.as_traced());
        let tape = &traced.ok_or_else(|| Error::Internal("nothing is traced that could be inlined".into()))?.tape;
        body(&mut Reader::new(&leaves.words, &stand_ins(tape, &leaves.tensors, caller)))
    }

    /// The entries with their signatures, most recently used first.
    pub(super) fn entries(&self) -> Vec<(Signature, Arc<Entry>)> {
        self.cache.entries().iter().map(|view| (view.key().clone(), Arc::clone(view.value()))).collect()
    }

    /// Whether there is an entry of this signature.
    pub(super) fn has(&self, signature: &Signature) -> bool {
        self.cache.peek(&signature.hash(), signature).is_some()
    }

    /// How many entries may go in before one must go out.
    pub(super) fn room(&self) -> usize {
        self.cache.capacity().entries.saturating_sub(self.cache.len())
    }

    /// Puts an entry in that no call asked for.
    pub(super) fn insert(&self, signature: &Signature, entry: Entry) -> Insertion {
        let weight = entry.n_bytes();
        self.cache.insert_if_room(&signature.hash(), signature, entry, weight)
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
