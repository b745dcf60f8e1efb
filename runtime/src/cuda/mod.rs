//! NVIDIA GPUs, by the driver that is found at run time.
//!
//! Nothing of NVIDIA's is needed to build. Each GPU has one context, which lives as long as the process, and one
//! stream: calls queue work and return, work runs in the order of the calls, and only copies to the host wait. There is
//! no current device: every user of a GPU holds its [`Gpu`]. The driver puts work of several threads in order; a lock
//! is held only by what must not be divided, such as a run in the arena of its executable.
//!
//! Unsafe code is in `api` (calls by name), `driver` (handles and their threads), `staging` (pinned memory) and `chain`
//! (launches of code that a caller vouches for).

mod api;
mod buffer;
mod chain;
mod disk;
mod driver;
mod gpu;
mod module;
mod origin;
mod pool;
mod staging;

pub use buffer::DeviceBuffer;
pub use chain::{Address, Chain, Launch, LaunchSpan};
pub use gpu::{Function, Gpu, Idle};
pub use module::{CodeStats, Source};
pub use pool::GpuMemory;
