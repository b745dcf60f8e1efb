//! Which kernels only exchange the axes of matrices, so that a library kernel does it by tiles.

use retape_kernels::Work;
use retape_kernels::ir::{Affine, Inst, Kernel};
use retape_kernels::library::Transpose;
use retape_runtime::{DType, Device};

use super::UnplacedStep;

/// Matrices of fewer elements stay with their neighbours in generated code: a call would cost more than it saves.
const FEW: usize = 1 << 12;

/// Matrices of fewer rows or columns fill no tile.
const NARROW: usize = 8;

/// Gives kernels that are transpositions, and have not become epilogues, to the library: on a GPU those of dense matrices,
/// since its loop nests have tiles of their own for the others.
pub(super) fn find(steps: &mut [Option<UnplacedStep>], device: Device) {
    for step in steps.iter_mut().flatten() {
        if let Work::Kernel(kernel) = &step.work
            && let Some(transpose) = transposed(kernel)
            && (device == Device::Cpu || is_dense_whole(kernel, &transpose))
        {
            step.work = Work::library(transpose);
        }
    }
}

/// Whether a kernel's transposition is one of dense matrices, which are all that it reads from.
fn is_dense_whole(kernel: &Kernel, transpose: &Transpose) -> bool {
    let Transpose { dtype, batch, rows, cols, .. } = *transpose;
    let is_whole = kernel.params.first().is_some_and(|x| x.len == kernel.n_points());
    is_whole && *transpose == Transpose::contiguous(dtype, [batch[0] * batch[1], rows, cols])
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
    if param.index() != 0 || out.len != kernel.n_points() || kernel.axes.iter().any(|axis| axis.reduced) {
        return None;
    }
    let extents: Vec<usize> = kernel.axes.iter().map(|axis| axis.extent).collect();
    of_strides(x.dtype, &extents, from, &store.at)
}

/// The transposition that copies elements from some strides to those of a dense array, if it is one that is worth a call:
/// neighbours of the one lie apart in the other.
pub(super) fn of_strides(dtype: DType, extents: &[usize], from: &Affine, to: &Affine) -> Option<Transpose> {
    let stride = |(n, &extent): (usize, &usize)| Stride { extent, to: to.stride(n), from: from.stride(n) };
    let axes = extents.iter().enumerate().filter(|(_, extent)| **extent != 1);
    let mut axes: Vec<Stride> = axes.map(stride).collect();
    axes.sort_by_key(|axis| std::cmp::Reverse(axis.to));
    if to.offset != 0 || !is_dense(&axes) {
        return None;
    }
    let axes = merged(axes);
    let (rows, others) = axes.split_last()?;
    let at = others.iter().position(|axis| axis.from == 1)?;
    let (batch, columns, between) = (two(&others[..at])?, &others[at], two(&others[at + 1..])?);
    let is_wide = rows.extent >= NARROW && columns.extent >= NARROW;
    let n_elements = axes.iter().map(|axis| axis.extent).product::<usize>();
    // None of no elements either.
    if rows.from <= 1 || !is_wide || n_elements < FEW {
        return None;
    }
    let step = |axis: Stride| usize::try_from(axis.from).ok();
    let [i, j] = batch.map(step);
    let [k, l] = between.map(step);
    Some(Transpose {
        dtype,
        batch: batch.map(|axis| axis.extent),
        between: between.map(|axis| axis.extent),
        rows: rows.extent,
        cols: columns.extent,
        offset: usize::try_from(from.offset).ok()?,
        strides: [i?, j?, k?, l?, step(*rows)?],
    })
}

/// Up to two axes as two.
fn two(axes: &[Stride]) -> Option<[Stride; 2]> {
    let single = Stride { extent: 1, to: 0, from: 0 };
    match *axes {
        [] => Some([single; 2]),
        [axis] => Some([single, axis]),
        [outer, inner] => Some([outer, inner]),
        _ => None,
    }
}

/// Whether axes with falling strides of the result are those of a dense array.
fn is_dense(axes: &[Stride]) -> bool {
    let step = axes.iter().rev().try_fold(1_i64, |step, axis| {
        let extent = i64::try_from(axis.extent).ok()?;
        if axis.to == step { step.checked_mul(extent) } else { None }
    });
    step.is_some()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Graph;

    #[test]
    fn gpus_call_the_library_for_dense_matrices() {
        let is_call = |from: &str, value: &str, device: Device| {
            let graph: Graph = format!("graph (%0: {from}) {{\n{value}\n}}").parse().unwrap_or_else(|e| panic!("{e}"));
            crate::plan::plan(&graph, device).is_ok_and(|(plan, _)| plan.to_string().contains("transpose{"))
        };
        let dense = [
            ("f32[100, 90]", "%1 = permute %0 {perm=[1, 0]} : f32[90, 100]\n return %1"),
            ("f32[3, 40, 50]", "%1 = permute %0 {perm=[0, 2, 1]} : f32[3, 50, 40]\n return %1"),
        ];
        let part = "%1 = slice %0 {start=[0, 0], step=[1, 1], shape=[80, 90]} : f32[80, 90]
            %2 = permute %1 {perm=[1, 0]} : f32[90, 80]\n return %2";
        let turns = "%1 = permute %0 {perm=[2, 1, 0]} : f32[40, 30, 20]\n return %1";
        let strided = [("f32[20, 30, 40]", turns), ("f32[100, 90]", part)];
        for (from, value) in dense {
            assert!(is_call(from, value, Device::Cpu) && is_call(from, value, Device::Cuda(0)), "{from}");
        }
        for (from, value) in strided {
            assert!(is_call(from, value, Device::Cpu) && !is_call(from, value, Device::Cuda(0)), "{from}");
        }
    }
}
