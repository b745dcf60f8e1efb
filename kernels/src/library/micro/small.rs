//! A whole small product, straight from its operands: packing would cost more than it saves.

use super::drive::is_split;
use super::grid::is_one_task;
use super::pack::{PanelSource, Strided};
use super::simd::Simd;
use super::{Layout, Level, Real, block_depth};

/// Elements at most of a right operand that is copied so that its columns are neighbours.
pub(crate) const MAX_TURNED: usize = 256;
/// The same where the copy has a place of its own, which is cleared sooner.
const FEW_TURNED: usize = 32;

/// Whether a product is so small that packing would cost more than it saves; `row` is the number of elements from one row of
/// B to the next. If it `divides`, a larger one has several tasks; if it `streams`, it has a way without packing.
pub(crate) fn is_unpacked<T>([m, n, k]: [usize; 3], row: usize, divides: bool, streams: bool) -> bool {
    const SMALL: usize = 1 << 15;
    const MOST: usize = 1 << 18;
    /// Bytes that rows of B reach over which are read for every few rows of A: others share few sets of a cache.
    const NEAR: usize = 128 << 10;
    let work = m.saturating_mul(n).saturating_mul(k);
    let is_near = row.saturating_mul(k).saturating_mul(size_of::<T>()) <= NEAR;
    // Columns that no vector holds are computed one by one.
    let pays = is_near && !streams && n.is_multiple_of(4) && (!divides || is_one_task(m, n, k));
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

/// Computes a small product straight from its operands.
///
/// # Safety
///
/// The instruction set that the surrounding function enables, and operands valid for the extents.
#[inline(always)]
pub(super) unsafe fn unpacked<S: Simd>(x: &Unpacked<S::Elem>) {
    let [_, n, _] = x.extent;
    // Of four rows, eight sums keep the multipliers busy; sixteen would not fit the registers of AVX2.
    let most = 2 * S::LANES;
    let mut j = 0;
    // SAFETY: the strips cover the columns once.
    unsafe {
        while most >= 32 && n - j >= 32 {
            unpacked_strip::<S::Elem, 32>(x, j);
            j += 32;
        }
        while most >= 16 && n - j >= 16 {
            unpacked_strip::<S::Elem, 16>(x, j);
            j += 16;
        }
        while n - j >= 8 {
            unpacked_strip::<S::Elem, 8>(x, j);
            j += 8;
        }
        if n - j >= 4 {
            unpacked_strip::<S::Elem, 4>(x, j);
            j += 4;
        }
        while j < n {
            unpacked_strip::<S::Elem, 1>(x, j);
            j += 1;
        }
    }
}

/// `W` columns of a small product, four rows at a time; of a single column eight, whose chains overlap.
#[inline(always)]
unsafe fn unpacked_strip<T: Real, const W: usize>(x: &Unpacked<T>, j: usize) {
    let m = x.extent[0];
    let mut i = 0;
    // SAFETY: the groups cover the rows once.
    unsafe {
        while W == 1 && m - i >= 8 {
            unpacked_tile::<T, 8, W>(x, i, j);
            i += 8;
        }
        while m - i >= 4 {
            unpacked_tile::<T, 4, W>(x, i, j);
            i += 4;
        }
        if m - i >= 2 {
            unpacked_tile::<T, 2, W>(x, i, j);
            i += 2;
        }
        if i < m {
            unpacked_tile::<T, 1, W>(x, i, j);
        }
    }
}

/// `M` rows of `W` columns of a small product.
#[inline(always)]
unsafe fn unpacked_tile<T: Real, const M: usize, const W: usize>(x: &Unpacked<T>, i: usize, j: usize) {
    let [_, _, k] = x.extent;
    let depth = block_depth(k);
    let mut start = 0;
    while start < k {
        let end = (start + depth).min(k);
        let mut sums = [[T::ZERO; W]; M];
        // SAFETY: rows, columns and steps lie inside the operands.
        unsafe {
            for p in start..end {
                let b = x.b.0.offset(p as isize * x.b.1).add(j).cast::<[T; W]>().read_unaligned();
                for (r, sum) in sums.iter_mut().enumerate() {
                    let factor = *x.a.0.offset((i + r) as isize * x.a.1 + p as isize * x.a.2);
                    for (s, part) in sum.iter_mut().zip(b) {
                        *s = factor.fused(part, *s);
                    }
                }
            }
            for (r, sum) in sums.iter().enumerate() {
                let at = x.c.0.add((i + r) * x.c.1 + j).cast::<[T; W]>();
                let mut total = *sum;
                if start > 0 {
                    let old = at.read_unaligned();
                    total = std::array::from_fn(|lane| old[lane] + sum[lane]);
                }
                at.write_unaligned(total);
            }
        }
        start = end;
    }
}

/// Computes small products directly; `a` and `b` are given for each, `b` with unit row stride.
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
    let x = Unpacked { extent, a: a.parts(), b: (b_data, b_inner), c: (c, stride) };
    // SAFETY: the level is present, and the operands cover the extents by their own contract.
    unsafe { (T::kernels(level).unpacked)(&x) }
}

/// Computes a small product whose B, of [`MAX_TURNED`] elements at most, has columns that are no neighbours.
///
/// # Safety
///
/// `c` is writable for m rows of n elements.
///
/// # Panics
///
/// Panics if B has more elements.
pub(crate) unsafe fn multiply_turned<T: Real>(
    level: Level,
    extent: [usize; 3],
    a: &Strided<T>,
    b: &Strided<T>,
    c: *mut T,
) {
    let [_, n, k] = extent;
    let (mut few, mut more);
    let turned = if n * k <= FEW_TURNED {
        few = [T::ZERO; FEW_TURNED];
        &mut few[..]
    } else {
        more = [T::ZERO; MAX_TURNED];
        &mut more[..]
    };
    b.pack(0..n, 0..k, Layout::Interleaved, n, &mut turned[..n * k]);
    // SAFETY: k rows of n elements, which live as long as the call; `c` is handed on.
    unsafe {
        let b = Strided::new(turned.as_ptr(), 1, n as isize);
        multiply_unpacked(level, extent, a, &b, c, n);
    }
}
