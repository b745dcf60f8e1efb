//! The batches of one epoch as an iterator.

use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use retape::Caller;

use super::Batch;
#[cfg(doc)]
use super::Loader;
use super::job::{LoadedBatch, LoaderJob};
use super::stats::LoaderStats;
use crate::data::collate::Collate;
use crate::data::dataset::Dataset;
use crate::error::{Error, Result};
use crate::lock::lock;

/// The batches of one epoch, in order; made by [`Loader::epoch`] and [`Loader::epoch_from`].
///
/// A failed batch is an error in its place, and the iterator goes on after it: it is the caller who stops or does not.
/// Dropping the iterator stops and joins its threads, which finish the example they are at.
///
/// ```
/// use retape_train::data::{Loader, from_fn};
///
/// let loader = Loader::new(from_fn(10, |index| Ok(index as f32)), 4)?;
/// let mut batches = loader.epoch(0);
/// while let Some(batch) = batches.next() {
///     let batch = batch?;
///     println!("{} rows; so far {}", batch.rows(), batches.stats());
/// }
/// assert_eq!(batches.stats().examples, 10);
/// # Ok::<(), retape_train::Error>(())
/// ```
pub struct Batches<D: Dataset, C: Collate<D::Item>> {
    job: Arc<LoaderJob<D, C>>,
    threads: Vec<JoinHandle<()>>,
    stats: LoaderStats,
    /// The sums of the loader.
    totals: Arc<Mutex<LoaderStats>>,
    skipped: Vec<Error>,
    /// The first batch that was asked for.
    first: usize,
    /// The line that asked for them.
    at: Caller,
    /// The number of batches taken from the front, whether or not they gave one to the caller.
    n_taken: usize,
    /// The end of the last call for a batch.
    last_call: Option<Instant>,
    has_failed: bool,
    is_finished: bool,
}

impl<D, C> Batches<D, C>
where
    D: Dataset + 'static,
    D::Item: Send,
    C: Collate<D::Item> + 'static,
    C::Batch: Send,
{
    /// Starts the threads; if the system gives none, the consumer does the work.
    pub(super) fn start(
        job: LoaderJob<D, C>,
        n_threads: usize,
        totals: Arc<Mutex<LoaderStats>>,
        first: usize,
        at: Caller,
    ) -> Batches<D, C> {
        let job = Arc::new(job);
        let n_left = job.plan.n_batches.saturating_sub(first);
        let n_useful = n_threads.min(n_left.saturating_mul(job.plan.batch_size));
        let start = |number| {
            let job = job.clone();
            thread::Builder::new().name(format!("loader-{number}")).spawn(move || job.work()).ok()
        };
        let threads = (0..n_useful).map_while(start).collect();
        Batches {
            job,
            threads,
            stats: LoaderStats::default(),
            totals,
            skipped: vec![],
            first,
            at,
            n_taken: 0,
            last_call: None,
            has_failed: false,
            is_finished: false,
        }
    }
}

impl<D: Dataset, C: Collate<D::Item>> Batches<D, C> {
    /// Counts and times of this epoch so far.
    pub fn stats(&self) -> LoaderStats {
        self.stats
    }

    /// The errors of the examples left out so far, in the order of their rows; see [`Loader::skip_broken`].
    pub fn skipped(&self) -> &[Error] {
        &self.skipped
    }

    fn next_batch(&mut self) -> Option<Result<Batch<C::Batch>>> {
        while !self.is_finished {
            let n_batches = self.job.plan.n_batches;
            if self.first > n_batches {
                self.is_finished = true;
                let message = format!("there is no batch {} in an epoch of {n_batches} batches", self.first);
                return Some(Err(Error::argument_at(message, Some(self.at))));
            }
            let Some(LoadedBatch { batch, skipped }) = self.job.take(!self.threads.is_empty()) else {
                self.is_finished = true;
                return self.all_skipped().map(Err);
            };
            self.n_taken += 1;
            self.stats.skipped += skipped.len() as u64;
            self.skipped.extend(skipped);
            match batch {
                Ok(None) => {}
                Ok(Some(batch)) => {
                    self.stats.batches += 1;
                    self.stats.examples += batch.rows() as u64;
                    return Some(Ok(batch));
                }
                Err(error) => {
                    self.has_failed = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }

    /// The error of a whole epoch that gave nothing because all of it was skipped.
    fn all_skipped(&self) -> Option<Error> {
        let first = self.skipped.first()?;
        let is_whole = self.first == 0 && self.n_taken == self.job.plan.n_batches;
        let is_empty = self.stats.batches == 0 && !self.has_failed;
        (is_whole && is_empty).then(|| {
            let n = self.skipped.len();
            Error::custom(format!("all {n} examples of the epoch were skipped; the first: {first}"))
        })
    }
}

impl<D: Dataset, C: Collate<D::Item>> Iterator for Batches<D, C> {
    type Item = Result<Batch<C::Batch>>;

    fn next(&mut self) -> Option<Self::Item> {
        let before = self.stats;
        let start = Instant::now();
        let next = self.next_batch();
        let end = Instant::now();
        self.stats.waited += end - start;
        self.stats.elapsed += end - self.last_call.unwrap_or(start);
        self.last_call = Some(end);
        lock(&self.totals).add(&self.stats.since(&before));
        next
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let n_left = self.job.plan.n_batches.saturating_sub(self.first + self.n_taken);
        // One error may follow the last batch.
        (0, Some(if self.is_finished { 0 } else { n_left + 1 }))
    }
}

impl<D: Dataset, C: Collate<D::Item>> Drop for Batches<D, C> {
    fn drop(&mut self) {
        self.job.end(None);
        for thread in self.threads.drain(..) {
            // Panics within were caught and reported.
            let _ = thread.join();
        }
    }
}
