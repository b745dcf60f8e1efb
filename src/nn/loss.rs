//! Losses: scalars to be made small.
//!
//! Predictions and targets have one shape, since a difference of `[n, 1]` and `[n]` is a matrix of all pairs, of which
//! the mean says nothing. A wrong label makes a loss NaN rather than a little better.

use std::panic::Location;

use crate::error::Caller;
use crate::method::method;
use crate::ops::refused_among;
use crate::tensor::Tensor;

/// Mean over the batch of the cross-entropy between `targets`, probabilities along the last axis, and the softmax of
/// `logits`; both of one shape.
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
    let _method = method("softmax_cross_entropy");
    match differently_shaped(["logits", "targets"], [logits, targets], logits.shape(), Location::caller()) {
        Some(refused) => refused,
        None => cross_entropies(logits, targets).mean(..),
    }
}

/// As [`softmax_cross_entropy`], for `labels` (integers of any dtype) of the shape of `logits` without the last axis.
///
/// A label that is no class, negative ones too, makes the loss NaN; [`trap_nonfinite`] then names this function's line
/// and the label. For labels that are to be left out, such as -1 or 255, there is
/// [`softmax_cross_entropy_labels_ignoring`]. A logit of minus infinity rules a class out: it takes no part in the loss,
/// which is infinite where that class is the label.
///
/// ```
/// use retape::{Tensor, nn};
///
/// let logits = Tensor::eye(3) * 5.0;
/// let loss = |labels: [i64; 3]| nn::softmax_cross_entropy_labels(&logits, &Tensor::from(labels)).item::<f32>();
/// assert!(loss([0, 1, 2])? < 0.02);
/// assert!(loss([1, 2, 3])?.is_nan());
/// # Ok::<(), retape::Error>(())
/// ```
///
/// [`trap_nonfinite`]: crate::Options::trap_nonfinite
#[track_caller]
pub fn softmax_cross_entropy_labels(logits: &Tensor, labels: &Tensor) -> Tensor {
    let _method = method("softmax_cross_entropy_labels");
    match not_labels_of(logits, labels, Location::caller()) {
        Some(refused) => refused,
        None => label_entropies(logits, labels).mean(..),
    }
}

/// As [`softmax_cross_entropy_labels`], over the rows whose label is not `ignored`, a value of the labels' dtype.
///
/// The mean is over the rows that count, and the others have a gradient of 0, whatever their logits are. If all are
/// ignored, the mean is that of nothing, NaN.
///
/// ```
/// use retape::{Tensor, nn};
///
/// let (logits, labels) = (Tensor::eye(3) * 5.0, Tensor::from([0_i64, -1, 2]));
/// let loss = nn::softmax_cross_entropy_labels_ignoring(&logits, &labels, -1).item::<f32>()?;
/// let kept = nn::softmax_cross_entropy_labels(&logits.take(&Tensor::from([0_i64, 2]), 0), &Tensor::from([0_i64, 2]));
/// assert_eq!(loss, kept.item::<f32>()?);
/// # Ok::<(), retape::Error>(())
/// ```
#[track_caller]
pub fn softmax_cross_entropy_labels_ignoring(logits: &Tensor, labels: &Tensor, ignored: i64) -> Tensor {
    let _method = method("softmax_cross_entropy_labels_ignoring");
    if let Some(refused) = not_labels_of(logits, labels, Location::caller()) {
        return refused;
    }
    let is_ignored = labels.eq(ignored);
    // Ignored rows are made harmless before anything is computed of them: 0 times NaN is no gradient of 0.
    let logits = is_ignored.unsqueeze(-1).select(0.0, logits);
    let losses = is_ignored.select(0.0, label_entropies(&logits, &is_ignored.select(0, labels)));
    losses.sum(..) / (!is_ignored).cast(losses.dtype()).sum(..)
}

/// The mean of the squared differences of two tensors of one shape.
///
/// ```
/// use retape::{Tensor, nn};
///
/// let loss = nn::mse(&Tensor::from([1.0_f32, 2.0]), &Tensor::from([1.0_f32, 4.0]));
/// assert_eq!(loss.item::<f32>()?, 2.0);
/// assert!(nn::mse(&Tensor::zeros([4, 1]), &Tensor::zeros([4])).error().is_some());
/// # Ok::<(), retape::Error>(())
/// ```
#[track_caller]
pub fn mse(predictions: &Tensor, targets: &Tensor) -> Tensor {
    let _method = method("mse");
    match not_targets_of(predictions, targets, Location::caller()) {
        Some(refused) => refused,
        None => (predictions - targets).square().mean(..),
    }
}

/// Half the sum of the squared differences of two tensors of one shape, over the number of examples, which the first
/// axis counts.
#[track_caller]
pub fn half_mse(predictions: &Tensor, targets: &Tensor) -> Tensor {
    let _method = method("half_mse");
    let n_examples = predictions.shape().first().copied().unwrap_or(1);
    match not_targets_of(predictions, targets, Location::caller()) {
        Some(refused) => refused,
        None => (predictions - targets).square().sum(..) * (0.5 / n_examples.max(1) as f64),
    }
}

/// The cross-entropy of each row.
#[track_caller]
fn cross_entropies(logits: &Tensor, targets: &Tensor) -> Tensor {
    -(logits.log_softmax(-1) * targets).sum(-1)
}

/// The cross-entropy of each row with the class that its label names.
///
/// A class that a mask has ruled out by a logit of minus infinity has an infinite term, of which 0 times is NaN, so terms
/// of other classes than the label's are left out rather than multiplied by 0. Where the label is no class, none is.
#[track_caller]
fn label_entropies(logits: &Tensor, labels: &Tensor) -> Tensor {
    let targets = labels.one_hot_of(logits.dtype(), logits.extent(-1));
    -(targets.eq(0.0).select(0.0, logits.log_softmax(-1)) * targets).sum(-1)
}

/// The refusal of predictions and targets of two shapes.
fn not_targets_of(predictions: &Tensor, targets: &Tensor, at: Caller) -> Option<Tensor> {
    differently_shaped(["predictions", "targets"], [predictions, targets], predictions.shape(), at)
}

/// The refusal of logits and labels that do not fit.
fn not_labels_of(logits: &Tensor, labels: &Tensor, at: Caller) -> Option<Tensor> {
    let are_numbers = labels.error().is_none() && !labels.dtype().is_int();
    if are_numbers && logits.error().is_none() {
        let message =
            format!("labels are {}, but must be integers, the numbers of classes: cast them", labels.type_text());
        return Some(refused_among(&[logits, labels], message, at));
    }
    let (_, rows) = logits.shape().split_last().unwrap_or((&0, &[]));
    differently_shaped(["logits", "labels"], [logits, labels], rows, at)
}

/// The refusal of two tensors, of which the second must have a shape; an error that one carries comes first.
fn differently_shaped(names: [&str; 2], tensors: [&Tensor; 2], shape: &[usize], at: Caller) -> Option<Tensor> {
    if let Some(poisoned) = tensors.into_iter().find(|tensor| tensor.error().is_some()) {
        return Some(poisoned.clone());
    }
    let ([first, second], [x, y]) = (names, tensors);
    let message = format!(
        "the {first} are {}, the {second} {}, but must have shape {shape:?}: reshape one of them, for nothing is \
         broadcast in a loss",
        x.type_text(),
        y.type_text()
    );
    (y.shape() != shape).then(|| refused_among(&tensors, message, at))
}
