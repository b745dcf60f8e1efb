//! The cache: values by full key, least recently used out first, one maker per key.
//!
//! Guarantees that a value is returned for an equal key only (a hash finds candidates, equality decides); that every
//! call of [`Cache::get`] and [`Cache::get_or_try_insert_with`] is counted as one hit or one miss; that a value is made
//! once for all threads that ask for it together; and that the capacities are never exceeded.
//!
//! The idea: a hit on what its thread used lately is found, and counted, in a stripe of that thread (`recent.rs`), and
//! stamps the entry only if another one was used since; so threads that call one function write nothing that another
//! reads. Any other hit reads one shard of a concurrent map. No lock that a hit takes is ever held while a value is
//! made or used, but for that of its shard while its key is compared. All that changes the map (insert, evict, clear, pin) happens in turn,
//! under the board of `flight.rs`, against a ledger of entries; finding the least recently used is a pass over the
//! ledger, which costs nothing beside the making of a value.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Deref;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc as Shared, Mutex, MutexGuard, PoisonError};

use dashmap::DashMap;
use smallvec::SmallVec;

use crate::error::Error;
use crate::flight::{Boarding, Flights, Ticket};
use crate::recent::{Counted, Handle, Recent};
use crate::stats::{Budget, CacheStats, Capacity, Counters, Event, EventKind, Total, Weight, count};
use crate::stripe::{n_stripes, thread_number};
use crate::sync::Arc;

/// A blake3 hash.
pub type Hash32 = [u8; 32];

/// The hash of a key written as words.
pub fn hash_words(words: &[u64]) -> Hash32 {
    let mut hasher = blake3::Hasher::new();
    let mut block = [0; 1024];
    for chunk in words.chunks(block.len() / 8) {
        for (bytes, word) in block.chunks_exact_mut(8).zip(chunk) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        hasher.update(&block[..8 * chunk.len()]);
    }
    *hasher.finalize().as_bytes()
}

/// How a call came by its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was there.
    Hit,
    /// Another thread was making it, and this one waited; counts as a hit.
    Shared,
    /// This call made it.
    Miss,
}

/// The refusal to make a value that, directly or through other threads, waits for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reentrant;

impl fmt::Display for Reentrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Error::Reentrant, f)
    }
}

impl std::error::Error for Reentrant {}

impl From<Reentrant> for Error {
    fn from(_: Reentrant) -> Error {
        Error::Reentrant
    }
}

type Observer<K> = Box<dyn Fn(&Event<'_, K>) + Send + Sync>;

/// One value in the cache.
struct Entry<K, V> {
    hash: Hash32,
    key: K,
    value: Shared<V>,
    /// Changed under the lock of the ledger.
    weight: Mutex<Weight>,
    /// The clock at the last use, or at an earlier one if no other entry was used since.
    stamp: AtomicU64,
    /// The hits that no handle of `recent.rs` counts any more.
    hits: AtomicU64,
    is_pinned: AtomicBool,
    /// The pins that are held.
    n_pins: AtomicUsize,
}

impl<K, V> Entry<K, V> {
    fn new(hash: Hash32, key: K, value: Shared<V>, weight: Weight, stamp: u64) -> Arc<Entry<K, V>> {
        let (stamp, hits) = (AtomicU64::new(stamp), AtomicU64::new(0));
        let (is_pinned, n_pins) = (AtomicBool::new(false), AtomicUsize::new(0));
        let weight = Mutex::new(weight);
        Arc::new(Entry { hash, key, value, weight, stamp, hits, is_pinned, n_pins })
    }

    fn stays(&self) -> bool {
        self.is_pinned.load(Relaxed) || self.n_pins.load(Relaxed) > 0
    }
}

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

/// What became of a value that was put into a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Insertion {
    /// It went in.
    Inserted,
    /// There is a value of this key, or a thread is making one.
    Present,
    /// The capacity does not allow it.
    NoRoom,
}

impl<K, V> Entry<K, V> {
    fn weight(&self) -> Weight {
        *self.weight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, V> Counted for Entry<K, V> {
    fn add_uses(&self, n: u64) {
        self.hits.fetch_add(n, Relaxed);
    }
}

/// An entry at one moment, for inspection.
pub struct EntryView<K, V> {
    entry: Arc<Entry<K, V>>,
    /// The clock of the cache at the last use: of two entries, the larger was used later.
    pub stamp: u64,
    /// The hits on this entry.
    pub hits: u64,
    /// Whether it is never evicted.
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
pub struct InUse<K, V>(Hold<K, V>);

/// What keeps a value alive.
enum Hold<K, V> {
    /// A handle of this thread's stripe: its count of owners is not contended.
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

/// Takes eight bytes of a hash for the whole: they are as good as any.
#[derive(Default)]
struct FirstBytes(u64);

impl Hasher for FirstBytes {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk::<8>() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    /// The length that an array writes before its bytes carries nothing.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Entries of one hash: nearly always one.
type Bucket<K, V> = SmallVec<[Arc<Entry<K, V>>; 1]>;

/// Entries that went out; told of and dropped after all locks are released.
type Gone<K, V> = Vec<Arc<Entry<K, V>>>;

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
    /// Invariant: outside of turns, they are in `index`. They are noted only under the lock of their shard, and who
    /// takes an entry out of the index has it forgotten afterwards.
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
            recent: Recent::new(n_stripes()),
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

    fn tell(&self, kind: EventKind, hash: &Hash32, key: Option<&K>) {
        if let Some(observer) = &self.observer {
            observer(&Event { kind, hash: *hash, key });
        }
    }

    /// Tells of a key that is in no entry.
    fn tell_of<Q>(&self, kind: EventKind, hash: &Hash32, key: &Q)
    where
        Q: ToOwned<Owned = K> + ?Sized,
    {
        if self.observer.is_some() {
            self.tell(kind, hash, Some(&key.to_owned()));
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Vec<Arc<Entry<K, V>>>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
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
            let displaced = self.recent.note(thread_number(), entry);
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

    /// Notes a hit that no stripe has counted.
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
            self.tell(EventKind::Miss, hash, None);
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
    /// # Errors
    ///
    /// What `make` returns, or [`Reentrant`] if `make` asks for the key that it is making, be it through values that
    /// other threads make.
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
        E: From<Reentrant>,
    {
        match self.get_present(hash, key) {
            Some(value) => Ok((value, Outcome::Hit)),
            None => self.make_or_wait(hash, key, make),
        }
    }

    #[cold]
    fn make_or_wait<Q, W, E>(
        &self,
        hash: &Hash32,
        key: &Q,
        make: impl FnOnce() -> Result<(V, W), E>,
    ) -> Result<(Shared<V>, Outcome), E>
    where
        K: Borrow<Q>,
        Q: Eq + ToOwned<Owned = K> + ?Sized,
        W: Into<Weight>,
        E: From<Reentrant>,
    {
        let mut has_waited = false;
        loop {
            let wait = match self.flights.board(hash, key, || self.find(hash, key)) {
                Boarding::Stored(entry) => {
                    let value = self.use_entry(&entry);
                    let outcome = if has_waited { Outcome::Shared } else { Outcome::Hit };
                    return Ok((value, outcome));
                }
                Boarding::Make(ticket) => return self.make(ticket, key, make),
                Boarding::Wait(wait) => wait,
                Boarding::Reentrant => {
                    count(&self.counters.misses);
                    self.tell_of(EventKind::Miss, hash, key);
                    return Err(Reentrant.into());
                }
            };
            if !has_waited {
                has_waited = true;
                count(&self.counters.waits);
                self.tell_of(EventKind::Wait, hash, key);
            }
            if let Some(entry) = wait.value() {
                let value = self.use_entry(&entry);
                return Ok((value, Outcome::Shared));
            }
        }
    }

    /// Makes the value of the ticket's key.
    fn make<Q, W, E>(
        &self,
        ticket: Ticket<'_, K, Arc<Entry<K, V>>>,
        key: &Q,
        make: impl FnOnce() -> Result<(V, W), E>,
    ) -> Result<(Shared<V>, Outcome), E>
    where
        Q: ToOwned<Owned = K> + ?Sized,
        W: Into<Weight>,
    {
        let hash = *ticket.hash();
        count(&self.counters.misses);
        self.tell(EventKind::Miss, &hash, Some(ticket.key()));
        let (value, weight) = make()?;
        let value = Shared::new(value);
        let entry = Entry::new(hash, key.to_owned(), value.clone(), weight.into(), self.tick());
        match ticket.land(entry.clone(), || self.admit(&entry)).flatten() {
            Some(gone) => {
                count(&self.counters.inserts);
                self.tell(EventKind::Insert, &hash, Some(&entry.key));
                self.tell_gone(&gone);
            }
            None => count(&self.counters.rejected),
        }
        Ok((value, Outcome::Miss))
    }

    /// In turn: puts `entry` in and returns what made way, or `None` if there can be no room for it.
    fn admit(&self, entry: &Arc<Entry<K, V>>) -> Option<Gone<K, V>> {
        let mut ledger = self.ledger();
        debug_assert!(self.find(&entry.hash, &entry.key).is_none(), "a key in the store has no flight");
        let capacity = self.capacity();
        let max_entries = capacity.entries.checked_sub(1)?;
        let pinned = ledger.iter().filter(|other| other.stays());
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
        let ticket = match self.flights.board(hash, key, || self.find(hash, key)) {
            Boarding::Make(ticket) => ticket,
            Boarding::Stored(_) | Boarding::Wait(_) | Boarding::Reentrant => return Insertion::Present,
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
        match ticket.land(entry.clone(), admit) {
            Some(false) => Insertion::NoRoom,
            Some(true) => {
                count(&self.counters.inserts);
                self.tell(EventKind::Insert, hash, Some(&entry.key));
                Insertion::Inserted
            }
            // Cleared in this moment: as if it had been in before.
            None => Insertion::Inserted,
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
            let is_free = |entry: &Entry<K, V>| !entry.stays() && helps(entry);
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
        if let Some(mut bucket) = self.index.get_mut(&entry.hash) {
            bucket.retain(|other| !Arc::ptr_eq(other, entry));
        }
        self.index.remove_if(&entry.hash, |_, bucket| bucket.is_empty());
        self.recent.forget(|recent| Arc::ptr_eq(recent, entry));
    }

    fn tell_gone(&self, gone: &[Arc<Entry<K, V>>]) {
        for entry in gone {
            count(&self.counters.evictions);
            self.tell(EventKind::Evict, &entry.hash, Some(&entry.key));
        }
    }

    /// Takes one entry out, pinned or not; returns whether there was one. Who holds the value keeps it.
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
        self.tell_gone(gone.as_slice());
        gone.is_some()
    }

    /// Takes all entries out, pinned ones as well, and lets no value in that is being made now.
    pub fn clear(&self) {
        let gone = self.flights.clear(|| {
            let gone = std::mem::take(&mut *self.ledger());
            self.index.clear();
            self.recent.forget(|_| true);
            gone
        });
        count(&self.counters.clears);
        self.tell(EventKind::Clear, &[0; 32], None);
        drop(gone);
    }

    /// Keeps an entry from eviction; returns whether there is one.
    pub fn pin<Q>(&self, hash: &Hash32, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.set_pinned(hash, key, true)
    }

    /// Allows the eviction of an entry again; returns whether there is one.
    pub fn unpin<Q>(&self, hash: &Hash32, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.set_pinned(hash, key, false)
    }

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

    fn set_pinned<Q>(&self, hash: &Hash32, key: &Q, is_pinned: bool) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        // In turn, so that no eviction that is under way takes an entry after it was pinned.
        self.flights.exclusive(|| match self.find(hash, key) {
            Some(entry) => {
                entry.is_pinned.store(is_pinned, Relaxed);
                true
            }
            None => false,
        })
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
            *entry.weight.lock().unwrap_or_else(PoisonError::into_inner) = weight;
            let capacity = self.capacity();
            Some(self.evict(&mut ledger, capacity.entries, capacity.budget, Weight::default()))
        });
        self.tell_gone(gone.as_deref().unwrap_or_default());
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
        self.tell_gone(&gone);
    }

    /// The capacity.
    pub fn capacity(&self) -> Capacity {
        let bound = |most: &AtomicUsize| Some(most.load(Relaxed)).filter(|&most| most != usize::MAX);
        let budget = Budget { host: bound(&self.max_host), device: bound(&self.max_device) };
        Capacity { entries: self.max_entries.load(Relaxed), budget }
    }

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
        // While the stripes count nothing, no hit is between its handle and its entry.
        let uses = self.recent.uses();
        let view = |entry: &Arc<Entry<K, V>>| EntryView {
            entry: entry.clone(),
            stamp: entry.stamp.load(Relaxed),
            hits: entry.hits.load(Relaxed) + uses.of(entry),
            is_pinned: entry.stays(),
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
            let pinned = ledger.iter().filter(|entry| entry.stays()).count();
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

impl<K, V> fmt::Debug for Cache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("counters", &self.counters).finish_non_exhaustive()
    }
}
