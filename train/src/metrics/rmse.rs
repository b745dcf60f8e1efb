//! How far predicted numbers are from the true ones.

use std::panic::Location;

use retape::Tensor;

use super::numbers::{floats, refuse, type_of};
use super::sum::Sum;
use crate::Result;

/// The root of the mean of all squared differences between predictions and targets.
///
/// The mean is over the elements of all batches, so it is not the mean of the roots of batches.
///
/// ```
/// use retape::Tensor;
/// use retape_train::metrics::Rmse;
///
/// let mut rmse = Rmse::new();
/// rmse.add(&Tensor::from([1.0_f32, 2.0, 3.0]), &Tensor::from([1.0_f32, 2.0, 5.0]))?;
/// rmse.add(&Tensor::from([4.0_f32]), &Tensor::from([4.0_f32]))?;
/// assert_eq!(rmse.value(), 1.0);
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rmse {
    squares: Sum,
    n: u64,
}

impl Rmse {
    /// The error of nothing yet.
    pub fn new() -> Rmse {
        Rmse::default()
    }

    /// Adds a batch of floats; both tensors are of one shape, and each may be of any dtype of floats.
    ///
    /// # Errors
    ///
    /// Fails if the shapes differ, a dtype is no float, or a tensor is poisoned or being traced.
    #[track_caller]
    pub fn add(&mut self, predictions: &Tensor, targets: &Tensor) -> Result<()> {
        let at = Location::caller();
        let (a, b) = (floats("rmse", "predictions", predictions, at)?, floats("rmse", "targets", targets, at)?);
        if predictions.shape() != targets.shape() {
            let what = format!("the predictions are {}, and the targets {}", type_of(predictions), type_of(targets));
            return Err(refuse("rmse", &what, at));
        }
        a.iter().zip(&b).for_each(|(a, b)| self.squares.add((a - b) * (a - b)));
        self.n += a.len() as u64;
        Ok(())
    }

    /// Adds what `other` has added.
    pub fn merge(&mut self, other: &Rmse) {
        self.squares.merge(other.squares);
        self.n += other.n;
    }

    /// The number of elements.
    pub fn n(&self) -> u64 {
        self.n
    }

    /// The root of the mean; NaN if there is no element.
    pub fn value(&self) -> f64 {
        (self.squares.value() / self.n as f64).sqrt()
    }
}
