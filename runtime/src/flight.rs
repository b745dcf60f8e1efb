//! Flights: at most one thread makes the value of a key, and others wait for it.
//!
//! Guarantees, for a store that is changed only in `complete`, `clear` and `exclusive`: no two flights of one key and one
//! generation run together; a value made before a clear is not stored after it; nobody waits for a thread
//! that waits for him, not even in another store; nobody waits for ever while all producers stand still in code of a user.
//!
//! The idea: a list, behind one mutex held for moments only, has the flights that run; a table of the process
//! (`waits.rs`) knows who makes and who waits. The value is stored and its flight taken off the list in one turn, so a
//! reader of the store under the same lock finds either the value or the flight. Waiters wait at their flight, not at
//! the list, so keys do not disturb each other. A producer may be in a user's closure that waits for one of the waiters, which
//! nobody can see. So a waiter that sees no producer get on for long becomes a producer itself. The first value to complete is
//! that of the flight; producers that come later take it, too. If each such producer comes to a standstill before the next
//! waiter comes, the closure needs itself, and a waiter is refused ([ADR
//! 27](../../docs/adr/0027-waiters-take-over.md)). Nothing here knows how values are stored; a model checker runs this
//! file with a store of one cell.

use std::borrow::Borrow;
use std::time::{Duration, Instant};

use crate::sync::{Arc, Condvar, Mutex, MutexGuard, ThreadId, current, lock};
use crate::waits::{FlightId, Standstill, Waits};

/// Producers that come to a standstill, each after the one before, until a waiter is refused.
const MAX_DEPTH: u32 = 4;

/// A value being made.
pub(crate) struct Flight<K, T> {
    hash: [u8; 32],
    key: K,
    generation: u64,
    end: Mutex<End<T>>,
    ended: Condvar,
}

/// How a flight ended.
enum End<T> {
    Running,
    Completed(T),
    /// All producers failed or panicked.
    Failed,
}

/// The flights that run.
struct InFlight<K, T> {
    flights: Vec<Arc<Flight<K, T>>>,
    /// Counts clears.
    generation: u64,
}

/// The flights of one store.
pub(crate) struct Flights<K, T> {
    in_flight: Mutex<InFlight<K, T>>,
    waits: Arc<Waits>,
}

fn id<K, T>(flight: &Arc<Flight<K, T>>) -> FlightId {
    let flight: *const Flight<K, T> = &**flight;
    flight.addr()
}

/// The next action of a thread that needs a value.
pub(crate) enum Begun<'a, K, T> {
    /// Nothing: the value was in the store after all.
    Stored(T),
    /// This thread produces it.
    Produce(FlightGuard<'a, K, T>),
    /// Wait for the threads that make it.
    Wait(Wait<'a, K, T>),
    /// Give up: the value would have to wait for itself.
    Reentrant,
}

/// The duty to end a flight, or to be one of several that may; dropping the last one without a value fails the flight.
pub(crate) struct FlightGuard<'a, K, T> {
    flights: &'a Flights<K, T>,
    flight: Arc<Flight<K, T>>,
    producer: ThreadId,
}

/// How a flight was completed.
pub(crate) enum Completion<T, R> {
    /// It ended the flight; the result of storing it, unless the store was cleared since the flight began.
    First(Option<R>),
    /// Another producer's value had ended the flight: this one.
    Late(T),
}

/// The right to wait for a flight.
pub(crate) struct Wait<'a, K, T> {
    flights: &'a Flights<K, T>,
    flight: Arc<Flight<K, T>>,
    waiter: ThreadId,
    /// The depth of this thread as a producer: one more than that of the producers it found.
    depth: u32,
}

/// How a wait ended.
pub(crate) enum Waited<'a, K, T> {
    /// The value came.
    Completed(T),
    /// All producers failed.
    Failed,
    /// The producers stand still: make it.
    Produce(FlightGuard<'a, K, T>),
    /// Give up: the producers stand still, and each has taken over from one that did.
    Stuck,
}

impl<K, T: Clone> InFlight<K, T> {
    fn of_key<'a, Q>(&'a self, hash: &'a [u8; 32], key: &'a Q) -> impl Iterator<Item = &'a Arc<Flight<K, T>>>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.flights.iter().filter(move |flight| flight.hash == *hash && flight.key.borrow() == key)
    }
}

impl<K, T> InFlight<K, T> {
    fn has(&self, flight: &Arc<Flight<K, T>>) -> bool {
        self.flights.iter().any(|other| Arc::ptr_eq(other, flight))
    }

    /// Takes a flight off the list.
    fn remove(&mut self, flight: &Arc<Flight<K, T>>) {
        self.flights.retain(|other| !Arc::ptr_eq(other, flight));
    }
}

impl<K, T: Clone> Flights<K, T> {
    pub(crate) fn new() -> Flights<K, T> {
        Flights { in_flight: Mutex::new(InFlight { flights: Vec::new(), generation: 0 }), waits: Waits::shared() }
    }

    /// Finds out how this thread comes by the value of `key`; `stored` reads the store.
    pub(crate) fn begin<Q>(&self, hash: &[u8; 32], key: &Q, stored: impl FnOnce() -> Option<T>) -> Begun<'_, K, T>
    where
        K: Borrow<Q>,
        Q: Eq + ToOwned<Owned = K> + ?Sized,
    {
        let me = current().id();
        let mut in_flight = lock(&self.in_flight);
        if let Some(value) = stored() {
            return Begun::Stored(value);
        }
        // A producer that clears the store and then asks for its own key is re-entrant all the same.
        if in_flight.of_key(hash, key).any(|flight| self.waits.is_producer(me, id(flight))) {
            return Begun::Reentrant;
        }
        // After a clear, nobody takes a value that was begun before.
        let generation = in_flight.generation;
        let found = in_flight.of_key(hash, key).find(|flight| flight.generation == generation).cloned();
        let Some(flight) = found else {
            let (end, ended) = (Mutex::new(End::Running), Condvar::new());
            let flight = Arc::new(Flight { hash: *hash, key: key.to_owned(), generation, end, ended });
            self.waits.begin_producing(me, id(&flight));
            in_flight.flights.push(flight.clone());
            return Begun::Produce(FlightGuard { flights: self, flight, producer: me });
        };
        match self.waits.wait(me, id(&flight)) {
            Some(depth) => Begun::Wait(Wait { flights: self, flight, waiter: me, depth }),
            None => Begun::Reentrant,
        }
    }

    /// Begins a new generation and empties the store by `wipe`: values being made will not be stored.
    pub(crate) fn clear<R>(&self, wipe: impl FnOnce() -> R) -> R {
        let mut in_flight = lock(&self.in_flight);
        in_flight.generation += 1;
        wipe()
    }

    /// Changes the store in any other way.
    pub(crate) fn exclusive<R>(&self, change: impl FnOnce() -> R) -> R {
        let _in_flight = lock(&self.in_flight);
        change()
    }
}

impl<K, T: Clone> Flight<K, T> {
    /// The value it completed with, if it has.
    fn completed(&self) -> Option<T> {
        match &*lock(&self.end) {
            End::Completed(value) => Some(value.clone()),
            End::Running | End::Failed => None,
        }
    }
}

impl<K, T> Flight<K, T> {
    fn finish(&self, end: End<T>) {
        *lock(&self.end) = end;
        self.ended.notify_all();
    }
}

impl<K, T: Clone> FlightGuard<'_, K, T> {
    /// The hash of the key.
    pub(crate) fn hash(&self) -> &[u8; 32] {
        &self.flight.hash
    }

    /// The key.
    pub(crate) fn key(&self) -> &K {
        &self.flight.key
    }

    /// Ends the flight with `value`, and stores it by `store` unless the store was cleared since it began. If another
    /// producer has done so, `value` is dropped.
    pub(crate) fn complete<R>(self, value: T, store: impl FnOnce() -> R) -> Completion<T, R> {
        let mut in_flight = lock(&self.flights.in_flight);
        if in_flight.has(&self.flight) {
            let stored = (in_flight.generation == self.flight.generation).then(store);
            in_flight.remove(&self.flight);
            self.flights.waits.end_waits(id(&self.flight));
            // Before the list is let go, so that a producer who does not find the flight there finds its end.
            self.flight.finish(End::Completed(value));
            return Completion::First(stored);
        }
        drop(in_flight);
        let completed = self.flight.completed();
        Completion::Late(completed.expect("a flight that this guard has not ended is off the list as it has completed"))
    }
}

impl<K, T> Drop for FlightGuard<'_, K, T> {
    fn drop(&mut self) {
        let mut in_flight = lock(&self.flights.in_flight);
        let is_last = self.flights.waits.end_producing(self.producer, id(&self.flight));
        if is_last && in_flight.has(&self.flight) {
            // Off the list before anyone learns of the failure, so that a waiter that tries itself does not find this
            // flight.
            in_flight.remove(&self.flight);
            self.flights.waits.end_waits(id(&self.flight));
            self.flight.finish(End::Failed);
        }
    }
}

impl<'a, K, T: Clone> Wait<'a, K, T> {
    /// Waits until the flight ends, or until its producers have stood still for too long: for `patience`, and twice as long
    /// for each producer more than one.
    pub(crate) fn end(self, patience: impl Fn() -> Duration) -> Waited<'a, K, T> {
        let (mut seen, mut since) = (None, Instant::now());
        loop {
            let window =
                patience().saturating_mul(1 << seen.map_or(0, |seen: Standstill| seen.n_producers.clamp(1, 20) - 1));
            if let Some(waited) = self.wait_for(window / 4) {
                return waited;
            }
            let now = self.flights.waits.standstill(id(&self.flight));
            if now != seen || now.is_none() {
                (seen, since) = (now, Instant::now());
            } else if since.elapsed() >= window
                && let Some(seen) = seen
                && let Some(waited) = self.take_over(seen)
            {
                return waited;
            }
        }
    }

    /// Waits until the flight ends, or for some time.
    fn wait_for(&self, time: Duration) -> Option<Waited<'a, K, T>> {
        // Not so short that this is a loop which never sleeps; beyond all time is for ever.
        let until = Instant::now().checked_add(time.max(Duration::from_millis(1)));
        let mut end = lock(&self.flight.end);
        loop {
            match &*end {
                End::Completed(value) => return Some(Waited::Completed(value.clone())),
                End::Failed => return Some(Waited::Failed),
                End::Running => {
                    let left = match until {
                        Some(until) => until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?,
                        None => Duration::MAX,
                    };
                    end = wait(&self.flight.ended, end, left);
                }
            }
        }
    }

    /// The state of the producers, if none of them is known to be at work.
    pub(crate) fn standstill(&self) -> Option<Standstill> {
        self.flights.waits.standstill(id(&self.flight))
    }

    /// Ends the wait for producers that stand still as they were seen to; none if that is over.
    pub(crate) fn take_over(&self, seen: Standstill) -> Option<Waited<'a, K, T>> {
        if self.depth > MAX_DEPTH {
            return (self.standstill() == Some(seen)).then_some(Waited::Stuck);
        }
        // So that the flight does not end meanwhile.
        let in_flight = lock(&self.flights.in_flight);
        let (flights, flight, producer) = (self.flights, self.flight.clone(), self.waiter);
        let is_producer = in_flight.has(&flight) && flights.waits.take_over(producer, id(&flight), self.depth, seen);
        is_producer.then(|| Waited::Produce(FlightGuard { flights, flight, producer }))
    }
}

impl<K, T> Drop for Wait<'_, K, T> {
    fn drop(&mut self) {
        self.flights.waits.end_wait(self.waiter, id(&self.flight));
    }
}

/// Waits for a notification, or for some time; the model checker knows no time.
fn wait<'g, T>(condvar: &Condvar, guard: MutexGuard<'g, T>, time: Duration) -> MutexGuard<'g, T> {
    condvar.wait_timeout(guard, time).unwrap_or_else(std::sync::PoisonError::into_inner).0
}
