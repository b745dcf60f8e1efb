//! Early stopping, and the best state.

use serde::{Deserialize, Serialize};

use crate::json::Number;

/// Whether small or large values of a metric are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Goal {
    /// Small ones, as of a loss.
    Lowest,
    /// Large ones, as of an accuracy.
    Highest,
}

impl Goal {
    /// Whether `value` is better than `than` by more than `by`. NaN never is, and any number is better than NaN or none.
    pub fn is_better(self, value: f64, than: Option<f64>, by: f64) -> bool {
        let better = |than: f64| match self {
            Goal::Lowest => value < than - by,
            Goal::Highest => value > than + by,
        };
        !value.is_nan() && than.is_none_or(|than| than.is_nan() || better(than))
    }
}

/// Stops a training whose validations get no better (early stopping; Prechelt, 1998).
///
/// It is serialised with a checkpoint, so that a resumed run stops where the whole one would have; one that had already
/// stopped asks [`is_exhausted`](Patience::is_exhausted) before its first step.
///
/// ```
/// use retape_train::progress::{Goal, Patience, Verdict};
///
/// let mut patience = Patience::new(2, Goal::Lowest);
/// assert_eq!(patience.observe(0.5), Verdict::Best);
/// assert_eq!(patience.observe(0.6), Verdict::Worse);
/// assert_eq!(patience.observe(f64::NAN), Verdict::Exhausted);
/// assert_eq!(patience.best(), Some(0.5));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Patience {
    most: u64,
    goal: Goal,
    least_change: f64,
    best: Option<Number>,
    n_worse: u64,
}

/// The outcome of a validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the best so far.
    Best,
    /// It is not, but there is patience left.
    Worse,
    /// It is not, and neither were those before it for as long as there was patience.
    Exhausted,
}

impl Patience {
    /// Bears `most` validations in a row that are no better than the best before them; with the last of them it ends. It
    /// never ends with 0.
    pub fn new(most: u64, goal: Goal) -> Patience {
        Patience { most, goal, least_change: 0.0, best: None, n_worse: 0 }
    }

    /// Sets by how much a value must be better to count; 0 unless set.
    #[must_use]
    pub fn least_change(self, least_change: f64) -> Patience {
        Patience { least_change, ..self }
    }

    /// Takes in the value of a validation. NaN is worse than any number.
    pub fn observe(&mut self, value: f64) -> Verdict {
        if self.goal.is_better(value, self.best(), self.least_change) {
            (self.best, self.n_worse) = (Some(Number(value)), 0);
            return Verdict::Best;
        }
        self.n_worse += 1;
        if self.is_exhausted() { Verdict::Exhausted } else { Verdict::Worse }
    }

    /// The best value so far.
    pub fn best(&self) -> Option<f64> {
        self.best.map(|Number(best)| best)
    }

    /// Whether there is no patience left.
    pub fn is_exhausted(&self) -> bool {
        self.most > 0 && self.n_worse >= self.most
    }
}

/// Keeps the best state of a training, by a metric.
///
/// Tensors do not change, so that keeping a state costs its memory and no time.
///
/// ```
/// use retape::Tensor;
/// use retape_train::progress::{BestState, Goal};
///
/// let mut best = BestState::new(Goal::Highest);
/// for (accuracy, w) in [(0.7, 1.0_f32), (0.9, 2.0), (0.8, 3.0)] {
///     best.observe(accuracy, &Tensor::from(w));
/// }
/// let (accuracy, w) = best.into_inner().expect("one of three is best");
/// assert_eq!((accuracy, w.item::<f32>()?), (0.9, 2.0));
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct BestState<T> {
    goal: Goal,
    best: Option<(f64, T)>,
}

impl<T: Clone> BestState<T> {
    /// Nothing yet.
    pub fn new(goal: Goal) -> BestState<T> {
        BestState { goal, best: None }
    }

    /// Takes in a state and its metric, and says whether it is the best so far. NaN never is.
    pub fn observe(&mut self, value: f64, state: &T) -> bool {
        let is_best = self.goal.is_better(value, self.best.as_ref().map(|(best, _)| *best), 0.0);
        if is_best {
            self.best = Some((value, state.clone()));
        }
        is_best
    }

    /// The best metric and state so far.
    pub fn get(&self) -> Option<(f64, &T)> {
        self.best.as_ref().map(|(value, state)| (*value, state))
    }

    /// The best metric and state.
    pub fn into_inner(self) -> Option<(f64, T)> {
        self.best
    }
}
