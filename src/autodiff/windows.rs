//! Cotangents that are zero outside a window.
//!
//! The derivative of a slice is zero outside a window. Where the slices of a value do not overlap, the sum of their
//! cotangents is made by joining the windows, which copies each element once; adding them as whole arrays would take
//! time quadratic in their number. A joined window keeps a negative zero, which a sum with zeros would make positive.

use std::collections::{BTreeMap, BTreeSet};
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

/// The windows along one axis that no join has yet, each by its start and its position among the terms.
struct Unjoined {
    left: BTreeSet<(usize, usize)>,
    /// The first of them that do not overlap. Only a join changes it: terms that are not in it do not look again.
    disjoint: Vec<(usize, usize)>,
}

impl Unjoined {
    /// Those of each axis.
    fn of(windows: &[Option<Window>]) -> BTreeMap<usize, Unjoined> {
        let mut axes: BTreeMap<usize, BTreeSet<(usize, usize)>> = BTreeMap::new();
        for (position, window) in windows.iter().enumerate() {
            if let Some(Window { axis, start, .. }) = window {
                axes.entry(*axis).or_default().insert((*start, position));
            }
        }
        let unjoined = |left| Unjoined { disjoint: disjoint(&left, windows), left };
        axes.into_iter().map(|(axis, left)| (axis, unjoined(left))).collect()
    }

    /// Takes the windows that do not overlap out, by their start, if the given one is among at least two.
    fn take_with(&mut self, first: (usize, usize), windows: &mut [Option<Window>]) -> Option<Vec<(usize, Window)>> {
        if self.disjoint.len() < 2 || self.disjoint.binary_search(&first).is_err() {
            return None;
        }
        for key in &self.disjoint {
            self.left.remove(key);
        }
        let next = disjoint(&self.left, windows);
        let taken = std::mem::replace(&mut self.disjoint, next).into_iter();
        Some(taken.filter_map(|(_, position)| Some((position, windows[position].take()?))).collect())
    }
}

/// Puts a join in the place of the first of each set of terms that are zero outside windows which do not overlap.
pub(super) fn join(tape: &Arc<Tape>, terms: &mut [Option<Tensor>], at: Caller) {
    let window = |term: &Option<Tensor>| Window::of(tape, term.as_ref()?);
    let mut windows: Vec<Option<Window>> = terms.iter().map(window).collect();
    let mut axes = Unjoined::of(&windows);
    for first in 0..terms.len() {
        let Some((axis, start)) = windows[first].as_ref().map(|window| (window.axis, window.start)) else { continue };
        let take = |unjoined: &mut Unjoined| unjoined.take_with((start, first), &mut windows);
        let Some(parts) = axes.get_mut(&axis).and_then(take) else { continue };
        let Some(whole) = terms[first].take() else { continue };
        parts.iter().for_each(|&(position, _)| terms[position] = None);
        let parts: Vec<Window> = parts.into_iter().map(|(_, window)| window).collect();
        terms[first] = Some(joined(&parts, &whole, at));
    }
}

/// Windows that do not overlap, by their start: the first, and each next one that starts where the last ends or later.
fn disjoint(left: &BTreeSet<(usize, usize)>, windows: &[Option<Window>]) -> Vec<(usize, usize)> {
    let mut found = vec![];
    let mut next = left.first().copied();
    while let Some((start, position)) = next {
        found.push((start, position));
        let end = windows[position].as_ref().map_or(start, Window::end);
        // Of those that start at the same place, empty ones overlap nothing.
        next = left.range((end, 0).max((start, position + 1))..).next().copied();
    }
    found
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The sets that are joined, found by sorting all windows that are left again for each term.
    fn by_sorting(mut windows: Vec<Option<Window>>) -> Vec<Vec<usize>> {
        let mut sets = vec![];
        for first in 0..windows.len() {
            let Some(axis) = windows[first].as_ref().map(|window| window.axis) else { continue };
            let along = |at: &usize| windows[*at].as_ref().filter(|window| window.axis == axis);
            let mut set: Vec<usize> = (0..windows.len()).filter(|at| along(at).is_some()).collect();
            set.sort_by_key(|at| along(at).map(|window| window.start));
            let mut end = 0;
            set.retain(|at| along(at).filter(|window| window.start >= end).map(|window| end = window.end()).is_some());
            if set.len() >= 2 && set.contains(&first) {
                set.iter().for_each(|&at| windows[at] = None);
                sets.push(set);
            }
        }
        sets
    }

    fn by_order(mut windows: Vec<Option<Window>>) -> Vec<Vec<usize>> {
        let (mut axes, mut sets) = (Unjoined::of(&windows), vec![]);
        for first in 0..windows.len() {
            let Some((axis, start)) = windows[first].as_ref().map(|window| (window.axis, window.start)) else {
                continue;
            };
            let taken = axes.get_mut(&axis).unwrap().take_with((start, first), &mut windows);
            sets.extend(taken.map(|set| set.iter().map(|&(position, _)| position).collect()));
        }
        sets
    }

    #[test]
    fn the_sets_are_those_that_sorting_finds() {
        let mut state = 1_u64;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % n) as usize
        };
        for round in 0..400 {
            let (n_windows, extent) = (round % 41, 1 + below(12) as u64);
            // Some are empty, some terms are no windows.
            let plan: Vec<[usize; 4]> = (0..n_windows).map(|_| [below(6), below(2), below(extent), below(4)]).collect();
            let windows = || {
                let window = |&[kind, axis, start, len]: &[usize; 4]| {
                    let part = || Tensor::zeros(if axis == 0 { [len, 1] } else { [1, len] });
                    (kind > 0).then(|| Window { axis, start, part: part() })
                };
                plan.iter().map(window).collect::<Vec<_>>()
            };
            assert_eq!(by_order(windows()), by_sorting(windows()), "{plan:?}");
        }
    }
}
