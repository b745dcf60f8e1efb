//! Trace-caching automatic differentiation with a just-in-time compiler.
