//! The position of the first largest or smallest element along an axis.

use std::ops::Range;

use retape_runtime::DType;

use super::exchange::exchange;
use super::extents::{Checked, count, countable};
use super::number::{Number, is_number, with_number};
use super::text::{alternatives, descriptor};
use super::view::{Plain, exactly, for_each_chunk, for_each_tile, only, tile_columns, vectorized, view, view_mut};
use crate::ensure::ensure;

alternatives! {
    /// Which element is looked for.
    Extreme {
        /// The largest.
        Max = "max",
        /// The smallest.
        Min = "min",
    }
}

descriptor! {
    /// The position (`i64`) of the first extreme of each line along an axis; the first NaN counts as extreme.
    /// Of an empty line it is 0.
    ArgReduce "arg_reduce" {
        /// Any dtype but the 16-bit floats.
        dtype: DType,
        /// The number of positions before the axis.
        outer: usize,
        /// The extent of the axis.
        len: usize,
        /// The number of positions after the axis.
        inner: usize,
        /// Which element.
        kind: Extreme,
    }
}

/// Lines that a thread takes at a time, where they are contiguous.
const SHORT_LINES: usize = 256;
const LONG_LINES: usize = 64;

/// Few lines, so many at most, are cut into parts, which are reduced on all threads: of about so many elements of all lines, and
/// each line into 16 parts at most, or, where there are fewer than 64 lines, all of them into so many.
const PART: usize = 1 << 14;
const FEW_LINES: usize = 1 << 11;
const MOST_PARTS: usize = 1 << 10;

/// Elements of a part of a line at least: the first extremes of parts lie anywhere in memory when they are compared.
const LEAST_PART: usize = 256;

/// Columns of a part at most: those of a few pages of memory.
const WIDE: usize = 2048;

impl ArgReduce {
    fn check(&self) -> Checked {
        ensure!(is_number(self.dtype), "{} is not compared", self.dtype);
        countable("the input", &[self.outer, self.len, self.inner])
    }

    fn n(&self) -> usize {
        count(&[self.outer, self.len, self.inner])
    }

    /// The dtype and the number of elements of each input.
    pub fn inputs(&self) -> Vec<(DType, usize)> {
        vec![(self.dtype, self.n())]
    }

    /// The dtype and the number of elements of each output.
    pub fn outputs(&self) -> Vec<(DType, usize)> {
        vec![(DType::I64, count(&[self.outer, self.inner]))]
    }

    /// Computes the outputs.
    ///
    /// # Panics
    /// If the descriptor is not valid or the buffers are not as `inputs` and `outputs` say.
    pub fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert!(self.is_valid(), "{self}");
        let [x] = exactly(inputs);
        let out = view_mut(only(outputs), self.outer * self.inner);
        with_number!(self.dtype, T => match self.kind {
            Extreme::Max => self.search::<T>(view(x, self.n()), out, T::ge),
            Extreme::Min => self.search::<T>(view(x, self.n()), out, T::le),
        });
    }

    fn search<T: Number + Plain>(&self, x: &[T], out: &mut [i64], holds: impl Fn(&T, &T) -> bool + Sync) {
        if self.inner == 1 && self.len <= PART {
            let n_lines = if self.len < LONG { SHORT_LINES } else { LONG_LINES };
            for_each_chunk(out, n_lines, self.n(), &|chunk, out| {
                let x = &x[chunk * n_lines * self.len..][..out.len() * self.len];
                vectorized(
                    #[inline(always)]
                    || first_of_lines(x, self.len, out, &holds),
                );
            });
            return;
        }
        let of_block = self.len * self.inner;
        if self.inner > 1 && (1..=FEW_ROWS).contains(&self.len) && of_block <= SMALL_BLOCK {
            let few = SMALL_BLOCK / of_block;
            for_each_chunk(out, few * self.inner, self.n(), &|chunk, out| {
                vectorized(
                    #[inline(always)]
                    || first_of_blocks(x, self.len, self.inner, chunk * few, out, &holds),
                );
            });
            return;
        }
        let n_lines = self.outer * self.inner;
        let most = if n_lines <= FEW_LINES { MOST_PARTS / n_lines.clamp(1, MOST_PARTS / 16) } else { 1 };
        let part = self.len.div_ceil((self.n() / PART).clamp(1, most)).max(LEAST_PART);
        let parts = self.len.div_ceil(part);
        let n_tiles = self.outer * self.inner.div_ceil(tile_columns(self.outer, self.inner).max(1));
        if parts <= 1 || self.outer * parts * self.inner.div_ceil(WIDE) < n_tiles {
            return self.search_parts(x, out, self.len.max(1), &holds);
        }
        // The first extreme of each part, as its position in the whole line.
        let mut firsts = vec![0; self.outer * parts * self.inner];
        self.search_parts(x, &mut firsts, part, &holds);
        for_each_chunk(out, LONG_LINES, n_lines * parts * LONG_LINES, &|chunk, out| {
            for (at, out) in (chunk * LONG_LINES..).zip(out) {
                let (o, column) = (at / self.inner, at % self.inner);
                let value = |place: i64| x[(o * self.len + place as usize) * self.inner + column];
                let of_part = |p: usize| firsts[(o * parts + p) * self.inner + column];
                *out = (1..parts).fold(of_part(0), |first, p| earlier(first, of_part(p), value, &holds));
            }
        });
    }

    /// The first extreme of each of the parts of the lines, of `part` elements, as its position in the whole line.
    fn search_parts<T: Number + Plain>(
        &self,
        x: &[T],
        firsts: &mut [i64],
        part: usize,
        holds: &(impl Fn(&T, &T) -> bool + Sync),
    ) {
        let parts = self.len.div_ceil(part).max(1);
        let is_whole = parts > 1 || self.inner < NARROW;
        let columns = if is_whole { self.inner.min(WIDE) } else { tile_columns(self.outer, self.inner) };
        for_each_tile(firsts, [self.outer, parts, self.inner], [1, columns], self.n(), &|mut tile| {
            let (o, columns) = (tile.outer, tile.columns.clone());
            for p in tile.rows.clone() {
                let rows = self.len.min(p * part)..self.len.min((p + 1) * part);
                let lines = &x[(o * self.len + rows.start) * self.inner..(o * self.len + rows.end) * self.inner];
                let places = tile.row(p);
                vectorized(
                    #[inline(always)]
                    || match self.inner {
                        1 => places[0] = first_extreme(lines, holds),
                        ..NARROW => first_of_narrow(lines, self.inner, places, holds),
                        _ => first_of_rows(lines, self.inner, columns.clone(), places, holds),
                    },
                );
                places.iter_mut().for_each(|place| *place += rows.start as i64);
            }
        });
    }

    /// Computes the outputs in the naive way: the first element that no other beats.
    ///
    /// # Panics
    /// As [`run`](ArgReduce::run).
    pub fn reference(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert!(self.is_valid(), "{self}");
        let [x] = exactly(inputs);
        let out = view_mut::<i64>(only(outputs), self.outer * self.inner);
        with_number!(self.dtype, T => self.first_unbeaten::<T>(view(x, self.n()), out));
    }

    fn first_unbeaten<T: Number>(&self, x: &[T], out: &mut [i64]) {
        for (at, out) in out.iter_mut().enumerate() {
            let value = |i: usize| x[(at / self.inner * self.len + i) * self.inner + at % self.inner];
            let unbeaten = |&i: &usize| {
                (0..self.len).all(|j| match self.kind {
                    Extreme::Max => value(j) <= value(i),
                    Extreme::Min => value(j) >= value(i),
                })
            };
            let nan = (0..self.len).find(|&i| value(i).is_nan());
            *out = nan.or_else(|| (0..self.len).find(unbeaten)).unwrap_or(0) as i64;
        }
    }
}

/// The number of elements of a long line that are searched side by side.
const LANES: usize = 8;

/// The number of short lines whose elements are moved next to each other at a time.
const BLOCK: usize = 64;

/// The number of short lines that are searched side by side.
const SIDE_BY_SIDE: usize = 16;

/// Lines of fewer elements are searched side by side.
const LONG: usize = 4 * LANES;

/// The first extremes of lines that follow each other.
#[inline(always)]
fn first_of_lines<T: Number + Plain>(x: &[T], len: usize, out: &mut [i64], holds: impl Fn(&T, &T) -> bool) {
    if len == 0 {
        out.fill(0);
        return;
    }
    if len >= LONG {
        for (line, out) in x.chunks_exact(len).zip(out) {
            *out = first_extreme(line, &holds);
        }
        return;
    }
    macro_rules! of_length {
        ($($len:literal)*) => {
            match len {
                $($len => return first_of_few::<T, $len>(x, out, holds),)*
                _ => {}
            }
        };
    }
    of_length!(1 2 3 4 5 6 7 8 9 10);
    // Elements at one position of all lines of a block lie side by side.
    let mut columns = [[T::default(); BLOCK]; LONG];
    for (x, out) in x.chunks(BLOCK * len).zip(out.chunks_mut(BLOCK)) {
        exchange(x, len, [out.len(), len], columns.as_flattened_mut(), BLOCK);
        for (out, part) in out.chunks_mut(SIDE_BY_SIDE).zip(0..) {
            let (mut best, mut places) = (columns[0].as_chunks::<SIDE_BY_SIDE>().0[part], [0_u32; SIDE_BY_SIDE]);
            for (i, column) in (1..).zip(&columns[1..len]) {
                let next = &column.as_chunks::<SIDE_BY_SIDE>().0[part];
                for lane in 0..SIDE_BY_SIDE {
                    let keep = holds(&best[lane], &next[lane]) | best[lane].is_nan();
                    best[lane] = if keep { best[lane] } else { next[lane] };
                    places[lane] = if keep { places[lane] } else { i };
                }
            }
            out.iter_mut().zip(places).for_each(|(out, place)| *out = place.into());
        }
    }
}

/// The first extremes of lines of `LEN` elements.
#[inline(always)]
fn first_of_few<T: Number, const LEN: usize>(x: &[T], out: &mut [i64], holds: impl Fn(&T, &T) -> bool) {
    for (line, out) in x.as_chunks::<LEN>().0.iter().zip(out) {
        let (mut best, mut place) = (line[0], 0_u32);
        for (i, next) in (1..).zip(&line[1..]) {
            let keep = holds(&best, next) | best.is_nan();
            best = if keep { best } else { *next };
            place = if keep { place } else { i };
        }
        *out = place.into();
    }
}

/// The position of the first extreme in a line, 0 if it is empty: the extreme is found first, then its place.
#[inline(always)]
fn first_extreme<T: Number>(line: &[T], holds: impl Fn(&T, &T) -> bool) -> i64 {
    let Some(&first) = line.first() else { return 0 };
    let (mut best, mut has_nan) = ([first; LANES], [false; LANES]);
    let (runs, rest) = line.as_chunks::<LANES>();
    for run in runs {
        for lane in 0..LANES {
            best[lane] = if holds(&best[lane], &run[lane]) { best[lane] } else { run[lane] };
            has_nan[lane] |= run[lane].is_nan();
        }
    }
    let mut extreme = best[0];
    for x in best.iter().chain(rest) {
        extreme = if holds(&extreme, x) { extreme } else { *x };
    }
    let is_first = |x: &T| holds(x, &extreme);
    let has_nan = has_nan.contains(&true) || rest.iter().any(|x| x.is_nan());
    let place = if has_nan { first_place(line, |x| x.is_nan()) } else { first_place(line, is_first) };
    place as i64
}

/// The position of the first element that is as wanted; there must be one.
#[inline(always)]
fn first_place<T>(line: &[T], is_wanted: impl Fn(&T) -> bool) -> usize {
    let (runs, _) = line.as_chunks::<LANES>();
    let found = runs.iter().position(
        #[inline(always)]
        |run| {
            let mut is_here = false;
            for x in run {
                is_here |= is_wanted(x);
            }
            is_here
        },
    );
    let first = found.unwrap_or(runs.len()) * LANES;
    first + line[first..].iter().position(is_wanted).unwrap_or_default()
}

/// Of two places of a line, the one of the first extreme.
#[inline(always)]
fn earlier<T: Number>(a: i64, b: i64, value: impl Fn(i64) -> T, holds: impl Fn(&T, &T) -> bool) -> i64 {
    let (a, b) = (a.min(b), a.max(b));
    let (first, next) = (value(a), value(b));
    if holds(&first, &next) || first.is_nan() { a } else { b }
}

/// Columns below which several rows are searched side by side, and the elements of these.
const NARROW: usize = 32;
const ROW: usize = 64;

/// Blocks of at most so many rows, and elements, are searched with a vector of columns in registers: of more rows several are
/// searched side by side, or all columns row by row, as they lie.
const FEW_ROWS: usize = 128;
const SMALL_BLOCK: usize = 1 << 12;

/// The first extremes of the columns of blocks of `len` rows of `columns` elements, from the block at `first` on. Vectors begin
/// with a row, and may end with elements of the next one, of which nothing is kept.
#[inline(always)]
fn first_of_blocks<T: Number + Plain>(
    x: &[T],
    len: usize,
    columns: usize,
    first: usize,
    out: &mut [i64],
    holds: impl Fn(&T, &T) -> bool,
) {
    for (block, out) in (first..).zip(out.chunks_exact_mut(columns)) {
        let begin = block * len * columns;
        let rows = &x[begin..][..len * columns];
        if x.len() < begin + rows.len() + SIDE_BY_SIDE {
            first_of_rows(rows, columns, 0..columns, out, &holds);
            continue;
        }
        for column in (0..columns).step_by(SIDE_BY_SIDE) {
            let column = column.min(columns.saturating_sub(SIDE_BY_SIDE));
            let row = |row: usize| x[begin + row * columns + column..].first_chunk::<SIDE_BY_SIDE>();
            let (mut best, mut places) = (row(0).copied().unwrap_or_default(), [0_u32; SIDE_BY_SIDE]);
            for (i, next) in (1..len as u32).filter_map(|i| Some((i, row(i as usize)?))) {
                for lane in 0..SIDE_BY_SIDE {
                    let keep = holds(&best[lane], &next[lane]) | best[lane].is_nan();
                    best[lane] = if keep { best[lane] } else { next[lane] };
                    places[lane] = if keep { places[lane] } else { i };
                }
            }
            out[column..].iter_mut().zip(places).for_each(|(out, place)| *out = place.into());
        }
    }
}

/// The first extreme of each column of `x`, which has rows of `columns` elements.
#[inline(always)]
fn first_of_narrow<T: Number>(x: &[T], columns: usize, out: &mut [i64], holds: impl Fn(&T, &T) -> bool) {
    let n_rows = ROW / columns;
    let n_groups = x.len() / (n_rows * columns);
    if n_groups < 2 {
        return first_of_rows(x, columns, 0..columns, out, holds);
    }
    let len = n_rows * columns;
    let groups = &x[..n_groups * len];
    let mut of_groups = [0; ROW];
    first_of_rows(groups, len, 0..len, &mut of_groups[..len], &holds);
    for (column, out) in out.iter_mut().enumerate() {
        let value = |row: i64| x[row as usize * columns + column];
        let place = |lane: usize| of_groups[lane * columns + column] * n_rows as i64 + lane as i64;
        let behind = (n_groups * n_rows) as i64..(x.len() / columns) as i64;
        let places = (1..n_rows).map(place).chain(behind);
        *out = places.fold(place(0), |first, next| earlier(first, next, value, &holds));
    }
}

/// The first extreme of each of some columns of `x`, which has rows of `len` elements.
#[inline(always)]
fn first_of_rows<T: Number>(
    x: &[T],
    len: usize,
    columns: Range<usize>,
    out: &mut [i64],
    holds: impl Fn(&T, &T) -> bool,
) {
    let n_rows = x.len() / len;
    let row = |row: usize| &x[row * len..][columns.clone()];
    match u32::try_from(n_rows) {
        Ok(_) => first_extremes(0..n_rows, row, out, holds, |i| i as u32),
        Err(_) => first_extremes(0..n_rows, row, out, holds, |i| i as i64),
    }
}

/// The first extreme of each column among `rows`, with places that `place` makes: those of 32 bits, beside elements of as many,
/// are half of the vectors.
#[inline(always)]
fn first_extremes<'x, T: Number, P: Copy + Into<i64>>(
    mut rows: Range<usize>,
    row: impl Fn(usize) -> &'x [T],
    out: &mut [i64],
    holds: impl Fn(&T, &T) -> bool,
    place: impl Fn(usize) -> P,
) {
    let Some(first) = rows.next() else {
        out.fill(0);
        return;
    };
    // Elements that are selected where they were read become masked stores, which are slow on some processors: two buffers
    // take turns.
    let n = out.len();
    let mut best = row(first).to_vec();
    let mut places = vec![place(first); n];
    let (mut next_best, mut next_places) = (best.clone(), places.clone());
    for i in rows {
        let here = place(i);
        let (new, old, old_places) = (&row(i)[..n], &best[..n], &places[..n]);
        let (to, to_places) = (&mut next_best[..n], &mut next_places[..n]);
        for column in 0..n {
            let (old, new, old_place) = (old[column], new[column], old_places[column]);
            let keep = holds(&old, &new) | old.is_nan();
            to[column] = if keep { old } else { new };
            to_places[column] = if keep { old_place } else { here };
        }
        (best, next_best) = (next_best, best);
        (places, next_places) = (next_places, places);
    }
    out.iter_mut().zip(places).for_each(|(out, place)| *out = place.into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::testing::{Draw, assert_twins, buffer, output_of};

    #[test]
    fn kernels_agree_with_their_twins() {
        let mut draw = Draw::new(5);
        for dtype in DType::ALL.into_iter().filter(|d| is_number(*d)) {
            for &kind in Extreme::ALL {
                for _ in 0..30 {
                    let outer = [draw.below(4), 20, 65, 130, 300][draw.below(5)];
                    let len = [0, 1, 2, 9, 31, 60][draw.below(6)];
                    let inner = [0, 1, 3, 17, 20, 31, 40][draw.below(7)];
                    assert_twins(&ArgReduce { dtype, outer, len, inner, kind }.into(), &mut draw);
                }
            }
        }
    }

    /// Lines side by side that are cut into parts, few columns and many, with equal extremes and NaN anywhere.
    #[test]
    fn lines_side_by_side_are_searched_in_parts() {
        let mut draw = Draw::new(17);
        for (outer, len, inner) in [
            (1, 9000, 4),
            (2, 5001, 3),
            (1, 3000, 31),
            (1, 700, 33),
            (3, 40, 700),
            (1, 70, 2100),
            (1, 100, 20),
            // Small blocks, whose last columns begin among those before.
            (9, 100, 20),
            (5, 60, 40),
            (300, 3, 5),
            (7, 9, 31),
            (1, 20_000, 40),
        ] {
            for kind in Extreme::ALL {
                let x: Vec<f32> = (0..outer * len * inner)
                    .map(|_| if draw.below(4000) == 0 { f32::NAN } else { draw.below(50) as f32 })
                    .collect();
                let search = ArgReduce { dtype: DType::F32, outer, len, inner, kind: *kind };
                let name = search.to_string();
                let places = output_of::<i64>(&search.into(), &[buffer(&x)]);
                for (at, place) in places.into_iter().enumerate() {
                    let line = (0..len).map(|i| x[(at / inner * len + i) * inner + at % inner]);
                    let key = |x: f32| {
                        if x.is_nan() {
                            f32::MAX
                        } else if *kind == Extreme::Max {
                            x
                        } else {
                            -x
                        }
                    };
                    let best = line.clone().map(key).fold(f32::MIN, f32::max);
                    let first = line.clone().position(|x| key(x) == best);
                    assert_eq!(Some(place as usize), first, "{name} at {at}");
                }
            }
        }
    }

    #[test]
    fn places_of_64_bits_are_those_of_32() {
        let rows = [[1.0, f32::NAN, 2.0], [3.0, 0.0, 2.0], [3.0, f32::NAN, 1.0]];
        let mut out = [0; 3];
        first_extremes(0..3, |row| &rows[row][..], &mut out, f32::ge, |row| row as i64);
        assert_eq!(out, [1, 0, 0]);
    }

    #[test]
    fn long_lines_are_searched_in_parts() {
        let len = 3 * PART + 7;
        let mut x = vec![0.0_f32; len];
        x[PART + 5] = 2.0;
        x[2 * PART + 1] = 2.0;
        x[len - 1] = -1.0;
        let at = |kind, x: &[f32]| {
            let search = ArgReduce { dtype: DType::F32, outer: 1, len, inner: 1, kind };
            let x = buffer(x);
            output_of::<i64>(&search.into(), &[x])[0]
        };
        assert_eq!(at(Extreme::Max, &x), PART as i64 + 5);
        assert_eq!(at(Extreme::Min, &x), len as i64 - 1);
        (x[2 * PART], x[2 * PART + 9]) = (f32::NAN, f32::NAN);
        assert_eq!(at(Extreme::Max, &x), 2 * PART as i64);
        assert_eq!(at(Extreme::Min, &x), 2 * PART as i64);
    }
}
