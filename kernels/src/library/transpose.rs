//! Matrices with rows and columns exchanged, by square tiles that a cache holds.
//!
//! Neither reading along columns nor writing along them uses more than one element of a cache line at a time, and where
//! lines are a power of two apart, few of them fit a cache together. A tile is read by rows and written by rows.

use std::array;

use retape_runtime::DType;

use super::extents::{Checked, count, countable};
use super::number::with_bits;
use super::text::descriptor;
use super::view::{CACHE_LINE, Plain, TileView, exactly, for_each_tile, only, view, view_mut};

descriptor! {
    /// The transposes of matrices: of x `[batch, rows, cols]` the array `[batch, cols, rows]`.
    Transpose "transpose" {
        /// Any dtype.
        dtype: DType,
        /// The number of matrices.
        batch: usize,
        /// Rows of a matrix before.
        rows: usize,
        /// Columns of a matrix before.
        cols: usize,
    }
}

/// Rows and columns of a tile: a cache line of the widest common elements.
const TILE: usize = 16;

/// Rows and columns of a part of a tile that a few registers hold, and a row of which is a vector on every processor.
const PART: usize = 4;

/// Columns that a task takes: many cache lines of each row, so that a page of memory is seldom looked up for one.
const COLUMNS: usize = 16 * TILE;

/// Bytes of a result from which on it is written past the caches, which would read its lines first, and would not hold
/// them all until someone reads them.
const STREAMED: usize = if cfg!(test) { 1 << 12 } else { 1 << 23 };

impl Transpose {
    fn check(&self) -> Checked {
        countable("the matrices", &[self.batch, self.rows, self.cols])
    }

    fn len(&self) -> usize {
        count(&[self.batch, self.rows, self.cols])
    }

    /// The dtype and the number of elements of each input.
    pub fn inputs(&self) -> Vec<(DType, usize)> {
        vec![(self.dtype, self.len())]
    }

    /// The dtype and the number of elements of each output.
    pub fn outputs(&self) -> Vec<(DType, usize)> {
        vec![(self.dtype, self.len())]
    }

    /// Computes the outputs.
    ///
    /// # Panics
    /// If the descriptor is not valid or the buffers are not as `inputs` and `outputs` say.
    pub fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        with_bits!(self.dtype, T => self.copy::<T>(inputs, only(outputs)));
    }

    fn copy<T: Plain>(&self, inputs: &[&[u8]], out: &mut [u8]) {
        assert!(self.is_valid(), "{self}");
        let Transpose { batch, rows, cols, .. } = *self;
        let [x] = exactly(inputs);
        let x = view::<T>(x, self.len());
        // Few tall matrices are cut across as well, for there may be more threads than runs of columns.
        let block = [COLUMNS, rows.div_ceil(8).next_multiple_of(TILE).max(512)];
        let is_streamed = self.len() * size_of::<T>() >= STREAMED && (TILE * size_of::<T>()).is_multiple_of(CACHE_LINE);
        for_each_tile(view_mut::<T>(out, self.len()), [batch, cols, rows], block, self.len(), &|mut tile| {
            let x = &x[tile.outer * rows * cols..][..rows * cols];
            if is_streamed && tile.columns.len().is_multiple_of(TILE) && tile.has_whole_lines() {
                tile.stream::<TILE>(|row, column| transposed(x, cols, column, row));
                return;
            }
            for row in tile.columns.clone().step_by(TILE) {
                for column in tile.rows.clone().step_by(TILE) {
                    copy_tile(x, cols, &mut tile, row, column);
                }
            }
        });
    }

    /// Computes the outputs in the naive way, element by element.
    ///
    /// # Panics
    /// As [`run`](Transpose::run).
    pub fn reference(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert!(self.is_valid(), "{self}");
        let (out, size, [x]) = (only(outputs), self.dtype.size(), exactly(inputs));
        for at in 0..self.len() {
            let (matrix, element) = (at / (self.rows * self.cols), at % (self.rows * self.cols));
            let (column, row) = (element / self.rows, element % self.rows);
            let from = (matrix * self.rows + row) * self.cols + column;
            out[at * size..(at + 1) * size].copy_from_slice(&x[from * size..(from + 1) * size]);
        }
    }
}

/// Copies the tile of `x`, a matrix with rows of `cols`, whose first element is at `row` and `column`; `to` ends it
/// where it reaches over the end.
fn copy_tile<T: Plain>(x: &[T], cols: usize, to: &mut TileView<'_, T>, row: usize, column: usize) {
    let n_rows = TILE.min(to.columns.end - row);
    let n_columns = TILE.min(to.rows.end - column);
    let at = row - to.columns.start;
    if (n_rows, n_columns) != (TILE, TILE) {
        for c in 0..n_columns {
            let line = &mut to.row(column + c)[at..at + n_rows];
            line.iter_mut().zip(0..).for_each(|(out, r)| *out = x[(row + r) * cols + column + c]);
        }
        return;
    }
    // In a cache, moves of single elements are faster than the shuffles of `transposed`.
    let lines: [[T; TILE]; TILE] = array::from_fn(|r| {
        let line = &x[(row + r) * cols + column..][..TILE];
        array::from_fn(|c| line[c])
    });
    for c in 0..TILE {
        let line = &mut to.row(column + c)[at..at + TILE];
        line.iter_mut().zip(&lines).for_each(|(out, line)| *out = line[c]);
    }
}

/// The transposed tile of `x`, a matrix with rows of `cols`, whose first element is at `row` and `column`; columns beyond
/// the last one repeat it.
#[inline(always)]
fn transposed<T: Plain>(x: &[T], cols: usize, row: usize, column: usize) -> [[T; TILE]; TILE] {
    let last = cols - column - 1;
    if last + 1 < TILE {
        return array::from_fn(|c| array::from_fn(|r| x[(row + r) * cols + column + c.min(last)]));
    }
    let mut lines = [[T::from_f64(0.0); TILE]; TILE];
    for r in (0..TILE).step_by(PART) {
        for c in (0..TILE).step_by(PART) {
            let part: [[T; PART]; PART] = array::from_fn(|at| {
                let line = &x[(row + r + at) * cols + column + c..][..PART];
                array::from_fn(|at| line[at])
            });
            let part = exchanged::<T, 2>(exchanged::<T, 1>(part));
            for (line, part) in lines[c..c + PART].iter_mut().zip(&part) {
                line[r..r + PART].copy_from_slice(part);
            }
        }
    }
    lines
}

/// Of each square of `2 RUN` by `2 RUN` elements, the upper right quarter exchanged for the lower left one. With 1 and 2
/// one after the other a part is transposed (Eklundh, 1972), by shuffles of its rows as vectors.
#[inline(always)]
fn exchanged<T: Plain, const RUN: usize>(part: [[T; PART]; PART]) -> [[T; PART]; PART] {
    array::from_fn(|r| {
        let (upper, lower) = (&part[r & !RUN], &part[r | RUN]);
        let low = if r & RUN == 0 { 0 } else { RUN };
        array::from_fn(|c| if c & RUN == 0 { upper[c + low] } else { lower[c - RUN + low] })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::testing::{Draw, assert_twins};

    #[test]
    fn kernels_agree_with_their_twins() {
        let mut draw = Draw::new(23);
        for dtype in DType::ALL {
            for _ in 0..40 {
                let batch = [0, 1, 1, 3][draw.below(4)];
                let [rows, cols] = [(); 2].map(|()| [0, 1, 7, 16, 31, 64, 100][draw.below(7)]);
                assert_twins(&Transpose { dtype, batch, rows, cols }.into(), &mut draw);
            }
        }
        for [rows, cols] in [[1100, 70], [70, 1100], [5000, 17]] {
            assert_twins(&Transpose { dtype: DType::F32, batch: 2, rows, cols }.into(), &mut draw);
        }
    }
}
