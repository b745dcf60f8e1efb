//! Taps in the padding, which need not be multiplied.
//!
//! A tap in the padding is +0. Beside finite numbers its products are zeros, and a sum that began at +0 is the same with
//! them. (A sum that is negative, smaller than half the least subnormal and so rounded to -0 keeps its sign.) An infinity
//! or NaN beside it gives NaN, so all of the other operand is looked at before taps are left out.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::drive::Engine;
use super::{Real, WindowAxis};
use crate::library::view::vectorized;

/// One of so many taps in the padding is enough.
const PART: usize = 64;

/// Pixels that a weight is not multiplied with, in the mean, for which it pays to look at all weights.
const PIXELS: usize = 32;

/// Elements that one task looks at.
const ELEMENTS: usize = 1 << 16;

/// Outputs that meet the same taps.
pub(super) struct MetTaps {
    pub(super) outputs: Range<usize>,
    pub(super) taps: Range<usize>,
}

/// Whether no element is an infinity or NaN.
pub(super) fn are_finite<T: Real>(x: &[T]) -> bool {
    const LANES: usize = 64;
    vectorized(
        #[inline(always)]
        || {
            let (blocks, rest) = x.as_chunks::<LANES>();
            // Zero times an infinity is NaN, which no sum loses.
            let mut sums = [T::ZERO; LANES];
            for block in blocks {
                for lane in 0..LANES {
                    sums[lane] = block[lane].fused(T::ZERO, sums[lane]);
                }
            }
            let sum = rest.iter().chain(&sums).fold(T::ZERO, |sum, x| x.fused(T::ZERO, sum));
            sum == T::ZERO
        },
    )
}

impl Engine {
    /// Whether no element is an infinity or NaN, seen by all threads.
    pub(super) fn are_finite<T: Real>(&self, x: &[T]) -> bool {
        let result = AtomicBool::new(true);
        let pieces: Vec<&[T]> = x.chunks(ELEMENTS).collect();
        (self.parallel_for)(pieces.len(), &|piece| {
            if !are_finite(pieces[piece]) {
                result.store(false, Ordering::Relaxed);
            }
        });
        result.into_inner()
    }
}

impl WindowAxis {
    /// How often a tap is in the padding.
    fn n_outside(&self) -> usize {
        let all = 0..self.outputs;
        (0..self.taps).map(|tap| all.len() - self.outputs_inside(tap, &all).len()).sum()
    }

    /// Whether such a part of all taps is in the padding that it pays to look at what they would meet.
    pub(super) fn leaves_out_part(&self) -> bool {
        self.n_outside().saturating_mul(PART) >= self.outputs.saturating_mul(self.taps).max(1)
    }

    /// The same for a filter, of which each line of taps meets `pixels` in each of these outputs.
    pub(super) fn leaves_out_pixels(&self, pixels: usize) -> bool {
        let n_outside = self.n_outside().saturating_mul(pixels);
        self.leaves_out_part() && n_outside >= PIXELS.saturating_mul(self.taps)
    }

    /// Of the pixels of a line that `taps` taps a stride apart meet, from `tap` on, those before and after the image that not
    /// all of them meet.
    pub(super) fn padded_pixels(&self, tap: usize, taps: usize) -> [usize; 2] {
        let pixels = 0..self.outputs + taps - 1;
        let axis = WindowAxis { outputs: pixels.end, ..*self };
        let inside = axis.outputs_inside(tap, &pixels);
        [inside.start, pixels.end - inside.end].map(|n| n.min(taps - 1))
    }

    /// All outputs in runs of those that meet the same taps: of all taps, or of those `inside` the image, and of one at
    /// least, so that each output has a sum.
    pub(super) fn runs(&self, inside: bool) -> Vec<MetTaps> {
        if !inside {
            return vec![MetTaps { outputs: 0..self.outputs, taps: 0..self.taps.max(1) }];
        }
        let taps = |output: usize| {
            let taps = self.taps_inside(output);
            let start = taps.start.min(self.taps.saturating_sub(1));
            start..taps.end.max(start + 1)
        };
        let mut runs: Vec<MetTaps> = Vec::new();
        for (output, taps) in (0..self.outputs).map(|output| (output, taps(output))) {
            match runs.last_mut() {
                Some(run) if run.taps == taps => run.outputs.end += 1,
                _ => runs.push(MetTaps { outputs: output..output + 1, taps }),
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes() -> impl Iterator<Item = WindowAxis> {
        let steps = [1, 2, 3].into_iter().flat_map(|stride| [-3, -2, -1, 1, 2].map(|dilation| (stride, dilation)));
        steps.flat_map(|(stride, dilation)| {
            (0..7).flat_map(move |taps| {
                [-9, -2, -1, 0, 3, 12].into_iter().flat_map(move |offset| {
                    [1, 4, 10].map(|extent| WindowAxis { outputs: 8, taps, stride, dilation, offset, extent })
                })
            })
        })
    }

    #[test]
    fn taps_inside_are_those_that_meet_a_pixel() {
        for axis in axes() {
            let mut outputs = 0;
            for run in axis.runs(true) {
                for output in run.outputs.clone() {
                    let inside: Vec<usize> = (0..axis.taps).filter(|tap| axis.inside(output, *tap).is_some()).collect();
                    assert_eq!(axis.taps_inside(output).collect::<Vec<_>>(), inside, "{axis:?} {output}");
                    assert!(inside.iter().all(|tap| run.taps.contains(tap)), "{axis:?} {output}");
                    assert!(run.taps.len() == inside.len().max(1), "{axis:?} {output}");
                    assert!(run.taps.end <= axis.taps.max(1), "{axis:?} {output}");
                    assert_eq!(output, outputs, "{axis:?}: outputs in order");
                    outputs += 1;
                }
            }
            assert_eq!(outputs, axis.outputs);
            assert!(axis.runs(false).iter().all(|run| run.taps == (0..axis.taps.max(1))), "{axis:?}");
        }
    }

    /// Pixels of a line of windows with dilation 1: each is met by some of the taps, and those that are left out are outside.
    #[test]
    fn padded_pixels_are_outside_the_image() {
        for axis in axes().filter(|axis| axis.dilation == 1) {
            let (stride, first) = (axis.stride as usize, axis.taps.min(1));
            for taps in 2..=3.min(axis.taps.saturating_sub(first).div_ceil(stride)) {
                let [before, after] = axis.padded_pixels(first, taps);
                let n_pixels = axis.outputs + taps - 1;
                let is_inside = |pixel: usize| {
                    let at = axis.offset + first as isize + (pixel * stride) as isize;
                    (0..axis.extent as isize).contains(&at)
                };
                assert!(before < taps && after < taps, "{axis:?}");
                assert!(
                    (0..before).chain(n_pixels - after..n_pixels).all(|pixel| !is_inside(pixel)),
                    "{axis:?} {taps}"
                );
                assert!(before == taps - 1 || is_inside(before) || !(0..n_pixels).any(is_inside), "{axis:?} {taps}");
                let last = n_pixels - 1 - after;
                assert!(after == taps - 1 || is_inside(last) || !(0..n_pixels).any(is_inside), "{axis:?} {taps}");
            }
        }
    }

    #[test]
    fn infinities_and_nan_are_found_wherever_they_are() {
        for len in [0, 1, 63, 64, 130, ELEMENTS + 5] {
            let mut x = vec![f32::MAX; len];
            x.iter_mut().step_by(3).for_each(|x| *x = -1e-45);
            assert!(are_finite(&x) && Engine::best().are_finite(&x), "{len}");
            for at in [0, 62, 64, 129, ELEMENTS + 4].into_iter().filter(|at| *at < len) {
                for value in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
                    let was = std::mem::replace(&mut x[at], value);
                    assert!(!are_finite(&x) && !Engine::best().are_finite(&x), "{value} at {at} of {len}");
                    x[at] = was;
                }
            }
        }
    }
}
