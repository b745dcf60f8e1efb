//! Worlds of threads: each call against what it must give, and each way to go wrong against the error it must give.

mod calls;
mod faults;
mod groups;
mod trees;
