//! The norm of gradients.

use retape::{DType, Tensor, Tree, map};

use super::mean::Mean;
use super::numbers::numbers;
use crate::Result;

/// The root of the sum of the squares of all floats in a tree, a scalar of `f64`; integers and truth values, which have
/// no gradient, are left out.
///
/// Squares are taken and added in `f64`, so that no `f32` and no 16-bit float is too large or too small for it.
/// Traced in a step it is part of its code; `cast` it to use it in a formula of another dtype.
///
/// ```
/// use retape::{Tensor, accelerate};
/// use retape_train::metrics::gradient_norm;
///
/// let gradient = (Tensor::from([3e30_f32]), Tensor::from([0.0_f32, 4e30]));
/// assert!((gradient_norm(&gradient).item::<f64>()? / 5e30 - 1.0).abs() < 1e-6); // squares beyond the range of f32
///
/// let step = accelerate(|w: &Tensor| gradient_norm(&w.square().sum(..).grad(w)));
/// assert_eq!(step.call(Tensor::from([1.5_f32, 2.0]))?.item::<f64>()?, 5.0);
/// # Ok::<(), retape::Error>(())
/// ```
#[track_caller]
pub fn gradient_norm<T: Tree>(gradient: &T) -> Tensor {
    let mut leaves = vec![];
    map(gradient, |leaf| {
        leaves.push(leaf.clone());
        leaf.clone()
    });
    leaves.retain(|leaf| leaf.dtype().is_float() || leaf.dtype().is_half());
    let squares = leaves.iter().map(|leaf| leaf.cast(DType::F64).square().sum(..));
    squares.reduce(|sum, square| sum + square).map_or_else(|| Tensor::full([], 0.0_f64), |sum| sum.sqrt())
}

/// The norms of the gradients of several steps: their mean, the last and the largest.
///
/// ```
/// use retape::Tensor;
/// use retape_train::metrics::GradientNorm;
///
/// let mut norm = GradientNorm::new();
/// norm.add(&(Tensor::from([3.0_f32]), Tensor::from([4.0_f32])))?; // a tree of gradients
/// norm.add_norm(&Tensor::full([], 1.0_f64))?;                     // a norm that the step returned
/// assert_eq!((norm.value(), norm.last(), norm.max()), (3.0, 1.0, 5.0));
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradientNorm {
    mean: Mean,
    last: f64,
    max: f64,
}

impl Default for GradientNorm {
    fn default() -> GradientNorm {
        GradientNorm { mean: Mean::new(), last: f64::NAN, max: f64::NAN }
    }
}

impl GradientNorm {
    /// The norm of nothing yet.
    pub fn new() -> GradientNorm {
        GradientNorm::default()
    }

    /// Adds the gradient of a step.
    ///
    /// # Errors
    ///
    /// Fails if a tensor is poisoned or being traced.
    #[track_caller]
    pub fn add<T: Tree>(&mut self, gradient: &T) -> Result<()> {
        self.add_norm(&gradient_norm(gradient))
    }

    /// Adds a norm that was already computed, as by [`gradient_norm`] in the traced step.
    ///
    /// # Errors
    ///
    /// Fails if the tensor is no float scalar, is poisoned or being traced.
    #[track_caller]
    pub fn add_norm(&mut self, norm: &Tensor) -> Result<()> {
        self.mean.add(norm, 1)?;
        self.last = numbers(norm)?[0];
        self.max = largest(self.max, self.last, self.mean.n() == 1);
        Ok(())
    }

    /// Adds what `other` has added, as what came after.
    pub fn merge(&mut self, other: &GradientNorm) {
        if other.mean.n() > 0 {
            self.max = largest(self.max, other.max, self.mean.n() == 0);
            self.last = other.last;
            self.mean.merge(&other.mean);
        }
    }

    /// The number of steps.
    pub fn n(&self) -> u64 {
        self.mean.n()
    }

    /// The mean over the steps; NaN if there is none.
    pub fn value(&self) -> f64 {
        self.mean.value()
    }

    /// The norm of the last step; NaN if there is none.
    pub fn last(&self) -> f64 {
        self.last
    }

    /// The largest norm of a step; NaN if there is none, or if one of them is NaN.
    pub fn max(&self) -> f64 {
        self.max
    }
}

/// The larger of two numbers, NaN if either is; just the new one if it `is_first`.
fn largest(old: f64, new: f64, is_first: bool) -> f64 {
    if is_first || new.is_nan() || new > old { new } else { old }
}
