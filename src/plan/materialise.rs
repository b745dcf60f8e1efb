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
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::fuse::Groups;
use super::values::{Read, Values};
use super::view::View;
use super::{products, transpose};
use crate::ops::Lowering;
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

/// Movements between a value and its source at most, and values between it and those that read it: long chains of
/// movements would be walked again from each of them.
const MOST_MOVEMENTS: usize = 16;
const MOST_BETWEEN: usize = 256;

/// The nodes that use a value.
type NodeUsers = SmallVec<[ValueId; 2]>;

/// Gives memory to transposed values whose columns are far, and to formulas that are transposed so. Returns the values that
/// groups of their own transpose now.
pub(super) fn transposed(values: &mut Values<'_>, groups: &mut Groups) -> Vec<ValueId> {
    let ids = values.graph.iter().map(|(id, _)| id);
    let far: Vec<ValueId> = ids.filter(|&id| far_source(values, id).is_some()).collect();
    if far.is_empty() {
        return vec![];
    }
    let mut users = vec![NodeUsers::new(); values.graph.n_nodes()];
    for (id, node) in values.graph.iter() {
        node.args.iter().for_each(|arg| users[arg.index()].push(id));
    }
    let (mut copied, mut n_copied) = (vec![], FxHashMap::<ValueId, usize>::default());
    for id in far {
        // A part of a transposed value is none of a stored one. Parts that overlap take no more memory than the whole.
        let Some(source) = far_source(values, id) else { continue };
        let n_elements = |id: ValueId| values.graph.ty(id).n_elements();
        let (n, most) = (n_copied.get(&source).copied().unwrap_or(0) + n_elements(id), n_elements(source));
        if n <= most && store(values, groups, &users, [id, source]) {
            n_copied.insert(source, n);
            copied.push(id);
        }
    }
    if !copied.is_empty() {
        groups.renew_ancestors();
    }
    copied
}

/// The value with memory, or the formula, that a value is a transposition of, or of a part, perhaps for a batch, if it is
/// large and its columns are more than caches hold.
fn far_source(values: &Values<'_>, id: ValueId) -> Option<ValueId> {
    let ty = values.graph.ty(id);
    let (space, n_axes) = (&ty.shape, ty.rank());
    let is_candidate = matches!(values.lowering(id), Lowering::Movement(_)) && ty.n_elements() >= MANY;
    if !is_candidate {
        return None;
    }
    let own = View::of_axes(0..n_axes, n_axes);
    let (mut view, mut source, mut n_movements) = (own.clone(), id, 0);
    while let Lowering::Movement(movement) = values.lowering(source) {
        n_movements += 1;
        if n_movements > MOST_MOVEMENTS {
            return None;
        }
        let node = values.graph.node(source);
        let from = &values.graph.ty(node.args[0]).shape;
        view = view.through(movement, from, &node.ty.shape, space)?;
        source = node.args[0];
        if values.is_stored(values.memory_of(source)) {
            break;
        }
    }
    // A copy that repeats elements would take more memory than it reads; a small product is a part of the formula that reads it.
    let source_ty = values.graph.ty(source);
    if source_ty.n_elements() < ty.n_elements() || products::steps_of(values, values.memory_of(source)).is_some() {
        return None;
    }
    let (from, to) = (view.affine(&source_ty.shape, n_axes), own.affine(space, n_axes));
    let Transpose { rows, strides: [.., pitch], .. } = transpose::of_strides(ty.dtype, space, &from, &to)?;
    is_column_far(rows, pitch.saturating_mul(ty.dtype.size())).then(|| values.memory_of(source))
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
fn store(values: &mut Values<'_>, groups: &mut Groups, users: &[NodeUsers], [id, source]: [ValueId; 2]) -> bool {
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
        let reads: Option<Vec<bool>> =
            found.groups.iter().map(|&group| reads_along_rows(values, groups, &found.between, group, id)).collect();
        if reads.is_none_or(|reads| !reads.contains(&true)) {
            return false;
        }
        readers.extend(found.groups);
    }
    let is_whole = values.graph.ty(source).n_elements() == values.graph.ty(id).n_elements();
    // At its own points a formula may read through a reshape that was no obstacle at those of its reader.
    let may_store = || {
        let is_free = is_only_used_by(users, source, id) && values.broken_views(source).is_empty();
        is_whole && is_free && is_read_in_order(values, source)
    };
    if is_formula && !may_store() {
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

/// Whether a group that reads a value along its rows, wherever it does, reads half of it or more; none if it reads across
/// them.
fn reads_along_rows(
    values: &Values<'_>,
    groups: &Groups,
    between: &FxHashSet<ValueId>,
    group: usize,
    id: ValueId,
) -> Option<bool> {
    let (roots, space) = (&groups.groups[group].roots, &groups.groups[group].space);
    let last = space.iter().rposition(|&extent| extent > 1)?;
    let own = View::of_axes(0..space.len(), space.len());
    let mut open: Vec<(ValueId, View)> = roots.iter().map(|&root| (root, own.clone())).collect();
    let (mut seen, mut is_worth_it) = (FxHashSet::default(), false);
    while let Some((at, view)) = open.pop() {
        for (arg, view) in values.steps_from(at, &view, space).into_iter().flatten() {
            if arg == id {
                let ty = values.graph.ty(id);
                let at = view.affine(&ty.shape, space.len());
                if at.stride(last) != 1 {
                    return None;
                }
                let read = (0..space.len()).filter(|&axis| at.stride(axis) != 0).map(|axis| space[axis]);
                is_worth_it |= read.product::<usize>() >= ty.n_elements().div_ceil(2);
            } else if between.contains(&arg) && seen.insert((arg, view.clone())) {
                open.push((arg, view));
            }
        }
    }
    Some(is_worth_it)
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

/// The groups that read a value, and the values on the way.
struct ReadingGroups {
    groups: Vec<usize>,
    /// Values without memory that are made of it.
    between: FxHashSet<ValueId>,
}

/// The groups that read a value, if all of them are pointwise and near; `users` has the nodes that use each value.
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
                if found.between.len() > MOST_BETWEEN {
                    return None;
                }
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
    use std::fmt::Write;

    use super::*;
    use crate::graph::Graph;
    use crate::plan::fuse::tests::assert_known;

    /// How many transposed values get memory.
    fn n_copied(text: &str) -> usize {
        let graph: Graph = text.parse().unwrap_or_else(|e| panic!("{e} in\n{text}"));
        let mut values = Values::of(&graph);
        let mut groups = Groups::of(&values);
        let copied = transposed(&mut values, &mut groups);
        assert_known(&groups, &values);
        copied.len()
    }

    /// A sum of a matrix and of value 3 or another one, transposed and read through a reshape.
    fn sum_of(value: &str) -> String {
        format!(
            "graph (%0: f32[16, 16, 256], %1: f32[256, 256], %2: f32[256, 16, 16]) {{
               %3 = permute %0 {{perm=[1, 0, 2]}} : f32[16, 16, 256]
               %4 = {value} : f32[256, 256]
               %5 = add %4, %1 : f32[256, 256]
               %6 = permute %5 {{perm=[1, 0]}} : f32[256, 256]
               %7 = reshape %6 {{shape=[256, 16, 16]}} : f32[256, 16, 16]
               %8 = add %7, %2 : f32[256, 16, 16]
               return %8
             }}"
        )
    }

    #[test]
    fn formulas_are_stored_where_they_can_be_read() {
        // At its own points the sum would read through a reshape that no view can follow.
        assert_eq!(n_copied(&sum_of("reshape %3 {shape=[256, 256]}")), 0);
        assert_eq!(n_copied(&sum_of("neg %1")), 1);
    }

    /// Parts that overlap are read from one copy.
    #[test]
    fn a_stencil_reads_one_copy() {
        let mut text = "graph (%0: f32[1024, 1024]) {\n%1 = permute %0 {perm=[1, 0]} : f32[1024, 1024]\n".to_owned();
        for (id, start) in [(2, "0, 0"), (3, "0, 1"), (4, "1, 0"), (5, "2, 2")] {
            let _ = writeln!(
                text,
                "%{id} = slice %1 {{start=[{start}], step=[1, 1], shape=[1022, 1022]}} : f32[1022, 1022]"
            );
        }
        for (id, args) in [(6, "%2, %3"), (7, "%4, %5"), (8, "%6, %7")] {
            let _ = writeln!(text, "%{id} = add {args} : f32[1022, 1022]");
        }
        assert_eq!(n_copied(&format!("{text}return %8\n}}")), 1);
    }

    #[test]
    fn repeated_and_small_products_are_not_copied() {
        let repeated = "graph (%0: f32[256, 256], %1: f32[20, 256, 256]) {
               %2 = broadcast_to %0 {shape=[20, 256, 256]} : f32[20, 256, 256]
               %3 = permute %2 {perm=[0, 2, 1]} : f32[20, 256, 256]
               %4 = add %3, %1 : f32[20, 256, 256]
               return %4
             }";
        assert_eq!(n_copied(repeated), 0);
        let product = |k: usize| {
            format!(
                "graph (%0: f32[1024, {k}], %1: f32[{k}, 1024]) {{
                   %2 = matmul %0, %1 : f32[1024, 1024]
                   %3 = permute %2 {{perm=[1, 0]}} : f32[1024, 1024]
                   %4 = neg %3 : f32[1024, 1024]
                   return %4
                 }}"
            )
        };
        assert_eq!((n_copied(&product(2)), n_copied(&product(20))), (0, 1));
    }

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
