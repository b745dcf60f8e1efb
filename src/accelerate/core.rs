//! The non-generic body of an accelerated function: cache lookup, single-flight misses, the un-accelerated path.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use retape_runtime::{Cache, Capacity, EventKind, Outcome as Served, hash_words};

use super::advice::{Advice, Detector};
use super::entry::Entry;
use super::explain::{Explanation, Miss, MissLog};
use super::latency::{Latencies, sampled_start};
use super::policy::{OnRetrace, RetracePolicy};
use super::profile::{self, CallKind, Profile, Recorder};
use super::signature::{Description, Signature};
use super::stats::{CompileTimes, EntryStats, Stats};
use crate::compile::Stages;
use crate::eager;
use crate::error::{Caller, Error, Result};
use crate::event::{Event, Observer};
use crate::report::Subject;
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
    /// Calls are measured.
    pub(super) const PROFILED: u32 = 1 << 1;
}

pub(super) struct Core {
    cache: Cache<Signature, Entry>,
    flags: AtomicU32,
    policy: Mutex<RetracePolicy>,
    log: Mutex<MissLog>,
    detector: Mutex<Detector>,
    hit_latency: Latencies,
    miss_latency: Latencies,
    recorder: Recorder,
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
            log: Mutex::default(),
            detector: Mutex::default(),
            hit_latency: Latencies::default(),
            miss_latency: Latencies::default(),
            recorder: Recorder::default(),
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
        if flags & flag::PROFILED != 0 {
            return self.recorder.watch(|| self.watched(flags & !flag::PROFILED, leaves, rim));
        }
        if flags & flag::DISABLED != 0 {
            profile::served(CallKind::Unaccelerated);
            return self.evaluate(&leaves, rim);
        }
        let start = sampled_start();
        let Some(entry) = self.find(&leaves.words) else {
            return self.miss(leaves, rim);
        };
        let tensors = run(&entry, &leaves.tensors)?;
        if let Some(start) = start {
            self.hit_latency.record(start);
        }
        Ok(Outcome::Ran { entry, tensors })
    }

    /// The entry for these words, if there is one; counts a hit then, and else nothing.
    #[inline]
    fn find(&self, words: &[u64]) -> Option<Arc<Entry>> {
        self.cache.get_recent(words).or_else(|| self.cache.get_present(&hash_words(words), words))
    }

    /// A call that found no entry: makes it, or waits for it, and runs it.
    #[cold]
    fn miss(&self, leaves: Writer<'_>, rim: &Rim<'_>) -> Result<Outcome> {
        let start = Instant::now();
        let signature = Signature::new(leaves.words, (rim.describe)());
        let args = &leaves.tensors;
        let make = || self.make(&signature, args, rim, start);
        let (entry, how) = self.cache.get_or_try_insert_with(&signature.hash(), &signature, make)?;
        match how {
            Served::Miss => profile::made(&entry),
            Served::Shared => profile::waited(start),
            Served::Hit => {}
        }
        let tensors = run(&entry, args)?;
        Ok(Outcome::Ran { entry, tensors })
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

    /// Asks the policy whether a miss may trace.
    fn permit(&self, why: &Explanation, miss: u64, call: u64, at: Caller) -> Result<()> {
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

    pub(super) fn on_retrace(&self, policy: RetracePolicy) {
        *lock(&self.policy) = policy;
    }

    pub(super) fn misses(&self) -> Vec<Miss> {
        lock(&self.log).misses()
    }

    pub(super) fn profiling(&self) -> bool {
        self.flags.load(Relaxed) & flag::PROFILED != 0
    }

    pub(super) fn set_profiling(&self, is_on: bool) {
        if is_on && !self.profiling() {
            self.recorder.restart();
        }
        self.set_flag(flag::PROFILED, is_on);
    }

    pub(super) fn profile(&self) -> Profile {
        self.recorder.profile()
    }

    /// Everything that a report shows.
    pub(super) fn subject(&self, name: &'static str) -> Subject {
        let mut views = self.cache.entries();
        views.sort_by_key(|view| std::cmp::Reverse(view.stamp));
        let mut stats = self.stats();
        stats.entries = views.iter().map(EntryStats::of).collect();
        let entries: Vec<Arc<Entry>> = views.iter().map(|view| Arc::clone(view.value())).collect();
        let times = entries.iter().map(|entry| self.recorder.totals(entry)).collect();
        let (misses, age) = (self.misses(), self.start.elapsed());
        Subject { name, made_at: self.made_at, age, stats, entries, misses, times }
    }

    pub(super) fn advice(&self) -> Vec<Advice> {
        lock(&self.detector).advice()
    }
}

/// Locks what is whole after every change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs an entry on a cold path, and measures it if the call is profiled.
fn run(entry: &Arc<Entry>, args: &[&Tensor]) -> Result<Vec<Tensor>> {
    if profile::is_watching() { entry.run_profiled(args) } else { entry.run(args) }
}

/// Traces and compiles.
fn make(signature: &Signature, args: &[&Tensor], trace: &TraceFn<'_>) -> Result<Entry> {
    let mut stages = Stages::default();
    let traced = stages.run("trace", || traced(signature.words(), args, trace))?;
    Entry::new(signature.clone(), traced, stages)
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
