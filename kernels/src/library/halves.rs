//! Products of 16-bit floats whose larger operand is read once: it becomes single precision block by block, near where it
//! is used, instead of as a whole in memory.

use std::ops::Range;

use retape_runtime::{DType, bf16, f16};
use smallvec::SmallVec;

use super::cast_half::Convert;
use super::matmul::{MatMul, MatrixLayout};
use super::micro::{Engine, block_depth, is_split, with_scratch};
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
pub(super) trait Half: Plain + Convert<Stored = Self> {}
impl Half for f16 {}
impl Half for bf16 {}

/// An operand as lines of sums: rows of the left one, columns of the right one.
#[derive(Clone, Copy)]
struct Lines<'x, H> {
    x: &'x [H],
    /// Elements from one line to the next, and from one term of the sums to the next.
    line: usize,
    term: usize,
}

impl<H: Half> Lines<'_, H> {
    /// Whether lines or terms are neighbours in memory.
    fn is_dense(&self) -> bool {
        self.line == 1 || self.term == 1
    }

    /// Writes some terms of some lines, neighbours as they are; returns the strides of lines and terms.
    fn widen(&self, lines: Range<usize>, terms: Range<usize>, to: &mut [f32]) -> [usize; 2] {
        let (n, k, first) = (lines.len(), terms.len(), lines.start * self.line + terms.start * self.term);
        let (len, stride, strides) = if self.term == 1 { (k, self.line, [k, 1]) } else { (n, self.term, [1, n]) };
        for (run, to) in to[..n * k].chunks_exact_mut(len).enumerate() {
            H::to_singles(&self.x[first + run * stride..][..len], to);
        }
        strides
    }
}

/// Computes a product of one matrix, if one operand is large and read once; `false` if it is not.
pub(super) fn run_in_blocks(op: &MatMul, engine: &Engine, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> bool {
    match op.dtype {
        DType::F16 => run::<f16>(op, engine, inputs, outputs),
        DType::Bf16 => run::<bf16>(op, engine, inputs, outputs),
        DType::F32 | DType::F64 | DType::I32 | DType::I64 | DType::U32 | DType::U8 | DType::Bool => false,
    }
}

fn run<H: Half>(op: &MatMul, engine: &Engine, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> bool {
    let (m, n, k) = (op.n_rows(), op.n, op.k);
    let [cuts_rows, cuts_columns] = [(m, n), (n, m)].map(|(cut, other)| other <= FEW && cut.saturating_mul(k) >= LARGE);
    if !op.is_one_matrix() || m * n * k == 0 || is_split(m, n, k) || !(cuts_rows || cuts_columns) {
        return false;
    }
    let lines = |bytes, layout: &MatrixLayout, [line, term]: [usize; 2]| {
        let x: &[H] = view(bytes, bytes.len() / size_of::<H>());
        Lines { x: &x[layout.offset..], line, term }
    };
    let rows = lines(inputs[0], &op.a, [op.a.row_stride, op.a.col_stride]);
    let columns = lines(inputs[1], &op.b, [op.b.col_stride, op.b.row_stride]);
    if !rows.is_dense() || !columns.is_dense() {
        return false;
    }
    let out = view_mut::<H>(outputs[0], m * n);
    let alone = engine.alone();
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
                    let is_first = start == 0;
                    multiply(&alone, extents, terms.len(), operands, if is_first { sums } else { part });
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

/// Computes a product of `f32`, given the strides of lines and terms of each operand.
fn multiply(engine: &Engine, [m, n]: [usize; 2], k: usize, [a, b]: [(&[f32], [usize; 2]); 2], c: &mut [f32]) {
    let layout =
        |row_stride, col_stride| MatrixLayout { offset: 0, batch_strides: SmallVec::new(), row_stride, col_stride };
    let (batch, a_layout, b_layout) = (SmallVec::new(), layout(a.1[0], a.1[1]), layout(b.1[1], b.1[0]));
    let product = MatMul { dtype: DType::F32, batch, m, n, k, a: a_layout, b: b_layout };
    product.multiply(engine, [a.0, b.0], c);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::dense::DenseKernel;
    use crate::library::testing::{Draw, assert_close, drawn};

    #[test]
    fn blocks_have_the_bits_of_the_whole() {
        let (mut draw, engine) = (Draw::new(3), Engine::best());
        let mut n_cut = 0;
        for (m, n, k) in [(100, 1, 300), (1, 100, 700), (700, 3, 40), (5, 333, 513), (64, 65, 257), (40, 2, 600)] {
            for dtype in [DType::F16, DType::Bf16] {
                for turned in [[false, false], [true, false], [false, true], [true, true]] {
                    let mut op = MatMul::contiguous(dtype, &[], [m, n, k]);
                    if turned[0] {
                        op.a = MatrixLayout::contiguous(&[], k, m).transposed();
                    }
                    if turned[1] {
                        op.b = MatrixLayout::contiguous(&[], n, k).transposed();
                    }
                    let mut draw_all = |special| -> Vec<_> {
                        op.inputs().into_iter().map(|(dtype, n)| drawn(&mut draw, dtype, n, special)).collect()
                    };
                    let (inputs, special) = (draw_all(false), draw_all(true));
                    let bytes: Vec<&[u8]> = inputs.iter().map(|input| input.bytes()).collect();
                    let [mut cut, mut whole] = [0x5a; 2].map(|byte| vec![[byte; 2]; m * n]);
                    let is_cut = run_in_blocks(&op, &engine, &bytes, &mut [cut.as_flattened_mut()]);
                    n_cut += usize::from(is_cut);
                    if is_cut {
                        op.run_in_single(&engine, &bytes, &mut [whole.as_flattened_mut()]);
                        assert!(cut == whole, "{op}");
                    }
                    assert_close(&op.into(), &special, 0.02);
                }
            }
        }
        assert!(n_cut >= 40, "{n_cut} products were cut");
    }

    #[test]
    fn other_products_are_whole() {
        let engine = Engine::best();
        let small = MatMul::contiguous(DType::F16, &[], [8, 8, 8]);
        let both = MatMul::contiguous(DType::F16, &[], [80, 80, 80]);
        let several = MatMul::contiguous(DType::F16, &[3], [100, 1, 300]);
        let long = MatMul::contiguous(DType::F16, &[], [2, 2, 3000]);
        let none = MatMul::contiguous(DType::F16, &[], [4000, 1, 0]);
        let single = MatMul::contiguous(DType::F32, &[], [1000, 1, 300]);
        for op in [small, both, several, long, none, single] {
            let inputs: Vec<Vec<u8>> = op.inputs().iter().map(|(dtype, n)| vec![0; dtype.size() * n]).collect();
            let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
            let mut out = vec![0; op.outputs()[0].1 * op.dtype.size()];
            assert!(!run_in_blocks(&op, &engine, &inputs, &mut [&mut out]), "{op}");
        }
    }
}
