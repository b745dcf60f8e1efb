//! Worlds of threads: each call against what it must give, and each way to go wrong against the error it must give.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod calls;
mod faults;
mod groups;
mod layers;
mod trees;
