//! Which kernels only exchange the axes of matrices, so that a library kernel does it by tiles.

use retape_kernels::Work;
use retape_kernels::ir::{Affine, Inst, Kernel};
use retape_kernels::library::Transpose;
use retape_runtime::DType;

use super::UnplacedStep;

/// Matrices of fewer elements stay with their neighbours in generated code: a call would cost more than it saves.
const FEW: usize = 1 << 12;

/// Matrices of fewer rows or columns fill no tile.
const NARROW: usize = 8;

/// Gives kernels that are transpositions, and have not become epilogues, to the library.
pub(super) fn find(steps: &mut [Option<UnplacedStep>]) {
    for step in steps.iter_mut().flatten() {
        if let Work::Kernel(kernel) = &step.work
            && let Some(transpose) = transposed(kernel)
        {
            step.work = Work::library(transpose);
        }
    }
}

/// An axis of the iteration space: its extent, and the strides of the result and of the operand.
#[derive(Clone, Copy)]
struct Stride {
    extent: usize,
    to: i64,
    from: i64,
}

/// The transposition that a kernel is, if it is one of matrices that are worth a call.
fn transposed(kernel: &Kernel) -> Option<Transpose> {
    let ([Inst::Load(param, from)], [store], [x, out]) = (&kernel.insts[..], &kernel.stores[..], &kernel.params[..])
    else {
        return None;
    };
    let is_whole = x.len == out.len && out.len == kernel.n_points();
    if param.index() != 0 || !is_whole || kernel.axes.iter().any(|axis| axis.reduced) {
        return None;
    }
    let extents: Vec<usize> = kernel.axes.iter().map(|axis| axis.extent).collect();
    of_strides(x.dtype, &extents, from, &store.at)
}

/// The transposition that copies an array from some strides to others, if it is one of whole matrices that are worth a call.
pub(super) fn of_strides(dtype: DType, extents: &[usize], from: &Affine, to: &Affine) -> Option<Transpose> {
    let n_points = extents.iter().product();
    if (from.offset, to.offset) != (0, 0) || n_points < FEW {
        return None;
    }
    let stride = |(n, &extent): (usize, &usize)| Stride { extent, to: to.stride(n), from: from.stride(n) };
    let axes = extents.iter().enumerate().filter(|(_, extent)| **extent > 1);
    let mut axes: Vec<Stride> = axes.map(stride).collect();
    axes.sort_by_key(|axis| std::cmp::Reverse(axis.to));
    let axes = merged(axes);
    let (batch, [columns, rows]) = match axes[..] {
        [columns, rows] => (1, [columns, rows]),
        [batch, columns, rows] if batch.from == batch.to => (batch.extent, [columns, rows]),
        _ => return None,
    };
    let n_rows = i64::try_from(rows.extent).ok()?;
    let n_columns = i64::try_from(columns.extent).ok()?;
    let is_transposed = (rows.to, rows.from) == (1, n_columns) && (columns.to, columns.from) == (n_rows, 1);
    let covers = batch.checked_mul(rows.extent)?.checked_mul(columns.extent)? == n_points;
    let is_wide = rows.extent >= NARROW && columns.extent >= NARROW;
    (is_transposed && covers && is_wide).then_some(Transpose { dtype, batch, rows: rows.extent, cols: columns.extent })
}

/// Neighbouring axes that are one in both arrays as one; the axes come with falling strides of the result.
fn merged(axes: Vec<Stride>) -> Vec<Stride> {
    let mut merged: Vec<Stride> = vec![];
    for axis in axes {
        let n = i64::try_from(axis.extent).unwrap_or(i64::MAX);
        let joins =
            |outer: &Stride| Some(outer.to) == axis.to.checked_mul(n) && Some(outer.from) == axis.from.checked_mul(n);
        match merged.last_mut().filter(|outer| joins(outer)) {
            Some(outer) => *outer = Stride { extent: outer.extent.saturating_mul(axis.extent), ..axis },
            None => merged.push(axis),
        }
    }
    merged
}
