//! The counters and the content of a cache, as plain data.

use std::time::Duration;

use retape_runtime::Budget;

use super::advice::Advice;
use super::latency::Latency;
use crate::call::GradientStats;
use crate::compile::CompileTimes;
use crate::signature::Signature;

/// One cached trace.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct EntryStats {
    /// The arguments that it is for; displays as their leaves.
    pub signature: Signature,
    /// Calls that this entry served, the one that made it included.
    pub calls: u64,
    /// How long ago it was last used, to some milliseconds.
    #[cfg_attr(feature = "serde", serde(rename = "last_use_seconds", serialize_with = "crate::serialise::seconds"))]
    pub last_use: Duration,
    /// Whether it stays when others make room.
    pub is_pinned: bool,
    /// Bytes of machine code and one arena; with what is there for gradients.
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
    /// The time that making it took, gradients aside.
    pub times: CompileTimes,
    /// Statistics of the gradients that are evaluated at once.
    pub gradients: Vec<GradientStats>,
}

/// The counts of checks and traps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CheckCounts {
    /// Calls that were compared with the un-accelerated path; a call inside a gradient counts once, gradients included.
    pub checked: u64,
    /// Those that differed.
    pub differing: u64,
    /// Signatures that were put in quarantine.
    pub quarantines: u64,
    /// Calls that the un-accelerated path served because of it.
    pub quarantined_calls: u64,
    /// Calls that failed because an op made NaN or an infinity from finite numbers.
    pub trapped: u64,
    /// Hits that entered the closure once more to see whether it still records what it did; see
    /// [`Options::stale_check`](crate::Options::stale_check).
    pub stale_checks: u64,
    /// Those that found that it does not.
    pub stale: u64,
}

/// A cache at one moment.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serialise::budget"))]
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
    /// Advice on changes to the program, if the misses show a mistake.
    pub advice: Vec<Advice>,
}

impl Stats {
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
