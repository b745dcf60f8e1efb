//! Cotangents that are zero outside a window.
//!
//! The derivative of a slice is zero outside a window. Where the slices of a value do not overlap, the sum of their
//! cotangents is made by joining the windows, which copies each element once; adding them as whole arrays would take
//! time quadratic in their number. A joined window keeps a negative zero, which a sum with zeros would make positive.

use std::sync::Arc;

use retape_runtime::Scalar;

use crate::error::Caller;
use crate::ops::{Concat, MAX_JOINED, Op, Splat};
use crate::tape::Tape;
use crate::tensor::Tensor;
use crate::types::TensorType;

/// A cotangent that is zero outside some coordinates along one axis.
struct Window {
    axis: usize,
    start: usize,
    /// The elements inside.
    part: Tensor,
}

impl Window {
    /// Takes a cotangent apart that is a padded array.
    fn of(tape: &Arc<Tape>, ct: &Tensor) -> Option<Window> {
        let id = ct.as_traced()?.id;
        let (axis, start, part, ty) = tape.with_graph(|graph| {
            let node = graph.node(id);
            let Op::Pad(pad) = &node.op else { return None };
            let ty = graph.ty(node.args[0]);
            pad.window(&ty.shape).map(|(axis, start)| (axis, start, node.args[0], TensorType::clone(ty)))
        })?;
        Some(Window { axis, start, part: tape.value(part, ty) })
    }

    fn end(&self) -> usize {
        self.start + self.part.shape()[self.axis]
    }
}

/// Puts a join in the place of the first of each set of terms that are zero outside windows which do not overlap.
pub(super) fn join(tape: &Arc<Tape>, terms: &mut [Option<Tensor>], at: Caller) {
    let window = |term: &Option<Tensor>| Window::of(tape, term.as_ref()?);
    let mut windows: Vec<Option<Window>> = terms.iter().map(window).collect();
    for first in 0..terms.len() {
        let Some(axis) = windows[first].as_ref().map(|window| window.axis) else { continue };
        let disjoint = disjoint(&windows, axis);
        if disjoint.len() < 2 || !disjoint.contains(&first) {
            continue;
        }
        let Some(whole) = terms[first].take() else { continue };
        disjoint.iter().for_each(|&position| terms[position] = None);
        let parts: Vec<Window> = disjoint.into_iter().filter_map(|position| windows[position].take()).collect();
        terms[first] = Some(joined(&parts, &whole, at));
    }
}

/// The positions of windows along an axis that do not overlap, by their start.
fn disjoint(windows: &[Option<Window>], axis: usize) -> Vec<usize> {
    let along = |position: &usize| windows[*position].as_ref().filter(|window| window.axis == axis);
    let mut positions: Vec<usize> = (0..windows.len()).filter(|position| along(position).is_some()).collect();
    positions.sort_by_key(|position| along(position).map(|window| window.start));
    let mut end = 0;
    positions.retain(|position| {
        let Some(window) = along(position).filter(|window| window.start >= end) else { return false };
        end = window.end();
        true
    });
    positions
}

/// Windows in order, with zeros between them, as an array like `whole`.
fn joined(windows: &[Window], whole: &Tensor, at: Caller) -> Tensor {
    let axis = windows[0].axis;
    let zeros = |extent: usize| {
        let mut shape = whole.shape().to_vec();
        shape[axis] = extent;
        whole.nullary(Splat { value: Scalar { dtype: whole.dtype(), bits: 0 }, shape: shape.into() }, at)
    };
    let mut parts: Vec<Tensor> = vec![];
    let mut end = 0;
    for window in windows {
        if window.start > end {
            parts.push(zeros(window.start - end));
        }
        parts.push(window.part.clone());
        end = window.end();
    }
    if end < whole.shape()[axis] {
        parts.push(zeros(whole.shape()[axis] - end));
    }
    Tensor::apply_in_groups(Concat { axis }, MAX_JOINED, &parts.iter().collect::<Vec<_>>(), at)
}
