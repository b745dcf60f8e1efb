//! The first comparison of a bisection: the cached trace with the closure's recording now.

use super::{BisectCause, Bisection, Search, inputs, value};
use crate::diagnose::check::gap;
use crate::diagnose::tolerance::Tolerance;
use crate::error::{Gap, Result};
use crate::graph::Graph;
use crate::observe::explain::Difference;
use crate::ops::Op;
use crate::tensor::Tensor;
use crate::trace::{Source, Trace};
use crate::types::ValueId;

impl Search<'_> {
    /// The first difference between the trace of the entry and one made now.
    pub(crate) fn in_trace(&self, fresh: &Trace) -> Result<Option<Bisection>> {
        if let Some(found) = self.changed_capture(fresh) {
            return Ok(Some(found));
        }
        match first_difference(&self.cached.trace.graph, &fresh.graph) {
            Some(n) => self.changed_op(fresh, n).map(Some),
            None => Ok(self.changed_result(fresh)),
        }
    }

    fn changed_capture(&self, new: &Trace) -> Option<Bisection> {
        let (old, n_args) = (&self.cached.trace, self.args.len());
        for (n, (was, is)) in old.captures.iter().zip(&new.captures).enumerate() {
            let (Some(recorded), Some(now)) = (was.tensor.ty(), is.tensor.ty()) else { continue };
            // The fresh capture has a line of this program; that of the entry may come from an artefact.
            let Some(at) = is.at.known() else { continue };
            let gap = exact_gap(&was.tensor, &is.tensor);
            // Where the ops differ, captures need not correspond.
            if gap.is_some() || (recorded != now && was.at == is.at) {
                let element = gap.as_ref().map(|gap| gap.first);
                let (recorded, now) = (recorded.clone(), now.clone());
                let cause = BisectCause::CaptureChanged { at, recorded, now, element };
                return Some(self.found(cause, old.graph.params()[n_args + n], gap));
            }
        }
        None
    }

    /// Node `n` is the first that the closure records otherwise now.
    fn changed_op(&self, new: &Trace, n: usize) -> Result<Bisection> {
        let (old, id) = (&self.cached.trace, ValueId(n as u32));
        let text = |graph: &Graph| if n < graph.n_nodes() { graph.node_text(id) } else { String::new() };
        let at = [&new.graph, &old.graph].into_iter().find_map(|graph| graph.nodes().get(n)?.at);
        let cause = BisectCause::TraceChanged { at, recorded: text(&old.graph), now: text(&new.graph) };
        let is_there = |graph: &Graph| graph.nodes().get(n).is_some_and(|node| !matches!(node.op, Op::Parameter(_)));
        if !is_there(&old.graph) {
            return Ok(self.without_value(cause, None));
        }
        let mut difference = None;
        if is_there(&new.graph) && old.graph.ty(id) == new.graph.ty(id) {
            let was = value(&old.graph, id, &self.inputs())?;
            let is = value(&new.graph, id, &inputs(new, self.args))?;
            difference = exact_gap(&was, &is);
        }
        Ok(self.found(cause, id, difference))
    }

    /// The difference between the closure's results, if it now builds another one of the same ops: no value of the
    /// graph shows it.
    fn changed_result(&self, new: &Trace) -> Option<Bisection> {
        let old = &self.cached.trace;
        let changed = |recorded: String, now: String, gap| {
            self.without_value(BisectCause::TraceChanged { at: None, recorded, now }, gap)
        };
        if old.words != new.words || old.sources.len() != new.sources.len() {
            // The trace of an entry that was loaded has no description.
            let differences = old.result.differences(&new.result).into_iter();
            let first = differences.take(if old.result.leaves.is_empty() { 0 } else { 1 }).next();
            return Some(match first {
                Some(Difference { path, aspect, old, new, .. }) => {
                    changed(format!("{path} {aspect}: {old}"), format!("{path} {aspect}: {new}"), None)
                }
                None => changed("another structure".into(), format!("({})", new.result), None),
            });
        }
        let (was_given, is_given) = (self.inputs(), inputs(new, self.args));
        old.sources.iter().zip(&new.sources).enumerate().find_map(|(n, (was, is))| {
            let gap = match (known(was, &was_given), known(is, &is_given)) {
                (Some(was), Some(is)) => exact_gap(was, is),
                _ => None,
            };
            let is_same = match (was, is) {
                (Source::Output(was), Source::Output(is)) | (Source::Parameter(was), Source::Parameter(is)) => {
                    was == is
                }
                (Source::Constant(was), Source::Constant(is)) => was.ty() == is.ty() && gap.is_none(),
                (Source::Output(_) | Source::Parameter(_) | Source::Constant(_), _) => false,
            };
            let path = || new.result.tensor_path(n).unwrap_or_else(|| format!("tensor {n} of the result"));
            let text = |source, trace| format!("{} = {}", path(), source_text(source, trace));
            (!is_same).then(|| changed(text(was, old), text(is, new), gap))
        })
    }

    fn without_value(&self, cause: BisectCause, gap: Option<Gap>) -> Bisection {
        Bisection { cause, value: None, group: None, gap, tolerance: self.tolerance }
    }
}

/// How a tensor is not what it was, if the types are the same.
fn exact_gap(was: &Tensor, is: &Tensor) -> Option<Gap> {
    if was.ty() == is.ty() { gap(is, was, &Tolerance::EXACT) } else { None }
}

/// A tensor of the result that no op computes.
fn known<'s>(source: &'s Source, inputs: &[&'s Tensor]) -> Option<&'s Tensor> {
    match source {
        Source::Constant(tensor) => Some(tensor),
        Source::Parameter(position) => inputs.get(*position).copied(),
        Source::Output(_) => None,
    }
}

fn source_text(source: &Source, trace: &Trace) -> String {
    let value = |ids: &[ValueId], n: usize| ids.get(n).map_or_else(String::new, ValueId::to_string);
    match source {
        Source::Output(n) => value(trace.graph.outputs(), *n),
        Source::Parameter(n) => value(trace.graph.params(), *n),
        Source::Constant(tensor) => format!("a constant {}{:?}", tensor.dtype(), tensor.shape()),
    }
}

/// The first position at which two graphs have other nodes.
fn first_difference(old: &Graph, new: &Graph) -> Option<usize> {
    if old == new {
        return None;
    }
    let same = |n: &usize| {
        let (was, is) = (&old.nodes()[*n], &new.nodes()[*n]);
        was.op == is.op && was.args == is.args && was.ty == is.ty
    };
    let shorter = old.n_nodes().min(new.n_nodes());
    let first = (0..shorter).find(|n| !same(n)).unwrap_or(shorter);
    // Of equal nodes other ones may be returned.
    let last = old.n_nodes().max(new.n_nodes()).saturating_sub(1);
    let outputs = old.outputs().iter().zip(new.outputs()).find(|(was, is)| was != is).map(|(was, _)| was.index());
    Some(if first <= last { first } else { outputs.unwrap_or(last) })
}
