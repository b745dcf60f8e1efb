//! Convolutions of images of one channel: a pixel is read once for all taps of a line that meet it.
//!
//! A tile of one vector of channels takes a load for each multiplication, and two loads in a cycle are as many as there
//! are multiplications, so that it waits for them. Where an image has one channel, the taps of a line are few vectors that
//! registers hold, and neighbouring outputs meet a pixel with neighbouring taps. The chain of an output goes over its
//! taps in the same order.

use super::simd::Simd;
use super::tile::{Lines, finish};

/// Taps of a line that registers have room for beside a tile.
pub(super) const TAPS: [usize; 3] = [3, 5, 7];

/// Outputs of a tile, of which the last one may begin in the one before.
const OUTPUTS: [usize; 2] = [16, 14];

/// Outputs of a line below which tiles of other kinds leave no more of themselves empty.
pub(super) const LEAST_OUTPUTS: usize = OUTPUTS[1];

/// A block whose rows are neighbouring pixels, and so are as many steps at a time as a line has taps.
pub(super) struct OneChannel<'a, T> {
    /// The block: [`LEAST_OUTPUTS`] rows of a line or more, whole vectors of columns, and a C to be overwritten.
    pub(super) lines: Lines<'a, T>,
    /// One of [`TAPS`].
    pub(super) taps: usize,
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
            5 => lines::<S, 5>(&x.lines),
            _ => lines::<S, 7>(&x.lines),
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
            for j in (0..x.cols).step_by(S::LANES) {
                // SAFETY: the rows and columns lie inside the block.
                unsafe {
                    let a = x.a.add(line * x.a_line + i * x.a_row);
                    let width = x.b_row;
                    let b = x.b.add(j / width * x.b_panel + j % width);
                    let c = x.c.add(line * x.c_line + i * x.c_row + j);
                    if height == high {
                        tile::<S, K, { OUTPUTS[0] }>(x, a, b, c);
                    } else {
                        tile::<S, K, { OUTPUTS[1] }>(x, a, b, c);
                    }
                }
            }
        }
    }
}

/// One tile: `M` outputs of a line and one vector of columns.
#[inline(always)]
unsafe fn tile<S: Simd, const K: usize, const M: usize>(
    x: &Lines<'_, S::Elem>,
    a: *const S::Elem,
    mut b: *const S::Elem,
    c: *mut S::Elem,
) {
    // SAFETY: the caller's block covers the panels and the image.
    unsafe {
        let mut sums = [[S::zero(); 1]; M];
        for offsets in x.offsets.chunks_exact(K) {
            let mut taps = [S::zero(); K];
            for tap in &mut taps {
                *tap = S::load(b);
                b = b.wrapping_add(x.b_row);
            }
            let at = a.offset(offsets[0]);
            for (output, [sum]) in sums.iter_mut().enumerate() {
                for (tap, filter) in taps.iter().enumerate() {
                    // The output before meets the same pixel with the tap after: compilers load it once.
                    *sum = S::mul_add(S::splat(at.add(output + tap)), *filter, *sum);
                }
            }
        }
        finish::<S, M, 1>(sums, [c; 2], [x.c_row; 2], true, M, S::LANES);
    }
}
