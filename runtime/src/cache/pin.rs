//! Pins: handles that keep an entry in its cache.
//!
//! Guarantees that an entry is not evicted while there is a pin on it, and is again like any other when the last one is
//! dropped. Removing an entry by its key, or clearing the cache, takes it out all the same; its pins keep its value.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc as Shared;
use std::sync::atomic::Ordering::Relaxed;

use super::entry::Entry;
use super::{Cache, Hash32};
use crate::sync::Arc;

/// Keeps an entry from eviction for as long as it lives, and its value whatever happens to the entry.
pub struct Pin<K, V> {
    entry: Arc<Entry<K, V>>,
}

impl<K, V> Pin<K, V> {
    /// The key.
    pub fn key(&self) -> &K {
        &self.entry.key
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> &Shared<V> {
        &self.entry.value
    }

    /// Whether the entry is still in its cache: not removed, not cleared away, and the cache not dropped.
    pub fn is_in_cache(&self) -> bool {
        self.entry.is_in()
    }
}

impl<K, V> Drop for Pin<K, V> {
    fn drop(&mut self) {
        self.entry.n_pins.fetch_sub(1, Relaxed);
    }
}

impl<K, V> fmt::Debug for Pin<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pin").field("n_pins", &self.entry.n_pins.load(Relaxed)).finish_non_exhaustive()
    }
}

impl<K: Eq, V> Cache<K, V> {
    /// A pin on an entry, if there is one. Each pin holds for itself; an entry that is beyond the capacity when its last
    /// pin goes is evicted by the next change.
    pub fn hold<Q>(&self, hash: &Hash32, key: &Q) -> Option<Pin<K, V>>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        // In turn, so that no eviction that is under way takes an entry after it was pinned.
        self.flights.exclusive(|| {
            let entry = self.find(hash, key)?;
            entry.n_pins.fetch_add(1, Relaxed);
            Some(Pin { entry })
        })
    }
}
