//! Chains of a filter's gradient for taps that follow each other along a line.
//!
//! Where a filter slides by a pixel, its second tap meets a pixel with the output after the one with which the first tap
//! met it. A pixel that is read once therefore serves all these taps, while the cotangents of the last outputs wait in
//! registers: three taps of eight channels take nine loads for 24 multiplications, where rows of taps take one load
//! for each. The chain of an element goes over the same outputs in the same order.

use super::heights::NextHeight;
use super::simd::Simd;
use super::tile::{Lines, Shortest, finish, tap_sums};

/// Most taps of one piece of a line.
pub(super) const MOST_TAPS: usize = 3;

/// Rows that a last tile, of whatever kernel, may read past the last one.
pub(super) const SPARE_ROWS: usize = 16;

/// The chains of two or three taps, for some rows: element (output x of line l, row i, tap t) of A is at
/// `a + l * a_line + (x + t) * a_pixel + i * a_row`.
#[derive(Clone, Copy)]
pub(super) struct Sliding<T> {
    /// 2 to [`MOST_TAPS`].
    pub(super) taps: usize,
    /// Lines of outputs, and outputs of a line, of which there are no fewer than taps.
    pub(super) outputs: [usize; 2],
    /// Pixels before and after the image in each line, fewer than taps, that are left out.
    pub(super) padding: [usize; 2],
    /// Rows and columns of C for each tap.
    pub(super) rows: usize,
    pub(super) cols: usize,
    /// The pixel that the first output meets with the first tap. Readable for [`SPARE_ROWS`] past the last one.
    pub(super) a: *const T,
    pub(super) a_line: usize,
    pub(super) a_pixel: usize,
    pub(super) a_row: usize,
    /// Column panels of `width` columns and the distance of two panels and of two outputs in one.
    pub(super) b: *const T,
    pub(super) width: usize,
    pub(super) b_panel: usize,
    pub(super) b_row: usize,
    /// C, and the distances of its taps and rows.
    pub(super) c: *mut T,
    pub(super) c_tap: usize,
    pub(super) c_row: usize,
    /// Whether C is to be overwritten.
    pub(super) fresh: bool,
}

impl<T> Sliding<T> {
    /// The rows of the first tap alone; `offsets` are the places of the outputs' pixels.
    pub(super) fn lines<'a>(&self, offsets: &'a [isize]) -> Lines<'a, T> {
        let Sliding { rows, cols, a, a_row, b, b_panel, b_row, c, c_row, fresh, .. } = *self;
        Lines { lines: 1, rows, cols, offsets, a, a_line: 0, a_row, b, b_panel, b_row, c, c_line: 0, c_row, fresh }
    }
}

/// Computes the chains, on vectors no longer than the columns need.
///
/// # Safety
///
/// The instruction set of `S`, and pointers valid for the extents.
#[inline(always)]
pub(super) unsafe fn sliding<S: Simd>(x: &Sliding<S::Elem>) {
    for j in (0..x.cols).step_by(S::LANES) {
        let cols = (x.cols - j).min(S::LANES);
        // SAFETY: the panels and the part of C lie inside the block.
        unsafe {
            let (b, c) = (x.b.add(j / x.width * x.b_panel + j % x.width), x.c.add(j));
            if cols > S::Half::LANES {
                columns::<S>(x, b, c, cols);
            } else if cols > Shortest::<S>::LANES {
                columns::<S::Half>(x, b, c, cols);
            } else {
                columns::<Shortest<S>>(x, b, c, cols);
            }
        }
    }
}

/// The columns of one vector.
#[inline(always)]
unsafe fn columns<S: Simd>(x: &Sliding<S::Elem>, b: *const S::Elem, c: *mut S::Elem, cols: usize) {
    // SAFETY: handed on.
    unsafe {
        match x.taps {
            2 => rows::<S, 2, 12, 8, 5, 4>(x, b, c, cols),
            _ => rows::<S, 3, 8, 6, 5, 3>(x, b, c, cols),
        }
    }
}

/// All rows, in tiles of four heights.
#[inline(always)]
unsafe fn rows<S: Simd, const K: usize, const M0: usize, const M1: usize, const M2: usize, const M3: usize>(
    x: &Sliding<S::Elem>,
    b: *const S::Elem,
    c: *mut S::Elem,
    cols: usize,
) {
    let mut i = 0;
    while i < x.rows {
        let left = x.rows - i;
        let height = NextHeight::<M0, M1, M2, M3, K>::of(left);
        let rows = left.min(height);
        // SAFETY: the rows are there.
        unsafe {
            let (a, c) = (x.a.add(i * x.a_row), c.add(i * x.c_row));
            if height == M0 {
                tile::<S, K, M0>(x, a, b, c, [rows, cols]);
            } else if height == M1 {
                tile::<S, K, M1>(x, a, b, c, [rows, cols]);
            } else if height == M2 {
                tile::<S, K, M2>(x, a, b, c, [rows, cols]);
            } else {
                tile::<S, K, M3>(x, a, b, c, [rows, cols]);
            }
        }
        i += rows;
    }
}

/// One tile: `K` taps of `M` rows.
#[inline(always)]
unsafe fn tile<S: Simd, const K: usize, const M: usize>(
    x: &Sliding<S::Elem>,
    a: *const S::Elem,
    mut b: *const S::Elem,
    c: *mut S::Elem,
    [n_rows, n_cols]: [usize; 2],
) {
    let ([lines, width], [before, after]) = (x.outputs, x.padding);
    // SAFETY: the caller's block covers the pixels of all outputs and taps, and the cotangents.
    unsafe {
        let mut sums = [[S::zero(); K]; M];
        for line in 0..lines {
            let mut at = a.add(line * x.a_line);
            // The cotangents of the last outputs, the last one first.
            let mut seen = [S::zero(); MOST_TAPS];
            for pixel in 1..K {
                seen = [S::load(b), seen[0], seen[1]];
                b = b.wrapping_add(x.b_row);
                if pixel > before {
                    step::<S, K, M>(&mut sums, at, x.a_row, seen, [0, pixel]);
                }
                at = at.add(x.a_pixel);
            }
            // As many steps at a time as there are taps: the cotangents then return to the registers they began in.
            let full = width + 1 - K;
            for _ in 0..full / K {
                for _ in 0..K {
                    seen = [S::load(b), seen[0], seen[1]];
                    b = b.wrapping_add(x.b_row);
                    step::<S, K, M>(&mut sums, at, x.a_row, seen, [0, K]);
                    at = at.add(x.a_pixel);
                }
            }
            for _ in 0..full % K {
                seen = [S::load(b), seen[0], seen[1]];
                b = b.wrapping_add(x.b_row);
                step::<S, K, M>(&mut sums, at, x.a_row, seen, [0, K]);
                at = at.add(x.a_pixel);
            }
            for first in 1..K {
                seen = [S::zero(), seen[0], seen[1]];
                if first + after < K {
                    step::<S, K, M>(&mut sums, at, x.a_row, seen, [first, K]);
                }
                at = at.wrapping_add(x.a_pixel);
            }
        }
        // Every tap is a constant: a loop would keep the sums in memory.
        let (fresh, distances) = (x.fresh, [x.c_row; 2]);
        let at = |tap: usize| [c.wrapping_add(tap * x.c_tap); 2];
        finish::<S, M, 1>(tap_sums(&sums, 0), at(0), distances, fresh, n_rows, n_cols);
        finish::<S, M, 1>(tap_sums(&sums, 1), at(1), distances, fresh, n_rows, n_cols);
        if K > 2 {
            finish::<S, M, 1>(tap_sums(&sums, 2), at(2), distances, fresh, n_rows, n_cols);
        }
    }
}

/// One pixel of each row, for the taps `first..end` of those that have sums.
#[inline(always)]
pub(super) unsafe fn step<S: Simd, const K: usize, const M: usize>(
    sums: &mut [[S::Vector; K]; M],
    mut at: *const S::Elem,
    a_row: usize,
    seen: [S::Vector; MOST_TAPS],
    [first, end]: [usize; 2],
) {
    // SAFETY: handed on from the tile.
    unsafe {
        let (one, two, three) = (a_row, 2 * a_row, 3 * a_row);
        for (i, sums) in sums.iter_mut().enumerate() {
            let from = match i % 4 {
                0 => at,
                1 => at.add(one),
                2 => at.add(two),
                _ => at.add(three),
            };
            let pixel = S::splat(from);
            // Bounds of the loop in place of the condition would keep the sums in memory.
            for (tap, sum) in sums.iter_mut().enumerate() {
                if first <= tap && tap < end {
                    *sum = S::mul_add(pixel, seen[tap], *sum);
                }
            }
            if i % 4 == 3 && i + 1 < M {
                at = from.add(one);
            }
        }
    }
}
