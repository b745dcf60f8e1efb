//! Matrices with rows and columns exchanged, by tiles that a cache holds.
//!
//! Neither reading along columns nor writing along them uses more than one element of a cache line at a time; where lines
//! are a power of two apart, few of them fit a cache together. So a run of each of some rows is exchanged in registers into a
//! panel, from which long runs of the result are written. A result that no cache holds is written past them, a line of a
//! cache at a time, right from the registers, if nothing else has to be done with it.

use std::ops::Range;

use retape_runtime::DType;

use super::exchange::{BLOCK, exchange, has_registers};
use super::extents::{Checked, count, countable, near};
use super::micro::{share, with_bytes};
use super::number::with_bits;
use super::text::descriptor;
use super::tile::{TileCallback, TileShape};
use super::view::{CACHE_LINE, Plain, exactly, for_each_tile_between, only, prefetch, view, view_mut};

descriptor! {
    /// The transposes of matrices: the array `[batch[0], batch[1], cols, between[0], between[1], rows]`.
    ///
    /// Element `(row, col)` of a matrix is at `offset + col`, and `strides` further for each of its positions in the batch, in
    /// turn, and of its row.
    Transpose "transpose" {
        /// Any dtype.
        dtype: DType,
        /// The numbers of matrices that follow each other in the result, along two axes.
        batch: [usize; 2],
        /// The numbers of matrices whose rows take turns in the result, along two axes.
        between: [usize; 2],
        /// Rows of a matrix before.
        rows: usize,
        /// Columns of a matrix before.
        cols: usize,
        /// The first element that is read.
        offset: usize,
        /// Elements from matrix to matrix, those of the batch first, and from row to row; 0 where there is but one.
        strides: [usize; 5],
    }
}

/// Bytes of a row of the result that are written by one task; past the caches, where memory prefers long runs.
const RUN: usize = 256;
const STREAMED_RUN: usize = 512;

/// Bytes of a row that are asked for at a time: memory prefers long runs here, too.
const ASKED: usize = 512;

/// Columns of a panel: with a run of each, the nearest cache has room for it.
const COLUMNS: usize = 64;

/// The same of rows that take turns, of whose lines a cache has no room for more.
const FEW_COLUMNS: usize = 16;

/// Bytes of such a row at least: blocks of shorter ones have too few elements.
const LEAST_TURN: usize = 32;

/// Bytes between rows of the result, or a multiple of them, where a cache has no room for a line of each row of a panel.
const CROWDED: usize = 512;

/// Bytes from one line of a set of the nearest cache to the next, and the lines that a set has at least.
const WAY: usize = 4096;
const WAYS: usize = 8;

/// Rows between whose blocks the next columns are asked for.
const STRIP: usize = 8;

/// Columns of a task at most: a few thousand bytes of each row.
const MOST_COLUMNS: usize = 16 * COLUMNS;

/// Tasks that a matrix is cut into, if they have [`LEAST`] elements or more.
const TASKS: usize = 16;

/// Elements below which a task is not made smaller.
const LEAST: usize = 1 << 12;

/// Bytes of a result from which on it is written past the caches, which would read its lines first, and would not hold
/// them all until someone reads them.
const STREAMED: usize = if cfg!(test) { 1 << 14 } else { 1 << 23 };

/// Bytes of a row from which on its lines are read one after the other.
const LONG: usize = if cfg!(test) { 64 } else { 1 << 10 };

/// Rows of a large result up to which formulas run on blocks of it.
const FEW_LINES: usize = 512;

impl Transpose {
    /// The transposes of dense x `[batch, rows, cols]`.
    pub fn contiguous(dtype: DType, [batch, rows, cols]: [usize; 3]) -> Transpose {
        let strides = [0, if batch == 1 { 0 } else { rows.saturating_mul(cols) }, 0, 0, cols];
        Transpose { dtype, batch: [1, batch], between: [1, 1], rows, cols, offset: 0, strides }
    }

    fn check(&self) -> Checked {
        countable("the matrices", &[&self.extents()[..], &[self.cols]].concat())?;
        near("the last element", Some(self.reach()?))
    }

    /// The number of elements up to the last one that is read.
    fn reach(&self) -> Result<usize, String> {
        if self.len() == 0 {
            return Ok(0);
        }
        let steps =
            self.extents().into_iter().zip(&self.strides).map(|(extent, stride)| (extent - 1).checked_mul(*stride));
        let last = steps.fold(self.offset.checked_add(self.cols), |sum, step| sum?.checked_add(step?));
        last.ok_or_else(|| format!("strides {:?} reach more elements than can be counted", self.strides))
    }

    /// The extents of the axes with strides.
    fn extents(&self) -> [usize; 5] {
        let ([i, j], [k, l]) = (self.batch, self.between);
        [i, j, k, l, self.rows]
    }

    /// The number of matrices that follow each other in the result, and of those whose rows take turns.
    fn counts(&self) -> [usize; 2] {
        [self.batch, self.between].map(|counts| counts[0].saturating_mul(counts[1]))
    }

    fn len(&self) -> usize {
        let [i, j, k, l, rows] = self.extents();
        count(&[i, j, k, l, rows, self.cols])
    }

    /// The first element of a matrix, given its positions among those that follow each other and that take turns.
    fn start_of(&self, matrix: usize, turn: usize) -> usize {
        let (n, m) = (self.batch[1], self.between[1]);
        let positions = [matrix / n, matrix % n, turn / m, turn % m];
        let steps = positions.into_iter().zip(self.strides).map(|(position, stride)| position * stride);
        self.offset + steps.sum::<usize>()
    }

    /// The dtype and the number of elements of each input, which may have more.
    pub fn inputs(&self) -> Vec<(DType, usize)> {
        vec![(self.dtype, self.reach().unwrap_or(usize::MAX))]
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
        with_bits!(self.dtype, T => self.copy::<T>(inputs, only(outputs), None));
    }

    /// As [`run`](Transpose::run), and calls `done` for each finished block of the result.
    pub(super) fn run_with(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], done: TileCallback<'_>) {
        with_bits!(self.dtype, T => self.copy::<T>(inputs, only(outputs), Some(done)));
    }

    /// The blocks that [`run_with`](Transpose::run_with) finishes one by one; none where it would be slower than writing
    /// past the caches: where it goes from page to page of a large result.
    pub(super) fn tiles(&self) -> Option<TileShape> {
        let is_one = self.len() <= LEAST;
        let is_fast = !self.is_far() || self.cols <= FEW_LINES;
        is_fast.then_some(TileShape { width: self.counts()[1] * self.rows, has_whole_rows: false, is_one })
    }

    /// Whether the result is written past the caches.
    fn is_far(&self) -> bool {
        let size = self.dtype.size();
        self.len() * size >= STREAMED && (self.rows * size).is_multiple_of(CACHE_LINE)
    }

    fn copy<T: Plain>(&self, inputs: &[&[u8]], out: &mut [u8], done: Option<TileCallback<'_>>) {
        assert!(self.is_valid(), "{self}");
        let Transpose { rows, cols, strides: [.., pitch], .. } = *self;
        let [batch, between] = self.counts();
        let [x] = exactly(inputs);
        let x = view::<T>(x, x.len() / size_of::<T>());
        assert!(self.reach().is_ok_and(|reach| reach <= x.len()), "elements of {self}");
        let size = size_of::<T>();
        let is_crowded = rows * size > RUN && (between * rows * size).is_multiple_of(CROWDED);
        let is_far = self.is_far();
        let run = if is_far { STREAMED_RUN } else { RUN } / size;
        let tasks = TASKS.div_ceil((batch * between * rows.div_ceil(run)).max(1));
        let columns = cols.div_ceil(tasks).max(LEAST / run.min(rows.max(1)));
        let columns = columns.next_multiple_of(COLUMNS).min(MOST_COLUMNS);
        // Lines that turns write together stay in the nearest cache until they are whole.
        let has_turns = !is_far
            && between > 1
            && (LEAST_TURN..=RUN).contains(&(rows * size))
            && (between * rows * size).is_multiple_of(CROWDED);
        let block = [if has_turns { FEW_COLUMNS } else { columns }, run];
        let shape = [batch, cols, between, rows];
        for_each_tile_between(view_mut::<T>(out, self.len()), shape, block, self.len(), &|mut tile| {
            let matrix = self.start_of(tile.outer, tile.between);
            let from = SourceMatrix { x: &x[matrix + tile.columns.start * pitch + tile.rows.start..], pitch };
            let extent = [tile.columns.len(), tile.rows.len()];
            let first = tile.rows.start;
            let write = |row: usize, line: &[T]| {
                tile.row(first + row).copy_from_slice(line);
                if let Some(done) = done.filter(|_| (row + 1).is_multiple_of(COLUMNS) || row + 1 == extent[1]) {
                    done(tile.finished(first + row / COLUMNS * COLUMNS..first + row + 1, cols));
                }
            };
            if is_far && done.is_some() {
                from.by_far_panels(extent, run, write);
            } else if is_far {
                // Panels serve short rows, which are read in one piece, and columns that are no whole block of registers.
                let is_long = cols * size >= LONG && has_registers() && tile.has_whole_lines();
                let whole = if is_long { extent[1] / BLOCK * BLOCK } else { 0 };
                let rest = SourceMatrix { x: from.x.get(whole..).unwrap_or_default(), pitch };
                tile.stream(|to| {
                    from.by_lines([extent[0], whole], |at, x, pitch| to.exchange(at, x, pitch));
                    rest.by_far_panels([extent[0], extent[1] - whole], run, |row, line| {
                        to.write_row(whole + row, line)
                    });
                });
            } else if is_crowded {
                from.by_panels(extent, run, write);
            } else {
                let wide = COLUMNS.max(LEAST / tile.columns.len());
                for first in tile.rows.clone().step_by(wide) {
                    let x = &from.x[first - tile.rows.start..];
                    let rows = first..tile.rows.end.min(first + wide);
                    tile.exchange(rows.clone(), x, from.pitch);
                    if let Some(done) = done {
                        done(tile.finished(rows, cols));
                    }
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
            let (row, line) = (at % self.rows, at / self.rows);
            let (turn, line) = (line % self.counts()[1], line / self.counts()[1]);
            let (matrix, column) = (line / self.cols, line % self.cols);
            let from = self.start_of(matrix, turn) + row * self.strides[4] + column;
            out[at * size..(at + 1) * size].copy_from_slice(&x[from * size..(from + 1) * size]);
        }
    }
}

/// A matrix from one of its elements on.
struct SourceMatrix<'a, T> {
    x: &'a [T],
    /// Elements from row to row.
    pitch: usize,
}

impl<T: Plain> SourceMatrix<'_, T> {
    /// Calls `write` with each row of the result of `rows` by `cols`; there are `run` rows at most.
    fn by_panels(&self, [rows, cols]: [usize; 2], run: usize, mut write: impl FnMut(usize, &[T])) {
        with_bytes(COLUMNS * run * size_of::<T>(), |panel| {
            let panel = view_mut::<T>(panel, COLUMNS * run);
            for first in (0..cols).step_by(COLUMNS) {
                let n = COLUMNS.min(cols - first);
                exchange(&self.x[first..], self.pitch, [rows, n], panel, run);
                for (row, line) in panel.chunks_exact(run).take(n).enumerate() {
                    write(first + row, &line[..rows]);
                }
            }
        });
    }

    /// As [`by_panels`](SourceMatrix::by_panels), from memory and to it. While the panels of a group are made, strip by
    /// strip, the next group is asked for, and the panel before is written: neither waits for the other.
    fn by_far_panels(&self, [rows, cols]: [usize; 2], run: usize, mut write: impl FnMut(usize, &[T])) {
        with_bytes(2 * COLUMNS * run * size_of::<T>(), |panels| {
            let (mut panel, mut before) = view_mut::<T>(panels, 2 * COLUMNS * run).split_at_mut(COLUMNS * run);
            let n_strips = (rows / STRIP).max(1);
            // Two at most, as nobody asks for the first group of a tile.
            let columns = (ASKED / size_of::<T>()).clamp(COLUMNS, 2 * COLUMNS);
            let group = columns / COLUMNS;
            for first in (0..cols.next_multiple_of(COLUMNS)).step_by(COLUMNS) {
                let n = COLUMNS.min(cols - first);
                for strip in 0..n_strips {
                    let start = strip * STRIP;
                    let strip_rows = if strip + 1 == n_strips { start..rows } else { start..start + STRIP };
                    let asked = share(rows, 1, group * n_strips, first / COLUMNS % group * n_strips + strip);
                    let next = (first / columns + 1) * columns;
                    if next < cols {
                        self.ask_for(asked, next, columns);
                    }
                    let x = &self.x[start * self.pitch + first..];
                    exchange(x, self.pitch, [strip_rows.len(), n], &mut panel[start..], run);
                    if first > 0 {
                        for row in share(COLUMNS, 1, n_strips, strip) {
                            write(first - COLUMNS + row, &before[row * run..][..rows]);
                        }
                    }
                }
                std::mem::swap(&mut panel, &mut before);
            }
            let last = cols.saturating_sub(1) / COLUMNS * COLUMNS;
            (last..cols).for_each(|row| write(row, &before[(row - last) * run..][..rows]));
        });
    }

    /// Calls `exchange` with the rows and the columns of the result that each block has, with the elements of the matrix
    /// from the block's first one on, and with the distance of its rows. A block is a cache line wide and high, at most;
    /// that [`COLUMNS`] after it is asked for meanwhile.
    fn by_lines(&self, [rows, cols]: [usize; 2], mut exchange: impl FnMut([Range<usize>; 2], &[T], usize)) {
        let line = CACHE_LINE / size_of::<T>();
        let part = |first: usize, len: usize| first..len.min(first + line);
        // Eight columns are exchanged at a time, so that a block of small elements reads its lines more than twice: from a
        // copy, where the nearest cache has no room for them together.
        let is_crowded = line > 16 && (self.pitch * size_of::<T>()).is_multiple_of(WAY / (line / WAYS));
        let pitch = COLUMNS + line;
        with_bytes(line * pitch * size_of::<T>(), |copy| {
            let copy = view_mut::<T>(copy, line * pitch);
            for group in (0..cols).step_by(COLUMNS) {
                let of_group = group..cols.min(group + COLUMNS);
                for of_line in (0..rows).step_by(line).map(|row| part(row, rows)) {
                    if is_crowded {
                        for (row, to) in of_line.clone().zip(copy.chunks_exact_mut(pitch)) {
                            to[..of_group.len()].copy_from_slice(&self.x[row * self.pitch..][of_group.clone()]);
                        }
                    }
                    for column in of_group.clone().step_by(line) {
                        if column + COLUMNS < cols {
                            self.ask_for(of_line.clone(), column + COLUMNS, line);
                        }
                        let block = [part(column, of_group.end), of_line.clone()];
                        match is_crowded {
                            true => exchange(block, &copy[column - group..], pitch),
                            false => exchange(block, &self.x[of_line.start * self.pitch + column..], self.pitch),
                        }
                    }
                }
            }
        });
    }

    /// Asks for some columns from `first` on.
    fn ask_for(&self, rows: Range<usize>, first: usize, columns: usize) {
        for row in rows {
            let at = row * self.pitch + first;
            (0..columns).step_by(CACHE_LINE / size_of::<T>()).for_each(|column| prefetch(self.x, at + column));
        }
    }
}

#[cfg(test)]
mod tests {
    use retape_runtime::Buffer;

    use super::*;
    use crate::library::testing::{Draw, assert_twins, drawn};

    #[test]
    fn kernels_agree_with_their_twins() {
        let mut draw = Draw::new(23);
        for dtype in DType::ALL {
            for _ in 0..40 {
                let batch = [0, 1, 1, 3][draw.below(4)];
                let [rows, cols] = [(); 2].map(|()| [0, 1, 7, 16, 31, 64, 100][draw.below(7)]);
                assert_twins(&Transpose::contiguous(dtype, [batch, rows, cols]).into(), &mut draw);
            }
        }
        for _ in 0..200 {
            // Parts of matrices, with rows of one matrix for all, of several in turn, and over each other.
            let [batch, between] = [(); 2].map(|()| [(); 2].map(|()| draw.below(3) + 1));
            let [rows, cols] = [(); 2].map(|()| [1, 8, 30, 64, 100][draw.below(5)]);
            let pitch = cols + draw.below(20) - draw.below(cols.min(4));
            let [far, near] = [(); 2].map(|()| [draw.below(2) * rows * pitch, draw.below(2 * cols)]);
            let strides = [far[0], near[0], far[1], near[1], pitch];
            let (dtype, offset) = (DType::ALL[draw.below(DType::ALL.len())], draw.below(3) * 7);
            assert_twins(&Transpose { dtype, batch, between, rows, cols, offset, strides }.into(), &mut draw);
        }
        for dtype in [DType::F32, DType::F64, DType::F16, DType::U8] {
            // Rows that take turns by panels, and past the caches.
            let turns = Transpose {
                between: [1, 3],
                strides: [0, 0, 0, 40, 120],
                ..Transpose::contiguous(dtype, [1, 256, 40])
            };
            assert_twins(&turns.into(), &mut draw);
            let turns = Transpose {
                between: [1, 2],
                strides: [0, 0, 0, 70, 140],
                ..Transpose::contiguous(dtype, [1, 1088, 70])
            };
            assert_twins(&turns.into(), &mut draw);
            // Rows that take turns in lines that crowd a cache, a few columns at a time.
            for (turns, rows, cols) in [(64, 10, 20), (32, 16, 50), (16, 40, 33), (8, 64, 16)] {
                let turns = Transpose {
                    between: [1, turns],
                    strides: [0, 0, 0, cols, turns * cols],
                    ..Transpose::contiguous(dtype, [2, rows, cols])
                };
                assert_twins(&turns.into(), &mut draw);
            }
            // Of one run and of several, with rest and without, past the caches and not.
            for [rows, cols] in [
                [1100, 70],
                [70, 1100],
                [5000, 17],
                [1024, 129],
                [16, 2100],
                [1600, 8],
                [128, 2048],
                [2048, 13],
                [3072, 3],
            ] {
                assert_twins(&Transpose::contiguous(dtype, [2, rows, cols]).into(), &mut draw);
            }
            // By panels that stay in a cache.
            for (lines, cols) in [(1, 7), (1, 20), (2, 9)] {
                let rows = lines * CROWDED / dtype.size();
                assert_twins(&Transpose::contiguous(dtype, [1, rows, cols]).into(), &mut draw);
            }
        }
    }

    /// A large result that begins inside a cache line has no whole lines to write past the caches.
    #[test]
    fn results_at_any_place_are_whole() {
        let transpose = Transpose::contiguous(DType::F32, [1, 1024, 129]);
        let (x, n) = (drawn(&mut Draw::new(29), DType::F32, 1024 * 129, true), 4 * 1024 * 129);
        let [mut found, mut expected] = [(); 2].map(|()| Buffer::zeroed(n + 16).expect("memory"));
        transpose.run(&[x.bytes()], &mut [&mut found.bytes_mut()[16..]]);
        transpose.reference(&[x.bytes()], &mut [&mut expected.bytes_mut()[16..]]);
        assert_eq!(found.bytes(), expected.bytes());
    }
}
