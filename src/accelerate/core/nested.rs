//! Calls with traced arguments: recorded as one call inside a gradient that is evaluated at once, or inlined.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use retape_runtime::hash_words;

use super::enter::entered;
use super::mode::{flag, write_modes};
use super::{CallContext, Core, Found, Outcome};
use crate::error::{Caller, Error, Result};
use crate::observe::latency::{is_unseen, sampled_start};
use crate::tape::Tape;
use crate::tensor::Recording;
use crate::trace::stand_ins;
use crate::tree::{Reader, Writer};

impl Core {
    /// The tape that a call with such arguments is recorded on as a call: that of a gradient that is evaluated at once.
    pub(crate) fn calls_on(&self, leaves: &Writer<'_>) -> Option<Arc<Tape>> {
        let mut traced = leaves.tensors.iter().filter_map(|tensor| tensor.as_traced());
        let flags = self.flags();
        let tape = traced.next()?.tape();
        if !tape.is_evaluated() || tape.is_finished() {
            return None;
        }
        let is_one = flags & (flag::DISABLED | flag::TRAPPED) == 0 && traced.all(|other| other.is_on(&tape));
        let is_quarantined = || flags & flag::QUARANTINED != 0 && self.checks.is_quarantined(&leaves.words);
        (is_one && !is_quarantined()).then_some(tape)
    }

    /// A call inside a gradient that is evaluated at once: a hit or a miss as outside, whose code runs later.
    pub(crate) fn record(&self, tape: &Arc<Tape>, leaves: Writer<'_>, context: &CallContext<'_>) -> Result<Outcome> {
        tape.failing_with_panics(|| self.recorded(tape, leaves, context))
    }

    fn recorded(&self, tape: &Arc<Tape>, mut leaves: Writer<'_>, context: &CallContext<'_>) -> Result<Outcome> {
        leaves.check()?;
        // Such a call is not trapped: that is the affair of the gradient that it is part of.
        let flags = self.flags() & (flag::FAST | flag::NONDETERMINISTIC);
        write_modes(flags, &mut leaves);
        let (words, args) = (leaves.words, leaves.tensors);
        let known = if is_unseen() { self.cache.peek(&hash_words(&words), &words[..]).map(Found::from) } else { None };
        let found =
            known.or_else(|| self.find(&words).inspect(|entry| self.events.hit(&entry.signature, context.caller)));
        let is_hit = found.is_some();
        let entry = found.map_or_else(|| Ok(self.get_or_compile(flags, words, &args, context)?.into()), Ok);
        let checked = entry.and_then(|entry: Found| Ok((self.recheck(&entry, &args, context)?, entry)));
        // The first error of a trace is its result, whatever the closure makes of it.
        let (check, entry) = checked.inspect_err(|error: &Error| drop(tape.fail(error.clone())))?;
        if is_hit && sampled_start().is_some() {
            self.look_for_change(self.flags(), &entry, &args, context);
        }
        let tensors = entry.record(tape, &args, &self.common, check, context.caller);
        if let Some(weight) = entry.grown() {
            self.cache.reweigh(&entry.signature.hash(), entry.signature.words(), weight);
        }
        Ok(Outcome::Ran { entry, tensors })
    }

    /// A call inside another trace: the function becomes part of it.
    pub(crate) fn inline<R>(
        &self,
        leaves: &Writer<'_>,
        caller: Caller,
        body: &dyn Fn(&mut Reader<'_>) -> Result<R>,
    ) -> Result<R> {
        leaves.check()?;
        let traced = leaves.tensors.iter().find_map(|tensor| tensor.as_traced());
        let tape = &traced.ok_or_else(|| Error::Internal("nothing is traced that could be inlined".into()))?.tape();
        if tape.is_finished() {
            let message = "a traced tensor was passed after its trace had ended; return it from the closure";
            return Err(Error::Escaped { op: "call", message, at: caller, call: None });
        }
        if tape.is_evaluated() && self.flags.load(Relaxed) & flag::TRAPPED != 0 {
            tape.trap();
        }
        let args = stand_ins(tape, &leaves.tensors, caller);
        tape.failing_with_panics(|| entered(caller, || body(&mut Reader::new(&leaves.words, &args))))
    }
}
