//! Capacities, events and numbers of a cache: its owner sets the first and sees the others.
//!
//! Guarantees nothing by itself; `cache.rs` counts.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::hash::Hash32;

/// The kind of an event in a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// A call did not find its value.
    Miss,
    /// A call waits for another thread to make its value.
    Wait,
    /// A call has waited in vain for threads that stand still, and makes the value itself.
    TakeOver,
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
    /// The kind of event.
    pub kind: EventKind,
    /// The hash of the key; zero for [`EventKind::Clear`].
    pub hash: Hash32,
    /// The key; absent for [`EventKind::Clear`] and for a [`Cache::get`](crate::Cache::get) that finds nothing.
    pub key: Option<&'a K>,
}

/// The limits of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Entries.
    pub entries: usize,
    /// The most that all entries together may weigh.
    pub budget: Budget,
}

impl Default for Capacity {
    fn default() -> Capacity {
        Capacity { entries: 50, budget: Budget::default() }
    }
}

/// The bytes that something may use; no bound at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of the host's memory, if they matter.
    pub host: Option<usize>,
    /// Bytes of the memory of devices, if they matter.
    pub device: Option<usize>,
}

/// The bytes that something uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Bytes of the host's memory.
    pub host: usize,
    /// Bytes of the memory of devices.
    pub device: usize,
}

impl From<usize> for Weight {
    fn from(host: usize) -> Weight {
        Weight { host, device: 0 }
    }
}

/// A sum of weights: their owner chose them, so it may pass `usize`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Total {
    host: u128,
    device: u128,
}

impl Total {
    pub(crate) fn add(&mut self, weight: Weight) {
        self.host += weight.host as u128;
        self.device += weight.device as u128;
    }

    pub(crate) fn take(&mut self, weight: Weight) {
        self.host -= weight.host as u128;
        self.device -= weight.device as u128;
    }

    pub(crate) fn is_within(&self, budget: Budget) -> bool {
        !self.is_over_on_host(budget) && !self.is_over_on_device(budget)
    }

    fn is_over_on_host(&self, budget: Budget) -> bool {
        budget.host.is_some_and(|most| self.host > most as u128)
    }

    fn is_over_on_device(&self, budget: Budget) -> bool {
        budget.device.is_some_and(|most| self.device > most as u128)
    }

    /// Whether taking `weight` out brings an exceeded sum down.
    pub(crate) fn is_helped_by(&self, weight: Weight, budget: Budget) -> bool {
        self.is_over_on_host(budget) && weight.host > 0 || self.is_over_on_device(budget) && weight.device > 0
    }
}

impl FromIterator<Weight> for Total {
    fn from_iter<I: IntoIterator<Item = Weight>>(weights: I) -> Total {
        let mut total = Total::default();
        weights.into_iter().for_each(|weight| total.add(weight));
        total
    }
}

impl From<Total> for Weight {
    fn from(total: Total) -> Weight {
        let clamped = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
        Weight { host: clamped(total.host), device: clamped(total.device) }
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
    /// Values that were made but not kept: too heavy, no room beside pinned ones, cleared meanwhile, or made by another
    /// thread, too, which was first.
    pub rejected: u64,
    /// Calls of `clear`.
    pub clears: u64,
    /// Entries now.
    pub occupancy: usize,
    /// Those among them that are never evicted.
    pub pinned: usize,
    /// The sum of their weights.
    pub weight: Weight,
    /// The capacity in entries.
    pub capacity: usize,
    /// The capacity in bytes.
    pub budget: Budget,
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
        let CacheStats { hits, misses, waits, evictions, clears, occupancy, pinned, capacity, .. } = self;
        let rate = 100.0 * self.hit_rate();
        write!(f, "{hits} hits, {misses} misses ({rate:.1}% hits), {waits} waits, {evictions} evictions, ")?;
        write!(f, "{clears} clears, {occupancy} of {capacity} entries ({pinned} pinned), ")?;
        write!(f, "{} bytes on the host, {} on devices", self.weight.host, self.weight.device)
    }
}

/// The counters of a cache.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Hits that were found by their hash; the shards of `recent.rs` count the others.
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
