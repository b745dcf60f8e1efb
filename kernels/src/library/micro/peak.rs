//! Arithmetic that never leaves the registers: as many fused multiply-adds as the machine can do.

use super::simd::Simd;

/// Independent chains, enough for two units of four cycles each, and few enough for sixteen registers.
pub(super) const CHAINS: usize = 12;

/// Runs `steps` steps of each chain, `x = x y + y` for `y` at `half`, and gives a sum that depends on all of them. A
/// `y` of one half keeps every `x` between one half and one.
///
/// # Safety
///
/// The instruction set of `S`, and a readable element.
#[inline(always)]
pub(super) unsafe fn chains<S: Simd>(steps: usize, half: *const S::Elem) -> S::Elem {
    /// Elements of the longest vector.
    const MOST: usize = 64;
    let mut lanes = [<S::Elem as super::Real>::ZERO; MOST];
    // SAFETY: no vector is longer than the array; the rest is the caller's.
    unsafe {
        let y = S::splat(half);
        let mut sums = [y; CHAINS];
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = S::mul_add(*sum, y, y);
            }
        }
        let total = sums.into_iter().fold(S::zero(), |total, sum| S::add(total, sum));
        S::store(lanes.as_mut_ptr(), total);
    }
    lanes[0]
}
