//! Tests of what belongs to the process: bytes of memory and of code that are alive, limits, the number of threads.
//!
//! They share a program, since linking one is dear, and take turns in it.

#![allow(clippy::unwrap_used, clippy::type_complexity, reason = "a test fails by panicking, and names few types")]

mod callbacks;
mod code_memory;
mod determinism;
mod donation;
mod ending;
mod long_programs;
mod memory;
mod patience;
mod programs;
mod threads;
mod warnings;

use std::env;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Runs a test in a process of its own; returns whether this is that process, which has to do the work.
fn is_own_process(test: &str) -> bool {
    const CHILD: &str = "RETAPE_TEST_CHILD";
    if env::var(CHILD).as_deref() == Ok(test) {
        return true;
    }
    let mut child = Command::new(env::current_exe().expect("a test has a program"));
    let output = child.args(["--exact", test, "--nocapture"]).env(CHILD, test).output().expect("it starts");
    let text = format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}

/// Keeps every other test of this program waiting until it is dropped.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
