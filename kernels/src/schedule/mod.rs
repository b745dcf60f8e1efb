//! Kernel to schedule: loop order, vector axis, blocks, threads and the splitting of long reductions.
//!
//! Invariant: a schedule depends on the kernel alone, never on the machine, so that the order of every floating-point
//! operation is fixed by the shape.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod canonical;
mod cold;
mod extremes;
mod form;
mod in_turn;
mod interleaved;
mod order;
mod permuted;
mod pieces;
mod shared;
mod short_rows;
mod split;
mod step;
mod tile;
mod written_out;

use std::ops::RangeInclusive;

use retape_runtime::DType;
use smallvec::SmallVec;

use self::extremes::with_minima;
use self::written_out::accesses;
use crate::expand::{expand, expand_quotients};
use crate::ir::{Inst, Kernel, Stage};
use crate::simplify::{simplify, simplify_coordinates};

pub(crate) use canonical::canonical;
pub(crate) use form::{FormLoop, FormPointer, LoopForm, ReducedValue};
pub(crate) use interleaved::{Interleaved, interleaved_loads, interleaved_stores};
pub(crate) use permuted::{PermutedRows, PermutedVector, RowElement};
#[cfg(test)]
pub(crate) use pieces::cut_kernel;
pub(crate) use pieces::pieces;
pub(crate) use shared::{prepared_all, share_code};
pub(crate) use split::reduction_of_partials;
pub(crate) use step::LoopStep;
pub(crate) use tile::tile_nest;

/// Lanes of the order of additions, on every machine: a reduction along vectors adds neighbours to this many sums in turn,
/// then these.
pub(crate) const REDUCTION_LANES: usize = 4;
/// Work of one task in scalar instructions: some tens of microseconds.
pub(crate) const TASK_WORK: u64 = 1 << 17;
/// Elements of the innermost axis that one grid item of a plain loop covers.
const BLOCK: usize = 8192;
/// Elements of the last kept axis that one grid item of a reduction covers at least: the widest vectors, and a cache line
/// of words.
const MIN_BLOCK: usize = 16;
/// Bytes of the sums of such an item at most: an eighth of a first-level cache.
const MAX_SUM_BYTES: usize = 1 << 12;
/// Grid items of a reduction along columns, which threads share, before its blocks grow: wide ones read more of each page
/// of memory that they come by.
const SUM_ITEMS: u64 = 8;
/// The shortest innermost axis worth vectors.
pub(crate) const MIN_VECTOR_EXTENT: usize = 4;

/// The source of a nest's parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// A parameter of the scheduled kernel.
    Param(usize),
    /// Bytes of the scratch memory, from this offset on, or of the constants behind it.
    Scratch(usize),
}

/// The largest stride whose elements are picked from vectors of neighbours.
pub(crate) const NEAR: i64 = 8;

/// How the points of a nest are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Traversal {
    /// One kept axis, whose range is what the function is called with.
    Flat,
    /// Vectors along the last kept axis; a grid item is a block of it.
    Columns {
        /// The length of a block.
        block: usize,
    },
    /// Vectors along the last reduced axis; a grid item is a kept point.
    Rows,
    /// Vectors along the last axis, between two positions that lie behind the pointers in the table; a grid item is a
    /// point of the other axes. No axis is reduced.
    Tile,
}

/// One loop nest to compile, and how to call it.
#[derive(Clone, Debug)]
pub(crate) struct Nest {
    /// The canonical kernel: kept axes first, none of extent 1.
    pub(crate) kernel: Kernel,
    /// How it is visited.
    pub(crate) traversal: Traversal,
    /// Vectors of [`REDUCTION_LANES`] elements per iteration.
    pub(crate) unroll: usize,
    /// The sources of its parameters.
    pub(crate) sources: SmallVec<[Source; 6]>,
    /// Its grid items.
    pub(crate) items: u64,
    /// The grid items of one task; at least 1.
    pub(crate) task: u64,
    /// An estimate of the scalar instructions of all items.
    pub(crate) work: u64,
    /// Whether what it stores is read at once, so that stores past the caches do not pay.
    pub(crate) is_read_at_once: bool,
}

impl Nest {
    /// Whether it has one axis of less than the widest vectors or just that: too little to be split over threads, and few
    /// enough lengths for code of each.
    pub(crate) fn is_short(&self) -> bool {
        self.traversal == Traversal::Flat && self.items <= MIN_BLOCK as u64
    }
}

/// The nests to run in order, and the scratch memory that they share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schedule {
    /// The nests.
    pub(crate) nests: Vec<Nest>,
    /// Bytes of scratch memory.
    pub(crate) scratch: usize,
}

/// The kernel in the form that is compiled, except for quotients beside sums: they decide the order of additions as the one
/// instruction that they are.
pub(crate) fn prepared(kernel: &Kernel) -> Kernel {
    let simple = simplify(kernel);
    simplify(&expand(&if has_sums(kernel) { simple } else { expand_quotients(&simple) }))
}

/// The kernel with functions as formulas, and quotients as they are.
pub(crate) fn expanded(kernel: &Kernel) -> Kernel {
    simplify(&expand(&simplify(kernel)))
}

fn has_sums(kernel: &Kernel) -> bool {
    kernel.axes.iter().any(|axis| axis.reduced)
}

/// Schedules a verified, expanded kernel.
pub(crate) fn schedule(kernel: &Kernel) -> Schedule {
    let mut schedule = settled(kernel);
    for nest in &mut schedule.nests {
        if has_sums(kernel) {
            nest.kernel = with_minima(expand_quotients(&simplify_coordinates(&nest.kernel)));
        }
    }
    schedule
}

/// The schedule, in which the order of additions is settled, of instructions as they are.
pub(crate) fn settled(kernel: &Kernel) -> Schedule {
    let sources: Vec<Source> = (0..kernel.params.len()).map(Source::Param).collect();
    let Some(canonical) = canonical(kernel).and_then(with_short_axes_written_out) else { return Schedule::default() };
    if let Some(split) = split::split(&canonical) {
        let nests = split.parts.iter().filter_map(|(part, of)| {
            let of: Vec<Source> = of.iter().map(|s| s.through(&sources)).collect();
            crate::schedule::canonical(part).map(|part| nest(part, &of))
        });
        return Schedule { nests: nests.collect(), scratch: split.scratch };
    }
    Schedule { nests: vec![nest(canonical, &sources)], scratch: 0 }
}

/// The canonical form without the short axes that are better written out.
fn with_short_axes_written_out(mut kernel: Kernel) -> Option<Kernel> {
    while let Some(written) = written_out::with_short_axis_written_out(&kernel) {
        kernel = canonical(&written)?;
    }
    Some(kernel)
}

impl Schedule {
    /// The nests of these, in order. Only one that is alone may need scratch memory.
    pub(crate) fn joined(parts: impl IntoIterator<Item = Schedule>) -> Schedule {
        let mut all = Schedule::default();
        for part in parts {
            all.nests.extend(part.nests);
            all.scratch = all.scratch.max(part.scratch);
        }
        all
    }
}

/// The schedule of a verified kernel, as it is run.
pub(crate) fn scheduled(kernel: &Kernel) -> Schedule {
    Schedule::joined(pieces(kernel).iter().map(|piece| schedule(&prepared(piece))))
}

impl Source {
    fn through(self, outer: &[Source]) -> Source {
        match self {
            Source::Param(p) => outer[p],
            Source::Scratch(_) => self,
        }
    }
}

fn nest(kernel: Kernel, sources: &[Source]) -> Nest {
    let kept = kernel.axes.iter().filter(|a| !a.reduced).count();
    let traversal = traversal(&kernel, kept);
    let unroll = unroll(&kernel, traversal);
    let block = |extent: usize, block: usize| extent.div_ceil(block) as u64;
    let points = |axes: &[crate::ir::Axis]| axes.iter().map(|a| a.extent as u64).product::<u64>();
    let (traversal, items) = match traversal {
        Traversal::Flat => (traversal, points(&kernel.axes)),
        Traversal::Rows => (traversal, points(&kernel.axes[..kept])),
        Traversal::Columns { .. } => {
            let (extent, outer) = (kernel.axes[kept - 1].extent, points(&kernel.axes[..kept - 1]));
            let is_reduction = kernel.axes.len() > kept;
            let length = if is_reduction { block_of_sums(&kernel, extent, outer, unroll) } else { BLOCK };
            // Less than two blocks are one.
            let length = if extent < 2 * length { extent } else { length };
            (Traversal::Columns { block: length }, outer * block(extent, length))
        }
        Traversal::Tile => (traversal, points(&kernel.axes[..kept - 1])),
    };
    let work = points(&kernel.axes).saturating_mul(cost_of_point(&kernel));
    let per_item = (work / items.max(1)).max(1);
    let task = TASK_WORK.div_ceil(per_item).max(1);
    // Whole cache lines of every dtype, so that no two tasks write to one.
    let task = if traversal == Traversal::Flat { task.next_multiple_of(64) } else { task };
    let sources = sources.iter().copied().collect();
    Nest { kernel, traversal, unroll, sources, items, task, work, is_read_at_once: false }
}

/// Columns of a block that is reduced: as many as leave [`SUM_ITEMS`] for threads, within bounds.
fn block_of_sums(kernel: &Kernel, extent: usize, outer: u64, unroll: usize) -> usize {
    // Whole iterations of every emitter: only the last block of a row has a remainder.
    let least = (unroll * REDUCTION_LANES).next_multiple_of(MIN_BLOCK);
    let sums = kernel.insts.iter().zip(kernel.dtypes()).filter(|(inst, _)| matches!(inst, Inst::Reduce(..)));
    // Registers have short elements as words.
    let bytes: usize = sums.map(|(_, dtype)| dtype.size().max(4)).sum();
    let blocks = SUM_ITEMS.div_ceil(outer.max(1)) as usize;
    (extent / blocks).min(MAX_SUM_BYTES / bytes.max(1)).max(least) / least * least
}

fn cost_of_point(kernel: &Kernel) -> u64 {
    let insts = kernel.insts.iter().filter(|i| !matches!(i, Inst::Const(_) | Inst::Index(_))).count();
    (insts + kernel.stores.len()) as u64
}

/// Strides along an axis that are unit ones, or near ones, of the loads inside the reduced loops and of the stores.
fn strides_in(strides: RangeInclusive<i64>, kernel: &Kernel, axis: usize) -> usize {
    let stages = kernel.stages();
    let loads =
        kernel.insts.iter().zip(&stages).filter(
            |(inst, stage)| matches!(inst, Inst::Load(_, at) if **stage == Stage::Element && strides.contains(&at.stride(axis))),
        );
    let stores = kernel.stores.iter().filter(|s| kernel.uses_reduced(&s.at) && strides.contains(&s.at.stride(axis)));
    loads.count() + stores.count()
}

/// The loads and stores that walk both of two axes, with neighbours along the first one, and along the second.
fn matrices_along(kernel: &Kernel, axes: [usize; 2]) -> [usize; 2] {
    let along = |[axis, other]: [usize; 2]| {
        accesses(kernel).filter(|(_, at)| at.stride(axis) == 1 && at.stride(other) != 0).count()
    };
    [along(axes), along([axes[1], axes[0]])]
}

fn traversal(kernel: &Kernel, kept: usize) -> Traversal {
    if kernel.axes.len() == kept {
        return match kept {
            0 => Traversal::Rows,
            1 => Traversal::Flat,
            _ => Traversal::Columns { block: 0 },
        };
    }
    if kept == 0 || kernel.axes[kept - 1].extent < MIN_VECTOR_EXTENT {
        return Traversal::Rows;
    }
    let count = |strides: RangeInclusive<i64>| {
        [kept - 1, kernel.axes.len() - 1].map(|axis| strides_in(strides.clone(), kernel, axis))
    };
    let is_long = kernel.axes[kept - 1].extent >= MIN_BLOCK;
    let [along_kept, along_reduced] = match count(1..=1) {
        [0, 0] if is_long => count(2..=NEAR),
        units => units,
    };
    // An element for each step costs nothing where vectors are columns, however many such operands there are.
    let [of_columns, of_rows] = matrices_along(kernel, [kept - 1, kernel.axes.len() - 1]);
    let has_columns = along_kept >= along_reduced.max(1) || of_columns > of_rows;
    if has_columns { Traversal::Columns { block: 0 } } else { Traversal::Rows }
}

/// Enough independent vectors to hide latencies, few enough for the registers.
fn unroll(kernel: &Kernel, traversal: Traversal) -> usize {
    let insts = cost_of_point(kernel);
    let wide = kernel.params.iter().any(|p| p.dtype.size() == 8) || kernel.dtypes().contains(&DType::F64);
    let reduces = kernel.insts.iter().filter(|i| matches!(i, Inst::Reduce(..))).count();
    let unroll = match insts {
        0..=8 => 4,
        9..=20 => 2,
        _ => 1,
    };
    let unroll = if reduces > 0 && insts <= 20 { 8 / reduces.next_power_of_two().min(8) } else { unroll };
    let unroll = unroll.clamp(1, if traversal == Traversal::Flat { 4 } else { 8 });
    if wide { (unroll / 2).max(1) } else { unroll }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The schedule of sums along rows of what `op` makes of two arrays.
    fn sums(op: &str, dtype: &str) -> Schedule {
        let text = format!(
            "kernel (p0: {dtype}[4096], p1: {dtype}[4096], p2: f32[8] out) {{
                axes a0 = 8, a1 = 512 reduced
                %0 = load p0[a0 * 512 + a1]
                %1 = load p1[a0 * 512 + a1]
                %2 = {op} %0, %1
                %3 = cast %2: f32
                %4 = reduce sum %3
                store p2[a0], %4
            }}"
        );
        let kernel: Kernel = text.parse().unwrap();
        kernel.verify().unwrap();
        schedule(&prepared(&kernel))
    }

    /// Sums of columns of a matrix beside an element of each of `n` other operands for every row.
    #[test]
    fn operands_of_rows_do_not_make_columns_rows() {
        for n in [0, 1, 4] {
            let others: Vec<String> = (0..n).map(|i| format!("p{}: f32[512], ", i + 2)).collect();
            let mut text =
                format!("kernel (p0: f32[131072], p1: f32[256] out, {}) {{\n", others.concat().trim_end_matches(", "));
            text = text.replace(", )", ")") + "axes a0 = 512 reduced, a1 = 256\n%0 = load p0[a0 * 256 + a1]\n";
            for i in 0..n {
                text +=
                    &format!("%{} = load p{}[a0]\n%{} = mul %{}, %{}\n", 2 * i + 1, i + 2, 2 * i + 2, 2 * i, 2 * i + 1);
            }
            text += &format!("%{} = reduce sum %{}\nstore p1[a1], %{}\n}}", 2 * n + 1, 2 * n, 2 * n + 1);
            let kernel: Kernel = text.parse().unwrap_or_else(|e| panic!("{e:?} in\n{text}"));
            let nests = schedule(&prepared(&kernel)).nests;
            assert!(matches!(nests[0].traversal, Traversal::Columns { .. }), "{n}: {:?}", nests[0].traversal);
        }
    }

    /// Rows of three words, each row four times, and each image row four times: the axis whose points follow each other in
    /// memory has the vectors, and not one of repetitions.
    #[test]
    fn axes_of_short_rows_are_innermost() {
        let text = "kernel (p0: f32[4704], p1: f32[75264] out) {
            axes a0 = 56, a1 = 4, a2 = 28, a3 = 4, a4 = 3
            %0 = load p0[a0 * 84 + a2 * 3 + a4]
            store p1[a0 * 1344 + a1 * 336 + a2 * 12 + a3 * 3 + a4], %0
        }";
        let kernel: Kernel = text.parse().unwrap();
        let [piece] = &pieces(&kernel)[..] else { panic!("one piece") };
        let nests = schedule(&prepared(piece)).nests;
        let last = nests[0].kernel.axes.last().unwrap();
        assert_eq!((nests[0].kernel.stores.len(), last.extent), (12, 28), "{}", nests[0].kernel);
    }

    #[test]
    fn formulas_of_quotients_do_not_decide_the_order_of_additions() {
        for (op, dtype) in [("rem", "f32"), ("rem", "f64"), ("div", "i32"), ("rem", "u8"), ("rem", "i64")] {
            let [simple, divided] = ["mul", op].map(|op| sums(op, dtype));
            let [simple, divided] = [&simple.nests, &divided.nests].map(|nests| &nests[0]);
            assert_eq!((simple.unroll, simple.traversal), (divided.unroll, divided.traversal), "{op} of {dtype}");
            assert!(divided.kernel.insts.len() > simple.kernel.insts.len(), "{op} of {dtype} has a formula");
        }
    }
}
