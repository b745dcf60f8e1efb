//! A whole small product, straight from its operands: packing would cost more than it saves.

use super::drive::is_split;
use super::grid::is_one_task;
use super::heights::NextHeight;
use super::pack::{PanelSource, Strided};
use super::simd::Simd;
use super::tile::{Shortest, finish, line_step};
use super::{Layout, Level, Real, block_depth, with_scratch};

/// Elements at most of a right operand that is copied so that its columns are neighbours.
pub(crate) const MOST_TURNED: usize = 1 << 12;
/// The same where the copy lies on the stack, and where it has a place of its own there, which is cleared sooner.
pub(super) const TURNED_ON_STACK: usize = 256;
const FEW_TURNED: usize = 32;

/// Whether a product is so small that packing would cost more than it saves; `row` is the number of elements from one row of
/// B to the next. If it `divides`, a larger one has several tasks; if it `streams`, it has a way without packing.
pub(crate) fn is_unpacked<T>([m, n, k]: [usize; 3], row: usize, divides: bool, streams: bool) -> bool {
    const SMALL: usize = 1 << 15;
    const MOST: usize = 1 << 18;
    /// Bytes that rows of B reach over which are read for every few rows of A: others share few sets of a cache.
    const NEAR: usize = 128 << 10;
    /// Columns at least of larger products: fewer fill no vector.
    const FEW: usize = 4;
    let work = m.saturating_mul(n).saturating_mul(k);
    let is_near = row.saturating_mul(k).saturating_mul(size_of::<T>()) <= NEAR;
    let pays = is_near && !streams && n >= FEW && (!divides || is_one_task(m, n, k));
    (work <= SMALL || work <= MOST && pays) && !is_split(m, n, k)
}

/// A small product on strided operands; B has unit column stride.
pub(super) struct Unpacked<T> {
    /// Rows, columns and depth.
    pub(super) extent: [usize; 3],
    /// A with its row and column strides.
    pub(super) a: (*const T, isize, isize),
    /// B with its row stride.
    pub(super) b: (*const T, isize),
    /// C with its row stride.
    pub(super) c: (*mut T, usize),
}

/// Heights of tiles of two vectors, and of shorter ones.
const HEIGHTS: [[usize; 4]; 2] = [[6, 5, 4, 3], [12, 8, 6, 5]];

/// Computes a small product straight from its operands. Where no whole strip of columns or tile of rows is left, the last one
/// begins in the one before.
///
/// # Safety
///
/// The instruction set that the surrounding function enables, and operands valid for the extents.
#[inline(always)]
pub(super) unsafe fn unpacked<S: Simd>(x: &Unpacked<S::Elem>) {
    let [m, n, _] = x.extent;
    let widths = [2 * S::LANES, S::LANES, S::Half::LANES, Shortest::<S>::LANES];
    let mut j = 0;
    while j < n {
        let left = n - j;
        // The shortest strip that has all columns that are left, if it is no longer than a row; else the longest that fits.
        let last = widths.into_iter().rev().find(|&width| left <= width && width <= n);
        let width = last.or_else(|| widths.into_iter().find(|&width| width <= left)).unwrap_or(1);
        let at = j.min(n - width);
        // SAFETY: the strips lie inside the columns.
        unsafe {
            if width == widths[0] {
                strip::<S, 2>(x, at);
            } else if width == widths[1] {
                strip::<S, 1>(x, at);
            } else if width == widths[2] {
                strip::<S::Half, 1>(x, at);
            } else if width == widths[3] {
                strip::<Shortest<S>, 1>(x, at);
            } else {
                let mut i = 0;
                while i < m {
                    i += single_column::<S::Elem>(x, i, at);
                }
            }
        }
        j = at + width;
    }
}

/// `NV` vectors of columns.
#[inline(always)]
unsafe fn strip<S: Simd, const NV: usize>(x: &Unpacked<S::Elem>, j: usize) {
    let m = x.extent[0];
    // SAFETY: the tiles lie inside the rows.
    unsafe {
        match m {
            1 => tile::<S, 1, NV>(x, 0, j),
            2 => tile::<S, 2, NV>(x, 0, j),
            3 => tile::<S, 3, NV>(x, 0, j),
            4 => tile::<S, 4, NV>(x, 0, j),
            _ => {}
        }
        let mut i = if m <= 4 { m } else { 0 };
        while i < m {
            i = if NV == 1 {
                rows::<S, NV, { HEIGHTS[1][0] }, { HEIGHTS[1][1] }, { HEIGHTS[1][2] }, { HEIGHTS[1][3] }>(x, i, j)
            } else {
                rows::<S, NV, { HEIGHTS[0][0] }, { HEIGHTS[0][1] }, { HEIGHTS[0][2] }, { HEIGHTS[0][3] }>(x, i, j)
            };
        }
    }
}

/// The next tile of a strip, of one of four heights, the least of which is no more than all rows; returns the row behind it.
#[inline(always)]
unsafe fn rows<S: Simd, const NV: usize, const M0: usize, const M1: usize, const M2: usize, const M3: usize>(
    x: &Unpacked<S::Elem>,
    i: usize,
    j: usize,
) -> usize {
    let m = x.extent[0];
    let best = NextHeight::<M0, M1, M2, M3, NV>::of(m - i);
    let height = [M0, M1, M2].into_iter().find(|&height| height <= best && height <= m).unwrap_or(M3);
    let at = i.min(m - height);
    // SAFETY: the last tile begins among the rows before, of which there are as many.
    unsafe {
        match height {
            _ if height == M0 => tile::<S, M0, NV>(x, at, j),
            _ if height == M1 => tile::<S, M1, NV>(x, at, j),
            _ if height == M2 => tile::<S, M2, NV>(x, at, j),
            _ => tile::<S, M3, NV>(x, at, j),
        }
    }
    at + height
}

/// `M` rows of `NV` vectors of columns.
#[inline(always)]
unsafe fn tile<S: Simd, const M: usize, const NV: usize>(x: &Unpacked<S::Elem>, i: usize, j: usize) {
    let [_, _, k] = x.extent;
    let ((a, a_row, a_step), (b, b_step)) = (x.a, x.b);
    // SAFETY: rows, columns and steps lie inside the operands.
    unsafe {
        let (mut a, mut b) = (a.offset(i as isize * a_row), b.add(j));
        let c = x.c.0.add(i * x.c.1 + j);
        let depth = block_depth(k);
        for start in (0..k).step_by(depth) {
            let mut sums = [[S::zero(); NV]; M];
            for _ in start..(start + depth).min(k) {
                line_step::<S, M, NV>(&mut sums, a, a_row.unsigned_abs(), b);
                // After the last step they point behind the operands.
                (a, b) = (a.wrapping_offset(a_step), b.wrapping_offset(b_step));
            }
            finish::<S, M, NV>(sums, [c; 2], [x.c.1; 2], start == 0, M, NV * S::LANES);
        }
    }
}

/// Some rows of a single column, whose chains overlap; returns how many.
#[inline(always)]
unsafe fn single_column<T: Real>(x: &Unpacked<T>, i: usize, j: usize) -> usize {
    // SAFETY: no more rows than are left.
    unsafe {
        match x.extent[0] - i {
            8.. => elements::<T, 8>(x, i, j),
            4.. => elements::<T, 4>(x, i, j),
            2.. => elements::<T, 2>(x, i, j),
            _ => elements::<T, 1>(x, i, j),
        }
    }
}

/// `M` rows of one column; returns `M`.
#[inline(always)]
unsafe fn elements<T: Real, const M: usize>(x: &Unpacked<T>, i: usize, j: usize) -> usize {
    let [_, _, k] = x.extent;
    let depth = block_depth(k);
    for start in (0..k).step_by(depth) {
        let mut sums = [T::ZERO; M];
        // SAFETY: rows, columns and steps lie inside the operands.
        unsafe {
            for p in start..(start + depth).min(k) {
                let factor = *x.b.0.offset(p as isize * x.b.1).add(j);
                for (r, sum) in sums.iter_mut().enumerate() {
                    *sum = x.a.0.offset((i + r) as isize * x.a.1 + p as isize * x.a.2).read().fused(factor, *sum);
                }
            }
            for (r, sum) in sums.into_iter().enumerate() {
                let at = x.c.0.add((i + r) * x.c.1 + j);
                *at = if start > 0 { *at + sum } else { sum };
            }
        }
    }
    M
}

/// Computes small products directly; `b` has columns that are neighbours, and rows of `a` follow each other.
///
/// # Safety
///
/// `c` is writable for m rows of n elements at distance `stride`.
pub(crate) unsafe fn multiply_unpacked<T: Real>(
    level: Level,
    extent: [usize; 3],
    a: &Strided<T>,
    b: &Strided<T>,
    c: *mut T,
    stride: usize,
) {
    let [m, n, k] = extent;
    let (b_data, b_outer, b_inner) = b.parts();
    debug_assert!(b_outer == 1 || n == 1, "columns are neighbours");
    if k == 0 {
        for i in 0..m {
            // SAFETY: row `i` of the output.
            unsafe { std::slice::from_raw_parts_mut(c.add(i * stride), n) }.fill(T::ZERO);
        }
        return;
    }
    let (a_data, a_row, a_step) = a.parts();
    debug_assert!(a_row >= 0, "rows follow each other");
    // The distance of no second row may be any number.
    let x =
        Unpacked { extent, a: (a_data, if m > 1 { a_row } else { 0 }, a_step), b: (b_data, b_inner), c: (c, stride) };
    // SAFETY: the level is present, and the operands cover the extents by their own contract.
    unsafe { (T::kernels(level).unpacked)(&x) }
}

/// Computes a small product whose B has columns that are no neighbours.
///
/// # Safety
///
/// `c` is writable for m rows of n elements.
pub(crate) unsafe fn multiply_turned<T: Real>(
    level: Level,
    extent: [usize; 3],
    a: &Strided<T>,
    b: &Strided<T>,
    c: *mut T,
) {
    let [_, n, k] = extent;
    let multiply = |turned: &mut [T]| {
        b.pack(0..n, 0..k, Layout::Interleaved, n, turned);
        // SAFETY: k rows of n elements, which live as long as the call; `c` is handed on.
        unsafe {
            let b = Strided::new(turned.as_ptr(), 1, n as isize);
            multiply_unpacked(level, extent, a, &b, c, n);
        }
    };
    match n * k {
        len @ ..=FEW_TURNED => multiply(&mut [T::ZERO; FEW_TURNED][..len]),
        len @ ..=TURNED_ON_STACK => multiply(&mut [T::ZERO; TURNED_ON_STACK][..len]),
        len => with_scratch(len, multiply),
    }
}
