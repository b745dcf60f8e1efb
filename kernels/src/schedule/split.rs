//! Long reductions in two steps: fixed chunks of one reduced axis make partial results, which a second kernel reduces.
//!
//! The chunk length follows from the shape, so that the tree of additions does too. Chunks give threads something to
//! share when few points are kept, and keep the sums of `f32` short.

use std::ops::Range;

use retape_runtime::{DType, Scalar};

use super::canonical::affine;
use super::{Source, Traversal};
use crate::ir::{Affine, Axis, AxisId, Binary, Inst, Kernel, Param, ParamId, Stage, Store, ValueId, operation};
use crate::simplify::without_dead;

/// The fewest points worth splitting.
pub(super) const MIN_POINTS: usize = 1 << 16;
/// Points per chunk that are worth a task.
const CHUNK_POINTS: usize = 1 << 12;
/// Additions in one chain beyond which the rounding error asks for chunks.
const MAX_CHAIN: usize = 1 << 10;

/// Points of a chunk along one axis at least, as long as chains are short; of a row, if another axis can be cut instead.
const LEAST_CHUNK: usize = 64;
/// Chunks of another axis at least that is cut in place of rows.
const LEAST_CHUNKS: usize = 8;

/// Kernels to run in order, with what their parameters are.
pub(super) struct Split {
    pub(super) parts: Vec<(Kernel, Vec<Source>)>,
    pub(super) scratch: usize,
}

/// Splits a canonical kernel if that pays.
pub(super) fn split(kernel: &Kernel) -> Option<Split> {
    let kept = kernel.axes.iter().filter(|a| !a.reduced).count();
    let extent = |axes: &[Axis]| axes.iter().map(|a| a.extent).product::<usize>();
    let (n_kept, n_reduced) = (extent(&kernel.axes[..kept]), extent(&kernel.axes[kept..]));
    if kept == kernel.axes.len() || !kernel.insts.iter().any(|i| matches!(i, Inst::Reduce(..))) {
        return None;
    }
    let rows = super::traversal(kernel, kept) == Traversal::Rows;
    let (items, chain) = if rows { (n_kept, n_reduced / 16) } else { (n_kept.div_ceil(32), n_reduced) };
    let few_items = items < 16 && n_kept * n_reduced >= MIN_POINTS;
    if !few_items && chain <= MAX_CHAIN {
        return None;
    }
    let last = kernel.axes.len() - 1;
    let chunk_along = |axis: usize| {
        let inner = n_reduced / kernel.axes[axis].extent;
        let points = inner * if few_items { n_kept } else { 1 };
        let longest = (if rows { 16 * MAX_CHAIN } else { MAX_CHAIN } / inner).max(1);
        (CHUNK_POINTS / points.max(1)).next_power_of_two().clamp(LEAST_CHUNK.min(longest), longest)
    };
    let longest_of = |axes: Range<usize>| axes.max_by_key(|&a| kernel.axes[a].extent);
    let axis = longest_of(kept..last + 1)?;
    // Pieces of rows would leave most of a vector empty.
    let is_cut_short = rows && axis == last && chunk_along(axis) < LEAST_CHUNK;
    let gives_chunks = |axis: &usize| {
        let extent = kernel.axes[*axis].extent;
        n_reduced / extent <= 16 * MAX_CHAIN && extent.div_ceil(chunk_along(*axis)) >= LEAST_CHUNKS
    };
    let axis = longest_of(kept..last).filter(gives_chunks).filter(|_| is_cut_short).unwrap_or(axis);
    let chunk = chunk_along(axis);
    (chunk < kernel.axes[axis].extent).then(|| cut(kernel, kept, axis, chunk, n_kept))
}

fn cut(kernel: &Kernel, kept: usize, axis: usize, chunk: usize, n_kept: usize) -> Split {
    let extent = kernel.axes[axis].extent;
    let (full, rest) = (extent / chunk, extent % chunk);
    let chunks = full + usize::from(rest > 0);
    let dtypes = kernel.dtypes();
    let (partials, scratch) = partials(kernel, &dtypes, chunks.saturating_mul(n_kept), 64);
    let cutter = Cutter { kernel, kept, axis, chunk, n_kept, chunks, partials: &partials, dtypes: &dtypes };
    let mut parts = vec![cutter.part(0, full, chunk)];
    if rest > 0 {
        parts.push(cutter.part(full, 1, rest));
    }
    parts.push(cutter.second_pass());
    Split { parts, scratch }
}

/// Where the partial results of each reduction lie, and the bytes of all.
fn partials(kernel: &Kernel, dtypes: &[DType], len: usize, align: usize) -> (Vec<(ValueId, Source)>, usize) {
    let mut scratch = 0;
    let mut partials = Vec::new();
    for (id, inst) in kernel.insts.iter().enumerate() {
        if matches!(inst, Inst::Reduce(..)) {
            partials.push((ValueId(id as u32), Source::Scratch(scratch)));
            // Sums that stop at the largest number are refused by the allocation.
            let bytes = len.saturating_mul(dtypes[id].size()).checked_next_multiple_of(align);
            scratch = scratch.saturating_add(bytes.unwrap_or(usize::MAX));
        }
    }
    (partials, scratch)
}

/// The kernel that reduces `chunks` rows of partial results of a canonical kernel, each for all kept points, and does
/// what depends on them; what its parameters are, those for partial results last; and the bytes of these, each
/// aligned to `align`.
pub(crate) fn reduction_of_partials(kernel: &Kernel, chunks: usize, align: usize) -> (Kernel, Vec<Source>, usize) {
    let kept = kernel.axes.iter().filter(|a| !a.reduced).count();
    let (dtypes, n_kept) = (kernel.dtypes(), kernel.kept_len());
    let (partials, scratch) = partials(kernel, &dtypes, chunks.saturating_mul(n_kept), align);
    let cutter = Cutter { kernel, kept, axis: kept, chunk: 1, n_kept, chunks, partials: &partials, dtypes: &dtypes };
    let (second, sources) = cutter.second_pass();
    (second, sources, scratch)
}

struct Cutter<'a> {
    kernel: &'a Kernel,
    kept: usize,
    axis: usize,
    chunk: usize,
    n_kept: usize,
    chunks: usize,
    partials: &'a [(ValueId, Source)],
    dtypes: &'a [DType],
}

impl Cutter<'_> {
    /// The parameters of the kernel, then one per partial result.
    fn params(&self, written: bool) -> (Vec<Param>, Vec<Source>) {
        let mut params = self.kernel.params.clone();
        let mut sources: Vec<Source> = (0..params.len()).map(Source::Param).collect();
        for &(id, source) in self.partials {
            params.push(Param { dtype: self.dtypes[id.index()], len: self.chunks * self.n_kept, written });
            sources.push(source);
        }
        (params, sources)
    }

    /// Row-major strides of the kept axes.
    fn kept_strides(&self) -> Vec<i64> {
        let mut strides = vec![1; self.kept];
        for a in (1..self.kept).rev() {
            strides[a - 1] = strides[a] * self.kernel.axes[a].extent as i64;
        }
        strides
    }

    /// The partial results of `count` chunks of `length` from the chunk `first` on; a new outermost axis counts them.
    fn part(&self, first: usize, count: usize, length: usize) -> (Kernel, Vec<Source>) {
        let start = (first * self.chunk) as i64;
        let map = |at: &Affine| {
            let stride = at.stride(self.axis);
            let inner = (0..self.kernel.axes.len()).map(|a| at.stride(a));
            affine(at.offset + start * stride, std::iter::once(stride * self.chunk as i64).chain(inner))
        };
        let mut axes = self.kernel.axes.clone();
        axes[self.axis].extent = length;
        axes.insert(0, Axis { extent: count, reduced: false });
        let (params, sources) = self.params(true);
        let mut insts = Vec::new();
        let mut new = Vec::new();
        for inst in &self.kernel.insts {
            match inst {
                Inst::Load(p, at) => insts.push(Inst::Load(*p, map(at))),
                Inst::Index(a) if a.index() == self.axis => self.push_index(&mut insts, start),
                Inst::Index(a) => insts.push(Inst::Index(AxisId(a.0 + 1))),
                other @ (Inst::Const(_) | Inst::LoadAt(..) | Inst::Reduce(..) | operation!()) => {
                    insts.push(other.map(|v: ValueId| new[v.index()]))
                }
            }
            new.push(ValueId(insts.len() as u32 - 1));
        }
        let of = |s: &Store| Store { at: map(&s.at), value: new[s.value.index()], param: s.param };
        let mut stores: Vec<Store> =
            self.kernel.stores.iter().filter(|s| self.kernel.uses_reduced(&s.at)).map(of).collect();
        let reduced = self.kernel.axes.len() - self.kept;
        for (n, (id, _)) in self.partials.iter().enumerate() {
            let strides = std::iter::once(self.n_kept as i64).chain(self.kept_strides());
            stores.push(Store {
                param: ParamId((self.kernel.params.len() + n) as u32),
                at: affine((first * self.n_kept) as i64, strides.chain(std::iter::repeat_n(0, reduced))),
                value: new[id.index()],
            });
        }
        (without_dead(Kernel { params, axes, insts, stores }), sources)
    }

    /// The coordinate along the cut axis: `start + chunk * (which chunk) + (where in it)`.
    fn push_index(&self, insts: &mut Vec<Inst<ValueId>>, start: i64) {
        let constant = |x: i64| Inst::Const(Scalar { dtype: DType::I64, bits: x as u64 });
        let base = insts.len() as u32;
        let id = |n: u32| ValueId(base + n);
        insts.extend([
            Inst::Index(AxisId(0)),
            constant(self.chunk as i64),
            Inst::Binary(Binary::Mul, id(0), id(1)),
            Inst::Index(AxisId(self.axis as u32 + 1)),
            Inst::Binary(Binary::Add, id(2), id(3)),
            constant(start),
            Inst::Binary(Binary::Add, id(4), id(5)),
        ]);
    }

    /// Folds the partial results in order and does what depends on them.
    fn second_pass(&self) -> (Kernel, Vec<Source>) {
        let (params, sources) = self.params(false);
        let mut axes = self.kernel.axes[..self.kept].to_vec();
        axes.push(Axis { extent: self.chunks, reduced: true });
        let strides = |at: &Affine| affine(at.offset, (0..self.kept).map(|a| at.stride(a)).chain([0]));
        let stages = self.kernel.stages();
        let mut insts = Vec::new();
        let mut new = Vec::new();
        let mut n_partials = 0;
        for (inst, stage) in self.kernel.insts.iter().zip(&stages) {
            match inst {
                // Nothing that is left uses what is made at every point; its place is taken by a dead constant.
                _ if *stage == Stage::Element => {
                    insts.push(Inst::Const(Scalar { dtype: DType::I64, bits: 0 }));
                }
                Inst::Reduce(op, _) => {
                    let param = ParamId((self.kernel.params.len() + n_partials) as u32);
                    n_partials += 1;
                    let at = affine(0, self.kept_strides().into_iter().chain([self.n_kept as i64]));
                    insts.push(Inst::Load(param, at));
                    insts.push(Inst::Reduce(*op, ValueId(insts.len() as u32 - 1)));
                }
                Inst::Load(p, at) => insts.push(Inst::Load(*p, strides(at))),
                other @ (Inst::Const(_) | Inst::Index(_) | Inst::LoadAt(..) | operation!()) => {
                    insts.push(other.map(|v: ValueId| new[v.index()]))
                }
            }
            new.push(ValueId(insts.len() as u32 - 1));
        }
        let kept_stores = self.kernel.stores.iter().filter(|s| !self.kernel.uses_reduced(&s.at));
        let stores =
            kept_stores.map(|s| Store { param: s.param, at: strides(&s.at), value: new[s.value.index()] }).collect();
        (without_dead(Kernel { params, axes, insts, stores }), sources)
    }
}

#[cfg(test)]
mod tests {
    use super::super::canonical;
    use super::*;

    /// The extents of the nests that sum up the products of two arrays, of which one has all axes but the last in reverse
    /// order, so that no axes become one.
    fn extents(array: &[usize]) -> Vec<Vec<usize>> {
        let (len, last): (usize, usize) = (array.iter().product(), array.len() - 1);
        let stride = |behind: &[usize]| behind.iter().product::<usize>() * array[last];
        let terms = |stride: &dyn Fn(usize) -> usize| {
            let terms: Vec<String> = (0..last).map(|axis| format!("a{axis} * {}", stride(axis))).collect();
            terms.join(" + ")
        };
        let axes: Vec<String> =
            array.iter().enumerate().map(|(n, extent)| format!("a{n} = {extent} reduced")).collect();
        let text = format!(
            "kernel (p0: f32[{len}], p1: f32[{len}], p2: f32[1] out) {{
                axes {}
                %0 = load p0[{} + a{last}]
                %1 = load p1[{} + a{last}]
                %2 = mul %0, %1
                %3 = reduce sum %2
                store p2[0], %3
            }}",
            axes.join(", "),
            terms(&|axis| stride(&array[axis + 1..last])),
            terms(&|axis| stride(&array[..axis])),
        );
        let kernel: Kernel = text.parse().unwrap();
        let parts = split(&canonical(&kernel).unwrap()).unwrap().parts;
        parts.iter().map(|(part, _)| part.axes.iter().map(|axis| axis.extent).collect()).collect()
    }

    #[test]
    fn rows_stay_whole_where_another_axis_gives_chunks() {
        // Two of 64 planes to a chunk, and 32 partial results.
        assert_eq!(extents(&[64, 64, 128]), [vec![32, 64, 2, 128], vec![32]]);
        assert_eq!(extents(&[3, 100, 520]), [vec![10, 3, 10, 520], vec![10]]);
        // Sevens are too few for threads, and too long for chains: pieces of rows.
        assert_eq!(extents(&[7, 7, 7, 520])[0], [11, 7, 7, 7, 47]);
    }
}
