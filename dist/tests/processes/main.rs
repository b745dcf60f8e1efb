//! Worlds of processes, alone and under the launchers of two libraries of MPI: the output of workers, and the end of
//! jobs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod calls;
#[expect(dead_code, reason = "a page is opened here and a button pressed; the tests of the kit look closer")]
#[path = "../../../train/tests/watch/driver.rs"]
mod driver;
mod exits;
mod faults;
mod flowers;
mod job;
mod libraries;
