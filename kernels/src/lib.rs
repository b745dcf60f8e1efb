//! Kernel IR, its Cranelift emitter and the library kernels of retape.
//!
//! This crate knows scalars, loops and memory. It knows no gradient and no tensor graph.

pub mod expand;
pub mod ir;
