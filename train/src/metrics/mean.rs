//! Means, such as that of the loss.

use std::panic::Location;

use retape::Tensor;

use super::numbers::{floats, refuse, type_of};
use super::sum::Sum;
use crate::Result;

/// The mean over examples of something that is computed batch by batch, such as the loss.
///
/// NaN and infinities are not left out: the mean is what it would be over all examples.
///
/// ```
/// use retape::Tensor;
/// use retape_train::metrics::Mean;
///
/// let mut loss = Mean::new();
/// loss.add(&Tensor::full([], 1.0_f32), 32)?; // the mean over a batch of 32
/// loss.add(&Tensor::full([], 4.0_f32), 16)?; // over a last batch of 16
/// assert_eq!(loss.value(), 2.0);
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    sum: Sum,
    n: u64,
}

impl Mean {
    /// The mean of nothing yet.
    pub fn new() -> Mean {
        Mean::default()
    }

    /// Adds a batch of `n_examples` by its mean, a float scalar.
    ///
    /// # Errors
    ///
    /// Fails if the tensor is no scalar, no float, poisoned or being traced.
    #[track_caller]
    pub fn add(&mut self, mean: &Tensor, n_examples: usize) -> Result<()> {
        let at = Location::caller();
        match floats("mean", "values", mean, at)?[..] {
            [mean] => self.add_number(mean, n_examples),
            _ => return Err(refuse("mean", &format!("the mean of a batch is one number, not {}", type_of(mean)), at)),
        }
        Ok(())
    }

    /// Adds a batch of `n_examples` by its mean.
    ///
    /// ```
    /// # use retape_train::metrics::Mean;
    /// let mut mean = Mean::new();
    /// mean.add_number(3.0, 1);
    /// mean.add_number(6.0, 2);
    /// assert_eq!((mean.value(), mean.n()), (5.0, 3));
    /// ```
    pub fn add_number(&mut self, mean: f64, n_examples: usize) {
        // A batch of nothing has no mean, and NaN times zero would count.
        if n_examples > 0 {
            self.sum.add(mean * n_examples as f64);
            self.n += n_examples as u64;
        }
    }

    /// Adds each element of a tensor of floats, such as the losses of single examples.
    ///
    /// ```
    /// # use retape::Tensor;
    /// # use retape_train::metrics::Mean;
    /// let mut mean = Mean::new();
    /// mean.add_each(&Tensor::from([1.0_f32, 2.0, 6.0]))?;
    /// assert_eq!(mean.value(), 3.0);
    /// # Ok::<(), retape_train::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the tensor is no float, poisoned or being traced.
    #[track_caller]
    pub fn add_each(&mut self, values: &Tensor) -> Result<()> {
        let values = floats("mean", "values", values, Location::caller())?;
        values.iter().for_each(|&value| self.add_number(value, 1));
        Ok(())
    }

    /// Adds what `other` has added.
    pub fn merge(&mut self, other: &Mean) {
        self.sum.merge(other.sum);
        self.n += other.n;
    }

    /// The number of examples.
    pub fn n(&self) -> u64 {
        self.n
    }

    /// The mean over all examples; NaN if there is none.
    pub fn value(&self) -> f64 {
        self.sum.value() / self.n as f64
    }
}
