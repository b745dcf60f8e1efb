//! Hits that trace the closure again, and what follows if it records something else by now.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use retape_kernels::library::without_prints;
use tracing::dispatcher::{Dispatch, with_default};

use super::super::advice::Advice;
use super::super::change::{Change, first_change};
use super::super::entry::Entry;
use super::super::profile;
use super::{Core, Rim, flag, lock, traced};
use crate::tape::Tape;
use crate::tensor::Tensor;

impl Core {
    /// What a timed hit does besides: notes its time, and compares the closure with the entry now and then.
    #[cold]
    pub(super) fn timed(&self, flags: u32, entry: &Entry, start: Instant, args: &[&Tensor], rim: &Rim<'_>) {
        entry.stale_turns.ran(self.hit_latency.record(start));
        self.look_for_change(flags, entry, args, rim);
    }

    /// Enters the closure if the turn of this hit has come, and tells if what it records differs from the entry.
    pub(super) fn look_for_change(&self, flags: u32, entry: &Entry, args: &[&Tensor], rim: &Rim<'_>) {
        let is_off = flags & flag::TRUSTED != 0 || self.locked() || is_looking();
        if is_off || !entry.stale_turns.is_due() {
            return;
        }
        let start = Instant::now();
        // Nothing of this is part of the call, so neither an error nor a panic is.
        let looked = catch_unwind(AssertUnwindSafe(|| quietly(|| change(entry, args, rim))));
        let change = looked.unwrap_or(Looked::Failed);
        profile::looked(start);
        entry.stale_turns.done(start.elapsed(), matches!(change, Looked::Same));
        self.checks.count_stale_check(matches!(change, Looked::Changed(_)));
        if let Looked::Changed(change) = change {
            let advice = Advice::stale_trace(&change, &entry.signature);
            let is_new = lock(&self.detector).give(&advice);
            if is_new {
                self.events.advice(&advice);
            }
        }
    }
}

/// What a second trace showed.
enum Looked {
    Same,
    Changed(Change),
    /// The closure does not work twice.
    Failed,
}

fn change(entry: &Entry, args: &[&Tensor], rim: &Rim<'_>) -> Looked {
    let _looking = Looking::begin();
    match traced(Tape::comparing, entry.signature.words(), args, rim) {
        Ok(trace) => first_change(&entry.trace, &trace).map_or(Looked::Same, Looked::Changed),
        Err(_) => Looked::Failed,
    }
}

/// Runs a closure a second time: what it prints and tells has been said.
pub(super) fn quietly<R>(work: impl FnOnce() -> R) -> R {
    without_prints(|| with_default(&Dispatch::none(), work))
}

thread_local!(static IS_LOOKING: Cell<bool> = const { Cell::new(false) });

/// Whether this thread enters a closure for the sake of a comparison.
fn is_looking() -> bool {
    IS_LOOKING.get()
}

struct Looking;

impl Looking {
    fn begin() -> Looking {
        IS_LOOKING.set(true);
        Looking
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        IS_LOOKING.set(false);
    }
}
