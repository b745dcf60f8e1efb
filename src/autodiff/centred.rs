//! Cotangents of what a mean was subtracted from.
//!
//! The derivative of P: x -> x - mean(x) is P itself, so that a cotangent c gives x the cotangent c - mean(c). As P P is P,
//! the mean of c is zero where c is a multiple of P(x) that does not vary along the axes of the mean. Variances send back
//! such cotangents: that of mean(P(x)^2) is 2 P(x) / n. Their mean is not computed, for it would be no more than its own
//! rounding errors, and a pass over the data: of a normalisation the second of three. The formulas are equal for every x,
//! so that they can be differentiated again. They are not for every mean, if somebody asks for a derivative by that.

use smallvec::SmallVec;

use crate::graph::Graph;
use crate::ops::Op;
use crate::tensor::Tensor;
use crate::types::ValueId;

/// The cotangents of value `id` that have a mean, if the value is a tensor less its mean and others have none. The values
/// that `is_target` names are differentiated by.
pub(super) fn with_a_mean(
    graph: &Graph,
    id: ValueId,
    cts: &[Tensor],
    is_target: impl Fn(ValueId) -> bool,
) -> Option<Vec<Tensor>> {
    let axes = axes_of_the_mean(graph, id, is_target)?;
    let is_multiple = |ct: &Tensor| ct.as_traced().is_some_and(|ct| is_multiple(graph, ct.id, id, &axes));
    let left: Vec<Tensor> = cts.iter().filter(|ct| !is_multiple(ct)).cloned().collect();
    (left.len() < cts.len()).then_some(left)
}

/// The axes of the mean, if a value is a tensor less its mean over some axes, repeated along these, and no value on the way
/// is a target.
fn axes_of_the_mean(graph: &Graph, id: ValueId, is_target: impl Fn(ValueId) -> bool) -> Option<SmallVec<[usize; 4]>> {
    let difference = graph.node(id);
    let (Op::Sub(_), &[x, repeated]) = (&difference.op, &*difference.args) else { return None };
    let (Op::BroadcastTo(_), &[mean]) = (&graph.node(repeated).op, &*graph.node(repeated).args) else { return None };
    let shape = &graph.ty(x).shape;
    let (mut sum, mut divisor) = (mean, None);
    while !is_target(sum) && !is_target(repeated) {
        let node = graph.node(sum);
        match (&node.op, &*node.args) {
            (Op::Reshape(_), &[source]) => sum = source,
            (Op::Div(_), &[dividend, by]) if divisor.is_none() => {
                divisor = Some(constant(graph, by)?);
                sum = dividend;
            }
            (Op::ReduceSum(reduction), &[source]) if source == x => {
                let axes = &reduction.axes;
                let n: usize = axes.iter().map(|&axis| shape[axis]).product();
                let kept = |axis: usize| if axes.contains(&axis) { 1 } else { shape[axis] };
                let is_mean = divisor == Some(n as f64) && is_aligned(&graph.ty(mean).shape, shape.len(), kept);
                return is_mean.then(|| axes.clone());
            }
            _ => return None,
        }
    }
    None
}

/// Whether a shape, aligned at the right with one of `rank` axes, has the extents of `kept`.
fn is_aligned(shape: &[usize], rank: usize, kept: impl Fn(usize) -> usize) -> bool {
    let missing = rank - shape.len();
    (0..rank).all(|axis| kept(axis) == if axis < missing { 1 } else { shape[axis - missing] })
}

/// The number that all elements of a value are equal to, if the graph says so.
fn constant(graph: &Graph, id: ValueId) -> Option<f64> {
    match &graph.node(id).op {
        Op::Splat(splat) => Some(splat.value.to_f64()),
        Op::BroadcastTo(_) => constant(graph, graph.node(id).args[0]),
        _ => None,
    }
}

/// Whether `product` is `value` times what is the same everywhere along the axes.
fn is_multiple(graph: &Graph, product: ValueId, value: ValueId, axes: &[usize]) -> bool {
    let node = graph.node(product);
    match (&node.op, &*node.args) {
        (Op::Mul(_), &[x, y]) => x == value && is_repeated(graph, y, axes) || y == value && is_repeated(graph, x, axes),
        _ => false,
    }
}

/// Whether a value is the same everywhere along the axes.
fn is_repeated(graph: &Graph, id: ValueId, axes: &[usize]) -> bool {
    let node = graph.node(id);
    match &node.op {
        Op::Splat(_) => true,
        Op::BroadcastTo(_) => {
            let source = &graph.ty(node.args[0]).shape;
            let missing = graph.ty(id).shape.len() - source.len();
            axes.iter().all(|&axis| axis < missing || source[axis - missing] == 1)
        }
        _ => false,
    }
}
