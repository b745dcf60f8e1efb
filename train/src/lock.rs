//! The one way to lock: a panic elsewhere does not matter, since every update leaves the data consistent.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Locks, ignoring poisoning: for data that every update leaves consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for news about locked data.
pub(crate) fn wait_on<'s, T>(condition: &Condvar, guard: MutexGuard<'s, T>) -> MutexGuard<'s, T> {
    condition.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// The data of a mutex that nobody else can reach any more.
pub(crate) fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}
