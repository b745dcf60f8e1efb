//! Which classes are taken for which.

use std::panic::Location;

use retape::{Caller, Tensor};

use super::examples::{Examples, check_pair, classes, predicted};
use super::numbers::refuse;
use crate::Result;

/// How often each class was predicted for examples of each class.
///
/// Examples with a NaN among their logits have no prediction; they are counted apart, and are wrong.
///
/// ```
/// use retape::Tensor;
/// use retape_train::metrics::Confusion;
///
/// let mut confusion = Confusion::new(2)?;
/// let logits = Tensor::from([[0.9_f32, 0.1], [0.2, 0.8], [0.7, 0.3]]);
/// confusion.add(&logits, &Tensor::from([0_i64, 1, 1]))?;
/// assert_eq!(confusion.value(), [[1, 0], [1, 1]]); // rows are true classes, columns predicted ones
/// assert_eq!((confusion.recall(1), confusion.precision(0)), (0.5, 0.5));
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confusion {
    n_classes: usize,
    /// Row by row.
    counts: Vec<u64>,
    /// Examples of each class for which nothing was predicted.
    unpredicted: Vec<u64>,
    ignore: Option<i64>,
}

impl Confusion {
    /// The counts of nothing yet.
    ///
    /// # Errors
    ///
    /// Fails if there are no classes.
    #[track_caller]
    pub fn new(n_classes: usize) -> Result<Confusion> {
        if n_classes == 0 {
            return Err(refuse("confusion", "there are no classes", Location::caller()));
        }
        Ok(Confusion {
            n_classes,
            counts: vec![0; n_classes * n_classes],
            unpredicted: vec![0; n_classes],
            ignore: None,
        })
    }

    /// The sum of the counts of several workers, or counts that were kept: `counts` has a row for each true class and a
    /// column for each predicted one, `unpredicted` the examples of each class for which nothing was predicted.
    ///
    /// ```
    /// use retape_train::metrics::Confusion;
    ///
    /// let confusion = Confusion::from_counts(&[vec![3, 1], vec![0, 4]], &[0, 0])?;
    /// assert_eq!(confusion.accuracy(), 0.875);
    /// # Ok::<(), retape_train::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if there are no classes, or not as many in each row and in `unpredicted` as there are rows.
    #[track_caller]
    pub fn from_counts(counts: &[Vec<u64>], unpredicted: &[u64]) -> Result<Confusion> {
        let n_classes = counts.len();
        let lens = counts.iter().map(Vec::len).chain([unpredicted.len()]);
        if let Some(len) = lens.into_iter().find(|&len| len != n_classes) {
            let what = format!("{n_classes} rows of counts, and {len} classes in one of them");
            return Err(refuse("confusion", &what, Location::caller()));
        }
        let empty = Confusion::new(n_classes)?;
        Ok(Confusion { counts: counts.concat(), unpredicted: unpredicted.to_vec(), ..empty })
    }

    /// Leaves examples with this label out, and rows of zeros where labels are one-hot.
    pub fn ignore(mut self, label: i64) -> Confusion {
        self.ignore = Some(label);
        self
    }

    /// Adds a batch.
    ///
    /// # Errors
    ///
    /// Fails if the logits have another number of classes, shapes or dtypes do not fit, a label is no class, or a tensor
    /// is poisoned or being traced.
    #[track_caller]
    pub fn add(&mut self, logits: &Tensor, labels: &Tensor) -> Result<()> {
        let at = Location::caller();
        let examples = Examples::read("confusion", logits, labels, self.ignore, at)?;
        if examples.n_classes() != self.n_classes {
            let what = format!("logits of {} classes, and a matrix of {}", examples.n_classes(), self.n_classes);
            return Err(refuse("confusion", &what, at));
        }
        examples.counted().for_each(|(logits, class)| self.count(class, predicted(logits)));
        Ok(())
    }

    /// Adds a batch whose predicted classes were already found, as with [`Tensor::argmax`] in the traced step.
    ///
    /// ```
    /// # use retape::Tensor;
    /// # use retape_train::metrics::Confusion;
    /// let mut confusion = Confusion::new(3)?;
    /// confusion.add_predictions(&Tensor::from([2_i64, 1]), &Tensor::from([0_i64, 1]))?;
    /// assert_eq!((confusion.count_of(0, 2), confusion.count_of(1, 1)), (1, 1));
    /// # Ok::<(), retape_train::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the shapes differ, a dtype is no integer, something is no class, or a tensor is poisoned or being
    /// traced.
    #[track_caller]
    pub fn add_predictions(&mut self, predicted: &Tensor, labels: &Tensor) -> Result<()> {
        let at = Location::caller();
        check_pair("confusion", predicted, labels, at)?;
        let read = |name, x, ignore, at: Caller| classes("confusion", name, x, self.n_classes, ignore, at);
        let predicted = read("predictions", predicted, None, at)?;
        let labels = read("labels", labels, self.ignore, at)?;
        for (predicted, label) in predicted.into_iter().zip(labels) {
            if let Some(class) = label {
                self.count(class, predicted);
            }
        }
        Ok(())
    }

    fn count(&mut self, class: usize, predicted: Option<usize>) {
        match predicted {
            Some(predicted) => self.counts[class * self.n_classes + predicted] += 1,
            None => self.unpredicted[class] += 1,
        }
    }

    /// Adds what `other` has added.
    ///
    /// # Errors
    ///
    /// Fails if `other` has another number of classes.
    #[track_caller]
    pub fn merge(&mut self, other: &Confusion) -> Result<()> {
        if self.n_classes != other.n_classes {
            let what = format!("{} classes cannot be merged with {}", self.n_classes, other.n_classes);
            return Err(refuse("confusion", &what, Location::caller()));
        }
        let add = |own: &mut Vec<u64>, other: &[u64]| own.iter_mut().zip(other).for_each(|(own, other)| *own += other);
        add(&mut self.counts, &other.counts);
        add(&mut self.unpredicted, &other.unpredicted);
        Ok(())
    }

    /// The number of classes.
    pub fn n_classes(&self) -> usize {
        self.n_classes
    }

    /// The counts: a row for each true class, a column for each predicted one.
    pub fn value(&self) -> Vec<Vec<u64>> {
        self.counts.chunks_exact(self.n_classes).map(<[u64]>::to_vec).collect()
    }

    /// How often `predicted` was predicted for examples of `class`; zero if either is no class.
    pub fn count_of(&self, class: usize, predicted: usize) -> u64 {
        let column = (predicted < self.n_classes).then_some(predicted);
        column.and_then(|column| self.counts.get(class * self.n_classes + column)).copied().unwrap_or(0)
    }

    /// The number of examples of each class for which nothing was predicted, since a logit was NaN.
    pub fn unpredicted(&self) -> &[u64] {
        &self.unpredicted
    }

    /// The number of examples of a class.
    fn n_of(&self, class: usize) -> u64 {
        let row: u64 = (0..self.n_classes).map(|predicted| self.count_of(class, predicted)).sum();
        row + self.unpredicted.get(class).copied().unwrap_or(0)
    }

    /// The number of examples, ignored ones aside.
    pub fn n(&self) -> u64 {
        (0..self.n_classes).map(|class| self.n_of(class)).sum()
    }

    /// The share of all examples that was right; NaN if there is none.
    pub fn accuracy(&self) -> f64 {
        let right: u64 = (0..self.n_classes).map(|class| self.count_of(class, class)).sum();
        right as f64 / self.n() as f64
    }

    /// Of the examples of a class, the share that was found; NaN if there is none.
    pub fn recall(&self, class: usize) -> f64 {
        self.count_of(class, class) as f64 / self.n_of(class) as f64
    }

    /// Of the examples that were taken for a class, the share that is of it; NaN if there is none.
    pub fn precision(&self, class: usize) -> f64 {
        let taken: u64 = (0..self.n_classes).map(|of| self.count_of(of, class)).sum();
        self.count_of(class, class) as f64 / taken as f64
    }

    /// The harmonic mean of [precision](Confusion::precision) and [recall](Confusion::recall), which is
    /// `2 right / (2 right + taken for it wrongly + missed)`; NaN if the class neither is nor was predicted.
    pub fn f1(&self, class: usize) -> f64 {
        let taken: u64 = (0..self.n_classes).map(|of| self.count_of(of, class)).sum();
        2.0 * self.count_of(class, class) as f64 / (taken + self.n_of(class)) as f64
    }
}
