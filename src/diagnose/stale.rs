//! When a hit enters the closure once more, to see whether the entry still says what the closure does.
//!
//! A closure that reads a number, a captured tensor or a flag of the world outside is traced with what these were, and no
//! signature can tell when they change. So a few hits trace the closure again, compile nothing, and compare.
//!
//! Guarantees bounds on what that costs. Only hits that are timed anyway are asked (`latency.rs`), so the others pay
//! nothing. Of the first [`SAMPLED`] of those, an entry takes numbers 1, 2, 4, .. and together at most a tenth of
//! what making it took, within 20 and 100 ms. After that, each stands for 64 hits, and traces together take at most a
//! sixteenth of the time of these, so about a thousandth of all.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use retape_runtime::lock;

use crate::observe::latency::SAMPLED;

/// The time that traces among the first hits may take together: a part of the making of the entry, within bounds.
const OF_MAKING: u32 = 10;
const LEAST: Duration = Duration::from_millis(20);
const MOST: Duration = Duration::from_millis(100);
/// The part of the entry's own trace that the next one is expected to take: that one made what the next finds, such as
/// code for ops on captured tensors.
const OF_TRACE: u32 = 4;
/// The part of the time of later hits that are timed.
const OF_RUNNING: u32 = SAMPLED / 4;

/// The turns of one entry.
#[derive(Debug)]
pub(crate) struct StaleTurns(Mutex<StaleState>);

#[derive(Debug)]
struct StaleState {
    /// Timed hits.
    n: u32,
    /// The time that the later ones took.
    running: Duration,
    /// The time that the next trace is expected to take.
    cost: Duration,
    /// The time that traces may still take among the first hits, and have taken among the later ones.
    first: Duration,
    spent: Duration,
    /// Whether a thread traces, or nobody is to any more.
    is_closed: bool,
}

impl StaleTurns {
    /// Those of an entry that took so long to make, of which its trace took `trace`.
    pub(crate) fn new(making: Duration, trace: Duration) -> StaleTurns {
        let (cost, first) = (trace / OF_TRACE, (making / OF_MAKING).clamp(LEAST, MOST));
        let (running, spent) = (Duration::ZERO, Duration::ZERO);
        StaleTurns(Mutex::new(StaleState { n: 0, running, cost, first, spent, is_closed: false }))
    }

    /// Those of an entry whose closure is never entered.
    pub(crate) fn none() -> StaleTurns {
        let turns = StaleTurns::new(Duration::ZERO, Duration::ZERO);
        turns.lock().is_closed = true;
        turns
    }

    fn lock(&self) -> MutexGuard<'_, StaleState> {
        // The state is whole after each change.
        lock(&self.0)
    }

    /// Notes what a timed hit took.
    pub(crate) fn ran(&self, time: Duration) {
        let mut state = self.lock();
        if state.n > SAMPLED {
            state.running += time;
        }
    }

    /// Counts a timed hit; whether it is to trace. If so, nobody else does until [`done`](StaleTurns::done).
    pub(crate) fn is_due(&self) -> bool {
        let mut state = self.lock();
        state.n = state.n.saturating_add(1);
        let is_due = !state.is_closed
            && match state.n <= SAMPLED {
                true => state.n.is_power_of_two() && state.cost <= state.first,
                false => state.spent + state.cost <= state.running / OF_RUNNING,
            };
        state.is_closed |= is_due;
        is_due
    }

    /// Notes what the trace of a hit took, and whether there are to be more.
    pub(crate) fn done(&self, time: Duration, goes_on: bool) {
        let mut state = self.lock();
        match state.n <= SAMPLED {
            true => state.first = state.first.saturating_sub(time),
            false => state.spent += time,
        }
        // The least time that was measured: other work that ran meanwhile is no reason to look less often.
        state.cost = state.cost.min(time);
        state.is_closed = !goes_on;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    /// The numbers of the hits that trace, of `n` that take `hit` each, if a trace takes `trace`.
    fn due(turns: &StaleTurns, n: u32, hit: Duration, trace: Duration) -> Vec<u32> {
        let numbers = (1..=n).filter(|_| {
            turns.ran(hit);
            let is_due = turns.is_due();
            if is_due {
                assert!(!turns.is_due(), "one at a time");
                turns.lock().n -= 1;
                turns.done(trace, true);
            }
            is_due
        });
        numbers.collect()
    }

    #[test]
    fn the_first_hits_are_taken_at_powers_of_two() {
        let turns = StaleTurns::new(30 * MILLI, MILLI);
        assert_eq!(due(&turns, 64, MILLI, MILLI), [1, 2, 4, 8, 16, 32, 64]);
    }

    #[test]
    fn the_first_traces_have_a_budget() {
        // 20 ms together; the first one counts a quarter of what the entry's own trace took.
        assert_eq!(due(&StaleTurns::new(10 * MILLI, 8 * MILLI), 64, MILLI, 8 * MILLI), [1, 2, 4]);
        assert_eq!(due(&StaleTurns::new(90 * MILLI, 80 * MILLI), 64, MILLI, 21 * MILLI), [1]);
        assert_eq!(due(&StaleTurns::new(90 * MILLI, 81 * MILLI), 64, MILLI, MILLI), [0; 0]);
        // A tenth of what the entry took, 100 ms at most.
        assert_eq!(due(&StaleTurns::new(500 * MILLI, 20 * MILLI), 64, MILLI, 20 * MILLI), [1, 2, 4]);
        assert_eq!(due(&StaleTurns::new(9000 * MILLI, 400 * MILLI), 64, MILLI, 21 * MILLI), [1, 2, 4, 8]);
        assert_eq!(due(&StaleTurns::new(9000 * MILLI, 401 * MILLI), 64, MILLI, MILLI), [0; 0]);
    }

    #[test]
    fn later_traces_take_a_part_of_the_time_of_hits() {
        let turns = StaleTurns::new(MILLI, MILLI);
        due(&turns, 64, MILLI, MILLI);
        // Each of these stands for 64: a trace of 10 ms for every 160 timed hits of 1 ms, which is 10,240 hits.
        turns.lock().cost = 10 * MILLI;
        let numbers = due(&turns, 1000, MILLI, 10 * MILLI);
        assert!((5..=6).contains(&numbers.len()), "{numbers:?}");
        assert!(numbers.windows(2).all(|pair| pair[1] - pair[0] >= 159), "{numbers:?}");
    }

    #[test]
    fn who_is_done_for_good_is_not_asked_again() {
        let turns = StaleTurns::new(MILLI, MILLI);
        assert!(turns.is_due());
        turns.done(MILLI, false);
        assert_eq!(due(&turns, 200, MILLI, MILLI), [0; 0]);
        assert_eq!(due(&StaleTurns::none(), 200, MILLI, MILLI), [0; 0]);
    }
}
