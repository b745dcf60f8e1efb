//! The statistics of a function and its cache, and what is inside its entries.

use std::sync::Arc;

use retape_runtime::{CacheStats, EntryView};

use super::{Core, lock};
use crate::accelerate::entry::Entry;
use crate::error::{Error, Result};
use crate::observe::inspection::{Detail, Inspection, Machine};
use crate::observe::stats::{EntryStats, Stats};
use crate::observe::text::{EntryText, Form};
use crate::signature::Signature;

/// How many signatures the message names when there is no entry.
const MAX_NAMED: usize = 8;

type CachedEntry = EntryView<Signature, Entry>;

impl Core {
    /// The function at this moment, with the insides of the `n_details` entries used last.
    pub(crate) fn inspect(&self, n_details: usize) -> Inspection {
        let (counters, views) = (self.cache.stats(), self.cache.entries());
        let detail = |view: &CachedEntry| {
            let entry = view.value();
            let times = self.recorder.totals(&entry.signature, entry.runs());
            Detail::of(&entry.compiled, times.unwrap_or_default())
        };
        let (misses, history) = {
            let log = lock(&self.log);
            (log.misses(), log.history().to_vec())
        };
        Inspection {
            made_at: self.identity().made_at(),
            age: self.start.elapsed(),
            machine: Machine::with(views.iter().map(|view| view.value().code().device())),
            stats: self.stats_with(counters, &views),
            misses,
            history,
            details: views.iter().take(n_details).map(detail).collect(),
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        self.stats_with(self.cache.stats(), &self.cache.entries())
    }

    fn stats_with(&self, counters: CacheStats, entries: &[CachedEntry]) -> Stats {
        let (backward_hits, backward_misses) = self.common.counts();
        Stats {
            name: self.identity().name().to_string(),
            hits: counters.hits,
            misses: counters.misses,
            waits: counters.waits,
            evictions: counters.evictions,
            clears: counters.clears,
            capacity: counters.capacity,
            budget: counters.budget,
            pinned: counters.pinned,
            rejected: counters.rejected,
            entries: entries.iter().map(EntryStats::of).collect(),
            backward_hits,
            backward_misses,
            hit_latency: self.hit_latency.summary(),
            miss_latency: self.miss_latency.summary(),
            checks: self.checks.counts(),
            advice: self.advice(),
        }
    }
}

impl Core {
    /// The text of the entry with this signature.
    pub(crate) fn text(&self, signature: &Signature, form: Form) -> Result<String> {
        let entry = self.entry_of(signature)?;
        let recorded = &|| entry.recorded_text();
        EntryText { signature: &entry.signature, trace: &entry.trace, recorded, compiled: &entry.compiled }.of(form)
    }

    fn entry_of(&self, signature: &Signature) -> Result<Arc<Entry>> {
        self.peek(signature).ok_or_else(|| {
            let entries = self.entries();
            let named: Vec<String> = entries.iter().take(MAX_NAMED).map(|entry| entry.signature.label()).collect();
            let known = match entries.len() {
                0 => "its cache is empty".to_owned(),
                n if n > named.len() => {
                    format!("it has {} and {} more", named.join(", "), n - named.len())
                }
                _ => format!("it has {}", named.join(", ")),
            };
            Error::Cache(format!("{} has no entry {}; {known}", self.identity(), signature.label()))
        })
    }
}

impl EntryStats {
    fn of(view: &CachedEntry) -> EntryStats {
        let entry = view.value();
        let (code, weight) = (&entry.compiled.code, entry.weight());
        let capture = |capture: &crate::tape::Capture| match capture.tensor.ty() {
            Some(ty) => format!("{ty} at {}", capture.at),
            None => capture.at.to_string(),
        };
        EntryStats {
            signature: entry.signature.clone(),
            calls: view.hits + u64::from(!entry.is_loaded()),
            last_use: entry.idle_time(),
            is_pinned: view.is_pinned,
            bytes: weight.host,
            device_bytes: weight.device,
            arena_bytes: code.arena_bytes(),
            arena_unshared_bytes: entry.compiled.layout.unshared_bytes,
            n_steps: code.plan().steps.len(),
            captures: entry.trace.captures.iter().map(capture).collect(),
            times: entry.times(),
            gradients: entry.gradients(),
        }
    }
}
