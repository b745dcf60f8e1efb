//! Metrics: numbers on a model, accumulated batch by batch.
//!
//! Each is a small struct: `add` takes the tensors of a batch, `value` gives the metric of everything added, `merge`
//! takes in what another one of the same kind has added, in another thread or process. A metric of nothing is NaN.
//!
//! Every example counts once, so that a last batch with fewer examples weighs less. `add` checks everything before it
//! counts anything: a batch that is refused leaves the metric as it was.
//!
//! Logits are floats of shape `[.., classes]`. Labels are integers of the shape of the logits without the last axis, or
//! one-hot of the shape of the logits. Of equal logits the one of the lowest class comes first, as in
//! [`Tensor::argmax`](retape::Tensor::argmax). An example with a NaN among its logits is counted, and is never right.
//!
//! ```
//! use retape::Tensor;
//! use retape_train::metrics::{Accuracy, Mean};
//!
//! let (mut accuracy, mut loss) = (Accuracy::new(), Mean::new());
//! let batches = [
//!     (Tensor::from([[2.0_f32, 1.0], [0.0, 3.0]]), Tensor::from([0_i64, 0])), // one of two is right
//!     (Tensor::from([[0.5_f32, 0.1]]), Tensor::from([0_i64])),                // a last batch of one, right
//! ];
//! for (logits, labels) in &batches {
//!     accuracy.add(logits, labels)?;
//!     loss.add(&retape::nn::softmax_cross_entropy_labels(logits, labels), labels.n_elements())?;
//! }
//! assert!((accuracy.value() - 2.0 / 3.0).abs() < 1e-12);
//! # assert!(loss.value() > 0.0);
//! # Ok::<(), retape_train::Error>(())
//! ```

mod accuracy;
mod confusion;
mod examples;
mod gradient_norm;
mod mean;
pub(crate) mod numbers;
mod rmse;
mod sum;
mod throughput;

pub use accuracy::{Accuracy, TopK};
pub use confusion::Confusion;
pub use gradient_norm::{GradientNorm, gradient_norm};
pub use mean::Mean;
pub use rmse::Rmse;
pub use throughput::Throughput;
