//! For tests only: NCCL without GPUs.
//!
//! The shared library of this crate exports the functions of `libnccl.so.2` that move bytes, for workers that are threads
//! of one process, each with a device of the stand-in driver. It serves communicators that do not wait, as NCCL has them
//! with `blocking = 0`: a call begins, and who asks for its state lets it go on. It refuses what NCCL would not survive:
//! groups that do not end, peers that are not there, lengths that do not match, memory that is none, streams of another
//! device, two workers with one device.
//!
//! A group waits for its stream before it sends, so nothing here shows faults of work that runs at the same time.
//!
//! | file | what |
//! |---|---|
//! | `state` | communicators and messages |
//! | `calls` | the C functions of NCCL, and some for tests |
//! | `cuda` | the functions of the driver that it calls |
//! | `install` | the library found, opened and controlled from a test |

#![cfg(target_os = "linux")]

mod calls;
mod cuda;
mod install;
mod state;

pub use install::{Nccl, install};
pub use state::Counters;
