//! Losses: scalars to be made small.

use std::panic::Location;

use super::fit::Layer;
use crate::tensor::Tensor;

/// The poisoned result if predictions and targets do not broadcast.
#[track_caller]
fn refused(name: &'static str, predictions: &Tensor, targets: &Tensor) -> Option<Tensor> {
    let layer = Layer { name, at: Location::caller() };
    layer.refused_broadcast(("the predictions", predictions), ("the targets", targets), "")
}

/// Mean over the batch of the cross-entropy between `targets`, probabilities along the last axis, and the softmax of
/// `logits`.
///
/// ```
/// use retape::{Tensor, nn};
///
/// let (logits, targets) = (Tensor::zeros([1, 2]), Tensor::from([[1.0_f32, 0.0]]));
/// let loss = nn::softmax_cross_entropy(&logits, &targets).item::<f32>()?;
/// assert!((loss - 2.0_f32.ln()).abs() < 1e-6);
/// # Ok::<(), retape::Error>(())
/// ```
#[track_caller]
pub fn softmax_cross_entropy(logits: &Tensor, targets: &Tensor) -> Tensor {
    if let Some(refused) = refused("softmax_cross_entropy", logits, targets) {
        return refused;
    }
    -(targets * logits.log_softmax(-1)).sum(-1).mean(..)
}

/// As [`softmax_cross_entropy`], for integer `labels` of the shape of `logits` without the last axis.
#[track_caller]
pub fn softmax_cross_entropy_labels(logits: &Tensor, labels: &Tensor) -> Tensor {
    softmax_cross_entropy(logits, &labels.one_hot_of(logits.dtype(), logits.dim(-1)))
}

/// The mean of the squared differences.
#[track_caller]
pub fn mse(predictions: &Tensor, targets: &Tensor) -> Tensor {
    match refused("mse", predictions, targets) {
        Some(refused) => refused,
        None => (predictions - targets).square().mean(..),
    }
}

/// Half the sum of the squared differences over the number of examples, which the first axis counts.
#[track_caller]
pub fn half_mse(predictions: &Tensor, targets: &Tensor) -> Tensor {
    if let Some(refused) = refused("half_mse", predictions, targets) {
        return refused;
    }
    let n_examples = predictions.shape().first().copied().unwrap_or(1);
    (predictions - targets).square().sum(..) * (0.5 / n_examples.max(1) as f64)
}
