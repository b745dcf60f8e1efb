//! Where an accelerated call parts from the un-accelerated one: the first value of the graph that differs, and why.
//!
//! Three comparisons, from the closure to the machine code, each on real arguments: the trace of the entry with one made
//! now; the recorded graph with the optimised one, both computed op by op, along the renaming of the passes; and the
//! optimised graph with what the steps of the compiled plan write. All values are held meanwhile.

use std::fmt;
use std::ops::ControlFlow;

use retape_kernels::{Executable, Modes, Place};
use retape_runtime::Buffer;

use super::check::{bytes, gap};
use super::entry::Entry;
use super::tolerance::{Gap, Tolerance, compare};
use crate::compile::{self, Compiled};
use crate::error::{Caller, Error, Result};
use crate::graph::{Graph, TensorType, ValueId};
use crate::ops::Op;
use crate::opt::{Culprit, Renaming, Steps};
use crate::tensor::Tensor;
use crate::trace::{Source, Trace};

/// What [`Accelerated::bisect`](crate::Accelerated::bisect) found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Bisection {
    /// Why the compiled code computes something else.
    pub cause: BisectCause,
    /// The first value of the graph that differs, in the order of the program.
    pub value: Option<GraphValue>,
    /// The fused group that made it, or that first used it if it is an input.
    pub group: Option<FusedGroup>,
    /// How the value differs; none if it has another type.
    pub gap: Option<Gap>,
    /// What counted as equal.
    pub tolerance: Tolerance,
}

/// Why a call differs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum BisectCause {
    /// Nothing differs.
    None,
    /// A tensor that the closure captured is not what it was when it was traced.
    #[non_exhaustive]
    CaptureChanged {
        /// The line that used it.
        at: Caller,
        /// Its dtype and shape in the trace.
        recorded: TensorType,
        /// Its dtype and shape now.
        now: TensorType,
        /// The position of the first element that differs, if the types do not.
        element: Option<usize>,
    },
    /// The closure records other ops than when it was traced: it read a number or took a branch that has changed.
    #[non_exhaustive]
    TraceChanged {
        /// The line of the first op that differs.
        at: Option<Caller>,
        /// The op in the trace, as graph text; empty if it ends before.
        recorded: String,
        /// The op now; empty if the graph ends before.
        now: String,
    },
    /// The optimiser changed what is computed: a bug of this library.
    #[non_exhaustive]
    Rewrite {
        /// The pass.
        pass: String,
        /// The rule, if one alone does it.
        rule: Option<String>,
    },
    /// The machine code computes something else than the optimised graph: a bug of this library.
    #[non_exhaustive]
    Code {
        /// The number of the step in the plan.
        step: usize,
        /// Its label.
        label: String,
    },
}

/// A value of a graph.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GraphValue {
    /// Its number.
    pub id: ValueId,
    /// The op that makes it.
    pub op: &'static str,
    /// That op as graph text, such as `%3 = mul %1, %2 : f32[4]`.
    pub text: String,
    /// The line that asked for it.
    pub at: Option<Caller>,
}

/// A step of the compiled plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FusedGroup {
    /// Its number.
    pub step: usize,
    /// The ops that it computes, such as `mul+reduce_sum`.
    pub label: String,
}

impl fmt::Display for BisectCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BisectCause::None => f.write_str("nothing differs"),
            BisectCause::CaptureChanged { at, recorded, now, element } => {
                write!(f, "the captured tensor {recorded} used at {at} has changed since the trace")?;
                match element {
                    Some(element) => write!(f, ", first at element {element}"),
                    None => write!(f, " to {now}"),
                }
            }
            BisectCause::TraceChanged { at, recorded, now } => {
                let or_end = |text: &str| if text.is_empty() { "the end".to_owned() } else { format!("`{text}`") };
                write!(f, "the closure now records {} instead of {}", or_end(now), or_end(recorded))?;
                at.map_or(Ok(()), |at| write!(f, " at {at}"))
            }
            BisectCause::Rewrite { pass, rule: Some(rule) } => {
                write!(f, "the rule `{rule}` of the pass `{pass}` is wrong")
            }
            BisectCause::Rewrite { pass, rule: None } => write!(f, "the pass `{pass}` is wrong"),
            BisectCause::Code { step, label } => write!(f, "the code of step {step} ({label}) is wrong"),
        }
    }
}

impl fmt::Display for Bisection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cause)?;
        if let Some(value) = &self.value {
            write!(f, "\n  first value   {}", value.text)?;
            value.at.map_or(Ok(()), |at| write!(f, " ({at})"))?;
        }
        if let Some(group) = &self.group {
            write!(f, "\n  fused group   step {}: {}", group.step, group.label)?;
        }
        self.gap.iter().try_for_each(|gap| write!(f, "\n  difference    {gap}"))
    }
}

impl GraphValue {
    fn of(graph: &Graph, id: ValueId) -> GraphValue {
        let node = graph.node(id);
        GraphValue { id, op: node.op.name(), text: graph.node_text(id), at: node.at }
    }
}

/// Finds where a call of an entry parts from the un-accelerated call, whose trace is `fresh`.
pub(super) fn bisect(entry: &Entry, fresh: &Trace, args: &[&Tensor], tolerance: Tolerance) -> Result<Bisection> {
    let steps = Steps::of(&entry.trace.graph)?;
    let found = Search { renaming: steps.renaming(), entry, args, tolerance, steps }.run(fresh)?;
    Ok(found.unwrap_or(Bisection { cause: BisectCause::None, value: None, group: None, gap: None, tolerance }))
}

struct Search<'s> {
    entry: &'s Entry,
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
        let recorded = values(&self.entry.trace.graph, &self.inputs())?;
        if let Some(found) = self.in_passes(&recorded)? {
            return Ok(Some(found));
        }
        drop(recorded);
        self.in_code()
    }

    /// Arguments, then captures.
    fn inputs(&self) -> Vec<&Tensor> {
        inputs(&self.entry.trace, self.args)
    }

    /// The first difference between the trace of the entry and one made now.
    fn in_trace(&self, fresh: &Trace) -> Result<Option<Bisection>> {
        let (old, new) = (&self.entry.trace, fresh);
        let n_args = self.args.len();
        for (n, (was, is)) in old.captures.iter().zip(&new.captures).enumerate() {
            let (Some(recorded), Some(now)) = (was.tensor.ty(), is.tensor.ty()) else { continue };
            // What was recorded now has a line of this program; the entry may come from an artefact.
            let Some(at) = is.at.known() else { continue };
            let gap = if recorded == now { gap(&is.tensor, &was.tensor, &Tolerance::EXACT) } else { None };
            // Where the ops differ, captures need not correspond.
            if gap.is_some() || (recorded != now && was.at == is.at) {
                let element = gap.as_ref().map(|gap| gap.first);
                let (recorded, now) = (recorded.clone(), now.clone());
                let cause = BisectCause::CaptureChanged { at, recorded, now, element };
                return Ok(Some(self.found(cause, old.graph.params()[n_args + n], gap)));
            }
        }
        if let Some(n) = first_difference(&old.graph, &new.graph) {
            return self.changed_op(new, n).map(Some);
        }
        for (was, is) in old.sources.iter().zip(&new.sources) {
            // A tensor that the closure returns without using it is no value of the graph.
            if let (Source::Constant(was), Source::Constant(is)) = (was, is)
                && let Some(gap) = gap(is, was, &Tolerance::EXACT)
            {
                let text = |tensor: &Tensor| format!("return {}{:?}", tensor.dtype(), tensor.shape());
                let cause = BisectCause::TraceChanged { at: None, recorded: text(was), now: text(is) };
                let nothing = Bisection { cause, value: None, group: None, gap: None, tolerance: self.tolerance };
                return Ok(Some(Bisection { gap: Some(gap), ..nothing }));
            }
        }
        Ok(None)
    }

    /// Node `n` is the first that the closure records otherwise now.
    fn changed_op(&self, new: &Trace, n: usize) -> Result<Bisection> {
        let (old, id) = (&self.entry.trace, ValueId(n as u32));
        let text = |graph: &Graph| if n < graph.n_nodes() { graph.node_text(id) } else { String::new() };
        let at = [&new.graph, &old.graph].into_iter().find_map(|graph| graph.nodes().get(n)?.at);
        let cause = BisectCause::TraceChanged { at, recorded: text(&old.graph), now: text(&new.graph) };
        let is_there = |graph: &Graph| graph.nodes().get(n).is_some_and(|node| !matches!(node.op, Op::Parameter(_)));
        if !is_there(&old.graph) {
            return Ok(Bisection { cause, value: None, group: None, gap: None, tolerance: self.tolerance });
        }
        let mut difference = None;
        if is_there(&new.graph) && old.graph.ty(id) == new.graph.ty(id) {
            let was = value(&old.graph, id, &self.inputs())?;
            let is = value(&new.graph, id, &inputs(new, self.args))?;
            difference = gap(&is, &was, &Tolerance::EXACT);
        }
        Ok(self.found(cause, id, difference))
    }

    /// The first value that a pass of the optimiser changed.
    fn in_passes(&self, recorded: &[Tensor]) -> Result<Option<Bisection>> {
        let (from, to) = (&self.entry.trace.graph, &self.entry.compiled.graph);
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

    /// The first step of the plan that writes something else than the ops of the optimised graph.
    fn in_code(&self) -> Result<Option<Bisection>> {
        let graph = &self.entry.compiled.graph;
        let expected = values(graph, &self.inputs())?;
        let plan = self.entry.executable().plan();
        // In code that is not merged every step can be looked at; but it is the merged code that runs.
        let apart = Executable::compile_with(plan.clone(), Modes { separate: true, ..Modes::default() });
        let apart = apart.map_err(compile::failed)?;
        for executable in [&apart, self.entry.executable()] {
            if let Some((step, id, gap)) = self.first_wrong_step(executable, &expected)? {
                let label = plan.steps[step].label.clone();
                let cause = BisectCause::Code { step, label: label.clone() };
                let value = Some(self.recorded(id).unwrap_or_else(|| GraphValue::of(graph, id)));
                let (group, gap) = (Some(FusedGroup { step, label }), Some(gap));
                return Ok(Some(Bisection { cause, value, group, gap, tolerance: self.tolerance }));
            }
        }
        Ok(None)
    }

    fn first_wrong_step(&self, executable: &Executable, expected: &[Tensor]) -> Result<Option<(usize, ValueId, Gap)>> {
        let inputs = self.inputs();
        let buffers: Vec<&Buffer> =
            inputs.iter().filter_map(|tensor| tensor.as_concrete()).map(|concrete| concrete.bytes()).collect();
        let mut found = None;
        let mut see = |step: usize, position: usize, got: &[u8]| {
            let Some(&id) = self.written(step).get(position) else { return };
            let expected = &expected[id.index()];
            let Some(bytes) = bytes(expected).filter(|bytes| bytes.len() == got.len() && found.is_none()) else {
                return;
            };
            found = compare(expected.dtype(), bytes, got, &self.tolerance).map(|gap| (step, id, gap));
        };
        executable.run_stepwise(&buffers, &mut see).map_err(compile::failed)?;
        Ok(found)
    }

    /// The values that a step of the plan writes.
    fn written(&self, step: usize) -> &[ValueId] {
        let Compiled { executable, layout, .. } = &*self.entry.compiled;
        let work = executable.plan().steps.get(step).map(|step| &step.work);
        let (Some(work), Some(values)) = (work, layout.steps.get(step)) else { return &[] };
        values.operands.get(work.signature().1..).unwrap_or_default()
    }

    /// The recorded value that became this one of the optimised graph.
    fn recorded(&self, id: ValueId) -> Option<GraphValue> {
        let before = self.renaming.iter().position(|&counterpart| counterpart == Some(id))?;
        (self.steps.last() == &self.entry.compiled.graph)
            .then(|| GraphValue::of(&self.entry.trace.graph, ValueId(before as u32)))
    }

    fn found(&self, cause: BisectCause, id: ValueId, gap: Option<Gap>) -> Bisection {
        let value = Some(GraphValue::of(&self.entry.trace.graph, id));
        Bisection { cause, value, group: self.group(id), gap, tolerance: self.tolerance }
    }

    /// The first step that computes a recorded value, or something from it.
    fn group(&self, id: ValueId) -> Option<FusedGroup> {
        let (from, to) = (&self.entry.trace.graph, &self.entry.compiled.graph);
        let executable = self.entry.executable();
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
        let steps = &self.entry.compiled.layout.steps;
        let step = (0..steps.len()).find(|&step| match param {
            Some(param) => reads(executable, step, param),
            None => steps[step].roots.iter().any(is_touched) || self.written(step).iter().any(is_touched),
        })?;
        let label = executable.plan().steps.get(step)?.label.clone();
        Some(FusedGroup { step, label })
    }
}

/// Whether a step of the plan reads an input.
fn reads(executable: &Executable, step: usize, input: usize) -> bool {
    let place = |place: &Place| matches!(place, Place::Input(n) if *n as usize == input);
    executable.plan().steps.get(step).is_some_and(|step| step.operands.iter().any(|operand| place(&operand.place)))
}

fn inputs<'t>(trace: &'t Trace, args: &[&'t Tensor]) -> Vec<&'t Tensor> {
    args.iter().copied().chain(trace.captures.iter().map(|capture| &capture.tensor)).collect()
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
    use retape_runtime::Scalar;

    use super::*;
    use crate::accelerate::signature::{Description, Signature};
    use crate::accelerate::{Check, CheckWhen, OnDifference};
    use crate::compile::Stages;
    use crate::opt::wrong::with_wrong_rule;
    use crate::tape::Tape;
    use crate::{accelerate, plan, trace};

    const TRIPLE: u32 = line!() + 3;

    fn formula(x: &Tensor) -> Tensor {
        let y = x.exp() * 3.0;
        let m = y.matmul(&y.t());
        (m - 1.0).sin().sum(..)
    }

    fn x() -> Tensor {
        Tensor::from([[0.1_f32, 0.2, 0.3], [0.01, 0.02, 0.03]])
    }

    fn traced() -> Trace {
        let tape = Tape::describing();
        let parameter = tape.parameter(x().ty().unwrap().clone());
        trace::flatten(&tape, || Ok(formula(&parameter))).unwrap()
    }

    fn entry() -> Entry {
        let signature = Signature::new(Default::default(), Description::default());
        Entry::new(signature, traced(), Stages::default()).unwrap()
    }

    /// An entry in whose code the first constant `from` of a step that `is_there` is `to`.
    fn entry_with_wrong_code(from: f64, to: f64) -> (Entry, usize) {
        let mut entry = entry();
        let (mut plan, layout) = plan::plan(&entry.compiled.graph).unwrap();
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
        let executable = Executable::compile(plan).unwrap();
        entry.compiled = Arc::new(Compiled { graph, executable, layout });
        (entry, step)
    }

    #[test]
    fn nothing_is_found_where_nothing_is_wrong() {
        let found = bisect(&entry(), &traced(), &[&x()], Tolerance::default()).unwrap();
        assert_eq!((found.cause, found.value, found.group), (BisectCause::None, None, None));
    }

    #[test]
    fn a_wrong_rewrite_is_found_with_its_rule() {
        with_wrong_rule(|| {
            let step = accelerate(|x: &Tensor| formula(x));
            step.set_check_mode(Check {
                when: CheckWhen::First(1),
                on_difference: OnDifference::Err,
                ..Check::default()
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
            let found = bisect(&entry, &traced(), &[&x()], Tolerance::default()).unwrap();
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
        assert_eq!(bisect(&entry, &traced(), &[&x()], wide).unwrap().cause, BisectCause::None);
    }
}
