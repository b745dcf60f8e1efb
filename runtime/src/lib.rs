//! Bytes, buffers, threads, executable memory and the single-flight cache beneath retape.
//!
//! This crate knows no op, no graph and no kernel: only data types, memory, threads and cached values.

mod dtype;
mod shape;

pub use dtype::{DType, Element, Scalar};
pub use half::{bf16, f16};
pub use shape::Shape;
