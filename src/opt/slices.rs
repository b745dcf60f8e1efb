//! Parts of values: slices that meet slices, padding or joins, and joins of slices.

use retape_runtime::Shape;

use super::rewrite::RewriteSite;
use crate::ops::{Concat, Op, Reshape, Slice};
use crate::types::ValueId;

/// A slice of a slice is one slice.
pub(super) fn slice_slice(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let (Op::Slice(outer), Some((Op::Slice(inner), x))) = (at.op, at.inner()) else { return None };
    let mut slice = outer.clone();
    for (axis, (start, step)) in slice.start.iter_mut().zip(&mut slice.step).enumerate() {
        let first = i64::try_from(*start).ok()?.checked_mul(inner.step[axis])?;
        *start = inner.start[axis].checked_add_signed(isize::try_from(first).ok()?)?;
        *step = step.checked_mul(inner.step[axis])?;
    }
    at.apply(slice, &[x])
}

/// A slice of padding is a constant, and a slice of what was padded is one of that.
pub(super) fn slice_pad(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let (Op::Slice(slice), Some((Op::Pad(pad), x))) = (at.op, at.inner()) else { return None };
    if pad.interior.iter().any(|&n| n != 0) || at.ty.n_elements() == 0 {
        return None;
    }
    let mut inner = slice.clone();
    let mut is_inside = true;
    for (axis, &extent) in at.node(x).ty.shape.iter().enumerate() {
        let (low, high) = slice.reach(axis)?;
        let (first, end) = (pad.low[axis], pad.low[axis].checked_add(extent)?);
        if high < first || low >= end {
            return at.constant(pad.value, &at.ty.shape);
        }
        is_inside &= low >= first && high < end;
        inner.start[axis] = slice.start[axis].saturating_sub(first);
    }
    if is_inside { at.apply(inner, &[x]) } else { None }
}

/// A slice within one part of a join is a slice of that part.
pub(super) fn slice_concat(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::Slice(slice) = at.op else { return None };
    let joined = at.node(at.args[0]);
    let Op::Concat(Concat { axis }) = joined.op else { return None };
    if at.ty.n_elements() == 0 {
        return None;
    }
    let (low, high) = slice.reach(axis)?;
    let mut first = 0;
    let (part, end) = joined.args.iter().find_map(|&part| {
        let end = first + at.node(part).ty.shape[axis];
        if low < end {
            return Some((part, end));
        }
        first = end;
        None
    })?;
    if low < first || high >= end {
        return None;
    }
    let mut slice = slice.clone();
    slice.start[axis] -= first;
    at.apply(slice, &[part])
}

/// Neighbouring parts of a value along an axis, joined in their order along it, are one part of the value.
pub(super) fn concat_neighbours(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::Concat(Concat { axis }) = *at.op else { return None };
    let (first, x) = slice_of(at, at.args[0])?;
    let mut end = first.start[axis];
    for &arg in at.args {
        let (slice, of) = slice_of(at, arg)?;
        let elsewhere = |other: usize| {
            other == axis
                || (slice.start[other], slice.step[other], slice.shape[other])
                    == (first.start[other], first.step[other], first.shape[other])
        };
        if of != x || slice.step[axis] != 1 || slice.start[axis] != end || !(0..slice.shape.rank()).all(elsewhere) {
            return None;
        }
        end += slice.shape[axis];
    }
    let slice = Slice { start: first.start.clone(), step: first.step.clone(), shape: at.ty.shape.clone() };
    at.apply(slice, &[x])
}

/// The slice that a value is, and of which value.
fn slice_of<'a>(at: &'a RewriteSite<'_>, id: ValueId) -> Option<(&'a Slice, ValueId)> {
    let node = at.node(id);
    if let Op::Slice(slice) = &node.op { Some((slice, node.args[0])) } else { None }
}

/// Neighbouring parts of a value, joined in their order, are one part of it.
pub(super) fn concat_slices(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::Concat(Concat { axis }) = at.op else { return None };
    // Parts lie one after another in the result only if nothing repeats them.
    if at.ty.shape[..*axis].iter().any(|&extent| extent != 1) {
        return None;
    }
    let (x, start) = run(at, at.args[0])?;
    let mut end = start;
    for &arg in at.args {
        if run(at, arg)? != (x, end) {
            return None;
        }
        end += at.node(arg).ty.shape.n_elements();
    }
    let n = at.node(x).ty.shape.n_elements();
    let flat = at.apply(Reshape { shape: Shape::new(&[n]) }, &[x])?;
    let part = Slice {
        start: [start].into_iter().collect(),
        step: [1].into_iter().collect(),
        shape: Shape::new(&[end - start]),
    };
    let part = if end - start == n { flat } else { at.apply(part, &[flat])? };
    at.apply(Reshape { shape: at.ty.shape.clone() }, &[part])
}

/// The value that has all elements of this one, in order and without gaps, and where they begin.
fn run(at: &RewriteSite<'_>, id: ValueId) -> Option<(ValueId, usize)> {
    let node = at.node(id);
    let node = if let Op::Reshape(_) = node.op { at.node(node.args[0]) } else { node };
    let Op::Slice(Slice { start, step, shape }) = &node.op else { return None };
    let x = node.args[0];
    let whole = &at.node(x).ty.shape;
    // All axes before one are of extent 1, and all behind it are whole.
    let first = shape.iter().position(|&extent| extent != 1).unwrap_or(shape.rank());
    let is_run = (first..shape.rank()).all(|axis| step[axis] == 1 && (axis == first || shape[axis] == whole[axis]));
    let place = start
        .iter()
        .zip(whole.iter())
        .try_fold(0_usize, |place, (&start, &extent)| place.checked_mul(extent)?.checked_add(start));
    is_run.then_some((x, place?))
}
