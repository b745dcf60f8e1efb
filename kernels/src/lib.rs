//! Kernel IR, its Cranelift emitter and the library kernels of retape.
//!
//! This crate knows scalars, loops and memory. It knows no gradient and no tensor graph.

#[allow(dead_code)]
mod cpu;
mod error;
pub mod ir;
#[allow(dead_code)]
mod schedule;
mod simplify;

pub use error::{Error, Result};
pub use simplify::simplify;
