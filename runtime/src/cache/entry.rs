//! One value in a cache, with its key and its numbers.
//!
//! Guarantees that key and value never change. The other fields do, and each says under which lock, if any.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc as Shared, Mutex};

use super::Hash32;
use crate::lock::lock;
use crate::recent::Counted;
use crate::stats::Weight;
use crate::sync::Arc;

/// One value in the cache.
pub(super) struct Entry<K, V> {
    pub(super) hash: Hash32,
    pub(super) key: K,
    pub(super) value: Shared<V>,
    /// Changed under the lock of the ledger.
    weight: Mutex<Weight>,
    /// The clock at the last use, or at an earlier one if no other entry was used since.
    pub(super) stamp: AtomicU64,
    /// The hits that no handle of `recent.rs` counts any more.
    pub(super) hits: AtomicU64,
    /// The pins that are held; changed by `pin.rs` only.
    pub(super) n_pins: AtomicUsize,
    /// Whether it has left the cache; it never comes back.
    is_out: AtomicBool,
}

impl<K, V> Entry<K, V> {
    pub(super) fn new(hash: Hash32, key: K, value: Shared<V>, weight: Weight, stamp: u64) -> Arc<Entry<K, V>> {
        let (stamp, hits) = (AtomicU64::new(stamp), AtomicU64::new(0));
        let (weight, n_pins) = (Mutex::new(weight), AtomicUsize::new(0));
        let is_out = AtomicBool::new(false);
        Arc::new(Entry { hash, key, value, weight, stamp, hits, n_pins, is_out })
    }

    /// Whether a pin keeps it from eviction.
    pub(super) fn is_pinned(&self) -> bool {
        self.n_pins.load(Relaxed) > 0
    }

    /// Whether it has not left the cache.
    pub(super) fn is_in(&self) -> bool {
        !self.is_out.load(Relaxed)
    }

    /// Notes that it has left the cache.
    pub(super) fn leave(&self) {
        self.is_out.store(true, Relaxed);
    }

    pub(super) fn weight(&self) -> Weight {
        *lock(&self.weight)
    }

    /// Under the lock of the ledger.
    pub(super) fn set_weight(&self, weight: Weight) {
        *lock(&self.weight) = weight;
    }
}

impl<K, V> Counted for Entry<K, V> {
    fn add_uses(&self, n: u64) {
        self.hits.fetch_add(n, Relaxed);
    }
}
