//! Trace-caching automatic differentiation with a just-in-time compiler.

#![forbid(unsafe_code)]

pub mod data;
