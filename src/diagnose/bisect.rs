//! Where an accelerated call parts from the un-accelerated one: the first value of the graph that differs, and why.
//!
//! Three comparisons, from the closure to the machine code, each on real arguments: the trace of the entry with one made
//! now; the recorded graph with the optimised one, both computed op by op, along the renaming of the passes; and the
//! optimised graph with what the steps of the compiled plan write. All values are held meanwhile. Nothing is printed.

mod code;
mod found;
mod traces;

use std::ops::ControlFlow;

pub use self::found::{BisectCause, Bisection, FusedGroup, GraphValue};
use super::check::gap;
use super::tolerance::Tolerance;
use crate::code::Target;
use crate::compile::Compiled;
use crate::error::{Error, Gap, Result};
use crate::graph::Graph;
use crate::opt::{Culprit, Renaming, Steps};
use crate::tensor::Tensor;
use crate::trace::Trace;
use crate::types::ValueId;

/// An entry of the cache: the recorded graph, and the code that was made of it for a target.
#[derive(Clone, Copy)]
pub(crate) struct Cached<'e> {
    pub(crate) trace: &'e Trace,
    pub(crate) compiled: &'e Compiled,
    pub(crate) target: Target,
}

/// Finds where a call of an entry parts from the un-accelerated call, whose trace is `fresh`.
pub(crate) fn bisect(cached: Cached<'_>, fresh: &Trace, args: &[&Tensor], tolerance: Tolerance) -> Result<Bisection> {
    let steps = Steps::of(&cached.trace.graph)?;
    let found = Search { renaming: steps.renaming(), cached, args, tolerance, steps }.run(fresh)?;
    Ok(found.unwrap_or(Bisection { cause: BisectCause::None, value: None, group: None, gap: None, tolerance }))
}

struct Search<'s> {
    cached: Cached<'s>,
    args: &'s [&'s Tensor],
    tolerance: Tolerance,
    steps: Steps,
    renaming: Renaming,
}

impl Search<'_> {
    fn run(&self, fresh: &Trace) -> Result<Option<Bisection>> {
        if let Some(found) = self.in_trace(fresh)? {
            return Ok(Some(found));
        }
        let recorded = values(&self.cached.trace.graph, &self.inputs())?;
        if let Some(found) = self.in_passes(&recorded)? {
            return Ok(Some(found));
        }
        drop(recorded);
        self.in_code()
    }

    /// Arguments, then captures.
    fn inputs(&self) -> Vec<&Tensor> {
        inputs(self.cached.trace, self.args)
    }

    /// The first value that a pass of the optimiser changed.
    fn in_passes(&self, recorded: &[Tensor]) -> Result<Option<Bisection>> {
        let (from, to) = (&self.cached.trace.graph, &self.cached.compiled.graph);
        let optimised = values(to, &self.inputs())?;
        let is_same = self.steps.last() == to;
        let ids = from.iter().map(|(id, _)| id);
        let pairs: Vec<(ValueId, ValueId)> = match is_same {
            true => ids.filter_map(|id| Some((id, self.renaming[id.index()]?))).collect(),
            // Of a graph that was optimised by others only the outputs are known to correspond.
            false => from.outputs().iter().copied().zip(to.outputs().iter().copied()).collect(),
        };
        for (id, counterpart) in pairs {
            let Some(gap) = gap(&recorded[id.index()], &optimised[counterpart.index()], &self.tolerance) else {
                continue;
            };
            let culprit = if is_same { self.culprit(id)? } else { None };
            let (pass, rule) = culprit.map_or(("unknown", None), |culprit| (culprit.pass, culprit.rule));
            let cause = BisectCause::Rewrite { pass: pass.to_owned(), rule: rule.map(str::to_owned) };
            return Ok(Some(self.found(cause, id, Some(gap))));
        }
        Ok(None)
    }

    fn culprit(&self, id: ValueId) -> Result<Option<Culprit>> {
        let inputs = self.inputs();
        self.steps.culprit(id, &mut |before, id, after, next| {
            let (before, after) = (value(before, id, &inputs)?, value(after, next, &inputs)?);
            Ok(gap(&before, &after, &self.tolerance).is_some())
        })
    }

    /// The recorded value that became this one of the optimised graph.
    fn recorded(&self, id: ValueId) -> Option<GraphValue> {
        let before = self.renaming.iter().position(|&counterpart| counterpart == Some(id))?;
        (self.steps.last() == &self.cached.compiled.graph)
            .then(|| GraphValue::of(&self.cached.trace.graph, ValueId(before as u32)))
    }

    fn found(&self, cause: BisectCause, id: ValueId, gap: Option<Gap>) -> Bisection {
        let value = Some(GraphValue::of(&self.cached.trace.graph, id));
        Bisection { cause, value, group: self.group(id), gap, tolerance: self.tolerance }
    }
}

fn inputs<'t>(trace: &'t Trace, args: &[&'t Tensor]) -> Vec<&'t Tensor> {
    args.iter().copied().chain(trace.captures.iter().map(|capture| &capture.tensor)).collect()
}

/// All values of a graph, computed op by op.
fn values(graph: &Graph, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    let mut values = Vec::with_capacity(graph.n_nodes());
    graph.each_value(inputs, &mut |_, _, value| {
        values.push(value.clone());
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(values)
}

/// One value of a graph, computed op by op from what it needs.
fn value(graph: &Graph, id: ValueId, inputs: &[&Tensor]) -> Result<Tensor> {
    let mut alone = graph.clone();
    alone.set_outputs(vec![id]);
    let alone = alone.without_dead_nodes();
    let output = alone.outputs()[0];
    let mut found = None;
    alone.each_value(inputs, &mut |id, _, value| {
        found = (id == output).then(|| value.clone());
        Ok(if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    found.ok_or_else(|| Error::Internal("a graph has no value for its output".into()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use retape_kernels::Work;
    use retape_kernels::ir::Inst;
    use retape_runtime::{Device, Scalar};

    use super::*;
    use crate::compile::{Stages, compile_for};
    use crate::diagnose::{Check, CheckWhen, OnDifference};
    use crate::opt::wrong::with_wrong_rule;
    use crate::tape::Tape;
    use crate::{accelerate, plan, trace};

    const TRIPLE: u32 = line!() + 3;

    fn formula(x: &Tensor) -> Tensor {
        let y = x.exp() * 3.0;
        let m = y.matmul(&y.t()).debug_print("bisect, a product");
        (m - 1.0).sin().sum(..)
    }

    fn x() -> Tensor {
        Tensor::from([[0.1_f32, 0.2, 0.3], [0.01, 0.02, 0.03]])
    }

    fn traced() -> Trace {
        let tape = Tape::describing(Device::Cpu);
        let parameter = tape.parameter(x().ty().unwrap().clone());
        trace::flatten(&tape, || Ok(formula(&parameter))).unwrap()
    }

    /// A trace and its code.
    struct Entry {
        trace: Trace,
        compiled: Arc<Compiled>,
    }

    impl Entry {
        fn cached(&self) -> Cached<'_> {
            Cached { trace: &self.trace, compiled: &self.compiled, target: Target::default() }
        }
    }

    fn entry() -> Entry {
        let trace = traced();
        let compiled = compile_for(&trace.graph, Target::default(), &mut Stages::default()).unwrap();
        Entry { trace, compiled }
    }

    /// An entry in whose code the first constant `from` of a step that `is_there` is `to`.
    fn entry_with_wrong_code(from: f64, to: f64) -> (Entry, usize) {
        let mut entry = entry();
        let (mut plan, layout) = plan::plan(&entry.compiled.graph, Device::Cpu).unwrap();
        let wrong = |step: &mut retape_kernels::Step| {
            let Work::Kernel(kernel) = &mut step.work else { return false };
            let constant = kernel.insts.iter_mut().find_map(|inst| match inst {
                Inst::Const(c) if c.to_f64() == from => Some(c),
                _ => None,
            });
            constant.map(|c| *c = Scalar::from_f64(to, c.dtype)).is_some()
        };
        let step = plan.steps.iter_mut().position(wrong).unwrap();
        let graph = entry.compiled.graph.clone();
        let code = Target::default().compile(plan).unwrap();
        entry.compiled = Arc::new(Compiled { graph, code, layout });
        (entry, step)
    }

    #[test]
    fn nothing_is_found_where_nothing_is_wrong() {
        let found = bisect(entry().cached(), &traced(), &[&x()], Tolerance::default()).unwrap();
        assert_eq!((found.cause, found.value, found.group), (BisectCause::None, None, None));
    }

    #[test]
    fn a_wrong_rewrite_is_found_with_its_rule() {
        with_wrong_rule(|| {
            let step = accelerate(|x: &Tensor| formula(x));
            step.configure(|options| {
                options.check =
                    (Check { when: CheckWhen::First(1), on_difference: OnDifference::Err, ..Check::default() }).into()
            });
            let error = step.call(x()).unwrap_err();
            assert!(matches!(error, Error::Check(_)), "{error}");
            let found = step.bisect(x()).unwrap();
            let BisectCause::Rewrite { pass, rule } = &found.cause else { panic!("{found}") };
            assert_eq!((pass.as_str(), rule.as_deref()), ("wrong", Some("triple_is_double")));
            let value = found.value.as_ref().unwrap();
            assert_eq!((value.op, value.at.unwrap().line()), ("mul", TRIPLE));
            assert!(found.group.as_ref().unwrap().label.contains("mul"), "{found}");
            let gap = found.gap.as_ref().unwrap();
            assert_eq!((gap.n_elements, gap.n_differing), (6, 6));
            assert!((gap.largest_relative - 1.0 / 3.0).abs() < 1e-6, "{found}");
            assert!(found.to_string().contains("rule `triple_is_double` of the pass `wrong`"), "{found}");
        });
    }

    #[test]
    fn wrong_code_is_found_with_its_step() {
        for (from, to, op) in [(3.0, 2.0, "mul"), (1.0, 0.5, "reduce_sum")] {
            let (entry, step) = entry_with_wrong_code(from, to);
            let found = bisect(entry.cached(), &traced(), &[&x()], Tolerance::default()).unwrap();
            let BisectCause::Code { step: found_step, label } = &found.cause else { panic!("{found}") };
            assert_eq!(*found_step, step, "{found}");
            assert!(label.contains(op), "{found}");
            assert_eq!(found.value.as_ref().unwrap().op, op, "{found}");
            assert_eq!(found.group.as_ref().unwrap().step, step);
        }
    }

    #[test]
    fn a_tolerance_wide_enough_finds_nothing() {
        let (entry, _) = entry_with_wrong_code(1.0, 1.5);
        let wide = Tolerance { absolute: 1e9, relative: 0.0, ulps: 0 };
        assert_eq!(bisect(entry.cached(), &traced(), &[&x()], wide).unwrap().cause, BisectCause::None);
    }
}
