//! How hits and misses came to be, from the first call on, in bounded memory.

/// More points than this are thinned out.
const MAX_POINTS: usize = 512;

/// A function after a miss: how many misses it had, that one included, and how many hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Milestone {
    /// Misses so far.
    pub misses: u64,
    /// Hits so far.
    pub hits: u64,
}

/// Some of all misses: the first one, and then every one whose number is a multiple of a power of two, which doubles
/// when there are too many. So a curve from the first call to the last is as fine as it can be drawn.
#[derive(Debug)]
pub(crate) struct History {
    points: Vec<Milestone>,
    stride: u64,
}

impl Default for History {
    fn default() -> History {
        History { points: vec![], stride: 1 }
    }
}

impl History {
    /// Notes a miss. Misses come in the order of their numbers.
    pub(crate) fn add(&mut self, misses: u64, hits: u64) {
        if misses != 1 && !misses.is_multiple_of(self.stride) {
            return;
        }
        self.points.push(Milestone { misses, hits });
        if self.points.len() > MAX_POINTS {
            self.stride *= 2;
            let stride = self.stride;
            self.points.retain(|point| point.misses == 1 || point.misses.is_multiple_of(stride));
        }
    }

    pub(crate) fn points(&self) -> &[Milestone] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_miss_stays_and_the_rest_is_spread_evenly() {
        let mut history = History::default();
        for n in 1..=100_000_u64 {
            history.add(n, 3 * n);
            let points = history.points();
            assert_eq!(points[0], Milestone { misses: 1, hits: 3 });
            assert!(points.len() <= MAX_POINTS);
            assert!(n - points[points.len() - 1].misses < history.stride);
        }
        let points = history.points();
        assert!(points.len() > MAX_POINTS / 4, "{}", points.len());
        assert!(points[1..].windows(2).all(|pair| pair[1].misses - pair[0].misses == history.stride));
        assert!(points.iter().all(|point| point.hits == 3 * point.misses));
    }
}
