//! The memory of lists that a thread makes again and again: emptied lists wait for the next of their kind.
//!
//! Why: a request of a kilobyte and more makes general allocators tidy up their small blocks first (glibc joins freed
//! ones with their neighbours, so that the next small requests take them apart again). For a call with many small
//! results that costs more than the results do.

use std::cell::RefCell;
use std::thread::LocalKey;

/// The lists of one thread that may wait at once.
const N_IDLE: usize = 4;
/// Larger ones are given back, in bytes.
const MAX_BYTES: usize = 512 << 10;
/// Smaller ones are left to the allocator, in bytes.
const MIN_BYTES: usize = 1 << 10;

/// Emptied lists of a thread, in a `thread_local`.
#[derive(Debug)]
pub struct IdleLists<T>(RefCell<Vec<Vec<T>>>);

impl<T> IdleLists<T> {
    /// No lists.
    #[expect(clippy::new_without_default, reason = "statics of threads are made by constants")]
    pub const fn new() -> IdleLists<T> {
        IdleLists(RefCell::new(Vec::new()))
    }

    /// Whether a list of `n` elements is long enough to wait for another.
    #[inline]
    pub const fn is_long(n: usize) -> bool {
        n.saturating_mul(size_of::<T>()) >= MIN_BYTES
    }

    /// An empty list with room for `n` elements.
    pub fn take(of: &'static LocalKey<IdleLists<T>>, n: usize) -> Vec<T> {
        let waiting = || of.try_with(|lists| lists.0.borrow_mut().pop()).ok().flatten();
        let idle = if IdleLists::<T>::is_long(n) { waiting() } else { None };
        let mut list = idle.unwrap_or_default();
        list.reserve(n);
        list
    }

    /// Drops the elements of a list and keeps its memory.
    pub fn leave(of: &'static LocalKey<IdleLists<T>>, mut list: Vec<T>) {
        list.clear();
        let n = list.capacity();
        if IdleLists::<T>::is_long(n) && n * size_of::<T>() <= MAX_BYTES {
            // A thread that is ending keeps nothing.
            let _ = of.try_with(|lists| {
                let mut lists = lists.0.borrow_mut();
                if lists.len() < N_IDLE {
                    lists.push(list);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static LISTS: IdleLists<u64> = const { IdleLists::new() };
    }

    fn n_idle() -> usize {
        LISTS.with(|lists| lists.0.borrow().len())
    }

    #[test]
    fn long_lists_are_used_again_and_short_and_huge_ones_are_not() {
        let mut list = IdleLists::take(&LISTS, 200);
        list.extend(0..200);
        let address = list.as_ptr();
        IdleLists::leave(&LISTS, list);
        let again = IdleLists::take(&LISTS, 150);
        assert_eq!((again.as_ptr(), again.len()), (address, 0));
        IdleLists::leave(&LISTS, again);
        assert_eq!(IdleLists::take(&LISTS, 10).capacity(), 10);
        assert_eq!(n_idle(), 1);
        IdleLists::leave(&LISTS, Vec::with_capacity(10));
        IdleLists::leave(&LISTS, Vec::with_capacity(MAX_BYTES));
        assert_eq!(n_idle(), 1);
        (0..10).for_each(|_| IdleLists::leave(&LISTS, Vec::with_capacity(1000)));
        assert_eq!(n_idle(), N_IDLE);
    }
}
