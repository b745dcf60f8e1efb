//! Capacities, events and numbers of a cache: what its owner sets and sees.
//!
//! Guarantees nothing by itself; `cache.rs` counts.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::cache::Hash32;

/// What happened in a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// A call found its value, or shared it.
    Hit,
    /// A call did not find its value.
    Miss,
    /// A call waits for another thread to make its value.
    Wait,
    /// A made value went in.
    Insert,
    /// A value went out, to keep a capacity or by [`Cache::remove`](crate::Cache::remove).
    Evict,
    /// All values went out.
    Clear,
}

/// One event, as an observer sees it.
#[derive(Debug)]
pub struct Event<'a, K> {
    /// What happened.
    pub kind: EventKind,
    /// The hash of the key; zero for [`EventKind::Clear`].
    pub hash: Hash32,
    /// The key; absent for [`EventKind::Clear`] and for a [`Cache::get`](crate::Cache::get) that finds nothing.
    pub key: Option<&'a K>,
}

/// What a cache may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Entries.
    pub entries: usize,
    /// The sum of weights, if it matters.
    pub weight: Option<usize>,
}

impl Default for Capacity {
    fn default() -> Capacity {
        Capacity { entries: 50, weight: None }
    }
}

impl Capacity {
    /// The bound on the sum of weights, which may pass `usize`.
    pub(crate) fn max_weight(self) -> u128 {
        self.weight.map_or(u128::MAX, |weight| weight as u128)
    }
}

/// Numbers of a cache at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Calls that found or shared their value.
    pub hits: u64,
    /// Calls that did not; each made its value, failed to, or was a `get`.
    pub misses: u64,
    /// Calls that waited for another thread; those that then got its value are hits.
    pub waits: u64,
    /// Values that went in.
    pub inserts: u64,
    /// Values that went out to keep a capacity, or by `remove`.
    pub evictions: u64,
    /// Values that were made but not kept: too heavy, no room beside pinned ones, or cleared meanwhile.
    pub rejected: u64,
    /// Calls of `clear`.
    pub clears: u64,
    /// Entries now.
    pub occupancy: usize,
    /// The sum of their weights.
    pub weight: usize,
    /// The capacity in entries.
    pub capacity: usize,
    /// The capacity in weight.
    pub weight_capacity: Option<usize>,
}

impl CacheStats {
    /// Hits among all calls; 0 before the first.
    pub fn hit_rate(&self) -> f64 {
        let calls = self.hits + self.misses;
        if calls == 0 { 0.0 } else { self.hits as f64 / calls as f64 }
    }
}

/// One line for people.
impl fmt::Display for CacheStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CacheStats { hits, misses, waits, evictions, clears, occupancy, capacity, weight, .. } = self;
        let rate = 100.0 * self.hit_rate();
        write!(f, "{hits} hits, {misses} misses ({rate:.1}% hits), {waits} waits, {evictions} evictions, ")?;
        write!(f, "{clears} clears, {occupancy} of {capacity} entries, weight {weight}")
    }
}

/// The counters of a cache.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) waits: AtomicU64,
    pub(crate) inserts: AtomicU64,
    pub(crate) evictions: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) clears: AtomicU64,
}

/// Counts one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
