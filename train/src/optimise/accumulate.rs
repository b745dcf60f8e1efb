//! Gradients of several batches as one.

use retape::{DType, Tensor, Tree, map, zip_map};

/// The weighted sum of gradients of several batches, whose mean is the gradient of all of them together.
///
/// For batches that do not fit into memory at once. It is a tree, so that it can be an argument and a result of an
/// accelerated function. Weights are the numbers of rows: a smaller last batch counts less, and the mean is that over
/// all rows if each gradient is the mean over its own.
///
/// ```
/// use retape::{Tensor, accelerate};
/// use retape_train::optimise::Accumulated;
///
/// let add = accelerate(|w: &Tensor, sum: &Accumulated<Tensor>, x: &Tensor| {
///     let gradient = (w * x).square().mean(..).grad(w);
///     sum.add(&gradient, &Tensor::from(x.dim(0) as f64))
/// });
/// let w = Tensor::from(1.0_f64);
/// let mut sum = Accumulated::zeros(&w);
/// for x in [Tensor::from([1.0_f64, 2.0]), Tensor::from([3.0_f64])] {
///     sum = add.call(&w, sum, &x)?;
/// }
/// let gradient = sum.mean().item::<f64>()?; // of the mean of all three squares
/// assert!((gradient - 2.0 * (1.0 + 4.0 + 9.0) / 3.0).abs() < 1e-12);
/// # Ok::<(), retape::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct Accumulated<P> {
    /// The sum of the gradients times their weights; a tree like the parameters.
    pub sum: P,
    /// The sum of the weights, an `f64` scalar.
    pub weight: Tensor,
}

impl<P: Tree> Accumulated<P> {
    /// The sum of nothing yet, on the device of the parameters.
    pub fn zeros(parameters: &P) -> Accumulated<P> {
        let sum = map(parameters, Tensor::zeros_like);
        let device = retape::tree::named(&sum).first().filter(|(_, p)| !p.is_traced()).map(|(_, p)| p.device());
        let weight = Tensor::from(0.0_f64).to(device.unwrap_or_default());
        Accumulated { sum, weight }
    }

    /// The sum with the gradient of one more batch, of this weight, a scalar.
    #[track_caller]
    pub fn add(&self, gradients: &P, weight: &Tensor) -> Accumulated<P> {
        let sum = zip_map([&self.sum, gradients], |[sum, g]| sum + g * weight.cast(g.dtype()));
        Accumulated { sum, weight: &self.weight + weight.cast(DType::F64) }
    }

    /// The mean gradient; NaN if nothing was added.
    #[track_caller]
    pub fn mean(&self) -> P {
        map(&self.sum, |sum| sum / self.weight.cast(sum.dtype()))
    }
}
