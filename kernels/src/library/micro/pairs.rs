//! Gradients of images with a stride: outputs of two phases in one tile.
//!
//! An output of such a gradient meets those taps of the filter alone that lie at its distance from the grid of the stride,
//! so that neighbours are of different phases, each with a filter of its own. In a tile of one phase and one vector of
//! channels, each multiplication takes a load. But two phases have pixels of the cotangent in common, which are read once
//! for both. Each phase meets its pixels in the order that it has alone, so that no bit differs.

use super::heights::NextHeight;
use super::simd::Simd;
use super::sliding::{MOST_TAPS, step};
use super::tile::{finish, tap_sums};

/// A pixel that one phase meets, or both.
pub(super) struct SharedPixel {
    /// Its distance from the first pixel.
    pub(super) at: isize,
    /// For each phase that meets it, where the rows of its channels begin in the filters.
    pub(super) filters: [Option<usize>; 2],
}

/// Lines of outputs of two phases: the pixel at distance `at` of output i of line l has its channels from
/// `a + l * a_line + i * a_row + at` on.
pub(super) struct PhasePair<'a, T> {
    pub(super) lines: usize,
    /// Outputs of a phase in a line.
    pub(super) rows: usize,
    /// The pixels, in the order in which both phases meet them.
    pub(super) pixels: &'a [SharedPixel],
    pub(super) channels: usize,
    /// The first pixel, and the distances of lines and outputs.
    pub(super) a: *const T,
    pub(super) a_line: usize,
    pub(super) a_row: usize,
    /// The filters, and the distance of their rows.
    pub(super) b: *const T,
    pub(super) b_row: usize,
    /// The first output of each phase, and the distances of lines and outputs of a phase.
    pub(super) c: [*mut T; 2],
    pub(super) c_line: usize,
    pub(super) c_row: usize,
}

/// Computes the lines.
///
/// # Safety
///
/// The instruction set of `S`, pointers valid for the extents and for a tile past the last output, and one vector of
/// results for each output, which is overwritten.
#[inline(always)]
pub(super) unsafe fn pairs<S: Simd>(x: &PhasePair<'_, S::Elem>) {
    for line in 0..x.lines {
        let mut i = 0;
        while i < x.rows {
            let left = x.rows - i;
            let height = NextHeight::<14, 8, 6, 4, 2>::of(left);
            let rows = left.min(height);
            // SAFETY: the rows lie inside the line.
            unsafe {
                let a = x.a.add(line * x.a_line + i * x.a_row);
                match height {
                    14 => tile::<S, 14>(x, a, line * x.c_line + i * x.c_row, rows),
                    8 => tile::<S, 8>(x, a, line * x.c_line + i * x.c_row, rows),
                    6 => tile::<S, 6>(x, a, line * x.c_line + i * x.c_row, rows),
                    _ => tile::<S, 4>(x, a, line * x.c_line + i * x.c_row, rows),
                }
            }
            i += rows;
        }
    }
}

/// One tile: `M` outputs of each phase, from distance `c` on.
#[inline(always)]
unsafe fn tile<S: Simd, const M: usize>(x: &PhasePair<'_, S::Elem>, a: *const S::Elem, c: usize, rows: usize) {
    // SAFETY: the caller's block covers the filters, the image and the outputs.
    unsafe {
        let mut sums = [[S::zero(); 2]; M];
        for pixel in x.pixels {
            let a = a.offset(pixel.at);
            match pixel.filters {
                [Some(first), None] => steps::<S, M, true, false>(&mut sums, x, a, [first, 0]),
                [None, Some(second)] => steps::<S, M, false, true>(&mut sums, x, a, [0, second]),
                [Some(first), Some(second)] => steps::<S, M, true, true>(&mut sums, x, a, [first, second]),
                [None, None] => {}
            }
        }
        finish::<S, M, 1>(tap_sums(&sums, 0), [x.c[0].add(c); 2], [x.c_row; 2], true, rows, S::LANES);
        finish::<S, M, 1>(tap_sums(&sums, 1), [x.c[1].add(c); 2], [x.c_row; 2], true, rows, S::LANES);
    }
}

/// All channels of one pixel for each output, for one phase or both.
#[inline(always)]
unsafe fn steps<S: Simd, const M: usize, const FIRST: bool, const SECOND: bool>(
    sums: &mut [[S::Vector; 2]; M],
    x: &PhasePair<'_, S::Elem>,
    mut a: *const S::Elem,
    filters: [usize; 2],
) {
    // SAFETY: handed on from the tile.
    unsafe {
        let (mut first, mut second) = (x.b.wrapping_add(filters[0]), x.b.wrapping_add(filters[1]));
        for _ in 0..x.channels {
            let mut rows = [S::zero(); MOST_TAPS];
            if FIRST {
                rows[0] = S::load(first);
            }
            if SECOND {
                rows[1] = S::load(second);
            }
            step::<S, 2, M>(sums, a, x.a_row, rows, [usize::from(!FIRST), 1 + usize::from(SECOND)]);
            a = a.add(1);
            first = first.wrapping_add(x.b_row);
            second = second.wrapping_add(x.b_row);
        }
    }
}
