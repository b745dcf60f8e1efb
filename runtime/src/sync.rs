//! Locks, threads and counters of `std`, or of `loom` when a model checker runs the code that is written against this
//! shim.

#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicBool, AtomicU64},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::{ThreadId, current},
    thread_local,
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicU64},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::{ThreadId, current},
    thread_local,
};

use std::sync::PoisonError;
pub(crate) use std::sync::TryLockError;
pub(crate) use std::sync::atomic::Ordering::Relaxed;

/// Locks a mutex whose data is consistent at every point, so that a panic elsewhere does not matter.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
