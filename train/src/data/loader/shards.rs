//! The shards of batches, of which each worker of a data-parallel training loads its own.

use std::ops::Range;
use std::sync::Arc;

use retape::collective::share;

use super::{Batch, Loader};
use crate::data::collate::Collate;
use crate::data::dataset::Dataset;
use crate::error::{Error, Result};

/// The shards that a loader loads, of all of a batch.
#[derive(Clone, Debug)]
pub(super) struct Held {
    n_shards: usize,
    held: Range<usize>,
}

impl Held {
    /// A batch that is not divided.
    pub(super) const ALL: Held = Held { n_shards: 1, held: 0..1 };

    pub(super) fn n_shards(&self) -> usize {
        self.n_shards
    }

    pub(super) fn n_held(&self) -> usize {
        self.held.len()
    }

    pub(super) fn is_all(&self) -> bool {
        self.n_shards == 1
    }

    /// The rows of the shards, of the `n` of a batch.
    pub(super) fn rows(&self, n: usize) -> Range<usize> {
        let last = self.held.end - 1;
        share(n, self.held.start, self.n_shards).start..share(n, last, self.n_shards).end
    }
}

/// Makes a batch of each shard apart, as another way of collating makes it of all rows; see [`Loader::shards`].
#[derive(Clone, Debug)]
pub struct Shards<C> {
    collate: Arc<C>,
    n_held: usize,
}

impl<Item, C: Collate<Item>> Collate<Item> for Shards<C> {
    type Batch = Vec<C::Batch>;

    fn collate(&self, items: Vec<Item>) -> Result<Vec<C::Batch>> {
        // Shards with one row more come first, also among those that are held: these rows are shared as all are.
        let n_items = items.len();
        let mut items = items.into_iter();
        let shard = |number| items.by_ref().take(share(n_items, number, self.n_held).len()).collect();
        (0..self.n_held).map(shard).map(|items| self.collate.collate(items)).collect()
    }
}

impl<B> Batch<Vec<B>> {
    /// The number of examples in each of the shards that the batch was divided into by [`Loader::shards`], rows that only
    /// fill the shard up not counted.
    pub fn shard_rows(&self) -> Vec<usize> {
        let n_held = self.data.len();
        (0..n_held).map(|shard| share(self.rows(), shard, n_held).len()).collect()
    }
}

impl<D: Dataset, C> Loader<D, C> {
    /// Divides the rows of each batch into `n_shards` shards, and loads those of the shards `held` alone, each as a batch
    /// of its own: a worker of several loads its part.
    ///
    /// Shards are consecutive rows in equal shares, the first ones one more where they cannot be equal
    /// ([`share`](retape::collective::share)). Their bits are those of a loader that loads whole batches, whoever holds
    /// them, and the epochs of all workers have as many batches: a last batch with fewer rows than shards is left out of
    /// its epoch, so that no shard is empty. [`Batch::whole`] is the number of rows of all shards. A way of collating that
    /// is set afterwards gets the rows of all held shards in one piece.
    ///
    /// ```
    /// use retape_train::data::{Loader, from_fn};
    ///
    /// // The second of two workers, which hold three shards: 0 and 1 the first, 2 the second.
    /// let numbers = from_fn(18, |index| Ok(index as f32));
    /// let loader = Loader::new(numbers, 10)?.shards(3, 2..3)?;
    /// let batches: Vec<_> = loader.epoch(0).collect::<Result<_, _>>()?;
    /// assert_eq!((batches[0].shard_rows(), batches[0].whole), (vec![3], 10));
    /// assert_eq!(batches[0].data[0].to_vec::<f32>()?, [7.0, 8.0, 9.0]);
    /// assert_eq!(batches[1].data[0].to_vec::<f32>()?, [16.0, 17.0]);
    /// # Ok::<(), retape_train::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if there are no such shards or none is held, or a full batch has fewer rows than shards.
    #[track_caller]
    pub fn shards(self, n_shards: usize, held: Range<usize>) -> Result<Loader<D, Shards<C>>> {
        if held.is_empty() || held.end > n_shards {
            return Err(Error::argument(format!("{held:?} are no shards among {n_shards}")));
        }
        if self.batch_size() < n_shards {
            return Err(Error::argument(format!(
                "{} rows in {n_shards} shards: each must have one",
                self.batch_size()
            )));
        }
        let collate = Shards { collate: Arc::clone(&self.collate), n_held: held.len() };
        Ok(self.with(collate, Held { n_shards, held }))
    }
}
