//! Normalisation: over the batch, and over the features of each example.

use std::panic::Location;

use super::fit::{Role, refused_broadcast};
use crate::method::method;

use crate::tensor::Tensor;
use crate::tree::Tree;

/// The variance that is added unless another is given.
const EPSILON: f64 = 1e-5;

/// The part of the running statistics that is kept unless another is given.
const MOMENTUM: f64 = 0.9;

/// Batch normalisation in training: over all axes but the last, by the statistics of the batch.
///
/// Returns the normalised tensor, scaled and shifted, and mean and (biased) variance of the batch.
#[track_caller]
pub fn batch_norm(x: &Tensor, scale: &Tensor, offset: &Tensor, epsilon: f64) -> (Tensor, Tensor, Tensor) {
    let _method = method("batch_norm");
    if x.rank() == 0 {
        let message = format!("{} must have channels along its last axis", x.type_text());
        let refused = x.refused(message, Location::caller());
        return (refused.clone(), refused.clone(), refused);
    }
    if let Some(refused) = refused(x, [("the scale", scale), ("the offset", offset)]) {
        return (refused.clone(), refused.clone(), refused);
    }
    let mean = x.mean(..-1);
    let centred = x - &mean;
    let variance = centred.square().mean(..-1);
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
    let _method = method("batch_norm_inference");
    let parameters = [("the scale", scale), ("the offset", offset), ("the mean", mean), ("the variance", variance)];
    match refused(x, parameters) {
        Some(refused) => refused,
        None => (x - mean) * ((variance + epsilon).rsqrt() * scale) + offset,
    }
}

/// Layer normalisation over the last axis: mean zero and variance one for each example, then scaled and shifted.
#[track_caller]
pub fn layer_norm(x: &Tensor, scale: &Tensor, offset: &Tensor, epsilon: f64) -> Tensor {
    let _method = method("layer_norm");
    if let Some(refused) = refused(x, [("the scale", scale), ("the offset", offset)]) {
        return refused;
    }
    let centred = x - x.mean(-1).unsqueeze(-1);
    let variance = centred.square().mean(-1).unsqueeze(-1);
    centred * (variance + epsilon).rsqrt() * scale + offset
}

/// The poisoned result if a parameter does not broadcast with the input, whose last axis is the features.
#[track_caller]
fn refused<const N: usize>(x: &Tensor, parameters: [Role<'_>; N]) -> Option<Tensor> {
    parameters.into_iter().find_map(|(role, parameter)| {
        // An image whose first two axes make a square, and the last two none, is in order, be its height what it may.
        let is_ours = x.extent(1) == x.extent(2) && x.extent(2) != x.extent(3);
        let hint = match x.rank() == 4 && [x.extent(1)] == parameter.shape() && !is_ours {
            true => "; images are [batch, height, width, channels], and these look like PyTorch's: permute them by [0, 2, 3, 1]",
            false => "; the last axis of the input is its features",
        };
        refused_broadcast(("the input", x), (role, parameter), hint)
    })
}

/// Batch normalisation with parameters for each channel.
///
/// ```
/// use retape::{Tensor, nn::{BatchNorm, BatchNormState}};
///
/// let (norm, state) = (BatchNorm::new(3).momentum(0.99), BatchNormState::new(3));
/// let (y, state) = norm.apply(&Tensor::ones([4, 2, 2, 3]), &state);
/// assert_eq!(y.shape(), [4, 2, 2, 3]);
/// assert_eq!(norm.infer(&y, &state).shape(), [4, 2, 2, 3]);
/// ```
#[derive(Clone, Debug, Tree)]
pub struct BatchNorm {
    /// `[channels]`.
    pub scale: Tensor,
    /// `[channels]`.
    pub offset: Tensor,
    /// A variance that is added, so that nothing is divided by zero; 1e-5 unless set.
    #[tree(static)]
    pub epsilon: f64,
    /// The part of the running statistics that a batch leaves as it is; 0.9 unless set.
    #[tree(static)]
    pub momentum: f64,
}

/// Running statistics of a batch normalisation; not differentiated.
#[derive(Clone, Debug, Tree)]
pub struct BatchNormState {
    /// `[channels]`.
    pub mean: Tensor,
    /// `[channels]`.
    pub variance: Tensor,
}

/// Layer normalisation with parameters for each feature.
///
/// ```
/// use retape::{Tensor, nn::LayerNorm};
///
/// let norm = LayerNorm::new(2).epsilon(1e-6);
/// let y = norm.apply(&Tensor::from([[1.0_f32, 3.0]])).to_vec::<f32>()?;
/// assert!((y[0] + 1.0).abs() < 1e-5 && (y[1] - 1.0).abs() < 1e-5);
/// # Ok::<(), retape::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct LayerNorm {
    /// `[features]`.
    pub scale: Tensor,
    /// `[features]`.
    pub offset: Tensor,
    /// A variance that is added, so that nothing is divided by zero; 1e-5 unless set.
    #[tree(static)]
    pub epsilon: f64,
}

impl BatchNorm {
    /// Scale one and offset zero.
    #[track_caller]
    pub fn new(channels: usize) -> BatchNorm {
        BatchNorm {
            scale: Tensor::ones([channels]),
            offset: Tensor::zeros([channels]),
            epsilon: EPSILON,
            momentum: MOMENTUM,
        }
    }

    /// Another epsilon than 1e-5.
    #[must_use]
    pub fn epsilon(self, epsilon: f64) -> BatchNorm {
        BatchNorm { epsilon, ..self }
    }

    /// Another momentum than 0.9.
    #[must_use]
    pub fn momentum(self, momentum: f64) -> BatchNorm {
        BatchNorm { momentum, ..self }
    }

    /// Normalises by the batch and returns the new running statistics: `momentum` of the old and the rest of the
    /// batch's.
    #[track_caller]
    pub fn apply(&self, x: &Tensor, state: &BatchNormState) -> (Tensor, BatchNormState) {
        let _method = method("BatchNorm::apply");
        let (y, mean, variance) = batch_norm(x, &self.scale, &self.offset, self.epsilon);
        (y, state.updated(&mean, &variance, self.momentum))
    }

    /// Normalises by running statistics.
    #[track_caller]
    pub fn infer(&self, x: &Tensor, state: &BatchNormState) -> Tensor {
        let _method = method("BatchNorm::infer");
        batch_norm_inference(x, &self.scale, &self.offset, &state.mean, &state.variance, self.epsilon)
    }
}

impl BatchNormState {
    /// Mean zero and variance one.
    #[track_caller]
    pub fn new(channels: usize) -> BatchNormState {
        BatchNormState { mean: Tensor::zeros([channels]), variance: Tensor::ones([channels]) }
    }

    /// `momentum` of these statistics and the rest of those given, without a gradient.
    #[track_caller]
    pub fn updated(&self, mean: &Tensor, variance: &Tensor, momentum: f64) -> BatchNormState {
        let _method = method("BatchNormState::updated");
        let blend = |old: &Tensor, new: &Tensor| old * momentum + new.stop_gradient() * (1.0 - momentum);
        BatchNormState { mean: blend(&self.mean, mean), variance: blend(&self.variance, variance) }
    }
}

impl LayerNorm {
    /// Scale one and offset zero.
    #[track_caller]
    pub fn new(features: usize) -> LayerNorm {
        LayerNorm { scale: Tensor::ones([features]), offset: Tensor::zeros([features]), epsilon: EPSILON }
    }

    /// Another epsilon than 1e-5.
    #[must_use]
    pub fn epsilon(self, epsilon: f64) -> LayerNorm {
        LayerNorm { epsilon, ..self }
    }

    /// Normalises over the last axis.
    #[track_caller]
    pub fn apply(&self, x: &Tensor) -> Tensor {
        let _method = method("LayerNorm::apply");
        layer_norm(x, &self.scale, &self.offset, self.epsilon)
    }
}
