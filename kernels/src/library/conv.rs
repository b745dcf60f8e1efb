//! Two-dimensional convolution and its two gradients, as products over sliding windows.
//!
//! Images are channels-last (`NHWC`), filters `HWIO`. No window matrix is ever stored: packing gathers its panels from
//! the image.
//!
//! Zeros beyond an edge take part in the sums, so that an infinity which meets one gives NaN: beyond the image in the
//! forward pass and in the filter gradient, where that makes the results those of a padded image, and beyond the
//! cotangent in the input gradient. There a pixel meets the taps that lie whole strides away from it, and nothing
//! between strides takes part.

pub(super) mod depthwise;

use std::ops::Range;

use retape_runtime::DType;

use self::depthwise::Depthwise;
use super::dense::{DenseKernel, check_arity, check_dtype, view, view_mut};
use super::exchange::exchange_to;
use super::extents::{Checked, count, countable, near};
use super::micro::{
    ConvPart, DirectConv, Engine, FilterGradient, Output, PixelRows, Product, Real, Strided, TapRows, Taps, Window,
    WindowAxis, has_many_parts, is_one_task, is_split, lines_of_chain, split_depth, with_scratch,
};
use super::text::{alternatives, descriptor};
use super::tile::{Tile, TileCallback, TileShape};
use crate::ensure::ensure;

alternatives! {
    /// Which of the three products of a convolution is computed.
    ConvPass {
        /// (image, filter) to result.
        Forward = "forward",
        /// (cotangent of the result, filter) to cotangent of the image; also the transposed convolution.
        InputGradient = "input_gradient",
        /// (image, cotangent of the result) to cotangent of the filter.
        FilterGradient = "filter_gradient",
    }
}

descriptor! {
    /// A convolution: image `[batch, height, width, in_channels]`, filter
    /// `[kernel_height, kernel_width, in_channels / groups, out_channels]`, result `[batch, .., .., out_channels]`.
    Conv2d "conv2d" {
        /// A float; products and sums of 16-bit floats are in single precision, and rounded once.
        dtype: DType,
        /// Number of images.
        batch: usize,
        /// Height of the image.
        height: usize,
        /// Width of the image.
        width: usize,
        /// Channels of the image.
        in_channels: usize,
        /// Height of the filter.
        kernel_height: usize,
        /// Width of the filter.
        kernel_width: usize,
        /// Channels of the result.
        out_channels: usize,
        /// Steps of the window, along height and width; positive.
        stride: [usize; 2],
        /// Zeros before and after the image, along height and width.
        padding: [[usize; 2]; 2],
        /// Steps between taps, along height and width; positive.
        dilation: [usize; 2],
        /// Groups of channels that do not mix; divides both channel counts.
        groups: usize,
        /// The pass: forward, or one of the gradients.
        pass: ConvPass,
    }
}

/// Elements of a filter that a second-level cache holds a few times.
pub(super) const MOST_LIGHT: usize = 1 << 16;

/// Elements of a filter that a second-level cache holds, beside some of an image.
const MOST_NEAR: usize = 1 << 19;

/// Rows of a filter's gradient that a task makes of a transposed one: some cache lines of each of its rows.
const TAPS: usize = 64;

/// Elements that a task holds of an image at most, padding included; images that would need more are packed.
const MOST_HELD: usize = 1 << 24;

impl Conv2d {
    fn check(&self) -> Checked {
        let Conv2d { batch, height, width, stride, dilation, groups, .. } = *self;
        check_dtype(self.dtype)?;
        ensure!(!stride.contains(&0), "the stride {stride:?} does not move on");
        ensure!(!dilation.contains(&0), "the dilation {dilation:?} does not move on");
        ensure!(groups > 0, "there is no group");
        for (what, n) in [("input", self.in_channels), ("output", self.out_channels)] {
            ensure!(n.is_multiple_of(groups), "{n} {what} channels do not divide into {groups} groups");
        }
        for axis in 0..2 {
            near("the stride", Some(stride[axis]))?;
            near("the dilation", Some(dilation[axis]))?;
            near("the extent of the padded image", self.padded(axis))?;
            near("the reach of the filter", self.reach(axis))?;
        }
        countable("the image", &[batch, height, width, self.in_channels])?;
        countable("the filter", &[self.kernel_height, self.kernel_width, self.in_channels, self.out_channels])?;
        let [out_height, out_width] = self.out_extent();
        countable("the result", &[batch, out_height, out_width, self.out_channels])?;
        // Where there is nothing to multiply, the other extents do not matter.
        let [_, n_out] = self.channels();
        let n_products = [
            count(&[batch, out_height, out_width, self.out_channels, self.n_taps()]),
            count(&[batch, height, width, self.in_channels, self.kernel_height, self.kernel_width, n_out]),
        ];
        n_products.into_iter().try_for_each(|n| countable("the number of multiplications", &[n]))
    }

    /// The extent of the padded image along an axis, if it can be counted.
    fn padded(&self, axis: usize) -> Option<usize> {
        let [before, after] = self.padding[axis];
        [self.height, self.width][axis].checked_add(before)?.checked_add(after)
    }

    /// The positions from the first tap to the last along an axis, if they can be counted.
    fn reach(&self, axis: usize) -> Option<usize> {
        match [self.kernel_height, self.kernel_width][axis] {
            0 => Some(0),
            taps => (taps - 1).checked_mul(self.dilation[axis])?.checked_add(1),
        }
    }

    /// Height and width of the result.
    pub fn out_extent(&self) -> [usize; 2] {
        [0, 1].map(|axis| {
            let room = self.padded(axis).zip(self.reach(axis)).and_then(|(padded, reach)| padded.checked_sub(reach));
            room.and_then(|room| room.checked_div(self.stride[axis])?.checked_add(1)).unwrap_or(0)
        })
    }

    /// Whether the elements of the padded image could be counted, if it were in memory, and those that a filter reaches
    /// over.
    pub(crate) fn is_near(&self) -> bool {
        let span = [0, 1].map(|axis| self.padded(axis).max(self.reach(axis)).unwrap_or(usize::MAX));
        countable("the padded image", &[span[0], span[1], self.in_channels.max(self.out_channels)]).is_ok()
    }

    /// The same convolution with steps no larger than they need be: of an axis with one window, the stride can be any
    /// number beyond the room; of one tap, the dilation.
    pub(crate) fn with_least_steps(&self) -> Conv2d {
        let mut least = self.clone();
        for axis in 0..2 {
            let room = self.padded(axis).zip(self.reach(axis)).and_then(|(padded, reach)| padded.checked_sub(reach));
            least.stride[axis] = self.stride[axis].min(room.map_or(1, |room| room + 1));
            if [self.kernel_height, self.kernel_width][axis] <= 1 {
                least.dilation[axis] = 1;
            }
        }
        least
    }

    /// A multiplication and an addition for each pixel and channel of the result and each tap, in every pass; taps that
    /// lie in the padding are counted.
    pub(super) fn flops(&self) -> u64 {
        let [_, _, result] = self.lens();
        count(&[2, result, self.n_taps()]) as u64
    }

    /// The number of elements of the two inputs' buffers.
    pub fn inputs(&self) -> Vec<(DType, usize)> {
        let [x, f, y] = self.lens();
        let lens = match self.pass {
            ConvPass::Forward => [x, f],
            ConvPass::InputGradient => [y, f],
            ConvPass::FilterGradient => [x, y],
        };
        lens.map(|len| (self.dtype, len)).into()
    }

    /// The number of elements of the result's buffer.
    pub fn outputs(&self) -> Vec<(DType, usize)> {
        let [x, f, y] = self.lens();
        let len = match self.pass {
            ConvPass::Forward => y,
            ConvPass::InputGradient => x,
            ConvPass::FilterGradient => f,
        };
        vec![(self.dtype, len)]
    }

    /// Computes the pass.
    ///
    /// # Panics
    ///
    /// Panics if the descriptor is not valid, or if a buffer is missing, of another length or not aligned to its
    /// elements.
    pub fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.run_with(inputs, outputs, &|_| {});
    }

    /// Computes the pass and calls `epilogue` for each finished block of the result.
    ///
    /// # Panics
    ///
    /// As [`Conv2d::run`].
    pub fn run_with(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], epilogue: TileCallback<'_>) {
        self.run_on(&Engine::best(), inputs, outputs, epilogue);
    }

    /// The naive loops, with sums in f64: the reference for `run`, up to rounding.
    ///
    /// # Panics
    ///
    /// As [`Conv2d::run`].
    pub fn reference(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.run_reference(inputs, outputs);
    }

    /// The channels of the result.
    pub(super) fn result_channels(&self) -> usize {
        if self.pass == ConvPass::InputGradient { self.in_channels } else { self.out_channels }
    }

    /// The blocks of the result that are finished one by one with all their channels, in the dtype that is computed in.
    pub(super) fn tiles(&self) -> Option<TileShape> {
        let (is_block, lines) = match self.pass {
            ConvPass::Forward => (true, self.out_extent()[1]),
            ConvPass::InputGradient => (self.stride == [1, 1] || self.groups > 1, self.width),
            ConvPass::FilterGradient => (false, 0),
        };
        let is_depthwise = self.groups > 1 && Depthwise::<f32>::new(self, &[]).is_some();
        let has_tiles = is_block && (self.groups == 1 || is_depthwise) && self.dtype.is_float();
        let has_whole_rows = is_depthwise || self.is_direct(lines) && !self.is_far();
        has_tiles.then(|| TileShape { width: self.result_channels(), has_whole_rows, is_one: false })
    }

    /// Elements of image, filter and result.
    fn lens(&self) -> [usize; 3] {
        let [out_height, out_width] = self.out_extent();
        [
            count(&[self.batch, self.height, self.width, self.in_channels]),
            count(&[self.n_taps(), self.out_channels]),
            count(&[self.batch, out_height, out_width, self.out_channels]),
        ]
    }

    /// Input and output channels of a group.
    pub(crate) fn channels(&self) -> [usize; 2] {
        [self.in_channels, self.out_channels].map(|channels| channels.checked_div(self.groups).unwrap_or(0))
    }

    /// Kernel positions times input channels: the length of a sum of the forward pass.
    pub(crate) fn n_taps(&self) -> usize {
        count(&[self.kernel_height, self.kernel_width, self.channels()[0]])
    }

    /// Elements of a group's filter.
    pub(super) fn filter_of_group(&self) -> usize {
        count(&[self.n_taps(), self.channels()[1]])
    }

    /// The buffers as elements, checked.
    fn buffers<'i, 'o, T: Real>(
        &self,
        inputs: &[&'i [u8]],
        outputs: &'o mut [&mut [u8]],
    ) -> ([&'i [T]; 2], &'o mut [T]) {
        check_arity(inputs, outputs, 2);
        let lens = self.inputs();
        let first = view(inputs[0], lens[0].1, "first input");
        let second = view(inputs[1], lens[1].1, "second input");
        ([first, second], view_mut(outputs[0], self.outputs()[0].1, "result"))
    }

    /// Calls `body` with the places in image, filter and output of each product of the pass; none for a zero beyond an
    /// edge.
    fn for_each_term(&self, mut body: impl FnMut(Option<usize>, usize, Option<usize>)) {
        let [out_height, out_width] = self.out_extent();
        let [n_in, n_out] = self.channels();
        // Without terms, the other extents can be any number. An image's gradient has some without any window: the zeros
        // that it multiplies are beyond the edges.
        let extents = match self.pass {
            ConvPass::Forward | ConvPass::FilterGradient => [out_height, out_width],
            ConvPass::InputGradient => [self.height, self.width],
        };
        if [self.batch, n_in, n_out, self.kernel_height, self.kernel_width].contains(&0) || extents.contains(&0) {
            return;
        }
        let (rows, columns) = (self.meetings(0), self.meetings(1));
        for b in 0..self.batch {
            for (row, column) in grid(rows.len(), columns.len()) {
                let ((y, ky, oy), (x, kx, ox)) = (rows[row], columns[column]);
                for (co, ci) in grid(self.out_channels, n_in) {
                    let channel = co / n_out * n_in + ci;
                    body(
                        y.zip(x).map(|(y, x)| ((b * self.height + y) * self.width + x) * self.in_channels + channel),
                        ((ky * self.kernel_width + kx) * n_in + ci) * self.out_channels + co,
                        oy.zip(ox).map(|(oy, ox)| ((b * out_height + oy) * out_width + ox) * self.out_channels + co),
                    );
                }
            }
        }
    }

    /// Along one axis, the coordinates in image, filter and output that a product of the pass belongs to; none beyond
    /// an edge.
    fn meetings(&self, axis: usize) -> Vec<(Option<usize>, usize, Option<usize>)> {
        let (extent, taps) = ([self.height, self.width][axis], [self.kernel_height, self.kernel_width][axis]);
        let (outputs, stride) = (self.out_extent()[axis], self.stride[axis] as i64);
        let below = |at: i64, limit: usize| usize::try_from(at).ok().filter(|at| *at < limit);
        let offset = |tap: usize| (tap * self.dilation[axis]) as i64 - self.padding[axis][0] as i64;
        match self.pass {
            ConvPass::Forward | ConvPass::FilterGradient => {
                let meet = |(o, tap)| (below(o as i64 * stride + offset(tap), extent), tap, Some(o));
                grid(outputs, taps).map(meet).collect()
            }
            ConvPass::InputGradient => {
                let at = |(pixel, tap)| (pixel, tap, pixel as i64 - offset(tap));
                let on_grid = grid(extent, taps).map(at).filter(|(.., at)| at % stride == 0);
                on_grid.map(|(pixel, tap, at)| (Some(pixel), tap, below(at / stride, outputs))).collect()
            }
        }
    }

    /// The windows of one group of the image.
    pub(super) fn window<'a, T: Real>(&self, group: usize, image: &'a [T]) -> Window<'a, T> {
        let outputs = self.out_extent();
        let axis = |axis: usize, extent: usize, taps: usize| WindowAxis {
            outputs: outputs[axis],
            taps,
            stride: self.stride[axis] as isize,
            dilation: self.dilation[axis] as isize,
            offset: -(self.padding[axis][0] as isize),
            extent,
        };
        let channels = self.channels()[0];
        Window {
            image: image.get(group * channels..).unwrap_or_default(),
            y: axis(0, self.height, self.kernel_height),
            x: axis(1, self.width, self.kernel_width),
            pixel: self.in_channels,
            channels,
        }
    }
}

impl DenseKernel for Conv2d {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn in_f32(&self) -> Conv2d {
        Conv2d { dtype: DType::F32, ..self.clone() }
    }

    fn is_valid(&self) -> bool {
        self.is_valid()
    }

    fn row_len(&self) -> usize {
        self.result_channels()
    }

    /// One element type, group by group.
    fn run_typed<T: Real>(
        &self,
        engine: &Engine,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        epilogue: TileCallback<'_>,
    ) {
        let ([p, q], out) = self.buffers::<T>(inputs, outputs);
        if out.is_empty() {
            return;
        }
        if engine.narrow
            && let Some(pass) = Depthwise::new(self, p)
        {
            pass.run(engine, q, out, epilogue);
            return;
        }
        if engine.divides && self.has_tasks_of_groups() {
            let call = ConvCall { op: self, engine: &engine.alone(), out: out.as_mut_ptr(), epilogue };
            (engine.parallel_for)(self.groups, &|group| call.group(group, p, q));
        } else {
            let call = ConvCall { op: self, engine, out: out.as_mut_ptr(), epilogue };
            (0..self.groups).for_each(|group| call.group(group, p, q));
        }
    }

    /// The reference for one element type: visits each product of the pass.
    fn reference_typed<T: Real>(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let ([p, q], out) = self.buffers::<T>(inputs, outputs);
        let mut sums = vec![0.0; out.len()];
        self.for_each_term(|x, f, y| {
            let (at, i, j) = match self.pass {
                ConvPass::Forward => (y, x, Some(f)),
                ConvPass::InputGradient => (x, y, Some(f)),
                ConvPass::FilterGradient => (Some(f), x, y),
            };
            let of = |operand: &[T], place: Option<usize>| place.map_or(0.0, |place| operand[place].to_f64());
            sums[at.expect("a result has no padding")] += of(p, i) * of(q, j);
        });
        out.iter_mut().zip(sums).for_each(|(out, sum)| *out = T::from_f64(sum));
    }
}

impl Conv2d {
    /// Whether a pass whose lines of outputs have `width` pixels reads its images in place: lines must fill tiles, and
    /// a kernel of one tap is a plain product unless steps leave rows out, or an input gradient spreads them. (Packed
    /// rows are read once, images once for each panel of the filter, so a heavy filter has its rows packed where lines are
    /// short; a small product is one task.)
    pub(super) fn is_direct(&self, width: usize) -> bool {
        let is_light = self.is_light();
        let [m, n, k] = self.product();
        let leaves_out = self.pass == ConvPass::Forward && is_light && !is_one_task(m, n, k);
        let is_gapped = self.stride != [1, 1] && (self.pass == ConvPass::InputGradient || leaves_out);
        let fills = width >= 6 || width >= 4 && is_light;
        fills && (self.kernel_height * self.kernel_width > 1 || is_gapped) && self.holds(1)
    }

    /// Whether the filter is so large that each image in place would read all of it from memory that cores share. A product
    /// then takes the place of a direct pass, with chains that are as long.
    pub(super) fn is_far(&self) -> bool {
        let [_, n, k] = self.product();
        count(&[n, k]) > MOST_NEAR
    }

    /// Rows, columns and depth of the product that would take the place of this pass.
    fn product(&self) -> [usize; 3] {
        let ([n_in, n_out], [out_height, out_width]) = (self.channels(), self.out_extent());
        let ([height, width], n, k) = match self.pass {
            ConvPass::Forward | ConvPass::FilterGradient => ([out_height, out_width], n_out, n_in),
            ConvPass::InputGradient => ([self.height / self.stride[0], self.width / self.stride[1]], n_in, n_out),
        };
        [count(&[self.batch, height, width]), n, count(&[self.kernel_height, self.kernel_width, k])]
    }

    /// Whether channels are divided into groups of so few that all groups are served at once: a tap of a pixel has few
    /// products, or is the only one.
    fn has_small_groups(&self) -> bool {
        const MOST_PRODUCTS: usize = 16;
        let is_small = self.groups > 1 && self.channels().iter().all(|n| (1..=depthwise::MOST_CHANNELS).contains(n));
        let has_few = count(&self.channels()) <= MOST_PRODUCTS || self.kernel_height * self.kernel_width == 1;
        is_small && has_few
    }

    /// Whether groups are tasks: many, of little work, or of more where images are too small to be divided well.
    pub(super) fn has_tasks_of_groups(&self) -> bool {
        const MANY: usize = 8;
        const LITTLE: usize = 1 << 20;
        const MORE: usize = 1 << 24;
        const FEW_OUTPUTS: usize = 64;
        let most = if count(&self.out_extent()) < FEW_OUTPUTS { MORE } else { LITTLE };
        self.groups >= MANY && self.kernel_height * self.kernel_width > 1 && count(&self.product()) <= most
    }

    /// Whether the filter can be passed over for each line of outputs, since a second-level cache holds it, and whether
    /// no product in place of this pass would be cut along its depth: in place, no sum is.
    fn is_light(&self) -> bool {
        let [m, n, k] = self.product();
        count(&[n, k]) <= MOST_LIGHT && !is_split(m, n, k)
    }

    /// Whether the filter's gradient reads copies of images. Its chains are lines of one image, and must be long enough to pay
    /// for passing over the sums; they pay sooner for a heavy filter, whose product packs more.
    pub(super) fn is_gradient_direct(&self) -> bool {
        let [out_height, out_width] = self.out_extent();
        let [n_in, n_out] = self.channels();
        let chain = lines_of_chain([out_height, out_width]);
        let taps = [self.kernel_height, self.kernel_width, n_in];
        let (least, has_tasks) = match self.filter_of_group() {
            // Otherwise each group would have a product of its own.
            _ if self.has_small_groups() => (1, true),
            0..=MOST_LIGHT => (64, true),
            _ => (32, has_many_parts(self.batch, taps, n_out)),
        };
        self.batch > 0
            && out_height * out_width >= least
            && (self.kernel_height * self.kernel_width > 1 || self.has_small_groups())
            && has_tasks
            && self.holds(chain)
    }

    /// Whether the filter's gradient reads the image in place: one tap inside the image at each output, a product that is
    /// cut along its depth otherwise, and an image that does not end within a tile of the last window.
    pub(super) fn is_gradient_in_place(&self) -> bool {
        let (outputs, [n_in, n_out]) = (self.out_extent(), self.channels());
        let has_one_tap = [self.kernel_height, self.kernel_width] == [1, 1] && self.padding == [[0; 2]; 2];
        if !has_one_tap || self.batch == 0 || outputs.contains(&0) || n_in == 0 {
            return false;
        }
        let [y, x] = [0, 1].map(|axis| (outputs[axis] - 1) * self.stride[axis]);
        let last = ((self.batch - 1) * self.height + y) * self.width + x;
        let after = self.batch * self.height * self.width - last - 1;
        let k = count(&[self.batch, outputs[0], outputs[1]]);
        n_in * n_out <= MOST_LIGHT && is_split(n_in, n_out, k) && after * self.in_channels >= 16
    }

    /// Whether a task can hold what some lines of outputs read of an image, or of a cotangent, with its padding. The
    /// padding of an image is in no memory, so it can be larger than that by far.
    pub(super) fn holds(&self, n_lines: usize) -> bool {
        // The phases of an input gradient reach one position beyond the padded cotangent on either side at most.
        let reach = |axis: usize| self.reach(axis).unwrap_or(usize::MAX).saturating_add(2);
        let height = (n_lines - 1).saturating_mul(self.stride[0]).saturating_add(reach(0));
        let width = self.padded(1).unwrap_or(usize::MAX).saturating_add(reach(1));
        // A last tile that is not full reads beyond the end.
        let slack = self.stride[1].saturating_mul(16);
        let pixels = count(&[height, width]).saturating_add(slack);
        count(&[pixels, self.in_channels.max(self.out_channels) / self.groups]) <= MOST_HELD
    }

    /// The windows that one phase of the input gradient has on the cotangent.
    fn phase_window<'a, T: Real>(&self, [y, x]: &[GradientPhase; 2], group: usize, ct: &'a [T]) -> Window<'a, T> {
        let channels = self.channels()[1];
        let image = ct.get(group * channels..).unwrap_or_default();
        Window { image, y: y.axis, x: x.axis, pixel: self.out_channels, channels }
    }

    /// The filter's taps that take part in one phase of the input gradient.
    fn phase_taps<'a, T: Real>(&self, [y, x]: &[GradientPhase; 2], group: usize, filter: &'a [T]) -> Taps<'a, T> {
        let [n_in, n_out] = self.channels();
        let tap = n_in * self.out_channels;
        let start = (y.tap * self.kernel_width + x.tap) * tap + group * n_out;
        Taps {
            filter: filter.get(start..).unwrap_or_default(),
            n_x: x.axis.taps,
            stride: [y.step * self.kernel_width * tap, x.step * tap],
            channels: n_out,
            row: self.out_channels,
        }
    }
}

/// All pairs below the two extents, in row-major order.
fn grid(n: usize, m: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n).flat_map(move |i| (0..m).map(move |j| (i, j)))
}

/// The outputs of one axis that share their taps, in an input gradient: those at one distance from the stride's grid.
#[derive(Clone, Copy)]
pub(super) struct GradientPhase {
    /// The cotangent's coordinates against the outputs of the phase.
    pub(super) axis: WindowAxis,
    /// First tap of the filter, and the distance of the phase's taps.
    pub(super) tap: usize,
    pub(super) step: usize,
    /// First output; the next ones follow at the distance of the stride.
    pub(super) first: usize,
}

impl GradientPhase {
    /// The phases of `axis` that have outputs.
    fn all(op: &Conv2d, axis: usize) -> Vec<GradientPhase> {
        let extent = [op.height, op.width][axis];
        (0..op.stride[axis].min(extent)).map(|first| GradientPhase::new(op, axis, first)).collect()
    }

    /// The phases of both axes.
    pub(super) fn pairs(op: &Conv2d) -> Vec<[GradientPhase; 2]> {
        let columns = GradientPhase::all(op, 1);
        GradientPhase::all(op, 0).into_iter().flat_map(|y| columns.iter().map(move |x| [y, *x])).collect()
    }

    /// The phase of output `first`: tap t meets it where `first + padding - t * dilation` is a multiple of the stride.
    fn new(op: &Conv2d, axis: usize, first: usize) -> GradientPhase {
        let (stride, dilation) = (op.stride[axis], op.dilation[axis]);
        let (extent, kernel) = ([op.height, op.width][axis], [op.kernel_height, op.kernel_width][axis]);
        // From one tap to the next; further than the kernel is as far as it.
        let step = (stride / gcd(stride, dilation)).min(kernel.max(1));
        let at = |tap: usize| (first + op.padding[axis][0]) as isize - (tap * dilation) as isize;
        let tap = (0..step.min(kernel)).find(|tap| at(*tap) % stride as isize == 0);
        let axis = WindowAxis {
            outputs: (extent - first).div_ceil(stride),
            taps: tap.map_or(0, |tap| (kernel - tap).div_ceil(step)),
            stride: 1,
            // A step of taps is as many multiples of the stride as this.
            dilation: -((dilation / gcd(stride, dilation)) as isize),
            offset: at(tap.unwrap_or(0)).div_euclid(stride as isize),
            extent: op.out_extent()[axis],
        };
        GradientPhase { axis, tap: tap.unwrap_or(0), step, first }
    }
}

/// The greatest common divisor.
pub(crate) fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A convolution under way.
struct ConvCall<'a, T> {
    op: &'a Conv2d,
    engine: &'a Engine,
    out: *mut T,
    epilogue: TileCallback<'a>,
}

// SAFETY: tasks write disjoint parts of the result.
unsafe impl<T: Sync> Sync for ConvCall<'_, T> {}

impl<T: Real> ConvCall<'_, T> {
    /// The pass of one group.
    fn group(&self, group: usize, p: &[T], q: &[T]) {
        match self.op.pass {
            ConvPass::Forward => self.forward(group, p, q),
            ConvPass::InputGradient => self.input_gradient(group, p, q),
            ConvPass::FilterGradient => self.filter_gradient(group, p, q),
        }
    }

    /// Image windows times filter.
    fn forward(&self, group: usize, image: &[T], filter: &[T]) {
        let op = self.op;
        let [_, n_out] = op.channels();
        let [out_height, out_width] = op.out_extent();
        let first = group * n_out;
        // SAFETY: the filter's columns of this group; `filter` outlives the product.
        let b = unsafe { Strided::new(filter.as_ptr().wrapping_add(first), 1, op.out_channels as isize) };
        let window = op.window(group, image);
        let is_direct = op.is_direct(out_width);
        if is_direct && !self.takes_product() {
            let step = [out_width * op.out_channels, op.out_channels];
            let parts = vec![ConvPart { window, filter: &b, first, step }];
            self.direct(true, parts, n_out, first, [out_height, out_width], op.out_channels);
            return;
        }
        let (m, n, k) = (op.batch * out_height * out_width, n_out, op.n_taps());
        let out = self.output(first, op.out_channels, None);
        let done = |rows, cols| self.finish(rows, cols, first, op.out_channels);
        let product = Product { m, n, k, a: &PixelRows(window), b: &b, out };
        // SAFETY: the output is this group's columns of the result.
        unsafe { self.engine.multiply_in_parts(&product, if is_direct { k } else { split_depth(m, n, k) }, &done) };
    }

    /// Cotangent windows times transposed filter, phase by phase of the stride.
    fn input_gradient(&self, group: usize, ct: &[T], filter: &[T]) {
        let op = self.op;
        let [n_in, _] = op.channels();
        let first = group * n_in;
        let dense = op.stride == [1, 1];
        let phases = GradientPhase::pairs(op);
        let taps: Vec<Taps<'_, T>> = phases.iter().map(|phase| op.phase_taps(phase, group, filter)).collect();
        let is_direct = op.is_direct(op.width / op.stride[1]);
        if is_direct && !self.takes_product() {
            let parts = phases.iter().zip(&taps).map(|(phase, taps)| ConvPart {
                window: op.phase_window(phase, group, ct),
                filter: taps,
                first: (phase[0].first * op.width + phase[1].first) * op.in_channels + first,
                // Beyond the image, there is no other output.
                step: [op.stride[0].min(op.height) * op.width, op.stride[1].min(op.width)].map(|n| n * op.in_channels),
            });
            self.direct(dense, parts.collect(), n_in, first, [op.height, op.width], op.in_channels);
        } else {
            for (phase, taps) in phases.iter().zip(&taps) {
                self.multiply_phase(phase, PixelRows(op.phase_window(phase, group, ct)), taps, group, is_direct);
            }
        }
        if !dense {
            self.finish_all(op.batch * op.height * op.width, n_in, first, op.in_channels);
        }
    }

    /// Whether a product takes the place of a pass that could read its images in place.
    fn takes_product(&self) -> bool {
        self.engine.narrow && self.op.is_far()
    }

    /// One phase of the input gradient as a product, with `whole` chains or those of a product.
    fn multiply_phase(
        &self,
        [y, x]: &[GradientPhase; 2],
        windows: PixelRows<'_, T>,
        taps: &Taps<'_, T>,
        group: usize,
        whole: bool,
    ) {
        let op = self.op;
        let [n_in, n_out] = op.channels();
        let first = group * n_in;
        let dense = op.stride == [1, 1];
        let place = |row: usize| {
            let (line, i) = (row / x.axis.outputs, row % x.axis.outputs);
            let (image, j) = (line / y.axis.outputs, line % y.axis.outputs);
            let (at_y, at_x) = (y.first + j * op.stride[0], x.first + i * op.stride[1]);
            ((image * op.height + at_y) * op.width + at_x) * op.in_channels
        };
        let out = self.output(first, op.in_channels, (!dense).then_some(&place));
        let (m, k) = (op.batch * y.axis.outputs * x.axis.outputs, y.axis.taps * x.axis.taps * n_out);
        let product = Product { m, n: n_in, k, a: &windows, b: taps, out };
        let done = |rows, cols| {
            if dense {
                self.finish(rows, cols, first, op.in_channels);
            }
        };
        // SAFETY: the output is this phase's pixels and this group's channels of the result.
        unsafe { self.engine.multiply_in_parts(&product, if whole { k } else { split_depth(m, n_in, k) }, &done) };
    }

    /// Computes the parts of one group from images in place. The result has `lines` of `width` pixels for each image.
    fn direct(
        &self,
        dense: bool,
        parts: Vec<ConvPart<'_, T>>,
        n: usize,
        first: usize,
        [lines, width]: [usize; 2],
        stride: usize,
    ) {
        let conv = DirectConv { batch: self.op.batch, n, out_image: lines * width * stride, parts };
        // SAFETY: the parts put their outputs into this group's columns of the result.
        unsafe {
            self.engine.direct_conv(&conv, self.out, &|image, done| {
                // The outputs of a phase are no block of rows.
                if dense {
                    let row = image * lines * width;
                    self.finish(row + done.start * width..row + done.end * width, 0..n, first, stride);
                }
            });
        }
    }

    /// Transposed image windows times cotangent.
    fn filter_gradient(&self, group: usize, image: &[T], ct: &[T]) {
        let op = self.op;
        let [_, n_out] = op.channels();
        let first = group * n_out;
        // SAFETY: the cotangent's channels of this group; `ct` outlives the product.
        let channels = unsafe { Strided::new(ct.as_ptr().wrapping_add(first), 1, op.out_channels as isize) };
        let window = op.window(group, image);
        let (batch, tap_rows) = (op.batch, window.channels);
        let gradient = FilterGradient { window, ct: &channels, batch, n: n_out, tap_rows };
        let out = self.out.wrapping_add(first);
        if op.is_gradient_direct() {
            // SAFETY: the output is this group's columns of the result.
            unsafe { self.engine.direct_filter_gradient(&gradient, out, op.out_channels) };
        } else if self.engine.narrow && op.is_gradient_in_place() {
            // SAFETY: the same; `is_gradient_in_place` has looked at the windows and at the end of the image.
            unsafe { self.engine.one_tap_gradient(&gradient, out, op.out_channels) };
        } else {
            self.multiply_transposed(TapRows(gradient.window), &channels, first);
        }
        self.finish_all(op.n_taps(), n_out, first, op.out_channels);
    }

    /// The filter gradient as a product.
    fn multiply_transposed(&self, windows: TapRows<'_, T>, channels: &Strided<T>, first: usize) {
        let op = self.op;
        let [out_height, out_width] = op.out_extent();
        let (n_taps, n_out) = (op.n_taps(), op.channels()[1]);
        let k = op.batch * out_height * out_width;
        if windows.is_chunked() {
            let out = self.output(first, op.out_channels, None);
            let product = Product { m: n_taps, n: n_out, k, a: &windows, b: channels, out };
            // SAFETY: the output is this group's columns of the result.
            unsafe { self.engine.multiply(&product, &|_, _| {}) };
            return;
        }
        // The larger operand is quicker to pack as column panels, so the transposed result is computed.
        with_scratch::<T, _>(n_taps * n_out, |transposed| {
            let out = Output { data: transposed.as_mut_ptr(), stride: n_taps, rows: None };
            let product = Product { m: n_out, n: n_taps, k, a: channels, b: &windows, out };
            // SAFETY: the output is scratch of that size.
            unsafe { self.engine.multiply(&product, &|_, _| {}) };
            let out = self.output(first, op.out_channels, None);
            self.engine.for_each_in_runs(n_taps.div_ceil(TAPS), &|task| {
                let taps = task * TAPS..n_taps.min((task + 1) * TAPS);
                let from = &transposed[taps.start..];
                // SAFETY: this group's columns of some rows of the result.
                unsafe { exchange_to(from, n_taps, [n_out, taps.len()], out.row(taps.start), op.out_channels) };
            });
        });
    }

    /// The result from column `first` on.
    fn output<'p>(
        &self,
        first: usize,
        stride: usize,
        rows: Option<&'p (dyn Fn(usize) -> usize + Sync)>,
    ) -> Output<'p, T> {
        Output { data: self.out.wrapping_add(first), stride, rows }
    }

    /// Tells the epilogue of a finished block of the group whose columns start at `first`.
    fn finish(&self, rows: Range<usize>, cols: Range<usize>, first: usize, row_stride: usize) {
        let cols = cols.start + first..cols.end + first;
        let data = self.out.wrapping_add(rows.start * row_stride + cols.start).cast();
        (self.epilogue)(Tile { rows, cols, data, row_stride, size: size_of::<T>() });
    }

    /// Tells the epilogue of a group's result that was not finished block by block.
    fn finish_all(&self, n_rows: usize, n_cols: usize, first: usize, row_stride: usize) {
        const ROWS: usize = 256;
        self.engine.for_each_in_runs(n_rows.div_ceil(ROWS), &|task| {
            self.finish(task * ROWS..((task + 1) * ROWS).min(n_rows), 0..n_cols, first, row_stride);
        });
    }
}
