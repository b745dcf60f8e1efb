//! The statistics of a function and its cache, and what is inside its entries.

use retape_runtime::{Cache, EntryView};

use super::{Core, lock};
use crate::accelerate::entry::Entry;
use crate::observe::inspection::{Detail, Inspection, Machine};
use crate::observe::latency::Latency;
use crate::observe::stats::{CheckCounts, EntryStats, Stats};
use crate::signature::Signature;

impl Core {
    /// The function at this moment, with the insides of the `n_details` entries used last.
    pub(crate) fn inspect(&self, n_details: usize) -> Inspection {
        let views = self.cache.entries();
        let mut stats = self.stats();
        stats.entries = views.iter().map(EntryStats::of).collect();
        let detail = |view: &EntryView<Signature, Entry>| {
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
            details: views.iter().take(n_details).map(detail).collect(),
            stats,
            misses,
            history,
        }
    }
}

impl Stats {
    pub(crate) fn of(name: String, cache: &Cache<Signature, Entry>) -> Stats {
        let counters = cache.stats();
        let mut entries = cache.entries();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.stamp));
        Stats {
            name,
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
            backward_hits: 0,
            backward_misses: 0,
            hit_latency: Latency::default(),
            miss_latency: Latency::default(),
            checks: CheckCounts::default(),
            advice: vec![],
        }
    }
}

impl EntryStats {
    pub(crate) fn of(view: &EntryView<Signature, Entry>) -> EntryStats {
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
