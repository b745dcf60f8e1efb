//! Times of a step.

use std::time::{Duration, Instant};

use retape::Result;

/// The times of a step in rising order: so many samples at least, and for so long.
pub(crate) fn times_of<T>(samples: usize, time: Duration, step: impl Fn() -> Result<T>) -> Result<Vec<Duration>> {
    let (mut times, begin) = (vec![], Instant::now());
    while times.len() < samples || begin.elapsed() < time {
        let start = Instant::now();
        let results = step()?;
        times.push(start.elapsed());
        drop(results);
    }
    times.sort();
    Ok(times)
}
