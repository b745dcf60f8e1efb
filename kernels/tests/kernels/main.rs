//! Tests of the crate by its public interface, in one program, since linking one is dear; code for GPUs has its own.

mod chains;
mod cost;
mod descriptors;
mod epilogue;
mod execute;
mod hostile;
mod ir;
mod regions;
mod speed;
mod transcendentals;
