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

pub(crate) use std::sync::atomic::Ordering::Relaxed;

#[cfg(not(loom))]
pub(crate) use crate::lock::{lock, try_lock};

/// The lock of a model checker, which knows no panic.
#[cfg(loom)]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// As [`lock`], unless somebody else has it.
#[cfg(loom)]
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    mutex.try_lock().ok()
}
