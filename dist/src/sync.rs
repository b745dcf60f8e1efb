//! Locks and atomics, in one place: a model of all schedules (`dist/tests/schedules`) puts its own here.

pub(crate) use std::sync::atomic;
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
