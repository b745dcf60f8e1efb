//! How the points of a nest are given to threads.
//!
//! Everything follows from the kernel and where its operands lie, never from the machine, so that the tree of every
//! reduction is fixed by the shape. The constants suit devices of some hundred multiprocessors.

use retape_runtime::DType;

use super::BoundKernel;
use super::body::{Vector, align};
use crate::ir::{Affine, Binary, Func1, Inst, Kernel, ParamId, Stage, Unary};

/// Threads of a full block.
pub(super) const BLOCK: usize = 256;
/// Threads of a warp.
pub(super) const WARP: usize = 32;
/// Threads that keep a device busy.
const BUSY: usize = 1 << 16;
/// Blocks below which threads take less each.
const MIN_BLOCKS: usize = 512;
/// Bytes of loads that a thread has under way.
const IN_FLIGHT: usize = 64;
/// The largest access of one thread, in bytes.
const ACCESS: usize = 16;
/// Instructions of a kernel beyond which assembling it is slow.
const MAX_CODE: usize = 1500;
/// Elements of one operand that a thread takes as one vector, at most.
const MAX_LANES: usize = 8;
/// Additions in one chain beyond which the rounding error asks for more chains.
const MAX_CHAIN: usize = 1 << 10;
/// Loads one after the other, from a cache that takes some 200 ns for each, that last as long as a second launch would:
/// a microsecond or two until it begins, and the time of its own loads. An estimate.
const SHORT: usize = 16;
/// Parts of a reduction at most: they are the blocks along y, of which a launch has no more.
const MAX_PARTS: usize = (1 << 16) - 1;
/// Accumulators of a thread.
const MAX_SUMS: usize = 32;
/// The shortest extent worth a tile.
const MIN_TILED: usize = 16;

/// The points of a kernel without reductions: `items` vectors, then `rest` single points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pointwise {
    /// Neighbours along the last axis in a vector.
    pub(super) lanes: usize,
    /// Vectors of a thread.
    pub(super) unroll: usize,
    pub(super) items: usize,
    pub(super) rest: usize,
    pub(super) block: usize,
}

/// A reduction: which threads take which points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reduction {
    /// Whether neighbouring threads take neighbours along the kept axes, or along the reduced ones.
    pub(super) columns: bool,
    /// Neighbours along the last axis of that class in a vector.
    pub(super) lanes: usize,
    /// Reduced units that a thread has under way at once.
    pub(super) unroll: usize,
    /// Threads that share a kept item.
    pub(super) strips: usize,
    /// Kept items of a block.
    pub(super) items_per_block: usize,
    /// Kept points, or vectors of them.
    pub(super) items: usize,
    /// Reduced points, or vectors of them.
    pub(super) units: usize,
    /// Reduced points beyond the last full vector.
    pub(super) rest: usize,
    /// Parts of the reduced units, each for blocks of its own.
    pub(super) chunks: usize,
    /// Units of a part.
    pub(super) chunk: usize,
}

/// Loads that are staged through shared memory since they are contiguous along another axis than the stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tiled {
    /// The axis along which they are contiguous.
    pub(super) axis: usize,
    /// The loads.
    pub(super) loads: Vec<usize>,
}

/// An access of a kernel at an affine position.
pub(super) type Access<'k> = (ParamId, &'k Affine);

/// The loads of a stage, or of all, and the stores at every point.
pub(super) fn accesses(kernel: &Kernel, stage: Option<Stage>) -> Vec<Access<'_>> {
    let stages = kernel.stages();
    let loads = kernel.insts.iter().zip(&stages).filter_map(|(inst, is)| {
        let Inst::Load(p, at) = inst else { return None };
        stage.is_none_or(|stage| stage == *is).then_some((*p, at))
    });
    let at_points = |at: &&Affine| stage.is_none() || kernel.uses_reduced(at);
    let stores = kernel.stores.iter().filter(|s| at_points(&&s.at)).map(|s| (s.param, &s.at));
    loads.chain(stores).collect()
}

/// An estimate of the instructions of PTX for one point.
fn cost(kernel: &Kernel, dtypes: &[DType]) -> usize {
    let of = |(inst, &dtype): (&Inst<_>, &DType)| match inst {
        Inst::Const(_) | Inst::Index(_) | Inst::Reduce(..) => 0,
        Inst::Binary(Binary::Rem, ..) if dtype.is_float() => 60,
        Inst::Binary(Binary::Div | Binary::Rem, ..) if dtype.is_int() => 40,
        Inst::Binary(Binary::Div, ..) | Inst::Unary(Unary::Sqrt, _) => 20,
        Inst::LoadAt(..) | Inst::Binary(Binary::Min | Binary::Max, ..) => 4,
        Inst::Cast(..) => 2,
        Inst::Call1(Func1::Sigmoid, _) => 4,
        Inst::Load(..)
        | Inst::Unary(..)
        | Inst::Binary(..)
        | Inst::Compare(..)
        | Inst::Select(..)
        | Inst::Fma(..)
        | Inst::Bitcast(..)
        | Inst::Call1(..)
        | Inst::Call2(..) => 1,
    };
    kernel.insts.iter().zip(dtypes).map(of).sum::<usize>() + kernel.stores.len()
}

/// The most neighbours along an axis that are worth a vector: as many as fill an access of the narrowest operand
/// without making those of the widest long, if most contiguous operands are aligned to it. `exact` axes have no rest.
fn lanes(nest: &BoundKernel<'_>, accesses: &[Access<'_>], axis: usize, exact: bool, budget: usize) -> usize {
    let kernel = nest.kernel;
    let extent = kernel.axes[axis].extent;
    let contiguous: Vec<&Access<'_>> = accesses.iter().filter(|(_, at)| at.stride(axis) == 1).collect();
    let size = |a: &&Access<'_>| kernel.params[a.0.index()].dtype.size();
    // Loads at computed positions are contiguous for neighbouring threads at best.
    let n_loads = contiguous.iter().filter(|(p, _)| !kernel.params[p.index()].written).count();
    if gathered(kernel).count() > n_loads {
        return 1;
    }
    let Some(narrow) = contiguous.iter().copied().map(|a| size(&a)).min() else { return 1 };
    let wide = contiguous.iter().copied().map(|a| size(&a)).max().unwrap_or(narrow);
    let mut lanes = (ACCESS / narrow).min(2 * ACCESS / wide).clamp(1, MAX_LANES);
    while lanes > 1 {
        let vector = Some(Vector { axis, lanes });
        let aligned = contiguous.iter().filter(|&&&(p, at)| {
            align(kernel, nest.aligns, p, at, vector) >= ACCESS.min(lanes * kernel.params[p.index()].dtype.size())
        });
        let fits = if exact { extent.is_multiple_of(lanes) } else { extent >= lanes };
        if fits && lanes * budget <= MAX_CODE && 2 * aligned.count() >= contiguous.len() {
            return lanes;
        }
        lanes /= 2;
    }
    1
}

/// The sizes of elements at computed positions.
fn gathered(kernel: &Kernel) -> impl Iterator<Item = usize> {
    kernel.insts.iter().filter_map(|inst| {
        let Inst::LoadAt(p, _) = inst else { return None };
        Some(kernel.params[p.index()].dtype.size())
    })
}

/// Bytes that the loads of one vector take.
fn loaded(kernel: &Kernel, accesses: &[Access<'_>], axes: &[usize], vector: Option<Vector>) -> usize {
    let varying =
        accesses.iter().filter(|(p, at)| !kernel.params[p.index()].written && axes.iter().any(|&a| at.stride(a) != 0));
    let affine = varying.map(|(p, at)| {
        let lanes = vector.filter(|v| at.stride(v.axis) != 0).map_or(1, |v| v.lanes);
        lanes * kernel.params[p.index()].dtype.size()
    });
    affine.sum::<usize>() + gathered(kernel).sum::<usize>() * vector.map_or(1, |v| v.lanes)
}

/// The largest power of two, from 1 on, that is not above either number.
fn power_of_two(x: usize, most: usize) -> usize {
    1 << x.clamp(1, most).ilog2()
}

/// The schedule of a kernel whose axes are all kept.
pub(super) fn pointwise(nest: &BoundKernel<'_>) -> Pointwise {
    let kernel = nest.kernel;
    let cost = cost(kernel, &kernel.dtypes()).max(1);
    let n_points = kernel.n_points();
    let Some(last) = kernel.axes.len().checked_sub(1) else {
        return Pointwise { lanes: 1, unroll: 1, items: 1, rest: 0, block: WARP };
    };
    let accesses = accesses(kernel, None);
    let lanes = lanes(nest, &accesses, last, last > 0, cost);
    let (items, rest) = (n_points / lanes, n_points % lanes);
    let axes: Vec<usize> = (0..=last).collect();
    let bytes = loaded(kernel, &accesses, &axes, Some(Vector { axis: last, lanes })).max(ACCESS / 4);
    let mut unroll = power_of_two(IN_FLIGHT / bytes, if lanes == 1 { 8 } else { 4 });
    while unroll > 1 && (items < BLOCK * unroll * MIN_BLOCKS || (unroll + 1) * lanes * cost > MAX_CODE) {
        unroll /= 2;
    }
    Pointwise { lanes, unroll, items, rest, block: items.next_multiple_of(WARP).min(BLOCK) }
}

/// The loads to stage through shared memory, if that pays.
pub(super) fn tiled(kernel: &Kernel) -> Option<Tiled> {
    let last = kernel.axes.len().checked_sub(1)?;
    let long = |axis: usize| kernel.axes[axis].extent >= MIN_TILED;
    let contiguous = kernel.stores.iter().all(|s| s.at.stride(last) == 1);
    if !contiguous || !long(last) || cost(kernel, &kernel.dtypes()) > MAX_CODE / 4 {
        return None;
    }
    let along = |axis: usize| {
        let is = |at: &Affine| at.stride(axis) == 1 && !matches!(at.stride(last), 0 | 1);
        let loads = kernel.insts.iter().enumerate().filter(|(_, inst)| matches!(inst, Inst::Load(_, at) if is(at)));
        loads.map(|(id, _)| id).take(4).collect::<Vec<_>>()
    };
    let best = (0..last).filter(|&axis| long(axis)).max_by_key(|&axis| along(axis).len())?;
    let loads = along(best);
    (!loads.is_empty()).then_some(Tiled { axis: best, loads })
}

/// The schedule of a kernel that reduces over some points.
pub(super) fn reduction(nest: &BoundKernel<'_>) -> Reduction {
    let kernel = nest.kernel;
    let dtypes = kernel.dtypes();
    let n_axes = kernel.axes.len();
    let kept = kernel.axes.iter().filter(|a| !a.reduced).count();
    let product = |axes: &[crate::ir::Axis]| axes.iter().map(|a| a.extent).product::<usize>();
    let (n_kept, n_reduced) = (product(&kernel.axes[..kept]), product(&kernel.axes[kept..]));
    let accesses = accesses(kernel, Some(Stage::Element));
    let along = |axis: usize| accesses.iter().filter(|(_, at)| at.stride(axis) == 1).count();
    let columns = kept > 0 && along(kept - 1) >= along(n_axes - 1).max(1);
    let reduced_dtypes: Vec<DType> = kernel
        .insts
        .iter()
        .zip(&dtypes)
        .filter_map(|(inst, &dtype)| matches!(inst, Inst::Reduce(..)).then_some(dtype))
        .collect();
    let registers: usize = reduced_dtypes.iter().map(|d| d.size().div_ceil(4)).sum::<usize>().max(1);
    let cost = cost(kernel, &dtypes) + 4 * reduced_dtypes.len();
    let axis = if columns { kept - 1 } else { n_axes - 1 };
    let exact = columns || n_axes - kept > 1;
    let lanes = lanes(nest, &accesses, axis, exact, cost).min((MAX_SUMS / registers).max(1).next_power_of_two());
    let vector = Some(Vector { axis, lanes });
    let reduced: Vec<usize> = (kept..n_axes).collect();
    let bytes = loaded(kernel, &accesses, &reduced, vector).max(ACCESS / 4);
    let mut unroll = power_of_two(IN_FLIGHT / bytes, if lanes == 1 { 8 } else { 4 });
    while unroll > 1 && (unroll * lanes * registers > MAX_SUMS || (unroll + 2) * lanes * cost > MAX_CODE) {
        unroll /= 2;
    }
    let (items, units) = if columns { (n_kept / lanes, n_reduced) } else { (n_kept, n_reduced / lanes) };
    let rest = if columns { 0 } else { n_reduced % lanes };
    shared_out(Reduction {
        columns,
        lanes,
        unroll,
        strips: 1,
        items_per_block: 1,
        items,
        units,
        rest,
        chunks: 1,
        chunk: units,
    })
}

/// Decides how many threads and blocks share an item.
fn shared_out(mut r: Reduction) -> Reduction {
    // A thread takes some units at once, unless there are too few threads.
    let some = r.units.div_ceil(r.unroll).next_power_of_two().min(BLOCK);
    let most = r.units.next_power_of_two().min(BLOCK);
    if r.columns {
        // Neighbouring threads read whole cache lines.
        let width = r.items.next_power_of_two().min(BLOCK);
        let narrowest = width.min((WARP / r.lanes).max(WARP / 4));
        r.strips = (BLOCK / width).min(most);
        while r.items * r.strips < BUSY && 2 * r.strips <= some.min(BLOCK / narrowest) {
            r.strips *= 2;
        }
        while r.units / (r.strips * r.unroll) > MAX_CHAIN && 2 * r.strips <= BLOCK / narrowest {
            r.strips *= 2;
        }
    } else {
        r.strips = some;
        while r.items * r.strips < BUSY && 2 * r.strips <= most {
            r.strips *= 2;
        }
    }
    let items = (BLOCK / r.strips).min(r.items.next_power_of_two());
    r.items_per_block = items.max(WARP.div_ceil(r.strips));
    // No more units at once than a thread has.
    while r.unroll > 1 && r.strips * r.unroll > r.units {
        r.unroll /= 2;
    }
    let step = r.strips * r.unroll;
    let steps = r.units.div_ceil(step);
    if r.items * r.strips < BUSY && steps > SHORT {
        let wanted = (2 * BUSY).div_ceil(r.items * r.strips);
        r.chunks = wanted.min(steps / 2);
    }
    r.chunks = r.chunks.max(steps.div_ceil(MAX_CHAIN)).clamp(1, MAX_PARTS);
    r.chunk = if r.chunks == 1 { r.units } else { steps.div_ceil(r.chunks) * step };
    r.chunks = r.units.div_ceil(r.chunk.max(1)).max(1);
    r
}
