//! Arrays one after another along an axis: copies of runs of memory.

use retape_runtime::{DType, Shape};
use smallvec::SmallVec;

use super::extents::{Checked, count, countable};
use super::number::with_bits;
use super::text::descriptor;
use super::view::{Plain, for_each_chunk, only, stream_runs, view, view_mut};
use crate::ensure::ensure;

descriptor! {
    /// Arrays joined along an axis: of the result shaped `[outer, sum of lens, inner]`, each input holds the part shaped
    /// `[outer, its len, inner]`. Its first run of `len * inner` elements begins at an offset, and each other one a pitch
    /// after the one before.
    Join "join" {
        /// Any dtype.
        dtype: DType,
        /// The number of positions before the axis.
        outer: usize,
        /// The extent of each input along the axis.
        lens: Shape,
        /// The number of positions after the axis.
        inner: usize,
        /// The elements before the first run of each input.
        offsets: Shape,
        /// The elements from the start of one run of each input to the start of the next.
        pitches: Shape,
    }
}

/// Where an input lies in its buffer and in each line of the result.
#[derive(Clone, Copy)]
pub(crate) struct JoinedPart {
    /// Where its part of a line starts.
    pub(crate) start: usize,
    /// The elements of a run.
    pub(crate) width: usize,
    /// The elements before the first run.
    pub(crate) offset: usize,
    /// The elements from the start of a run to the start of the next.
    pub(crate) pitch: usize,
}

impl JoinedPart {
    /// The elements of the buffer that holds the runs, if they can be counted.
    fn buffer_len(&self, outer: usize) -> Option<usize> {
        if outer == 0 || self.width == 0 {
            return Some(0);
        }
        (outer - 1).checked_mul(self.pitch)?.checked_add(self.offset)?.checked_add(self.width)
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
    /// A join of inputs that hold nothing else than their parts.
    #[must_use]
    pub fn contiguous(dtype: DType, outer: usize, lens: Shape, inner: usize) -> Join {
        let offsets = lens.iter().map(|_| 0).collect();
        let pitches = lens.iter().map(|len| len.saturating_mul(inner)).collect();
        Join { dtype, outer, lens, inner, offsets, pitches }
    }

    fn check(&self) -> Checked {
        ensure!(!self.lens.is_empty(), "nothing is joined");
        let [n, n_offsets, n_pitches] = [&self.lens, &self.offsets, &self.pitches].map(|of_inputs| of_inputs.len());
        ensure!(n == n_offsets && n == n_pitches, "{n} inputs have {n_offsets} offsets and {n_pitches} pitches");
        let total = self.lens.iter().try_fold(0_usize, |sum, &len| sum.checked_add(len));
        let total = total.ok_or_else(|| format!("the sum of {:?} cannot be counted", &self.lens[..]))?;
        countable("the result", &[self.outer, total, self.inner])?;
        for part in self.parts() {
            let JoinedPart { offset, pitch, .. } = part;
            let what = format_args!("an input at offset {offset} with runs at distance {pitch}");
            let len = part.buffer_len(self.outer).ok_or_else(|| format!("{what} ends beyond what can be counted"));
            countable(what, &[len?])?;
        }
        Ok(())
    }

    /// Where the inputs lie.
    pub(crate) fn parts(&self) -> impl Iterator<Item = JoinedPart> {
        let widths = self.lens.iter().map(|&len| len.saturating_mul(self.inner));
        let layouts = self.offsets.iter().zip(self.pitches.iter());
        widths.zip(layouts).scan(0, |next, (width, (&offset, &pitch))| {
            let start: usize = *next;
            *next = start.saturating_add(width);
            Some(JoinedPart { start, width, offset, pitch })
        })
    }

    /// The elements of the result at one position before the axis.
    pub(crate) fn line(&self) -> usize {
        self.lens.iter().fold(0_usize, |sum, &len| sum.saturating_add(len)).saturating_mul(self.inner)
    }

    /// The dtype of each input, and the least number of elements of its buffer.
    pub fn inputs(&self) -> Vec<(DType, usize)> {
        self.parts().map(|part| (self.dtype, part.buffer_len(self.outer).unwrap_or(usize::MAX))).collect()
    }

    /// The number of elements that are read of each input, those that repeat counted once.
    pub(super) fn n_read(&self) -> SmallVec<[usize; 6]> {
        let n_runs = |part: &JoinedPart| if part.pitch == 0 { self.outer.min(1) } else { self.outer };
        self.parts().map(|part| count(&[n_runs(&part), part.width])).collect()
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

    fn copy<'x, T: Plain>(&self, inputs: &[&'x [u8]], out: &mut [u8]) {
        assert!(self.is_valid(), "{self}");
        assert_eq!(inputs.len(), self.lens.len(), "inputs of {self}");
        let line = self.line();
        let out = view_mut::<T>(out, self.outer * line);
        let input = |((bytes, part), (_, len)): ((&&'x [u8], JoinedPart), _)| JoinedInput {
            runs: view(bytes, len).get(part.offset..).unwrap_or_default(),
            part,
        };
        let parts = inputs.iter().zip(self.parts()).zip(self.inputs()).map(input);
        let parts: Vec<JoinedInput<'_, T>> = parts.filter(|input| input.part.width > 0).collect();
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
            for (x, part) in inputs.iter().zip(self.parts()) {
                for n in 0..part.width {
                    let from = part.offset + outer * part.pitch + n;
                    out[at..at + size].copy_from_slice(&x[from * size..(from + 1) * size]);
                    at += size;
                }
            }
        }
    }
}

/// An input.
struct JoinedInput<'x, T> {
    /// Its buffer from the first run on.
    runs: &'x [T],
    part: JoinedPart,
}

impl<T: Plain> JoinedInput<'_, T> {
    /// Copies the runs of some lines, of which `first` is the first.
    fn copy_to_lines(&self, first: usize, out: &mut [T], line: usize) {
        let JoinedPart { start, width, pitch, .. } = self.part;
        let runs = &self.runs[first * pitch..];
        // A copy of a few elements costs more as a call than as moves.
        match width {
            1 if pitch == 1 => out.chunks_exact_mut(line).zip(runs).for_each(|(line, &x)| line[start] = x),
            1 => self.copy_runs::<1>(runs, out, line),
            2 => self.copy_runs::<2>(runs, out, line),
            3 => self.copy_runs::<3>(runs, out, line),
            4 => self.copy_runs::<4>(runs, out, line),
            5 => self.copy_runs::<5>(runs, out, line),
            6 => self.copy_runs::<6>(runs, out, line),
            7 => self.copy_runs::<7>(runs, out, line),
            8 => self.copy_runs::<8>(runs, out, line),
            _ => {
                for (n, line) in out.chunks_exact_mut(line).enumerate() {
                    line[start..start + width].copy_from_slice(&runs[n * pitch..n * pitch + width]);
                }
            }
        }
    }

    /// Copies runs of a known length to as many lines.
    fn copy_runs<const WIDTH: usize>(&self, runs: &[T], out: &mut [T], line: usize) {
        let JoinedPart { start, pitch, .. } = self.part;
        let lines = out.chunks_exact_mut(line).map(|line| &mut line[start..start + WIDTH]);
        if pitch == WIDTH {
            lines.zip(runs.as_chunks::<WIDTH>().0).for_each(|(to, run)| to.copy_from_slice(run));
        } else {
            lines.enumerate().for_each(|(n, to)| to.copy_from_slice(&runs[n * pitch..n * pitch + WIDTH]));
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
    let mut next = parts.partition_point(|input| input.part.start <= column).saturating_sub(1);
    std::iter::from_fn(move || {
        if out.is_empty() {
            return None;
        }
        let JoinedInput { runs, part } = &parts[next];
        let skipped = column - part.start;
        let from = n * part.pitch + skipped;
        let len = out.len().min(part.width - skipped);
        let (run, rest) = std::mem::take(&mut out).split_at_mut(len);
        (out, column, next) = (rest, column + len, next + 1);
        if column == line {
            (n, column, next) = (n + 1, 0, 0);
        }
        Some((run, &runs[from..from + len]))
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
            for round in 0..60 {
                let lens: Vec<usize> = (0..draw.below(6) + 1).map(|_| [0, 1, 2, 3, 70][draw.below(5)]).collect();
                let (outer, inner) = ([0, 1, 2, 300][draw.below(4)], [0, 1, 5, 16][draw.below(4)]);
                let mut join = Join::contiguous(dtype, outer, Shape::new(&lens), inner);
                if round % 2 == 1 {
                    // Parts of larger arrays, and runs that repeat.
                    join.offsets = lens.iter().map(|_| draw.below(9)).collect();
                    let apart = |&len: &usize| [len * inner, len * inner + 3, 0, 1][draw.below(4)];
                    join.pitches = lens.iter().map(apart).collect();
                }
                assert_twins(&join.into(), &mut draw);
            }
        }
    }

    #[test]
    fn long_lines_are_copied_in_parts() {
        let mut draw = Draw::new(22);
        for lens in [&[CHUNK + 3, 0, 5, 2 * CHUNK, 0][..], &[0, 1, 3 * CHUNK], &[CHUNK]] {
            let join = Join::contiguous(DType::F32, 2, Shape::new(lens), 1);
            let offsets = lens.iter().map(|_| 7).collect();
            assert_twins(&Join { offsets, ..join.clone() }.into(), &mut draw);
            assert_twins(&join.into(), &mut draw);
        }
    }

    #[test]
    fn many_parts_of_long_lines_follow_each_other() {
        let mut draw = Draw::new(23);
        for outer in [1, 3] {
            let lens: Vec<usize> = (0..2000).map(|_| [0, 1, 8, 40][draw.below(4)]).collect();
            assert!(lens.iter().sum::<usize>() > CHUNK);
            assert_twins(&Join::contiguous(DType::F32, outer, Shape::new(&lens), 1).into(), &mut draw);
        }
    }

    #[test]
    fn long_runs_go_past_the_caches() {
        let mut draw = Draw::new(24);
        for dtype in DType::ALL {
            for lens in [&[600, 700][..], &[1, 1200, 0, 2000], &[3000, 5]] {
                let join = Join::contiguous(dtype, 7, Shape::new(lens), 1);
                let pitches = lens.iter().map(|len| len + 1).collect();
                assert_twins(&Join { pitches, ..join.clone() }.into(), &mut draw);
                assert_twins(&join.into(), &mut draw);
            }
        }
    }

    #[test]
    fn parts_that_cannot_be_counted_are_refused() {
        let join = |lens: &[usize]| Join::contiguous(DType::F32, 2, Shape::new(lens), 3);
        assert!(join(&[1, 0]).is_valid());
        assert!(!join(&[]).is_valid() && !join(&[usize::MAX, 1]).is_valid() && !join(&[usize::MAX / 8]).is_valid());
        for far in [usize::MAX, usize::MAX / 16] {
            assert!(!Join { offsets: Shape::new(&[far, 0]), ..join(&[1, 1]) }.is_valid(), "{far}");
            assert!(!Join { pitches: Shape::new(&[0, far]), ..join(&[1, 1]) }.is_valid(), "{far}");
        }
        assert!(!Join { offsets: Shape::new(&[0]), ..join(&[1, 1]) }.is_valid());
        assert!(!Join { pitches: Shape::new(&[3, 3, 3]), ..join(&[1, 1]) }.is_valid());
    }
}
