//! Data sets and mini-batches as plain numbers.
//!
//! Nothing here knows tensors: images are row-major `f32`, labels are `u8`, a batch is a slice of indices.
//! Guarantees that everything random depends on a seed and an index alone, never on threads or platform.
//!
//! [`Digits`] are images to learn from; [`MiniBatches`] divides rows into batches, [`gather`] and [`one_hot`] copy a batch
//! into one piece; [`Random`] is the generator beneath. Data on disk, MNIST among it, is read by the crate
//! `retape-train`.
//!
//! ```
//! use retape::Tensor;
//! use retape::data::{Digits, MiniBatches, gather};
//!
//! let digits = Digits::generate(1, 10)?;
//! for batch in &MiniBatches::new(digits.len(), 4)?.shuffled(1).epoch(0) {
//!     let images = gather(&digits.images, Digits::PIXELS, batch)?;
//!     let x = Tensor::from_vec(images, [batch.len(), Digits::SIDE, Digits::SIDE, 1])?;
//!     assert_eq!(x.dim(0), batch.len());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod digits;
mod error;
mod minibatch;
mod pen;
mod random;
mod rotate;
mod strokes;

pub use digits::Digits;
pub use error::DataError;
pub use minibatch::{Epoch, MiniBatches, Partial, gather, one_hot};
pub use random::Random;
pub use rotate::sin_cos_degrees;
