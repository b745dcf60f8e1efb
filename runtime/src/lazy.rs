//! A value that is made when it is first needed, by one thread for all.
//!
//! Guarantees what `flight.rs` does, of which this is the store of one value.

use std::fmt;
use std::sync::Mutex;

use crate::error::Deadlock;
use crate::flight::Flights;
use crate::lock::lock;
use crate::memo::init_once;

/// A value that is made once, by the first thread that needs it; if that fails, by the next one.
///
/// ```
/// use retape_runtime::{Error, Lazy};
///
/// let lazy: Lazy<u32> = Lazy::default();
/// assert_eq!(lazy.get_or_try_init(|| Ok::<_, Error>(7))?, (7, true));
/// assert_eq!(lazy.get_or_try_init(|| Ok::<_, Error>(8))?, (7, false));
/// # Ok::<(), Error>(())
/// ```
pub struct Lazy<T> {
    value: Mutex<Option<T>>,
    flights: Flights<(), T>,
}

impl<T: Clone> Default for Lazy<T> {
    fn default() -> Lazy<T> {
        Lazy { value: Mutex::new(None), flights: Flights::new() }
    }
}

impl<T: Clone> Lazy<T> {
    /// A value that is there.
    pub fn of(value: T) -> Lazy<T> {
        Lazy { value: Mutex::new(Some(value)), ..Lazy::default() }
    }

    /// The value, if it has been made; never waits until it is.
    pub fn get(&self) -> Option<T> {
        lock(&self.value).clone()
    }

    /// The value, and whether this call made it. Others wait meanwhile, as those of
    /// [`Cache::get_or_try_insert_with`](crate::Cache::get_or_try_insert_with) do; a call that would wait for itself
    /// makes a value of its own.
    ///
    /// # Errors
    ///
    /// Those of `make`, or [`Deadlock::Stuck`].
    pub fn get_or_try_init<E: From<Deadlock>>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<(T, bool), E> {
        init_once(&self.flights, &(), || self.get(), make, |value| *lock(&self.value) = Some(value.clone()))
    }
}

impl<T: fmt::Debug + Clone> fmt::Debug for Lazy<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lazy").field(&self.get()).finish()
    }
}
