//! L2 regularisation, and clipping by value.

use retape::{Tensor, Tree, map, tree};

/// Gradients with the derivative of an L2 penalty: `g + factor(name) * p` for each parameter `p`.
///
/// The penalty is `factor / 2` times the sum of the squares. `factor` says how strong it is for the tensor of a name
/// ([`retape::tree::named`]), such as 0 for biases and the scales of normalisations. Unlike the decoupled decay of AdamW it
/// goes through the moments of the optimiser.
///
/// ```
/// use retape::{Tensor, nn::Dense};
/// use retape_train::optimise::add_l2;
///
/// let layer = Dense { weight: Tensor::full([1, 1], 2.0_f32), bias: Tensor::full([1], 2.0_f32) };
/// let zero = retape::map(&layer, Tensor::zeros_like);
/// let gradient = add_l2(&layer, &zero, |name| if name == "weight" { 0.5 } else { 0.0 });
/// assert_eq!(gradient.weight.to_vec::<f32>()?, [1.0]);
/// assert_eq!(gradient.bias.to_vec::<f32>()?, [0.0]);
/// # Ok::<(), retape::Error>(())
/// ```
#[track_caller]
pub fn add_l2<P: Tree>(parameters: &P, gradients: &P, factor: impl Fn(&str) -> f64) -> P {
    let mut factors =
        tree::named(parameters).into_iter().map(|(name, _)| factor(&name)).collect::<Vec<_>>().into_iter();
    retape::zip_map([parameters, gradients], |[p, g]| match factors.next() {
        Some(factor) if factor != 0.0 => g + p * factor,
        _ => g.clone(),
    })
}

/// Gradients each of whose elements is moved into `-limit..=limit`; NaN stays NaN.
///
/// ```
/// use retape::Tensor;
/// use retape_train::optimise::clip_by_value;
///
/// let clipped = clip_by_value(&Tensor::from([0.5_f32, -3.0]), 1.0);
/// assert_eq!(clipped.to_vec::<f32>()?, [0.5, -1.0]);
/// # Ok::<(), retape::Error>(())
/// ```
#[track_caller]
pub fn clip_by_value<P: Tree>(gradients: &P, limit: f64) -> P {
    map(gradients, |g: &Tensor| g.clamp(-limit, limit))
}
