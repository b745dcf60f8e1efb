//! Looks at a cache: values in use, entries at one moment, and the numbers.
//!
//! Guarantees that a look is no use and counts as nothing, that a value in use lives on when its entry goes out, that a
//! view counts each hit on its entry once, wherever it was found, and that the number of pinned entries is that of the
//! entries which say they are.

use std::ops::Deref;
use std::sync::Arc as Shared;
use std::sync::atomic::Ordering::Relaxed;

use super::entry::Entry;
use super::{Cache, Hash32};
use crate::recent::Handle;
use crate::stats::{CacheStats, Total, Weight};
use crate::sync::Arc;

/// An entry at one moment, for inspection.
pub struct EntryView<K, V> {
    entry: Arc<Entry<K, V>>,
    /// The clock of the cache at the last use: of two entries, the larger was used later.
    pub stamp: u64,
    /// The hits on this entry.
    pub hits: u64,
    /// Whether it has a pin, and so is not evicted.
    pub is_pinned: bool,
}

impl<K, V> EntryView<K, V> {
    /// The hash of the key.
    pub fn hash(&self) -> &Hash32 {
        &self.entry.hash
    }

    /// The key.
    pub fn key(&self) -> &K {
        &self.entry.key
    }

    /// The value.
    pub fn value(&self) -> &Shared<V> {
        &self.entry.value
    }

    /// The weight given at insertion, or later.
    pub fn weight(&self) -> Weight {
        self.entry.weight()
    }
}

/// A value on which somebody works; it lives as long as this, also if its entry goes out of the cache.
pub struct InUse<K, V>(pub(super) Hold<K, V>);

/// The handle that keeps a value alive.
pub(super) enum Hold<K, V> {
    /// A handle of this thread's shard: its count of owners is not contended.
    Recent(Arc<Handle<Entry<K, V>>>),
    Shared(Shared<V>),
}

impl<K, V> InUse<K, V> {
    /// The value, to be kept for longer.
    pub fn to_shared(&self) -> Shared<V> {
        match &self.0 {
            Hold::Recent(handle) => Shared::clone(&handle.value.value),
            Hold::Shared(value) => Shared::clone(value),
        }
    }
}

impl<K, V> Deref for InUse<K, V> {
    type Target = V;

    fn deref(&self) -> &V {
        match &self.0 {
            Hold::Recent(handle) => &handle.value.value,
            Hold::Shared(value) => value,
        }
    }
}

impl<K, V> From<Shared<V>> for InUse<K, V> {
    fn from(value: Shared<V>) -> InUse<K, V> {
        InUse(Hold::Shared(value))
    }
}

impl<K: Eq, V> Cache<K, V> {
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.ledger().len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entries, last used first.
    pub fn entries(&self) -> Vec<EntryView<K, V>> {
        let ledger = self.ledger();
        // While the shards count nothing, no hit is between its handle and its entry.
        let uses = self.recent.uses();
        let view = |entry: &Arc<Entry<K, V>>| EntryView {
            entry: entry.clone(),
            stamp: entry.stamp.load(Relaxed),
            hits: entry.hits.load(Relaxed) + uses.of(entry),
            is_pinned: entry.is_pinned(),
        };
        let mut views: Vec<_> = ledger.iter().map(view).collect();
        drop(uses);
        drop(ledger);
        views.sort_by_key(|view| std::cmp::Reverse(view.stamp));
        views
    }

    /// The numbers.
    pub fn stats(&self) -> CacheStats {
        let (occupancy, pinned, total) = {
            let ledger = self.ledger();
            let pinned = ledger.iter().filter(|entry| entry.is_pinned()).count();
            (ledger.len(), pinned, ledger.iter().map(|entry| entry.weight()).collect::<Total>())
        };
        let capacity = self.capacity();
        let counters = &self.counters;
        CacheStats {
            hits: counters.hits.load(Relaxed) + self.recent.uses().total(),
            misses: counters.misses.load(Relaxed),
            waits: counters.waits.load(Relaxed),
            inserts: counters.inserts.load(Relaxed),
            evictions: counters.evictions.load(Relaxed),
            rejected: counters.rejected.load(Relaxed),
            clears: counters.clears.load(Relaxed),
            occupancy,
            pinned,
            weight: total.into(),
            capacity: capacity.entries,
            budget: capacity.budget,
        }
    }
}
