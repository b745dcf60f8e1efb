//! What a cache did and holds, as plain data.

use std::time::Duration;

use retape_runtime::{Budget, Cache, EntryView};

use super::advice::Advice;
use super::check::CheckCounts;
use super::entry::Entry;
use super::latency::Latency;
use super::signature::Signature;
use crate::compile::Stages;

/// The time each stage of a miss took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompileTimes {
    /// Running the closure on traced tensors, with differentiation.
    pub trace: Duration,
    /// Rewriting the graph.
    pub optimise: Duration,
    /// Fusion and memory planning.
    pub plan: Duration,
    /// Making machine code.
    pub compile: Duration,
}

impl CompileTimes {
    pub(crate) fn of(stages: &Stages) -> CompileTimes {
        CompileTimes {
            trace: stages.time("trace"),
            optimise: stages.time("optimise"),
            plan: stages.time("plan"),
            compile: stages.time("compile"),
        }
    }

    /// The sums of the stages.
    pub(super) fn plus(self, other: CompileTimes) -> CompileTimes {
        CompileTimes {
            trace: self.trace + other.trace,
            optimise: self.optimise + other.optimise,
            plan: self.plan + other.plan,
            compile: self.compile + other.compile,
        }
    }

    /// All stages together.
    pub fn total(&self) -> Duration {
        self.trace + self.optimise + self.plan + self.compile
    }
}

/// One cached trace.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EntryStats {
    /// The arguments that it is for; displays as their leaves.
    pub signature: Signature,
    /// Calls that this entry served, the one that made it included.
    pub calls: u64,
    /// How long ago it was last used, to some milliseconds.
    pub last_use: Duration,
    /// Whether it stays when others make room.
    pub is_pinned: bool,
    /// Bytes of machine code, constants and one arena; with what is there for gradients.
    pub bytes: usize,
    /// Bytes of the same on a GPU, captured tensors included; the entry has little in main memory then.
    pub device_bytes: usize,
    /// Bytes of the arena that holds all intermediate values, and of the scratch of long reductions.
    pub arena_bytes: usize,
    /// Bytes that intermediate values would take if no two of them shared any.
    pub arena_unshared_bytes: usize,
    /// Steps of the plan: fused kernels and library calls.
    pub n_steps: usize,
    /// Concrete tensors that the closure captured, with the line that used each.
    pub captures: Vec<String>,
    /// What making it cost, gradients aside.
    pub times: CompileTimes,
    /// What is there for gradients that are evaluated at once.
    pub gradients: Vec<GradientStats>,
}

/// The forward and backward code of a cached trace, for calls inside a gradient that is evaluated at once.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GradientStats {
    /// The tensors among the arguments that are differentiated by, by position.
    pub arguments: Vec<usize>,
    /// The results that the differentiated value depends on, by position among those that are computed.
    pub results: Vec<usize>,
    /// How often the backward code ran.
    pub calls: u64,
    /// Whether it has been compiled; it is when it is first needed.
    pub is_compiled: bool,
    /// Values that the forward code keeps for it, besides results, arguments and captured tensors.
    pub residuals: usize,
    /// Bytes of these values.
    pub residual_bytes: usize,
    /// Bytes of machine code and of one arena each, forward and backward.
    pub bytes: usize,
    /// What making it cost; tracing is differentiation here.
    pub times: CompileTimes,
}

/// A cache at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// The function's name; see [`Accelerated::named`](crate::Accelerated::named).
    pub name: String,
    /// Calls that found an entry.
    pub hits: u64,
    /// Calls that traced.
    pub misses: u64,
    /// Calls that waited for another thread's trace of the same signature; they count as hits.
    pub waits: u64,
    /// Entries dropped to make room.
    pub evictions: u64,
    /// Times the cache was cleared.
    pub clears: u64,
    /// The number of entries the cache may hold.
    pub capacity: usize,
    /// The bytes that all entries together may use.
    pub budget: Budget,
    /// Entries that are never evicted.
    pub pinned: usize,
    /// Traces that were not kept: over the budget, no room beside pinned entries, or cleared meanwhile.
    pub rejected: u64,
    /// The entries it holds, most recently used first.
    pub entries: Vec<EntryStats>,
    /// Runs of backward code, inside gradients that are evaluated at once, that found it compiled.
    pub backward_hits: u64,
    /// Runs of backward code that compiled it.
    pub backward_misses: u64,
    /// How long hits took.
    pub hit_latency: Latency,
    /// How long misses took, failed ones included.
    pub miss_latency: Latency,
    /// Calls that were checked, differed, were served un-accelerated for it, or trapped.
    pub checks: CheckCounts,
    /// What to change, if the misses show a mistake.
    pub advice: Vec<Advice>,
}

impl Stats {
    pub(super) fn of(name: String, cache: &Cache<Signature, Entry>) -> Stats {
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

    /// Hits over calls, in `[0, 1]`; 0 before the first call.
    pub fn hit_rate(&self) -> f64 {
        let calls = self.hits + self.misses;
        if calls == 0 { 0.0 } else { self.hits as f64 / calls as f64 }
    }

    /// Entries over capacity, in `[0, 1]`.
    pub fn occupancy(&self) -> f64 {
        self.entries.len() as f64 / self.capacity as f64
    }

    /// Bytes of all entries in main memory.
    pub fn bytes(&self) -> usize {
        self.entries.iter().map(|entry| entry.bytes).sum()
    }

    /// Bytes of all entries on GPUs.
    pub fn device_bytes(&self) -> usize {
        self.entries.iter().map(|entry| entry.device_bytes).sum()
    }
}

impl EntryStats {
    pub(super) fn of(view: &EntryView<Signature, Entry>) -> EntryStats {
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
