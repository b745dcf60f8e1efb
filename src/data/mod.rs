//! Data sets and mini-batches as plain numbers.
//!
//! Nothing here knows tensors: images are row-major `f32`, labels are `u8`, a batch is a slice of indices.
//! Guarantees that everything random depends on a seed and an index alone, never on threads or platform.

mod digits;
mod error;
mod idx;
mod minibatch;
mod pen;
mod random;
mod rotate;
mod strokes;

pub use digits::Digits;
pub use error::DataError;
pub use idx::{IdxArray, IdxValues, Mnist, load_mnist, parse_idx, read_idx};
pub use minibatch::{Epoch, MiniBatches, Partial, gather, one_hot};
pub use random::Random;
