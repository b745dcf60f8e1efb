//! A call while a setting is on that is not free: profiling, checks, the trap, quarantine, the un-accelerated path, or a
//! listener for hits. Each setting is one step of the call.

use std::time::Instant;

use super::enter::traced;
use super::mode::{flag, write_modes};
use super::{CallContext, Core, Found, Outcome};
use crate::diagnose::check::Check;
use crate::eager;
use crate::error::Result;
use crate::observe::latency::{is_unseen, sampled_start};
use crate::observe::profile::{self, CallKind};
use crate::tape::Tape;
use crate::tensor::Tensor;
use crate::tree::Writer;

impl Core {
    /// The call, measured if the function is profiled.
    #[cold]
    pub(super) fn call_instrumented(
        &self,
        flags: u32,
        leaves: Writer<'_>,
        context: &CallContext<'_>,
    ) -> Result<Outcome> {
        if is_unseen()
            && let Some(outcome) = self.call_unseen(flags, &leaves)
        {
            return outcome;
        }
        if flags & flag::PROFILED == 0 {
            return self.call_in_steps(flags, leaves, context);
        }
        self.recorder.record(|| self.call_in_steps(flags & !flag::PROFILED, leaves, context))
    }

    /// The call as a list of its steps.
    fn call_in_steps(&self, flags: u32, mut leaves: Writer<'_>, context: &CallContext<'_>) -> Result<Outcome> {
        if self.is_unaccelerated(flags, &leaves) {
            return self.call_unaccelerated(flags, &leaves, context);
        }
        write_modes(flags, &mut leaves);
        let (entry, start) = self.find_or_compile(flags, &leaves, context)?;
        let args = &leaves.tensors[..];
        let tensors = self.run_instrumented(flags, &entry, args, context)?;
        if let Some(check) = self.check_due(flags, &entry) {
            return self.compared(entry, tensors, args, &check, context);
        }
        if let Some(start) = start {
            self.note_hit(flags, &entry, start, args, context);
        }
        Ok(Outcome::Ran { entry, tensors })
    }

    /// Whether the ops of the function are to run one by one.
    fn is_unaccelerated(&self, flags: u32, leaves: &Writer<'_>) -> bool {
        let is_quarantined = || flags & flag::QUARANTINED != 0 && self.checks.is_quarantined(&leaves.words);
        flags & flag::DISABLED != 0 || is_quarantined()
    }

    /// Traces the function and runs its ops one by one.
    fn call_unaccelerated(&self, flags: u32, leaves: &Writer<'_>, context: &CallContext<'_>) -> Result<Outcome> {
        profile::served(CallKind::Unaccelerated);
        let trace = traced(Tape::on, &leaves.words, &leaves.tensors, context, self.identity())?;
        if flags & flag::TRAPPED != 0 {
            self.search(&trace, &leaves.tensors, String::new(), context)?;
        }
        let tensors = eager::evaluate(&trace, &leaves.tensors)?;
        Ok(Outcome::Evaluated { trace, tensors })
    }

    /// The entry of the call, and when the call began if it is a hit that is timed.
    fn find_or_compile(
        &self,
        flags: u32,
        leaves: &Writer<'_>,
        context: &CallContext<'_>,
    ) -> Result<(Found, Option<Instant>)> {
        let start = sampled_start();
        if let Some(entry) = self.find(&leaves.words) {
            self.events.hit(&entry.signature, context.caller);
            return Ok((entry, start));
        }
        let entry = self.get_or_compile(flags, leaves.words.clone(), &leaves.tensors, context)?;
        Ok((entry.into(), None))
    }

    /// Runs the entry, measured in a profiled call. A trapped run that stored NaN or infinities is searched for the op
    /// to blame.
    fn run_instrumented(
        &self,
        flags: u32,
        entry: &Found,
        args: &[&Tensor],
        context: &CallContext<'_>,
    ) -> Result<Vec<Tensor>> {
        let refused = |error| self.refused(error, entry, context.caller);
        if flags & flag::TRAPPED == 0 {
            let tensors = if profile::is_recording() { entry.run_profiled(args) } else { entry.run(args) };
            return tensors.map_err(refused);
        }
        let (tensors, first) = entry.run_trapped(args).map_err(refused)?;
        if let Some(group) = first {
            self.search(&entry.trace, args, group, context)?;
        }
        Ok(tensors)
    }

    /// The comparison that this call of the entry is due for.
    pub(super) fn check_due(&self, flags: u32, entry: &Found) -> Option<Check> {
        (flags & flag::CHECKED != 0).then(|| self.checks.is_due(&entry.turns)).flatten()
    }

    /// Notes the time of a hit that did no more than others, and compares the closure with the entry now and then.
    fn note_hit(&self, flags: u32, entry: &Found, start: Instant, args: &[&Tensor], context: &CallContext<'_>) {
        if flags & !flag::CHEAP == 0 {
            self.timed(flags, entry, start, args, context);
        } else {
            self.look_for_change(flags, entry, args, context);
        }
    }
}
