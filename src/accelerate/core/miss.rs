//! A call that found no entry: traces and compiles one, or waits for the thread that does, and puts the miss on record.

use std::sync::Arc;
use std::time::{Duration, Instant};

use retape_runtime::{CacheStats, Deadlock, Outcome as Served, Weight, lock};

use super::enter::trace_and_compile;
use super::mode::described;
use super::{CallContext, Core, Outcome};
use crate::accelerate::entry::Entry;
use crate::compile::CompileTimes;
use crate::error::{Caller, Error, Result};
use crate::observe::explain::{Explanation, Miss};
use crate::observe::latency::sample_after_miss;
use crate::observe::profile;
use crate::options::OnRetrace;
use crate::signature::Signature;
use crate::tensor::Tensor;
use crate::tree::{Words, Writer};

impl Core {
    /// A call that found no entry: makes it, or waits for it, and runs it.
    #[cold]
    pub(super) fn miss(&self, flags: u32, leaves: Writer<'_>, context: &CallContext<'_>) -> Result<Outcome> {
        let (words, args) = (leaves.words, leaves.tensors);
        let entry = self.get_or_compile(flags, words, &args, context)?;
        let tensors = entry.run(&args).map_err(|error| self.refused(error, &entry, context.caller))?;
        Ok(Outcome::Ran { entry: entry.into(), tensors })
    }

    /// The entry for arguments that were not found: made here, or by the thread that was first.
    #[cold]
    pub(super) fn get_or_compile(
        &self,
        flags: u32,
        words: Words,
        args: &[&Tensor],
        context: &CallContext<'_>,
    ) -> Result<Arc<Entry>> {
        let start = Instant::now();
        let signature = Signature::of_words(words, described(flags, context));
        let compile = || self.compile_entry(&signature, args, context, start).map_err(Unmade::Failed);
        let (entry, how) = match self.cache.get_or_try_insert_with(&signature.hash(), &signature, compile) {
            Ok(found) => found,
            Err(Unmade::Failed(error)) => return Err(error),
            Err(Unmade::Refused(deadlock)) => {
                let error = self.deadlocked(deadlock, &signature, context.caller);
                let (miss, _, counters) = self.begin_miss(&signature, context.caller);
                self.record_miss(Miss { error: Some(error.to_string()), ..miss }, start, counters.clears);
                return Err(error);
            }
        };
        sample_after_miss();
        match how {
            Served::Miss => profile::compiled(entry.stages()),
            Served::Shared => profile::waited(start),
            Served::Hit => {}
        }
        if how != Served::Miss {
            self.events.hit(&entry.signature, context.caller);
        }
        Ok(entry)
    }

    /// Makes an entry, and notes what it cost and why it was not there.
    fn compile_entry(
        &self,
        signature: &Signature,
        args: &[&Tensor],
        context: &CallContext<'_>,
        start: Instant,
    ) -> Result<(Entry, Weight)> {
        let (mut miss, why, counters) = self.begin_miss(signature, context.caller);
        let call = counters.hits + counters.misses;
        let of_function = |error: Error| {
            let by = || format!("the trace of {} for ({signature})", self.identity().full());
            error.asked_by(by, context.caller)
        };
        let permitted = self.permit(&why, signature, call, context.caller);
        let made =
            permitted.and_then(|()| trace_and_compile(signature, args, context, self.identity())).map_err(of_function);
        match &made {
            Ok(entry) => miss.times = entry.times(),
            Err(error) => miss.error = Some(error.to_string()),
        }
        self.record_miss(miss, start, counters.clears);
        let entry = made?;
        let advice = lock(&self.detector).add_graph(&entry.trace.graph);
        advice.iter().for_each(|advice| self.events.advice(advice));
        let weight = entry.weight();
        Ok((entry, weight))
    }

    /// A miss of which only the beginning is known.
    fn begin_miss(&self, signature: &Signature, at: Caller) -> (Miss, Explanation, CacheStats) {
        let counters = self.cache.stats();
        let why = lock(&self.log).explain(signature, counters.clears);
        let miss = Miss {
            function: self.identity().name(),
            number: 0,
            reason: why.reason,
            signature: signature.clone(),
            nearest: why.nearest.clone(),
            differences: why.differences.clone(),
            at,
            times: CompileTimes::default(),
            wall: Duration::ZERO,
            since_start: self.start.elapsed(),
            hits: counters.hits,
            error: None,
        };
        (miss, why, counters)
    }

    /// Puts a miss on record and gives the advice that it justifies.
    fn record_miss(&self, mut miss: Miss, start: Instant, n_clears: u64) {
        miss.wall = start.elapsed();
        self.miss_latency.record(start);
        let miss = {
            let mut log = lock(&self.log);
            if miss.error.is_none() {
                log.add_signature(&miss.signature, n_clears);
            }
            log.add_miss(miss)
        };
        self.events.miss(&miss);
        let (occupancy, capacity) = (self.cache.len(), self.cache.capacity().entries);
        // Listeners may call anything, so no lock is held while they are told.
        let advice = lock(&self.detector).add_miss(&miss, self.identity().made_at(), occupancy, capacity);
        advice.iter().for_each(|advice| self.events.advice(advice));
    }

    /// Asks the lock and the policy whether a miss may trace.
    fn permit(&self, why: &Explanation, signature: &Signature, call: u64, at: Caller) -> Result<()> {
        if self.common.is_locked() {
            return Err(Error::Cache(format!(
                "the locked cache of {} makes no entry: {why} (at {at})",
                self.identity()
            )));
        }
        let policy = *lock(&self.policy);
        match policy.action(why.ordinal, call) {
            OnRetrace::Allow => Ok(()),
            OnRetrace::Warn => {
                self.events.retrace(why, signature, at);
                Ok(())
            }
            OnRetrace::Error => {
                Err(Error::Cache(format!("a new trace of {} is refused: {why} (at {at})", self.identity())))
            }
        }
    }

    /// The error of a call that would have to wait for itself.
    fn deadlocked(&self, deadlock: Deadlock, signature: &Signature, at: Caller) -> Error {
        let function = self.identity().full();
        Error::Cache(match deadlock {
            Deadlock::Reentrant => {
                format!("{function} called itself with the signature that is being traced, ({signature}) (at {at})")
            }
            Deadlock::Stuck => format!(
                "{function} does not get traced for ({signature}): several threads in turn have entered the closure, and \
                 none of them gets on, so it seems to wait for a thread that calls the function with this very signature; \
                 call it on the closure's own thread, or before, and pass what it gives as an argument (at {at}; if the \
                 closure is only slow, raise RETAPE_PATIENCE)"
            ),
        })
    }
}

/// Why a call has no entry.
enum Unmade {
    Refused(Deadlock),
    Failed(Error),
}

impl From<Deadlock> for Unmade {
    fn from(deadlock: Deadlock) -> Unmade {
        Unmade::Refused(deadlock)
    }
}
