//! Counts of a loader, and the time its consumer waited.

use std::fmt;
use std::time::Duration;

/// Counts and times of a loader.
///
/// ```
/// use retape_train::data::{Loader, from_fn};
///
/// let loader = Loader::new(from_fn(64, |index| Ok(index as f32)), 8)?;
/// for batch in loader.epoch(0) {
///     let _step = batch?;
/// }
/// let stats = loader.stats();
/// assert_eq!((stats.examples, stats.batches, stats.skipped), (64, 8, 0));
/// assert!((0.0..=1.0).contains(&stats.waiting_share()));
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoaderStats {
    /// Examples handed to the consumer.
    pub examples: u64,
    /// Batches handed to the consumer.
    pub batches: u64,
    /// Examples left out because they were broken.
    pub skipped: u64,
    /// From the moment an epoch was first asked for a batch to the end of the last time it was, summed over epochs.
    pub elapsed: Duration,
    /// The part of it that the consumer waited for batches.
    pub waited: Duration,
}

impl LoaderStats {
    /// Examples handed over in each second of the consumer's time; zero before any.
    pub fn examples_per_second(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds == 0.0 { 0.0 } else { self.examples as f64 / seconds }
    }

    /// The share of the consumer's time that it waited for batches, from 0 to 1.
    ///
    /// Near zero, the training step is the bottleneck; near one, loading is.
    pub fn waiting_share(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds == 0.0 { 0.0 } else { (self.waited.as_secs_f64() / seconds).min(1.0) }
    }

    pub(super) fn add(&mut self, other: &LoaderStats) {
        self.examples += other.examples;
        self.batches += other.batches;
        self.skipped += other.skipped;
        self.elapsed += other.elapsed;
        self.waited += other.waited;
    }

    /// The part that came after `before`.
    pub(super) fn since(&self, before: &LoaderStats) -> LoaderStats {
        LoaderStats {
            examples: self.examples - before.examples,
            batches: self.batches - before.batches,
            skipped: self.skipped - before.skipped,
            elapsed: self.elapsed - before.elapsed,
            waited: self.waited - before.waited,
        }
    }
}

impl fmt::Display for LoaderStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, share) = (self.examples_per_second(), 100.0 * self.waiting_share());
        write!(f, "{} examples, {rate:.0}/s, {share:.1} % of the time waiting for data", self.examples)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}
