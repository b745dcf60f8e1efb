//! Kernel IR, its Cranelift emitter and the library kernels of retape.
//!
//! This crate knows scalars, loops and memory. It knows no gradient and no tensor graph.

pub mod ir;
mod simplify;

pub use simplify::simplify;
pub mod library;
mod plan;
pub use plan::{Error, Executable, Plan};
