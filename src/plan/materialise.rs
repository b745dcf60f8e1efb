//! Which transposed values get memory, though a formula could read through the transposition.
//!
//! A kernel that reads rows of one array and columns of another takes a cache line for each element of a column, and finds
//! the line's other elements there for the next columns, if the caches hold the lines of a column and know their pages. Of
//! a matrix of 1,024 by 1,024 they do not, since all lines of a column share one set of a cache, nor of one of 2,000 by
//! 2,000: these take four to ten times as long as a transposition by tiles and the formula after it (ADR 87).
//!
//! Groups are complete by then, and only pointwise ones change what they read: strides decide about the order of loops,
//! and thus about that of additions in a sum.

use retape_kernels::library::Transpose;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::fuse::Groups;
use super::transpose;
use super::values::{Read, Values};
use super::view::View;
use crate::ops::{Lowering, Movement};
use crate::types::ValueId;

/// Elements from which on a transposition is worth a copy.
const MANY: usize = 1 << 14;

/// Bytes of a cache line and of a page.
const LINE: usize = 64;
const PAGE: usize = 4096;

/// Sets of a first-level cache and of a second-level one, and lines that a set holds.
const SETS: usize = 64;
const FAR_SETS: usize = 1024;
const WAYS: usize = 16;

/// Of lines that are spread over more sets of the first-level cache than these, enough are still there for the next column.
const SPREAD: usize = SETS / 4;

/// Pages that a processor knows the places of.
const PAGES: usize = 1536;

/// The nodes that use a value.
type NodeUsers = SmallVec<[ValueId; 2]>;

/// Gives memory to transposed values whose columns are far, and to formulas that are transposed so. Returns the values that
/// groups of their own transpose now.
pub(super) fn transposed(values: &mut Values<'_>, groups: &mut Groups) -> Vec<ValueId> {
    let mut far: Vec<ValueId> = values.graph.iter().map(|(id, _)| id).filter(|&id| is_far(values, id)).collect();
    if far.is_empty() {
        return far;
    }
    let mut users = vec![NodeUsers::new(); values.graph.n_nodes()];
    for (id, node) in values.graph.iter() {
        node.args.iter().for_each(|arg| users[arg.index()].push(id));
    }
    far.retain(|&id| store(values, groups, &users, id));
    if !far.is_empty() {
        groups.renew_ancestors();
    }
    far
}

/// Whether a value is the transposition of a large matrix, perhaps of a batch, whose columns are more than caches hold.
fn is_far(values: &Values<'_>, id: ValueId) -> bool {
    let Lowering::Movement(movement @ Movement::Permute(_)) = values.lowering(id) else { return false };
    let ty = values.graph.ty(id);
    if ty.n_elements() < MANY {
        return false;
    }
    let (shape, n_axes) = (&ty.shape, ty.rank());
    let from = &values.graph.ty(values.graph.node(id).args[0]).shape;
    let own = View::of_axes(0..n_axes, n_axes);
    let Some(through) = own.through(movement, from, shape, shape) else { return false };
    let (from, to) = (through.affine(from, n_axes), own.affine(shape, n_axes));
    transpose::of_strides(ty.dtype, shape, &from, &to)
        .is_some_and(|Transpose { rows, cols, .. }| is_column_far(rows, cols * ty.dtype.size()))
}

/// Whether a column of elements that lie `stride` bytes apart takes more lines or pages than caches have room for, until
/// the next column is read.
fn is_column_far(n_rows: usize, stride: usize) -> bool {
    let n_lines = n_rows.saturating_mul(stride.min(LINE)) / LINE;
    let n_pages = n_rows.saturating_mul(stride.min(PAGE)) / PAGE;
    // Lines that are a power of two apart share some of the sets.
    let skipped = if stride.is_multiple_of(LINE) { (stride / LINE).trailing_zeros().min(SETS.ilog2()) } else { 0 };
    let (sets, far_sets) = (SETS >> skipped, FAR_SETS >> skipped);
    sets <= SPREAD && n_lines > WAYS * sets || n_lines > WAYS * far_sets || n_pages > PAGES
}

/// Gives memory to a transposed value, and to the formula that is transposed, if all groups that read it are pointwise and
/// it lies in their order. Returns whether something is stored that was not.
fn store(values: &mut Values<'_>, groups: &mut Groups, users: &[NodeUsers], id: ValueId) -> bool {
    let source = values.memory_of(values.graph.node(id).args[0]);
    let is_formula = !values.is_stored(source);
    let mut readers = vec![];
    if values.is_root(id) {
        let own = groups.group_of[id];
        readers.push(own);
        if !groups.groups[own].folded.is_empty() || !is_formula && groups.groups[own].roots.len() == 1 {
            return false;
        }
    } else {
        let Some(found) = pointwise_groups(values, groups, users, id) else { return false };
        if !found.groups.iter().all(|&group| reads_in_order(values, groups, &found.between, group, id)) {
            return false;
        }
        readers.extend(found.groups);
    }
    if is_formula && !(is_only_used_by(users, source, id) && is_read_in_order(values, source)) {
        return false;
    }
    groups.store_alone(values, id);
    if is_formula {
        groups.store_alone(values, source);
        readers.push(groups.group_of[id]);
    }
    readers.sort_unstable();
    readers.dedup();
    readers.into_iter().for_each(|group| groups.renew_reads(values, group));
    true
}

/// Whether a group reads a value at its own points, wherever it does.
fn reads_in_order(
    values: &Values<'_>,
    groups: &Groups,
    between: &FxHashSet<ValueId>,
    group: usize,
    id: ValueId,
) -> bool {
    let (roots, space) = (&groups.groups[group].roots, &groups.groups[group].space);
    let own = View::of_axes(0..space.len(), space.len());
    let mut open: Vec<(ValueId, View)> = roots.iter().map(|&root| (root, own.clone())).collect();
    let mut seen = FxHashSet::default();
    while let Some((at, view)) = open.pop() {
        for (arg, view) in values.steps_from(at, &view, space).into_iter().flatten() {
            if arg == id {
                if !is_dense(values, id, &view, space) {
                    return false;
                }
            } else if between.contains(&arg) && seen.insert((arg, view.clone())) {
                open.push((arg, view));
            }
        }
    }
    true
}

/// Whether a value is used by a transposition of it alone, perhaps of another shape: by a group that makes what the formula
/// reads, it could not be read from another group.
fn is_only_used_by(users: &[NodeUsers], source: ValueId, transposition: ValueId) -> bool {
    let mut id = source;
    while id != transposition {
        match users[id.index()][..] {
            [user] => id = user,
            _ => return false,
        }
    }
    true
}

/// Whether a formula reads its rows along those of other values, one of which is as large.
fn is_read_in_order(values: &Values<'_>, formula: ValueId) -> bool {
    let n_elements = |id| values.graph.ty(id).n_elements();
    let space = values.space(formula);
    let Some(last) = space.iter().rposition(|&extent| extent > 1) else { return false };
    let along_rows = |read: &Read| {
        let at = |view: &View| view.affine(&values.graph.ty(read.value).shape, space.len());
        read.view.as_ref().is_some_and(|view| at(view).stride(last).abs() <= 1)
    };
    let reads = values.reads(formula);
    matches!(values.lowering(formula), Lowering::Pointwise(_))
        && reads.iter().any(|read| n_elements(read.value) >= n_elements(formula))
        && reads.iter().all(along_rows)
}

/// Whether a view is that of a value that lies in memory in the order of the points.
fn is_dense(values: &Values<'_>, id: ValueId, view: &View, space: &[usize]) -> bool {
    let own = View::of_axes(0..space.len(), space.len()).affine(space, space.len());
    let at = view.affine(&values.graph.ty(id).shape, space.len());
    let is_same = |axis: usize| space[axis] <= 1 || at.stride(axis) == own.stride(axis);
    at.offset == 0 && (0..space.len()).all(is_same)
}

/// The groups that read a value, and the values on the way.
struct ReadingGroups {
    groups: Vec<usize>,
    /// Values without memory that are made of it.
    between: FxHashSet<ValueId>,
}

/// The groups that read a value, if all of them are pointwise; `users` has the nodes that use each value.
fn pointwise_groups(values: &Values<'_>, groups: &Groups, users: &[NodeUsers], id: ValueId) -> Option<ReadingGroups> {
    let mut found = ReadingGroups { groups: vec![], between: FxHashSet::default() };
    let mut open = vec![id];
    while let Some(id) = open.pop() {
        for &user in &users[id.index()] {
            if values.is_root(user) {
                let group = groups.group_of[user];
                if groups.groups[group].is_library || !groups.groups[group].folded.is_empty() {
                    return None;
                }
                found.groups.push(group);
            } else if found.between.insert(user) {
                open.push(user);
            }
        }
    }
    found.groups.sort_unstable();
    found.groups.dedup();
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::is_column_far;

    #[test]
    fn columns_are_far_that_caches_do_not_hold() {
        // Of 4 bytes an element: in few sets of the first level, of the second, in many pages.
        for (rows, columns) in [(1024, 1024), (512, 512), (256, 256), (3136, 64), (32, 4096)] {
            assert!(is_column_far(rows, columns * 4), "{rows} by {columns}");
        }
        for (rows, columns) in [(65_536, 16), (12_544, 96), (200_000, 10), (32_000, 40)] {
            assert!(is_column_far(rows, columns * 4), "{rows} by {columns}");
        }
        for (rows, columns) in [(1600, 1600), (4000, 1000), (20_000, 100)] {
            assert!(is_column_far(rows, columns * 4), "{rows} by {columns}");
        }
        for (rows, columns) in [(1000, 1000), (64, 64), (200, 130), (4096, 16), (16, 4096), (20_000, 10), (0, 0)] {
            assert!(!is_column_far(rows, columns * 4), "{rows} by {columns}");
        }
        for (rows, columns) in [(1500, 1500), (500, 6000), (5000, 250), (8192, 96), (1024, 32), (usize::MAX, 0)] {
            assert!(!is_column_far(rows, columns * 4), "{rows} by {columns}");
        }
    }
}
