//! Model checking of the single-flight core: the interleavings of make, wait, take over, fail and clear; and of the values
//! that threads used last: the interleavings of use, forget and count.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p retape-runtime-tests --test cache_loom --release`.

#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

#[path = "../src/flight.rs"]
#[allow(dead_code, reason = "the cache uses all of it")]
mod flight;
#[path = "../src/pulse.rs"]
#[allow(dead_code, unreachable_pub, reason = "the crates above use all of it")]
mod pulse;
#[path = "../src/recent.rs"]
#[allow(dead_code, reason = "the cache uses all of it")]
mod recent;
#[path = "../src/sync.rs"]
mod sync;
#[path = "../src/waits.rs"]
mod waits;

use std::time::Duration;

use flight::{Begun, Completion, FlightGuard, Flights, Waited};
use loom::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use loom::sync::{Arc, Mutex};
use loom::thread;
use pulse::in_user_code;
use recent::{Counted, Recent};

/// A store of one cell, and the number of values made for it.
struct Cell {
    flights: Flights<u32, usize>,
    stored: Mutex<Option<usize>>,
    n_made: AtomicUsize,
}

impl Cell {
    fn new() -> Arc<Cell> {
        Arc::new(Cell { flights: Flights::new(), stored: Mutex::new(None), n_made: AtomicUsize::new(0) })
    }

    /// Gets the value, or makes it: each time another number.
    fn get(&self, key: u32, fails: bool) -> Option<usize> {
        loop {
            match self.flights.begin(&[0; 32], &key, || *self.stored.lock().unwrap()) {
                Begun::Stored(value) => return Some(value),
                Begun::Produce(_failed) if fails => return None,
                Begun::Produce(guard) => {
                    let value = self.n_made.fetch_add(1, SeqCst) + 1;
                    guard.complete(value, || *self.stored.lock().unwrap() = Some(value));
                    return Some(value);
                }
                Begun::Wait(wait) => {
                    // The model knows no time, so patience does not end.
                    if let Waited::Completed(value) = wait.end(|| Duration::MAX) {
                        return Some(value);
                    }
                }
                Begun::Reentrant => panic!("nobody here waits for himself"),
            }
        }
    }

    fn clear(&self) {
        self.flights.clear(|| *self.stored.lock().unwrap() = None);
    }
}

/// `n_others` threads and this one ask for the same key.
fn share(n_others: usize) {
    let cell = Cell::new();
    let ask = |_| {
        let cell = cell.clone();
        thread::spawn(move || cell.get(1, false))
    };
    let others: Vec<_> = (0..n_others).map(ask).collect();
    assert_eq!(cell.get(1, false), Some(1));
    for other in others {
        assert_eq!(other.join().unwrap(), Some(1));
    }
    assert_eq!(cell.n_made.load(SeqCst), 1);
}

#[test]
fn one_makes_and_the_other_shares() {
    loom::model(|| share(1));
}

#[test]
fn one_makes_and_two_share() {
    // Three threads have too many interleavings for all to be tried: those with few preemptions are.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| share(2));
}

#[test]
fn a_failure_lets_the_other_try() {
    loom::model(|| {
        let cell = Cell::new();
        let failing = {
            let cell = cell.clone();
            thread::spawn(move || cell.get(1, true))
        };
        assert_eq!(cell.get(1, false), Some(1));
        // It failed by itself, or the other was first.
        assert!(matches!(failing.join().unwrap(), None | Some(1)));
        assert_eq!(*cell.stored.lock().unwrap(), Some(1));
    });
}

#[test]
fn nothing_made_before_a_clear_is_seen_after_it() {
    loom::model(|| {
        let cell = Cell::new();
        let other = {
            let cell = cell.clone();
            thread::spawn(move || cell.get(1, false).unwrap())
        };
        let begun_before = cell.n_made.load(SeqCst);
        cell.clear();
        let mine = cell.get(1, false).unwrap();
        let others = other.join().unwrap();
        // Either both share one value made after the clear, or each has its own and the later one is stored.
        let stored = cell.stored.lock().unwrap().unwrap();
        assert_eq!(stored, mine);
        assert!(mine > begun_before, "{mine} was made before the clear");
        assert!(others == mine || cell.n_made.load(SeqCst) == 2);
    });
}

#[test]
fn circles_are_refused_once() {
    loom::model(|| {
        let flights: Arc<Flights<u32, u32>> = Arc::new(Flights::new());
        // Both make one key and ask for the other's; at most one may be refused, and nobody hangs.
        let ask = |flights: &Flights<u32, u32>, own: u32, other: u32| {
            let Begun::Produce(guard) = flights.begin(&[0; 32], &own, || None) else {
                return false;
            };
            let is_refused = match flights.begin(&[0; 32], &other, || None) {
                Begun::Wait(wait) => {
                    wait.end(|| Duration::MAX);
                    false
                }
                Begun::Reentrant => true,
                Begun::Produce(_) | Begun::Stored(_) => false,
            };
            guard.complete(own, || ());
            is_refused
        };
        let other = {
            let flights = flights.clone();
            thread::spawn(move || ask(&flights, 1, 2))
        };
        let mine = ask(&flights, 2, 1);
        assert!(!(mine && other.join().unwrap()));
    });
}

impl Cell {
    /// Makes a value in code of a user, where `work` runs, and completes the flight or fails it. The first value to
    /// complete is everybody's.
    fn make(&self, guard: FlightGuard<'_, u32, usize>, fails: bool, work: impl FnOnce()) -> Option<usize> {
        let value = self.n_made.fetch_add(1, SeqCst) + 1;
        in_user_code(work);
        if fails {
            return None;
        }
        Some(match guard.complete(value, || *self.stored.lock().unwrap() = Some(value)) {
            Completion::First(_) => value,
            Completion::Late(first) => first,
        })
    }

    /// Gets the value with no patience at all: takes over from producers that stand still, as soon as they are seen to.
    fn get_impatiently(&self, fails: bool) -> Option<usize> {
        loop {
            match self.flights.begin(&[0; 32], &1, || *self.stored.lock().unwrap()) {
                Begun::Stored(value) => return Some(value),
                Begun::Produce(guard) => return self.make(guard, fails, || ()),
                Begun::Reentrant => panic!("nobody here waits for himself"),
                Begun::Wait(wait) => {
                    let waited = wait.standstill().and_then(|seen| wait.take_over(seen));
                    match waited {
                        Some(Waited::Produce(guard)) => return self.make(guard, fails, || ()),
                        Some(_) => panic!("producers here see no others at a standstill"),
                        None => match wait.end(|| Duration::MAX) {
                            Waited::Completed(value) => return Some(value),
                            Waited::Failed => {}
                            Waited::Produce(_) | Waited::Stuck => panic!("patience does not end"),
                        },
                    }
                }
            }
        }
    }
}

/// A producer that waits for the thread which waits for it: without the other's impatience, neither would end.
#[test]
fn who_takes_over_ends_the_wait_of_the_maker() {
    loom::model(|| {
        let cell = Cell::new();
        let Begun::Produce(guard) = cell.flights.begin(&[0; 32], &1, || None) else { panic!("nobody else is there") };
        let other = cell.clone();
        let value = cell.make(guard, false, || {
            let inner = thread::spawn(move || {
                // The producer is in its closure before this begins, and nothing wakes it but the end of this thread.
                let Begun::Wait(wait) = other.flights.begin(&[0; 32], &1, || None) else { panic!("it is in the air") };
                let seen = wait.standstill().unwrap();
                let Some(Waited::Produce(guard)) = wait.take_over(seen) else { panic!("nothing moves") };
                other.make(guard, false, || ())
            });
            assert_eq!(inner.join().unwrap(), Some(2));
        });
        assert_eq!((value, *cell.stored.lock().unwrap()), (Some(2), Some(2)));
    });
}

/// Three threads: whoever makes, takes over or shares, all have the value that is stored, and nobody hangs.
fn take_over(fails: bool) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let cell = Cell::new();
        let other = |fails: bool| {
            let cell = cell.clone();
            thread::spawn(move || cell.get_impatiently(fails))
        };
        let others = [other(fails), other(false)];
        let mut values = vec![cell.get_impatiently(false)];
        values.extend(others.map(|other| other.join().unwrap()));
        let stored = *cell.stored.lock().unwrap();
        assert!(stored.is_some());
        let lost = values.iter().filter(|value| value.is_none()).count();
        assert!(lost <= usize::from(fails) && values.iter().all(|value| value.is_none() || *value == stored));
    });
}

#[test]
fn all_get_the_value_that_came_first() {
    take_over(false);
}

#[test]
fn a_maker_that_fails_does_not_lose_the_value_of_another() {
    take_over(true);
}

/// A value that knows the uses that were handed over to it.
#[derive(Default)]
struct Value {
    uses: AtomicUsize,
}

impl Counted for Value {
    fn add_uses(&self, n: u64) {
        self.uses.fetch_add(n as usize, SeqCst);
    }
}

/// One value behind an index, as in the cache: noted only under the index's lock, forgotten after it was taken out.
struct Shelf {
    recent: Recent<Value>,
    index: Mutex<Option<Arc<Value>>>,
}

impl Shelf {
    fn new(value: &Arc<Value>) -> Arc<Shelf> {
        Arc::new(Shelf { recent: Recent::new(2), index: Mutex::new(Some(value.clone())) })
    }

    /// Looks the value up as thread `thread`, and tells whether the shard counted it.
    fn get(&self, thread: usize) -> bool {
        if self.recent.find(thread, |_| true).is_some() {
            return true;
        }
        let displaced = match &*self.index.lock().unwrap() {
            Some(value) => self.recent.insert(thread, value),
            None => None,
        };
        assert!(displaced.is_none(), "there is room for one value");
        false
    }

    /// Takes the value out.
    fn remove(&self) {
        let gone = self.index.lock().unwrap().take();
        self.recent.forget(|value| gone.as_ref().is_some_and(|gone| Arc::ptr_eq(gone, value)));
    }
}

#[test]
fn what_is_forgotten_is_found_and_kept_by_nobody() {
    loom::model(|| {
        let value = Arc::new(Value::default());
        let shelf = Shelf::new(&value);
        let user = {
            let shelf = shelf.clone();
            thread::spawn(move || {
                shelf.get(0);
                shelf.get(0)
            })
        };
        shelf.remove();
        assert!(shelf.recent.find(0, |_| true).is_none(), "found after it was forgotten");
        user.join().unwrap();
        assert!(shelf.recent.find(0, |_| true).is_none(), "noted after it was forgotten");
        assert_eq!(Arc::strong_count(&value), 1, "kept alive");
    });
}

#[test]
fn every_use_is_counted_once() {
    // Threads with shards of their own, and two that share one.
    for threads in [[0, 1], [1, 1]] {
        loom::model(move || {
            let value = Arc::new(Value::default());
            let shelf = Shelf::new(&value);
            threads.iter().for_each(|&thread| {
                shelf.get(thread);
            });
            let users = threads.map(|thread| {
                let shelf = shelf.clone();
                thread::spawn(move || usize::from(shelf.get(thread)))
            });
            shelf.remove();
            let before = shelf.recent.uses().total();
            let counted = users.into_iter().map(|user| user.join().unwrap()).sum::<usize>();
            let warm = usize::from(threads[0] == threads[1]);
            assert!(before <= (counted + warm) as u64);
            assert_eq!(shelf.recent.uses().total(), (counted + warm) as u64);
            assert_eq!(value.uses.load(SeqCst), counted + warm, "handed over when it was forgotten");
        });
    }
}

#[test]
fn no_use_is_between_handle_and_value() {
    loom::model(|| {
        let value = Arc::new(Value::default());
        let shelf = Shelf::new(&value);
        shelf.get(0);
        let user = {
            let shelf = shelf.clone();
            thread::spawn(move || shelf.get(0))
        };
        let remover = {
            let shelf = shelf.clone();
            thread::spawn(move || shelf.remove())
        };
        let uses = shelf.recent.uses();
        assert_eq!(uses.total(), uses.of(&value) + value.uses.load(SeqCst) as u64);
        drop(uses);
        user.join().unwrap();
        remover.join().unwrap();
    });
}
