//! Bytes, buffers, threads, executable memory and the single-flight cache beneath retape.
//!
//! This crate knows no op, no graph and no kernel: only data types, memory, threads and cached values.

mod block;
mod buffer;
mod cache;
#[cfg(all(target_os = "linux", not(miri)))]
mod chunk;
mod clock;
mod code;
mod convert;
pub mod cuda;
mod device;
mod device_info;
mod devices;
mod dtype;
mod error;
mod flight;
mod half_format;
mod hash;
mod idle;
mod lazy;
mod lock;
mod memo;
mod panics;
mod patience;
mod pool;
mod processor;
mod pulse;
mod recent;
mod shape;
mod shard;
mod shortage;
mod stats;
mod sync;
mod threads;
mod waits;

pub use block::Scratch;
pub use buffer::Buffer;
pub use cache::{Cache, EntryView, InUse, Insertion, Outcome, Pin};
pub use clock::coarse_now;
pub use code::{Code, live_code_bytes};
pub use cuda::{DeviceBuffer, Gpu};
pub use device::Device;
pub use device_info::DeviceInfo;
pub use dtype::{DType, Element, Scalar};
pub use error::{Deadlock, Error, Result};
pub use half::{bf16, f16};
pub use hash::{Hash32, hash_value, hash_words};
pub use idle::IdleLists;
pub use lazy::Lazy;
pub use lock::{into_inner, lock, lock_to_read, lock_to_write, try_lock};
pub use memo::Memo;
pub use panics::panic_message;
pub use patience::{patience, set_patience};
pub use pool::{
    PoolStats, live_bytes, memory_limit, peak_bytes, pool_stats, reset_peak_bytes, set_memory_limit, set_pool_capacity,
    trim,
};
pub use processor::processor_model;
pub use pulse::{at_work, in_user_code, note_progress};
pub use shape::Shape;
pub use shard::{CachePadded, thread_number};
pub use shortage::{ByteCount, Refusal, Shortage};
pub use stats::{Budget, CacheStats, Capacity, Event, EventKind, Weight};
pub use threads::{n_threads, parallel_for, set_n_threads};
