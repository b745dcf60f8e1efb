//! Collectives of tensors on GPUs, over the stand-ins for NCCL and the driver: bits against the processor's, the way that
//! bytes take, and each way to go wrong against the error it must give.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bits;
mod device;
mod faults;
mod training;
mod ways;
