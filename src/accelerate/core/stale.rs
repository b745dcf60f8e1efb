//! Hits that trace the closure again, and the warnings and events if it records something else by now.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use retape_kernels::library::{alone, without_prints};
use retape_runtime::hash_words;
use tracing::dispatcher::{Dispatch, with_default};

use super::enter::traced;
use super::mode::{flag, modes};
use super::{CallContext, Core, Outcome, lock};
use crate::accelerate::entry::Entry;
use crate::diagnose::change::{Change, first_change};
use crate::error::Result;
use crate::identity::Identity;
use crate::observe::latency::{is_unseen, unseen};
use crate::observe::profile;
use crate::tape::Tape;
use crate::tensor::Tensor;
use crate::tree::Writer;

impl Core {
    /// The rest of a timed hit: notes its time, and compares the closure with the entry now and then.
    #[cold]
    pub(crate) fn timed(&self, flags: u32, entry: &Entry, start: Instant, args: &[&Tensor], context: &CallContext<'_>) {
        entry.stale_turns.ran(self.hit_latency.record(start));
        self.look_for_change(flags, entry, args, context);
    }

    /// Enters the closure if the turn of this hit has come, and tells if what it records differs from the entry.
    pub(crate) fn look_for_change(&self, flags: u32, entry: &Entry, args: &[&Tensor], context: &CallContext<'_>) {
        let is_off = flags & flag::TRUSTED != 0 || self.common.is_locked() || is_unseen();
        if is_off || !entry.stale_turns.is_due() {
            return;
        }
        let start = Instant::now();
        // Nothing of this is part of the call, so neither an error nor a panic is.
        let looked = catch_unwind(AssertUnwindSafe(|| quietly(|| change(entry, args, context, self.identity()))));
        let change = looked.unwrap_or(Looked::Failed);
        profile::looked(start);
        entry.stale_turns.done(start.elapsed(), matches!(change, Looked::Same));
        self.checks.count_stale_check(matches!(change, Looked::Changed(_)));
        if let Looked::Changed(change) = change {
            let advice = change.advice(&entry.signature);
            let is_new = lock(&self.detector).add(&advice);
            if is_new {
                self.events.advice(&advice);
            }
        }
    }

    /// A call that a closure makes while it is entered for a comparison: of the entry that there is, if there is one, and
    /// with no mark left in any statistics.
    #[cold]
    pub(crate) fn call_unseen(&self, flags: u32, leaves: &Writer<'_>) -> Option<Result<Outcome>> {
        let is_plain = flags & (flag::DISABLED | flag::QUARANTINED) == 0;
        let mut words = leaves.words.clone();
        modes(flags).write(|word| words.push(word));
        let entry = self.cache.peek(&hash_words(&words), &words[..]).filter(|_| is_plain)?;
        let tensors = entry.run_unnoted(&leaves.tensors);
        Some(tensors.map(|tensors| Outcome::Ran { entry: entry.into(), tensors }))
    }
}

/// The outcome of a second trace.
enum Looked {
    Same,
    Changed(Change),
    /// The closure does not work twice.
    Failed,
}

fn change(entry: &Entry, args: &[&Tensor], context: &CallContext<'_>, function: &Identity) -> Looked {
    match traced(Tape::comparing, entry.signature.words(), args, context, function) {
        Ok(trace) => first_change(&entry.trace, &trace).map_or(Looked::Same, Looked::Changed),
        Err(_) => Looked::Failed,
    }
}

/// Runs a closure a second time: its prints and events have been shown, its calls have been counted, and other workers
/// do not do the same now.
pub(crate) fn quietly<R>(work: impl FnOnce() -> R) -> R {
    without_prints(|| alone(|| with_default(&Dispatch::none(), || unseen(work))))
}
