//! The one way to lock: a panic elsewhere does not matter, since every update leaves the data consistent.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

/// Locks, ignoring poisoning: for data that every update leaves consistent.
///
/// ```
/// # use retape_runtime::lock;
/// let numbers = std::sync::Mutex::new(vec![1]);
/// lock(&numbers).push(2);
/// assert_eq!(*lock(&numbers), [1, 2]);
/// ```
#[inline]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`], unless somebody else has it.
#[inline]
pub fn try_lock<T: ?Sized>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The data of a mutex that nobody else can reach any more.
#[inline]
pub fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`], to read what others may read at the same time.
#[inline]
pub fn lock_to_read<T: ?Sized>(shared: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    shared.read().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`], to write what others may read otherwise.
#[inline]
pub fn lock_to_write<T: ?Sized>(shared: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    shared.write().unwrap_or_else(PoisonError::into_inner)
}
