//! How many examples a training takes in per second, and how long it waits for them.

use std::time::{Duration, Instant};

/// Examples per second, and the share of the time that went by waiting for data.
///
/// The clock runs from the making, and from each [`add`](Throughput::add) to the next one.
///
/// ```
/// use retape_train::metrics::Throughput;
///
/// let mut batches = vec![vec![1.0_f32; 32]; 4].into_iter();
/// let mut throughput = Throughput::new();
/// while let Some(batch) = throughput.wait(|| batches.next()) {
///     // the step
///     throughput.add(batch.len());
/// }
/// assert!(throughput.value() > 0.0 && throughput.waiting() <= 1.0);
/// ```
#[derive(Clone, Debug)]
pub struct Throughput {
    n_examples: u64,
    /// The time that all this took, which for merged ones is that of the longest.
    elapsed: Duration,
    /// The times of all merged ones together, and how long they waited.
    worked: Duration,
    waited: Duration,
    /// When the clock was last read, and how long it was waited since.
    mark: Instant,
    waiting: Duration,
}

impl Default for Throughput {
    fn default() -> Throughput {
        let zero = Duration::ZERO;
        Throughput { n_examples: 0, elapsed: zero, worked: zero, waited: zero, mark: Instant::now(), waiting: zero }
    }
}

impl Throughput {
    /// Starts the clock.
    pub fn new() -> Throughput {
        Throughput::default()
    }

    /// Runs `fetch`, which gets the next batch, and counts its time as waiting.
    pub fn wait<T>(&mut self, fetch: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let fetched = fetch();
        self.waiting += start.elapsed();
        fetched
    }

    /// Adds a batch that is done: its examples, and the time since the last one.
    pub fn add(&mut self, n_examples: usize) {
        let (elapsed, waited) = (self.mark.elapsed(), self.waiting);
        self.restart();
        self.add_timed(n_examples, elapsed, waited);
    }

    /// Adds examples that took `elapsed`, of which `waited` went by waiting for them, by a clock of the caller's own.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use retape_train::metrics::Throughput;
    /// let mut throughput = Throughput::new();
    /// throughput.add_timed(300, Duration::from_secs(2), Duration::from_millis(500));
    /// assert_eq!((throughput.value(), throughput.waiting()), (150.0, 0.25));
    /// ```
    pub fn add_timed(&mut self, n_examples: usize, elapsed: Duration, waited: Duration) {
        self.n_examples += n_examples as u64;
        self.elapsed += elapsed;
        self.worked += elapsed;
        self.waited += waited.min(elapsed);
    }

    /// Leaves the time since the last batch out, as after a validation or a checkpoint.
    pub fn restart(&mut self) {
        (self.mark, self.waiting) = (Instant::now(), Duration::ZERO);
    }

    /// Adds what `other` has added in the same time: examples add up, and the longer of both times counts.
    pub fn merge(&mut self, other: &Throughput) {
        self.n_examples += other.n_examples;
        self.elapsed = self.elapsed.max(other.elapsed);
        self.worked += other.worked;
        self.waited += other.waited;
    }

    /// The number of examples.
    pub fn n(&self) -> u64 {
        self.n_examples
    }

    /// Examples per second; NaN before the first batch.
    pub fn value(&self) -> f64 {
        match self.n_examples {
            0 => f64::NAN,
            n => n as f64 / self.elapsed.as_secs_f64(),
        }
    }

    /// The share of the time that went by waiting for data, in `[0, 1]`; NaN before the first batch.
    pub fn waiting(&self) -> f64 {
        self.waited.as_secs_f64() / self.worked.as_secs_f64()
    }
}
