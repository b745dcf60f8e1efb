//! How long calls take: histograms of hits, a sample of them, and of all misses.
//!
//! The first [`SAMPLED`] calls of each thread read the clock, so do a few after each miss, and after those one in as many,
//! picked so that no rhythm of the calls hides a function; the others pay for a counter of their thread and nothing else.

use std::cell::Cell;
use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use retape_runtime::{CachePadded, lock};

/// One call in so many is timed, once as many have been.
pub(crate) const SAMPLED: u32 = 64;

/// The calls after a miss that are timed.
const AFTER_MISS: u32 = 8;

/// Longer calls count as this long, in nanoseconds: a day.
const LONGEST: u64 = 86_400_000_000_000;

/// Percentiles of how long calls took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Latency {
    /// The number of calls that were timed: all misses; hits among the first 64 calls of each thread and among the 8 after
    /// each miss, and one in 64 after those.
    pub n_timed: u64,
    /// The time of all of these together.
    #[cfg_attr(feature = "serde", serde(rename = "total_seconds", serialize_with = "crate::serialise::seconds"))]
    pub total: Duration,
    /// The shortest.
    #[cfg_attr(feature = "serde", serde(rename = "min_seconds", serialize_with = "crate::serialise::seconds"))]
    pub min: Duration,
    /// The mean.
    #[cfg_attr(feature = "serde", serde(rename = "mean_seconds", serialize_with = "crate::serialise::seconds"))]
    pub mean: Duration,
    /// Half of the calls took no longer.
    #[cfg_attr(feature = "serde", serde(rename = "p50_seconds", serialize_with = "crate::serialise::seconds"))]
    pub p50: Duration,
    /// 90 % of the calls took no longer.
    #[cfg_attr(feature = "serde", serde(rename = "p90_seconds", serialize_with = "crate::serialise::seconds"))]
    pub p90: Duration,
    /// 99 % of the calls took no longer.
    #[cfg_attr(feature = "serde", serde(rename = "p99_seconds", serialize_with = "crate::serialise::seconds"))]
    pub p99: Duration,
    /// The longest.
    #[cfg_attr(feature = "serde", serde(rename = "max_seconds", serialize_with = "crate::serialise::seconds"))]
    pub max: Duration,
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Latency { n_timed, p50, p90, p99, max, .. } = self;
        write!(f, "p50 {p50:.1?}, p90 {p90:.1?}, p99 {p99:.1?}, max {max:.1?} ({n_timed} timed)")
    }
}

/// A histogram of durations, to three digits; its neighbours in memory are read by every call.
#[derive(Debug)]
pub(crate) struct Latencies(CachePadded<Mutex<Times>>);

#[derive(Debug)]
struct Times {
    histogram: Histogram<u64>,
    total: Duration,
}

impl Default for Latencies {
    fn default() -> Latencies {
        let histogram = Histogram::new(3).expect("three digits are allowed");
        Latencies(CachePadded(Mutex::new(Times { histogram, total: Duration::ZERO })))
    }
}

impl Latencies {
    /// Counts the time since `start`, and returns it.
    pub(crate) fn record(&self, start: Instant) -> Duration {
        let time = start.elapsed();
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(LONGEST);
        let mut times = lock(&self.0);
        times.total += time;
        // The histogram grows to what it is given, and all up to the longest is in its range.
        let _ = times.histogram.record(nanos);
        time
    }

    pub(crate) fn summary(&self) -> Latency {
        let Times { histogram, total } = &*lock(&self.0);
        let at = |quantile| Duration::from_nanos(histogram.value_at_quantile(quantile));
        match histogram.is_empty() {
            true => Latency::default(),
            false => Latency {
                n_timed: histogram.len(),
                total: *total,
                min: Duration::from_nanos(histogram.min()),
                mean: total.div_f64(histogram.len() as f64),
                p50: at(0.5),
                p90: at(0.9),
                p99: at(0.99),
                max: Duration::from_nanos(histogram.max()),
            },
        }
    }
}

thread_local! {
    static N_CALLS: Cell<u32> = const { Cell::new(0) };
    static IS_UNSEEN: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, whose calls of accelerated functions are no part of a program: they are not to be counted, timed or
/// looked at. Each of them is among the sampled ones, so that the others need not ask.
pub(crate) fn unseen<R>(work: impl FnOnce() -> R) -> R {
    /// Gives the thread its state back, also after a panic.
    struct Restore(bool, u32);

    impl Drop for Restore {
        fn drop(&mut self) {
            IS_UNSEEN.set(self.0);
            N_CALLS.set(self.1);
        }
    }

    let _restore = Restore(IS_UNSEEN.replace(true), N_CALLS.replace(0));
    work()
}

/// Has the next calls of this thread timed, for an entry is new.
pub(crate) fn sample_after_miss() {
    N_CALLS.set(N_CALLS.get().min(SAMPLED - AFTER_MISS));
}

/// Whether a sampled call is one of [`unseen`].
pub(crate) fn is_unseen() -> bool {
    let is_unseen = IS_UNSEEN.get();
    if is_unseen {
        N_CALLS.set(0);
    }
    is_unseen
}

/// The time now, for the first [`SAMPLED`] calls of each thread and then for about one in as many.
#[inline]
pub(crate) fn sampled_start() -> Option<Instant> {
    /// 2^32 over the golden ratio: its multiples are spread evenly, and so are those of every second, third, .. call.
    const STEP: u32 = 0x9E37_79B9;
    let n = N_CALLS.get();
    N_CALLS.set(n.wrapping_add(1));
    (n < SAMPLED || n.wrapping_mul(STEP) < u32::MAX / SAMPLED).then(Instant::now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rhythm_of_calls_is_sampled() {
        (0..SAMPLED).for_each(|n| assert!(sampled_start().is_some(), "call {n}"));
        for n_functions in [1, 2, 3, 64] {
            let mut timed = vec![0; n_functions];
            for n in 0..n_functions * 6400 {
                timed[n % n_functions] += usize::from(sampled_start().is_some());
            }
            assert!(timed.iter().all(|n| (80..=120).contains(n)), "{n_functions} functions in turn: {timed:?}");
        }
    }

    #[test]
    fn calls_after_a_miss_are_sampled() {
        let before = N_CALLS.replace(1001);
        assert!((0..8).filter(|_| sampled_start().is_some()).count() < 8);
        sample_after_miss();
        (0..8).for_each(|n| assert!(sampled_start().is_some(), "call {n}"));
        assert!((0..8).filter(|_| sampled_start().is_some()).count() < 8);
        N_CALLS.set(before);
    }

    #[test]
    fn calls_of_unseen_work_are_all_sampled_and_leave_the_rhythm_alone() {
        let before = N_CALLS.replace(1000);
        unseen(|| (0..200).for_each(|n| assert!(sampled_start().is_some() && is_unseen(), "call {n}")));
        assert!(!is_unseen());
        assert_eq!(N_CALLS.replace(before), 1000);
    }

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let latencies = Latencies::default();
        assert_eq!(latencies.summary(), Latency::default());
        for millis in [40, 20, 20] {
            let Some(start) = Instant::now().checked_sub(Duration::from_millis(millis)) else { return };
            latencies.record(start);
        }
        // Something else may run between the start and the record, so there are lower bounds only.
        let Latency { n_timed, total, min, mean, p50, max, .. } = latencies.summary();
        assert!(total >= Duration::from_millis(80) && mean <= total / 3 + Duration::from_nanos(1));
        let at_least = |time: Duration, micros| time >= Duration::from_micros(micros);
        assert!(n_timed == 3 && min <= p50 && p50 <= max, "{min:?} {p50:?} {max:?}");
        assert!(at_least(min, 19_980) && at_least(mean, 26_600) && at_least(max, 39_960), "{min:?} {mean:?} {max:?}");
    }
}
