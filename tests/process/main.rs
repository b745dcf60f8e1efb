//! Tests of what belongs to the process: bytes of memory and of code that are alive, limits, the number of threads.
//!
//! They share a program, since linking one is dear, and take turns in it.

mod callbacks;
mod code_memory;
mod donation;
mod ending;
mod memory;
mod patience;
mod programs;
mod threads;
mod warnings;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Keeps every other test of this program waiting until it is dropped.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
