//! The share of examples whose class is the likeliest, or among the likeliest.

use std::panic::Location;

use retape::{Caller, Tensor};

use super::examples::{Examples, check_pair, rank};
use super::numbers::{integers, refuse};
use crate::Result;

/// The share of examples whose class has the largest logit, in `[0, 1]`.
///
/// The [module's page](super) has the rules for logits and labels, ties and NaN.
///
/// ```
/// use retape::Tensor;
/// use retape_train::metrics::Accuracy;
///
/// let mut accuracy = Accuracy::new().ignore(-100);
/// let logits = Tensor::from([[0.1_f32, 0.9], [0.8, 0.2], [0.3, 0.3], [0.0, 1.0]]);
/// accuracy.add(&logits, &Tensor::from([1_i64, 1, 0, -100]))?; // right, wrong, a tie that goes to class 0, ignored
/// assert_eq!((accuracy.n_right(), accuracy.n()), (2, 3));
/// assert_eq!(accuracy.value(), 2.0 / 3.0);
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accuracy(Hits);

/// The share of examples whose class is among the `k` with the largest logits, in `[0, 1]`.
///
/// ```
/// use retape::Tensor;
/// use retape_train::metrics::TopK;
///
/// let mut top2 = TopK::new(2)?;
/// top2.add(&Tensor::from([[0.5_f32, 0.3, 0.2], [0.5, 0.3, 0.2]]), &Tensor::from([1_i64, 2]))?;
/// assert_eq!(top2.value(), 0.5);
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopK {
    k: usize,
    hits: Hits,
}

/// How many of how many examples were right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Hits {
    n_right: u64,
    n: u64,
    ignore: Option<i64>,
}

impl Hits {
    #[track_caller]
    fn add(&mut self, op: &str, k: usize, logits: &Tensor, labels: &Tensor, at: Caller) -> Result<()> {
        let examples = Examples::read(op, logits, labels, self.ignore, at)?;
        if k > examples.n_classes() {
            let what = format!("the first {k} of {} classes are more than there are", examples.n_classes());
            return Err(refuse(op, &what, at));
        }
        for (logits, class) in examples.counted() {
            self.n_right += u64::from(rank(logits, class).is_some_and(|rank| rank < k));
            self.n += 1;
        }
        Ok(())
    }

    fn merge(&mut self, other: &Hits) {
        self.n_right += other.n_right;
        self.n += other.n;
    }

    fn value(&self) -> f64 {
        self.n_right as f64 / self.n as f64
    }
}

impl Accuracy {
    /// The accuracy of nothing yet.
    pub fn new() -> Accuracy {
        Accuracy::default()
    }

    /// Leaves examples with this label out, and rows of zeros where labels are one-hot.
    pub fn ignore(mut self, label: i64) -> Accuracy {
        self.0.ignore = Some(label);
        self
    }

    /// Adds a batch.
    ///
    /// # Errors
    ///
    /// Fails if shapes or dtypes do not fit, a label is no class, or a tensor is poisoned or being traced.
    #[track_caller]
    pub fn add(&mut self, logits: &Tensor, labels: &Tensor) -> Result<()> {
        self.0.add("accuracy", 1, logits, labels, Location::caller())
    }

    /// Adds a batch whose predicted classes were already found, as with [`Tensor::argmax`] in the traced step.
    ///
    /// ```
    /// # use retape::Tensor;
    /// # use retape_train::metrics::Accuracy;
    /// let mut accuracy = Accuracy::new();
    /// accuracy.add_predictions(&Tensor::from([3_i64, 1]), &Tensor::from([3_u8, 2]))?;
    /// assert_eq!(accuracy.value(), 0.5);
    /// # Ok::<(), retape_train::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the shapes differ, a dtype is no integer, a label is negative and not ignored, or a tensor is poisoned or
    /// being traced.
    #[track_caller]
    pub fn add_predictions(&mut self, predicted: &Tensor, labels: &Tensor) -> Result<()> {
        let at = Location::caller();
        check_pair("accuracy", predicted, labels, at)?;
        let predicted = integers("accuracy", "predictions", predicted, at)?;
        let labels = integers("accuracy", "labels", labels, at)?;
        let stray = |(_, label): &(usize, &i64)| **label < 0 && Some(**label) != self.0.ignore;
        if let Some((example, label)) = labels.iter().enumerate().find(stray) {
            return Err(refuse("accuracy", &format!("among the labels, {label} at {example} is no class"), at));
        }
        for (predicted, label) in predicted.into_iter().zip(labels) {
            if Some(label) != self.0.ignore {
                self.0.n_right += u64::from(predicted == label);
                self.0.n += 1;
            }
        }
        Ok(())
    }

    /// Adds what `other` has added.
    pub fn merge(&mut self, other: &Accuracy) {
        self.0.merge(&other.0);
    }

    /// The number of examples that were right.
    pub fn n_right(&self) -> u64 {
        self.0.n_right
    }

    /// The number of examples, ignored ones aside.
    pub fn n(&self) -> u64 {
        self.0.n
    }

    /// The share that was right; NaN if there is no example.
    pub fn value(&self) -> f64 {
        self.0.value()
    }
}

impl TopK {
    /// The share of nothing yet.
    ///
    /// # Errors
    ///
    /// Fails if `k` is zero.
    #[track_caller]
    pub fn new(k: usize) -> Result<TopK> {
        match k {
            0 => Err(refuse("top_k", "nothing is among the first 0 classes", Location::caller())),
            k => Ok(TopK { k, hits: Hits::default() }),
        }
    }

    /// Leaves examples with this label out, and rows of zeros where labels are one-hot.
    pub fn ignore(mut self, label: i64) -> TopK {
        self.hits.ignore = Some(label);
        self
    }

    /// Adds a batch.
    ///
    /// # Errors
    ///
    /// Fails if there are fewer than `k` classes, shapes or dtypes do not fit, a label is no class, or a tensor is
    /// poisoned or being traced.
    #[track_caller]
    pub fn add(&mut self, logits: &Tensor, labels: &Tensor) -> Result<()> {
        self.hits.add("top_k", self.k, logits, labels, Location::caller())
    }

    /// Adds what `other` has added.
    ///
    /// # Errors
    ///
    /// Fails if `other` has another `k`.
    #[track_caller]
    pub fn merge(&mut self, other: &TopK) -> Result<()> {
        if self.k != other.k {
            let what = format!("the first {} cannot be merged with the first {}", self.k, other.k);
            return Err(refuse("top_k", &what, Location::caller()));
        }
        self.hits.merge(&other.hits);
        Ok(())
    }

    /// How many of the likeliest classes count.
    pub fn k(&self) -> usize {
        self.k
    }

    /// The number of examples, ignored ones aside.
    pub fn n(&self) -> u64 {
        self.hits.n
    }

    /// The share that was right; NaN if there is no example.
    pub fn value(&self) -> f64 {
        self.hits.value()
    }
}
