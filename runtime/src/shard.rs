//! Shards: a value that each thread has its own copy of, so that hot counters and slots are not fought over.
//!
//! Guarantees that a copy has its cache lines to itself, and that of the threads alive no two have the same copy as
//! long as there are enough copies. A copy may still be reached by any thread, so it must be safe to share.
//!
//! Why: an atomic addition to a line that another core has just written costs as much as a small kernel.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::Mutex;
use std::thread::available_parallelism;

use crate::lock::lock;

/// A value on cache lines of its own; the hardware fetches lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CachePadded<T>(pub T);

impl<T> Deref for CachePadded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// As many shards as threads may run together, within bounds.
pub(crate) fn n_shards() -> usize {
    const FEWEST: usize = 8;
    const MOST: usize = 64;
    available_parallelism().map_or(FEWEST, usize::from).next_power_of_two().clamp(FEWEST, MOST)
}

/// The numbers of threads that ended, and the first number that was never given.
struct Numbers {
    free: Vec<usize>,
    next: usize,
}

static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers { free: Vec::new(), next: 0 });

fn numbers() -> std::sync::MutexGuard<'static, Numbers> {
    lock(&NUMBERS)
}

const UNKNOWN: usize = usize::MAX;

thread_local! {
    // Without a destructor, so that it can be read by the destructors of other thread-local values.
    static NUMBER: Cell<usize> = const { Cell::new(UNKNOWN) };
    static LEASE: Cell<Option<Lease>> = const { Cell::new(None) };
}

/// Gives a number back when its thread ends.
struct Lease(usize);

impl Drop for Lease {
    fn drop(&mut self) {
        numbers().free.push(self.0);
    }
}

/// A small number of this thread, which no other thread that is alive has.
///
/// (A thread that is ending may share it with a new one.)
#[inline]
pub fn thread_number() -> usize {
    match NUMBER.get() {
        UNKNOWN => lease_number(),
        number => number,
    }
}

#[cold]
fn lease_number() -> usize {
    let lease = || {
        let mut numbers = numbers();
        // The smallest, so that the numbers in use stay close together.
        match numbers.free.iter().enumerate().min_by_key(|(_, number)| **number).map(|(at, _)| at) {
            Some(at) => numbers.free.swap_remove(at),
            None => {
                numbers.next += 1;
                numbers.next - 1
            }
        }
    };
    let leased = LEASE.try_with(|place| {
        let number = lease();
        place.set(Some(Lease(number)));
        NUMBER.set(number);
        number
    });
    // A thread that asks for the first time while it ends could not give a number back.
    leased.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn living_threads_have_different_numbers() {
        let all_there = Barrier::new(6);
        let mut numbers: Vec<usize> = thread::scope(|scope| {
            let number = || {
                let number = thread_number();
                all_there.wait();
                assert_eq!(thread_number(), number);
                number
            };
            let threads: Vec<_> = (0..6).map(|_| scope.spawn(number)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 6);
    }

    #[test]
    fn numbers_come_back() {
        let n_threads = if cfg!(miri) { 20 } else { 300 };
        let largest = (0..n_threads).map(|_| thread::spawn(thread_number).join().unwrap()).max();
        // Other tests run meanwhile, and a thread may be joined before its values are dropped.
        assert!(largest < Some(n_threads), "{largest:?}");
    }

    #[test]
    fn shards_lie_apart() {
        let pair = [CachePadded(1_u8), CachePadded(2)];
        assert!((&raw const *pair[1]).addr() - (&raw const *pair[0]).addr() >= 128);
        assert!(n_shards() >= 8);
    }
}
