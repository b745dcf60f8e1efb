//! Products of 16-bit floats whose larger operand is read once: it becomes single precision block by block, near where it
//! is used, instead of as a whole in memory.

use std::ops::Range;

use half::slice::HalfFloatSliceExt;
use retape_runtime::{DType, bf16, f16};

use super::cast_half::Convert;
use super::micro::{ColumnExtents, Engine, block_depth, is_split, with_scratch};
use super::view::{Plain, for_each_tile, view, view_mut};

/// The most rows, or columns, of the result for which the other operand is cut: with more, a product takes longer than
/// conversions through memory.
const FEW: usize = 64;

/// Elements of an operand from which on it is cut, and about those of a block, whose `f32` a second-level cache holds.
const LARGE: usize = if cfg!(test) { 1 << 10 } else { 1 << 17 };
const BLOCK: usize = if cfg!(test) { 1 << 9 } else { 1 << 16 };

/// Lines of a block at least.
const LEAST: usize = 16;

/// A 16-bit float.
pub(super) trait Half: Plain + Convert<Stored = Self> {
    /// The bits of elements.
    fn bits(x: &[Self]) -> &[u16];
}

impl Half for f16 {
    fn bits(x: &[f16]) -> &[u16] {
        x.reinterpret_cast()
    }
}

impl Half for bf16 {
    fn bits(x: &[bf16]) -> &[u16] {
        x.reinterpret_cast()
    }
}

/// Where an operand lies in its buffer, as lines of sums: rows of the left one, columns of the right one.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineLayout {
    /// The first element.
    pub(super) offset: usize,
    /// Elements from one line to the next, and from one term of the sums to the next.
    pub(super) strides: [usize; 2],
}

impl LineLayout {
    /// Whether lines or terms are neighbours in memory.
    fn is_dense(self) -> bool {
        self.strides.contains(&1)
    }
}

/// An operand of `f32`: its elements, and the strides of lines and terms.
type Singles<'x> = (&'x [f32], [usize; 2]);

/// Computes a product of `f32`, given its rows, columns and terms, both operands and its result.
pub(super) type MultiplySingles<'f> = &'f (dyn Fn([usize; 3], [Singles<'_>; 2], &mut [f32]) + Sync);

/// A product of two matrices of 16-bit floats.
pub(super) struct HalfProduct<'f> {
    pub(super) dtype: DType,
    /// Rows, columns and terms.
    pub(super) extents: [usize; 3],
    pub(super) operands: [LineLayout; 2],
    pub(super) engine: &'f Engine,
    /// Computes a block of it.
    pub(super) multiply: MultiplySingles<'f>,
}

#[derive(Clone, Copy)]
struct HalfOperand<'x, H> {
    x: &'x [H],
    layout: LineLayout,
}

impl<H: Half> HalfOperand<'_, H> {
    /// Writes some terms of some lines, neighbours as they are; returns the strides of lines and terms.
    fn widen(&self, lines: Range<usize>, terms: Range<usize>, to: &mut [f32]) -> [usize; 2] {
        let ([line, term], n, k) = (self.layout.strides, lines.len(), terms.len());
        let first = self.layout.offset + lines.start * line + terms.start * term;
        let (len, stride, strides) = if term == 1 { (k, line, [k, 1]) } else { (n, term, [1, n]) };
        for (run, to) in to[..n * k].chunks_exact_mut(len).enumerate() {
            H::to_singles(&self.x[first + run * stride..][..len], to);
        }
        strides
    }
}

impl HalfProduct<'_> {
    /// Computes the product if one operand is large and read once; `false` if neither is.
    pub(super) fn run_in_blocks(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> bool {
        match self.dtype {
            DType::F16 => self.run::<f16>(inputs, outputs),
            DType::Bf16 => self.run::<bf16>(inputs, outputs),
            DType::F32 | DType::F64 | DType::I32 | DType::I64 | DType::U32 | DType::U8 | DType::Bool => false,
        }
    }

    fn run<H: Half>(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> bool {
        let [m, n, k] = self.extents;
        let [cuts_rows, cuts_columns] =
            [(m, n), (n, m)].map(|(cut, other)| other <= FEW && cut.saturating_mul(k) >= LARGE);
        let is_dense = self.operands.iter().all(|operand| operand.is_dense());
        if m * n * k == 0 || is_split(m, n, k) || !is_dense || !(cuts_rows || cuts_columns) {
            return false;
        }
        let operand = |n: usize| HalfOperand::<H> {
            x: view(inputs[n], inputs[n].len() / size_of::<H>()),
            layout: self.operands[n],
        };
        let (rows, columns) = (operand(0), operand(1));
        let out = view_mut::<H>(outputs[0], m * n);
        let is_done = if n == 1 {
            self.run_columns([rows, columns], [m, 1], out)
        } else {
            self.run_columns([columns, rows], [n, m], out)
        };
        if is_done {
            return true;
        }
        // The other operand is the same for all blocks.
        let (cut, whole, n_whole) = if cuts_rows { (rows, columns, n) } else { (columns, rows, m) };
        // Chains of additions end where those of the product as a whole do, so that no bit differs.
        let n_terms = block_depth(k).min(k);
        let n_lines = (BLOCK / n_terms).max(LEAST);
        with_scratch(n_whole * k, |singles: &mut [f32]| {
            let strides = whole.widen(0..n_whole, 0..k, singles);
            let whole = (&*singles, strides);
            let block = if cuts_rows { [n_lines, n] } else { [m, n_lines] };
            for_each_tile(out, [1, m, n], block, m * n * k, &|mut tile| {
                let extents = [tile.rows.len(), tile.columns.len()];
                let lines = if cuts_rows { tile.rows.clone() } else { tile.columns.clone() };
                let size = extents[0] * extents[1];
                with_scratch(lines.len() * n_terms + 2 * size, |scratch: &mut [f32]| {
                    let (sums, scratch) = scratch.split_at_mut(size);
                    let (part, scratch) = scratch.split_at_mut(size);
                    for start in (0..k).step_by(n_terms) {
                        let terms = start..(start + n_terms).min(k);
                        let strides = cut.widen(lines.clone(), terms.clone(), scratch);
                        let cut = (&*scratch, strides);
                        let whole = (&whole.0[start * whole.1[1]..], whole.1);
                        let operands = if cuts_rows { [cut, whole] } else { [whole, cut] };
                        let extents = [extents[0], extents[1], terms.len()];
                        let is_first = start == 0;
                        (self.multiply)(extents, operands, if is_first { sums } else { part });
                        if !is_first {
                            sums.iter_mut().zip(&*part).for_each(|(sum, part)| *sum += part);
                        }
                    }
                    for (row, sums) in tile.rows.clone().zip(sums.chunks_exact(extents[1])) {
                        H::from_singles(sums, tile.row(row));
                    }
                });
            });
        });
        true
    }

    /// Multiplies the lines of a matrix, as they lie in memory, by some vectors; `false` if there is no code for that.
    fn run_columns<H: Half>(
        &self,
        [matrix, vectors]: [HalfOperand<'_, H>; 2],
        [rows, n_vectors]: [usize; 2],
        out: &mut [H],
    ) -> bool {
        let [_, _, k] = self.extents;
        let extents = ColumnExtents { rows, k, vectors: n_vectors };
        if !self.engine.has_half_columns(extents, matrix.layout.strides[0]) {
            return false;
        }
        with_scratch(n_vectors * k + out.len(), |singles: &mut [f32]| {
            let (x, sums) = singles.split_at_mut(n_vectors * k);
            let strides = vectors.widen(0..n_vectors, 0..k, x);
            let LineLayout { offset, strides: of_matrix } = matrix.layout;
            let matrix = (H::bits(&matrix.x[offset..]), of_matrix);
            self.engine.multiply_half_columns(self.dtype == DType::F16, matrix, (x, strides), extents, sums);
            H::from_singles(sums, out);
        });
        true
    }
}
