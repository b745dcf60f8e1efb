//! The statistics of a function and its cache, and the material of a report on it.

use std::sync::Arc;
use std::time::Duration;

use retape_runtime::{Cache, EntryView};

use super::{Core, lock};
use crate::accelerate::entry::Entry;
use crate::error::Caller;
use crate::observe::explain::Miss;
use crate::observe::history::Milestone;
use crate::observe::latency::Latency;
use crate::observe::profile::LaunchTotal;
use crate::observe::stats::{CheckCounts, EntryStats, Stats};
use crate::signature::Signature;

/// The material of a report.
pub(crate) struct Subject {
    /// The line that accelerated it, and how long ago that was.
    pub(crate) made_at: Caller,
    pub(crate) age: Duration,
    pub(crate) stats: Stats,
    /// The entries of the statistics, in the same order.
    pub(crate) entries: Vec<Arc<Entry>>,
    pub(crate) misses: Vec<Miss>,
    /// Misses and hits since the first call.
    pub(crate) history: Vec<Milestone>,
    /// For an entry: how many of its calls were measured, and what its launches took.
    pub(crate) times: Vec<Option<(u64, Vec<LaunchTotal>)>>,
}

impl Core {
    /// Everything that a report shows.
    pub(crate) fn subject(&self) -> Subject {
        let views = self.cache.entries();
        let mut stats = self.stats();
        stats.entries = views.iter().map(EntryStats::of).collect();
        let entries: Vec<Arc<Entry>> = views.iter().map(|view| Arc::clone(view.value())).collect();
        let times = entries.iter().map(|entry| self.recorder.totals(&entry.signature, entry.runs())).collect();
        let (made_at, age) = (self.identity().made_at(), self.start.elapsed());
        let (misses, history) = {
            let log = lock(&self.log);
            (log.misses(), log.history().to_vec())
        };
        Subject { made_at, age, stats, entries, misses, history, times }
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
