//! Library kernels on some rows of their result.
//!
//! Guarantees that the rows of a part have the bits that the whole kernel computes.

use std::ops::Range;

use retape_runtime::DType;
use smallvec::SmallVec;

use super::dense::DenseKernel;
use super::extents::count;
use super::micro::{Engine, is_split};
use super::tile::{Tile, TileCallback};
use super::{Join, Library, MatMul, MatrixLayout};

/// Rows of a part that are computed well; the last part may have fewer.
const LEAST_ROWS: usize = 8;

/// Multiplications of a product at most: those of more take so long that a meeting of threads weighs little, and they
/// are better divided by their columns as well.
const MOST_WORK: usize = 1 << 22;

/// Inputs of a join at most, and elements: more are copied by more threads.
const MOST_JOINED: usize = 16;
const MOST_COPIED: usize = 1 << 16;

/// Bytes of a right operand that the second-level cache of each core keeps from one product to the next.
const SMALL: usize = 256 << 10;

/// Some rows of a library kernel's result: a kernel of its own on parts of the operands.
#[derive(Clone, Debug)]
pub(crate) struct RowPart {
    kernel: Library,
    /// The rows, counted in the result of the whole kernel.
    rows: Range<usize>,
    /// The bytes of each input, and of the result.
    inputs: SmallVec<[Range<usize>; 2]>,
    output: Range<usize>,
}

impl RowPart {
    fn new(kernel: Library, rows: Range<usize>, inputs: impl Iterator<Item = Range<usize>>, row_len: usize) -> RowPart {
        let (dtype, _) = kernel.outputs()[0];
        let bytes = |range: Range<usize>| range.start * dtype.size()..range.end * dtype.size();
        let output = bytes(rows.start * row_len..rows.end * row_len);
        RowPart { kernel, rows, inputs: inputs.map(bytes).collect(), output }
    }

    /// The bytes of each input.
    pub(crate) fn inputs(&self) -> &[Range<usize>] {
        &self.inputs
    }

    /// The bytes of the result.
    pub(crate) fn output(&self) -> Range<usize> {
        self.output.clone()
    }

    /// Computes the rows on this thread, from the bytes of the operands. Of a kernel with [`tiles`](Library::tiles) calls
    /// `done` for each finished block, whose rows are counted in the whole result.
    pub(crate) fn run(&self, inputs: &[&[u8]], output: &mut [u8], done: TileCallback<'_>) {
        let first = self.rows.start;
        let shifted = |tile: Tile| done(Tile { rows: first + tile.rows.start..first + tile.rows.end, ..tile });
        if let Library::MatMul(product) = &self.kernel {
            product.run_on(&Engine::best().alone(), inputs, &mut [output], &shifted);
        } else {
            self.kernel.run(inputs, &mut [output]);
        }
    }
}

impl Library {
    /// The number of rows that can be computed one by one, each from a row of some operands and from others that all rows
    /// read, if threads would have no more of the whole to share: small products of a few rows, and joins.
    pub(crate) fn n_rows(&self) -> Option<usize> {
        if let Library::MatMul(product) = self {
            return product.has_row_parts().then(|| product.n_rows());
        }
        let Library::Join(join) = self else { return None };
        let is_small = join.lens.len() <= MOST_JOINED && count(&[join.outer, join.line()]) <= MOST_COPIED;
        is_small.then_some(join.outer)
    }

    /// The kernel on some of its rows, if it has rows.
    pub(crate) fn of_rows(&self, rows: Range<usize>) -> Option<RowPart> {
        self.n_rows().filter(|&n| rows.end <= n)?;
        if let Library::MatMul(product) = self {
            return Some(product.of_rows(rows));
        }
        let Library::Join(join) = self else { return None };
        Some(join.of_rows(rows))
    }
}

impl MatMul {
    fn has_row_parts(&self) -> bool {
        let (m, n, k) = (self.n_rows(), self.n, self.k);
        let is_plain = matches!(self.dtype, DType::F32 | DType::F64) && self.is_one_matrix() && n > 0 && k > 0;
        // Columns that lie apart would be packed by each part.
        let is_in_place = self.a.col_stride == 1 && self.b.col_stride == 1 && self.a.row_stride >= k;
        let is_small = k.saturating_mul(n).saturating_mul(self.dtype.size()) <= SMALL;
        let is_short = m >= 2 * LEAST_ROWS && count(&[m, n, k]) <= MOST_WORK;
        is_plain && is_in_place && is_small && is_short && !is_split(1, n, k)
    }

    /// Some rows of a product of one matrix.
    fn of_rows(&self, rows: Range<usize>) -> RowPart {
        let MatMul { dtype, n, k, ref a, ref b, .. } = *self;
        let (first, m) = (a.offset + rows.start * a.row_stride, rows.len());
        let layout = |of: &MatrixLayout| MatrixLayout { offset: 0, batch_strides: SmallVec::new(), ..*of };
        let kernel = MatMul { dtype, batch: SmallVec::new(), m, n, k, a: layout(a), b: layout(b) };
        let [n_a, n_b] = kernel.lens();
        let inputs = [first..first + n_a, b.offset..b.offset + n_b];
        RowPart::new(kernel.into(), rows, inputs.into_iter(), n)
    }
}

impl Join {
    /// Some lines of a join.
    fn of_rows(&self, rows: Range<usize>) -> RowPart {
        let kernel = Join { outer: rows.len(), offsets: self.offsets.iter().map(|_| 0).collect(), ..self.clone() };
        let starts = self.parts().map(|part| part.offset + rows.start * part.pitch);
        // An input of no elements may end before its first run would begin.
        let elements = |(start, (_, len)): (usize, (DType, usize))| if len == 0 { 0..0 } else { start..start + len };
        let inputs: Vec<_> = starts.zip(kernel.inputs()).map(elements).collect();
        let line = self.line();
        RowPart::new(kernel.into(), rows, inputs.into_iter(), line)
    }
}

#[cfg(test)]
mod tests {
    use retape_runtime::{Buffer, Shape};

    use super::*;
    use crate::library::testing::{Draw, drawn};

    /// Parts of a kernel's rows have the bits of the whole.
    fn assert_parts(kernel: &Library, cuts: &[usize], draw: &mut Draw) {
        let inputs: Vec<_> = kernel.inputs().iter().map(|&(dtype, len)| drawn(draw, dtype, len, false)).collect();
        let inputs: Vec<&[u8]> = inputs.iter().map(|buffer| buffer.bytes()).collect();
        let (dtype, len) = kernel.outputs()[0];
        let mut whole = Buffer::zeroed(len * dtype.size()).unwrap();
        kernel.run(&inputs, &mut [whole.bytes_mut()]);
        let mut parts = Buffer::zeroed(len * dtype.size()).unwrap();
        for rows in cuts.windows(2) {
            let part = kernel.of_rows(rows[0]..rows[1]).unwrap_or_else(|| panic!("{kernel} has rows"));
            let own: Vec<&[u8]> = inputs.iter().zip(&part.inputs).map(|(x, bytes)| &x[bytes.clone()]).collect();
            part.run(&own, &mut parts.bytes_mut()[part.output.clone()], &|tile| {
                assert!(rows[0] <= tile.rows.start && tile.rows.end <= rows[1], "{kernel} {tile:?}");
            });
        }
        assert!(whole.bytes() == parts.bytes(), "{kernel}");
    }

    #[test]
    fn rows_of_products_have_the_bits_of_the_whole() {
        let mut draw = Draw::new(31);
        for dtype in [DType::F32, DType::F64] {
            for [m, n, k] in
                [[32, 256, 128], [33, 7, 300], [40, 1, 64], [64, 100, 17], [192, 3, 5], [48, 16, 1000], [24, 150, 200]]
            {
                let a = MatrixLayout { offset: 3, row_stride: k + 5, ..MatrixLayout::contiguous(&[], m, k) };
                let b = MatrixLayout { offset: 2, row_stride: n + 3, ..MatrixLayout::contiguous(&[], k, n) };
                let kernel = MatMul { a, b, ..MatMul::contiguous(dtype, &[], [m, n, k]) };
                for cuts in [vec![0, m / 2, m], vec![0, 16, 17, m]] {
                    assert_parts(&kernel.clone().into(), &cuts, &mut draw);
                }
            }
        }
    }

    #[test]
    fn lines_of_joins_have_the_bits_of_the_whole() {
        let mut draw = Draw::new(32);
        for dtype in DType::ALL {
            let mut join = Join::contiguous(dtype, 9, [2, 0, 5].into_iter().collect(), 3);
            assert_parts(&join.clone().into(), &[0, 1, 7, 9], &mut draw);
            join.offsets = [4, 0, 1].into_iter().collect();
            join.pitches = [0, 2, 20].into_iter().collect();
            assert_parts(&join.into(), &[0, 4, 9], &mut draw);
        }
    }

    /// Columns that lie apart, long sums in parts, and large matrices are for all threads.
    #[test]
    fn other_products_have_no_rows() {
        let product = |extents| MatMul::contiguous(DType::F32, &[], extents);
        assert_eq!(Library::from(product([32, 512, 128])).n_rows(), Some(32));
        for extents in [[15, 512, 128], [65, 512, 128], [32, 512, 129], [32, 8, 4096]] {
            assert_eq!(Library::from(product(extents)).n_rows(), None, "{extents:?}");
        }
        let mut turned = product([32, 16, 16]);
        turned.b = turned.b.transposed();
        assert_eq!(Library::from(turned).n_rows(), None);
        let mut batch = MatMul::contiguous(DType::F32, &[2], [32, 16, 16]);
        assert_eq!(Library::from(batch.clone()).n_rows(), None, "each matrix has its own right operand");
        batch.b.batch_strides[0] = 0;
        assert_eq!(Library::from(batch.clone()).n_rows(), Some(64), "one tall matrix");
        assert_parts(&batch.into(), &[0, 20, 40, 64], &mut Draw::new(33));
        let joins = [(32, 64), (32, 4096)]
            .map(|(outer, len)| Library::from(Join::contiguous(DType::F32, outer, Shape::new(&[len]), 1)).n_rows());
        assert_eq!(joins, [Some(32), None]);
    }
}
