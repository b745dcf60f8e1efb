//! Depthwise convolutions that read an image where it lies, or a copy of some channels of some of its lines.
//!
//! A window meets pixels that are all channels apart. Where that is a multiple of half a page, they share one or two sets
//! of the nearest cache, of a few lines each, and wait for outputs that are stored with the same last bits of their
//! address. A gradient of a filter goes over all lines of a chain for each vector of channels, so from large images with
//! many channels, memory hands out a page for each vector. Both read blocks of channels from copies instead, whose pixels
//! lie close (ADR 105).

use std::ops::Range;

use super::{ChannelBlock, ConvPass, Depthwise, DepthwisePart, PASSED, TASKS};
use crate::library::extents::count;
use crate::library::micro::{
    DepthwiseTaps, Engine, Real, WindowAxis, block_depth, has_vectors, images_of_task, lines_of_chain, whole_vectors,
    with_scratch,
};
use crate::library::tile::TileCallback;
use crate::library::view::{TileView, for_each_tile};

/// Elements of a copy, unless those of a few vectors need more.
const COPIED: usize = 48 << 10;

/// Channels of a block of which there are copies, at least.
const LEAST: usize = 64;

/// Tasks of a gradient of so many multiplications, if it has as many channels.
const LEAST_TASKS: usize = 4;
const DIVIDED: usize = 1 << 17;

/// Reads of each pixel for which a forward pass or an input gradient copies it.
const OFTEN: usize = 3;

/// Bytes of which distances between pixels are no multiples in caches.
const ALIASED: usize = 2048;

/// Bytes of a pixel that has many channels, and of images that are in memory rather than in a cache.
const WIDE: usize = 1536;
const FAR: usize = if cfg!(test) { 1 << 14 } else { 24 << 20 };

/// Lines of an image, or of a copy of some of its channels.
#[derive(Clone, Copy)]
struct ImageLines<'s, T> {
    elements: &'s [T],
    /// Elements of a line, and the number of the first line.
    len: usize,
    first: usize,
    /// Zeros for a line beside the image.
    zeros: &'s [T],
}

impl<'s, T> ImageLines<'s, T> {
    /// The line that `tap` meets at `output`, and what follows it.
    fn met(&self, y: &WindowAxis, output: usize, tap: usize) -> &'s [T] {
        y.inside(output, tap).map_or(self.zeros, |line| &self.elements[(line - self.first) * self.len..])
    }
}

/// Whether half of the outputs of a line have all of their taps inside the image.
fn has_most_inside(part: &DepthwisePart) -> bool {
    let x = &part.phase[1].axis;
    2 * (0..x.outputs).filter(|output| x.taps_inside(*output).len() == x.taps).count() >= x.outputs
}

impl<T: Real> Depthwise<'_, T> {
    /// Whether images are read where they lie: each channel is a group, they fill a vector, and no sum is cut. A filter's
    /// gradient that copies images anyway, for its channels are no whole vectors, is quicker from copies with their padding
    /// if most of its outputs have taps there.
    pub(in crate::library) fn is_in_place(&self, engine: &Engine) -> bool {
        let is_whole = |part: &DepthwisePart| part.offsets.len() <= block_depth(part.offsets.len());
        let is_gradient = self.op.pass == ConvPass::FilterGradient;
        let is_served = !is_gradient || self.has_whole_vectors(engine) || self.parts.iter().all(has_most_inside);
        let is_plain = self.group == [1, 1] && has_vectors::<T>(engine.level, self.channels);
        is_plain && is_served && self.parts.iter().all(is_whole)
    }

    /// Whether the shortest vector divides the channels.
    fn has_whole_vectors(&self, engine: &Engine) -> bool {
        whole_vectors::<T>(engine.level, self.channels) == self.channels
    }

    /// Whether pixels lie at a distance at which they share few places of a cache.
    fn is_aliased(&self) -> bool {
        (self.channels * size_of::<T>()).is_multiple_of(ALIASED)
    }

    /// Elements of zeros that stand in for what is beside the image: of a pixel, or of a line if some line of taps is above
    /// or below it.
    fn n_zeros(&self, pitch: usize) -> usize {
        let is_beside = |y: &WindowAxis| {
            let mut ends = [0, y.outputs.saturating_sub(1)].into_iter();
            ends.any(|output| (0..y.taps).any(|tap| y.inside(output, tap).is_none()))
        };
        let has_lines = self.parts.iter().any(|part| is_beside(&part.phase[0].axis));
        if has_lines { self.extent[1].max(1) * pitch } else { pitch }
    }

    /// Elements of a copy of the lines that some lines of outputs need, of `pitch` for each pixel.
    fn n_copied(&self, rows: usize, pitch: usize) -> usize {
        count(&[self.lines_needed(rows).min(self.extent[0]), self.extent[1], pitch])
    }

    /// Whether sums of `rows` lines of `width` outputs read each pixel of a copy `times` in the mean.
    fn reads_copies(&self, [rows, width]: [usize; 2], times: usize) -> bool {
        let taps = self.op.kernel_height * self.op.kernel_width;
        let reads = count(&[rows, width, taps]) / count(&self.spacing());
        reads >= times.saturating_mul(self.n_copied(rows, 1))
    }

    /// The lines of an image that lines `rows` of the result need, with the channels of a block: from `copy` if that has room.
    fn lines<'s>(
        &'s self,
        image: usize,
        rows: &Range<usize>,
        block: &ChannelBlock,
        copy: &'s mut [T],
        zeros: &'s [T],
    ) -> ImageLines<'s, T> {
        let [height, width, channels] = self.extent;
        let line_len = width * channels;
        let image = &self.source[image * height * line_len..][..height * line_len];
        if copy.is_empty() {
            let elements = image.get(block.channels.start..).unwrap_or_default();
            return ImageLines { elements, len: line_len, first: 0, zeros };
        }
        let lines = self.lines_for(rows);
        let [first, end] = [lines.start, lines.end].map(|line| line.clamp(0, height as isize) as usize);
        block.copy(&image[first * line_len..end.max(first) * line_len], channels, copy);
        ImageLines { elements: copy, len: width * block.pitch, first, zeros }
    }

    /// The forward pass and the input gradient.
    pub(super) fn outputs_in_place(&self, engine: &Engine, filter: &[T], out: &mut [T], epilogue: TileCallback<'_>) {
        let ([lines, width], channels) = (self.result_extent(), self.channels);
        let most = (PASSED / (width * channels)).max(1).min(lines.div_ceil(TASKS.div_ceil(self.op.batch)));
        // As many tasks, of nearly as many lines each.
        let rows = lines.div_ceil(lines.div_ceil(most));
        let is_copied = self.is_aliased() && self.reads_copies([rows, width], OFTEN);
        let blocks = if is_copied {
            ChannelBlock::copied::<T>(channels, (COPIED / self.n_copied(rows, 1).max(1)).max(LEAST), 1)
        } else {
            vec![ChannelBlock::in_place(0..channels, channels)]
        };
        let windows = self.parts.iter().map(|part| [&part.phase[0].axis, &part.phase[1].axis]);
        let leaves_out = engine.leaves_out_taps(windows, self.op.batch, filter);
        let taps = |block: &ChannelBlock| {
            self.parts.iter().map(|part| self.taps(part, block).leaving_out(leaves_out)).collect()
        };
        let taps: Vec<Vec<DepthwiseTaps>> = blocks.iter().map(taps).collect();
        let n_taps = self.op.kernel_height * self.op.kernel_width;
        let (pitch, work) = (blocks[0].pitch, count(&[out.len(), n_taps]));
        let of_filter = n_taps * pitch;
        let copied = |n: usize| if is_copied { n } else { 0 };
        let (n_filter, n_copied) = (copied(blocks.len() * of_filter), copied(self.n_copied(rows, pitch)));
        with_scratch::<T, _>(n_filter + self.n_zeros(pitch), |scratch| {
            let (copy, zeros) = scratch.split_at_mut(n_filter);
            for (block, to) in blocks.iter().zip(copy.chunks_exact_mut(of_filter.max(1))) {
                block.copy(filter, channels, to);
            }
            zeros.fill(T::ZERO);
            let (zeros, filter) = (&*zeros, if n_filter > 0 { &*copy } else { filter });
            let shape = [self.op.batch, lines, width * channels];
            for_each_tile(out, shape, [rows, width * channels], work, &|mut tile| {
                with_scratch::<T, _>(n_copied, |copy| {
                    for (number, (block, taps)) in blocks.iter().zip(&taps).enumerate() {
                        let filter = &filter[copied(number * of_filter)..];
                        let source = self.lines(tile.outer, &tile.rows, block, copy, zeros);
                        for (part, taps) in self.parts.iter().zip(taps) {
                            self.lines_of_outputs(engine, (part, taps), (block, &source, filter), &mut tile);
                        }
                    }
                });
                self.finish(&mut tile, [lines, width], epilogue);
            });
        });
    }

    /// The taps of a part for the channels of a block.
    fn taps(&self, part: &DepthwisePart, block: &ChannelBlock) -> DepthwiseTaps {
        let [y, x] = &part.phase;
        let taps = (0..y.axis.taps).flat_map(|ty| (0..x.axis.taps).map(move |tx| [ty, tx]));
        let at = |[ty, tx]: [usize; 2]| (y.tap + ty * y.step) * self.op.kernel_width + x.tap + tx * x.step;
        let weights = taps.map(|tap| at(tap) * block.pitch).collect();
        DepthwiseTaps::new(x.axis, [block.channels.len(), block.pitch], weights)
    }

    /// The outputs of a part in the lines of a tile, with the channels of a block.
    fn lines_of_outputs(
        &self,
        engine: &Engine,
        (part, taps): (&DepthwisePart, &DepthwiseTaps),
        (block, source, filter): (&ChannelBlock, &ImageLines<'_, T>, &[T]),
        tile: &mut TileView<'_, T>,
    ) {
        let ([y, x], spacing, rows) = (&part.phase, self.spacing(), tile.rows.clone());
        let first = x.first * self.channels + block.channels.start;
        for row in (y.first..rows.end).step_by(spacing[0]).filter(|row| *row >= rows.start) {
            let output = (row - y.first) / spacing[0];
            let met = match x.axis.taps {
                // Without taps, no line is read, and none has been copied.
                0 => 0..0,
                _ if taps.leaves_out() => y.axis.taps_inside(output),
                _ => 0..y.axis.taps,
            };
            let lines = (met.start, met.map(|tap| source.met(&y.axis, output, tap)));
            let out = &mut tile.row(row)[first..];
            engine.depthwise_line(taps, [filter, source.zeros], lines, out, spacing[1] * self.channels);
        }
    }

    /// The filter's gradient.
    pub(super) fn gradient_in_place(&self, engine: &Engine, ct: &[T], out: &mut [T], epilogue: TileCallback<'_>) {
        let ([height, width], channels) = (self.op.out_extent(), self.channels);
        let (chain, n_taps) = (lines_of_chain([height, width]), out.len() / channels);
        // For each channel of a block, of the lines of a chain and their cotangents.
        let of_chain = self.n_copied(chain, 1) + chain * width;
        let is_far = channels * size_of::<T>() >= WIDE && size_of_val(self.source) + size_of_val(ct) >= FAR;
        let whole = whole_vectors::<T>(engine.level, 1);
        let pays = (is_far || self.is_aliased()) && self.reads_copies([chain, width], 1);
        let is_copied = pays || !self.has_whole_vectors(engine);
        let blocks = if is_copied {
            ChannelBlock::copied::<T>(channels, (COPIED / of_chain.max(1)).max(LEAST), whole)
        } else {
            // More than one pass over an image only where threads would have nothing to do.
            let images = images_of_task(self.op.batch, self.op.filter_of_group());
            let is_large = count(&[ct.len(), n_taps]) >= DIVIDED;
            let n_blocks = if is_large { LEAST_TASKS.div_ceil(self.op.batch.div_ceil(images)) } else { 1 };
            let len = channels.div_ceil(n_blocks).next_multiple_of(ChannelBlock::STEP);
            (0..channels)
                .step_by(len)
                .map(|first| ChannelBlock::in_place(first..(first + len).min(channels), channels))
                .collect()
        };
        // Lines that are copied together: whole chains.
        let pitch = blocks[0].pitch;
        let rows = (COPIED / count(&[of_chain, pitch]).max(1)).max(1) * chain;
        let [n_copied, n_cts] = if is_copied { [self.n_copied(rows, pitch), rows * width * pitch] } else { [0; 2] };
        let taps = |block: &ChannelBlock| {
            let weights = (0..n_taps).map(|tap| tap * block.len).collect();
            DepthwiseTaps::new(self.parts[0].phase[1].axis, [block.len, block.pitch], weights)
        };
        let taps: Vec<DepthwiseTaps> = blocks.iter().map(taps).collect();
        with_scratch::<T, _>(self.n_zeros(pitch), |zeros| {
            zeros.fill(T::ZERO);
            let zeros = &*zeros;
            self.filter_gradient(ct, out, &blocks, epilogue, |images, number, sums| {
                with_scratch::<T, _>(n_copied + n_cts, |scratch| {
                    let (copy, cts_copy) = scratch.split_at_mut(n_copied);
                    let (block, taps) = (&blocks[number], &taps[number]);
                    let starts =
                        images.clone().flat_map(|image| (0..height).step_by(rows).map(move |row| [image, row]));
                    for [image, start] in starts {
                        let rows = start..(start + rows).min(height);
                        let source = self.lines(image, &rows, block, copy, zeros);
                        let cts = &ct[(image * height + start) * width * channels..][..rows.len() * width * channels];
                        let cts = block.read(cts, channels, cts_copy);
                        for row in rows.clone().step_by(chain) {
                            let cts = &cts[(row - start) * width * pitch..];
                            let is_first = image == images.start && row == 0;
                            let rows = row..(row + chain).min(rows.end);
                            self.chain_of_gradient(engine, (taps, &source, cts), rows, sums, is_first);
                        }
                    }
                });
            });
        });
    }

    /// One chain of a filter's gradient: of some lines of outputs.
    fn chain_of_gradient(
        &self,
        engine: &Engine,
        (taps, source, cts): (&DepthwiseTaps, &ImageLines<'_, T>, &[T]),
        rows: Range<usize>,
        sums: &mut [T],
        is_first: bool,
    ) {
        let y = &self.parts[0].phase[0].axis;
        let lines = rows.flat_map(|row| (0..y.taps).map(move |tap| source.met(y, row, tap)));
        engine.depthwise_gradient(taps, [cts, source.zeros], lines, sums, is_first);
    }
}
