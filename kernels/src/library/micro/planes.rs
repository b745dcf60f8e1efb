//! Convolutions with pixels as lanes, from images in planes: for results of few channels.
//!
//! Each vector of pixels is read for several channels of the result, and each weight for several lines. Results leave in
//! blocks whose rows and columns are exchanged, as the image came in.

use std::mem::MaybeUninit;

use super::simd::{Simd, exchanges};
use super::tile::{Lines, Shortest};

/// Columns and lines of a tile, where there are instructions to exchange so many columns.
pub(super) const COLUMNS: usize = 8;
pub(super) const LINES: usize = 3;

/// Pixels with all their channels, and the planes that they are copied to.
#[derive(Clone, Copy)]
pub(super) struct Deinterleave<T> {
    /// The first channel of the first pixel.
    pub(super) from: *const T,
    /// Elements from one pixel to the next.
    pub(super) step: usize,
    /// Channels of a pixel.
    pub(super) channels: usize,
    /// Place of the first pixel in the first plane.
    pub(super) to: *mut T,
    /// Elements from one plane to the next.
    pub(super) plane: usize,
    /// Number of pixels.
    pub(super) len: usize,
}

/// Computes lines whose rows are neighbours in memory, with rows as lanes: for few columns, which lie side by side at
/// each step of B.
///
/// # Safety
///
/// As [`lines`](super::tile::lines), for a distance of rows of A of 1, which is not read; A is readable for 16 rows past the last one.
#[inline(always)]
pub(super) unsafe fn planes<S: Simd>(x: &Lines<'_, S::Elem>) {
    let mut j = 0;
    while j < x.cols {
        // SAFETY: the columns lie in the panel and in C.
        unsafe {
            let (b, c) = (x.b.add(j), x.c.add(j));
            j += match x.cols - j {
                1 => plane_lines::<S, 1, 8>(x, b, c),
                2 | 3 => plane_lines::<S, 2, 4>(x, b, c),
                COLUMNS.. if exchanges::<S>() => plane_lines::<S, COLUMNS, LINES>(x, b, c),
                _ => plane_lines::<S, 4, 2>(x, b, c),
            };
        }
    }
}

/// `N` columns of all lines, `L` lines at a time, and then as many as are left; returns the number of columns.
#[inline(always)]
unsafe fn plane_lines<S: Simd, const N: usize, const L: usize>(
    x: &Lines<'_, S::Elem>,
    b: *const S::Elem,
    c: *mut S::Elem,
) -> usize {
    let mut line = 0;
    while line < x.lines {
        // SAFETY: these lines are there.
        unsafe {
            let (a, c) = (x.a.add(line * x.a_line), c.add(line * x.c_line));
            line += match x.lines - line {
                left if left >= L => plane_rows::<S, N, L>(x, a, b, c),
                left if left >= 4 && L > 4 => plane_rows::<S, N, 4>(x, a, b, c),
                left if left >= 2 && L > 2 => plane_rows::<S, N, 2>(x, a, b, c),
                _ => plane_runs::<S, N, L>(x, a, b, c),
            };
        }
    }
    N
}

/// All rows of one line, in which vectors that follow each other are what lines are elsewhere, as long as there are `L`, and
/// then two; returns the number of lines. Chains of a single vector would wait for each other's steps.
#[inline(always)]
unsafe fn plane_runs<S: Simd, const N: usize, const L: usize>(
    x: &Lines<'_, S::Elem>,
    a: *const S::Elem,
    b: *const S::Elem,
    c: *mut S::Elem,
) -> usize {
    let vectors = Lines { a_line: S::LANES, c_line: S::LANES * x.c_row, ..*x };
    let mut i = 0;
    // SAFETY: the rows lie inside the line.
    unsafe {
        while x.rows - i >= L * S::LANES {
            plane_tile::<S, N, L>(&vectors, a.add(i), b, c.add(i * x.c_row), S::LANES);
            i += L * S::LANES;
        }
        while L > 2 && x.rows - i >= 2 * S::LANES {
            plane_tile::<S, N, 2>(&vectors, a.add(i), b, c.add(i * x.c_row), S::LANES);
            i += 2 * S::LANES;
        }
        plane_rows::<S, N, 1>(&Lines { rows: x.rows - i, ..*x }, a.add(i), b, c.add(i * x.c_row))
    }
}

/// All rows of `L` lines, on vectors no longer than the last ones need; returns the number of lines.
#[inline(always)]
unsafe fn plane_rows<S: Simd, const N: usize, const L: usize>(
    x: &Lines<'_, S::Elem>,
    a: *const S::Elem,
    b: *const S::Elem,
    c: *mut S::Elem,
) -> usize {
    let mut i = 0;
    while i < x.rows {
        let left = x.rows - i;
        // SAFETY: the rows lie inside the lines.
        unsafe {
            let (a, c) = (a.add(i), c.add(i * x.c_row));
            i += if left > S::Half::LANES {
                plane_tile::<S, N, L>(x, a, b, c, left)
            } else {
                plane_tile::<S::Half, N, L>(x, a, b, c, left)
            };
        }
    }
    L
}

/// One tile of [`planes`]: a vector of rows of each line; returns the number of rows.
#[inline(always)]
unsafe fn plane_tile<S: Simd, const N: usize, const L: usize>(
    x: &Lines<'_, S::Elem>,
    a: *const S::Elem,
    mut b: *const S::Elem,
    c: *mut S::Elem,
    left: usize,
) -> usize {
    let rows = left.min(S::LANES);
    // SAFETY: the caller's block covers panel and image; the sums of a vector go through local memory, which holds one.
    unsafe {
        let mut sums = [[S::zero(); L]; N];
        for offset in x.offsets {
            let at = a.offset(*offset);
            let mut pixels = [S::zero(); L];
            for (line, pixels) in pixels.iter_mut().enumerate() {
                *pixels = S::load(at.add(line * x.a_line));
            }
            for (column, sums) in sums.iter_mut().enumerate() {
                let weight = S::splat(b.add(column));
                for (sum, pixels) in sums.iter_mut().zip(pixels) {
                    *sum = S::mul_add(weight, pixels, *sum);
                }
            }
            b = b.wrapping_add(x.b_row);
        }
        if N == COLUMNS {
            // Every index is a constant: a loop would keep the sums in memory.
            S::write_rows(line_of(&sums, 0), c, x.c_row, rows, x.fresh);
            if L > 1 {
                S::write_rows(line_of(&sums, 1), c.add(x.c_line), x.c_row, rows, x.fresh);
            }
            if L > 2 {
                S::write_rows(line_of(&sums, 2), c.add(2 * x.c_line), x.c_row, rows, x.fresh);
            }
            return rows;
        }
        for line in 0..L {
            let sums = std::array::from_fn(
                #[inline(always)]
                |column| sums[column][line],
            );
            finish_plane::<S, N>(sums, c.add(line * x.c_line), x.c_row, x.fresh, rows);
        }
    }
    rows
}

/// The sums of one of the lines, for eight columns.
#[inline(always)]
fn line_of<V: Copy, const N: usize, const L: usize>(sums: &[[V; L]; N], line: usize) -> [V; 8] {
    std::array::from_fn(
        #[inline(always)]
        |column| sums[column % N][line % L],
    )
}

/// Stores the sums of some rows, which are lanes, to C, or adds them.
#[inline(always)]
unsafe fn finish_plane<S: Simd, const N: usize>(
    sums: [S::Vector; N],
    c: *mut S::Elem,
    c_row: usize,
    fresh: bool,
    rows: usize,
) {
    /// Rows and columns that are exchanged at a time.
    const BLOCK: usize = 4;
    // SAFETY: C covers the rows and `N` columns; the local memory holds four vectors, and `N` is at most that.
    unsafe {
        if N == 1 && c_row == 1 && fresh && rows == S::LANES {
            S::store(c, sums[0]);
            return;
        }
        let mut edge = [MaybeUninit::<S::Elem>::uninit(); 4 * 16];
        let edge = edge.as_mut_ptr().cast::<S::Elem>();
        for (column, sum) in sums.into_iter().enumerate() {
            S::store(edge.add(column * S::LANES), sum);
        }
        let exchanged = if N.is_multiple_of(BLOCK) { rows / BLOCK * BLOCK } else { 0 };
        for column in (0..N).step_by(BLOCK) {
            for i in (0..exchanged).step_by(BLOCK) {
                let block = Shortest::<S>::columns(edge.add(column * S::LANES + i), S::LANES);
                for (row, new) in block.into_iter().enumerate() {
                    let at = c.add((i + row) * c_row + column).cast::<[S::Elem; BLOCK]>();
                    let old = if fresh { None } else { Some(at.read_unaligned()) };
                    at.write_unaligned(old.map_or(new, |old| std::array::from_fn(|lane| old[lane] + new[lane])));
                }
            }
        }
        for i in exchanged..rows {
            for column in 0..N {
                let (at, sum) = (c.add(i * c_row + column), *edge.add(column * S::LANES + i));
                *at = if fresh { sum } else { *at + sum };
            }
        }
    }
}

/// Copies `len` pixels at a distance of `step` to planes at a distance of `plane`, one for each channel.
///
/// # Safety
///
/// The instruction set of `S`; all channels of the pixels are readable, and as many elements of each plane writable.
#[inline(always)]
pub(super) unsafe fn spread<S: Simd>(x: &Deinterleave<S::Elem>) {
    let Deinterleave { from, step, channels, to, plane, len } = *x;
    // SAFETY: pixels and planes cover these places.
    unsafe {
        if exchanges::<S>() && len >= 8 && channels.is_multiple_of(8) {
            for channel in (0..channels).step_by(8) {
                for at in (0..len).step_by(8) {
                    // The last pixels are copied with some before them.
                    let at = at.min(len - 8);
                    let from = from.add(at * step + channel);
                    for (c, column) in S::Half::turned(from, step * size_of::<S::Elem>()).into_iter().enumerate() {
                        S::Half::store(to.add((channel + c) * plane + at), column);
                    }
                }
            }
            return;
        }
        let (pixels, planes) = (len / 4 * 4, channels / 4 * 4);
        for channel in (0..planes).step_by(4) {
            for at in (0..pixels).step_by(4) {
                let block = Shortest::<S>::columns(from.add(at * step + channel), step);
                for (c, column) in block.into_iter().enumerate() {
                    to.add((channel + c) * plane + at).cast::<[S::Elem; 4]>().write_unaligned(column);
                }
            }
        }
        for channel in 0..channels {
            for at in if channel < planes { pixels } else { 0 }..len {
                *to.add(channel * plane + at) = *from.add(at * step + channel);
            }
        }
    }
}
