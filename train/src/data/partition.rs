//! Which examples belong to which part of a data set, as indices.

use std::collections::BTreeMap;

use retape::data::Random;

use crate::error::{Error, Result};

/// The stream of random numbers that chooses held-out examples.
const SPLIT: u64 = 0x73706C6974;

/// The indices to learn from and those held out, each in ascending order.
#[track_caller]
pub(super) fn split(n: usize, fraction: f64, seed: u64) -> Result<(Vec<usize>, Vec<usize>)> {
    split_by_label(&vec![0; n], fraction, seed)
}

/// As [`split`], within each label.
#[track_caller]
pub(super) fn split_by_label(labels: &[i32], fraction: f64, seed: u64) -> Result<(Vec<usize>, Vec<usize>)> {
    if !(0.0..=1.0).contains(&fraction) {
        return Err(Error::argument(format!("{fraction} is no fraction of the examples to hold out")));
    }
    let mut by_label: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
    for (index, &label) in labels.iter().enumerate() {
        by_label.entry(label).or_default().push(index);
    }
    let mut is_held_out = vec![false; labels.len()];
    for (label, mut indices) in by_label {
        Random::new(seed, SPLIT, i64::from(label) as u64).shuffle(&mut indices);
        let n_held_out = (indices.len() as f64 * fraction).round() as usize;
        indices.iter().take(n_held_out).for_each(|&index| is_held_out[index] = true);
    }
    Ok((0..labels.len()).partition(|&index| !is_held_out[index]))
}

/// The indices of part `index` of `count`.
#[track_caller]
pub(super) fn shard(n: usize, index: usize, count: usize) -> Result<Vec<usize>> {
    if index >= count {
        return Err(Error::argument(format!("there is no shard {index} among {count}")));
    }
    Ok((index..n).step_by(count).collect())
}
