//! The calls of compiled code in a graph that is evaluated.
//!
//! Each call runs once, when its first result is reached. If a gradient of it follows, its forward code runs and leaves
//! residuals to the backward code. A gradient that is differentiated itself has residuals of its own to make, and
//! computes everything from scratch; so does one whose call has left residuals for another gradient.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::Arc;

use super::routine::{PullBack, Residuals};
use super::site::CallSite;
use crate::error::{Caller, Error, Result};
use crate::graph::Graph;
use crate::ops::Op;
use crate::tensor::Tensor;
use crate::types::ValueId;

/// All calls of a graph.
#[derive(Debug)]
pub(crate) struct Calls {
    calls: Vec<CallOf>,
    of_value: HashMap<ValueId, usize>,
}

#[derive(Debug)]
struct CallOf {
    site: Arc<CallSite>,
    at: Caller,
    /// The results that are needed, with the position of each.
    results: Vec<(ValueId, usize)>,
    /// The gradient that residuals are kept for, and the calls that will use them.
    keeps_for: Option<(Arc<PullBack>, Vec<usize>)>,
    /// The residuals kept by the call that this one is the gradient of.
    residuals: Option<Residuals>,
}

impl Calls {
    pub(crate) fn of(graph: &Graph) -> Calls {
        let mut calls: Vec<CallOf> = vec![];
        let mut of_value = HashMap::new();
        let mut of_site: HashMap<*const CallSite, usize> = HashMap::new();
        for (id, node) in graph.iter() {
            let Op::Call(call) = &node.op else { continue };
            let site = CallSite::of_node(call);
            let index = *of_site.entry(Arc::as_ptr(&site)).or_insert_with(|| {
                let at = node.at.unwrap_or(Location::caller());
                calls.push(CallOf { site, at, results: vec![], keeps_for: None, residuals: None });
                calls.len() - 1
            });
            calls[index].results.push((id, call.output));
            of_value.insert(id, index);
        }
        let primal = |index: usize, calls: &[CallOf]| {
            let (site, pull_back) = calls[index].site.of.as_ref()?;
            Some((*of_site.get(&Arc::as_ptr(site))?, Arc::clone(pull_back)))
        };
        let primals: Vec<Option<(usize, Arc<PullBack>)>> = (0..calls.len()).map(|n| primal(n, &calls)).collect();
        for (index, of) in primals.iter().enumerate() {
            let Some((call, pull_back)) = of else { continue };
            if primals.iter().flatten().any(|(primal, _)| *primal == index) {
                continue;
            }
            let (keeps_for, users) = calls[*call].keeps_for.get_or_insert_with(|| (Arc::clone(pull_back), vec![]));
            if Arc::ptr_eq(keeps_for, pull_back) {
                users.push(index);
            }
        }
        Calls { calls, of_value }
    }

    /// Runs the call that `id` is a result of; gives all its results that are needed.
    pub(crate) fn run(&mut self, id: ValueId, inputs: &[Tensor]) -> Result<Vec<(ValueId, Tensor)>> {
        let index = self.of_value.get(&id).copied();
        let index = index.ok_or_else(|| Error::Internal(format!("{id} is not the result of a call")))?;
        let (routine, at) = (Arc::clone(&self.calls[index].site.routine), self.calls[index].at);
        let outputs = self.outputs(index, inputs).map_err(|error| routine.refused(error, at))?;
        let outputs = match &*self.calls[index].site {
            CallSite { check: Some(check), .. } => check.results(inputs, outputs)?,
            CallSite { of: Some((of, pull_back)), .. } => match &of.check {
                Some(check) => check.gradients(pull_back.pull(), inputs, outputs)?,
                None => outputs,
            },
            CallSite { of: None, check: None, .. } => outputs,
        };
        Ok(self.calls[index].results.iter().map(|&(id, output)| (id, outputs[output].clone())).collect())
    }

    fn outputs(&mut self, index: usize, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let call = &mut self.calls[index];
        if let Some((pull_back, users)) = call.keeps_for.take() {
            let (outputs, residuals) = pull_back.run_forward(inputs, call.at)?;
            if let Some((_, own)) = &call.site.of {
                own.count(residuals.is_new);
            }
            // Of several gradients the first one counts as the one that the code was made for.
            for (n, user) in users.into_iter().enumerate() {
                let mut residuals = residuals.clone();
                residuals.is_new &= n == 0;
                self.calls[user].residuals = Some(residuals);
            }
            return Ok(outputs);
        }
        match (&call.site.of, call.residuals.take()) {
            (Some((_, pull_back)), Some(residuals)) => pull_back.run_backward(residuals, inputs),
            (Some((_, pull_back)), None) => pull_back.run_alone(inputs, call.at),
            (None, _) => call.site.routine.run(inputs),
        }
    }
}
