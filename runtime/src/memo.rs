//! Shared values by key, each made once for all threads that need it together.
//!
//! Guarantees what `flight.rs` does, of which this is a store; a hit takes one lock, for reading.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, RwLock, Weak};

use crate::error::Deadlock;
use crate::flight::{Begun, Completion, Flights, Waited};
use crate::lock::{lock_to_read, lock_to_write};
use crate::patience::patience;
use crate::pulse::at_work;

/// Entries up to which nobody looks for values that are gone.
const FEW: usize = 64;

/// A table of shared values, each of which is made by the first thread that needs it.
///
/// It keeps all values up to a number of them, or none: then it finds those that somebody else still has.
///
/// ```
/// use std::sync::Arc;
///
/// use retape_runtime::{Error, Memo};
///
/// let squares: Memo<u32, u32> = Memo::in_use();
/// let nine = squares.get_or_try_insert_with(&3, || Ok::<_, Error>(Arc::new(9)))?;
/// assert!(squares.get(&3).is_some_and(|found| Arc::ptr_eq(&found, &nine)));
/// drop(nine);
/// assert_eq!(squares.get(&3), None);
/// # Ok::<(), Error>(())
/// ```
pub struct Memo<K, V> {
    keep: Keep,
    table: RwLock<Table<K, V>>,
    flights: Flights<K, Arc<V>>,
}

/// Which values a table keeps alive.
#[derive(Clone, Copy)]
enum Keep {
    /// None.
    InUse,
    /// All; before one too many, all are dropped and made again as needed.
    AtMost(usize),
}

struct Table<K, V> {
    values: HashMap<K, Held<V>>,
    /// The number of entries at which those whose values are gone are taken out.
    prune_at: usize,
}

enum Held<V> {
    Kept(Arc<V>),
    Seen(Weak<V>),
}

impl<V> Held<V> {
    fn value(&self) -> Option<Arc<V>> {
        match self {
            Held::Kept(value) => Some(Arc::clone(value)),
            Held::Seen(value) => value.upgrade(),
        }
    }

    fn is_gone(&self) -> bool {
        matches!(self, Held::Seen(value) if value.strong_count() == 0)
    }
}

impl<K: Clone + Eq + Hash, V> Memo<K, V> {
    /// A table that keeps no value alive.
    #[must_use]
    pub fn in_use() -> Memo<K, V> {
        Memo::new(Keep::InUse)
    }

    /// A table that keeps values, and drops all of them before it has more than so many.
    #[must_use]
    pub fn at_most(n_values: usize) -> Memo<K, V> {
        Memo::new(Keep::AtMost(n_values))
    }

    fn new(keep: Keep) -> Memo<K, V> {
        let table = Table { values: HashMap::new(), prune_at: FEW };
        Memo { keep, table: RwLock::new(table), flights: Flights::new() }
    }

    /// The value of a key, if it is there.
    #[inline]
    pub fn get(&self, key: &K) -> Option<Arc<V>> {
        lock_to_read(&self.table).values.get(key)?.value()
    }

    /// The value of a key. If it is not there, this call makes it or waits for the one that does, as those of
    /// [`Lazy::get_or_try_init`](crate::Lazy::get_or_try_init) do.
    ///
    /// # Errors
    ///
    /// Those of `make`, or [`Deadlock::Stuck`].
    pub fn get_or_try_insert_with<E: From<Deadlock>>(
        &self,
        key: &K,
        make: impl FnOnce() -> Result<Arc<V>, E>,
    ) -> Result<Arc<V>, E> {
        match self.get(key) {
            Some(value) => Ok(value),
            None => Ok(init_once(&self.flights, key, || self.get(key), make, |value| self.insert(key, value))?.0),
        }
    }

    /// Adds a value that was made elsewhere, such as one of many that are made together, and returns it; the one that
    /// is there, if there is one.
    pub fn get_or_insert(&self, key: &K, value: Arc<V>) -> Arc<V> {
        self.flights.exclusive(|| match self.get(key) {
            Some(first) => first,
            None => {
                self.insert(key, &value);
                value
            }
        })
    }

    /// All values, in no order.
    pub fn values(&self) -> Vec<Arc<V>> {
        lock_to_read(&self.table).values.values().filter_map(Held::value).collect()
    }

    fn insert(&self, key: &K, value: &Arc<V>) {
        let mut table = lock_to_write(&self.table);
        let held = match self.keep {
            Keep::InUse => Held::Seen(Arc::downgrade(value)),
            Keep::AtMost(_) => Held::Kept(Arc::clone(value)),
        };
        let dropped = match self.keep {
            Keep::AtMost(most) if table.values.len() >= most => std::mem::take(&mut table.values),
            Keep::AtMost(_) => HashMap::new(),
            Keep::InUse => table.prune(),
        };
        table.values.insert(key.clone(), held);
        drop(table);
        // With no lock held, since this may free much.
        drop(dropped);
    }
}

impl<K: Eq + Hash, V> Table<K, V> {
    /// Takes out entries whose values are gone, so rarely that it costs little for each entry.
    fn prune(&mut self) -> HashMap<K, Held<V>> {
        if self.values.len() < self.prune_at {
            return HashMap::new();
        }
        let gone = self.values.extract_if(|_, held| held.is_gone()).collect();
        self.prune_at = FEW.max(2 * self.values.len());
        gone
    }
}

/// The value of a key by a single flight, and whether this call made it: `stored` reads the store, `keep` writes it. A
/// call that would wait for itself makes a value of its own.
pub(crate) fn init_once<K: Clone + Eq, T: Clone, E: From<Deadlock>>(
    flights: &Flights<K, T>,
    key: &K,
    stored: impl Fn() -> Option<T>,
    make: impl FnOnce() -> Result<T, E>,
    keep: impl FnOnce(&T),
) -> Result<(T, bool), E> {
    let guard = loop {
        // Equality alone decides among the few flights of a table.
        match flights.begin(&[0; 32], key, &stored) {
            Begun::Stored(value) => return Ok((value, false)),
            Begun::Produce(guard) => break guard,
            Begun::Reentrant => return Ok((at_work(make)?, true)),
            Begun::Wait(wait) => match wait.end(patience) {
                Waited::Completed(value) => return Ok((value, false)),
                Waited::Failed => {}
                Waited::Produce(guard) => break guard,
                Waited::Stuck => return Err(Deadlock::Stuck.into()),
            },
        }
    };
    let value = at_work(make)?;
    match guard.complete(value.clone(), || keep(&value)) {
        Completion::First(_) => Ok((value, true)),
        Completion::Late(first) => Ok((first, true)),
    }
}

impl<K, V> fmt::Debug for Memo<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memo").field("entries", &lock_to_read(&self.table).values.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;
    use crate::error::Error;

    fn made(value: usize) -> Result<Arc<usize>, Error> {
        Ok(Arc::new(value))
    }

    #[test]
    fn values_that_nobody_has_are_gone_and_taken_out() {
        let memo = Memo::in_use();
        let held = memo.get_or_try_insert_with(&0, || made(7)).unwrap();
        for key in 1..3 * FEW {
            memo.get_or_try_insert_with(&key, || made(key)).unwrap();
        }
        assert!(memo.table.read().unwrap().values.len() <= FEW);
        assert_eq!(memo.get(&1), None);
        assert!(Arc::ptr_eq(&held, &memo.get_or_try_insert_with(&0, || made(8)).unwrap()));
        assert!(Arc::ptr_eq(&held, &memo.get_or_insert(&0, Arc::new(9))));
        assert_eq!(memo.values(), [held]);
    }

    #[test]
    fn a_table_has_no_more_values_than_it_may() {
        let memo = Memo::at_most(3);
        for key in 0..3 {
            memo.get_or_try_insert_with(&key, || made(key)).unwrap();
        }
        assert_eq!((memo.get(&0).as_deref(), memo.values().len()), (Some(&0), 3));
        memo.get_or_try_insert_with(&3, || made(3)).unwrap();
        assert_eq!((memo.get(&0), memo.values()), (None, vec![Arc::new(3)]));
    }

    #[test]
    fn threads_that_come_together_share_one_value() {
        let (memo, start, n_made) = (Memo::at_most(8), Barrier::new(4), AtomicUsize::new(0));
        let make = || {
            n_made.fetch_add(1, Relaxed);
            made(1)
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    assert_eq!(*memo.get_or_try_insert_with(&"key", make).unwrap(), 1);
                });
            }
        });
        assert_eq!(n_made.load(Relaxed), 1);
        let refused: Result<Arc<usize>, Error> =
            memo.get_or_try_insert_with(&"other", || Err(Error::Code("no".into())));
        assert!(refused.is_err() && memo.get(&"other").is_none());
    }
}
