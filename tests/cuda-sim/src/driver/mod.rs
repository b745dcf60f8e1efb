//! A CUDA driver without a GPU: the functions of `libcuda.so.1` that a backend needs, on the interpreter.
//!
//! The shared library of this crate exports them. Work is queued on its stream and done when somebody synchronises, or
//! when a queue grows long: a program that forgets to synchronise reads old bytes, as it may on hardware. There are two
//! devices, unless [`Driver::add_devices`] adds some. A kernel at fault poisons its device until [`Driver::reset`]; the message is kept for
//! [`Driver::last_fault`].
//!
//! | file | what |
//! |---|---|
//! | `foreign` | pointers, codes and texts of the C interface |
//! | `state`, `stream`, `graph` | what the driver remembers, queues and captures, graphs |
//! | `work`, `nodes` | what is queued, and how nodes of graphs say it |
//! | `device_calls`, `memory_calls`, `module_calls`, `stream_calls`, `graph_calls`, `launch_calls` | the C functions |
//! | `control` | more C functions, for tests |
//! | `install` | the library found, opened and controlled from a test |

mod control;
mod device_calls;
mod foreign;
mod graph;
mod graph_calls;
mod install;
mod launch_calls;
mod memory_calls;
mod module_calls;
mod nodes;
mod state;
mod stream;
mod stream_calls;
mod work;

pub use control::Counters;
pub use install::{Driver, install};
