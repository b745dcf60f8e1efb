//! The op that makes NaN or an infinity from finite numbers.
//!
//! Compiled code only notes that something it stored was not finite. Then the recorded graph is computed again op by
//! op, in the order of the program, and the first op is named whose result is not finite while what it was computed
//! from is.

use std::ops::ControlFlow;

use retape_runtime::Scalar;
use smallvec::SmallVec;

use super::tolerance::elements;
use crate::error::{Caller, InputSummary, NonFinite, Result};
use crate::graph::Node;
use crate::method::Origin;
use crate::ops::{Lowering, Op};
use crate::tensor::Tensor;
use crate::trace::Trace;
use crate::types::TensorType;

/// The first op that makes NaN or an infinity from finite numbers; none if all came from the arguments or constants.
pub(crate) fn find(trace: &Trace, args: &[&Tensor], called_at: Caller) -> Result<Option<NonFinite>> {
    let captures = trace.captures.iter().map(|capture| &capture.tensor);
    let inputs: Vec<&Tensor> = args.iter().copied().chain(captures).collect();
    let graph = trace.graph.without_dead_nodes();
    let mut found = None;
    graph.each_value(&inputs, &mut |id, args, value| {
        // The value is fetched from its device first: a failed transfer is an error, and says nothing of NaN or
        // infinities.
        value.as_concrete().map_or(Ok(()), |concrete| concrete.bytes().map(drop))?;
        let node = graph.node(id);
        let is_leaf = node.args.is_empty() || adds_constants(&node.op);
        if is_leaf || is_finite(value) {
            return Ok(ControlFlow::Continue(()));
        }
        let Some(first) = first_made(&node.op, args, value) else { return Ok(ControlFlow::Continue(())) };
        let is_elementwise = is_pointwise(&node.op, args, value);
        let summary = |arg: &&Tensor| summary(arg, is_elementwise.then_some(first));
        let (n_nan, n_infinite) = counts(value);
        found = Some(NonFinite {
            function: None,
            op: node.op.name(),
            origin: origin(node),
            node: graph.node_text(id),
            at: node.at,
            group: String::new(),
            n_elements: value.n_elements(),
            n_nan,
            n_infinite,
            first,
            value: numbers(value).nth(first).unwrap_or(f64::NAN),
            inputs: args.iter().map(summary).collect(),
            called_at,
        });
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found)
}

/// The facts of a call whose first op that makes NaN is not before the first collective of several workers, behind which
/// one worker cannot compute alone; none if there is no such collective, or an argument or a constant is not finite.
pub(crate) fn beyond(trace: &Trace, args: &[&Tensor], called_at: Caller) -> Option<NonFinite> {
    let node = trace.graph.nodes().iter().find(|node| node.op.takes_workers())?;
    if trace.graph.nodes().iter().any(|node| adds_constants(&node.op)) {
        return None;
    }
    let captures = trace.captures.iter().map(|capture| &capture.tensor);
    args.iter().copied().chain(captures).all(is_finite).then(|| NonFinite {
        function: None,
        op: node.op.name(),
        origin: origin(node),
        node: "of several workers, or what is computed from it".to_owned(),
        at: node.at,
        group: String::new(),
        n_elements: 0,
        n_nan: 0,
        n_infinite: 0,
        first: 0,
        value: f64::NAN,
        inputs: vec![],
        called_at,
    })
}

/// The method that a node is part of, unless that is the op of the node itself.
fn origin(node: &Node) -> Option<Origin> {
    node.origin.filter(|origin| origin.is_gradient || origin.method != node.op.name())
}

/// Whether an op puts a number that is not finite into its result.
fn adds_constants(op: &Op) -> bool {
    op.facts().constant.is_some_and(|constant| !constant.to_f64().is_finite())
}

/// The first element that is not finite though the elements it was computed from are. Of formulas per element these are
/// known for each; other ops are taken to compute an element from all of their arguments.
fn first_made(op: &Op, args: &[&Tensor], value: &Tensor) -> Option<usize> {
    if is_pointwise(op, args, value) {
        let mut made: Vec<bool> = numbers(value).map(|x| !x.is_finite()).collect();
        for arg in args {
            made.iter_mut().zip(numbers(arg)).for_each(|(made, x)| *made &= x.is_finite());
        }
        return made.iter().position(|&made| made);
    }
    let all_finite = args.iter().all(|arg| is_finite(arg));
    if all_finite { numbers(value).position(|x| !x.is_finite()) } else { None }
}

/// Whether each element of the value comes from the elements of the arguments at its place.
fn is_pointwise(op: &Op, args: &[&Tensor], value: &Tensor) -> bool {
    let types: SmallVec<[&TensorType; 3]> = args.iter().filter_map(|arg| arg.ty()).collect();
    let is_formula = value.ty().is_some_and(|ty| matches!(op.lower(&types, ty), Lowering::Pointwise(_)));
    is_formula && args.iter().all(|arg| arg.shape() == value.shape())
}

fn summary(arg: &Tensor, first: Option<usize>) -> InputSummary {
    let (n_nan, n_infinite) = counts(arg);
    let finite = || numbers(arg).filter(|x| x.is_finite());
    let n_finite = finite().count();
    InputSummary {
        ty: arg.ty().cloned().unwrap_or_else(|| TensorType::new(arg.dtype(), arg.shape())),
        min: finite().fold(f64::INFINITY, f64::min),
        max: finite().fold(f64::NEG_INFINITY, f64::max),
        mean: finite().sum::<f64>() / n_finite as f64,
        n_nan,
        n_infinite,
        at_first: first.and_then(|first| numbers(arg).nth(first)),
    }
}

/// How many elements are NaN, and how many infinite.
fn counts(tensor: &Tensor) -> (usize, usize) {
    let count = |(nan, infinite): (usize, usize), x: f64| {
        (nan + usize::from(x.is_nan()), infinite + usize::from(x.is_infinite()))
    };
    numbers(tensor).fold((0, 0), count)
}

fn is_finite(tensor: &Tensor) -> bool {
    let can_be_other = tensor.dtype().is_float() || tensor.dtype().is_half();
    !can_be_other || numbers(tensor).all(f64::is_finite)
}

/// The elements as numbers.
fn numbers(tensor: &Tensor) -> impl Iterator<Item = f64> {
    let bytes =
        tensor.as_concrete().and_then(|concrete| concrete.bytes().ok()).map_or(&[][..], |buffer| buffer.bytes());
    elements(tensor.dtype(), bytes).take(tensor.n_elements()).map(Scalar::to_f64)
}
