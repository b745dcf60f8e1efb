//! The non-generic body of an accelerated function: cache lookup, single-flight misses, the un-accelerated path.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use retape_runtime::{Cache, Capacity, EventKind, Insertion, hash_words};
use smallvec::SmallVec;

use super::advice::{Advice, Detector};
use super::entry::Entry;
use super::explain::{Explanation, Miss, MissLog};
use super::latency::{Latencies, sampled_start};
use super::pin::HeldEntry;
use super::policy::{OnRetrace, RetracePolicy};
use super::signature::{Description, Signature};
use super::stats::{CompileTimes, Stats};
use crate::eager;
use crate::error::{Caller, Error, Result};
use crate::event::{Event, Observer};
use crate::tape::Tape;
use crate::tensor::Tensor;
use crate::trace::{Trace, stand_ins};
use crate::tree::{Reader, Tree, Writer};

/// Traces the function on arguments read from a stream.
type TraceFn<'r> = dyn Fn(&Arc<Tape>, &mut Reader<'_>) -> Result<Trace> + 'r;

/// What the generic rim knows and the core asks for on its cold paths.
pub(super) struct Rim<'r> {
    /// The line of the call.
    pub(super) caller: Caller,
    /// Writes the arguments again, for people.
    pub(super) describe: &'r dyn Fn() -> Description,
    /// Traces the function.
    pub(super) trace: &'r TraceFn<'r>,
}

/// What makes a call more than a lookup and a run: one load tells whether anything does.
mod flag {
    /// Calls go through the un-accelerated path.
    pub(super) const DISABLED: u32 = 1;
}

pub(super) struct Core {
    cache: Cache<Signature, Entry>,
    flags: AtomicU32,
    policy: Mutex<RetracePolicy>,
    /// Whether every miss is an error; asked on misses only.
    is_locked: AtomicBool,
    log: Mutex<MissLog>,
    detector: Mutex<Detector>,
    hit_latency: Latencies,
    miss_latency: Latencies,
    /// The line that accelerated the function, and when.
    made_at: Caller,
    start: Instant,
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
    pub(super) fn new(made_at: Caller) -> Core {
        Core {
            cache: Cache::new(Capacity::default()),
            flags: AtomicU32::new(0),
            policy: Mutex::default(),
            is_locked: AtomicBool::new(false),
            log: Mutex::default(),
            detector: Mutex::default(),
            hit_latency: Latencies::default(),
            miss_latency: Latencies::default(),
            made_at,
            start: Instant::now(),
        }
    }

    /// A core without entries that tells `observer` of events.
    pub(super) fn observed_by(self, observer: impl Observer + 'static) -> Core {
        let cache = Cache::new(self.cache.capacity()).with_observer(move |event| {
            let arguments = event.key.map(Signature::to_string).unwrap_or_default();
            let arguments = &*arguments;
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
        Core { cache, ..self }
    }

    /// The hot path: a lookup and a run.
    pub(super) fn call(&self, leaves: Writer<'_>, rim: &Rim<'_>) -> Result<Outcome> {
        if let Some(error) = leaves.tensors.iter().find_map(|tensor| tensor.error()) {
            return Err(error.clone());
        }
        let flags = self.flags.load(Relaxed);
        if flags != 0 {
            return self.watched(flags, leaves, rim);
        }
        let start = sampled_start();
        let Some(entry) = self.find(&leaves.words) else {
            return self.miss(leaves, rim);
        };
        let tensors = entry.run(&leaves.tensors)?;
        if let Some(start) = start {
            self.hit_latency.record(start);
        }
        Ok(Outcome::Ran { entry, tensors })
    }

    /// A call while something is switched on that is not free.
    #[cold]
    fn watched(&self, flags: u32, leaves: Writer<'_>, rim: &Rim<'_>) -> Result<Outcome> {
        if flags & flag::DISABLED != 0 {
            return self.evaluate(&leaves, rim);
        }
        Err(Error::Internal(format!("nothing watches calls for flags {flags:#x}")))
    }

    /// The entry for these words, if there is one; counts a hit then, and else nothing.
    #[inline]
    fn find(&self, words: &[u64]) -> Option<Arc<Entry>> {
        self.cache.get_recent(words).or_else(|| self.cache.get_present(&hash_words(words), words))
    }

    /// A call that found no entry: makes it, or waits for it, and runs it.
    #[cold]
    fn miss(&self, leaves: Writer<'_>, rim: &Rim<'_>) -> Result<Outcome> {
        let entry = self.made(leaves.words, &leaves.tensors, rim)?;
        let tensors = entry.run(&leaves.tensors)?;
        Ok(Outcome::Ran { entry, tensors })
    }

    /// The entry that was not found: made here, or by another thread that this one waits for.
    fn made(&self, words: SmallVec<[u64; 64]>, args: &[&Tensor], rim: &Rim<'_>) -> Result<Arc<Entry>> {
        let start = Instant::now();
        let signature = Signature::new(words, (rim.describe)());
        let make = || self.make(&signature, args, rim, start);
        Ok(self.cache.get_or_try_insert_with(&signature.hash(), &signature, make)?.0)
    }

    /// Makes an entry, and notes what it cost and why it was not there.
    fn make(&self, signature: &Signature, args: &[&Tensor], rim: &Rim<'_>, start: Instant) -> Result<(Entry, usize)> {
        let counters = self.cache.stats();
        let explanation = lock(&self.log).explain(signature, counters.clears);
        let made = self
            .permit(&explanation, counters.misses, counters.hits + counters.misses, rim.caller)
            .and_then(|()| make(signature, args, rim.trace));
        self.miss_latency.record(start);
        let (times, error) = match &made {
            Ok(entry) => (entry.times(), None),
            Err(error) => (CompileTimes::default(), Some(error.to_string())),
        };
        let Explanation { reason, nearest, differences } = explanation;
        let miss = Miss {
            number: 0,
            reason,
            signature: signature.clone(),
            nearest,
            differences,
            at: rim.caller,
            times,
            wall: start.elapsed(),
            since_start: self.start.elapsed(),
            hits: counters.hits,
            error,
        };
        self.note(miss, counters.clears);
        let entry = made?;
        let weight = entry.n_bytes();
        Ok((entry, weight))
    }

    /// Puts a miss on record and gives the advice that it justifies.
    fn note(&self, miss: Miss, n_clears: u64) {
        let miss = {
            let mut log = lock(&self.log);
            if miss.error.is_none() {
                log.know(&miss.signature, n_clears);
            }
            log.add(miss)
        };
        tracing::debug!(target: "retape", reason = miss.reason.name(), "{miss}");
        let (occupancy, capacity) = (self.cache.len(), self.capacity());
        for advice in lock(&self.detector).note(&miss, self.made_at, occupancy, capacity) {
            tracing::warn!(target: "retape", made_at = %self.made_at, "{advice}");
        }
    }

    /// Asks the lock and the policy whether a miss may trace.
    fn permit(&self, why: &Explanation, miss: u64, call: u64, at: Caller) -> Result<()> {
        if self.locked() {
            return Err(Error::Cache(format!("a locked cache makes no entry: {why} (at {at})")));
        }
        match lock(&self.policy).action(miss, call) {
            OnRetrace::Allow => Ok(()),
            OnRetrace::Warn => {
                tracing::warn!(target: "retape", %at, reason = why.reason.name(), "retrace: {why}");
                Ok(())
            }
            OnRetrace::Error => Err(Error::Cache(format!("a new trace is refused: {why} (at {at})"))),
        }
    }

    /// The un-accelerated path.
    fn evaluate(&self, leaves: &Writer<'_>, rim: &Rim<'_>) -> Result<Outcome> {
        let trace = traced(&leaves.words, &leaves.tensors, rim.trace)?;
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

    /// The entries, most recently used first.
    pub(super) fn entries(&self) -> Vec<Arc<Entry>> {
        self.cache.entries().iter().map(|view| Arc::clone(view.value())).collect()
    }

    /// The entry of this signature, if there is one; that is no use of it.
    pub(super) fn peek(&self, signature: &Signature) -> Option<Arc<Entry>> {
        self.cache.peek(&signature.hash(), signature)
    }

    /// The entry for these arguments, found or made as by a call, and kept from eviction.
    pub(super) fn pin(&self, leaves: Writer<'_>, rim: &Rim<'_>) -> Result<HeldEntry> {
        if let Some(error) = leaves.tensors.iter().find_map(|tensor| tensor.error()) {
            return Err(error.clone());
        }
        if leaves.tensors.iter().any(|tensor| tensor.is_traced()) {
            return Err(Error::Cache(format!("an entry cannot be pinned inside a trace (at {})", rim.caller)));
        }
        let entry = match self.find(&leaves.words) {
            Some(entry) => entry,
            None => self.made(leaves.words, &leaves.tensors, rim)?,
        };
        let pin = self.cache.hold(&entry.signature.hash(), &entry.signature);
        Ok(match pin {
            // By now it may be another one of the same signature.
            Some(pin) => HeldEntry { entry: Arc::clone(pin.value()), pin: Some(pin) },
            None => HeldEntry { entry, pin: None },
        })
    }

    /// How many entries may go in before one must go out.
    pub(super) fn room(&self) -> usize {
        self.cache.capacity().entries.saturating_sub(self.cache.len())
    }

    /// Puts an entry in that no call asked for.
    pub(super) fn insert(&self, entry: Entry) -> Insertion {
        let (signature, weight) = (entry.signature.clone(), entry.n_bytes());
        let inserted = self.cache.insert_if_room(&signature.hash(), &signature, entry, weight);
        if inserted == Insertion::Inserted {
            lock(&self.log).know(&signature, self.cache.stats().clears);
        }
        inserted
    }

    pub(super) fn stats(&self) -> Stats {
        let mut stats = Stats::of(&self.cache);
        stats.hit_latency = self.hit_latency.summary();
        stats.miss_latency = self.miss_latency.summary();
        stats.advice = self.advice();
        stats
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
        self.flags.load(Relaxed) & flag::DISABLED == 0
    }

    pub(super) fn set_enabled(&self, enabled: bool) {
        self.set_flag(flag::DISABLED, !enabled);
    }

    fn set_flag(&self, flag: u32, is_on: bool) {
        if is_on {
            self.flags.fetch_or(flag, Relaxed);
        } else {
            self.flags.fetch_and(!flag, Relaxed);
        }
    }

    pub(super) fn locked(&self) -> bool {
        self.is_locked.load(Relaxed)
    }

    pub(super) fn set_locked(&self, is_locked: bool) {
        self.is_locked.store(is_locked, Relaxed);
    }

    pub(super) fn on_retrace(&self, policy: RetracePolicy) {
        *lock(&self.policy) = policy;
    }

    pub(super) fn misses(&self) -> Vec<Miss> {
        lock(&self.log).misses()
    }

    pub(super) fn advice(&self) -> Vec<Advice> {
        lock(&self.detector).advice()
    }
}

/// Locks what is whole after every change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Traces and compiles.
fn make(signature: &Signature, args: &[&Tensor], trace: &TraceFn<'_>) -> Result<Entry> {
    let start = Instant::now();
    let traced = traced(signature.words(), args, trace)?;
    Entry::new(signature.clone(), traced, start.elapsed())
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
