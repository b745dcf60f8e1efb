//! Gradients of filters from copies of images.
//!
//! The rows of a tile are taps that are neighbours in the copy, or channels of some taps that share pixels, and its chains
//! go over the pixels of some lines. The parts of a batch are added up in order.

use std::ops::Range;

use super::direct::{ImageTile, Shared, TASKS};
use super::drive::{Engine, Output};
use super::pack::{PanelSource, Strided};
use super::padding::are_finite;
use super::sliding::{MOST_TAPS, SPARE_ROWS, Sliding};
use super::tile::Lines;
use super::{Kernels, Layout, Real, Window, WindowAxis, is_one_task, with_scratch};

/// Bytes that the pixels of a chain span from where they are copied: half of a first-level cache.
pub(super) const FAR: usize = 16 << 10;

/// Bytes of a cache line, the channels of a group: 16 or 8 elements.
pub(super) const GROUP_BYTES: usize = 64;

/// Rows of a part of the result at least.
const LEAST_ROWS: usize = 64;

/// Elements of all sums of a group of channels, unless there is only one sum.
const PARTIAL: usize = 1 << 20;

/// Outputs of a line from which on taps that follow each other share pixels.
const LONG_LINE: usize = 10;

/// A filter's gradient: windows, with taps as rows, times the cotangent.
pub(crate) struct FilterGradient<'a, T> {
    /// The windows of the image.
    pub(crate) window: Window<'a, T>,
    /// The cotangent, with channels as rows and pixels as steps; channels are neighbours.
    pub(crate) ct: &'a Strided<T>,
    /// Number of images.
    pub(crate) batch: usize,
    /// Channels of the cotangent's group.
    pub(crate) n: usize,
    /// Rows of the result from one tap to the next: the channels of the image's group, of which the window may have a part.
    pub(crate) tap_rows: usize,
}

/// The cotangent's channels at the pixels of a chain: in panels, or where they lie.
pub(super) struct ChainColumns<T> {
    pub(super) b: *const T,
    /// Elements from panel to panel, and from pixel to pixel.
    pub(super) b_panel: usize,
    pub(super) b_row: usize,
    /// Whether steps at which taps are in the padding may be left out.
    pub(super) skips: bool,
}

impl<T> ChainColumns<T> {
    /// Of the `lines` of a chain, those that a line of taps meets inside the image, counted from the first: one at least, so
    /// that there is a sum; of columns that may skip none, all.
    pub(super) fn lines_inside(&self, axis: &WindowAxis, tap: usize, lines: &Range<usize>) -> Range<usize> {
        if !self.skips {
            return 0..lines.len();
        }
        let inside = axis.outputs_inside(tap, lines);
        let start = (inside.start - lines.start).min(lines.len() - 1);
        start..(inside.end - lines.start).max(start + 1)
    }

    /// The column of the first panel at a step.
    pub(super) fn at(&self, step: usize) -> *const T {
        self.b.wrapping_add(step * self.b_row)
    }
}

/// Lines of outputs in one chain of a filter's gradient, of some lines of some pixels: as many as make a chain of good
/// length.
pub(crate) fn lines_of_chain([height, width]: [usize; 2]) -> usize {
    (256 / width.max(1)).clamp(1, height.max(1))
}

/// Images whose chains are added up before those of others, in a gradient of a filter of `size` elements for each group of
/// channels: sixteen such sums, or fewer where they would be large.
pub(crate) fn images_of_task(batch: usize, size: usize) -> usize {
    batch.div_ceil((PARTIAL / size.max(1)).clamp(1, TASKS))
}

/// Whether the gradient of a heavy filter has parts enough for threads, which have all of its `n` columns; its rows are lines
/// of taps, each with all channels.
pub(crate) fn has_many_parts(batch: usize, [lines, taps, channels]: [usize; 3], n: usize) -> bool {
    const MANY: usize = 8;
    const CHANNELS: usize = 16;
    let rows = lines.saturating_mul(taps).saturating_mul(channels);
    let n_sums = batch.div_ceil(images_of_task(batch, rows.saturating_mul(n)).max(1));
    let n_parts = (rows / LEAST_ROWS).min(lines.saturating_mul(channels.div_ceil(CHANNELS)));
    n_sums.saturating_mul(n_parts) >= MANY
}

/// Where each pixel of some lines lies, by the distances of lines and of pixels.
pub(super) fn pixels_of_lines([lines, width]: [usize; 2], [line, pixel]: [usize; 2]) -> Vec<isize> {
    let mut pixels = Vec::with_capacity(lines * width);
    for y in 0..lines {
        pixels.extend((0..width).map(|x| (y * line + x * pixel) as isize));
    }
    pixels
}

impl<'a, T: Real> FilterGradient<'a, T> {
    /// Number of rows of the result.
    fn n_taps(&self) -> usize {
        self.window.y.taps * self.window.x.taps * self.tap_rows
    }

    /// Parts of the rows, of some channels and lines of taps, and the first row of each: at most `n`, unless a second-level
    /// cache would not hold their sums, and with rows enough to pay for copies of images and cotangents of their own.
    fn parts(&self, n: usize) -> Vec<(FilterGradient<'a, T>, usize)> {
        /// Elements of the sums of a part.
        const SUMS: usize = 1 << 18;
        let w = &self.window;
        let n = n.max(self.n_taps() * self.n / SUMS).min(self.n_taps() / LEAST_ROWS).max(1);
        let cache_line = GROUP_BYTES / size_of::<T>();
        let n_groups = w.channels.div_ceil(cache_line);
        // Of the ways to cut both, the one whose largest part is the smallest, and of these the one that cuts lines least.
        let sizes = |lines: usize| [n_groups.div_ceil((n / lines).min(n_groups)), w.y.taps.div_ceil(lines)];
        let cuts = (1..=w.y.taps.min(n)).map(sizes);
        let [groups, lines] = cuts.min_by_key(|[groups, lines]| groups * lines).unwrap_or([n_groups, w.y.taps]);
        let channels = groups * cache_line;
        let of_channels = (0..w.channels).step_by(channels);
        let all = of_channels.flat_map(|channel| (0..w.y.taps).step_by(lines).map(move |line| (channel, line)));
        all.map(|(channel, line)| {
            let offset = w.y.offset + line as isize * w.y.dilation;
            let y = WindowAxis { taps: lines.min(w.y.taps - line), offset, ..w.y };
            let channels = channels.min(w.channels - channel);
            let window = Window { image: w.image.get(channel..).unwrap_or_default(), y, channels, ..*w };
            (FilterGradient { window, ..*self }, line * w.x.taps * self.tap_rows + channel)
        })
        .collect()
    }

    /// Whether such a part of the taps is in the padding, where chains can leave them out, that it pays to look at the
    /// cotangent: lines of taps that are not computed with others, and pixels that taps share.
    pub(super) fn leaves_out_taps(&self, kernels: &Kernels<T>) -> bool {
        /// Rows that the cotangent is multiplied with, and rows of a line of taps.
        const ROWS: [usize; 2] = [64, 32];
        let (w, slides) = (&self.window, self.slides(kernels));
        let of_line = w.x.taps * w.channels;
        let has_lines = if slides { !self.has_lines_as_rows() } else { of_line >= ROWS[1] };
        let leaves_out = has_lines && w.y.leaves_out_part() || slides && w.x.leaves_out_part();
        leaves_out && w.y.taps * of_line >= ROWS[0]
    }

    /// Lines of outputs in one chain.
    pub(super) fn lines_of_chain(&self) -> usize {
        lines_of_chain([self.window.y.outputs, self.window.x.outputs])
    }

    /// The steps of a chain of `n` pixels from a line on.
    pub(super) fn steps(&self, image: usize, line: usize, n: usize) -> Range<usize> {
        let first = (image * self.window.y.outputs + line) * self.window.x.outputs;
        first..first + n
    }

    /// Whether taps that follow each other share pixels that are read once. Pairs of them save less than rows of two
    /// vectors do, and of short lines, the first and last pixels take what the others save. With few rows beside them, the
    /// taps themselves are better rows.
    pub(super) fn slides(&self, kernels: &Kernels<T>) -> bool {
        /// Lines of taps, or channels, at least.
        const ROWS: usize = 3;
        let w = &self.window.x;
        if self.window.channels.max(self.window.y.taps) < ROWS {
            return false;
        }
        let together = w.taps.div_ceil(w.stride as usize);
        let pays = if self.n <= kernels.lanes { together > 1 } else { together > 2 && together != 4 };
        kernels.sliding.is_some() && pays && w.dilation == 1 && w.outputs >= LONG_LINE
    }

    /// Whether the rows of taps that follow each other are lines of taps, of which there are more than channels; they are
    /// neighbours, so that a last tile reads few lines past the end.
    fn has_lines_as_rows(&self) -> bool {
        self.window.y.taps > self.window.channels && self.window.y.dilation == 1
    }

    /// Lines of outputs that are computed from one copy.
    pub(super) fn lines_of_copy(&self, tile: &ImageTile) -> usize {
        let (chain, outputs) = (self.lines_of_chain(), self.window.y.outputs);
        (tile.lines_per_tile() / chain * chain).max(chain).min(outputs.next_multiple_of(chain))
    }
}

/// A line of taps and some rows, at the pixels of a chain.
pub(super) struct TapLine<T> {
    /// The pixel that the first output meets with the first tap.
    pub(super) a: *const T,
    /// Elements from one line of outputs to the next, from pixel to pixel, and from row to row.
    pub(super) a_line: usize,
    pub(super) a_pixel: usize,
    pub(super) a_row: usize,
    pub(super) rows: usize,
    /// The lines of the chain at which taps are met.
    pub(super) lines: Range<usize>,
    /// The result for the first tap and row, and the distance of rows.
    pub(super) c: *mut T,
    pub(super) c_row: usize,
}

impl<T: Real> TapLine<T> {
    /// Adds the chain of each tap and row to the result, or stores it: taps a stride apart at once.
    ///
    /// # Safety
    ///
    /// The level of the kernels is present. `a` is readable for all pixels and taps, and for [`SPARE_ROWS`] past the last
    /// row; `columns` has whole vectors for these pixels; the result is writable, and nobody else uses it.
    pub(super) unsafe fn add(
        &self,
        kernels: Kernels<T>,
        x: &FilterGradient<'_, T>,
        columns: &ChainColumns<T>,
        offsets: &[isize],
        fresh: bool,
    ) {
        let w = &x.window.x;
        let (stride, c_tap) = (w.stride as usize, x.tap_rows * x.n);
        let line = self.a.wrapping_add(self.lines.start.wrapping_mul(self.a_line));
        for first in 0..stride.min(w.taps) {
            let mut tap = first;
            while tap < w.taps {
                let taps = match (w.taps - tap).div_ceil(stride) {
                    1 => 1,
                    2 | 4 => 2,
                    _ => MOST_TAPS,
                };
                let (a, c) = (line.wrapping_add(tap * self.a_pixel), self.c.wrapping_add(tap * c_tap));
                let sliding = Sliding {
                    taps,
                    outputs: [self.lines.len(), w.outputs],
                    padding: if columns.skips { w.padded_pixels(tap, taps) } else { [0; 2] },
                    rows: self.rows,
                    cols: x.n,
                    a,
                    a_line: self.a_line,
                    a_pixel: stride * self.a_pixel,
                    a_row: self.a_row,
                    b: columns.at(self.lines.start * w.outputs),
                    width: kernels.width,
                    b_panel: columns.b_panel,
                    b_row: columns.b_row,
                    c,
                    c_tap: stride * c_tap,
                    c_row: self.c_row,
                    fresh,
                };
                // SAFETY: by the contract of this function.
                unsafe {
                    match kernels.sliding.filter(|_| taps > 1) {
                        Some(slide) => slide(&sliding),
                        None => (kernels.lines)(&sliding.lines(&offsets[..self.lines.len() * w.outputs])),
                    }
                }
                tap += taps * stride;
            }
        }
    }
}

impl Engine {
    /// Computes a filter's gradient, rows of `n` at distance `out_row`, as sums over groups of images in order.
    ///
    /// # Safety
    ///
    /// `out` is writable for a row of `n` for each tap, and nobody else uses these.
    pub(crate) unsafe fn direct_filter_gradient<T: Real>(
        &self,
        x: &FilterGradient<'_, T>,
        out: *mut T,
        out_row: usize,
    ) {
        let size = x.n_taps() * x.n;
        let images_of_sum = images_of_task(x.batch, size);
        let n_sums = x.batch.div_ceil(images_of_sum);
        let steps = x.batch * x.window.y.outputs * x.window.x.outputs;
        let divides = self.divides && !is_one_task(x.n_taps(), x.n, steps);
        let parts = x.parts(if divides { TASKS.div_ceil(n_sums) } else { 1 });
        let compute = |sums: *mut T| {
            let sums = Shared(sums);
            (self.parallel_for)(n_sums * parts.len(), &|task| {
                let (sum, (part, row)) = (task / parts.len(), &parts[task % parts.len()]);
                let images = sum * images_of_sum..((sum + 1) * images_of_sum).min(x.batch);
                self.gradient_of_images(part, images, sums.at(sum * size + row * x.n));
            });
        };
        if n_sums == 1 && out_row == x.n {
            compute(out);
            return;
        }
        with_scratch::<T, _>(size * n_sums, |partial| {
            compute(partial.as_mut_ptr());
            let out = Output { data: out, stride: out_row, rows: None };
            // SAFETY: by the contract of this function.
            unsafe { self.add_parts(partial, [x.n_taps(), x.n], &out) };
        });
    }

    /// The part of the gradient that comes from some images.
    fn gradient_of_images<T: Real>(&self, x: &FilterGradient<'_, T>, images: Range<usize>, c: *mut T) {
        let w = &x.window;
        let Some(mut tile) = ImageTile::new(std::iter::once(w)) else { return };
        if self.narrow && self.gradient_by_groups(x, tile, images.clone(), c) {
            return;
        }
        if self.narrow && x.slides(&T::kernels(self.level)) && x.has_lines_as_rows() {
            tile.slack = tile.slack.max(SPARE_ROWS * tile.line);
        }
        let (chain, lines_per_tile) = (x.lines_of_chain(), x.lines_of_copy(&tile));
        let distances = [tile.stride.wrapping_mul(tile.line), (w.x.stride as usize).wrapping_mul(tile.channels)];
        let pixels = pixels_of_lines([chain, w.x.outputs], distances);
        let panels = self.len_of_columns(x, pixels.len());
        with_scratch::<T, _>(tile.len(lines_per_tile) + panels, |scratch| {
            let (copy, packed) = scratch.split_at_mut(tile.len(lines_per_tile));
            let mut fresh = true;
            let skips = self.narrow && x.leaves_out_taps(&T::kernels(self.level));
            for image in images {
                for first in (0..w.y.outputs).step_by(lines_per_tile) {
                    let lines = first..(first + lines_per_tile).min(w.y.outputs);
                    let copy = &mut copy[..tile.len(lines.len())];
                    tile.copy(self.level, w, image, &lines, copy);
                    for line in lines.clone().step_by(chain) {
                        let now = line..(line + chain).min(lines.end);
                        let start = (line - first) * tile.stride * tile.line + tile.start(w);
                        let offsets = &pixels[..now.len() * w.x.outputs];
                        self.gradient_of_chain(
                            x,
                            &tile,
                            &copy[start..],
                            offsets,
                            image,
                            line,
                            [skips, fresh],
                            packed,
                            c,
                        );
                        fresh = false;
                    }
                }
            }
        });
    }

    /// Elements of the panels for [`Engine::columns_of_chain`].
    pub(super) fn len_of_columns<T: Real>(&self, x: &FilterGradient<'_, T>, n_steps: usize) -> usize {
        x.n.next_multiple_of(T::kernels(self.level).width) * n_steps
    }

    /// The cotangent's channels at some pixels: where they lie, or in `packed` if vectors would read beyond them, or if
    /// they are read `often` and several panels lie apart. Taps in the padding may be skipped beside finite numbers.
    pub(super) fn columns_of_chain<T: Real>(
        &self,
        x: &FilterGradient<'_, T>,
        steps: Range<usize>,
        [often, skips]: [bool; 2],
        packed: &mut [T],
    ) -> ChainColumns<T> {
        let kernels = T::kernels(self.level);
        let (width, n_steps) = (kernels.width, steps.len());
        let (data, _, row) = x.ct.parts();
        let skips = skips && row as usize == x.n && {
            // SAFETY: the cotangent has these pixels, which follow each other.
            are_finite(unsafe { std::slice::from_raw_parts(data.add(steps.start * x.n), n_steps * x.n) })
        };
        let is_far = x.n > width && (row as usize).saturating_mul(n_steps * size_of::<T>()) > FAR;
        if kernels.reads_whole(x.n) && !(often && is_far) {
            let b = data.wrapping_offset(steps.start as isize * row);
            return ChainColumns { b, b_panel: width, b_row: row as usize, skips };
        }
        for (panel, to) in packed.chunks_exact_mut(width * n_steps).take(x.n.div_ceil(width)).enumerate() {
            let outer = panel * width..((panel + 1) * width).min(x.n);
            x.ct.pack(outer, steps.clone(), Layout::Interleaved, width, to);
        }
        ChainColumns { b: packed.as_ptr(), b_panel: width * n_steps, b_row: width, skips }
    }

    /// One chain of pixels, for all taps.
    #[expect(clippy::too_many_arguments, reason = "the inside of three loops, cut out for its length")]
    fn gradient_of_chain<T: Real>(
        &self,
        x: &FilterGradient<'_, T>,
        tile: &ImageTile,
        copy: &[T],
        offsets: &[isize],
        image: usize,
        line: usize,
        [skips, fresh]: [bool; 2],
        packed: &mut [T],
        c: *mut T,
    ) {
        let kernels = T::kernels(self.level);
        let w = &x.window;
        let steps = x.steps(image, line, offsets.len());
        let lines_of_chain = line..line + offsets.len() / w.x.outputs;
        let columns = self.columns_of_chain(x, steps, [self.narrow, skips], packed);
        // Of a single line of taps, which has no next one, the dilation may be any number.
        let a_tap = if w.y.taps > 1 { w.y.dilation as usize * tile.line } else { 0 };
        let c_tap = w.x.taps * x.tap_rows * x.n;
        if self.narrow && x.slides(&kernels) {
            let channels = [w.channels, 1, x.n];
            let lines = [w.y.taps, a_tap, c_tap];
            let (calls, rows) = if x.has_lines_as_rows() { (channels, lines) } else { (lines, channels) };
            for call in 0..calls[0] {
                let taps = TapLine {
                    a: copy[call * calls[1]..].as_ptr(),
                    a_line: tile.stride.wrapping_mul(tile.line),
                    a_pixel: tile.channels,
                    rows: rows[0],
                    a_row: rows[1],
                    lines: if x.has_lines_as_rows() {
                        0..lines_of_chain.len()
                    } else {
                        columns.lines_inside(&w.y, call, &lines_of_chain)
                    },
                    c: c.wrapping_add(call * calls[2]),
                    c_row: rows[2],
                };
                // SAFETY: the level is present; the copy covers all taps of these pixels and the slack a last tile, B has
                // whole vectors of the cotangent of these pixels, and C is this task's own.
                unsafe { taps.add(kernels, x, &columns, offsets, fresh) };
            }
            return;
        }
        // Neighbouring taps are neighbours in the copy, so a line of the kernel is one line of rows.
        let merged = w.x.dilation == 1 && w.channels == x.tap_rows;
        let (mut lines, rows) = if merged { (1, w.x.taps * w.channels) } else { (w.x.taps, w.channels) };
        let (mut a_line, mut c_line, mut calls) =
            ((w.x.dilation as usize).wrapping_mul(w.channels), x.tap_rows * x.n, w.y.taps);
        if self.narrow && merged && !columns.skips {
            // All lines of taps at once, so that there are chains enough where these are short.
            (lines, a_line, c_line, calls) = (w.y.taps, a_tap, c_tap, 1);
        }
        for tap in 0..calls {
            let met = columns.lines_inside(&w.y, tap, &lines_of_chain);
            let block = Lines {
                lines,
                rows,
                cols: x.n,
                offsets: &offsets[..met.len() * w.x.outputs],
                a: copy[tap * a_tap + met.start * tile.stride.wrapping_mul(tile.line)..].as_ptr(),
                a_line,
                a_row: 1,
                b: columns.at(met.start * w.x.outputs),
                b_panel: columns.b_panel,
                b_row: columns.b_row,
                c: c.wrapping_add(tap * c_tap),
                c_line,
                c_row: x.n,
                fresh,
            };
            // SAFETY: the level is present; the copy covers all taps of these pixels and the slack a last tile, B
            // has whole vectors of the cotangent of these pixels, and C is this task's own.
            unsafe { (kernels.lines)(&block) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row belongs to one part, whose window has the row's channel and line of taps; there are as many parts as asked
    /// for at most, and of many rows some.
    #[test]
    fn parts_have_each_row_once() {
        let image: Vec<f32> = (0..2048).map(|i| i as f32).collect();
        // SAFETY: nothing is read.
        let ct = unsafe { Strided::new(image.as_ptr(), 1, 1) };
        let axis = |taps: usize| WindowAxis { outputs: 9, taps, stride: 1, dilation: 2, offset: -1, extent: 20 };
        let shapes = [[3, 3, 128], [7, 5, 64], [1, 5, 300], [9, 9, 5], [2, 1, 16], [1, 2, 2048], [5, 5, 100]];
        for ([lines, taps, channels], n) in shapes.into_iter().flat_map(|shape| [1, 2, 5, 16].map(|n| (shape, n))) {
            let window = Window { image: &image, y: axis(lines), x: axis(taps), pixel: 2048, channels };
            let gradient = FilterGradient { window, ct: &ct, batch: 1, n: 8, tap_rows: channels };
            let parts = gradient.parts(n);
            let mut seen = vec![0; lines * taps * channels];
            for (part, first) in &parts {
                let (line, channel) = (first / channels / taps, first % channels);
                assert_eq!(part.window.image[0], channel as f32, "the first channel of a part");
                assert_eq!(part.window.y.offset, -1 + 2 * line as isize, "the first line of taps of a part");
                for tap in 0..part.window.y.taps * taps {
                    (0..part.window.channels).for_each(|c| seen[first + tap * channels + c] += 1);
                }
            }
            assert!(seen.iter().all(|n| *n == 1), "{lines} {taps} {channels}: {seen:?}");
            assert!(parts.len() <= n && (n == 1 || seen.len() < 256 || parts.len() > 1), "{} parts", parts.len());
        }
        // A second-level cache has room for the sums of a part.
        let window = Window { image: &image, y: axis(3), x: axis(3), pixel: 2048, channels: 2048 };
        let gradient = FilterGradient { window, ct: &ct, batch: 1, n: 2048, tap_rows: 2048 };
        assert!(gradient.parts(1).len() > 100, "{} parts", gradient.parts(1).len());
    }
}
