//! Check mode for calls inside gradients that are evaluated at once.
//!
//! The closure is entered again when the call is recorded; when it has run, its results are compared with those of the
//! ops one by one, and so are its gradients.

use std::sync::Arc;

use super::entry::Entry;
use crate::call::{CompareCall, Pull, Routine};
use crate::diagnose::check::{Check, Checks, ComparedCall, Results, Tally, gap};
use crate::diagnose::rounding;
use crate::eager;
use crate::error::{Caller, Deviation, Error, Result, shown};
use crate::observe::events::Events;
use crate::tensor::Tensor;
use crate::trace::{Source, Trace};

/// The fresh trace that a call inside a gradient is compared with.
#[derive(Debug)]
pub(crate) struct Recheck {
    checks: Arc<Checks>,
    check: Check,
    events: Events,
    entry: Arc<Entry>,
    fresh: Trace,
    /// The fresh trace as something that has gradients.
    routine: Routine,
    at: Caller,
    tally: Tally,
}

impl CompareCall for Recheck {
    /// Compares what the code computed from arguments; gives what the call is to go on with.
    fn results(&self, args: &[Tensor], mut outputs: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let args: Vec<&Tensor> = args.iter().collect();
        let expected = eager::evaluate(&self.fresh, &args)?;
        let got = self.entry.trace.results(&args, outputs.clone());
        let (cached, fresh) = (&self.entry.trace, &self.fresh);
        let results = Results { call: self.call(), cached, got: &got, fresh, expected: &expected };
        let tolerance = &self.check.tolerance;
        let deviation = results.deviation(tolerance);
        let is_rounding = || {
            self.entry.trace.words == self.fresh.words
                && rounding::explains(&self.fresh, &args, &expected, &got, tolerance)
        };
        let deviation = deviation.filter(|_| !is_rounding());
        if !self.falls_back(deviation.clone())? {
            return Ok(outputs);
        }
        // The gradient under way was recorded with this structure of the result, and has gone on with what was handed
        // through or is constant: only outputs can be mended.
        if let Some(deviation) = deviation.filter(|_| !self.corresponds()) {
            return Err(Error::Check(Box::new(deviation)));
        }
        for (source, expected) in self.entry.trace.sources.iter().zip(&expected) {
            if let Source::Output(output) = source {
                outputs[*output] = expected.clone();
            }
        }
        let mended = self.entry.trace.results(&args, outputs.clone());
        let results = Results { got: &mended, ..results };
        match results.deviation(&self.check.tolerance) {
            Some(deviation) => Err(Error::Check(Box::new(deviation))),
            None => Ok(outputs),
        }
    }

    /// Compares gradients that the code computed from arguments and cotangents.
    fn gradients(&self, pull: &Pull, inputs: &[Tensor], gradients: Vec<Tensor>) -> Result<Vec<Tensor>> {
        if !self.corresponds() {
            // The cotangents belong to other results; that these differ has been said.
            return Ok(gradients);
        }
        let pull_back = self.routine.pull_back(pull.clone(), self.at)?;
        let (gradient, args) = (pull_back.gradient(), inputs.iter());
        let expected = eager::evaluate_graph(gradient.graph(), &args.chain(gradient.captures()).collect::<Vec<_>>())?;
        let differing: Vec<_> = expected
            .iter()
            .zip(&gradients)
            .enumerate()
            .filter_map(|(n, (expected, got))| Some((n, gap(expected, got, &self.check.tolerance)?)))
            .collect();
        let deviation = differing.first().map(|(n, gap)| {
            let argument = self.entry.signature.description().tensor_path(pull.wrt[*n]).unwrap_or_default();
            let sample = gap.samples.first();
            let expected = sample.map(|pair| shown(pair.expected)).unwrap_or_default();
            let got = sample.map(|pair| shown(pair.got)).unwrap_or_default();
            let path = format!("the gradient by {argument}");
            let deviation = Deviation::new(self.call(), path, expected, got);
            Deviation { gap: Some(gap.clone()), n_tensors: differing.len(), ..deviation }
        });
        Ok(if self.falls_back(deviation)? { expected } else { gradients })
    }
}

impl Recheck {
    pub(crate) fn new(
        checks: Arc<Checks>,
        check: Check,
        events: Events,
        entry: Arc<Entry>,
        fresh: Trace,
        at: Caller,
    ) -> Recheck {
        let captures = fresh.captures.iter().map(|capture| capture.tensor.clone()).collect();
        let routine = Routine::uncompiled(fresh.graph.clone(), captures);
        Recheck { checks, check, events, entry, fresh, routine, at, tally: Tally::default() }
    }

    fn call(&self) -> ComparedCall<'_> {
        ComparedCall { function: &self.events.function, signature: &self.entry.signature, at: self.at }
    }

    /// Whether the tensors of the result come from where they came from in the trace of the entry.
    fn corresponds(&self) -> bool {
        let same = |(a, b): (&Source, &Source)| match (a, b) {
            (Source::Output(a), Source::Output(b)) | (Source::Parameter(a), Source::Parameter(b)) => a == b,
            (Source::Constant(_), Source::Constant(_)) => true,
            (Source::Output(_) | Source::Parameter(_) | Source::Constant(_), _) => false,
        };
        let (cached, fresh) = (&self.entry.trace, &self.fresh);
        cached.words == fresh.words && cached.sources.iter().zip(&fresh.sources).all(same)
    }

    /// Puts a comparison on record; whether the call is to go on with what the ops computed.
    fn falls_back(&self, deviation: Option<Deviation>) -> Result<bool> {
        let falls_back = self.checks.record(&self.tally, deviation, self.check.on_difference, &self.events)?;
        if falls_back {
            self.entry.mark_bad();
        }
        Ok(falls_back)
    }
}
