//! Kernel IR, its Cranelift emitter and the library kernels of retape.
//!
//! This crate knows scalars, loops and memory. It knows no gradient and no tensor graph.

pub mod ir;
pub mod library;
mod plan;
mod simplify;

pub use plan::{Error, Executable, Plan};
pub use simplify::simplify;
