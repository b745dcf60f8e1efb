//! The passes of a convolution as problems: products over windows that no memory holds.
//!
//! A group is a product of a batch. Padding is a window coordinate outside of the image, read as zero. An input
//! gradient of stride s is s products along each axis, one for each distance of an image's pixel from the grid of the
//! stride: all pixels of a product meet the same taps.

use smallvec::{SmallVec, smallvec};

use super::problem::{Gather, Line, Problem, Scatter, WindowGuard, line};
use crate::library::{Conv2d, ConvPass, gcd};

/// Products of an input gradient at most; beyond, one product visits all taps and skips those between the grid.
const PHASES: usize = 16;

/// The products of a pass; they write disjoint parts of the result.
pub(super) fn problems(op: &Conv2d) -> Vec<Problem> {
    // Places are counted in steps times lines, which must fit.
    let op = &op.with_least_steps();
    match op.pass {
        ConvPass::Forward => vec![op.forward()],
        ConvPass::FilterGradient => vec![op.filter_gradient()],
        ConvPass::InputGradient if op.stride[0].min(op.height) * op.stride[1].min(op.width) > PHASES => {
            vec![op.spread_gradient()]
        }
        ConvPass::InputGradient => {
            let phases = |axis: usize| {
                let extent = [op.height, op.width][axis];
                (0..op.stride[axis].min(extent)).map(move |first| StridePhase::new(op, axis, first))
            };
            phases(0).flat_map(|y| phases(1).map(move |x| op.phase_gradient([y, x]))).collect()
        }
    }
}

/// Along one axis, the pixels of an image at one distance from the stride's grid, and the taps they meet.
#[derive(Clone, Copy)]
struct StridePhase {
    /// First pixel, and how many follow at the distance of the stride.
    first: usize,
    pixels: usize,
    /// First tap, and how many follow at a distance of `step`.
    tap: usize,
    taps: usize,
    step: usize,
    /// The cotangent's coordinate of the first pixel and tap, and how much less it is at the next tap.
    offset: i64,
    back: i64,
}

impl StridePhase {
    fn new(op: &Conv2d, axis: usize, first: usize) -> StridePhase {
        let (stride, dilation) = (op.stride[axis], op.dilation[axis]);
        let (extent, kernel) = ([op.height, op.width][axis], [op.kernel_height, op.kernel_width][axis]);
        let at = |tap: usize| (first + op.padding[axis][0]) as i64 - (tap * dilation) as i64;
        // The distance of taps after which the coordinate is on the grid again.
        let step = (stride / gcd(stride, dilation)).min(kernel.max(1));
        let tap = (0..step.min(kernel)).find(|tap| at(*tap) % stride as i64 == 0);
        StridePhase {
            first,
            pixels: (extent - first).div_ceil(stride),
            tap: tap.unwrap_or(0),
            taps: tap.map_or(0, |tap| (kernel - tap).div_ceil(step)),
            step,
            offset: at(tap.unwrap_or(0)).div_euclid(stride as i64),
            back: (dilation / gcd(stride, dilation)) as i64,
        }
    }
}

/// A window coordinate without a grid.
fn window(outer: (usize, i64), inner: (usize, i64), offset: i64, extent: usize) -> WindowGuard {
    WindowGuard { outer, inner, offset, extent, div: 1, stride: 0 }
}

impl Conv2d {
    /// The image's windows: their place (picture, line, pixel) and the taps in them (line, pixel, channel).
    fn windows(&self) -> (Line, Line, SmallVec<[WindowGuard; 2]>, i64) {
        let [out_height, out_width] = self.out_extent();
        let [n_in, _] = self.channels();
        let (pixel, row) = (self.in_channels as i64, (self.width * self.in_channels) as i64);
        let [stride, dilation] = [self.stride, self.dilation].map(|steps| steps.map(|step| step as i64));
        let pad = self.padding.map(|axis| axis[0] as i64);
        let place = line(&[
            (self.batch, self.height as i64 * row),
            (out_height, stride[0] * row),
            (out_width, stride[1] * pixel),
        ]);
        let taps =
            line(&[(self.kernel_height, dilation[0] * row), (self.kernel_width, dilation[1] * pixel), (n_in, 1)]);
        let windows = smallvec![
            window((1, stride[0]), (0, dilation[0]), -pad[0], self.height),
            window((2, stride[1]), (1, dilation[1]), -pad[1], self.width),
        ];
        (place, taps, windows, -pad[0] * row - pad[1] * pixel)
    }

    fn forward(&self) -> Problem {
        let (outer, inner, windows, offset) = self.windows();
        let [n_in, n_out] = self.channels();
        let [out_height, out_width] = self.out_extent();
        let m = self.batch * out_height * out_width;
        let a = Gather { dtype: self.dtype, offset, batch: smallvec![n_in as i64], outer, inner, windows };
        let b = Gather {
            dtype: self.dtype,
            offset: 0,
            batch: smallvec![n_out as i64],
            outer: line(&[(n_out, 1)]),
            inner: line(&[(self.n_taps(), self.out_channels as i64)]),
            windows: smallvec![],
        };
        self.problem([m, n_out, self.n_taps()], [a, b], self.out_channels, 0, line(&[(m, 1)]))
    }

    fn filter_gradient(&self) -> Problem {
        let (inner, outer, windows, offset) = self.windows();
        let [n_in, n_out] = self.channels();
        let [out_height, out_width] = self.out_extent();
        let k = self.batch * out_height * out_width;
        let windows = windows.into_iter().map(|w| WindowGuard { outer: w.inner, inner: w.outer, ..w }).collect();
        let a = Gather { dtype: self.dtype, offset, batch: smallvec![n_in as i64], outer, inner, windows };
        let b = Gather {
            dtype: self.dtype,
            offset: 0,
            batch: smallvec![n_out as i64],
            outer: line(&[(n_out, 1)]),
            inner: line(&[(k, self.out_channels as i64)]),
            windows: smallvec![],
        };
        let m = self.n_taps();
        self.problem([m, n_out, k], [a, b], self.out_channels, 0, line(&[(m, 1)]))
    }

    /// The input gradient at the pixels of one phase.
    fn phase_gradient(&self, [y, x]: [StridePhase; 2]) -> Problem {
        let [n_in, n_out] = self.channels();
        let [out_height, out_width] = self.out_extent();
        let (pixel, row) = (self.out_channels as i64, (out_width * self.out_channels) as i64);
        let a = Gather {
            dtype: self.dtype,
            offset: y.offset * row + x.offset * pixel,
            batch: smallvec![n_out as i64],
            outer: line(&[(self.batch, out_height as i64 * row), (y.pixels, row), (x.pixels, pixel)]),
            inner: line(&[(y.taps, -y.back * row), (x.taps, -x.back * pixel), (n_out, 1)]),
            windows: smallvec![
                window((1, 1), (0, -y.back), y.offset, out_height),
                window((2, 1), (1, -x.back), x.offset, out_width),
            ],
        };
        let b = self.turned_filter([y.tap, x.tap], [y.taps, x.taps], [y.step, x.step]);
        let rows = line(&[
            (self.batch, (self.height * self.width) as i64),
            (y.pixels, (self.stride[0] * self.width) as i64),
            (x.pixels, self.stride[1] as i64),
        ]);
        let first_row = y.first * self.width + x.first;
        let extents = [self.batch * y.pixels * x.pixels, n_in, y.taps * x.taps * n_out];
        self.problem(extents, [a, b], self.in_channels, first_row, rows)
    }

    /// The input gradient at all pixels at once.
    fn spread_gradient(&self) -> Problem {
        let [n_in, n_out] = self.channels();
        let [out_height, out_width] = self.out_extent();
        let (pixel, row) = (self.out_channels as i64, (out_width * self.out_channels) as i64);
        let taps = [self.kernel_height, self.kernel_width];
        let axis = |axis: usize, extent: usize, stride: i64| WindowGuard {
            outer: (axis + 1, 1),
            inner: (axis, -(self.dilation[axis] as i64)),
            offset: self.padding[axis][0] as i64,
            extent,
            div: self.stride[axis],
            stride,
        };
        let a = Gather {
            dtype: self.dtype,
            offset: 0,
            batch: smallvec![n_out as i64],
            outer: line(&[(self.batch, out_height as i64 * row), (self.height, 0), (self.width, 0)]),
            inner: line(&[(taps[0], 0), (taps[1], 0), (n_out, 1)]),
            windows: smallvec![axis(0, out_height, row), axis(1, out_width, pixel)],
        };
        let b = self.turned_filter([0, 0], taps, [1, 1]);
        let m = self.batch * self.height * self.width;
        self.problem([m, n_in, taps[0] * taps[1] * n_out], [a, b], self.in_channels, 0, line(&[(m, 1)]))
    }

    /// The filter with output channels along the sums: every `step`-th tap from `first` on.
    fn turned_filter(&self, first: [usize; 2], taps: [usize; 2], step: [usize; 2]) -> Gather {
        let [n_in, n_out] = self.channels();
        let tap = (n_in * self.out_channels) as i64;
        let line_of_taps = self.kernel_width as i64 * tap;
        Gather {
            dtype: self.dtype,
            offset: first[0] as i64 * line_of_taps + first[1] as i64 * tap,
            batch: smallvec![n_out as i64],
            outer: line(&[(n_in, self.out_channels as i64)]),
            inner: line(&[(taps[0], step[0] as i64 * line_of_taps), (taps[1], step[1] as i64 * tap), (n_out, 1)]),
            windows: smallvec![],
        }
    }

    /// A product for each group; `width` is the number of channels of the result.
    fn problem(
        &self,
        [m, n, k]: [usize; 3],
        [a, b]: [Gather; 2],
        width: usize,
        first_row: usize,
        rows: Line,
    ) -> Problem {
        let c = Scatter { dtype: self.dtype, width, first_row, rows, batch: smallvec![(0, n)] };
        let is_empty = m * n * k == 0;
        let simple = |gather: Gather| if is_empty { gather } else { gather.simplified() };
        Problem { batch: smallvec![self.groups], m, n, k, a: simple(a), b: simple(b), c }
    }
}
