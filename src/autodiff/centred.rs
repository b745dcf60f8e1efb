//! Cotangents of what a mean was subtracted from.
//!
//! The derivative of P: x -> x - mean(x) is P itself, so that a cotangent c gives x the cotangent c - mean(c). As P P is P,
//! the mean of c is zero where c is P(x) times a factor that is the same along the axes of the mean. Variances send back
//! such cotangents: that of mean(P(x)^2) is 2 P(x) / n. Their mean is not computed, for it would be a pass over the data:
//! of a normalisation the second of three. In floating point that mean is the rounding error of P(x), as in the usual
//! formula of batch normalisation.
//!
//! Both formulas are equal for every x, so that derivatives by what x is computed from can be taken again. They are not for
//! every mean: where a value between x and its mean is differentiated by, all cotangents go there.

use smallvec::SmallVec;

use crate::graph::Graph;
use crate::ops::Op;
use crate::tensor::Tensor;
use crate::types::ValueId;

/// The cotangents of value `id` that go to a mean, if the value is a tensor less its mean and the mean of others is zero. The
/// values that `is_target` names are differentiated by.
pub(super) fn for_the_mean(
    graph: &Graph,
    id: ValueId,
    cts: &[Tensor],
    is_target: impl Fn(ValueId) -> bool,
) -> Option<Vec<Tensor>> {
    let factor = |ct: &Tensor| factor(graph, ct.as_traced()?.id, id);
    if !cts.iter().any(|ct| factor(ct).is_some()) {
        return None;
    }
    let axes = axes_of_the_mean(graph, id, is_target)?;
    let is_multiple = |ct: &Tensor| factor(ct).is_some_and(|factor| is_repeated(graph, factor, &axes));
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
                divisor = Some(constant(graph, by, &is_target)?);
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

/// The number that all elements of a value are equal to, if the graph says so and nobody differentiates by it.
fn constant(graph: &Graph, id: ValueId, is_target: &impl Fn(ValueId) -> bool) -> Option<f64> {
    match &graph.node(id).op {
        _ if is_target(id) => None,
        Op::Splat(splat) => Some(splat.value.to_f64()),
        Op::BroadcastTo(_) => constant(graph, graph.node(id).args[0], is_target),
        _ => None,
    }
}

/// The other factor, if `product` is one of `value`.
fn factor(graph: &Graph, product: ValueId, value: ValueId) -> Option<ValueId> {
    let node = graph.node(product);
    match (&node.op, &*node.args) {
        (Op::Mul(_), &[x, y]) if x == value => Some(y),
        (Op::Mul(_), &[x, y]) if y == value => Some(x),
        _ => None,
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
