//! Cumulative sums, products and extremes along an axis.
//!
//! The order of operations is fixed by the shape: a line is folded from its start, or, where few lines are long,
//! its parts of fixed length are folded each by itself, then their totals, then the parts again from these. Sums and
//! products of `f32` are kept in `f64` and rounded once per element.

use std::ops::Range;

use retape_runtime::DType;

use super::extents::{Checked, count, countable};
use super::number::{Number, is_number, with_number};
use super::text::{alternatives, descriptor};
use super::view::{Plain, exactly, for_each_chunk, for_each_tile, only, tile_columns, vectorized, view, view_mut};
use crate::ensure::ensure;

alternatives! {
    /// The operation that is accumulated.
    ScanKind {
        /// Addition; integers wrap.
        Sum = "sum",
        /// Multiplication; integers wrap.
        Prod = "prod",
        /// The larger; NaN wins.
        Max = "max",
        /// The smaller; NaN wins.
        Min = "min",
    }
}

descriptor! {
    /// A cumulative operation along an axis.
    Scan "scan" {
        /// Any dtype but `bool` and the 16-bit floats.
        dtype: DType,
        /// The number of positions before the axis.
        outer: usize,
        /// The extent of the axis.
        len: usize,
        /// The number of positions after the axis.
        inner: usize,
        /// The operation.
        kind: ScanKind,
        /// Whether lines are accumulated from their end.
        reverse: bool,
        /// Whether an element's result excludes the element itself; the first is then the unit of the operation.
        exclusive: bool,
    }
}

/// The length of a part of a long line.
const PART: usize = 1 << 10;

/// Elements of a task of lines that lie one after the other, if they are shorter.
const LINES: usize = if cfg!(test) { 20 } else { 1 << 12 };

/// Neighbouring lines that are accumulated in registers together, and lines one after the other.
pub(super) const COLUMNS: usize = if cfg!(test) { 8 } else { 16 };
pub(super) const CHAINS: usize = 4;

/// The number of lines that occupies all threads without cutting lines into parts.
const ENOUGH_LINES: usize = if cfg!(test) { 3 } else { 16 };

/// Whether lines of so many elements, with so many beside each other, are tasks of [`blocks_of_task`] of them.
pub(super) fn has_short_blocks([len, inner]: [usize; 2]) -> bool {
    (1..LINES).contains(&(len * inner))
}

/// The blocks of lines beside each other that a task has, of an extent that is not 0.
pub(super) fn blocks_of_task([len, inner]: [usize; 2]) -> usize {
    match LINES / (len * inner) {
        // Several lines take as long as one.
        lines if inner == 1 => lines.max(CHAINS) / CHAINS * CHAINS,
        blocks => blocks.max(1),
    }
}

impl Scan {
    fn check(&self) -> Checked {
        ensure!(is_number(self.dtype) && self.dtype != DType::Bool, "{} is not accumulated", self.dtype);
        countable("the input", &[self.outer, self.len, self.inner])
    }

    fn n(&self) -> usize {
        count(&[self.outer, self.len, self.inner])
    }

    /// One operation for each element.
    pub(super) fn flops(&self) -> u64 {
        self.n() as u64
    }

    /// The dtype and the number of elements of each input.
    pub fn inputs(&self) -> Vec<(DType, usize)> {
        vec![(self.dtype, self.n())]
    }

    /// The dtype and the number of elements of each output.
    pub fn outputs(&self) -> Vec<(DType, usize)> {
        vec![(self.dtype, self.n())]
    }

    /// Computes the outputs.
    ///
    /// # Panics
    /// If the descriptor is not valid or the buffers are not as `inputs` and `outputs` say.
    pub fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert!(self.is_valid(), "{self}");
        let [x] = exactly(inputs);
        let out = only(outputs);
        with_number!(self.dtype, T => {
            type Wide = <T as Number>::Wide;
            let (x, out) = (view::<T>(x, self.n()), view_mut::<T>(out, self.n()));
            match self.kind {
                ScanKind::Sum => self.scan(x, out, Wide::default(), Wide::plus),
                ScanKind::Prod => self.scan(x, out, Wide::ONE, Wide::times),
                ScanKind::Max => self.scan(x, out, Wide::LOWEST, Wide::larger),
                ScanKind::Min => self.scan(x, out, Wide::HIGHEST, Wide::smaller),
            }
        });
    }

    /// `rows` in the order in which they are accumulated.
    fn ordered(&self, rows: Range<usize>) -> impl Iterator<Item = usize> + use<> {
        let reverse = self.reverse;
        (0..rows.len()).map(move |i| if reverse { rows.end - 1 - i } else { rows.start + i })
    }

    fn line<'x, T>(&self, x: &'x [T], outer: usize, row: usize, columns: &Range<usize>) -> &'x [T] {
        let start = (outer * self.len + row) * self.inner;
        &x[start + columns.start..start + columns.end]
    }

    fn scan<T: Number + Plain>(
        &self,
        x: &[T],
        out: &mut [T],
        unit: T::Wide,
        combine: impl Fn(T::Wide, T::Wide) -> T::Wide + Sync,
    ) {
        let block = self.len * self.inner;
        let cut = self.outer * self.inner < ENOUGH_LINES && self.len >= 4 * PART;
        let is_short = has_short_blocks([self.len, self.inner]) && self.outer >= ENOUGH_LINES;
        if block > 0 && !cut && (self.inner == 1 || is_short) {
            let task = blocks_of_task([self.len, self.inner]) * block;
            for_each_chunk(out, task, self.n(), &|i, out| {
                let x = &x[i * task..][..out.len()];
                vectorized(
                    #[inline(always)]
                    || match self.exclusive {
                        true => self.scan_blocks::<T, true>(x, out, unit, &combine),
                        false => self.scan_blocks::<T, false>(x, out, unit, &combine),
                    },
                );
            });
            return;
        }
        let part = if cut { PART } else { self.len.max(1) };
        let parts = self.len.div_ceil(part);
        let starts = if cut { self.starts(x, parts, unit, &combine) } else { Vec::new() };
        if cut && self.inner == 1 {
            return self.scan_parts(x, out, &starts, unit, &combine);
        }
        let first_part = if self.reverse { parts.saturating_sub(1) } else { 0 };
        let block = [part, tile_columns(self.outer, self.inner)];
        for_each_tile(out, [self.outer, self.len, self.inner], block, self.n(), &|mut tile| {
            let (o, columns, p) = (tile.outer, tile.columns.clone(), tile.rows.start / part);
            let start = (p != first_part).then(|| {
                let start = (o * parts + p) * self.inner;
                &starts[start + columns.start..start + columns.end]
            });
            vectorized(
                #[inline(always)]
                || {
                    let mut rows = self.ordered(tile.rows.clone());
                    let mut total = start.map_or_else(|| vec![unit; columns.len()], <[T::Wide]>::to_vec);
                    if start.is_none()
                        && let Some(row) = rows.next()
                    {
                        let x = self.line(x, o, row, &columns);
                        total.iter_mut().zip(x).for_each(|(total, x)| *total = x.widen());
                        match self.exclusive {
                            true => tile.row(row).fill(T::narrow(unit)),
                            false => tile.row(row).copy_from_slice(x),
                        }
                    }
                    for row in rows {
                        let x = self.line(x, o, row, &columns);
                        for ((out, total), x) in tile.row(row).iter_mut().zip(&mut total).zip(x) {
                            let next = combine(*total, x.widen());
                            *out = T::narrow(if self.exclusive { *total } else { next });
                            *total = next;
                        }
                    }
                },
            );
        });
    }

    /// Scans long lines by their parts, some at a time, from their starts.
    fn scan_parts<T: Number + Plain>(
        &self,
        x: &[T],
        out: &mut [T],
        starts: &[T::Wide],
        unit: T::Wide,
        combine: &(impl Fn(T::Wide, T::Wide) -> T::Wide + Sync),
    ) {
        let parts = self.len.div_ceil(PART);
        for_each_tile(out, [self.outer, self.len, 1], [CHAINS * PART, 1], self.n(), &|mut tile| {
            let (o, first) = (tile.outer, tile.rows.start / PART);
            let x = &x[o * self.len..][tile.rows.clone()];
            let out = tile.contiguous().expect("rows of one element");
            let is_first = |p: usize| p == if self.reverse { parts - 1 } else { 0 };
            let start = |p: usize| (!is_first(p)).then(|| starts[o * parts + p]);
            vectorized(
                #[inline(always)]
                || {
                    if x.len() < CHAINS * PART {
                        for ((x, out), p) in x.chunks(PART).zip(out.chunks_mut(PART)).zip(first..) {
                            self.scan_from::<T, 1>(x, out, [start(p)], unit, combine);
                        }
                        return;
                    }
                    self.scan_from::<T, CHAINS>(x, out, std::array::from_fn(|n| start(first + n)), unit, combine);
                },
            );
        });
    }

    /// Scans `N` parts of a line that follow each other and are equally long, from their starts.
    #[inline(always)]
    fn scan_from<T: Number, const N: usize>(
        &self,
        x: &[T],
        out: &mut [T],
        starts: [Option<T::Wide>; N],
        unit: T::Wide,
        combine: impl Fn(T::Wide, T::Wide) -> T::Wide,
    ) {
        let part = x.len() / N;
        let mut totals = [unit; N];
        for i in 0..part {
            let at = if self.reverse { part - 1 - i } else { i };
            for (n, total) in totals.iter_mut().enumerate() {
                let own = x[n * part + at].widen();
                let before = if i == 0 { starts[n] } else { Some(*total) };
                let next = before.map_or(own, |before| combine(before, own));
                out[n * part + at] = T::narrow(if self.exclusive { before.unwrap_or(unit) } else { next });
                *total = next;
            }
        }
    }

    /// Scans short lines, some at a time, so that none waits for the operation before.
    #[inline(always)]
    fn scan_blocks<T: Number, const EXCLUSIVE: bool>(
        &self,
        x: &[T],
        out: &mut [T],
        unit: T::Wide,
        combine: impl Fn(T::Wide, T::Wide) -> T::Wide,
    ) {
        let (len, inner) = (self.len, self.inner);
        macro_rules! few {
            ($($len:literal)*) => {
                match [inner, len] {
                    $([1, $len] => return self.scan_few::<T, $len, EXCLUSIVE>(x, out, unit, combine),)*
                    _ => {}
                }
            };
        }
        few!(2 3 4 5 6 7 8);
        if inner == 1 {
            let group = CHAINS * len;
            for (x, out) in x.chunks(group).zip(out.chunks_mut(group)) {
                if x.len() == group {
                    self.scan_chains::<T, CHAINS, EXCLUSIVE>([len, 1], x, out, unit, &combine);
                } else {
                    let lines = x.chunks_exact(len).zip(out.chunks_exact_mut(len));
                    lines.for_each(|(x, out)| self.scan_chains::<T, 1, EXCLUSIVE>([len, 1], x, out, unit, &combine));
                }
            }
            return;
        }
        for (x, out) in x.chunks_exact(len * inner).zip(out.chunks_exact_mut(len * inner)) {
            let [wide, whole] = [inner / COLUMNS * COLUMNS, inner / CHAINS * CHAINS];
            for at in (0..wide).step_by(COLUMNS) {
                let (x, out) = (&x[at..], &mut out[at..]);
                self.scan_chains::<T, COLUMNS, EXCLUSIVE>([1, inner], x, out, unit, &combine);
            }
            for at in (wide..whole).step_by(CHAINS) {
                let (x, out) = (&x[at..], &mut out[at..]);
                self.scan_chains::<T, CHAINS, EXCLUSIVE>([1, inner], x, out, unit, &combine);
            }
            for at in whole..inner {
                self.scan_chains::<T, 1, EXCLUSIVE>([1, inner], &x[at..], &mut out[at..], unit, &combine);
            }
        }
    }

    /// Scans lines of `LEN` elements that lie one after the other.
    #[inline(always)]
    fn scan_few<T: Number, const LEN: usize, const EXCLUSIVE: bool>(
        &self,
        x: &[T],
        out: &mut [T],
        unit: T::Wide,
        combine: impl Fn(T::Wide, T::Wide) -> T::Wide,
    ) {
        for (x, out) in x.as_chunks::<LEN>().0.iter().zip(out.as_chunks_mut::<LEN>().0) {
            let mut total = unit;
            for i in 0..LEN {
                let at = if self.reverse { LEN - 1 - i } else { i };
                let next = if i == 0 { x[at].widen() } else { combine(total, x[at].widen()) };
                out[at] = match (EXCLUSIVE, i) {
                    (true, _) => T::narrow(total),
                    (false, 0) => x[at],
                    (false, _) => T::narrow(next),
                };
                total = next;
            }
        }
    }

    /// Scans `N` lines, given the elements from one to the next, and from one element of a line to the next.
    #[inline(always)]
    fn scan_chains<T: Number, const N: usize, const EXCLUSIVE: bool>(
        &self,
        [line, step]: [usize; 2],
        x: &[T],
        out: &mut [T],
        unit: T::Wide,
        combine: impl Fn(T::Wide, T::Wide) -> T::Wide,
    ) {
        let mut totals = [unit; N];
        for i in 0..self.len {
            let at = if self.reverse { self.len - 1 - i } else { i } * step;
            let (x, out) = (&x[at..at + (N - 1) * line + 1], &mut out[at..at + (N - 1) * line + 1]);
            for (n, total) in totals.iter_mut().enumerate() {
                let own = x[n * line];
                let next = if i == 0 { own.widen() } else { combine(*total, own.widen()) };
                out[n * line] = match (EXCLUSIVE, i) {
                    (true, _) => T::narrow(*total),
                    (false, 0) => own,
                    (false, _) => T::narrow(next),
                };
                *total = next;
            }
        }
    }

    /// The start of each part: the fold of the totals of the parts before it; shaped `[outer, parts, inner]`.
    fn starts<T: Number>(
        &self,
        x: &[T],
        parts: usize,
        unit: T::Wide,
        combine: &(impl Fn(T::Wide, T::Wide) -> T::Wide + Sync),
    ) -> Vec<T::Wide> {
        let mut totals = vec![unit; self.outer * parts * self.inner];
        let extents = [self.outer, parts, self.inner];
        // Nothing follows the last part in the order of accumulation.
        let is_last = |p: usize| p == if self.reverse { 0 } else { parts - 1 };
        for_each_tile(&mut totals, extents, [CHAINS, self.inner], self.n(), &|mut tile| {
            let (o, columns) = (tile.outer, tile.columns.clone());
            let [first, end] = [tile.rows.start, tile.rows.end].map(|p| self.len.min(p * PART));
            if self.inner == 1 && end - first == CHAINS * PART {
                let x = &x[o * self.len..][first..end];
                let row = |i: usize| if self.reverse { PART - 1 - i } else { i };
                let mut sums: [T::Wide; CHAINS] = std::array::from_fn(|n| x[n * PART + row(0)].widen());
                for i in 1..PART {
                    for (n, sum) in sums.iter_mut().enumerate() {
                        *sum = combine(*sum, x[n * PART + row(i)].widen());
                    }
                }
                tile.rows.clone().zip(sums).for_each(|(p, sum)| tile.row(p)[0] = sum);
                return;
            }
            for p in tile.rows.clone().filter(|&p| !is_last(p)) {
                let mut rows = self.ordered(p * PART..self.len.min((p + 1) * PART));
                let total = tile.row(p);
                let first = self.line(x, o, rows.next().expect("parts have rows"), &columns);
                total.iter_mut().zip(first).for_each(|(total, x)| *total = x.widen());
                for row in rows {
                    let x = self.line(x, o, row, &columns);
                    total.iter_mut().zip(x).for_each(|(total, x)| *total = combine(*total, x.widen()));
                }
            }
        });
        for o in 0..self.outer {
            let mut before: Option<Vec<T::Wide>> = None;
            for p in self.ordered(0..parts) {
                let start = (o * parts + p) * self.inner;
                let total = &mut totals[start..start + self.inner];
                match &mut before {
                    None => before = Some(total.to_vec()),
                    Some(before) => {
                        for (before, total) in before.iter_mut().zip(total) {
                            let next = combine(*before, *total);
                            *total = std::mem::replace(before, next);
                        }
                    }
                }
            }
        }
        totals
    }

    /// Computes the outputs in the naive way: each element folds all that belongs to it.
    ///
    /// # Panics
    /// As [`run`](Scan::run).
    pub fn reference(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert!(self.is_valid(), "{self}");
        let [x] = exactly(inputs);
        let out = only(outputs);
        with_number!(self.dtype, T => self.fold_each::<T>(view(x, self.n()), view_mut(out, self.n())));
    }

    fn fold_each<T: Number>(&self, x: &[T], out: &mut [T]) {
        let combine = |a: T::Wide, b: T::Wide| match self.kind {
            ScanKind::Sum => a.plus(b),
            ScanKind::Prod => a.times(b),
            ScanKind::Max if a.is_nan() || b.is_nan() => {
                if a.is_nan() {
                    a
                } else {
                    b
                }
            }
            ScanKind::Min if a.is_nan() || b.is_nan() => {
                if a.is_nan() {
                    a
                } else {
                    b
                }
            }
            ScanKind::Max => {
                if b > a {
                    b
                } else {
                    a
                }
            }
            ScanKind::Min => {
                if b < a {
                    b
                } else {
                    a
                }
            }
        };
        let unit = match self.kind {
            ScanKind::Sum => T::Wide::default(),
            ScanKind::Prod => T::Wide::ONE,
            ScanKind::Max => T::Wide::LOWEST,
            ScanKind::Min => T::Wide::HIGHEST,
        };
        for (at, out) in out.iter_mut().enumerate() {
            let (o, row, column) = (at / self.inner / self.len, at / self.inner % self.len, at % self.inner);
            let end = row + usize::from(self.exclusive == self.reverse);
            let rows = if self.reverse { end..self.len } else { 0..end };
            let belonging = self.ordered(rows).map(|row| x[(o * self.len + row) * self.inner + column].widen());
            *out = T::narrow(belonging.reduce(combine).unwrap_or(unit));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::testing::{Draw, assert_close, assert_twins, drawn, values_of};

    fn each(mut body: impl FnMut(DType, ScanKind, bool, bool)) {
        for dtype in [DType::F32, DType::F64, DType::I32, DType::I64, DType::U32, DType::U8] {
            for &kind in ScanKind::ALL {
                for flags in 0..4 {
                    body(dtype, kind, flags & 1 != 0, flags & 2 != 0);
                }
            }
        }
    }

    #[test]
    fn kernels_agree_with_their_twins() {
        let mut draw = Draw::new(6);
        each(|dtype, kind, reverse, exclusive| {
            for _ in 0..10 {
                let (outer, len) = (draw.below(20), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 60][draw.below(11)]);
                let inner = [0, 1, 1, 3, 6, 9, 40][draw.below(7)];
                assert_twins(&Scan { dtype, outer, len, inner, kind, reverse, exclusive }.into(), &mut draw);
            }
        });
    }

    #[test]
    fn long_lines_are_scanned_in_parts() {
        let mut draw = Draw::new(7);
        for (dtype, kind) in [
            (DType::F32, ScanKind::Max),
            (DType::I32, ScanKind::Prod),
            (DType::U8, ScanKind::Sum),
            (DType::F64, ScanKind::Sum),
            (DType::F32, ScanKind::Sum),
        ] {
            // Parts together and alone, of lines and of columns.
            for (outer, parts, rest, inner) in [(1, 4, 9, 1), (1, 4, 9, 2), (2, 9, 5, 1), (2, 8, 0, 1)] {
                for flags in 0..4 {
                    let (reverse, exclusive, len) = (flags & 1 != 0, flags & 2 != 0, parts * PART + rest);
                    let scan = Scan { dtype, outer, len, inner, kind, reverse, exclusive };
                    let x = drawn(&mut draw, dtype, outer * len * inner, kind == ScanKind::Max);
                    // A sum of 9k terms, exact except for the roundings of two orders of f64 additions, and the last one.
                    let rounding = if dtype == DType::F32 { 1.2e-7 } else { 1e-12 };
                    assert_close(&scan.into(), &[x], if kind == ScanKind::Sum { rounding } else { 0.0 });
                }
            }
        }
    }

    #[test]
    fn exclusive_scans_start_with_the_unit() {
        let scan = |kind, reverse, exclusive, x: &[f32]| {
            let scan = Scan { dtype: DType::F32, outer: 1, len: x.len(), inner: 1, kind, reverse, exclusive };
            values_of::<f32>(&scan.into(), &[x])
        };
        assert_eq!(scan(ScanKind::Sum, false, true, &[1.0, 2.0, 3.0]), [0.0, 1.0, 3.0]);
        assert_eq!(scan(ScanKind::Prod, true, true, &[1.0, 2.0, 3.0]), [6.0, 3.0, 1.0]);
        assert_eq!(scan(ScanKind::Max, false, true, &[1.0, 0.0]), [f32::NEG_INFINITY, 1.0]);
        assert!(scan(ScanKind::Sum, false, false, &[-0.0])[0].is_sign_negative());
    }
}
