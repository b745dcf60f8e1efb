//! Arrays one after another along an axis: copies of runs of memory.

use retape_runtime::{DType, Shape};

use super::extents::{Checked, count, countable};
use super::number::with_bits;
use super::text::descriptor;
use super::view::{Plain, for_each_chunk, only, stream_runs, view, view_mut};
use crate::ensure::ensure;

descriptor! {
    /// Arrays joined along an axis: of the result shaped `[outer, sum of lens, inner]`, each input is the part shaped
    /// `[outer, its len, inner]`.
    Join "join" {
        /// Any dtype.
        dtype: DType,
        /// The number of positions before the axis.
        outer: usize,
        /// The extent of each input along the axis.
        lens: Shape,
        /// The number of positions after the axis.
        inner: usize,
    }
}

/// Elements that a thread takes at a time.
const CHUNK: usize = 1 << 14;

/// Bytes of a result from which on it is written past the caches, which would read its lines first: with as many of the
/// inputs it is more than a last-level cache of 32 MiB holds until someone reads it. Below, such a cache is faster.
const STREAMED: usize = if cfg!(test) { 1 << 12 } else { 1 << 24 };

/// Bytes of runs on average from which on most of their cache lines are whole.
const LONG_RUN: usize = 512;

impl Join {
    fn check(&self) -> Checked {
        ensure!(!self.lens.is_empty(), "nothing is joined");
        let total = self.lens.iter().try_fold(0_usize, |sum, &len| sum.checked_add(len));
        let total = total.ok_or_else(|| format!("the sum of {:?} cannot be counted", &self.lens[..]))?;
        countable("the result", &[self.outer, total, self.inner])
    }

    /// Of each input, where its part of a line of the result starts, and its elements there.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (usize, usize)> {
        let widths = self.lens.iter().map(|&len| len * self.inner);
        widths.scan(0, |next, width| {
            let start = *next;
            *next += width;
            Some((start, width))
        })
    }

    /// The elements of the result at one position before the axis.
    pub(crate) fn line(&self) -> usize {
        self.lens.iter().fold(0_usize, |sum, &len| sum.saturating_add(len)).saturating_mul(self.inner)
    }

    /// The dtype and the number of elements of each input.
    pub fn inputs(&self) -> Vec<(DType, usize)> {
        self.lens.iter().map(|&len| (self.dtype, count(&[self.outer, len, self.inner]))).collect()
    }

    /// The dtype and the number of elements of each output.
    pub fn outputs(&self) -> Vec<(DType, usize)> {
        vec![(self.dtype, count(&[self.outer, self.line()]))]
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
        assert_eq!(inputs.len(), self.lens.len(), "inputs of {self}");
        let line = self.line();
        let out = view_mut::<T>(out, self.outer * line);
        let parts: Vec<JoinedInput<'_, T>> = inputs
            .iter()
            .zip(self.parts())
            .map(|(bytes, (start, width))| JoinedInput { x: view(bytes, self.outer * width), start, width })
            .filter(|part| part.width > 0)
            .collect();
        let work = out.len();
        if size_of_val(out) >= STREAMED && line * size_of::<T>() >= parts.len() * LONG_RUN {
            for_each_chunk(out, CHUNK, work, &|n, out| stream_runs(runs(&parts, n * CHUNK, out, line)));
        } else if line <= CHUNK {
            let lines = CHUNK / line.max(1);
            for_each_chunk(out, lines * line, work, &|n, out| {
                parts.iter().for_each(|part| part.copy_to_lines(n * lines, out, line));
            });
        } else {
            for_each_chunk(out, CHUNK, work, &|n, out| {
                runs(&parts, n * CHUNK, out, line).for_each(|(to, from)| to.copy_from_slice(from));
            });
        }
    }

    /// Computes the outputs in the naive way, element by element.
    ///
    /// # Panics
    /// As [`run`](Join::run).
    pub fn reference(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert!(self.is_valid(), "{self}");
        let (out, size) = (only(outputs), self.dtype.size());
        let n_lines = self.outer;
        for outer in 0..n_lines {
            let mut at = outer * self.line() * size;
            for (x, &len) in inputs.iter().zip(self.lens.iter()) {
                for n in outer * len * self.inner..(outer + 1) * len * self.inner {
                    out[at..at + size].copy_from_slice(&x[n * size..(n + 1) * size]);
                    at += size;
                }
            }
        }
    }
}

/// An input and the place of its runs in each line of the result.
struct JoinedInput<'x, T> {
    x: &'x [T],
    start: usize,
    width: usize,
}

impl<T: Plain> JoinedInput<'_, T> {
    /// Copies the runs of some lines, of which `first` is the first.
    fn copy_to_lines(&self, first: usize, out: &mut [T], line: usize) {
        let x = &self.x[first * self.width..];
        // A copy of a few elements costs more as a call than as moves.
        match self.width {
            1 => out.chunks_exact_mut(line).zip(x).for_each(|(line, &x)| line[self.start] = x),
            2 => self.copy_runs::<2>(x, out, line),
            3 => self.copy_runs::<3>(x, out, line),
            4 => self.copy_runs::<4>(x, out, line),
            5 => self.copy_runs::<5>(x, out, line),
            6 => self.copy_runs::<6>(x, out, line),
            7 => self.copy_runs::<7>(x, out, line),
            8 => self.copy_runs::<8>(x, out, line),
            _ => {
                let runs = x.chunks_exact(self.width);
                let lines = out.chunks_exact_mut(line);
                lines.zip(runs).for_each(|(line, run)| line[self.start..self.start + self.width].copy_from_slice(run));
            }
        }
    }

    /// Copies runs of a known length to as many lines.
    fn copy_runs<const WIDTH: usize>(&self, x: &[T], out: &mut [T], line: usize) {
        let (runs, _) = x.as_chunks::<WIDTH>();
        for (line, run) in out.chunks_exact_mut(line).zip(runs) {
            line[self.start..self.start + WIDTH].copy_from_slice(run);
        }
    }
}

/// The elements of the result from `at` on in runs, with those of the inputs that they become.
///
/// Only the part of the first run is searched for: the next run is of the next part, or of the first one in the next line.
fn runs<'a, T: Plain>(
    parts: &'a [JoinedInput<'_, T>],
    at: usize,
    mut out: &'a mut [T],
    line: usize,
) -> impl Iterator<Item = (&'a mut [T], &'a [T])> {
    let (mut n, mut column) = (at / line.max(1), at % line.max(1));
    let mut next = parts.partition_point(|part| part.start <= column).saturating_sub(1);
    std::iter::from_fn(move || {
        if out.is_empty() {
            return None;
        }
        let part = &parts[next];
        let skipped = column - part.start;
        let from = n * part.width + skipped;
        let len = out.len().min(part.width - skipped);
        let (run, rest) = std::mem::take(&mut out).split_at_mut(len);
        (out, column, next) = (rest, column + len, next + 1);
        if column == line {
            (n, column, next) = (n + 1, 0, 0);
        }
        Some((run, &part.x[from..from + len]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::testing::{Draw, assert_twins};

    #[test]
    fn kernels_agree_with_their_twins() {
        let mut draw = Draw::new(21);
        for dtype in DType::ALL {
            for _ in 0..40 {
                let lens: Vec<usize> = (0..draw.below(6) + 1).map(|_| [0, 1, 2, 3, 70][draw.below(5)]).collect();
                let (outer, inner) = ([0, 1, 2, 300][draw.below(4)], [0, 1, 5, 16][draw.below(4)]);
                assert_twins(&Join { dtype, outer, lens: Shape::new(&lens), inner }.into(), &mut draw);
            }
        }
    }

    #[test]
    fn long_lines_are_copied_in_parts() {
        let mut draw = Draw::new(22);
        for lens in [&[CHUNK + 3, 0, 5, 2 * CHUNK, 0][..], &[0, 1, 3 * CHUNK], &[CHUNK]] {
            assert_twins(&Join { dtype: DType::F32, outer: 2, lens: Shape::new(lens), inner: 1 }.into(), &mut draw);
        }
    }

    #[test]
    fn many_parts_of_long_lines_follow_each_other() {
        let mut draw = Draw::new(23);
        for outer in [1, 3] {
            let lens: Vec<usize> = (0..2000).map(|_| [0, 1, 8, 40][draw.below(4)]).collect();
            assert!(lens.iter().sum::<usize>() > CHUNK);
            assert_twins(&Join { dtype: DType::F32, outer, lens: Shape::new(&lens), inner: 1 }.into(), &mut draw);
        }
    }

    #[test]
    fn long_runs_go_past_the_caches() {
        let mut draw = Draw::new(24);
        for dtype in DType::ALL {
            for lens in [&[600, 700][..], &[1, 1200, 0, 2000], &[3000, 5]] {
                let lens = Shape::new(lens);
                assert_twins(&Join { dtype, outer: 7, lens, inner: 1 }.into(), &mut draw);
            }
        }
    }

    #[test]
    fn parts_that_cannot_be_counted_are_refused() {
        let join = |lens: &[usize]| Join { dtype: DType::F32, outer: 2, lens: Shape::new(lens), inner: 3 };
        assert!(join(&[1, 0]).is_valid());
        assert!(!join(&[]).is_valid() && !join(&[usize::MAX, 1]).is_valid() && !join(&[usize::MAX / 8]).is_valid());
    }
}
