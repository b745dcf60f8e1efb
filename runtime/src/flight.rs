//! Flights: at most one thread makes the value of a key, and others wait for it.
//!
//! Guarantees, for a store that is changed only in `land`, `clear` and `exclusive`: no two flights of one key and one
//! generation are in the air together; a value made before a clear is not stored after it; nobody waits for a thread
//! that waits for him, be it in another store.
//!
//! The idea: a board, behind one mutex held for moments only, lists the flights and who waits for which. The value is
//! stored and its flight taken off the board in one turn, so whoever reads the store under the same lock finds either
//! the value or the flight. Waiters wait at their flight, not at the board, so keys do not disturb each other.
//! Nothing here knows how values are stored; a model checker runs this file with a store of one cell.

use std::borrow::Borrow;

use crate::sync::{Arc, Condvar, Mutex, ThreadId, current, lock};

/// A value being made.
pub(crate) struct Flight<K, T> {
    hash: [u8; 32],
    key: K,
    maker: ThreadId,
    generation: u64,
    end: Mutex<End<T>>,
    ended: Condvar,
}

/// How a flight ended.
enum End<T> {
    Flying,
    Landed(T),
    /// The maker failed or panicked.
    Lost,
}

/// What is in the air.
struct Board<K, T> {
    flights: Vec<Arc<Flight<K, T>>>,
    /// Counts clears.
    generation: u64,
}

/// A thread that waits for a flight; it waits for one at most.
struct Waiting {
    waiter: ThreadId,
    maker: ThreadId,
    /// The address of the flight, which the waiter keeps alive.
    flight: usize,
}

/// Who waits for whom, over all stores that share it: a circle may lead through several.
struct Waits {
    waiting: Mutex<Vec<Waiting>>,
}

impl Waits {
    /// The waits of the process; a model checker gives each of its runs its own.
    fn shared() -> Arc<Waits> {
        let new = || Arc::new(Waits { waiting: Mutex::new(Vec::new()) });
        #[cfg(not(loom))]
        {
            static SHARED: std::sync::OnceLock<Arc<Waits>> = std::sync::OnceLock::new();
            SHARED.get_or_init(new).clone()
        }
        #[cfg(loom)]
        new()
    }

    /// Notes that `waiter` waits for a flight that `maker` makes, unless `maker` waits, through others perhaps, for
    /// `waiter`. Returns whether it may wait.
    fn begin(&self, waiter: ThreadId, maker: ThreadId, flight: usize) -> bool {
        let mut waiting = lock(&self.waiting);
        let mut last = maker;
        // Ends: each step follows the one wait of a thread, and a circle of waits is never let in.
        while last != waiter {
            match waiting.iter().find(|other| other.waiter == last) {
                Some(next) => last = next.maker,
                None => {
                    waiting.push(Waiting { waiter, maker, flight });
                    return true;
                }
            }
        }
        false
    }

    /// Forgets the waits for a flight: who waited is as good as awake.
    fn end_all(&self, flight: usize) {
        lock(&self.waiting).retain(|other| other.flight != flight);
    }

    /// Forgets one wait.
    fn end(&self, waiter: ThreadId, flight: usize) {
        lock(&self.waiting).retain(|other| other.waiter != waiter || other.flight != flight);
    }
}

/// The flights of one store.
pub(crate) struct Flights<K, T> {
    board: Mutex<Board<K, T>>,
    waits: Arc<Waits>,
}

fn address<K, T>(flight: &Arc<Flight<K, T>>) -> usize {
    let flight: *const Flight<K, T> = &**flight;
    flight.addr()
}

/// What a thread that needs a value is to do.
pub(crate) enum Boarding<'a, K, T> {
    /// Nothing: the value was in the store after all.
    Stored(T),
    /// Make it.
    Make(Ticket<'a, K, T>),
    /// Wait for the thread that makes it.
    Wait(Wait<'a, K, T>),
    /// Give up: the value would have to wait for itself.
    Reentrant,
}

/// The duty to end a flight; dropping it without a value loses the flight.
pub(crate) struct Ticket<'a, K, T> {
    flights: &'a Flights<K, T>,
    flight: Arc<Flight<K, T>>,
}

/// The right to wait for a flight.
pub(crate) struct Wait<'a, K, T> {
    flights: &'a Flights<K, T>,
    flight: Arc<Flight<K, T>>,
}

impl<K, T: Clone> Board<K, T> {
    fn in_air<'a, Q>(&'a self, hash: &'a [u8; 32], key: &'a Q) -> impl Iterator<Item = &'a Arc<Flight<K, T>>>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.flights.iter().filter(move |flight| flight.hash == *hash && flight.key.borrow() == key)
    }
}

impl<K, T> Board<K, T> {
    /// Takes a flight off the board.
    fn remove(&mut self, flight: &Arc<Flight<K, T>>) {
        self.flights.retain(|other| !Arc::ptr_eq(other, flight));
    }
}

impl<K, T: Clone> Flights<K, T> {
    pub(crate) fn new() -> Flights<K, T> {
        Flights { board: Mutex::new(Board { flights: Vec::new(), generation: 0 }), waits: Waits::shared() }
    }

    /// Finds out how this thread comes by the value of `key`; `stored` reads the store.
    pub(crate) fn board<Q>(&self, hash: &[u8; 32], key: &Q, stored: impl FnOnce() -> Option<T>) -> Boarding<'_, K, T>
    where
        K: Borrow<Q>,
        Q: Eq + ToOwned<Owned = K> + ?Sized,
    {
        let me = current().id();
        let mut board = lock(&self.board);
        if let Some(value) = stored() {
            return Boarding::Stored(value);
        }
        // A maker that clears the store and then asks for its own key is re-entrant all the same.
        if board.in_air(hash, key).any(|flight| flight.maker == me) {
            return Boarding::Reentrant;
        }
        // After a clear, nobody takes a value that was begun before.
        let generation = board.generation;
        let found = board.in_air(hash, key).find(|flight| flight.generation == generation).cloned();
        match found {
            Some(flight) if self.waits.begin(me, flight.maker, address(&flight)) => {
                Boarding::Wait(Wait { flights: self, flight })
            }
            Some(_) => Boarding::Reentrant,
            None => {
                let (end, ended) = (Mutex::new(End::Flying), Condvar::new());
                let flight = Arc::new(Flight { hash: *hash, key: key.to_owned(), maker: me, generation, end, ended });
                board.flights.push(flight.clone());
                Boarding::Make(Ticket { flights: self, flight })
            }
        }
    }

    /// Begins a new generation and empties the store by `wipe`: what is in the air will not be stored.
    pub(crate) fn clear<R>(&self, wipe: impl FnOnce() -> R) -> R {
        let mut board = lock(&self.board);
        board.generation += 1;
        wipe()
    }

    /// Changes the store in any other way.
    pub(crate) fn exclusive<R>(&self, change: impl FnOnce() -> R) -> R {
        let _board = lock(&self.board);
        change()
    }
}

impl<K, T> Ticket<'_, K, T> {
    /// The hash of the key.
    pub(crate) fn hash(&self) -> &[u8; 32] {
        &self.flight.hash
    }

    /// The key.
    pub(crate) fn key(&self) -> &K {
        &self.flight.key
    }

    /// Ends the flight with `value`, and stores it by `store` unless the store was cleared since it began.
    pub(crate) fn land<R>(self, value: T, store: impl FnOnce() -> R) -> Option<R> {
        let stored = {
            let mut board = lock(&self.flights.board);
            let stored = (board.generation == self.flight.generation).then(store);
            board.remove(&self.flight);
            self.flights.waits.end_all(address(&self.flight));
            stored
        };
        *lock(&self.flight.end) = End::Landed(value);
        self.flight.ended.notify_all();
        stored
    }
}

impl<K, T> Drop for Ticket<'_, K, T> {
    fn drop(&mut self) {
        // Only this ticket changes the end, so it is the same in the next lines.
        if matches!(*lock(&self.flight.end), End::Flying) {
            // Off the board before anyone learns of the loss, so that who tries itself does not find this flight.
            lock(&self.flights.board).remove(&self.flight);
            self.flights.waits.end_all(address(&self.flight));
            *lock(&self.flight.end) = End::Lost;
            self.flight.ended.notify_all();
        }
    }
}

impl<K, T: Clone> Wait<'_, K, T> {
    /// The value, or `None` if the flight was lost.
    pub(crate) fn value(self) -> Option<T> {
        let mut end = lock(&self.flight.end);
        loop {
            match &*end {
                End::Landed(value) => return Some(value.clone()),
                End::Lost => return None,
                End::Flying => {
                    end = self.flight.ended.wait(end).unwrap_or_else(std::sync::PoisonError::into_inner);
                }
            }
        }
    }
}

impl<K, T> Drop for Wait<'_, K, T> {
    fn drop(&mut self) {
        self.flights.waits.end(current().id(), address(&self.flight));
    }
}
