//! Logits and labels of a batch, checked.

use retape::{Caller, Tensor};

use super::numbers::{floats, integers, numbers, refuse, type_of};
use crate::Result;

/// The examples of a batch: a row of logits each, and its class unless it is ignored.
pub(super) struct Examples {
    logits: Vec<f64>,
    n_classes: usize,
    labels: Vec<Option<usize>>,
}

impl Examples {
    /// Reads a batch for `op`; examples with the label `ignore` have none.
    #[track_caller]
    pub(super) fn read(
        op: &str,
        logits: &Tensor,
        labels: &Tensor,
        ignore: Option<i64>,
        at: Caller,
    ) -> Result<Examples> {
        let values = floats(op, "logits", logits, at)?;
        if let Some(error) = labels.error() {
            return Err(error.clone().into());
        }
        let Some((&n_classes, shape)) = logits.shape().split_last().filter(|(n_classes, _)| **n_classes > 0) else {
            let what = format!("the logits are {}, which has no classes along a last axis", type_of(logits));
            return Err(refuse(op, &what, at));
        };
        let labels = if labels.shape() == shape {
            classes(op, "labels", labels, n_classes, ignore, at)?
        } else if labels.shape() == logits.shape() {
            one_hot(op, labels, n_classes, ignore, at)?
        } else {
            let what = format!(
                "the labels are {}, and the logits {}; they have to be of shape {shape:?}, or one-hot of {:?}",
                type_of(labels),
                type_of(logits),
                logits.shape()
            );
            return Err(refuse(op, &what, at));
        };
        Ok(Examples { logits: values, n_classes, labels })
    }

    pub(super) fn n_classes(&self) -> usize {
        self.n_classes
    }

    /// The logits and class of each example that is not ignored.
    pub(super) fn counted(&self) -> impl Iterator<Item = (&[f64], usize)> {
        let rows = self.logits.chunks_exact(self.n_classes);
        rows.zip(&self.labels).filter_map(|(row, &label)| Some((row, label?)))
    }
}

/// The classes that a tensor of integers holds, in `0..n_classes` or `ignore`.
#[track_caller]
pub(super) fn classes(
    op: &str,
    name: &str,
    labels: &Tensor,
    n_classes: usize,
    ignore: Option<i64>,
    at: Caller,
) -> Result<Vec<Option<usize>>> {
    let class = |(example, label): (usize, i64)| {
        if Some(label) == ignore {
            return Ok(None);
        }
        match usize::try_from(label).ok().filter(|&class| class < n_classes) {
            Some(class) => Ok(Some(class)),
            None => {
                let what = format!("among the {name}, {label} at {example} is no class of 0..{n_classes}");
                Err(refuse(op, &what, at))
            }
        }
    };
    integers(op, name, labels, at)?.into_iter().enumerate().map(class).collect()
}

/// The classes of rows with one 1 and zeros; a row of zeros is what one-hot makes of a label to ignore.
#[track_caller]
fn one_hot(op: &str, labels: &Tensor, n_classes: usize, ignore: Option<i64>, at: Caller) -> Result<Vec<Option<usize>>> {
    let values = numbers(labels)?;
    let class = |(example, row): (usize, &[f64])| {
        let mut ones = row.iter().enumerate().filter(|(_, x)| **x != 0.0);
        match (ones.next(), ones.next()) {
            (Some((class, &1.0)), None) => Ok(Some(class)),
            (None, None) if ignore.is_some() => Ok(None),
            _ => {
                let what = format!("row {example} of the labels {} is not one-hot", type_of(labels));
                Err(refuse(op, &what, at))
            }
        }
    };
    values.chunks_exact(n_classes).enumerate().map(class).collect()
}

/// The number of classes before `class` in the order of falling logits, the lower class first among equals; none if a
/// logit is NaN.
pub(super) fn rank(logits: &[f64], class: usize) -> Option<usize> {
    let own = logits[class];
    let is_before = |(other, &x): (usize, &f64)| x > own || x == own && other < class;
    if logits.iter().any(|x| x.is_nan()) {
        return None;
    }
    Some(logits.iter().enumerate().filter(|&entry| is_before(entry)).count())
}

/// The class of the largest logit, the lowest among equals; none if a logit is NaN.
pub(super) fn predicted(logits: &[f64]) -> Option<usize> {
    let mut best = 0;
    for (class, x) in logits.iter().enumerate() {
        if x.is_nan() {
            return None;
        }
        if *x > logits[best] {
            best = class;
        }
    }
    Some(best)
}

/// The shapes of predicted classes and labels have to be equal, and both tensors sound.
pub(super) fn check_pair(op: &str, predicted: &Tensor, labels: &Tensor, at: Caller) -> Result<()> {
    if let Some(error) = predicted.error().or(labels.error()) {
        return Err(error.clone().into());
    }
    if predicted.shape() != labels.shape() {
        let what = format!("the predictions are {}, and the labels {}", type_of(predicted), type_of(labels));
        return Err(refuse(op, &what, at));
    }
    Ok(())
}
