//! The work of one epoch, shared by its threads and its consumer.
//!
//! Threads claim a few rows of a batch at a time, in order, and put the examples into the batch; the thread that brings
//! the last one makes the batch. The consumer takes batches from the front. Invariant: at most `prefetch` batches are
//! open, which means claimed in part and not yet taken.

use std::collections::VecDeque;
use std::mem;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use retape::collective::share;
use retape::data::Epoch;

use super::Batch;
use super::shards::Held;
use crate::data::collate::Collate;
use crate::data::dataset::Dataset;
use crate::error::{Error, Result};
use crate::guarded::{guarded, message};
use crate::lock::{lock, wait_on};

/// The numbers of an epoch.
pub(super) struct EpochPlan {
    pub(super) rows: Epoch,
    pub(super) n_batches: usize,
    /// Rows of a full batch, those of shards that are not held among them.
    pub(super) batch_size: usize,
    pub(super) held: Held,
    pub(super) epoch: u64,
    pub(super) prefetch: usize,
    /// Rows that a thread claims at a time.
    pub(super) chunk: usize,
    pub(super) skip_broken: bool,
}

/// The examples of a batch that could be loaded, made into one, and the errors of those that were skipped.
pub(super) struct LoadedBatch<B> {
    /// None if all examples were skipped.
    pub(super) batch: Result<Option<Batch<B>>>,
    pub(super) skipped: Vec<Error>,
}

/// Copies an example, for the rows that only fill a batch up.
pub(super) type Fill<T> = fn(&T) -> T;

pub(super) struct LoaderJob<D: Dataset, C: Collate<D::Item>> {
    dataset: Arc<D>,
    collate: Arc<C>,
    pub(super) plan: EpochPlan,
    fill: Option<Fill<D::Item>>,
    state: Mutex<State<D::Item, C::Batch>>,
    /// Whether threads are to end. Written under the lock of the state, so that whoever waits for it hears of it.
    is_over: AtomicBool,
    /// A batch was taken, or the job is over.
    room: Condvar,
    /// The front batch is made, or the job is over.
    ready: Condvar,
}

struct State<T, B> {
    /// The number of the batch at the front.
    front: usize,
    open: VecDeque<Open<T, B>>,
    /// The first row that nobody has claimed: its batch and its place there.
    next: (usize, usize),
    /// The message of a panic outside the places where panics are expected.
    panic: Option<String>,
}

enum Open<T, B> {
    Loading { rows: Vec<Option<Result<T>>>, n_missing: usize },
    Made(LoadedBatch<B>),
}

/// Rows of one batch for one thread.
struct Claim {
    batch: usize,
    rows: Range<usize>,
}

impl<D: Dataset, C: Collate<D::Item>> LoaderJob<D, C> {
    pub(super) fn new(
        dataset: Arc<D>,
        collate: Arc<C>,
        plan: EpochPlan,
        fill: Option<Fill<D::Item>>,
        first: usize,
    ) -> LoaderJob<D, C> {
        let state = State { front: first, open: VecDeque::new(), next: (first, 0), panic: None };
        let (room, ready, is_over) = (Condvar::new(), Condvar::new(), AtomicBool::new(false));
        LoaderJob { dataset, collate, plan, fill, state: Mutex::new(state), is_over, room, ready }
    }

    /// The indices of the examples of a batch, those of shards that are not held among them.
    fn all_indices(&self, batch: usize) -> &[usize] {
        self.plan.rows.iter().nth(batch).expect("claimed batches are those of the epoch")
    }

    /// The indices of the examples of a batch that are loaded.
    fn indices(&self, batch: usize) -> &[usize] {
        let all = self.all_indices(batch);
        &all[self.plan.held.rows(all.len())]
    }

    /// Works until nothing is left or the job is over; the body of a thread.
    pub(super) fn work(&self) {
        while self.work_once(true) {}
    }

    /// Loads one claim; false if there is none. Waits for room if asked.
    fn work_once(&self, wait: bool) -> bool {
        catch_unwind(AssertUnwindSafe(|| self.claim_and_load(wait))).unwrap_or_else(|payload| {
            // A panic outside the guarded places, such as that of a destructor of an item.
            self.end(Some(message(payload.as_ref())));
            false
        })
    }

    fn claim_and_load(&self, wait: bool) -> bool {
        let Some(claim) = self.claim(wait) else { return false };
        let indices = &self.indices(claim.batch)[claim.rows.clone()];
        let mut items = Vec::with_capacity(indices.len());
        for &index in indices {
            if self.is_over.load(Ordering::Relaxed) {
                return false;
            }
            items.push(self.load(index));
        }
        if let Some(rows) = self.deliver(&claim, items) {
            let outcome = self.make(claim.batch, rows);
            let mut state = lock(&self.state);
            let place = claim.batch - state.front;
            state.open[place] = Open::Made(outcome);
            self.ready.notify_one();
        }
        true
    }

    fn claim(&self, wait: bool) -> Option<Claim> {
        let mut state = lock(&self.state);
        loop {
            let (batch, start) = state.next;
            if self.is_over.load(Ordering::Relaxed) || batch >= self.plan.n_batches {
                return None;
            }
            if start > 0 || batch - state.front < self.plan.prefetch {
                let n_rows = self.indices(batch).len();
                if start == 0 {
                    let rows = std::iter::repeat_with(|| None).take(n_rows).collect();
                    state.open.push_back(Open::Loading { rows, n_missing: n_rows });
                }
                let end = n_rows.min(start + self.plan.chunk);
                state.next = if end == n_rows { (batch + 1, 0) } else { (batch, end) };
                return Some(Claim { batch, rows: start..end });
            }
            if !wait {
                return None;
            }
            state = wait_on(&self.room, state);
        }
    }

    /// Loads an example; a panic becomes an error.
    fn load(&self, index: usize) -> Result<D::Item> {
        let epoch = self.plan.epoch;
        let what = || format!("loading example {index} of epoch {epoch}");
        guarded(what, || self.dataset.get_in_epoch(index, epoch)).map_err(|error| match error {
            panic @ Error::Panicked { .. } => panic,
            error => Error::Example { index, source: Box::new(error) },
        })
    }

    /// Puts examples into their batch, and takes all of them out if none is missing any more.
    fn deliver(&self, claim: &Claim, items: Vec<Result<D::Item>>) -> Option<Vec<Option<Result<D::Item>>>> {
        let mut state = lock(&self.state);
        let place = claim.batch - state.front;
        let Open::Loading { rows, n_missing } = &mut state.open[place] else { return None };
        *n_missing -= items.len();
        for (row, item) in claim.rows.clone().zip(items) {
            rows[row] = Some(item);
        }
        (*n_missing == 0).then(|| mem::take(rows))
    }

    /// Makes a batch of its examples; the error of the first row that has one, if errors are not skipped.
    fn make(&self, number: usize, rows: Vec<Option<Result<D::Item>>>) -> LoadedBatch<C::Batch> {
        let (mut items, mut indices, mut skipped) = (vec![], vec![], vec![]);
        for (&index, row) in self.indices(number).iter().zip(rows) {
            match row.expect("no row is missing") {
                Ok(item) => {
                    items.push(item);
                    indices.push(index);
                }
                Err(error) if self.plan.skip_broken && is_broken(&error) => skipped.push(error),
                Err(error) => return LoadedBatch { batch: Err(error), skipped },
            }
        }
        if items.is_empty() {
            return LoadedBatch { batch: Ok(None), skipped };
        }
        let epoch = self.plan.epoch;
        let data = guarded(
            || format!("making batch {number} of epoch {epoch}"),
            || {
                let items = match self.fill {
                    Some(clone) => self.filled(items, clone),
                    None => items,
                };
                self.collate.collate(items)
            },
        );
        let whole = if self.plan.held.is_all() { indices.len() } else { self.all_indices(number).len() };
        LoadedBatch { batch: data.map(|data| Some(Batch { data, indices, whole, epoch, number })), skipped }
    }

    /// The items with copies behind those of each shard, as many as a full batch has rows there.
    fn filled(&self, items: Vec<D::Item>, clone: Fill<D::Item>) -> Vec<D::Item> {
        let EpochPlan { held, batch_size, .. } = &self.plan;
        let (n_items, n_shards, n_full) = (items.len(), held.n_held(), held.rows(*batch_size).len());
        let mut filled = Vec::with_capacity(n_full);
        let mut items = items.into_iter();
        for shard in 0..n_shards {
            let start = filled.len();
            filled.extend(items.by_ref().take(share(n_items, shard, n_shards).len()));
            for row in start..start + share(n_full, shard, n_shards).len() - (filled.len() - start) {
                filled.push(clone(&filled[row]));
            }
        }
        filled
    }

    /// Takes the batch at the front; waits for it, or makes it if there are no threads. None at the end of the epoch.
    pub(super) fn take(&self, has_threads: bool) -> Option<LoadedBatch<C::Batch>> {
        let mut state = lock(&self.state);
        loop {
            if let Some(message) = state.panic.take() {
                let error = Error::Panicked { what: "a thread of the loader".to_owned(), message };
                return Some(LoadedBatch { batch: Err(error), skipped: vec![] });
            }
            if self.is_over.load(Ordering::Relaxed) || state.front >= self.plan.n_batches {
                return None;
            }
            if let Some(Open::Made(_)) = state.open.front() {
                let Some(Open::Made(outcome)) = state.open.pop_front() else { return None };
                state.front += 1;
                self.room.notify_all();
                return Some(outcome);
            }
            if has_threads {
                state = wait_on(&self.ready, state);
            } else {
                drop(state);
                self.work_once(false);
                state = lock(&self.state);
            }
        }
    }

    /// Lets all threads end after the example they are at.
    pub(super) fn end(&self, panic: Option<String>) {
        let mut state = lock(&self.state);
        self.is_over.store(true, Ordering::Relaxed);
        if panic.is_some() {
            state.panic = panic;
        }
        self.room.notify_all();
        self.ready.notify_all();
    }
}

/// Whether an error speaks of the example and not of the program or the machine.
fn is_broken(error: &Error) -> bool {
    matches!(error, Error::Example { source, .. } if !matches!(**source, Error::Engine(_)))
}
