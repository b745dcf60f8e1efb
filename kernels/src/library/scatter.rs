//! Scatter-add along an axis: the transpose of `take` and of `take_along_axis`.
//!
//! Updates of one destination are added one after another in the order of their indices, so that the bits are fixed;
//! tiles divide the positions before, on and after the axis, never the indices.

use std::ops::Range;

use retape_runtime::{DType, n_threads};

use super::extents::{Checked, count, countable};
use super::number::{Number, is_number, with_number};
use super::text::descriptor;
use super::view::{
    Plain, TileView, exactly, for_each_chunk, for_each_tile, only, tile_columns, vectorized, view, view_mut,
};
use crate::ensure::ensure;

descriptor! {
    /// From base `[outer, len, inner]`, indices and updates `[outer, n_indices, inner]` to base plus each update at
    /// its index. Indices are `[n_indices]`, or shaped as updates if `along`. Negative indices count from the end;
    /// those still out of range are dropped. Integers wrap. A base of zeros is no input.
    ScatterAdd "scatter_add" {
        /// The dtype of base and updates: any but `bool` and the 16-bit floats.
        dtype: DType,
        /// `i32`, `i64` or `u32`.
        index_dtype: DType,
        /// The number of positions before the axis.
        outer: usize,
        /// The extent of the axis in base.
        len: usize,
        /// The number of positions after the axis.
        inner: usize,
        /// The extent of the axis in updates.
        n_indices: usize,
        /// Whether each update has an index of its own.
        along: bool,
        /// Whether base is zeros.
        from_zeros: bool,
    }
}

/// Indices that are sorted out at a time.
const CHUNK: usize = if cfg!(test) { 16 } else { 1024 };

/// Columns of a tile whose rows are added without a loop: a cache line of `f32`.
const RUN: usize = 16;

/// Elements or updates of a task of short lines.
const LINES: usize = if cfg!(test) { 20 } else { 1 << 13 };

impl ScatterAdd {
    fn check(&self) -> Checked {
        ensure!(is_number(self.dtype) && self.dtype != DType::Bool, "{} is not added up", self.dtype);
        let indexes = matches!(self.index_dtype, DType::I32 | DType::I64 | DType::U32);
        ensure!(indexes, "{} is no dtype of indices", self.index_dtype);
        countable("the base", &[self.outer, self.len, self.inner])?;
        countable("the updates", &[self.outer, self.n_indices, self.inner])
    }

    fn n_base(&self) -> usize {
        count(&[self.outer, self.len, self.inner])
    }

    fn n_updates(&self) -> usize {
        count(&[self.outer, self.n_indices, self.inner])
    }

    fn n_positions(&self) -> usize {
        if self.along { self.n_updates() } else { self.n_indices }
    }

    /// One addition for each element of the updates.
    pub(super) fn flops(&self) -> u64 {
        self.n_updates() as u64
    }

    /// The dtype and the number of elements of each input: base unless that is zeros, indices, updates.
    pub fn inputs(&self) -> Vec<(DType, usize)> {
        let base = (!self.from_zeros).then_some((self.dtype, self.n_base()));
        let rest = [(self.index_dtype, self.n_positions()), (self.dtype, self.n_updates())];
        base.into_iter().chain(rest).collect()
    }

    /// The base, indices and updates among the inputs.
    fn split<'x>(&self, inputs: &[&'x [u8]]) -> (Option<&'x [u8]>, [&'x [u8]; 2]) {
        if self.from_zeros {
            (None, exactly(inputs))
        } else {
            let [base, indices, updates] = exactly(inputs);
            (Some(base), [indices, updates])
        }
    }

    /// The dtype and the number of elements of each output.
    pub fn outputs(&self) -> Vec<(DType, usize)> {
        vec![(self.dtype, self.n_base())]
    }

    /// Computes the outputs.
    ///
    /// # Panics
    /// If the descriptor is not valid or the buffers are not as `inputs` and `outputs` say.
    pub fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.with_indices(inputs, outputs, false);
    }

    /// Computes the outputs in the naive way: each element gathers its updates.
    ///
    /// # Panics
    /// As [`run`](ScatterAdd::run).
    pub fn reference(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.with_indices(inputs, outputs, true);
    }

    fn with_indices(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], naive: bool) {
        assert!(self.is_valid(), "{self}");
        let (_, [indices, _]) = self.split(inputs);
        let n = self.n_positions();
        match self.index_dtype {
            DType::I32 => self.with_elements(inputs, view::<i32>(indices, n), outputs, naive),
            DType::I64 => self.with_elements(inputs, view::<i64>(indices, n), outputs, naive),
            DType::U32 => self.with_elements(inputs, view::<u32>(indices, n), outputs, naive),
            other @ (DType::F32 | DType::F64 | DType::F16 | DType::Bf16 | DType::U8 | DType::Bool) => {
                unreachable!("{other} is no dtype of indices")
            }
        }
    }

    fn with_elements<I: Into<i64> + Copy + Sync>(
        &self,
        inputs: &[&[u8]],
        indices: &[I],
        outputs: &mut [&mut [u8]],
        naive: bool,
    ) {
        let (base, [_, updates]) = self.split(inputs);
        let out = only(outputs);
        with_number!(self.dtype, T => {
            let base = base.map(|base| view::<T>(base, self.n_base()));
            let updates = view::<T>(updates, self.n_updates());
            let out = view_mut::<T>(out, self.n_base());
            match naive {
                false => self.scatter(base, indices, updates, out),
                true => self.gather(base, indices, updates, out),
            }
        });
    }

    /// The position along the axis that an index means; it is in no range of rows if it means none.
    #[inline(always)]
    fn position(&self, index: impl Into<i64>) -> usize {
        let index = index.into();
        usize::try_from(if index < 0 { index + self.len as i64 } else { index }).unwrap_or(usize::MAX)
    }

    fn scatter<T: Number + Plain, I: Into<i64> + Copy + Sync>(
        &self,
        base: Option<&[T]>,
        indices: &[I],
        updates: &[T],
        out: &mut [T],
    ) {
        let extents = [self.outer, self.len, self.inner];
        if self.along && self.inner == 1 && self.tile()[0] == self.len && self.len > 0 {
            return self.scatter_lines(base, indices, updates, out);
        }
        for_each_tile(out, extents, self.tile(), self.n_base() + self.n_updates(), &|mut tile| {
            let (o, columns) = (tile.outer, tile.columns.clone());
            let rows = o * self.len + tile.rows.start..o * self.len + tile.rows.end;
            if let Some(tile) = tile.contiguous() {
                match base {
                    Some(base) => tile.copy_from_slice(&base[rows.start * self.inner..rows.end * self.inner]),
                    None => tile.fill(T::default()),
                }
            } else {
                for (row, base_row) in tile.rows.clone().zip(rows) {
                    match base {
                        Some(base) => tile.row(row).copy_from_slice(line(base, base_row, self.inner, &columns)),
                        None => tile.row(row).fill(T::default()),
                    }
                }
            }
            vectorized(
                #[inline(always)]
                || self.add(&mut tile, indices, updates),
            );
        });
    }

    /// Lines, one after the other, each with indices of its own.
    fn scatter_lines<T: Number + Plain, I: Into<i64> + Copy + Sync>(
        &self,
        base: Option<&[T]>,
        indices: &[I],
        updates: &[T],
        out: &mut [T],
    ) {
        let n_lines = LINES.div_ceil(self.len.max(self.n_indices));
        for_each_chunk(out, n_lines * self.len, self.n_base() + self.n_updates(), &|i, out| {
            match base {
                Some(base) => out.copy_from_slice(&base[i * n_lines * self.len..][..out.len()]),
                None => out.fill(T::default()),
            }
            let updates = &updates[i * n_lines * self.n_indices..];
            let mut pairs = indices[i * n_lines * self.n_indices..].iter().zip(updates);
            for line in out.chunks_exact_mut(self.len) {
                for (index, update) in pairs.by_ref().take(self.n_indices) {
                    if let Some(x) = line.get_mut(self.position(*index)) {
                        *x = x.plus(*update);
                    }
                }
            }
        });
    }

    /// Rows and columns of a tile. Tiles divide what follows the axis where that is long, and read each update once. Where
    /// it is not, tiles divide the axis, and each looks at all indices, unless they are many and a look takes as long as an
    /// addition: where rows are very short, or each update has an index.
    fn tile(&self) -> [usize; 2] {
        /// Tiles at least.
        const TILES: usize = 8;
        /// Columns of a tile at least, where there are others.
        const COLUMNS: usize = 256;
        /// The same if each update has an index.
        const COLUMNS_ALONG: usize = 32;
        /// Rows of a tile at least: a small base is one.
        const ROWS: usize = if cfg!(test) { 2 } else { 64 };
        let are_many = self.n_indices >= self.len;
        let columns = tile_columns(self.outer, self.inner).max(if self.along { COLUMNS_ALONG } else { 1 });
        let n_tiles = count(&[self.outer, self.inner.div_ceil(columns)]);
        if self.along && are_many || columns >= COLUMNS || n_tiles >= TILES && self.inner <= columns {
            return [self.len, columns];
        }
        let columns = self.inner.clamp(1, 2 * COLUMNS);
        let n_tiles = count(&[self.outer, self.inner.div_ceil(columns)]).max(1);
        let down = match self.inner {
            1..=8 if are_many => 1,
            ..16 => 2,
            // Threads look at the indices side by side, and no bit depends on the tiles.
            16..64 => n_threads().clamp(2, TILES),
            _ => TILES,
        };
        let down = TILES.div_ceil(n_tiles).min(down);
        [self.len.div_ceil(down).max(ROWS), columns]
    }

    /// Adds the updates of a tile's rows and columns.
    #[inline(always)]
    fn add<T: Number, I: Into<i64> + Copy>(&self, tile: &mut TileView<'_, T>, indices: &[I], updates: &[T]) {
        let (first, columns, rows) = (tile.outer * self.n_indices, tile.columns.clone(), tile.rows.clone());
        if self.along {
            for k in first..first + self.n_indices {
                let (indices, updates) =
                    (line(indices, k, self.inner, &columns), line(updates, k, self.inner, &columns));
                for (column, (index, update)) in indices.iter().zip(updates).enumerate() {
                    let row = self.position(*index);
                    if rows.contains(&row) {
                        let out = &mut tile.row(row)[column];
                        *out = out.plus(*update);
                    }
                }
            }
            return;
        }
        if rows.len() == self.len {
            // A loop for each of these rows would take longer than its additions.
            if let Some(rows) = tile.contiguous() {
                let updates = &updates[first * self.inner..][..self.n_indices * self.inner];
                match self.inner {
                    1 => return self.add_short_rows::<T, I, 1>(rows, indices, updates),
                    2 => return self.add_short_rows::<T, I, 2>(rows, indices, updates),
                    3 => return self.add_short_rows::<T, I, 3>(rows, indices, updates),
                    4 => return self.add_short_rows::<T, I, 4>(rows, indices, updates),
                    5 => return self.add_short_rows::<T, I, 5>(rows, indices, updates),
                    6 => return self.add_short_rows::<T, I, 6>(rows, indices, updates),
                    7 => return self.add_short_rows::<T, I, 7>(rows, indices, updates),
                    8 => return self.add_short_rows::<T, I, 8>(rows, indices, updates),
                    _ => {}
                }
            }
        }
        // Indices of other tiles are sorted out without a jump, which no processor would foresee.
        let (mut positions, mut own) = ([0; CHUNK], [0_u16; CHUNK]);
        for (chunk, first) in indices.chunks(CHUNK).zip((first..).step_by(CHUNK)) {
            for (position, index) in positions.iter_mut().zip(chunk) {
                *position = self.position(*index).wrapping_sub(rows.start);
            }
            let mut n_own = 0;
            for (k, position) in (0..).zip(&positions[..chunk.len()]) {
                own[n_own] = k;
                n_own += usize::from(*position < rows.len());
            }
            let own = own[..n_own].iter().map(|k| usize::from(*k));
            let own = own.map(|k| (rows.start + positions[k], line(updates, first + k, self.inner, &columns)));
            if columns.len() == RUN {
                for (row, updates) in own {
                    add_runs::<T, RUN>(&mut tile.row(row)[..RUN], updates);
                }
            } else {
                for (row, updates) in own {
                    add_row(tile.row(row), updates);
                }
            }
        }
    }

    /// Adds updates of `N` elements to all rows of one outer position.
    #[inline(always)]
    fn add_short_rows<T: Number, I: Into<i64> + Copy, const N: usize>(
        &self,
        rows: &mut [T],
        indices: &[I],
        updates: &[T],
    ) {
        let (rows, updates) = (rows.as_chunks_mut::<N>().0, updates.as_chunks::<N>().0);
        for (index, update) in indices.iter().zip(updates) {
            if let Some(row) = rows.get_mut(self.position(*index)) {
                *row = std::array::from_fn(|column| row[column].plus(update[column]));
            }
        }
    }

    fn gather<T: Number, I: Into<i64> + Copy>(&self, base: Option<&[T]>, indices: &[I], updates: &[T], out: &mut [T]) {
        for (at, out) in out.iter_mut().enumerate() {
            let (o, row, column) = (at / self.inner / self.len, at / self.inner % self.len, at % self.inner);
            *out = base.map_or_else(T::default, |base| base[at]);
            for k in 0..self.n_indices {
                let update = (o * self.n_indices + k) * self.inner + column;
                let index: i64 = indices[if self.along { update } else { k }].into();
                if index == row as i64 || index == row as i64 - self.len as i64 {
                    *out = out.plus(updates[update]);
                }
            }
        }
    }
}

/// Adds updates to a row.
#[inline(always)]
fn add_row<T: Number>(out: &mut [T], updates: &[T]) {
    let (out, updates) = add_runs::<T, 8>(out, updates);
    let (out, updates) = add_runs::<T, 4>(out, updates);
    add_runs::<T, 1>(out, updates);
}

/// Adds updates to whole runs of `N` elements, and gives back the rest of both. All elements of a run are read before one
/// is written, so that they fill vectors.
#[inline(always)]
fn add_runs<'x, T: Number, const N: usize>(out: &'x mut [T], updates: &'x [T]) -> (&'x mut [T], &'x [T]) {
    let ((runs, out), (more, updates)) = (out.as_chunks_mut::<N>(), updates.as_chunks::<N>());
    for (run, more) in runs.iter_mut().zip(more) {
        let mut sums = *run;
        for lane in 0..N {
            sums[lane] = sums[lane].plus(more[lane]);
        }
        *run = sums;
    }
    (out, updates)
}

/// Some columns of a row of a matrix with `inner` columns.
#[inline(always)]
fn line<'x, T>(x: &'x [T], row: usize, inner: usize, columns: &Range<usize>) -> &'x [T] {
    &x[row * inner + columns.start..row * inner + columns.end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::testing::{Draw, assert_close, buffer, drawn, output_of};

    #[test]
    fn kernels_agree_with_their_twins() {
        let mut draw = Draw::new(4);
        for dtype in [DType::F32, DType::F64, DType::I32, DType::I64, DType::U32, DType::U8] {
            for index_dtype in [DType::I32, DType::I64, DType::U32] {
                for round in 0..40 {
                    // The last ones have lines that lie one after the other.
                    let (outer, len, inner) = match round {
                        ..30 => {
                            (draw.below(4), draw.below(7), [0, 1, 2 + draw.below(8), 16, 50, 600, 3000][draw.below(7)])
                        }
                        _ => ([1, 9, 40][draw.below(3)], [1, 7, 100][draw.below(3)], 1),
                    };
                    let scatter = ScatterAdd {
                        dtype,
                        index_dtype,
                        outer,
                        len,
                        inner,
                        n_indices: draw.below(40),
                        along: round % 2 == 0,
                        from_zeros: round % 3 == 0,
                    };
                    let n = scatter.n_positions();
                    let mut index = || draw.below(20) as i64 - 10;
                    let indices = match index_dtype {
                        DType::I32 => buffer(&(0..n).map(|_| index() as i32).collect::<Vec<_>>()),
                        DType::I64 => buffer(&(0..n).map(|_| index()).collect::<Vec<_>>()),
                        _ => buffer(&(0..n).map(|_| index() as u32).collect::<Vec<_>>()),
                    };
                    let base = drawn(&mut draw, dtype, scatter.n_base(), true);
                    let updates = drawn(&mut draw, dtype, scatter.n_updates(), true);
                    let base = (!scatter.from_zeros).then_some(base);
                    let inputs: Vec<_> = base.into_iter().chain([indices, updates]).collect();
                    assert_close(&scatter.into(), &inputs, 0.0);
                }
            }
        }
    }

    #[test]
    fn indices_wrap_once_and_then_drop() {
        let scatter = ScatterAdd {
            dtype: DType::F32,
            index_dtype: DType::I64,
            outer: 1,
            len: 3,
            inner: 1,
            n_indices: 6,
            along: false,
            from_zeros: false,
        };
        let base = buffer(&[100.0_f32, 200.0, 300.0]);
        let indices = buffer(&[0_i64, -1, 3, -4, i64::MIN, 0]);
        let updates = buffer(&[1.0_f32, 2.0, 4.0, 8.0, 16.0, 32.0]);
        assert_eq!(output_of::<f32>(&scatter.into(), &[base, indices, updates]), [133.0, 200.0, 302.0]);
    }
}
