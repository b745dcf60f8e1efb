//! Normalisation: over the batch, and over the features of each example.

use std::panic::Location;

use super::fit::{Layer, Role};
use super::trees;
use crate::ops::Axes;
use crate::tensor::Tensor;

/// The variance that is added so that nothing is divided by zero.
const EPSILON: f64 = 1e-5;

/// Batch normalisation in training: over all axes but the last, by the statistics of the batch.
///
/// Returns the normalised tensor, scaled and shifted, and mean and (biased) variance of the batch.
#[track_caller]
pub fn batch_norm(x: &Tensor, scale: &Tensor, offset: &Tensor, epsilon: f64) -> (Tensor, Tensor, Tensor) {
    if let Some(refused) = refused("batch_norm", x, [("the scale", scale), ("the offset", offset)]) {
        return (refused.clone(), refused.clone(), refused);
    }
    let axes: Vec<isize> = (0..x.rank().saturating_sub(1) as isize).collect();
    let over = || Axes::from(&axes[..]);
    let mean = x.mean(over());
    let centred = x - &mean;
    let variance = centred.square().mean(over());
    let y = centred * ((&variance + epsilon).rsqrt() * scale) + offset;
    (y, mean, variance)
}

/// Batch normalisation by given statistics.
#[track_caller]
pub fn batch_norm_inference(
    x: &Tensor,
    scale: &Tensor,
    offset: &Tensor,
    mean: &Tensor,
    variance: &Tensor,
    epsilon: f64,
) -> Tensor {
    let parameters = [("the scale", scale), ("the offset", offset), ("the mean", mean), ("the variance", variance)];
    match refused("batch_norm", x, parameters) {
        Some(refused) => refused,
        None => (x - mean) * ((variance + epsilon).rsqrt() * scale) + offset,
    }
}

/// Layer normalisation over the last axis: mean zero and variance one for each example, then scaled and shifted.
#[track_caller]
pub fn layer_norm(x: &Tensor, scale: &Tensor, offset: &Tensor, epsilon: f64) -> Tensor {
    if let Some(refused) = refused("layer_norm", x, [("the scale", scale), ("the offset", offset)]) {
        return refused;
    }
    let centred = x - x.mean(-1).unsqueeze(-1);
    let variance = centred.square().mean(-1).unsqueeze(-1);
    centred * (variance + epsilon).rsqrt() * scale + offset
}

/// The poisoned result if a parameter does not broadcast with the input, whose last axis is the features.
#[track_caller]
fn refused<const N: usize>(name: &'static str, x: &Tensor, parameters: [Role<'_>; N]) -> Option<Tensor> {
    let layer = Layer { name, at: Location::caller() };
    parameters.into_iter().find_map(|(role, parameter)| {
        let hint = match x.rank() == 4 && [x.dim(1)] == parameter.shape() {
            true => "; images are [batch, height, width, channels], and these look like PyTorch's: permute them by [0, 2, 3, 1]",
            false => "; the last axis of the input is its features",
        };
        layer.refused_broadcast(("the input", x), (role, parameter), hint)
    })
}

/// Batch normalisation with parameters for each channel.
///
/// ```
/// use retape::{Tensor, nn::{BatchNorm, BatchNormState}};
///
/// let (norm, state) = (BatchNorm::new(3), BatchNormState::new(3));
/// let (y, state) = norm.apply(&Tensor::ones([4, 2, 2, 3]), &state, 0.9);
/// assert_eq!(y.shape(), [4, 2, 2, 3]);
/// assert_eq!(norm.infer(&y, &state).shape(), [4, 2, 2, 3]);
/// ```
#[derive(Clone, Debug)]
pub struct BatchNorm {
    /// `[channels]`.
    pub scale: Tensor,
    /// `[channels]`.
    pub offset: Tensor,
}

/// Running statistics of a batch normalisation; not differentiated.
#[derive(Clone, Debug)]
pub struct BatchNormState {
    /// `[channels]`.
    pub mean: Tensor,
    /// `[channels]`.
    pub variance: Tensor,
}

/// Layer normalisation with parameters for each feature.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    /// `[features]`.
    pub scale: Tensor,
    /// `[features]`.
    pub offset: Tensor,
}

trees! {
    BatchNorm { scale, offset }
    BatchNormState { mean, variance }
    LayerNorm { scale, offset }
}

impl BatchNorm {
    /// Scale one and offset zero.
    pub fn new(channels: usize) -> BatchNorm {
        BatchNorm { scale: Tensor::ones([channels]), offset: Tensor::zeros([channels]) }
    }

    /// Normalises by the batch and returns the new running statistics: `momentum` of the old and the rest of the
    /// batch's.
    #[track_caller]
    pub fn apply(&self, x: &Tensor, state: &BatchNormState, momentum: f64) -> (Tensor, BatchNormState) {
        let (y, mean, variance) = batch_norm(x, &self.scale, &self.offset, EPSILON);
        (y, state.updated(&mean, &variance, momentum))
    }

    /// Normalises by running statistics.
    #[track_caller]
    pub fn infer(&self, x: &Tensor, state: &BatchNormState) -> Tensor {
        batch_norm_inference(x, &self.scale, &self.offset, &state.mean, &state.variance, EPSILON)
    }
}

impl BatchNormState {
    /// Mean zero and variance one.
    pub fn new(channels: usize) -> BatchNormState {
        BatchNormState { mean: Tensor::zeros([channels]), variance: Tensor::ones([channels]) }
    }

    /// `momentum` of these statistics and the rest of those given, without a gradient.
    #[track_caller]
    pub fn updated(&self, mean: &Tensor, variance: &Tensor, momentum: f64) -> BatchNormState {
        let blend = |old: &Tensor, new: &Tensor| old * momentum + new.stop_gradient() * (1.0 - momentum);
        BatchNormState { mean: blend(&self.mean, mean), variance: blend(&self.variance, variance) }
    }
}

impl LayerNorm {
    /// Scale one and offset zero.
    pub fn new(features: usize) -> LayerNorm {
        LayerNorm { scale: Tensor::ones([features]), offset: Tensor::zeros([features]) }
    }

    /// Normalises over the last axis.
    #[track_caller]
    pub fn apply(&self, x: &Tensor) -> Tensor {
        layer_norm(x, &self.scale, &self.offset, EPSILON)
    }
}
