//! A curve in bounded memory.
//!
//! A series holds at most [`MAX_BINS`] bins of consecutive points. Each bin keeps the first and last step, the mean, the
//! least and the largest of its values, and how many were no finite numbers, so that a spike or a NaN stays visible
//! however long the run is. The first points have a bin each; when the bins are used up, each two neighbours become one,
//! and from then on a new bin takes twice as many points. A series of `n` points thus has between `MAX_BINS / 2` and
//! `MAX_BINS` bins once `n` is that large. The page in the browser does the same with what it is sent.

use serde::Serialize;

/// How many bins a series has at most; even.
pub(super) const MAX_BINS: usize = 1024;

/// Consecutive points of a curve. Without finite values `mean`, `min` and `max` are null.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Bin {
    from: u64,
    to: u64,
    /// The values that are finite, and the others.
    n: u64,
    n_bad: u64,
    #[serde(serialize_with = "finite")]
    mean: f64,
    #[serde(serialize_with = "finite")]
    min: f64,
    #[serde(serialize_with = "finite")]
    max: f64,
}

fn finite<S: serde::Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    value.is_finite().then_some(*value).serialize(serializer)
}

impl Bin {
    fn of(step: u64, value: f64) -> Bin {
        let (n, n_bad) = if value.is_finite() { (1, 0) } else { (0, 1) };
        let value = if value.is_finite() { value } else { f64::NAN };
        Bin { from: step, to: step, n, n_bad, mean: value, min: value, max: value }
    }

    /// Adds the points that come after.
    fn merge(&mut self, later: &Bin) {
        let n = self.n + later.n;
        if self.n == 0 {
            self.mean = later.mean;
        } else if later.n > 0 {
            // Not a sum divided by the number: that could overflow.
            self.mean += (later.mean - self.mean) * (later.n as f64 / n as f64);
        }
        // `min` and `max` leave a NaN out, which stands for no value.
        (self.min, self.max) = (self.min.min(later.min), self.max.max(later.max));
        (self.to, self.n, self.n_bad) = (later.to, n, self.n_bad + later.n_bad);
    }

    fn n_points(&self) -> u64 {
        self.n + self.n_bad
    }
}

/// The points of a scalar so far.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Series {
    bins: Vec<Bin>,
    /// The points that a bin takes before the next one begins.
    per_bin: u64,
}

impl Series {
    pub(super) fn new() -> Series {
        Series { bins: vec![], per_bin: 1 }
    }

    /// Adds a point. If its step is not after the last one, the training has gone back, as to a checkpoint: bins that
    /// reach its step are dropped first.
    pub(super) fn push(&mut self, step: u64, value: f64) {
        if self.bins.last().is_some_and(|last| last.to >= step) {
            self.bins.retain(|bin| bin.to < step);
        }
        let point = Bin::of(step, value);
        match self.bins.last_mut() {
            Some(last) if last.n_points() < self.per_bin => return last.merge(&point),
            _ => {}
        }
        if self.bins.len() == MAX_BINS {
            for pair in 0..MAX_BINS / 2 {
                let mut first = self.bins[2 * pair];
                first.merge(&self.bins[2 * pair + 1]);
                self.bins[pair] = first;
            }
            self.bins.truncate(MAX_BINS / 2);
            self.per_bin *= 2;
        }
        self.bins.push(point);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: impl Iterator<Item = f64>) -> Series {
        let mut series = Series::new();
        values.zip(1..).for_each(|(value, step)| series.push(step, value));
        series
    }

    #[test]
    fn bins_are_bounded_and_lose_no_spike() {
        for n in [1, MAX_BINS - 1, MAX_BINS, MAX_BINS + 1, 4 * MAX_BINS + 3, 100_000] {
            let value = |step: usize| if step == n / 3 + 1 { 1e6 } else { (step % 7) as f64 };
            let series = series((1..=n).map(value));
            assert!(series.bins.len() <= MAX_BINS && series.bins.len() >= n.min(MAX_BINS / 2), "{n}");
            assert_eq!(series.bins.iter().map(Bin::n_points).sum::<u64>(), n as u64);
            assert_eq!((series.bins[0].from, series.bins[series.bins.len() - 1].to), (1, n as u64));
            assert!(series.bins.windows(2).all(|pair| pair[0].to + 1 == pair[1].from), "{n}");
            assert_eq!(series.bins.iter().map(|bin| bin.max).fold(0.0, f64::max), 1e6);
            let mean = series.bins.iter().map(|bin| bin.mean * bin.n as f64).sum::<f64>() / n as f64;
            let plain = (1..=n).map(value).sum::<f64>() / n as f64;
            assert!((mean - plain).abs() < 1e-9 * plain, "{mean} {plain}");
        }
    }

    #[test]
    fn what_is_no_number_is_counted_and_spoils_nothing() {
        let values = [f64::NAN, 2.0, f64::INFINITY, f64::MAX].repeat(2 * MAX_BINS);
        let series = series(values.into_iter());
        assert_eq!(series.bins.iter().map(|bin| bin.n_bad).sum::<u64>(), 4 * MAX_BINS as u64);
        assert!(series.bins.iter().all(|bin| bin.mean.is_finite() && bin.min == 2.0 && bin.max == f64::MAX));
        let bad = serde_json::to_string(&Bin::of(3, f64::NAN)).unwrap();
        assert_eq!(bad, r#"{"from":3,"to":3,"n":0,"n_bad":1,"mean":null,"min":null,"max":null}"#);
    }

    #[test]
    fn a_training_that_goes_back_takes_its_points_with_it() {
        let mut series = series((1..=10).map(f64::from));
        series.push(5, 50.0);
        let points: Vec<(u64, f64)> = series.bins.iter().map(|bin| (bin.to, bin.mean)).collect();
        assert_eq!(points, [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (5, 50.0)]);
    }
}
