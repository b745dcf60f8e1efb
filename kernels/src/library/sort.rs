//! Stable argument sort along an axis.
//!
//! Elements become unsigned keys with the wanted order: NaN last in both directions, -0 equal to +0. A key and its
//! position are sorted as one number, so that no two are equal and any algorithm is stable, and any that selects the first
//! ones selects the same.

mod network;
mod select;

use std::ops::RangeInclusive;

use retape_runtime::DType;

use super::exchange::exchange;
use super::extents::{Checked, count, countable};
use super::micro::with_bytes;
use super::number::{is_number, with_number};
use super::text::descriptor;
use super::view::{
    Plain, exactly, for_each_chunk, for_each_tile, only, tile_columns, vectorized_for_integers, view, view_mut,
};
use crate::ensure::ensure;
use network::{FirstRows, SELECTED_LINES};
use select::{FirstOfLine, has_bound, has_groups};

descriptor! {
    /// The positions (`i64`) that sort each line along an axis, or the first of them; equal elements keep their order and
    /// NaN comes last.
    Sort "sort" {
        /// Any dtype but the 16-bit floats.
        dtype: DType,
        /// The number of positions before the axis.
        outer: usize,
        /// The extent of the axis; kernels for the processor take lines of less than 2^32 elements.
        len: usize,
        /// The number of positions after the axis.
        inner: usize,
        /// Whether the largest element comes first.
        descending: bool,
        /// The number of positions that are kept of each line, at most its length.
        kept: usize,
    }
}

/// Entries of a line that wait, beside those that are kept, until the first ones are selected.
const WAITING: usize = if cfg!(test) { 3 } else { 64 };

/// Elements of a task of lines that lie one after the other, if they are shorter.
const LINES: usize = if cfg!(test) { 20 } else { 1 << 10 };

/// The longest lines that networks sort, which do more comparisons for each element of a longer one.
const NETWORK: usize = if cfg!(test) { 70 } else { 512 };

/// The fewest and the most lines that a network sorts at once, and about the elements of them.
const NETWORK_LINES: RangeInclusive<usize> = 4..=64;
const NETWORK_ELEMENTS: usize = 1 << 11;

/// The rows of lines whose first elements are selected at once that are made before they are looked at; and how many times
/// as long as what is kept such lines are at least, if that is so many elements at most, or more; shorter ones are sorted.
const ROWS: usize = if cfg!(test) { 9 } else { 64 };
const SELECTED: usize = if cfg!(test) { 2 } else { 8 };
const FEW_SELECTED: usize = if cfg!(test) { 3 } else { 6 };
const SHORT: usize = if cfg!(test) { 4 } else { 16 };
const MORE_SELECTED: usize = if cfg!(test) { 8 } else { 128 };

/// About the elements of a task of such lines.
const TASK: usize = if cfg!(test) { 300 } else { 1 << 13 };

/// Columns that are copied at a time to be lines: some cache lines of each row, and bytes that the second-level cache holds.
const COPIED: usize = if cfg!(test) { 4 } else { 64 };
const COPIED_BYTES: usize = if cfg!(test) { 1 << 13 } else { 1 << 20 };

/// A long line is sorted in runs of this many elements, on all threads, which are then merged.
const RUN: usize = 1 << 15;

impl Sort {
    fn check(&self) -> Checked {
        ensure!(is_number(self.dtype), "{} is not sorted", self.dtype);
        ensure!(self.kept <= self.len, "{} positions are kept of {}", self.kept, self.len);
        countable("the input", &[self.outer, self.len, self.inner])
    }

    /// Whether the kernel for the processor takes such lines: positions have 32 bits.
    pub(crate) fn has_short_lines(&self) -> bool {
        self.n() == 0 || u32::try_from(self.len).is_ok()
    }

    fn n(&self) -> usize {
        count(&[self.outer, self.len, self.inner])
    }

    fn n_kept(&self) -> usize {
        count(&[self.outer, self.kept, self.inner])
    }

    /// The dtype and the number of elements of each input.
    pub fn inputs(&self) -> Vec<(DType, usize)> {
        vec![(self.dtype, self.n())]
    }

    /// The dtype and the number of elements of each output.
    pub fn outputs(&self) -> Vec<(DType, usize)> {
        vec![(DType::I64, self.n_kept())]
    }

    /// Computes the outputs.
    ///
    /// # Panics
    /// If the descriptor is not valid, a line has 2^32 elements or more, or the buffers are not as `inputs` and
    /// `outputs` say.
    pub fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert!(self.is_valid() && self.has_short_lines(), "{self}");
        let [x] = exactly(inputs);
        let out = view_mut(only(outputs), self.n_kept());
        with_number!(self.dtype, T => self.sort::<T>(view(x, self.n()), out));
    }

    fn sort<T: Sortable>(&self, x: &[T], out: &mut [i64]) {
        let is_alone = self.outer * self.inner == 1;
        let is_cut = is_alone && self.len >= 2 * RUN;
        let work = self.n().saturating_mul(self.kept.max(2).ilog2() as usize);
        // Parts of a line that is cut have as many first elements as the line.
        if has_bound(self.len, self.kept) {
            let columns = (COPIED_BYTES / size_of::<T>() / self.len).min(COPIED);
            if self.inner == 1 && (!is_cut || has_groups(RUN, self.kept)) {
                return self.select_lines(x, out, work);
            } else if self.inner > 1 && columns >= COPIED / 4 {
                return self.select_columns(x, out, columns, work);
            }
        }
        let extents = [self.outer, self.kept, self.inner];
        let room = self.kept.saturating_add(self.kept.max(WAITING));
        let selects = self.len / 2 >= room && !is_cut;
        let n_entries = if selects { room } else { self.len };
        let n_lines = self.outer * self.inner;
        let is_quick = (!selects && self.len <= NETWORK) || self.selects_many();
        let is_many = is_quick && n_lines >= *NETWORK_LINES.start() && self.kept > 0;
        if let Some(sort_many) = T::SORT_MANY.filter(|_| is_many) {
            return sort_many(self, x, out, work);
        }
        let add = |line: &mut Vec<T::Entry>, limit: &mut Option<T::Entry>, entry: T::Entry| {
            if limit.is_none_or(|limit| entry < limit) {
                line.push(entry);
                if selects && line.len() == room {
                    *limit = Some(*line.select_nth_unstable(self.kept - 1).1);
                    line.truncate(self.kept);
                }
            }
        };
        if self.inner == 1 && self.kept > 0 && self.len < LINES {
            let n_lines = LINES / self.len;
            for_each_chunk(out, n_lines * self.kept, work, &|i, out| {
                let mut line = Vec::with_capacity(n_entries);
                let x = x[i * n_lines * self.len..].chunks_exact(self.len);
                for (x, out) in x.zip(out.chunks_exact_mut(self.kept)) {
                    let mut limit = None;
                    line.clear();
                    for (x, position) in x.iter().zip(0..) {
                        add(&mut line, &mut limit, x.entry(position, self.descending));
                    }
                    self.sort_line(&mut line, false, work);
                    out.iter_mut().zip(&line).for_each(|(out, &entry)| *out = T::position(entry).into());
                }
            });
            return;
        }
        // A tile is read and written row by row, a cache line at a time.
        let columns = tile_columns(self.outer, self.inner).min(16);
        for_each_tile(out, extents, [self.kept, columns], work, &|mut tile| {
            let (width, columns) = (tile.columns.len(), tile.columns.clone());
            let mut lines: Vec<Vec<T::Entry>> = (0..width).map(|_| Vec::with_capacity(n_entries)).collect();
            // Nothing from the limit of a line on is among the first.
            let mut limits = vec![None; width];
            for (row, position) in (0..self.len).zip(0..) {
                let start = (tile.outer * self.len + row) * self.inner;
                let x = &x[start + columns.start..start + columns.end];
                for ((line, limit), x) in lines.iter_mut().zip(&mut limits).zip(x) {
                    add(line, limit, x.entry(position, self.descending));
                }
            }
            lines.iter_mut().for_each(|line| self.sort_line(line, is_alone, work));
            for row in 0..self.kept {
                let entries = lines.iter().map(|line| line[row]);
                tile.row(row).iter_mut().zip(entries).for_each(|(out, entry)| *out = T::position(entry).into());
            }
        });
    }

    /// Selects the first elements of lines that lie one after the other, or of a long one that is alone.
    fn select_lines<T: Sortable>(&self, x: &[T], out: &mut [i64], work: usize) {
        let select = |line: &[T], start: usize, first: &mut FirstOfLine<T>, to: &mut Vec<T::Entry>| {
            vectorized_for_integers(
                #[inline(always)]
                || to.extend_from_slice(first.of(line, start as u32, self.kept, self.descending)),
            );
        };
        let write = |out: &mut [i64], entries: &[T::Entry]| {
            out.iter_mut().zip(entries).for_each(|(out, &entry)| *out = T::position(entry).into());
        };
        if self.outer == 1 && self.len >= 2 * RUN {
            let mut parts = vec![vec![]; self.len.div_ceil(RUN)];
            for_each_chunk(&mut parts, 1, work, &|i, part| {
                let start = i * RUN;
                let line = &x[start..self.len.min(start + RUN)];
                select(line, start, &mut FirstOfLine::new(self.kept), &mut part[0]);
            });
            let mut entries = parts.concat();
            // The stable sort finds the sorted runs and merges them.
            entries.sort();
            return write(out, &entries);
        }
        let n_lines = (TASK / self.len).max(1);
        for_each_chunk(out, n_lines * self.kept, work, &|i, out| {
            let mut first = FirstOfLine::new(self.kept);
            let mut entries = Vec::with_capacity(out.len());
            let x = x[i * n_lines * self.len..].chunks_exact(self.len);
            x.take(n_lines).for_each(|line| select(line, 0, &mut first, &mut entries));
            write(out, &entries);
        });
    }

    /// Selects the first elements of lines that are columns of matrices, each of which is copied to lie in one piece.
    fn select_columns<T: Sortable>(&self, x: &[T], out: &mut [i64], most: usize, work: usize) {
        let columns = tile_columns(self.outer, self.inner).min(most);
        for_each_tile(out, [self.outer, self.kept, self.inner], [self.kept, columns], work, &|mut tile| {
            let (width, at) = (tile.columns.len(), tile.outer * self.len * self.inner + tile.columns.start);
            with_bytes(width * self.len * size_of::<T>(), |lines| {
                let lines = view_mut::<T>(lines, width * self.len);
                exchange(&x[at..], self.inner, [self.len, width], lines, self.len);
                let mut first = FirstOfLine::new(self.kept);
                for (column, line) in lines.chunks_exact(self.len).enumerate() {
                    let entries = vectorized_for_integers(
                        #[inline(always)]
                        || first.of(line, 0, self.kept, self.descending),
                    );
                    for (row, &entry) in entries.iter().enumerate() {
                        tile.row(row)[column] = T::position(entry).into();
                    }
                }
            });
        });
    }

    /// Whether the first ones of many lines are selected at once: where most rows of a matrix of them have none, so that
    /// merging costs less than sorting, or looking at one element after the other.
    fn selects_many(&self) -> bool {
        let share = if self.kept <= SELECTED { FEW_SELECTED } else { MORE_SELECTED };
        let is_many = self.outer.saturating_mul(self.inner) >= SELECTED_LINES;
        is_many && self.len >= SHORT && self.len / share >= self.kept
    }

    /// Sorts many lines at once, or the first elements of each; a line is a column of a matrix.
    fn sort_many<T: Sortable<Entry = i64>>(&self, x: &[T], out: &mut [i64], work: usize) {
        let selects = self.selects_many();
        let all = self.outer * self.inner;
        let n_lines = if selects {
            // Several tasks have lines.
            (all / 8).next_multiple_of(4).min(SELECTED_LINES)
        } else {
            (NETWORK_ELEMENTS / self.len.max(1)).next_multiple_of(16).min(*NETWORK_LINES.end())
        };
        let n_lines = n_lines.min(all);
        let n_rows = if selects { self.len.min(ROWS) } else { self.len };
        if self.inner > 1 {
            let columns = n_lines.min(tile_columns(self.outer, self.inner));
            for_each_tile(out, [self.outer, self.kept, self.inner], [self.kept, columns], work, &|mut tile| {
                let (width, columns) = (tile.columns.len(), tile.columns.clone());
                let mut first = FirstRows::new(width, self.kept, n_rows, selects);
                vectorized_for_integers(
                    #[inline(always)]
                    || {
                        for start in (0..self.len).step_by(n_rows) {
                            let rows = start..(start + n_rows).min(self.len);
                            first.add(rows.len(), |matrix| {
                                for (row, entries) in rows.zip(matrix.chunks_exact_mut(width)) {
                                    let at = (tile.outer * self.len + row) * self.inner;
                                    let x = &x[at + columns.start..at + columns.end];
                                    let pairs = entries.iter_mut().zip(x);
                                    pairs.for_each(|(entry, x)| *entry = x.entry(row as u32, self.descending));
                                }
                            });
                        }
                        for (row, entries) in first.finish().chunks_exact(width).enumerate() {
                            let positions = entries.iter().map(|&entry| T::position(entry).into());
                            tile.row(row).iter_mut().zip(positions).for_each(|(out, position)| *out = position);
                        }
                    },
                );
            });
            return;
        }
        let lines_of_task = TASK.div_ceil(self.len).next_multiple_of(n_lines);
        for_each_chunk(out, lines_of_task * self.kept, work, &|i, out| {
            let mut entries = vec![0; n_rows * n_lines];
            let mut positions = vec![0; self.kept * n_lines];
            let numbers: Vec<u32> = (0..n_lines).flat_map(|_| (0..).take(n_rows)).collect();
            let x = x[i * lines_of_task * self.len..].chunks(self.len * n_lines);
            let mut first = FirstRows::new(n_lines, self.kept, n_rows, selects);
            for (x, out) in x.zip(out.chunks_mut(self.kept * n_lines)) {
                let width = x.len() / self.len;
                first.reset(width);
                vectorized_for_integers(
                    #[inline(always)]
                    || {
                        for start in (0..self.len).step_by(n_rows) {
                            let n = n_rows.min(self.len - start);
                            // Whole lines are one run, others a run each.
                            let runs = if n == self.len { 1 } else { width };
                            for run in 0..runs {
                                let (x, to) = (&x[run * self.len + start..], &mut entries[run * n..]);
                                let pairs = to.iter_mut().zip(x.iter().zip(&numbers)).take(n * width / runs);
                                pairs.for_each(|(entry, (x, &n))| *entry = x.entry(n + start as u32, self.descending));
                            }
                            first.add(n, |matrix| exchange(&entries, n, [width, n], matrix, width));
                        }
                        let pairs = positions.iter_mut().zip(first.finish());
                        pairs.for_each(|(position, &entry)| *position = T::position(entry).into());
                        exchange(&positions, width, [self.kept, width], out, self.kept);
                    },
                );
            }
        });
    }

    /// Sorts the entries of a line, or the first of them, on all threads if it is long and the only one.
    fn sort_line<E: Ord + Copy + Send>(&self, line: &mut Vec<E>, is_alone: bool, work: usize) {
        let is_cut = self.kept < self.len;
        let sort = |entries: &mut [E]| {
            if self.kept < entries.len() {
                entries.select_nth_unstable(self.kept);
                entries[..self.kept].sort_unstable();
            } else {
                entries.sort_unstable();
            }
        };
        if is_alone && self.len >= 2 * RUN {
            for_each_chunk(line, RUN, work, &|_, run| sort(run));
            if is_cut {
                *line = line.chunks(RUN).flat_map(|run| &run[..self.kept.min(run.len())]).copied().collect();
            }
            // The stable sort finds the sorted runs and merges them.
            line.sort();
        } else {
            sort(line);
        }
    }

    /// Computes the outputs in the naive way: the place of an element is the number of elements before it.
    ///
    /// # Panics
    /// As [`run`](Sort::run).
    pub fn reference(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert!(self.is_valid(), "{self}");
        let [x] = exactly(inputs);
        let out = view_mut(only(outputs), self.n_kept());
        with_number!(self.dtype, T => self.rank::<T>(view(x, self.n()), out));
    }

    fn rank<T: Sortable>(&self, x: &[T], out: &mut [i64]) {
        if out.is_empty() {
            return;
        }
        for (o, inner) in (0..self.outer).flat_map(|o| (0..self.inner).map(move |inner| (o, inner))) {
            let at = |i: usize| (o * self.len + i) * self.inner + inner;
            for i in 0..self.len {
                let place = (0..self.len).filter(|&j| {
                    let (a, b) = (x[at(j)], x[at(i)]);
                    let (a_nan, b_nan) = (a.to_f64().is_nan(), b.to_f64().is_nan());
                    let first = if self.descending { a > b } else { a < b };
                    let equal = a == b || (a_nan && b_nan);
                    first || (!a_nan && b_nan) || (equal && j < i)
                });
                let place = place.count();
                if place < self.kept {
                    out[(o * self.kept + place) * self.inner + inner] = i as i64;
                }
            }
        }
    }
}

/// Sorts lines of elements, given where the positions go and the work.
type SortMany<T> = fn(&Sort, &[T], &mut [i64], usize);

/// An element type that has a key.
trait Sortable: Plain + PartialOrd {
    /// A key with its position in the line.
    type Entry: Ord + Copy + Send;

    /// Sorts short lines of such elements many at once, if an entry is a number that vectors hold.
    const SORT_MANY: Option<SortMany<Self>>;

    /// A number with the order of the elements.
    type Key: Ord + Copy;
    /// The last key, which a NaN has.
    const LAST: Self::Key;

    fn key(self, descending: bool) -> Self::Key;
    fn join(key: Self::Key, position: u32) -> Self::Entry;
    #[inline(always)]
    fn entry(self, position: u32, descending: bool) -> Self::Entry {
        Self::join(self.key(descending), position)
    }
    fn position(entry: Self::Entry) -> u32;
}

/// An unsigned number with the order of `x`, the two zeros being equal; `None` for NaN.
macro_rules! float_key {
    ($x:ident, $bits:ident) => {{
        const SIGN: $bits = 1 << ($bits::BITS - 1);
        let bits = ($x + 0.0).to_bits();
        (!$x.is_nan()).then_some(if bits & SIGN == 0 { bits | SIGN } else { !bits })
    }};
}

macro_rules! sortable {
    ($($t:ident by $key:ident: |$x:ident| $of:expr, as $entry:ty: $join:expr, $position:expr, $many:expr;)*) => {$(
        impl Sortable for $t {
            type Entry = $entry;

            const SORT_MANY: Option<SortMany<$t>> = $many;

            type Key = $key;

            const LAST: $key = $key::MAX;

            #[inline(always)]
            fn key(self, descending: bool) -> $key {
                let $x = self;
                let key: Option<$key> = $of;
                key.map_or($key::MAX, |key| if descending { !key } else { key })
            }

            #[inline(always)]
            fn join(key: $key, position: u32) -> $entry {
                let join: fn($key, u32) -> $entry = $join;
                join(key, position)
            }

            #[inline(always)]
            fn position(entry: $entry) -> u32 {
                let position: fn($entry) -> u32 = $position;
                position(entry)
            }
        }
    )*};
}

/// Joins a key and a position into one number, the key above, whose sign is the first bit of the key, turned over: vectors
/// compare numbers with signs.
fn packed(key: u32, position: u32) -> i64 {
    i64::from((key ^ 1 << 31) as i32) << 32 | i64::from(position)
}

sortable! {
    f32 by u32: |x| float_key!(x, u32), as i64: packed, |entry| entry as u32, Some(Sort::sort_many);
    f64 by u64: |x| float_key!(x, u64), as (u64, u32): |key, position| (key, position), |entry| entry.1, None;
    i32 by u32: |x| Some(x as u32 ^ 1 << 31), as i64: packed, |entry| entry as u32, Some(Sort::sort_many);
    i64 by u64: |x| Some(x as u64 ^ 1 << 63), as (u64, u32): |key, position| (key, position), |entry| entry.1, None;
    u32 by u32: |x| Some(x), as i64: packed, |entry| entry as u32, Some(Sort::sort_many);
    u8 by u32: |x| Some(x.into()), as i64: packed, |entry| entry as u32, Some(Sort::sort_many);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::testing::{Draw, assert_close, assert_twins, buffer, drawn, output_of, values_of};

    #[test]
    fn kernels_agree_with_their_twins() {
        let mut draw = Draw::new(2);
        for dtype in DType::ALL.into_iter().filter(|d| is_number(*d)) {
            for descending in [false, true] {
                for _ in 0..30 {
                    let outer = [0, 1, 2, 3, 7, 130][draw.below(6)];
                    let len = [0, 1, 2, 9, 60, 100, 150, 300][draw.below(8)];
                    let inner = [0, 1, 1, 3, 40][draw.below(5)];
                    let kept = [len, len / 2, len.min(7), len.min(5), len.min(1), 0][draw.below(6)];
                    assert_twins(&Sort { dtype, outer, len, inner, descending, kept }.into(), &mut draw);
                }
            }
        }
    }

    #[test]
    fn nan_is_last_and_equals_keep_their_order() {
        let x = [0.0, f32::NAN, -0.0, f32::INFINITY, -f32::NAN, f32::NEG_INFINITY, 0.0];
        let sorted = |descending, kept| {
            let sort = Sort { dtype: DType::F32, outer: 1, len: x.len(), inner: 1, descending, kept };
            output_of::<i64>(&sort.into(), &[buffer(&x)])
        };
        assert_eq!(sorted(false, 7), [5, 0, 2, 6, 3, 1, 4]);
        assert_eq!(sorted(true, 7), [3, 0, 2, 6, 5, 1, 4]);
        assert_eq!(sorted(true, 1), [3]);
        assert_eq!(sorted(true, 6), [3, 0, 2, 6, 5, 1]);
    }

    /// Lines whose elements have a bound that leaves out none of them, or few.
    #[test]
    fn first_elements_of_lines_of_equals() {
        let lines: [fn(usize) -> f32; 5] = [
            |_| 1.0,
            |_| f32::NAN,
            |i| if i % 2 == 0 { 0.0 } else { -0.0 },
            |i| if i % 100 == 99 { i as f32 } else { f32::NAN },
            |i| (i / 100) as f32,
        ];
        for line in lines {
            let x = buffer(&(0..600).map(line).collect::<Vec<_>>());
            for kept in [1, 7, 30] {
                for descending in [false, true] {
                    let sort = Sort { dtype: DType::F32, outer: 2, len: 300, inner: 1, descending, kept };
                    assert_close(&sort.into(), std::slice::from_ref(&x), 0.0);
                }
            }
        }
        for descending in [false, true] {
            let sort = Sort { dtype: DType::U32, outer: 1, len: 300, inner: 1, descending, kept: 3 };
            assert_eq!(output_of::<i64>(&sort.into(), &[buffer(&[u32::MAX; 300])]), [0, 1, 2]);
        }
    }

    #[test]
    fn long_lines_are_sorted() {
        let (mut draw, len) = (Draw::new(3), 5 * RUN / 2);
        for (dtype, len) in [(DType::F32, len), (DType::I64, len), (DType::F32, 2 * RUN + 3)] {
            let x = drawn(&mut draw, dtype, len, false);
            let order = |kept| {
                let sort = Sort { dtype, outer: 1, len, inner: 1, descending: false, kept };
                output_of::<i64>(&sort.into(), std::slice::from_ref(&x))
            };
            let all = order(len);
            let mut places = vec![false; len];
            all.iter().for_each(|&i| places[i as usize] = true);
            assert!(places.iter().all(|&seen| seen), "a permutation");
            // Fewer than a run has, which has groups or none, than the last run has, and more than that.
            for kept in [3, 100, RUN / 8, RUN / 8 + 1, RUN / 2 + 1, RUN + 5] {
                assert_eq!(order(kept), all[..kept], "{kept}");
            }
        }
        let x: Vec<i32> = (0..len).map(|_| draw.below(1000) as i32).collect();
        let order = Sort { dtype: DType::I32, outer: 1, len, inner: 1, descending: false, kept: len };
        let order: Vec<i64> = output_of(&order.into(), &[buffer(&x)]);
        let key = |i: i64| (x[i as usize], i);
        assert!(order.is_sorted_by(|&a, &b| key(a) < key(b)));
        let backwards = Sort { dtype: DType::I64, outer: 1, len: 3, inner: 1, descending: true, kept: 3 };
        assert_eq!(values_of::<i64>(&backwards.into(), &[&[i64::MIN, i64::MAX, 0]]), [1, 2, 0]);
    }
}
