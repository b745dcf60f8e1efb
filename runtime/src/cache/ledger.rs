//! The changes of a cache's entries: insertion, eviction, removal, clearing, and other weights and capacities.
//!
//! Guarantees that all of it happens in turn (see `Flights::exclusive`), that after a turn the ledger and the index hold
//! the same entries, and that these keep the capacities unless pins forbid it. Observers are told, and values dropped,
//! after the turn, with no lock held.

use std::borrow::Borrow;
use std::sync::Arc as Shared;
use std::sync::atomic::Ordering::Relaxed;

use super::entry::Entry;
use super::{Cache, Hash32};
use crate::flight::{Begun, Completion};
use crate::lock::lock;
use crate::stats::{Budget, Capacity, EventKind, Total, Weight, count};
use crate::sync::Arc;

/// Entries that went out; told of and dropped after all locks are released.
pub(super) type Gone<K, V> = Vec<Arc<Entry<K, V>>>;

/// The outcome of inserting a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Insertion {
    /// It went in.
    Inserted,
    /// There is a value of this key, or a thread is making one.
    Present,
    /// The capacity does not allow it.
    NoRoom,
}

impl<K, V> Drop for Cache<K, V> {
    fn drop(&mut self) {
        // Pins may outlive it.
        lock(&self.ledger).iter().for_each(|entry| entry.leave());
    }
}

impl<K: Eq, V> Cache<K, V> {
    /// In turn: puts `entry` in and returns what made way, or `None` if there can be no room for it.
    pub(super) fn admit(&self, entry: &Arc<Entry<K, V>>) -> Option<Gone<K, V>> {
        let mut ledger = self.ledger();
        debug_assert!(self.find(&entry.hash, &entry.key).is_none(), "a key in the store has no flight");
        let capacity = self.capacity();
        let max_entries = capacity.entries.checked_sub(1)?;
        let pinned = ledger.iter().filter(|other| other.is_pinned());
        let mut least: Total = pinned.clone().map(|other| other.weight()).collect();
        least.add(entry.weight());
        if pinned.count() > max_entries || !least.is_within(capacity.budget) {
            return None;
        }
        let gone = self.evict(&mut ledger, max_entries, capacity.budget, entry.weight());
        ledger.push(entry.clone());
        self.index.entry(entry.hash).or_default().push(entry.clone());
        Some(gone)
    }

    /// Puts a value in that nobody asked for yet: counts as no call, evicts nothing, and replaces nothing.
    pub fn insert_if_room<Q>(&self, hash: &Hash32, key: &Q, value: V, weight: impl Into<Weight>) -> Insertion
    where
        K: Borrow<Q>,
        Q: Eq + ToOwned<Owned = K> + ?Sized,
    {
        let guard = match self.flights.begin(hash, key, || self.find(hash, key)) {
            Begun::Produce(guard) => guard,
            Begun::Stored(_) | Begun::Wait(_) | Begun::Reentrant => return Insertion::Present,
        };
        let entry = Entry::new(*hash, key.to_owned(), Shared::new(value), weight.into(), self.tick());
        let admit = || {
            let mut ledger = self.ledger();
            let capacity = self.capacity();
            let total: Total = ledger.iter().map(|other| other.weight()).chain([entry.weight()]).collect();
            let fits = ledger.len() < capacity.entries && total.is_within(capacity.budget);
            if fits {
                ledger.push(entry.clone());
                self.index.entry(entry.hash).or_default().push(entry.clone());
            }
            fits
        };
        match guard.complete(entry.clone(), admit) {
            Completion::First(Some(false)) => Insertion::NoRoom,
            Completion::First(Some(true)) => {
                count(&self.counters.inserts);
                self.emit(EventKind::Insert, hash, Some(&entry.key));
                Insertion::Inserted
            }
            // Cleared in this moment: as if it had been in before.
            Completion::First(None) => Insertion::Inserted,
            Completion::Late(_) => Insertion::Present,
        }
    }

    /// In turn: takes the least recently used entries out until the rest, with `newcomer` besides, keeps the bounds, or
    /// nothing that is left and not pinned would help.
    fn evict(
        &self,
        ledger: &mut Vec<Arc<Entry<K, V>>>,
        max_entries: usize,
        budget: Budget,
        newcomer: Weight,
    ) -> Gone<K, V> {
        let mut gone = Vec::new();
        let mut total: Total = ledger.iter().map(|entry| entry.weight()).chain([newcomer]).collect();
        while ledger.len() > max_entries || !total.is_within(budget) {
            let helps = |entry: &Entry<K, V>| ledger.len() > max_entries || total.is_helped_by(entry.weight(), budget);
            let is_free = |entry: &Entry<K, V>| !entry.is_pinned() && helps(entry);
            let free = ledger.iter().enumerate().filter(|(_, entry)| is_free(entry));
            let Some((oldest, _)) = free.min_by_key(|(_, entry)| entry.stamp.load(Relaxed)) else { break };
            let entry = ledger.swap_remove(oldest);
            total.take(entry.weight());
            self.unindex(&entry);
            gone.push(entry);
        }
        gone
    }

    fn unindex(&self, entry: &Arc<Entry<K, V>>) {
        entry.leave();
        if let Some(mut bucket) = self.index.get_mut(&entry.hash) {
            bucket.retain(|other| !Arc::ptr_eq(other, entry));
        }
        self.index.remove_if(&entry.hash, |_, bucket| bucket.is_empty());
        self.recent.forget(|recent| Arc::ptr_eq(recent, entry));
    }

    pub(super) fn emit_evictions(&self, gone: &[Arc<Entry<K, V>>]) {
        // All are counted before the first is told of, so that an observer which panics leaves the numbers right.
        gone.iter().for_each(|_| count(&self.counters.evictions));
        gone.iter().for_each(|entry| self.emit(EventKind::Evict, &entry.hash, Some(&entry.key)));
    }

    /// Takes one entry out, pinned or not; returns whether there was one. Holders of the value keep it.
    pub fn remove<Q>(&self, hash: &Hash32, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let gone = self.flights.exclusive(|| {
            let entry = self.find(hash, key)?;
            self.ledger().retain(|other| !Arc::ptr_eq(other, &entry));
            self.unindex(&entry);
            Some(entry)
        });
        self.emit_evictions(gone.as_slice());
        gone.is_some()
    }

    /// Takes all entries out, pinned ones as well, and lets no value in that is being made now.
    pub fn clear(&self) {
        let gone = self.flights.clear(|| {
            let gone = std::mem::take(&mut *self.ledger());
            gone.iter().for_each(|entry| entry.leave());
            self.index.clear();
            self.recent.forget(|_| true);
            gone
        });
        count(&self.counters.clears);
        self.emit(EventKind::Clear, &[0; 32], None);
        drop(gone);
    }

    /// Changes the weight of an entry whose value has grown or shrunk, and evicts what is beyond the capacity now; returns
    /// whether there is such an entry.
    pub fn reweigh<Q>(&self, hash: &Hash32, key: &Q, weight: impl Into<Weight>) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let weight = weight.into();
        let gone = self.flights.exclusive(|| {
            let mut ledger = self.ledger();
            let entry = self.find(hash, key)?;
            entry.set_weight(weight);
            let capacity = self.capacity();
            Some(self.evict(&mut ledger, capacity.entries, capacity.budget, Weight::default()))
        });
        self.emit_evictions(gone.as_deref().unwrap_or_default());
        gone.is_some()
    }

    /// Changes the capacity, and evicts what is beyond; pinned entries stay.
    pub fn resize(&self, capacity: Capacity) {
        let gone = self.flights.exclusive(|| {
            self.max_entries.store(capacity.entries, Relaxed);
            self.max_host.store(capacity.budget.host.unwrap_or(usize::MAX), Relaxed);
            self.max_device.store(capacity.budget.device.unwrap_or(usize::MAX), Relaxed);
            self.evict(&mut self.ledger(), capacity.entries, capacity.budget, Weight::default())
        });
        self.emit_evictions(&gone);
    }
}
