//! Batches, loaded and augmented by threads in the background.
//!
//! The order of batches and every bit of them depend on the data set, the seed and the epoch, never on the number of
//! threads: rows come from [`MiniBatches`], examples from their index and epoch. A bounded number of batches is in work
//! or waiting at any time; a slow consumer makes the threads wait.

mod batches;
mod batching;
mod job;
mod shards;
mod stats;

use std::panic::Location;
use std::sync::{Arc, Mutex};
use std::thread;

use retape::data::{MiniBatches, Partial};

use self::shards::Held;
use super::collate::{Collate, Stacked};
use super::dataset::Dataset;
use crate::error::Result;
use crate::lock::lock;

pub use batches::Batches;
pub use batching::Batching;
pub use shards::Shards;
pub use stats::LoaderStats;

/// Some examples of an epoch, made into one.
///
/// ```
/// use retape_train::data::{Loader, from_fn};
///
/// let loader = Loader::new(from_fn(5, |index| Ok(index as f32)), 2)?;
/// let last = loader.epoch(0).last().expect("three batches")?;
/// assert_eq!((last.epoch, last.number, last.rows()), (0, 2, 1));
/// assert_eq!((last.indices, last.data.to_vec::<f32>()?), (vec![4], vec![4.0]));
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Batch<B> {
    /// The examples together; by default tensors whose first axis counts them.
    pub data: B,
    /// The indices of the examples in the data set, in the order of the rows.
    ///
    /// Rows that only fill the batch up, and examples that were skipped, are not among them.
    pub indices: Vec<usize>,
    /// The number of examples of the whole batch: as [`rows`](Batch::rows), and those of [shards](Loader::shards) that
    /// others hold.
    pub whole: usize,
    /// The number of the epoch.
    pub epoch: u64,
    /// The number of the batch in its epoch; [`Loader::epoch_from`] goes on with the next one.
    pub number: usize,
}

impl<B> Batch<B> {
    /// The number of examples, rows that only fill the batch up not counted.
    pub fn rows(&self) -> usize {
        self.indices.len()
    }
}

/// Makes the batches of each epoch of a data set.
///
/// Without settings, examples come in order, the last batch may be smaller, every processor core has a thread, and a
/// broken example is an error. A loader holds no position: an epoch is asked for by its number.
///
/// ```
/// use retape::data::Partial;
/// use retape_train::data::augment::{Border, Pipeline, RandomCrop, Reflection};
/// use retape_train::data::synthetic::Objects;
/// use retape_train::data::{Dataset, Loader};
///
/// let pipeline = Pipeline::new().then(RandomCrop::new(32, 32).padding(4, Border::Reflect)).then(Reflection::horizontal());
/// let objects = Objects::generate(1, 100).augment(7, pipeline);
/// let loader = Loader::new(objects, 32)?.shuffled(7).partial(Partial::Discard);
/// for batch in loader.epoch(3) {
///     let batch = batch?;
///     let (images, labels) = &batch.data;
///     assert_eq!((images.shape(), labels.shape()), (&[32, 32, 32, 3][..], &[32][..]));
/// }
/// assert_eq!(loader.stats().examples, 96);
///
/// // After an interruption behind batch 1: the same bits as if there had been none.
/// let rest: Vec<_> = loader.epoch_from(3, 2).collect::<Result<_, _>>()?;
/// assert_eq!((rest.len(), rest[0].number), (1, 2));
/// # Ok::<(), retape_train::Error>(())
/// ```
pub struct Loader<D: Dataset, C = Stacked> {
    dataset: Arc<D>,
    collate: Arc<C>,
    batches: MiniBatches,
    batching: Batching,
    n_threads: usize,
    prefetch: Option<usize>,
    skip_broken: bool,
    held: Held,
    fill: Option<job::Fill<D::Item>>,
    totals: Arc<Mutex<LoaderStats>>,
}

impl<D: Dataset> Loader<D> {
    /// Batches of `batch_size` examples of `dataset`, made as the type of the examples says ([`Stack`](super::Stack)).
    ///
    /// # Errors
    ///
    /// Fails if `batch_size` is zero.
    #[track_caller]
    pub fn new(dataset: D, batch_size: usize) -> Result<Loader<D>> {
        let examples = dataset.len();
        let batches = MiniBatches::new(examples, batch_size)?;
        Ok(Loader {
            dataset: Arc::new(dataset),
            collate: Arc::new(Stacked),
            batches,
            batching: Batching { examples, batch_size, shuffle_seed: None, discards_partial: false },
            n_threads: thread::available_parallelism().map_or(1, |count| count.get()),
            prefetch: None,
            skip_broken: false,
            held: Held::ALL,
            fill: None,
            totals: Arc::default(),
        })
    }
}

impl<D: Dataset, C> Loader<D, C> {
    /// Makes batches in another way.
    pub fn collate<C2: Collate<D::Item>>(self, collate: C2) -> Loader<D, C2> {
        let held = self.held.clone();
        self.with(collate, held)
    }

    /// The same batches made in another way, of these shards.
    fn with<C2>(self, collate: C2, held: Held) -> Loader<D, C2> {
        Loader {
            dataset: self.dataset,
            collate: Arc::new(collate),
            batches: self.batches,
            batching: self.batching,
            n_threads: self.n_threads,
            prefetch: self.prefetch,
            skip_broken: self.skip_broken,
            held,
            fill: self.fill,
            totals: self.totals,
        }
    }

    /// Shuffles the examples anew for each epoch, as [`MiniBatches::shuffled`] does.
    pub fn shuffled(self, seed: u64) -> Loader<D, C> {
        let batching = Batching { shuffle_seed: Some(seed), ..self.batching };
        Loader { batches: self.batches.shuffled(seed), batching, ..self }
    }

    /// Says what happens to the last examples of an epoch if they do not fill a batch; they are kept by default.
    pub fn partial(self, partial: Partial) -> Loader<D, C> {
        let batching = Batching { discards_partial: partial == Partial::Discard, ..self.batching };
        Loader { batches: self.batches.partial(partial), batching, ..self }
    }

    /// Fills every batch up to `batch_size` rows by repeating its examples from the first on.
    ///
    /// All batches then have one shape, also the last one and those with skipped examples, and a step is compiled once.
    /// [`Batch::rows`] says how many rows count.
    ///
    /// ```
    /// use retape_train::data::{Loader, from_fn};
    ///
    /// let loader = Loader::new(from_fn(5, |index| Ok(index as f32)), 4)?.filled();
    /// let last = loader.epoch(0).last().expect("two batches")?;
    /// assert_eq!((last.rows(), last.data.to_vec::<f32>()?), (1, vec![4.0; 4]));
    /// # Ok::<(), retape_train::Error>(())
    /// ```
    pub fn filled(self) -> Loader<D, C>
    where
        D::Item: Clone,
    {
        Loader { fill: Some(D::Item::clone), ..self }
    }

    /// Sets the number of threads; with 0 the consumer loads each batch itself when it asks for it.
    pub fn threads(self, n: usize) -> Loader<D, C> {
        Loader { n_threads: n, ..self }
    }

    /// Sets how many batches may be in work or waiting, at least one; the batch that the consumer has is not counted.
    ///
    /// By default two, and as many more as give every thread two examples.
    pub fn prefetch(self, n: usize) -> Loader<D, C> {
        Loader { prefetch: Some(n.max(1)), ..self }
    }

    /// Leaves out examples that cannot be loaded or augmented, instead of failing.
    ///
    /// A batch with such an example has fewer rows; one of such examples alone is left out. [`Batches::skipped`] lists
    /// them with their errors, [`LoaderStats::skipped`] counts them. A panic is an error all the same, and so is an
    /// epoch of which nothing is left. With [`shards`](Loader::shards) nothing is left out: the workers that hold the
    /// other shards do not hear of it.
    ///
    /// ```
    /// use retape_train::data::{Loader, from_fn};
    /// use retape_train::Error;
    ///
    /// let numbers = from_fn(6, |index| if index == 4 { Err(Error::custom("torn")) } else { Ok(index as f32) });
    /// let loader = Loader::new(numbers, 3)?.skip_broken();
    /// let mut batches = loader.epoch(0);
    /// let indices: Vec<Vec<usize>> = batches.by_ref().map(|batch| Ok(batch?.indices)).collect::<Result<_, Error>>()?;
    /// assert_eq!(indices, [vec![0, 1, 2], vec![3, 5]]);
    /// assert_eq!(batches.skipped()[0].to_string(), "example 4: torn");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn skip_broken(self) -> Loader<D, C> {
        Loader { skip_broken: true, ..self }
    }

    /// The data set.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }

    /// Whether examples that cannot be loaded are left out.
    pub(crate) fn skips_broken(&self) -> bool {
        self.skip_broken && self.held.is_all()
    }

    /// The number of examples in a full batch.
    pub fn batch_size(&self) -> usize {
        self.batching.batch_size
    }

    /// The numbers that the batches follow from, besides the examples.
    pub fn batching(&self) -> Batching {
        self.batching
    }

    /// The number of batches in every epoch.
    pub fn n_batches(&self) -> usize {
        let n = self.batches.n_batches();
        let n_before = n.saturating_sub(1) * self.batch_size();
        let fits = n == 0 || self.dataset.len() - n_before >= self.held.n_shards();
        if fits { n } else { n - 1 }
    }

    /// The sums over all epochs of this loader so far.
    pub fn stats(&self) -> LoaderStats {
        *lock(&self.totals)
    }
}

impl<D, C> Loader<D, C>
where
    D: Dataset + 'static,
    D::Item: Send,
    C: Collate<D::Item> + 'static,
    C::Batch: Send,
{
    /// The batches of epoch number `epoch`; threads begin to load at once.
    ///
    /// Dropping the iterator stops and joins them.
    #[track_caller]
    pub fn epoch(&self, epoch: u64) -> Batches<D, C> {
        self.epoch_from(epoch, 0)
    }

    /// The batches of epoch number `epoch` from number `batch` on: the same bits as the whole epoch has there.
    ///
    /// If the epoch has fewer batches than `batch`, the iterator gives an error.
    #[track_caller]
    pub fn epoch_from(&self, epoch: u64, batch: usize) -> Batches<D, C> {
        let batch_size = self.batch_size();
        let n_rows = self.held.rows(batch_size).len();
        let prefetch = self.prefetch.unwrap_or_else(|| 2 + (2 * self.n_threads).div_ceil(n_rows));
        let plan = job::EpochPlan {
            rows: self.batches.epoch(epoch),
            n_batches: self.n_batches(),
            batch_size,
            held: self.held.clone(),
            epoch,
            prefetch,
            // Several turns at a batch for each thread, so that none waits long for the last.
            chunk: (n_rows / (4 * self.n_threads.max(1))).clamp(1, 32),
            skip_broken: self.skips_broken(),
        };
        let job = job::LoaderJob::new(self.dataset.clone(), self.collate.clone(), plan, self.fill, batch);
        Batches::start(job, self.n_threads, self.totals.clone(), batch, Location::caller())
    }
}
