//! Movements: those that meet become one, and those in the way of fusion move.
//!
//! Reshapes move towards the outputs, past formulas and permutations, but towards the inputs past broadcasts;
//! broadcasts move towards the outputs past formulas, so that these compute each element once. Nothing moves back.

use retape_runtime::Shape;
use smallvec::SmallVec;

use super::element;
use super::rewrite::{RewriteSite, Rule, rules};
use super::slices::{concat_neighbours, concat_slices, slice_concat, slice_pad, slice_slice};
use crate::graph::Args;
use crate::ops::{BroadcastTo, Lowering, Op, Permute, Reduction, Reshape};
use crate::types::{TensorType, ValueId};

pub(super) const RULES: &[Rule] = rules![
    reshape_reshape,
    reshape_broadcast,
    broadcast_broadcast,
    broadcast_reshape,
    broadcast_without_repeats,
    permute_extent_one,
    permute_permute,
    permute_reshape,
    reduce_permute,
    slice_slice,
    slice_pad,
    slice_concat,
    concat_neighbours,
    concat_slices,
    sink_reshape,
    sink_broadcast,
    shrink_constant,
];

/// Whether two shapes differ in axes of extent 1 only.
fn same_but_ones(a: &[usize], b: &[usize]) -> bool {
    let others = |shape: &[usize]| shape.iter().copied().filter(|&extent| extent != 1).collect::<SmallVec<[_; 4]>>();
    others(a) == others(b)
}

/// The shape without leading axes of extent 1.
fn without_leading_ones(shape: &[usize]) -> &[usize] {
    let ones = shape.iter().take_while(|&&extent| extent == 1).count();
    &shape[ones..]
}

/// A reshape of a reshape is one reshape.
fn reshape_reshape(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let (Op::Reshape(outer), Some((Op::Reshape(_), x))) = (at.op, at.inner()) else { return None };
    at.apply(outer.clone(), &[x])
}

/// Axes of extent 1 come and go before a broadcast as well as after it.
fn reshape_broadcast(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let (Op::Reshape(_), Some((Op::BroadcastTo(broadcast), x))) = (at.op, at.inner()) else { return None };
    let (from, repeated, to) = (&at.node(x).ty.shape, &broadcast.shape, &at.ty.shape);
    if !same_but_ones(repeated, to) {
        return None;
    }
    let lead = repeated.rank() - from.rank();
    let source = |axis: usize| if axis < lead { 1 } else { from[axis - lead] };
    let mut sources = (0..repeated.rank()).filter(|&axis| repeated[axis] != 1).map(source);
    let along = |&extent: &usize| if extent == 1 { Some(1) } else { sources.next() };
    let reshape = Reshape { shape: to.iter().map(along).collect::<Option<Shape>>()? };
    let x = at.apply(reshape, &[x])?;
    at.apply(BroadcastTo { shape: at.ty.shape.clone() }, &[x])
}

/// A broadcast of a broadcast is one broadcast.
fn broadcast_broadcast(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let (Op::BroadcastTo(outer), Some((Op::BroadcastTo(_), x))) = (at.op, at.inner()) else { return None };
    at.apply(outer.clone(), &[x])
}

/// A broadcast adds leading axes of extent 1 by itself.
fn broadcast_reshape(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let (Op::BroadcastTo(outer), Some((Op::Reshape(inner), x))) = (at.op, at.inner()) else { return None };
    let from = &at.node(x).ty.shape;
    let fits = without_leading_ones(from) == without_leading_ones(&inner.shape) && from.rank() <= at.ty.rank();
    if fits { at.apply(outer.clone(), &[x]) } else { None }
}

/// A broadcast that only adds axes of extent 1 is a reshape.
fn broadcast_without_repeats(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::BroadcastTo(_) = at.op else { return None };
    let same = without_leading_ones(&at.arg_ty(0).shape) == without_leading_ones(&at.ty.shape);
    if same { at.apply(Reshape { shape: at.ty.shape.clone() }, at.args) } else { None }
}

/// A permutation that only moves axes of extent 1 is a reshape.
fn permute_extent_one(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::Permute(Permute { perm }) = at.op else { return None };
    let from = &at.arg_ty(0).shape;
    let in_order = perm.iter().filter(|&&axis| from[axis] != 1).is_sorted();
    if in_order { at.apply(Reshape { shape: at.ty.shape.clone() }, at.args) } else { None }
}

/// A permutation of a permutation is one permutation.
fn permute_permute(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let (Op::Permute(outer), Some((Op::Permute(inner), x))) = (at.op, at.inner()) else { return None };
    let perm = outer.perm.iter().map(|&axis| inner.perm[axis]).collect();
    at.apply(Permute { perm }, &[x])
}

/// Axes of extent 1 come and go after a permutation as well as before it.
fn permute_reshape(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let (Op::Permute(outer), Some((Op::Reshape(reshape), x))) = (at.op, at.inner()) else { return None };
    let from = &at.node(x).ty.shape;
    if !same_but_ones(from, &reshape.shape) {
        return None;
    }
    // Axes that are not of extent 1 keep their order through the reshape, so they correspond by number.
    let others = |shape: &Shape| (0..shape.rank()).filter(|&axis| shape[axis] != 1).collect::<SmallVec<[usize; 4]>>();
    let ones = (0..from.rank()).filter(|&axis| from[axis] == 1);
    let (before, after) = (others(from), others(&reshape.shape));
    let source = |axis: &usize| after.iter().position(|other| other == axis).map(|number| before[number]);
    let perm = outer.perm.iter().filter_map(source).chain(ones).collect();
    let moved = at.apply(Permute { perm }, &[x])?;
    at.apply(Reshape { shape: at.ty.shape.clone() }, &[moved])
}

/// A reduction over permuted axes is the one over the axes they were, if these come in the same order.
fn reduce_permute(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Reduction { axes: reduced, over } = at.op.facts().reduction?;
    let Some((Op::Permute(Permute { perm }), x)) = at.inner() else { return None };
    let axes: SmallVec<[usize; 4]> = reduced.iter().map(|&axis| perm[axis]).collect();
    // In another order the elements would be added in another order.
    if !axes.is_sorted() {
        return None;
    }
    let rank = perm.len();
    let kept: SmallVec<[usize; 4]> = (0..rank).filter(|axis| !axes.contains(axis)).collect();
    let place = |axis: usize| kept.iter().position(|&other| other == perm[axis]);
    let perm = (0..rank).filter(|axis| !reduced.contains(axis)).map(place).collect::<Option<_>>()?;
    let reduction = at.apply(over(axes), &[x])?;
    at.apply(Permute { perm }, &[reduction])
}

/// A formula over reshapes from one shape is the reshape of the formula, which can then join others over that shape.
fn sink_reshape(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let sources = sources(at, |op| matches!(op, Op::Reshape(_)))?;
    // A value in memory is as good in any shape; one that is computed should be computed in the same kernel.
    let useful = |id: &ValueId| {
        let node = at.node(*id);
        let types: SmallVec<[&TensorType; 3]> = node.args.iter().map(|&arg| &at.node(arg).ty).collect();
        same_but_ones(&node.ty.shape, &at.ty.shape)
            || matches!(node.op.lower(&types, &node.ty), Lowering::Pointwise(_) | Lowering::Indexed { .. })
    };
    if !sources.moved.iter().any(useful) {
        return None;
    }
    let formula = over(at, &sources)?;
    at.apply(Reshape { shape: at.ty.shape.clone() }, &[formula])
}

/// A formula over broadcasts from one shape is the broadcast of the formula, which computes less.
fn sink_broadcast(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let sources = sources(at, |op| matches!(op, Op::BroadcastTo(_)))?;
    let formula = over(at, &sources)?;
    at.apply(BroadcastTo { shape: at.ty.shape.clone() }, &[formula])
}

/// A formula over constants that are not folded is computed once and not for every element.
fn shrink_constant(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let constant = (0..at.args.len()).all(|arg| at.splat(arg).is_some());
    if at.args.is_empty() || !constant || at.ty.rank() == 0 {
        return None;
    }
    let formula = over(at, &Sources { shape: Shape::default(), moved: Args::new() })?;
    at.apply(BroadcastTo { shape: at.ty.shape.clone() }, &[formula])
}

/// The sources of equal movements.
struct Sources {
    /// The shape of all sources.
    shape: Shape,
    /// The sources, in the order of the arguments that are no constants.
    moved: Args,
}

/// The sources of the arguments, if each but constants is such a movement from the same shape.
fn sources(at: &RewriteSite<'_>, is_moved: impl Fn(&Op) -> bool) -> Option<Sources> {
    let mut moved = Args::new();
    for (arg, &id) in at.args.iter().enumerate() {
        let node = at.node(id);
        if is_moved(&node.op) {
            moved.push(node.args[0]);
        } else if at.splat(arg).is_none() {
            return None;
        }
    }
    let shape = at.node(*moved.first()?).ty.shape.clone();
    moved.iter().all(|&id| at.node(id).ty.shape == shape).then_some(Sources { shape, moved })
}

/// The candidate's formula over the sources instead, with constants of their shape.
fn over(at: &mut RewriteSite<'_>, sources: &Sources) -> Option<ValueId> {
    if !element::is_uniform(at.op, &at.arg_types(), at.ty) {
        return None;
    }
    let mut moved = sources.moved.iter();
    let mut args = Args::new();
    for arg in 0..at.args.len() {
        args.push(match at.splat(arg) {
            Some(value) => at.constant(value, &sources.shape)?,
            None => *moved.next()?,
        });
    }
    let formula = at.apply(at.op.clone(), &args)?;
    (at.node(formula).ty == at.ty.with_shape(&sources.shape)).then_some(formula)
}
