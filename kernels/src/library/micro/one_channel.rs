//! Convolutions of images of one channel: a pixel is read once for all taps of a line that meet it.
//!
//! A tile of one vector of channels takes a load for each multiplication, and two loads in a cycle are as many as there
//! are multiplications, so that it waits for them. Where an image has one channel, the taps of a line are few vectors that
//! registers hold, and neighbouring outputs meet a pixel with neighbouring taps. The chain of an output goes over its
//! taps in the same order.

use super::simd::Simd;
use super::tile::{Lines, finish};
use super::unrolled::each_row;

/// Outputs of a tile, of which the last one may begin in the one before.
const OUTPUTS: [usize; 2] = [16, 14];

/// A block of neighbouring pixels, in whose chains the taps of a line follow each other.
pub(super) struct OneChannel<'a, T> {
    /// The block: [`OneChannel::fits`] holds, the columns are one vector, and C is to be overwritten.
    pub(super) lines: Lines<'a, T>,
    /// Taps of a line.
    pub(super) taps: usize,
}

impl<T> OneChannel<'_, T> {
    /// Whether lines of so many taps have tiles, and lines of so many outputs fill one. (Three taps and five were
    /// quicker than by other tiles, seven slower.)
    pub(super) fn fits(taps: usize, outputs: usize) -> bool {
        [3, 5].contains(&taps) && outputs >= OUTPUTS[1]
    }
}

/// Computes the block.
///
/// # Safety
///
/// The instruction set of `S`, and pointers valid for the extents.
#[inline(always)]
pub(super) unsafe fn one_channel<S: Simd>(x: &OneChannel<'_, S::Elem>) {
    // SAFETY: handed on.
    unsafe {
        match x.taps {
            3 => lines::<S, 3>(&x.lines),
            _ => lines::<S, 5>(&x.lines),
        }
    }
}

/// All lines, for filters of `K` taps in a line.
#[inline(always)]
unsafe fn lines<S: Simd, const K: usize>(x: &Lines<'_, S::Elem>) {
    let [high, low] = OUTPUTS;
    let height = if x.rows < high || x.rows.div_ceil(high) * low >= x.rows { low } else { high };
    for line in 0..x.lines {
        for start in (0..x.rows).step_by(height) {
            let i = start.min(x.rows - height);
            // SAFETY: the rows lie inside the block.
            unsafe {
                let a = x.a.add(line * x.a_line + i * x.a_row);
                let c = x.c.add(line * x.c_line + i * x.c_row);
                if height == high {
                    tile::<S, K, { OUTPUTS[0] }>(x, a, c);
                } else {
                    tile::<S, K, { OUTPUTS[1] }>(x, a, c);
                }
            }
        }
    }
}

/// One tile: `M` outputs of a line and one vector of columns.
#[inline(always)]
unsafe fn tile<S: Simd, const K: usize, const M: usize>(x: &Lines<'_, S::Elem>, a: *const S::Elem, c: *mut S::Elem) {
    // SAFETY: the caller's block covers the panel and the image.
    unsafe {
        let mut b = x.b;
        let mut sums = [[S::zero(); 1]; M];
        for offsets in x.offsets.chunks_exact(K) {
            let mut taps = [S::zero(); K];
            for tap in &mut taps {
                *tap = S::load(b);
                b = b.wrapping_add(x.b_row);
            }
            let at = a.offset(offsets[0]);
            each_row!(output < M {
                let [sum] = &mut sums[output];
                for (tap, filter) in taps.iter().enumerate() {
                    // The output before meets the same pixel with the tap after: compilers load it once.
                    *sum = S::mul_add(S::splat(at.add(output + tap)), *filter, *sum);
                }
            });
        }
        finish::<S, M, 1>(sums, [c; 2], [x.c_row; 2], true, M, S::LANES);
    }
}
