//! Which transpositions are copies of their own, though a formula could read through them.
//!
//! A kernel that reads rows of one array and columns of another takes a cache line for each element of a column, and finds
//! the line's other elements there for the next columns, unless the lines of a column share few sets of the cache: a
//! matrix of 1,024 by 1,024 takes six times as long as a transposition by tiles and the formula after it (ADR 87).
//! Formulas that only end in sums read their elements in any order, and need no copy.

use retape_kernels::library::Transpose;
use smallvec::SmallVec;

use super::values::Values;
use crate::ops::{Lowering, Movement};
use crate::types::ValueId;

/// Elements from which on a transposition is worth a copy.
const MANY: usize = 1 << 14;

/// Bytes of a cache line, sets of a first-level cache, and lines that a set holds: somewhat more than it has ways, since a
/// few misses cost less than a copy.
const LINE: usize = 64;
const SETS: usize = 64;
const WAYS: usize = 16;

/// Of lines that are spread over more than this part of the sets, enough are still there for the next column.
const SPREAD: usize = SETS / 4;

/// Makes calls of the library of transpositions that formulas read, and of those of formulas, if they are stored.
pub(super) fn store(values: &mut Values<'_>) {
    let graph = values.graph;
    let turned = |(id, _)| transpose(values, id).map(|transpose| (id, transpose));
    let turned: Vec<(ValueId, Transpose)> = graph.iter().filter_map(turned).collect();
    if turned.is_empty() {
        return;
    }
    let mut users = vec![vec![]; graph.n_nodes()];
    for (id, node) in graph.iter() {
        node.args.iter().for_each(|arg| users[arg.index()].push(id));
    }
    for (id, transpose) in turned {
        let arg = graph.node(id).args[0];
        let is_formula = matches!(values.lowering(values.memory_of(arg)), Lowering::Pointwise(_));
        let ends_formula = values.is_root(id) && is_formula && !is_made_of_turned(values, arg);
        if ends_formula || users[id.index()].iter().any(|&user| reads_in_rows(values, &users, user)) {
            values.call(id, transpose.into());
        }
    }
}

/// The transposition of large matrices that a value is, perhaps of a batch.
fn transpose(values: &Values<'_>, id: ValueId) -> Option<Transpose> {
    let Lowering::Movement(Movement::Permute(order)) = values.lowering(id) else { return None };
    let ty = values.graph.ty(id);
    if ty.n_elements() < MANY {
        return None;
    }
    // Axes that follow each other in both arrays are one.
    let mut runs: SmallVec<[(usize, usize); 4]> = SmallVec::new();
    let mut last = None;
    for (&axis, &extent) in order.iter().zip(ty.shape.iter()).filter(|(_, extent)| **extent > 1) {
        match runs.last_mut().filter(|_| last.is_some_and(|last| last + 1 == axis)) {
            Some((_, length)) => *length *= extent,
            None => runs.push((axis, extent)),
        }
        last = Some(axis);
    }
    let (batch, [(first, cols), (second, rows)]) = match runs[..] {
        [columns, rows] => (1, [columns, rows]),
        [batch, columns, rows] if batch.0 < rows.0 => (batch.1, [columns, rows]),
        _ => return None,
    };
    let is_worth_it = first > second && collide(rows, cols * ty.dtype.size());
    is_worth_it.then_some(Transpose { dtype: ty.dtype, batch, rows, cols })
}

/// Whether lines that lie `stride` bytes apart are more than their sets of a first-level cache hold.
fn collide(n_lines: usize, stride: usize) -> bool {
    let (apart, is_whole) = (stride / LINE, stride > 0 && stride.is_multiple_of(LINE));
    let sets = SETS >> apart.trailing_zeros().min(SETS.ilog2());
    is_whole && sets <= SPREAD && n_lines > WAYS * sets
}

/// Whether a value that is made of a transposed one is a formula that is stored in rows, and not summed in any order or
/// turned back.
fn reads_in_rows(values: &Values<'_>, users: &[Vec<ValueId>], id: ValueId) -> bool {
    let (mut id, mut is_formula) = (id, false);
    loop {
        match values.lowering(id) {
            Lowering::Pointwise(_) => is_formula = true,
            Lowering::Movement(Movement::Permute(_)) | Lowering::Reduce { .. } => return false,
            Lowering::Movement(_) => {}
            Lowering::Indexed { .. } | Lowering::Library(_) | Lowering::Parameter => return is_formula,
        }
        match users[id.index()][..] {
            [user] if !values.is_root(id) => id = user,
            _ => return is_formula,
        }
    }
}

/// Whether a formula reads through a transposition itself.
fn is_made_of_turned(values: &Values<'_>, id: ValueId) -> bool {
    /// Values that are looked at; longer formulas are stored anyway.
    const MOST: usize = 64;
    let (mut unseen, mut n_seen) = (vec![id], 0);
    while let Some(id) = unseen.pop() {
        n_seen += 1;
        if transpose(values, id).is_some() || n_seen > MOST {
            return true;
        }
        if matches!(values.lowering(id), Lowering::Pointwise(_) | Lowering::Movement(_)) {
            unseen.extend(values.graph.node(id).args.iter());
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::collide;

    #[test]
    fn columns_collide_where_rows_are_whole_parts_of_a_cache() {
        for (rows, columns) in [(1024, 1024), (512, 512), (256, 256), (3136, 64), (32, 4096)] {
            assert!(collide(rows, columns * 4), "{rows} by {columns}");
        }
        for (rows, columns) in [(1000, 1000), (64, 64), (200, 130), (4096, 16), (16, 4096), (20_000, 10), (0, 0)] {
            assert!(!collide(rows, columns * 4), "{rows} by {columns}");
        }
    }
}
