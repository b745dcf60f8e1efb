//! Products of few elements of many matrices: each element is a chain of additions that waits for itself, so those of
//! neighbouring matrices are computed side by side.

use super::drive::is_split;
use super::small::TURNED_ON_STACK;
use super::{Level, Real, block_depth};

/// Elements of a product at most.
const MOST: usize = 7;
/// The same of products whose B has too many elements to be turned on the stack.
const MOST_LONG: usize = 12;
/// Chains that are computed side by side.
pub(crate) const SIDE_BY_SIDE: usize = 6;

/// Whether elements of products of contiguous lines are computed side by side.
pub(crate) fn is_of_dots([m, n, k]: [usize; 3]) -> bool {
    let most = if n > 1 && k.saturating_mul(n) > TURNED_ON_STACK { MOST_LONG } else { MOST };
    m.saturating_mul(n) <= most && !is_split(m, n, k)
}

/// Elements of products that follow each other, [`SIDE_BY_SIDE`] at most.
pub(crate) struct Dots<T> {
    /// The first elements of the row of A and the column of B of each.
    pub(crate) lines: [[*const T; 2]; SIDE_BY_SIDE],
    /// The pairs of lines that there are.
    pub(crate) n: usize,
    /// The length of a line, which is not 0.
    pub(crate) k: usize,
    /// The results.
    pub(crate) out: *mut T,
}

/// Computes elements of products.
///
/// # Safety
///
/// The lines are valid for `k` elements, and the results for `n`.
pub(crate) unsafe fn multiply_dots<T: Real>(level: Level, x: &Dots<T>) {
    // SAFETY: the level is present; the lines are handed on.
    unsafe { (T::kernels(level).dots)(x) }
}

/// As [`multiply_dots`].
///
/// # Safety
///
/// The instruction set that the surrounding function enables, and as there.
#[inline(always)]
pub(super) unsafe fn dots<T: Real>(x: &Dots<T>) {
    let mut first = 0;
    // SAFETY: the groups cover the lines once; there are [`SIDE_BY_SIDE`] at most.
    unsafe {
        if x.n == SIDE_BY_SIDE {
            return some::<T, SIDE_BY_SIDE>(x, 0);
        }
        if x.n >= 3 {
            some::<T, 3>(x, 0);
            first = 3;
        }
        while first < x.n {
            some::<T, 1>(x, first);
            first += 1;
        }
    }
}

/// `N` elements.
#[inline(always)]
unsafe fn some<T: Real, const N: usize>(x: &Dots<T>, first: usize) {
    let depth = block_depth(x.k);
    let mut start = 0;
    while start < x.k {
        let end = (start + depth).min(x.k);
        let mut sums = [T::ZERO; N];
        let lines: [[*const T; 2]; N] = std::array::from_fn(|n| x.lines[first + n]);
        // SAFETY: steps lie inside the lines, and results inside their own.
        unsafe {
            for p in start..end {
                for (sum, [a, b]) in sums.iter_mut().zip(lines) {
                    *sum = (*a.add(p)).fused(*b.add(p), *sum);
                }
            }
            for (n, sum) in sums.into_iter().enumerate() {
                let to = x.out.add(first + n);
                *to = if start > 0 { *to + sum } else { sum };
            }
        }
        start = end;
    }
}
