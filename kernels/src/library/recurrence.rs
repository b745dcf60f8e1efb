//! Linear recurrences along an axis.
//!
//! A line is computed from its first state on, whatever its length: parts of a line could be joined by the products of
//! their coefficients, but these may overflow where no state does. States of `f32` are kept in `f64` and rounded once
//! per element.

use retape_runtime::DType;

use super::extents::{Checked, count, countable};
use super::number::{Number, is_number, with_number};
use super::scan::{CHAINS, COLUMNS, blocks_of_task, has_short_blocks};
use super::text::descriptor;
use super::view::{Plain, exactly, for_each_chunk, for_each_tile, only, tile_columns, vectorized, view, view_mut};
use crate::ensure::ensure;

descriptor! {
    /// The states `s[i] = terms[i] + coefficients[i] * s[i - 1]` along an axis, from `s[0] = terms[0]`. The inputs are the
    /// terms and the coefficients.
    Recurrence "recurrence" {
        /// Any dtype but `bool` and the 16-bit floats.
        dtype: DType,
        /// The number of positions before the axis.
        outer: usize,
        /// The extent of the axis.
        len: usize,
        /// The number of positions after the axis.
        inner: usize,
        /// Whether the last state is the first: `s[i - 1]` is then `s[i + 1]`.
        reverse: bool,
        /// Whether the coefficient is that at the state before, as in the derivative of a recurrence.
        lagging: bool,
    }
}

impl Recurrence {
    fn check(&self) -> Checked {
        ensure!(is_number(self.dtype) && self.dtype != DType::Bool, "{} has no recurrences", self.dtype);
        countable("the input", &[self.outer, self.len, self.inner])
    }

    fn n(&self) -> usize {
        count(&[self.outer, self.len, self.inner])
    }

    /// A product and a sum for each element.
    pub(super) fn flops(&self) -> u64 {
        2 * self.n() as u64
    }

    /// The dtype and the number of elements of each input.
    pub fn inputs(&self) -> Vec<(DType, usize)> {
        vec![(self.dtype, self.n()); 2]
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
        let (inputs, out) = (exactly(inputs), only(outputs));
        with_number!(self.dtype, T => {
            self.states::<T>(inputs.map(|x| view(x, self.n())), view_mut(out, self.n()));
        });
    }

    /// The row of state `i`, and that of its coefficient. The first state has none.
    #[inline(always)]
    fn rows(&self, i: usize) -> (usize, usize) {
        let row = |i: usize| if self.reverse { self.len - 1 - i } else { i };
        (row(i), row(if self.lagging { i.saturating_sub(1) } else { i }))
    }

    fn states<T: Number + Plain>(&self, inputs: [&[T]; 2], out: &mut [T]) {
        let block = self.len * self.inner;
        if block == 0 {
            return;
        }
        if self.inner == 1 || has_short_blocks([self.len, self.inner]) {
            let task = blocks_of_task([self.len, self.inner]) * block;
            for_each_chunk(out, task, self.n(), &|i, out| {
                let inputs = inputs.map(|x| &x[i * task..][..out.len()]);
                vectorized(
                    #[inline(always)]
                    || self.blocks(inputs, out),
                );
            });
            return;
        }
        let tiles = [self.len, tile_columns(self.outer, self.inner)];
        for_each_tile(out, [self.outer, self.len, self.inner], tiles, self.n(), &|mut tile| {
            let (first, columns) = (tile.outer * block, tile.columns.clone());
            let row = |row: usize| {
                let start = first + row * self.inner;
                start + columns.start..start + columns.end
            };
            vectorized(
                #[inline(always)]
                || {
                    let mut states = vec![T::Wide::default(); columns.len()];
                    for i in 0..self.len {
                        let (at, coefficients) = self.rows(i);
                        let (terms, coefficients) = (&inputs[0][row(at)], &inputs[1][row(coefficients)]);
                        let out = tile.row(at);
                        if i == 0 {
                            out.copy_from_slice(terms);
                            states.iter_mut().zip(terms).for_each(|(state, term)| *state = term.widen());
                            continue;
                        }
                        for (((out, state), term), by) in out.iter_mut().zip(&mut states).zip(terms).zip(coefficients) {
                            *state = term.widen().plus(by.widen().times(*state));
                            *out = T::narrow(*state);
                        }
                    }
                },
            );
        });
    }

    /// The states of short lines, some at a time, so that none waits for the operation before.
    #[inline(always)]
    fn blocks<T: Number>(&self, inputs: [&[T]; 2], out: &mut [T]) {
        let (len, inner) = (self.len, self.inner);
        let block = len * inner;
        macro_rules! few {
            ($($len:literal)*) => {
                match [inner, len] {
                    $([1, $len] => return self.lines::<T, $len>(inputs, out),)*
                    _ => {}
                }
            };
        }
        few!(2 3 4);
        if inner == 1 {
            let whole = out.len() / (CHAINS * len) * (CHAINS * len);
            for at in (0..whole).step_by(CHAINS * len) {
                self.chains::<T, CHAINS>([len, 1], inputs.map(|x| &x[at..]), &mut out[at..]);
            }
            for at in (whole..out.len()).step_by(len) {
                self.chains::<T, 1>([len, 1], inputs.map(|x| &x[at..]), &mut out[at..]);
            }
            return;
        }
        for first in (0..out.len()).step_by(block) {
            let [wide, whole] = [inner / COLUMNS * COLUMNS, inner / CHAINS * CHAINS].map(|columns| first + columns);
            for at in (first..wide).step_by(COLUMNS) {
                self.chains::<T, COLUMNS>([1, inner], inputs.map(|x| &x[at..]), &mut out[at..]);
            }
            for at in (wide..whole).step_by(CHAINS) {
                self.chains::<T, CHAINS>([1, inner], inputs.map(|x| &x[at..]), &mut out[at..]);
            }
            for at in whole..first + inner {
                self.chains::<T, 1>([1, inner], inputs.map(|x| &x[at..]), &mut out[at..]);
            }
        }
    }

    /// The states of lines of `LEN` elements that lie one after the other.
    #[inline(always)]
    fn lines<T: Number, const LEN: usize>(&self, inputs: [&[T]; 2], out: &mut [T]) {
        let [terms, coefficients] = inputs.map(|x| x.as_chunks::<LEN>().0);
        for ((terms, coefficients), out) in terms.iter().zip(coefficients).zip(out.as_chunks_mut::<LEN>().0) {
            let row = |i: usize| if self.reverse { LEN - 1 - i } else { i };
            let mut state = terms[row(0)].widen();
            out[row(0)] = terms[row(0)];
            for i in 1..LEN {
                let by = coefficients[row(if self.lagging { i - 1 } else { i })];
                state = terms[row(i)].widen().plus(by.widen().times(state));
                out[row(i)] = T::narrow(state);
            }
        }
    }

    /// The states of `N` lines, given the elements from one to the next, and from one element of a line to the next.
    #[inline(always)]
    fn chains<T: Number, const N: usize>(&self, [line, step]: [usize; 2], inputs: [&[T]; 2], out: &mut [T]) {
        let reach = (N - 1) * line + 1;
        let mut states = [T::Wide::default(); N];
        for i in 0..self.len {
            let (at, coefficients) = self.rows(i);
            let [at, coefficients] = [at * step, coefficients * step];
            let (terms, coefficients) = (&inputs[0][at..at + reach], &inputs[1][coefficients..coefficients + reach]);
            let out = &mut out[at..at + reach];
            for (n, state) in states.iter_mut().enumerate() {
                let term = terms[n * line];
                let next = match i {
                    0 => term.widen(),
                    _ => term.widen().plus(coefficients[n * line].widen().times(*state)),
                };
                out[n * line] = if i == 0 { term } else { T::narrow(next) };
                *state = next;
            }
        }
    }

    /// Computes the outputs in the naive way, line after line.
    ///
    /// # Panics
    /// As [`run`](Recurrence::run).
    pub fn reference(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert!(self.is_valid(), "{self}");
        let (inputs, out) = (exactly(inputs), only(outputs));
        with_number!(self.dtype, T => self.each::<T>(inputs.map(|x| view(x, self.n())), view_mut(out, self.n())));
    }

    fn each<T: Number>(&self, [terms, coefficients]: [&[T]; 2], out: &mut [T]) {
        let mut order: Vec<usize> = (0..self.len).collect();
        if self.reverse {
            order.reverse();
        }
        for line in 0..self.outer * self.inner {
            let (o, column) = (line / self.inner, line % self.inner);
            let element = |row: usize| (o * self.len + row) * self.inner + column;
            let mut state: Option<T::Wide> = None;
            let mut before = None;
            for &row in &order {
                let term = terms[element(row)];
                let by = coefficients[element(before.filter(|_| self.lagging).unwrap_or(row))];
                state = Some(state.map_or(term.widen(), |state| term.widen().plus(by.widen().times(state))));
                out[element(row)] = state.map_or(term, T::narrow);
                before = Some(row);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::testing::{Draw, assert_twins, values_of};

    #[test]
    fn kernels_agree_with_their_twins() {
        let mut draw = Draw::new(9);
        for dtype in [DType::F32, DType::F64, DType::I32, DType::I64, DType::U32, DType::U8] {
            for flags in 0..4 {
                let [reverse, lagging] = [flags & 1 != 0, flags & 2 != 0];
                for _ in 0..30 {
                    let (outer, len) = (draw.below(20), [0, 1, 2, 3, 4, 7, 8, 9, 60][draw.below(9)]);
                    let inner = [0, 1, 1, 3, 6, 9, 40][draw.below(7)];
                    assert_twins(&Recurrence { dtype, outer, len, inner, reverse, lagging }.into(), &mut draw);
                }
            }
        }
    }

    #[test]
    fn states_follow_from_those_before() {
        let states = |reverse, lagging, terms: &[f32], coefficients: &[f32]| {
            let [outer, len, inner] = [1, terms.len(), 1];
            let kernel = Recurrence { dtype: DType::F32, outer, len, inner, reverse, lagging };
            values_of::<f32>(&kernel.into(), &[terms, coefficients])
        };
        let (terms, coefficients) = ([1.0, 2.0, 3.0], [f32::NAN, 2.0, 10.0]);
        assert_eq!(states(false, false, &terms, &coefficients), [1.0, 4.0, 43.0]);
        assert_eq!(states(true, true, &terms, &coefficients), [65.0, 32.0, 3.0]);
        assert_eq!(states(true, false, &terms, &[10.0, 2.0, f32::NAN]), [81.0, 8.0, 3.0]);
        assert_eq!(states(false, true, &terms, &[2.0, 10.0, f32::NAN]), [1.0, 4.0, 43.0]);
        // Products of coefficients overflow where the states do not, and the first state keeps its sign.
        assert_eq!(states(false, false, &[-0.0; 3000], &[8.0; 3000]).iter().map(|x| x.abs()).sum::<f32>(), 0.0);
        assert!(states(false, false, &[-0.0], &[1.0])[0].is_sign_negative());
    }
}
