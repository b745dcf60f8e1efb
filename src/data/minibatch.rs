//! Mini-batches: which rows of a data set belong together in each step of an epoch.
//!
//! Guarantees that the order of an epoch depends on the seed and the epoch's number alone.

use super::error::DataError;
use super::random::Random;

/// The stream of random numbers that orders epochs.
const EPOCH: u64 = 10;

/// The treatment of the last rows of an epoch when they do not fill a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Partial {
    /// They form a smaller batch.
    #[default]
    Keep,
    /// They are left out of this epoch, so that all batches have one shape.
    Discard,
}

/// A division of `n` rows into batches, anew for each epoch.
///
/// ```
/// use retape::data::{MiniBatches, Partial};
///
/// let batches = MiniBatches::new(10, 4)?.shuffled(1).partial(Partial::Discard);
/// assert_eq!(batches.n_batches(), 2);
/// for batch in &batches.epoch(0) {
///     assert_eq!(batch.len(), 4);
/// }
/// # Ok::<(), retape::data::DataError>(())
/// ```
#[derive(Clone, Debug)]
pub struct MiniBatches {
    n_rows: usize,
    batch_size: usize,
    seed: Option<u64>,
    partial: Partial,
}

impl MiniBatches {
    /// Divides rows `0..n` into batches of `batch_size`, in order, the last one possibly smaller.
    ///
    /// # Errors
    ///
    /// If `batch_size` is zero, or memory cannot hold the order of so many rows.
    pub fn new(n: usize, batch_size: usize) -> Result<MiniBatches, DataError> {
        if batch_size == 0 {
            return Err(DataError::argument("a batch must hold at least one row"));
        }
        // Asked for here, where it can be refused: an epoch needs it.
        reserved::<usize>(n)?;
        Ok(MiniBatches { n_rows: n, batch_size, seed: None, partial: Partial::default() })
    }

    /// Shuffles the rows anew for each epoch, by the method of Fisher and Yates on [`Random`].
    pub fn shuffled(self, seed: u64) -> MiniBatches {
        MiniBatches { seed: Some(seed), ..self }
    }

    /// Says what happens to a last batch that is not full.
    pub fn partial(self, partial: Partial) -> MiniBatches {
        MiniBatches { partial, ..self }
    }

    /// The number of batches in every epoch.
    pub fn n_batches(&self) -> usize {
        match self.partial {
            Partial::Keep => self.n_rows.div_ceil(self.batch_size),
            Partial::Discard => self.n_rows / self.batch_size,
        }
    }

    /// The batches of epoch number `epoch`.
    pub fn epoch(&self, epoch: u64) -> Epoch {
        let mut order: Vec<usize> = (0..self.n_rows).collect();
        if let Some(seed) = self.seed {
            Random::new(seed, EPOCH, epoch).shuffle(&mut order);
        }
        if self.partial == Partial::Discard {
            order.truncate(self.n_batches() * self.batch_size);
        }
        Epoch { order, batch_size: self.batch_size }
    }
}

/// The batches of one epoch; iterate over a reference to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epoch {
    order: Vec<usize>,
    batch_size: usize,
}

impl Epoch {
    /// Iterates over the batches, each the indices of its rows.
    pub fn iter(&self) -> std::slice::Chunks<'_, usize> {
        self.order.chunks(self.batch_size)
    }
}

impl<'a> IntoIterator for &'a Epoch {
    type Item = &'a [usize];
    type IntoIter = std::slice::Chunks<'a, usize>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Copies the rows `indices` of `data`, each `row_len` long, into one piece.
///
/// ```
/// let pairs = [1.0, 2.0, 3.0, 4.0];
/// assert_eq!(retape::data::gather(&pairs, 2, &[1, 0])?, [3.0, 4.0, 1.0, 2.0]);
/// # Ok::<(), retape::data::DataError>(())
/// ```
///
/// # Errors
///
/// If `data` is no whole number of rows, an index lies beyond them, or memory cannot hold the result.
pub fn gather<T: Copy>(data: &[T], row_len: usize, indices: &[usize]) -> Result<Vec<T>, DataError> {
    let n_rows = data.len().checked_div(row_len).unwrap_or(0);
    if n_rows * row_len != data.len() {
        return Err(DataError::argument(format!("{} values are no whole number of rows of {row_len}", data.len())));
    }
    if let Some(index) = indices.iter().find(|&&index| index >= n_rows) {
        return Err(DataError::argument(format!("there is no row {index} among {n_rows}")));
    }
    let mut batch = reserved(indices.len().saturating_mul(row_len))?;
    for &index in indices {
        batch.extend_from_slice(&data[index * row_len..][..row_len]);
    }
    Ok(batch)
}

/// Encodes each label as a row of `n_classes` numbers: one at the label, zero elsewhere.
///
/// A label that is no class is an error here; [`Tensor::one_hot`](crate::Tensor::one_hot), which cannot see the labels
/// while it is traced, makes a row of NaN of it.
///
/// ```
/// assert_eq!(retape::data::one_hot(&[1], 3)?, [0.0, 1.0, 0.0]);
/// # Ok::<(), retape::data::DataError>(())
/// ```
///
/// # Errors
///
/// If a label is not below `n_classes`, or memory cannot hold the rows.
pub fn one_hot(labels: &[u8], n_classes: usize) -> Result<Vec<f32>, DataError> {
    if let Some(label) = labels.iter().find(|&&label| usize::from(label) >= n_classes) {
        return Err(DataError::argument(format!("label {label} with {n_classes} classes")));
    }
    let mut rows = reserved(labels.len().saturating_mul(n_classes))?;
    for &label in labels {
        let start = rows.len();
        rows.resize(start + n_classes, 0.0);
        rows[start + usize::from(label)] = 1.0;
    }
    Ok(rows)
}

/// An empty list with room for `n` elements.
pub(super) fn reserved<T>(n: usize) -> Result<Vec<T>, DataError> {
    let mut list = Vec::new();
    match list.try_reserve_exact(n) {
        Ok(()) => Ok(list),
        Err(_) => Err(DataError::argument(format!("memory cannot hold {n} elements of {} bytes", size_of::<T>()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_batch_is_kept_or_discarded() {
        let keep = MiniBatches::new(5000, 32).unwrap().shuffled(1);
        assert_eq!((keep.n_batches(), keep.epoch(0).iter().count()), (157, 157));
        assert_eq!(keep.epoch(0).iter().last().map(<[usize]>::len), Some(8));
        let discard = keep.partial(Partial::Discard);
        assert_eq!((discard.n_batches(), discard.epoch(0).iter().count()), (156, 156));
        assert!(discard.epoch(0).iter().all(|batch| batch.len() == 32));
    }

    #[test]
    fn an_epoch_is_a_permutation_and_epochs_differ() {
        let batches = MiniBatches::new(1000, 32).unwrap().shuffled(5);
        let mut rows: Vec<usize> = batches.epoch(3).iter().flatten().copied().collect();
        assert!(!rows.is_sorted());
        rows.sort_unstable();
        assert!(rows.iter().copied().eq(0..1000));
        assert_eq!(batches.epoch(3), batches.epoch(3));
        assert_ne!(batches.epoch(3), batches.epoch(4));
        assert_ne!(batches.epoch(3), batches.clone().shuffled(6).epoch(3));
    }

    #[test]
    fn without_a_seed_rows_stay_in_order() {
        let batches = MiniBatches::new(5, 2).unwrap();
        let epoch = batches.epoch(8);
        let rows: Vec<&[usize]> = epoch.iter().collect();
        assert_eq!(rows, [&[0, 1][..], &[2, 3], &[4]]);
        assert_eq!(MiniBatches::new(0, 2).unwrap().epoch(0).iter().count(), 0);
        assert!(MiniBatches::new(5, 0).is_err());
    }

    #[test]
    fn rows_are_gathered_in_the_order_of_their_indices() {
        let data = [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0];
        assert_eq!(gather(&data, 2, &[2, 0, 2]).unwrap(), [5.0, 6.0, 1.0, 2.0, 5.0, 6.0]);
        assert_eq!(gather(&[7_u8, 8, 9], 1, &[1]).unwrap(), [8]);
        assert!(gather(&data, 2, &[3]).is_err());
        assert!(gather(&data, 4, &[0]).is_err());
        assert!(gather(&data, 0, &[0]).is_err());
    }

    #[test]
    fn labels_become_rows() {
        assert_eq!(one_hot(&[2, 0], 3).unwrap(), [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
        assert!(one_hot(&[3], 3).is_err());
    }
}
