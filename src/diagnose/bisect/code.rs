//! The last comparison of a bisection: the results of the plan's steps with those of the optimised graph.

use retape_kernels::{CompiledPlan, Modes, Place, Plan};

use super::{BisectCause, Bisection, FusedGroup, GraphValue, Search, values};
use crate::code::{Operands, Target};
use crate::compile::Compiled;
use crate::diagnose::check::bytes;
use crate::diagnose::tolerance::compare;
use crate::error::{Gap, Result};
use crate::ops::Op;
use crate::tensor::Tensor;
use crate::types::ValueId;

impl Search<'_> {
    /// The first step of the plan that writes something else than the ops of the optimised graph.
    pub(crate) fn in_code(&self) -> Result<Option<Bisection>> {
        let graph = &self.cached.compiled.graph;
        let expected = values(graph, &self.inputs())?;
        let plan = self.cached.compiled.code.plan();
        // In code that is not merged every step can be looked at; but it is the merged code that runs.
        let target = self.cached.target;
        let modes = Modes { separate: true, trap: false, ..target.modes };
        let apart = Target { modes, ..target }.compile(plan.clone())?;
        for code in [&apart, &self.cached.compiled.code] {
            if let Some((step, id, gap)) = self.first_wrong_step(code, &expected)? {
                let label = plan.steps[step].label.clone();
                let cause = BisectCause::Code { step, label: label.clone() };
                let value = Some(self.recorded(id).unwrap_or_else(|| GraphValue::of(graph, id)));
                let (group, gap) = (Some(FusedGroup { step, label }), Some(gap));
                return Ok(Some(Bisection { cause, value, group, gap, tolerance: self.tolerance }));
            }
        }
        Ok(None)
    }

    fn first_wrong_step(&self, code: &CompiledPlan, expected: &[Tensor]) -> Result<Option<(usize, ValueId, Gap)>> {
        let inputs = self.inputs();
        let mut found = None;
        let mut see = |step: usize, position: usize, got: &[u8]| {
            let Some(&id) = self.written(step).get(position) else { return };
            let expected = &expected[id.index()];
            let Some(bytes) = bytes(expected).filter(|bytes| bytes.len() == got.len() && found.is_none()) else {
                return;
            };
            found = compare(expected.dtype(), bytes, got, &self.tolerance).map(|gap| (step, id, gap));
        };
        code.run_stepwise(&Operands::of(&inputs), &mut see)?;
        Ok(found)
    }

    /// The values that a step of the plan writes.
    fn written(&self, step: usize) -> &[ValueId] {
        let Compiled { code, layout, .. } = self.cached.compiled;
        let work = code.plan().steps.get(step).map(|step| &step.work);
        let (Some(work), Some(values)) = (work, layout.steps.get(step)) else { return &[] };
        values.operands.get(work.signature().1..).unwrap_or_default()
    }

    /// The first step that computes a recorded value, or something from it.
    pub(crate) fn group(&self, id: ValueId) -> Option<FusedGroup> {
        let (from, to) = (&self.cached.trace.graph, &self.cached.compiled.graph);
        // Of a graph that was optimised by others, or had formulas put in, no value is known to correspond.
        if self.steps.last() != to {
            return None;
        }
        let plan = self.cached.compiled.code.plan();
        let mut depends = vec![false; from.n_nodes()];
        depends[id.index()] = true;
        for (id, node) in from.iter() {
            depends[id.index()] |= node.args.iter().any(|arg| depends[arg.index()]);
        }
        // A value has the memory of what it is a reshape of.
        let mut touched = vec![false; to.n_nodes()];
        let dependents = self.renaming.iter().zip(&depends).filter(|(_, depends)| **depends);
        dependents.filter_map(|(counterpart, _)| *counterpart).for_each(|id| {
            if let Some(touched) = touched.get_mut(id.index()) {
                *touched = true;
            }
        });
        for (id, node) in to.iter().rev() {
            if touched[id.index()] && matches!(node.op, Op::Reshape(_)) {
                touched[node.args[0].index()] = true;
            }
        }
        let param = from.params().iter().position(|&param| param == id);
        let is_touched = |id: &ValueId| touched.get(id.index()).copied().unwrap_or(false);
        let steps = &self.cached.compiled.layout.steps;
        let step = (0..steps.len()).find(|&step| match param {
            Some(param) => reads(plan, step, param),
            None => steps[step].roots.iter().any(is_touched) || self.written(step).iter().any(is_touched),
        })?;
        let label = plan.steps.get(step)?.label.clone();
        Some(FusedGroup { step, label })
    }
}

/// Whether a step of the plan reads an input.
fn reads(plan: &Plan, step: usize, input: usize) -> bool {
    let place = |place: &Place| matches!(place, Place::Input(n) if *n as usize == input);
    plan.steps.get(step).is_some_and(|step| step.operands.iter().any(|operand| place(&operand.place)))
}
