//! The cache: values by full key, least recently used out first, one producer per key.
//!
//! Guarantees that a value is returned for an equal key only (a hash finds candidates, equality decides); that every
//! call of [`Cache::get`] and [`Cache::get_or_try_insert_with`] is counted as one hit or one miss; that a value is made
//! once for all threads that ask for it together, as long as its producer gets on; and that the capacities are exceeded by
//! pinned entries only, when they are lowered beneath these or these grow.
//!
//! The idea: a hit on what its thread used lately is found, and counted, in a shard of that thread (`recent.rs`), and
//! stamps the entry only if another one was used since; so threads that call one function write nothing that another
//! reads. Any other hit reads one shard of a concurrent map. No lock that a hit takes is ever held while a value is
//! made or used, except for that of its shard while its key is compared. All that changes the map (`cache/ledger.rs`)
//! or what may leave it (`cache/pin.rs`) happens in turn, under the lock of `flight.rs`, against a ledger of entries;
//! finding the least recently used is a pass over the ledger, which costs nothing beside making a value.

mod entry;
mod ledger;
mod pin;
mod view;

use std::borrow::Borrow;
use std::fmt;
use std::hash::BuildHasherDefault;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc as Shared, Mutex, MutexGuard};

use dashmap::DashMap;
use smallvec::SmallVec;

use crate::error::Deadlock;
use crate::flight::{Begun, Completion, FlightGuard, Flights, Waited};
use crate::hash::{FirstBytes, Hash32};
use crate::lock::lock;
use crate::patience::patience;
use crate::pulse::at_work;
use crate::recent::Recent;
use crate::shard::{n_shards, thread_number};
use crate::stats::{Budget, Capacity, Counters, Event, EventKind, Weight, count};
use crate::sync::Arc;

use self::entry::Entry;
pub use self::ledger::Insertion;
pub use self::pin::Pin;
use self::view::Hold;
pub use self::view::{EntryView, InUse};

/// How a call came by its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was there.
    Hit,
    /// Another thread made it, and this one waited; counts as a hit.
    Shared,
    /// This call made it.
    Miss,
}

type Observer<K> = Box<dyn Fn(&Event<'_, K>) + Send + Sync>;

/// Entries of one hash: nearly always one.
type Bucket<K, V> = SmallVec<[Arc<Entry<K, V>>; 1]>;

/// A concurrent map from keys to shared values with two capacities.
pub struct Cache<K, V> {
    index: DashMap<Hash32, Bucket<K, V>, BuildHasherDefault<FirstBytes>>,
    flights: Flights<K, Arc<Entry<K, V>>>,
    /// All entries.
    ///
    /// Invariant: outside of turns (see `Flights::exclusive`), it holds the same entries as `index`.
    ledger: Mutex<Vec<Arc<Entry<K, V>>>>,
    /// The entries that calls want again, so that they need no hash: those last found by it.
    ///
    /// Invariant: outside of turns, they are in `index`. They are noted only under the lock of their shard, and an
    /// entry taken out of the index is forgotten afterwards.
    recent: Recent<Entry<K, V>>,
    /// Counts uses, for stamps.
    clock: AtomicU64,
    max_entries: AtomicUsize,
    /// `usize::MAX` for none.
    max_host: AtomicUsize,
    max_device: AtomicUsize,
    counters: Counters,
    observer: Option<Observer<K>>,
}

impl<K: Eq, V> Default for Cache<K, V> {
    fn default() -> Cache<K, V> {
        Cache::new(Capacity::default())
    }
}

impl<K: Eq, V> Cache<K, V> {
    /// An empty cache.
    pub fn new(capacity: Capacity) -> Cache<K, V> {
        Cache {
            index: DashMap::default(),
            flights: Flights::new(),
            ledger: Mutex::new(Vec::new()),
            recent: Recent::new(n_shards()),
            clock: AtomicU64::new(0),
            max_entries: AtomicUsize::new(capacity.entries),
            max_host: AtomicUsize::new(capacity.budget.host.unwrap_or(usize::MAX)),
            max_device: AtomicUsize::new(capacity.budget.device.unwrap_or(usize::MAX)),
            counters: Counters::default(),
            observer: None,
        }
    }

    /// Calls `observer` after each event, on the thread where it happened, with no lock held. A hit is no event: its
    /// caller knows.
    #[must_use]
    pub fn with_observer(mut self, observer: impl Fn(&Event<'_, K>) + Send + Sync + 'static) -> Cache<K, V> {
        self.observer = Some(Box::new(observer));
        self
    }

    fn emit(&self, kind: EventKind, hash: &Hash32, key: Option<&K>) {
        if let Some(observer) = &self.observer {
            observer(&Event { kind, hash: *hash, key });
        }
    }

    /// Tells of a key that is in no entry.
    fn emit_for<Q>(&self, kind: EventKind, hash: &Hash32, key: &Q)
    where
        Q: ToOwned<Owned = K> + ?Sized,
    {
        if self.observer.is_some() {
            self.emit(kind, hash, Some(&key.to_owned()));
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Vec<Arc<Entry<K, V>>>> {
        lock(&self.ledger)
    }

    fn find<Q>(&self, hash: &Hash32, key: &Q) -> Option<Arc<Entry<K, V>>>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let bucket = self.index.get(hash)?;
        bucket.iter().find(|entry| entry.key.borrow() == key).cloned()
    }

    /// The value of `key`, if it is there; counts as a hit then, and else as nothing.
    ///
    /// The hit path: looks an entry up and stamps it; no closure, no lock for writing.
    pub fn get_present<Q>(&self, hash: &Hash32, key: &Q) -> Option<Shared<V>>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let (value, displaced) = {
            let bucket = self.index.get(hash)?;
            let entry = bucket.iter().find(|entry| entry.key.borrow() == key)?;
            // While the shard is locked, so that nobody has taken the entry out.
            let displaced = self.recent.insert(thread_number(), entry);
            (self.use_entry(entry), displaced)
        };
        // Perhaps the last owner of an entry that went out, so with no lock held.
        drop(displaced);
        Some(value)
    }

    /// The value of `key` if its entry is among those that this thread used lately; counts as a hit then, and else as
    /// nothing.
    ///
    /// It needs no hash and writes nothing that other threads read. If it finds nothing, [`Cache::get_present`] is to be
    /// asked next.
    #[inline]
    pub fn get_recent<Q>(&self, key: &Q) -> Option<InUse<K, V>>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let handle = self.recent.find(thread_number(), |entry| entry.key.borrow() == key)?;
        self.stamp(&handle.value);
        Some(InUse(Hold::Recent(handle)))
    }

    /// Notes a hit that no shard has counted.
    fn use_entry(&self, entry: &Entry<K, V>) -> Shared<V> {
        self.stamp(entry);
        count(&entry.hits);
        count(&self.counters.hits);
        entry.value.clone()
    }

    /// Makes `entry` the one used last. If it is that already, nothing is written.
    #[inline]
    fn stamp(&self, entry: &Entry<K, V>) {
        if entry.stamp.load(Relaxed) != self.clock.load(Relaxed) {
            entry.stamp.store(self.tick(), Relaxed);
        }
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Relaxed) + 1
    }

    /// The value of `key`, if it is there; counts as a hit or a miss.
    pub fn get<Q>(&self, hash: &Hash32, key: &Q) -> Option<Shared<V>>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let value = self.get_present(hash, key);
        if value.is_none() {
            count(&self.counters.misses);
            self.emit(EventKind::Miss, hash, None);
        }
        value
    }

    /// The value of `key`, if it is there; counts as nothing and is no use.
    pub fn peek<Q>(&self, hash: &Hash32, key: &Q) -> Option<Shared<V>>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.find(hash, key).map(|entry| entry.value.clone())
    }

    /// The value of `key`, made by `make` (with its weight) if it is not there; counts as a hit or a miss.
    ///
    /// Of the threads that ask for one key together, one makes the value and the others wait for it. If `make` fails
    /// or panics, its caller gets that, and one of the others tries with its own `make`. A value made while the cache
    /// is cleared is returned, but not kept; calls that begin after the clear do not share it.
    ///
    /// If all that is seen of the producer is that it runs [code of a user](crate::in_user_code), and it makes no
    /// [progress](crate::note_progress) for [`patience`], one of the waiters makes the value with its own `make`, which
    /// counts as a miss. The value that comes first is everybody's. After one such producer more the patience of the others
    /// is twice as long.
    ///
    /// # Errors
    ///
    /// Those of `make`; [`Deadlock::Reentrant`] if `make` asks for the key that it makes, on its thread or
    /// through values that other threads make; [`Deadlock::Stuck`] if several producers stand still, each of which began to
    /// wait when the one before it stood still already.
    pub fn get_or_try_insert_with<Q, W, E>(
        &self,
        hash: &Hash32,
        key: &Q,
        make: impl FnOnce() -> Result<(V, W), E>,
    ) -> Result<(Shared<V>, Outcome), E>
    where
        K: Borrow<Q>,
        Q: Eq + ToOwned<Owned = K> + ?Sized,
        W: Into<Weight>,
        E: From<Deadlock>,
    {
        match self.get_present(hash, key) {
            Some(value) => Ok((value, Outcome::Hit)),
            None => self.compute_or_wait(hash, key, make),
        }
    }

    #[cold]
    fn compute_or_wait<Q, W, E>(
        &self,
        hash: &Hash32,
        key: &Q,
        make: impl FnOnce() -> Result<(V, W), E>,
    ) -> Result<(Shared<V>, Outcome), E>
    where
        K: Borrow<Q>,
        Q: Eq + ToOwned<Owned = K> + ?Sized,
        W: Into<Weight>,
        E: From<Deadlock>,
    {
        let refuse = |deadlock: Deadlock| {
            count(&self.counters.misses);
            self.emit_for(EventKind::Miss, hash, key);
            Err(deadlock.into())
        };
        let mut has_waited = false;
        loop {
            let wait = match self.flights.begin(hash, key, || self.find(hash, key)) {
                Begun::Stored(entry) => {
                    let value = self.use_entry(&entry);
                    let outcome = if has_waited { Outcome::Shared } else { Outcome::Hit };
                    return Ok((value, outcome));
                }
                Begun::Produce(guard) => return self.produce(guard, key, make),
                Begun::Wait(wait) => wait,
                Begun::Reentrant => return refuse(Deadlock::Reentrant),
            };
            if !has_waited {
                has_waited = true;
                count(&self.counters.waits);
                self.emit_for(EventKind::Wait, hash, key);
            }
            match wait.end(patience) {
                Waited::Completed(entry) => return Ok((self.use_entry(&entry), Outcome::Shared)),
                Waited::Failed => {}
                Waited::Produce(guard) => {
                    self.emit(EventKind::TakeOver, hash, Some(guard.key()));
                    return self.produce(guard, key, make);
                }
                Waited::Stuck => return refuse(Deadlock::Stuck),
            }
        }
    }

    /// Makes the value of the key of a flight.
    fn produce<Q, W, E>(
        &self,
        guard: FlightGuard<'_, K, Arc<Entry<K, V>>>,
        key: &Q,
        make: impl FnOnce() -> Result<(V, W), E>,
    ) -> Result<(Shared<V>, Outcome), E>
    where
        Q: ToOwned<Owned = K> + ?Sized,
        W: Into<Weight>,
    {
        let hash = *guard.hash();
        count(&self.counters.misses);
        self.emit(EventKind::Miss, &hash, Some(guard.key()));
        let (value, weight) = at_work(make)?;
        let value = Shared::new(value);
        let entry = Entry::new(hash, key.to_owned(), value.clone(), weight.into(), self.tick());
        match guard.complete(entry.clone(), || self.admit(&entry)) {
            Completion::First(Some(Some(gone))) => {
                count(&self.counters.inserts);
                self.emit(EventKind::Insert, &hash, Some(&entry.key));
                self.emit_evictions(&gone);
            }
            Completion::First(Some(None) | None) => count(&self.counters.rejected),
            Completion::Late(first) => {
                count(&self.counters.rejected);
                return Ok((first.value.clone(), Outcome::Miss));
            }
        }
        Ok((value, Outcome::Miss))
    }

    /// The capacity.
    pub fn capacity(&self) -> Capacity {
        let bound = |most: &AtomicUsize| Some(most.load(Relaxed)).filter(|&most| most != usize::MAX);
        let budget = Budget { host: bound(&self.max_host), device: bound(&self.max_device) };
        Capacity { entries: self.max_entries.load(Relaxed), budget }
    }
}

impl<K, V> fmt::Debug for Cache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("counters", &self.counters).finish_non_exhaustive()
    }
}
