//! Convolutions in groups of few channels, down to one: a single pass over the image serves all groups.
//!
//! Channels of the result are lanes. With a channel to a group, images are read in place, if the channels fill a vector
//! (`in_place.rs`). Else a task copies the part of an image that it needs, with its padding, to memory of
//! its own, one block of lanes at a time: for each channel of a group a plane, in which every lane finds that channel of
//! its own group. Neighbouring outputs are neighbours there for any stride, and every tap is at a fixed distance.
//!
//! Guarantees the bits of the products in `micro`: an element is a sum over blocks of [`block_depth`] steps in order,
//! each one chain of fused multiply-adds from +0; zeros of the padding take part, except where images are read in place and
//! a filter of finite numbers meets them (`micro/padding.rs`).

mod in_place;

use std::array;
use std::ops::Range;

use super::{Conv2d, ConvPass, GradientPhase, MOST_LIGHT};
use crate::library::extents::count;
use crate::library::micro::{Engine, Real, WindowAxis, block_depth, images_of_task, lines_of_chain, with_scratch};
use crate::library::tile::{Tile, TileCallback};
use crate::library::view::{CACHE_LINE, TileView, for_each_chunk, for_each_tile, vectorized};

/// Channels of a group at most.
pub(super) const MOST_CHANNELS: usize = 8;

/// Vectors of sums that are computed together: the chains that keep a processor busy.
const VECTORS: usize = 8;

/// Elements of an image that a task holds at a time, unless a single line of outputs needs more.
const HELD: usize = 48 << 10;

/// Elements of the source, in all channels, that a task passes over at a time, unless a single line needs more: its
/// blocks of lanes read them one after the other, and find them in the second-level cache.
const PASSED: usize = 64 << 10;

/// Elements that a single line of outputs may need.
const MOST_HELD: usize = 1 << 20;

/// Tasks that a result is cut into, if it has as many lines.
const TASKS: usize = 16;

/// Lanes of a vector of 32 bytes.
const fn lanes<T>() -> usize {
    32 / size_of::<T>()
}

/// A pass with channels of its result, or of its cotangent for a filter's gradient, as lanes.
pub(in crate::library) struct Depthwise<'a, T> {
    op: &'a Conv2d,
    /// The image, or the cotangent for an input gradient.
    source: &'a [T],
    /// Height and width of the source and its channels.
    extent: [usize; 3],
    /// Channels of a group, of the source and of the lanes.
    group: [usize; 2],
    /// Channels that are lanes.
    channels: usize,
    /// Lanes of a block: one vector, or two, which are a cache line of channels. A copy then reads each line once, and the
    /// sums of neighbouring vectors share the places of their pixels.
    lanes: usize,
    parts: Vec<DepthwisePart>,
    held: Held,
}

/// The outputs that share their taps: all of a forward pass, one phase of the stride in an input gradient.
struct DepthwisePart {
    phase: [GradientPhase; 2],
    /// Where each step of the sum lies, counted from the lowest tap of the first output.
    offsets: Vec<usize>,
}

/// Some channels of pixels that are read together.
struct ChannelBlock {
    channels: Range<usize>,
    /// Channels that are computed: these, and perhaps some of zeros after them.
    len: usize,
    /// Elements from a pixel to the next: all channels, or those of a copy.
    pitch: usize,
}

impl ChannelBlock {
    /// Their number is a multiple of this, except for the last ones.
    const STEP: usize = 16;

    /// Channels of pixels that have `n`.
    fn in_place(channels: Range<usize>, n: usize) -> ChannelBlock {
        ChannelBlock { len: channels.len(), channels, pitch: n }
    }

    /// Copies of `n` channels, at most so many at a time; the shortest vector has `lanes` of them.
    fn copied<T>(n: usize, most: usize, lanes: usize) -> Vec<ChannelBlock> {
        let len = n.div_ceil(n.div_ceil(most.max(1))).next_multiple_of(ChannelBlock::STEP);
        let of_line = CACHE_LINE / size_of::<T>();
        // An odd number of cache lines: each pixel lies in other sets than its neighbours.
        let pitch = (len.div_ceil(of_line) | 1) * of_line;
        let block = |first: usize| {
            let channels = first..(first + len).min(n);
            ChannelBlock { len: channels.len().next_multiple_of(lanes), channels, pitch }
        };
        (0..n).step_by(len).map(block).collect()
    }

    /// Copies pixels that have `n` channels.
    fn copy<T: Real>(&self, pixels: &[T], n: usize, to: &mut [T]) {
        for (pixel, to) in pixels.chunks_exact(n).zip(to.chunks_exact_mut(self.pitch)) {
            let (to, zeros) = to[..self.len].split_at_mut(self.channels.len());
            to.copy_from_slice(&pixel[self.channels.clone()]);
            zeros.fill(T::ZERO);
        }
    }

    /// Pixels that have `n` channels, from these on, or their copy if there is room for one.
    fn read<'s, T: Real>(&self, pixels: &'s [T], n: usize, copy: &'s mut [T]) -> &'s [T] {
        if copy.is_empty() {
            return &pixels[self.channels.start..];
        }
        self.copy(pixels, n, copy);
        copy
    }
}

/// How a part of the source lies in a task's memory: lines, then planes, then slots.
struct Held {
    /// The lowest column.
    low: isize,
    /// Columns from an output to the next; those at equal distance from this grid are neighbours.
    stride: usize,
    /// Slots of one such row of neighbours.
    columns: usize,
    /// Slots from line to line.
    line: usize,
}

impl<'a, T: Real> Depthwise<'a, T> {
    /// The pass on this source, unless its shape is better served group by group.
    pub(in crate::library) fn new(op: &'a Conv2d, source: &'a [T]) -> Option<Depthwise<'a, T>> {
        let [n_in, n_out] = op.channels();
        let has_taps = op.kernel_height > 0 && op.kernel_width > 0;
        let is_served = op.has_small_groups() && has_taps && op.holds(1);
        // The partial results of large filters in all groups would be large as well.
        let has_sums = op.is_gradient_direct() && op.filter_of_group() <= MOST_LIGHT;
        if !is_served || op.pass == ConvPass::FilterGradient && !has_sums {
            return None;
        }
        let [out_height, out_width] = op.out_extent();
        let (phases, extent, group, channels) = match op.pass {
            ConvPass::Forward | ConvPass::FilterGradient => {
                let window = op.window::<T>(0, &[]);
                let phase = |axis: WindowAxis| GradientPhase { axis, tap: 0, step: 1, first: 0 };
                let extent = [op.height, op.width, op.in_channels];
                (vec![[phase(window.y), phase(window.x)]], extent, [n_in, n_out], op.out_channels)
            }
            ConvPass::InputGradient => {
                let extent = [out_height, out_width, op.out_channels];
                (GradientPhase::pairs(op), extent, [n_out, n_in], op.in_channels)
            }
        };
        let held = Held::new(&phases, group[0])?;
        let parts =
            phases.into_iter().map(|phase| DepthwisePart { offsets: held.offsets(&phase, group[0]), phase }).collect();
        // The sums of a filter's gradient have a vector for each tap; and no vector is to be computed for nothing.
        let pair = 2 * lanes::<T>();
        let pairs = op.pass != ConvPass::FilterGradient && channels.next_multiple_of(lanes::<T>()).is_multiple_of(pair);
        let lanes = if pairs { pair } else { lanes::<T>() };
        let pass = Depthwise { op, source, extent, group, channels, lanes, parts, held };
        (pass.held_len(1) <= MOST_HELD).then_some(pass)
    }

    /// Lines of outputs from one line of a part to the next.
    fn spacing(&self) -> [usize; 2] {
        if self.op.pass == ConvPass::InputGradient { self.op.stride } else { [1, 1] }
    }

    /// Lines of the source from one line of a part to the next.
    fn stride(&self) -> usize {
        self.parts.first().map_or(1, |part| part.phase[0].axis.stride as usize)
    }

    /// Lines of the source that one line of outputs reaches over, in all parts.
    fn reach(&self) -> usize {
        let reach = |part: &DepthwisePart| part.phase[0].axis.reach();
        let low = self.parts.iter().map(|part| reach(part)[0]).min().unwrap_or(0);
        let high = self.parts.iter().map(|part| reach(part)[1]).max().unwrap_or(0);
        (high - low + 1).max(1) as usize
    }

    /// Lines of the source that some lines of outputs need at most.
    fn lines_needed(&self, lines: usize) -> usize {
        count(&[lines.div_ceil(self.spacing()[0]), self.stride()]).saturating_add(self.reach())
    }

    /// Elements held for some lines of outputs at most.
    fn held_len(&self, lines: usize) -> usize {
        count(&[self.lines_needed(lines), self.held.line, self.lanes]).saturating_add(VECTORS * self.lanes)
    }

    /// Lines of outputs that are computed from one copy, in multiples of `step`.
    fn lines_per_copy(&self, lines: usize, step: usize) -> usize {
        let [_, width, channels] = self.extent;
        let most = (HELD / self.lanes / self.held.line.max(1)).min(PASSED / (width * channels).max(1));
        let most = most.saturating_sub(self.reach());
        (most / self.stride() * self.spacing()[0] / step * step).clamp(step, lines.next_multiple_of(step).max(step))
    }

    /// The first lane of each block.
    fn blocks(&self) -> impl Iterator<Item = usize> + use<T> {
        (0..self.channels).step_by(self.lanes)
    }

    /// The lines of the source that lines `rows` of the result need.
    fn lines_for(&self, rows: &Range<usize>) -> Range<isize> {
        let mut lines: Option<Range<isize>> = None;
        for part in self.parts.iter().filter(|part| !part.offsets.is_empty()) {
            let (y, spacing) = (&part.phase[0], self.spacing()[0]);
            let [start, end] = [rows.start, rows.end].map(|row| row.saturating_sub(y.first).div_ceil(spacing));
            if start < end {
                let [low, high] = y.axis.reach();
                let now = start as isize * y.axis.stride + low..(end - 1) as isize * y.axis.stride + high + 1;
                lines = Some(lines.map_or(now.clone(), |all| all.start.min(now.start)..all.end.max(now.end)));
            }
        }
        lines.unwrap_or(0..0)
    }

    /// Copies some lines of a block of lanes of an image.
    #[inline(always)]
    fn copy<const W: usize>(&self, image: usize, lines: &Range<isize>, first: usize, to: &mut [[T; W]]) {
        let [height, width, channels] = self.extent;
        let spread = Spread { group: self.group, first, lanes: W.min(self.channels - first) };
        for (y, to) in lines.clone().zip(to.chunks_exact_mut(self.held.line)) {
            let Some(y) = usize::try_from(y).ok().filter(|y| *y < height) else {
                to.fill([T::ZERO; W]);
                continue;
            };
            let line = &self.source[(image * height + y) * width * channels..][..width * channels];
            let n_rows = self.held.stride;
            for (at, to) in to.chunks_exact_mut(self.held.columns).enumerate() {
                let (plane, phase) = (at / n_rows, at % n_rows);
                let inside = self.held.inside(phase, width);
                let (before, rest) = to.split_at_mut(inside.start);
                let (to, after) = rest.split_at_mut(inside.len());
                before.fill([T::ZERO; W]);
                after.fill([T::ZERO; W]);
                if !to.is_empty() {
                    let column = (self.held.low + (phase + inside.start * n_rows) as isize) as usize;
                    spread.run(&line[column * channels..], n_rows * channels, plane, to);
                }
            }
        }
        let end = (lines.end - lines.start) as usize * self.held.line;
        to[end..][..VECTORS].fill([T::ZERO; W]);
    }
}

impl Held {
    /// The columns that all outputs of these phases need, in so many planes; none if they cannot be counted.
    fn new(phases: &[[GradientPhase; 2]], planes: usize) -> Option<Held> {
        let stride = phases.first()?[1].axis.stride as usize;
        let with_taps = || phases.iter().map(|phase| &phase[1].axis).filter(|axis| axis.taps > 0);
        let low = with_taps().map(|axis| axis.reach()[0]).min().unwrap_or(0);
        let high = with_taps().map(|axis| axis.reach()[1] + (axis.outputs as isize - 1) * axis.stride).max();
        let columns = (high.unwrap_or(0) - low + 1).max(1).unsigned_abs().div_ceil(stride);
        let line = count(&[columns, stride, planes]);
        (line <= MOST_HELD).then_some(Held { low, stride, columns, line })
    }

    /// Where each step of a phase's sum lies, counted from the lowest line of the first output's window.
    fn offsets(&self, [y, x]: &[GradientPhase; 2], planes: usize) -> Vec<usize> {
        let mut offsets = Vec::with_capacity(y.axis.taps * x.axis.taps * planes);
        for ty in 0..y.axis.taps as isize {
            let line = (ty * y.axis.dilation + y.axis.offset - y.axis.reach()[0]) as usize;
            for tx in 0..x.axis.taps as isize {
                let column = (tx * x.axis.dilation + x.axis.offset - self.low) as usize;
                let slot = column % self.stride * self.columns + column / self.stride;
                offsets.extend((0..planes).map(|plane| line * self.line + plane * self.stride * self.columns + slot));
            }
        }
        offsets
    }

    /// The slots of a row of neighbours that are inside an image.
    fn inside(&self, phase: usize, width: usize) -> Range<usize> {
        let first = self.low + phase as isize;
        let stride = self.stride as isize;
        let up = |x: isize| (x + stride - 1).div_euclid(stride).clamp(0, self.columns as isize) as usize;
        let start = up(-first);
        start..up(width as isize - first).max(start)
    }
}

/// How a block of lanes is filled from the channels of pixels.
struct Spread {
    /// Channels of a group, of the source and of the lanes.
    group: [usize; 2],
    /// The block's first lane.
    first: usize,
    /// Lanes of the block that there are.
    lanes: usize,
}

impl Spread {
    /// Fills one plane from pixels at distance `step`.
    #[inline(always)]
    fn run<T: Real, const W: usize>(&self, pixels: &[T], step: usize, plane: usize, to: &mut [[T; W]]) {
        let [n_source, n_lanes] = self.group;
        let source = |lane: usize| (self.first + lane) / n_lanes * n_source;
        let pixels = &pixels[source(0)..];
        // With these as constants, loads and shuffles of whole vectors do.
        macro_rules! constant {
            ($($source:literal $lanes:literal,)*) => {
                match (n_source, n_lanes) {
                    $(($source, $lanes) if self.lanes == W => {
                        spread_constant::<T, W, $source, $lanes>(pixels, step, plane, to);
                    })*
                    _ => {
                        let mut from = [0; W];
                        from.iter_mut().enumerate().for_each(|(lane, from)| *from = source(lane) - source(0) + plane);
                        if self.lanes == W {
                            for (to, pixel) in to.iter_mut().zip(pixels.chunks(step)) {
                                *to = from.map(|from| pixel[from]);
                            }
                            return;
                        }
                        for (to, pixel) in to.iter_mut().zip(pixels.chunks(step)) {
                            *to = [T::ZERO; W];
                            to.iter_mut().zip(from).take(self.lanes).for_each(|(to, from)| *to = pixel[from]);
                        }
                    }
                }
            };
        }
        constant!(1 1, 1 2, 1 4, 1 8, 2 1, 2 2, 2 4, 4 1, 4 2, 4 4, 4 8, 8 1, 8 4, 8 8,);
    }
}

/// [`Spread::run`] of whole blocks.
#[inline(always)]
fn spread_constant<T: Real, const W: usize, const SOURCE: usize, const LANES: usize>(
    pixels: &[T],
    step: usize,
    plane: usize,
    to: &mut [[T; W]],
) {
    for (to, pixel) in to.iter_mut().zip(pixels.chunks(step)) {
        let pixel = &pixel[plane..][..(W.div_ceil(LANES) - 1) * SOURCE + 1];
        *to = array::from_fn(|lane| pixel[lane / LANES * SOURCE]);
    }
}

impl<T: Real> Depthwise<'_, T> {
    /// Computes a pass that has outputs, or a filter's gradient; `other` is the filter, or the cotangent.
    pub(super) fn run(&self, engine: &Engine, other: &[T], out: &mut [T], epilogue: TileCallback<'_>) {
        let is_in_place = self.is_in_place(engine);
        match self.op.pass {
            ConvPass::Forward | ConvPass::InputGradient if is_in_place => {
                self.outputs_in_place(engine, other, out, epilogue);
            }
            ConvPass::FilterGradient if is_in_place => self.gradient_in_place(engine, other, out, epilogue),
            ConvPass::FilterGradient => {
                let all = [ChannelBlock::in_place(0..self.channels, self.channels)];
                self.filter_gradient(other, out, &all, epilogue, |images, _, sums| match lanes::<T>() {
                    8 => self.gradient_of_images::<8>(other, images, sums),
                    _ => self.gradient_of_images::<4>(other, images, sums),
                });
            }
            // Two vectors of half as many outputs, or one.
            ConvPass::Forward | ConvPass::InputGradient => match [self.lanes, lanes::<T>()] {
                [16, _] => self.outputs::<16, { VECTORS / 2 }>(other, out, epilogue),
                [8, 4] => self.outputs::<8, { VECTORS / 2 }>(other, out, epilogue),
                [8, _] => self.outputs::<8, VECTORS>(other, out, epilogue),
                _ => self.outputs::<4, VECTORS>(other, out, epilogue),
            },
        }
    }

    /// The weights of a part: for each block of lanes, its steps in order.
    fn weights<const W: usize>(&self, part: &DepthwisePart, filter: &[T]) -> Vec<[T; W]> {
        let op = self.op;
        let ([n_in, n_out], [y, x], k) = (op.channels(), &part.phase, part.offsets.len());
        let mut weights = vec![[T::ZERO; W]; self.blocks().count() * k];
        for step in 0..k {
            let (tap, of_source) = (step / self.group[0], step % self.group[0]);
            let (ky, kx) = (y.tap + tap / x.axis.taps * y.step, x.tap + tap % x.axis.taps * x.step);
            let rows = &filter[(ky * op.kernel_width + kx) * n_in * op.out_channels..];
            for (block, first) in self.blocks().enumerate() {
                let lanes = first..(first + W).min(self.channels);
                let to = &mut weights[block * k + step][..lanes.len()];
                if op.pass == ConvPass::InputGradient {
                    let place = |channel: usize| channel % n_in * op.out_channels + channel / n_in * n_out + of_source;
                    to.iter_mut().zip(lanes).for_each(|(to, channel)| *to = rows[place(channel)]);
                } else {
                    to.copy_from_slice(&rows[of_source * op.out_channels..][lanes]);
                }
            }
        }
        weights
    }

    /// Height and width of the result of a forward pass or an input gradient.
    fn result_extent(&self) -> [usize; 2] {
        if self.op.pass == ConvPass::InputGradient { [self.op.height, self.op.width] } else { self.op.out_extent() }
    }

    /// Hands a finished tile to the epilogue.
    fn finish(&self, tile: &mut TileView<'_, T>, [lines, width]: [usize; 2], epilogue: TileCallback<'_>) {
        let rows = (tile.outer * lines + tile.rows.start) * width..(tile.outer * lines + tile.rows.end) * width;
        if let Some(done) = tile.contiguous() {
            let data = done.as_mut_ptr().cast();
            epilogue(Tile { rows, cols: 0..self.channels, data, row_stride: self.channels, size: size_of::<T>() });
        }
    }

    /// The forward pass and the input gradient, `P` neighbouring outputs of `W` lanes at a time, so that each weight is loaded
    /// once for all of them.
    fn outputs<const W: usize, const P: usize>(&self, filter: &[T], out: &mut [T], epilogue: TileCallback<'_>) {
        let op = self.op;
        let [lines, width] = self.result_extent();
        let weights: Vec<Vec<[T; W]>> = self.parts.iter().map(|part| self.weights(part, filter)).collect();
        let most = self.lines_per_copy(lines, 1).min(lines.div_ceil(TASKS.div_ceil(op.batch)));
        // As many copies, of nearly as many lines each.
        let rows = lines.div_ceil(lines.div_ceil(most));
        let work = count(&[out.len(), op.kernel_height, op.kernel_width, self.group[0]]);
        let columns = width * self.channels;
        for_each_tile(out, [op.batch, lines, columns], [rows, columns], work, &|mut tile| {
            with_scratch::<T, _>(self.held_len(tile.rows.len()), |held| {
                let (held, _) = held.as_chunks_mut::<W>();
                vectorized(
                    #[inline(always)]
                    || self.block_of_lines::<W, P>(&weights, held, &mut tile),
                );
            });
            self.finish(&mut tile, [lines, width], epilogue);
        });
    }

    /// Some lines of a result.
    #[inline(always)]
    fn block_of_lines<const W: usize, const P: usize>(
        &self,
        weights: &[Vec<[T; W]>],
        held: &mut [[T; W]],
        tile: &mut TileView<'_, T>,
    ) {
        let (lines, [spacing, _]) = (self.lines_for(&tile.rows), self.spacing());
        for (block, first) in self.blocks().enumerate() {
            self.copy(tile.outer, &lines, first, held);
            for (part, weights) in self.parts.iter().zip(weights) {
                let (y, k) = (&part.phase[0], part.offsets.len());
                let weights = &weights[block * k..][..k];
                for row in tile.rows.clone().filter(|row| *row >= y.first && (row - y.first) % spacing == 0) {
                    let line = ((row - y.first) / spacing) as isize * y.axis.stride + y.axis.reach()[0] - lines.start;
                    // A part without taps has no line.
                    let held = held.get(line.max(0) as usize * self.held.line..).unwrap_or_default();
                    self.line::<W, P>(part, weights, held, first, tile.row(row));
                }
            }
        }
    }

    /// The outputs of a part in one line, for one block of lanes.
    #[inline(always)]
    fn line<const W: usize, const P: usize>(
        &self,
        part: &DepthwisePart,
        weights: &[[T; W]],
        held: &[[T; W]],
        first: usize,
        out: &mut [T],
    ) {
        let (x, [_, spacing]) = (&part.phase[1], self.spacing());
        let (lanes, depth) = (W.min(self.channels - first), block_depth(part.offsets.len()).max(1));
        let pitch = spacing * self.channels;
        for start in (0..x.axis.outputs).step_by(P) {
            let sums = sum_pixels::<T, W, P>(&part.offsets, weights, depth, held, start);
            let out = &mut out[x.first * self.channels + start * pitch + first..];
            // Without a count for the outputs of each group.
            if lanes == W && start + P <= x.axis.outputs {
                let out = &mut out[..(P - 1) * pitch + W];
                sums.iter().enumerate().for_each(|(at, sum)| out[at * pitch..][..W].copy_from_slice(sum));
                continue;
            }
            for (at, sum) in sums.iter().take(x.axis.outputs - start).enumerate() {
                out[at * pitch..][..lanes].copy_from_slice(&sum[..lanes]);
            }
        }
    }
}

/// The sums of `P` neighbouring outputs from `start` on: blocks of `depth` steps in order, each one chain.
#[inline(always)]
fn sum_pixels<T: Real, const W: usize, const P: usize>(
    offsets: &[usize],
    weights: &[[T; W]],
    depth: usize,
    held: &[[T; W]],
    start: usize,
) -> [[T; W]; P] {
    let (first, others) = (offsets.len().min(depth), offsets.len().max(depth));
    let mut totals = chains(&offsets[..first], &weights[..first], held, start);
    for block in (depth..others).step_by(depth) {
        let steps = block..(block + depth).min(offsets.len());
        let sums = chains::<T, W, P>(&offsets[steps.clone()], &weights[steps], held, start);
        totals = array::from_fn(|at| plus(totals[at], sums[at]));
    }
    totals
}

/// One block of [`sum_pixels`].
#[inline(always)]
fn chains<T: Real, const W: usize, const P: usize>(
    offsets: &[usize],
    weights: &[[T; W]],
    held: &[[T; W]],
    start: usize,
) -> [[T; W]; P] {
    let mut sums = [[T::ZERO; W]; P];
    for (offset, weight) in offsets.iter().zip(weights) {
        let pixels = held[offset + start..].first_chunk::<P>().expect("a copy has slack after its end");
        for (sum, pixel) in sums.iter_mut().zip(pixels) {
            *sum = array::from_fn(|lane| pixel[lane].fused(weight[lane], sum[lane]));
        }
    }
    sums
}

/// The sums of two vectors.
#[inline(always)]
fn plus<T: Real, const W: usize>(a: [T; W], b: [T; W]) -> [T; W] {
    array::from_fn(|lane| a[lane] + b[lane])
}

impl<T: Real> Depthwise<'_, T> {
    /// The filter's gradient, as sums over groups of images in order; `of_images` computes that of some, for the block of
    /// channels with a number.
    fn filter_gradient(
        &self,
        ct: &[T],
        out: &mut [T],
        blocks: &[ChannelBlock],
        epilogue: TileCallback<'_>,
        of_images: impl Fn(Range<usize>, usize, &mut [T]) + Sync,
    ) {
        let (batch, images) = (self.op.batch, images_of_task(self.op.batch, self.op.filter_of_group()));
        let (taps, work) = (out.len() / self.channels, count(&[ct.len(), self.parts[0].offsets.len()]));
        let size = taps * blocks.iter().map(|block| block.len).max().unwrap_or(0);
        with_scratch::<T, _>(count(&[size, batch.div_ceil(images), blocks.len()]), |partial| {
            for_each_chunk(partial, size, work, &|task, sums| {
                let (first, block) = (task / blocks.len() * images, task % blocks.len());
                of_images(first..(first + images).min(batch), block, sums);
            });
            for (at, sums) in partial.chunks_exact(size).enumerate() {
                let (is_first, block) = (at < blocks.len(), &blocks[at % blocks.len()]);
                for (out, sums) in out.chunks_exact_mut(self.channels).zip(sums.chunks_exact(block.len)) {
                    let out = &mut out[block.channels.clone()];
                    if is_first {
                        out.copy_from_slice(&sums[..out.len()]);
                    } else {
                        out.iter_mut().zip(sums).for_each(|(out, sum)| *out = *out + *sum);
                    }
                }
            }
        });
        let data = out.as_mut_ptr().cast();
        epilogue(Tile { rows: 0..taps, cols: 0..self.channels, data, row_stride: self.channels, size: size_of::<T>() });
    }

    /// The part of the gradient that comes from some images.
    fn gradient_of_images<const W: usize>(&self, ct: &[T], images: Range<usize>, out: &mut [T]) {
        let [height, width] = self.op.out_extent();
        let chain = lines_of_chain([height, width]);
        let rows = self.lines_per_copy(height, chain);
        let n_held = self.held_len(rows);
        with_scratch::<T, _>(n_held + rows * width * W, |scratch| {
            let (held, cts) = scratch.split_at_mut(n_held);
            let (held, cts) = (held.as_chunks_mut::<W>().0, cts.as_chunks_mut::<W>().0);
            vectorized(
                #[inline(always)]
                || {
                    for image in images.clone() {
                        for start in (0..height).step_by(rows) {
                            let rows = start..(start + rows).min(height);
                            let is_first = image == images.start && start == 0;
                            self.gradient_of_lines(ct, image, &rows, is_first, held, cts, out);
                        }
                    }
                },
            );
        });
    }

    /// The part of the gradient that comes from some lines of outputs of an image.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "the inside of two loops, cut out for its length")]
    fn gradient_of_lines<const W: usize>(
        &self,
        ct: &[T],
        image: usize,
        rows: &Range<usize>,
        is_first: bool,
        held: &mut [[T; W]],
        cts: &mut [[T; W]],
        out: &mut [T],
    ) {
        let [height, width] = self.op.out_extent();
        let (chain, lines) = (lines_of_chain([height, width]), self.lines_for(rows));
        let pixel = (image * height + rows.start) * width;
        let cts = &mut cts[..rows.len() * width];
        for first in self.blocks() {
            self.copy(image, &lines, first, held);
            let spread = Spread { group: [1, 1], first, lanes: W.min(self.channels - first) };
            spread.run(&ct[pixel * self.channels..], self.channels, 0, cts);
            for (at, cts) in cts.chunks(chain * width).enumerate() {
                let held = &held[at * chain * self.stride() * self.held.line..];
                self.gradient_of_chain(held, cts, first, is_first && at == 0, out);
            }
        }
    }

    /// The part of the gradient that comes from one chain of pixels, for one block of lanes.
    #[inline(always)]
    fn gradient_of_chain<const W: usize>(
        &self,
        held: &[[T; W]],
        cts: &[[T; W]],
        first: usize,
        is_first: bool,
        out: &mut [T],
    ) {
        let lanes = W.min(self.channels - first);
        let mut step = 0;
        while let Some(offsets) = self.parts[0].offsets.get(step..).filter(|rest| !rest.is_empty()) {
            let mut add = |sums: &[[T; W]]| {
                for (at, sum) in sums.iter().enumerate() {
                    let out = &mut out[(step + at) * self.channels + first..][..lanes];
                    let add = |(out, sum): (&mut T, &T)| *out = if is_first { *sum } else { *out + *sum };
                    out.iter_mut().zip(sum).for_each(add);
                }
                sums.len()
            };
            step += if let Some(offsets) = offsets.first_chunk::<9>() {
                add(&self.sum_steps(offsets, held, cts))
            } else if let Some(offsets) = offsets.first_chunk::<5>() {
                add(&self.sum_steps(offsets, held, cts))
            } else if let Some(offsets) = offsets.first_chunk::<3>() {
                add(&self.sum_steps(offsets, held, cts))
            } else {
                add(&self.sum_steps(&[offsets[0]], held, cts))
            };
        }
    }

    /// The chains over some pixels for `N` steps of the forward pass.
    #[inline(always)]
    fn sum_steps<const W: usize, const N: usize>(
        &self,
        offsets: &[usize; N],
        held: &[[T; W]],
        cts: &[[T; W]],
    ) -> [[T; W]; N] {
        let width = self.parts[0].phase[1].axis.outputs;
        let mut sums = [[T::ZERO; W]; N];
        for (line, cts) in cts.chunks_exact(width).enumerate() {
            let held = &held[line * self.stride() * self.held.line..];
            let rows: [&[[T; W]]; N] = array::from_fn(|at| &held[offsets[at]..][..width]);
            for (at, ct) in cts.iter().enumerate() {
                for (sum, row) in sums.iter_mut().zip(rows) {
                    *sum = array::from_fn(|lane| row[at][lane].fused(ct[lane], sum[lane]));
                }
            }
        }
        sums
    }
}
