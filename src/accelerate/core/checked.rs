//! The extra work of an instrumented call: the search behind a trap, the comparison with the un-accelerated path, and
//! bisection.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use retape_kernels::library::without_prints;
use retape_runtime::hash_words;

use super::enter::{trace_and_compile, traced};
use super::mode::{described, flag, write_modes};
use super::stale::quietly;
use super::{CallContext, Core, Found, Outcome};
use crate::accelerate::entry::Entry;
use crate::accelerate::recheck::Recheck;
use crate::call::CompareCall;
use crate::diagnose::bisect::{self, BisectCause, Bisection};
use crate::diagnose::check::{Check, Checks, ComparedCall, Results, Tally};
use crate::diagnose::tolerance::Tolerance;
use crate::diagnose::{nonfinite, rounding};
use crate::error::{Caller, Deviation, Error, NonFinite, Result};
use crate::observe::events::Events;
use crate::options::MathMode;
use crate::signature::Signature;
use crate::tape::Tape;
use crate::tensor::Tensor;
use crate::trace::Trace;
use crate::tree::Writer;
use crate::{collective, eager};

impl Core {
    pub(crate) fn checks(&self) -> &Checks {
        &self.checks
    }

    pub(crate) fn math_mode(&self) -> MathMode {
        if self.flags.load(Relaxed) & flag::FAST == 0 { MathMode::Strict } else { MathMode::Fast }
    }

    /// Fails if an op of the trace makes NaN or an infinity from finite numbers.
    pub(crate) fn search(
        &self,
        trace: &Trace,
        args: &[&Tensor],
        group: String,
        context: &CallContext<'_>,
    ) -> Result<()> {
        self.checks.search(&self.events, trace, args, group, context.caller)
    }

    /// Compares what an entry computed with the un-accelerated path.
    pub(crate) fn compared(
        &self,
        entry: Found,
        tensors: Vec<Tensor>,
        args: &[&Tensor],
        check: &Check,
        context: &CallContext<'_>,
    ) -> Result<Outcome> {
        let words = entry.signature.words();
        // Results are fetched from their device first: a failed transfer would otherwise compare as equal.
        tensors.iter().filter_map(Tensor::as_concrete).try_for_each(|concrete| concrete.bytes().map(|_| ()))?;
        let fresh = quietly(|| traced(Tape::describing, words, args, context, self.identity())).and_then(|trace| {
            let trace = trace.without_effects();
            // A collective takes the token of the print before it, which is said already.
            Ok((without_prints(|| eager::evaluate(&trace, args))?, trace))
        });
        let call = ComparedCall { function: self.identity(), signature: &entry.signature, at: context.caller };
        let deviation = match &fresh {
            Ok((expected, fresh)) => {
                let results = Results { call, cached: &entry.trace, got: &tensors, fresh, expected };
                let deviation = results.deviation(&check.tolerance);
                let is_rounding = || {
                    entry.trace.words == fresh.words
                        && rounding::explains(fresh, args, expected, &tensors, &check.tolerance)
                };
                deviation.filter(|_| !is_rounding())
            }
            Err(error) => Some(Deviation::of_failure(call, error)),
        };
        if !self.checks.record(&Tally::default(), deviation, check.on_difference, &self.events)? {
            return Ok(Outcome::Ran { entry, tensors });
        }
        entry.mark_bad();
        fresh.map(|(tensors, trace)| Outcome::Evaluated { trace, tensors })
    }

    /// The comparison that is due for a call inside a gradient, if its turn has come. Enters the closure.
    pub(crate) fn recheck(
        &self,
        entry: &Found,
        args: &[&Tensor],
        context: &CallContext<'_>,
    ) -> Result<Option<Box<dyn CompareCall>>> {
        let Some(check) = self.check_due(self.flags.load(Relaxed), entry) else { return Ok(None) };
        let fresh = quietly(|| traced(Tape::describing, entry.signature.words(), args, context, self.identity()))?
            .without_effects();
        let checks = Arc::clone(&self.checks);
        let events = self.events.clone();
        Ok(Some(Box::new(Recheck::new(checks, check, events, entry.to_shared(), fresh, context.caller))))
    }

    /// Finds the cause of a difference between a call with these arguments and the un-accelerated one.
    pub(crate) fn bisect(&self, mut leaves: Writer<'_>, context: &CallContext<'_>) -> Result<Bisection> {
        leaves.check()?;
        let flags = self.flags();
        write_modes(flags, &mut leaves);
        let words = &leaves.words;
        let fresh = quietly(|| traced(Tape::describing, words, &leaves.tensors, context, self.identity()))?;
        if collective::takes_workers(&fresh.graph) {
            let message = "a function that takes other workers cannot be run op by op on one of them; \
                           bisect it in a world of one";
            return Err(Error::Communication(message.to_owned()));
        }
        let entry = match self.cache.peek(&hash_words(words), &words[..]) {
            Some(entry) => entry,
            None => {
                let signature = Signature::of_words(words.clone(), described(flags, context));
                Arc::new(trace_and_compile(&signature, &leaves.tensors, context, self.identity())?)
            }
        };
        let tolerance = self.checks.tolerance();
        let found = bisect::bisect(entry.cached(), &fresh, &leaves.tensors, tolerance)?;
        Ok(match found.cause {
            BisectCause::Rewrite { .. } | BisectCause::Code { .. }
                if rounds(&entry, &fresh, &leaves.tensors, &tolerance)? =>
            {
                Bisection { cause: BisectCause::Rounding, ..found }
            }
            _ => found,
        })
    }
}

impl Checks {
    /// Fails if an op of the trace makes NaN or an infinity from finite numbers, and puts that on record.
    pub(crate) fn search(
        &self,
        events: &Events,
        trace: &Trace,
        args: &[&Tensor],
        group: String,
        at: Caller,
    ) -> Result<()> {
        let Some(found) = nonfinite::find(trace, args, at)?.or_else(|| nonfinite::beyond(trace, args, at)) else {
            return Ok(());
        };
        let found = NonFinite { function: Some(events.function.name()), group, ..found };
        self.count_trap();
        events.nonfinite(&found, at);
        Err(Error::NonFinite(Box::new(found)))
    }
}

/// Whether what an entry computes differs from what the ops compute by rounding alone.
fn rounds(entry: &Entry, fresh: &Trace, args: &[&Tensor], tolerance: &Tolerance) -> Result<bool> {
    let has_effect = fresh.graph.nodes().iter().any(|node| node.op.has_effect());
    if has_effect || entry.trace.words != fresh.words {
        return Ok(false);
    }
    let (expected, got) = (eager::evaluate(fresh, args)?, entry.run(args)?);
    Ok(rounding::explains(fresh, args, &expected, &got, tolerance))
}
