//! A worker.
fn main() {}
