//! Reverse-mode differentiation, as formulas on the tape.
//!
//! The backward pass is recorded on the same tape as the forward pass: it visits the values between the
//! differentiated ones and the loss from last to first, asks each op's `vjp` for the cotangents of its arguments, and
//! adds up what meets at a value. As rules are formulas over ops, the result can be differentiated again.
//!
//! A call of compiled code is visited once, at its last result: all uses of its results come after all of them, so all
//! their cotangents are known by then. Its rule is another call, of its routine's gradient.

mod centred;
mod formula;
mod products;
mod sum;
mod windows;

use std::sync::Arc;

use retape_runtime::DType;

use self::formula::OneValueFormula;
use crate::error::{Caller, Error};
use crate::graph::Graph;
use crate::method::{Running, gradient_of};
use crate::ops::{Call, Callee, Cotangents, Op, Site};
use crate::tape::Tape;
use crate::tensor::{Recording, Tensor, Traced};
use crate::types::{TensorType, ValueId, ValueTable};

/// The treatment of a tensor that the outputs do not depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unused {
    /// An error that names it.
    Refuse,
    /// Its gradient is zero.
    Zero,
}

/// The vector-Jacobian products of `outputs` with `cotangents`, with respect to each of `wrt`.
///
/// Gives poisoned tensors if there is no such gradient. `name` names an element of `wrt` in messages.
pub(crate) fn vjp(
    outputs: &[(&Tensor, Tensor)],
    wrt: &[&Tensor],
    unused: Unused,
    name: &dyn Fn(usize) -> String,
    at: Caller,
) -> Vec<Tensor> {
    match checked(outputs, wrt, name, at) {
        Ok((tape, targets)) => Backward::new(&tape, outputs, &targets, at).run(unused, name),
        Err(poison) => vec![poison; wrt.len()],
    }
}

/// The vector-Jacobian products of values on a tape, which may be of any dtype that cotangents flow through.
///
/// Invariant: all tensors are on the tape, and it is open.
pub(crate) fn pull_back(
    tape: &Arc<Tape>,
    outputs: &[(&Tensor, Tensor)],
    wrt: &[&Tensor],
    at: Caller,
) -> Result<Vec<Tensor>, Error> {
    let targets: Option<Vec<Traced>> = wrt.iter().map(|tensor| tensor.as_traced().cloned()).collect();
    let targets = targets.ok_or_else(|| Error::Internal("what is differentiated by is not on the tape".into()))?;
    let gradients = Backward::new(tape, outputs, &targets, at).run(Unused::Zero, &|_| String::new());
    tape.error().map_or(Ok(gradients), |error| Err(Error::clone(&error)))
}

/// Whether cotangents flow through values of a dtype.
pub(crate) fn has_cotangents(dtype: DType) -> bool {
    dtype.is_float() || dtype.is_half()
}

/// All tensors are floats on one open tape; the ids of `wrt`.
fn checked(
    outputs: &[(&Tensor, Tensor)],
    wrt: &[&Tensor],
    name: &dyn Fn(usize) -> String,
    at: Caller,
) -> Result<(Arc<Tape>, Vec<Traced>), Tensor> {
    let all = outputs.iter().flat_map(|(output, ct)| [*output, ct]).chain(wrt.iter().copied());
    if let Some(poisoned) = all.clone().find(|tensor| tensor.error().is_some()) {
        return Err(poisoned.clone());
    }
    let tape = all.clone().find_map(Tensor::as_traced).map(Traced::tape);
    let fail = |message: String| {
        let error = Error::Gradient { message, at, call: None };
        Err(tape.as_ref().map_or_else(|| Tensor::poisoned(error.clone()), |tape| tape.fail(error.clone())))
    };
    let Some(tape_of_all) = &tape else {
        return fail(
            "nothing is being traced; call `value_and_grad` or `vjp`, or take it inside a traced closure".into(),
        );
    };
    if tape_of_all.is_finished() {
        return fail("the trace has ended; take gradients inside the closure".into());
    }
    if all.filter_map(Tensor::as_traced).any(|traced| !traced.is_on(tape_of_all)) {
        return fail("mixes traced tensors of two traces".into());
    }
    let mut targets = vec![];
    for (position, tensor) in wrt.iter().enumerate() {
        match tensor.as_traced() {
            Some(traced) if traced.ty.dtype.is_float() => targets.push(traced.clone()),
            Some(traced) => {
                let name = name(position);
                let message = format!("{name} is {}; only f32 and f64 have gradients, so cast it", traced.ty);
                return Err(tape_of_all.fail_about(traced.id, &name, Error::Gradient { message, at, call: None }));
            }
            None => return fail(format!("{} is not traced: it is a captured constant of this trace", name(position))),
        }
    }
    match outputs.iter().find(|(output, _)| !output.dtype().is_float()) {
        Some((output, _)) => {
            fail(format!("the differentiated value is {}; only f32 and f64 have gradients, so cast it", output.dtype()))
        }
        None => Ok((Arc::clone(tape_of_all), targets)),
    }
}

struct Backward<'w> {
    tape: &'w Arc<Tape>,
    targets: &'w [Traced],
    /// Values that depend on a target, by id.
    reached: Vec<bool>,
    /// Values that are targets, by id.
    is_target: Vec<bool>,
    /// How often values with a cotangent use a value, by id.
    n_uses: Vec<u32>,
    /// The cotangents that have met so far at each value still to be visited.
    cotangents: ValueTable<Vec<Tensor>>,
    last: Option<ValueId>,
    at: Caller,
}

impl<'w> Backward<'w> {
    fn new(tape: &'w Arc<Tape>, outputs: &[(&Tensor, Tensor)], targets: &'w [Traced], at: Caller) -> Backward<'w> {
        let (reached, n_uses) = tape.with_graph(|graph| {
            let reached = reached_from(graph, targets);
            let n_uses = uses(graph, &reached);
            (reached, n_uses)
        });
        let mut is_target = vec![false; reached.len()];
        targets.iter().for_each(|target| is_target[target.id.index()] = true);
        let mut backward =
            Backward { tape, targets, reached, is_target, n_uses, cotangents: ValueTable::default(), last: None, at };
        for (output, ct) in outputs {
            if let Some(traced) = output.as_traced() {
                backward.last = backward.last.max(Some(traced.id));
                backward.add(traced.id, ct.clone());
            }
        }
        backward
    }

    fn depends(&self, id: ValueId) -> bool {
        self.reached.get(id.index()).copied().unwrap_or(false)
    }

    fn add(&mut self, id: ValueId, ct: Tensor) {
        if self.depends(id) {
            self.cotangents.or_default(id).push(ct);
        }
    }

    fn run(mut self, unused: Unused, name: &dyn Fn(usize) -> String) -> Vec<Tensor> {
        let first = self.targets.iter().map(|target| target.id).min();
        if let (Some(first), Some(last)) = (first, self.last) {
            let last = self.tape.with_graph(|graph| last_of_call(graph, last));
            for index in (first.0..=last.0).rev() {
                self.visit(ValueId(index));
            }
        }
        let targets = self.targets;
        let gradient = |(position, target): (usize, &Traced)| match self.take(target.id) {
            Some(ct) => ct,
            None if unused == Unused::Refuse && !self.is_used(target) => {
                let name = name(position);
                let message = format!("the value does not depend on {name}; leave it out, or ask for `grad_or_zero`");
                self.tape.fail_about(target.id, &name, Error::Gradient { message, at: self.at, call: None })
            }
            None => self.tape.value(target.id, target.ty.clone()).constant_like(0.0, self.at),
        };
        targets.iter().enumerate().map(gradient).collect()
    }

    /// Whether the value, or something on the way to it, uses the target at all, even if its derivative is zero.
    fn is_used(&self, target: &Traced) -> bool {
        let Some(last) = self.last else { return false };
        self.tape.with_graph(|graph| reached_from(graph, std::slice::from_ref(target))[last.index()])
    }

    /// The cotangent of a value, which is final now; that of a target stays, as it is asked for.
    fn take(&mut self, id: ValueId) -> Option<Tensor> {
        let ct = sum::sum(self.tape, self.cotangents.remove(id)?, self.at)?;
        if self.is_target[id.index()] {
            self.cotangents.insert(id, vec![ct.clone()]);
        }
        Some(ct)
    }

    /// Passes the cotangents of all results of a call, the last of which is `last`, on to its arguments.
    fn visit_call(&mut self, callee: &Arc<dyn Callee>, last: ValueId) {
        let n_results = callee.output_types().len() as u32;
        let cts = (0..n_results).map(|output| self.take(ValueId(last.0 + 1 + output - n_results)));
        let (results, cts): (Vec<usize>, Vec<Tensor>) =
            cts.enumerate().filter_map(|(output, ct)| Some((output, ct?))).unzip();
        let (args, line) = self.tape.with_graph(|graph| {
            let node = graph.node(last);
            let args: Vec<_> = node.args.iter().map(|&arg| (arg, graph.ty(arg).clone())).collect();
            (args, node.at)
        });
        let is_wanted = |(id, ty): &(ValueId, TensorType)| self.depends(*id) && has_cotangents(ty.dtype);
        let wrt: Vec<usize> = (0..args.len()).filter(|&position| is_wanted(&args[position])).collect();
        if results.is_empty() || wrt.is_empty() {
            return;
        }
        let at = line.unwrap_or(self.at);
        let gradient = match Arc::clone(callee).gradient(&wrt, &results, at) {
            Ok(gradient) => gradient,
            Err(error) => {
                self.tape.fail(error);
                return;
            }
        };
        let values: Vec<Tensor> = args.iter().map(|(id, ty)| self.tape.value(*id, ty.clone())).collect();
        let _method = gradient_of("call", at);
        let gradients = self.tape.record_call(&gradient, &values.iter().chain(&cts).collect::<Vec<_>>(), at);
        for (position, ct) in wrt.into_iter().zip(gradients) {
            self.add(args[position].0, ct);
        }
    }

    /// Passes the cotangent of a value on to the arguments of its node.
    fn visit(&mut self, id: ValueId) {
        if let Some(call) = self.tape.with_graph(|graph| call_of(graph, id).cloned()) {
            if call.output + 1 == call.callee.output_types().len() {
                self.visit_call(&call.callee, id);
            }
            return;
        }
        let cts = self.cotangents.get(id).map(Vec::as_slice).unwrap_or_default();
        let is_target = |id: ValueId| self.is_target.get(id.index()).copied().unwrap_or(false);
        let for_the_mean = self.tape.with_graph(|graph| centred::for_the_mean(graph, id, cts, is_target));
        let Some(ct) = self.take(id) else { return };
        let formula = if for_the_mean.is_none() { self.formula(id) } else { None };
        if let Some(formula) = formula {
            if let Some(derivative) = self.derivative(&formula) {
                let _method = self.gradient_method(id);
                self.add(formula.source, ct * derivative);
            }
            return;
        }
        for (arg, ct) in self.passed_on(id, &ct, for_the_mean) {
            self.add(arg, ct);
        }
    }

    /// The formula of one value, used several times, that ends with a value.
    fn formula(&self, end: ValueId) -> Option<OneValueFormula> {
        let n_uses = |id: ValueId| if self.depends(id) { self.n_uses[id.index()] } else { 0 };
        let is_free = |id: ValueId| !self.is_target[id.index()] && self.cotangents.get(id).is_none();
        self.tape.with_graph(|graph| formula::of_one_value(graph, end, n_uses, is_free))
    }

    /// The derivative of a formula by its source, unless it is zero.
    fn derivative(&self, formula: &OneValueFormula) -> Option<Tensor> {
        let end = formula.nodes[0];
        let ty = self.tape.with_graph(|graph| graph.ty(end).clone());
        let one = {
            let _method = self.gradient_method(end);
            self.tape.value(end, ty).constant_like(1.0, self.at)
        };
        let mut cotangents: ValueTable<Vec<Tensor>> = ValueTable::default();
        cotangents.insert(end, vec![one]);
        for &node in &formula.nodes {
            let Some(ct) = cotangents.remove(node).and_then(|cts| sum::sum(self.tape, cts, self.at)) else { continue };
            for (arg, ct) in self.passed_on(node, &ct, None) {
                if self.depends(arg) {
                    cotangents.or_default(arg).push(ct);
                }
            }
        }
        sum::sum(self.tape, cotangents.remove(formula.source)?, self.at)
    }

    /// Says that nodes and errors of a value's rule belong to the line of its op, and to the method that this is part of.
    fn gradient_method(&self, id: ValueId) -> Running {
        let (name, line) = self.tape.with_graph(|graph| {
            let node = graph.node(id);
            (node.origin.map_or(node.op.name(), |origin| origin.method), node.at)
        });
        gradient_of(name, line.unwrap_or(self.at))
    }

    /// The cotangents that a value's node passes on to its arguments, of that of the value.
    fn passed_on(&self, id: ValueId, ct: &Tensor, for_the_mean: Option<Vec<Tensor>>) -> Vec<(ValueId, Tensor)> {
        let (op, ids, args, output, line) = self.tape.with_graph(|graph| {
            let node = graph.node(id);
            let value = |id: ValueId| (id, graph.ty(id).clone());
            let args: Vec<_> = node.args.iter().map(|&arg| value(arg)).collect();
            (Op::clone(&node.op), node.args.clone(), args, value(id), node.at)
        });
        if !ids.iter().any(|&arg| self.depends(arg)) {
            return vec![];
        }
        let value = |(id, ty)| self.tape.value(id, ty);
        let args: Vec<Tensor> = args.into_iter().map(value).collect();
        let output = value(output);
        let _method = self.gradient_method(id);
        let mut cotangents = match products::turned_cotangent(self.tape, &op, ct, line.unwrap_or(self.at)) {
            Some(ct) => Cotangents::of([ct]),
            None => op.vjp(&Site { args: &args, output: &output, ct }),
        };
        if let (Some(cts), [_, of_the_mean]) = (for_the_mean, &mut cotangents.0[..]) {
            *of_the_mean = sum::sum(self.tape, cts, self.at).map(|ct| -ct);
        }
        debug_assert!(cotangents.0.is_empty() || cotangents.0.len() == ids.len(), "one cotangent per argument");
        let passed = ids.iter().zip(cotangents.0).filter_map(|(&arg, ct)| Some((arg, ct?)));
        passed
            .inspect(|(arg, ct)| {
                let has_shape = || ct.shape() == self.tape.with_graph(|graph| graph.ty(*arg).shape.to_vec());
                debug_assert!(ct.error().is_some() || has_shape());
            })
            .collect()
    }
}

/// The call that a value is a result of.
fn call_of(graph: &Graph, id: ValueId) -> Option<&Call> {
    match &graph.node(id).op {
        Op::Call(call) => Some(call),
        _ => None,
    }
}

/// The last result of the call that a value belongs to; else the value itself.
fn last_of_call(graph: &Graph, id: ValueId) -> ValueId {
    let after = |call: &Call| call.callee.output_types().len() - 1 - call.output;
    ValueId(id.0 + call_of(graph, id).map_or(0, after) as u32)
}

/// How often values with a cotangent use each value.
fn uses(graph: &Graph, reached: &[bool]) -> Vec<u32> {
    let mut n_uses = vec![0; graph.n_nodes()];
    for (id, node) in graph.iter() {
        if reached[id.index()] && has_cotangents(node.ty.dtype) {
            node.args.iter().for_each(|arg| n_uses[arg.index()] += 1);
        }
    }
    n_uses
}

/// For each value whether it depends on one of the targets.
fn reached_from(graph: &Graph, targets: &[Traced]) -> Vec<bool> {
    let mut reached = vec![false; graph.n_nodes()];
    for target in targets {
        reached[target.id.index()] = true;
    }
    for (id, node) in graph.iter() {
        if node.args.iter().any(|arg| reached[arg.index()]) {
            reached[id.index()] = true;
        }
    }
    reached
}
