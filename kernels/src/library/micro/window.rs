//! The sliding windows of a convolution as an operand of a product, read straight from the image.
//!
//! The operand is the matrix known as im2col: a row for each output pixel, a column for each tap (kernel position and
//! channel). It never exists as a whole: [`PixelRows`] and [`TapRows`] write the panels that are asked for. A tap that
//! falls into the padding is +0 in them, and is multiplied like any other (so an infinite weight meets it as 0 * inf = NaN).

use std::ops::Range;

use super::pack::{PanelSource, clear_rows, clear_run, position, write_run};
use super::{Layout, Real};
use crate::library::view::vectorized;

/// One axis: output `o` and tap `t` meet at coordinate `o * stride + t * dilation + offset` of the image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowAxis {
    /// Number of outputs.
    pub(crate) outputs: usize,
    /// Number of taps.
    pub(crate) taps: usize,
    /// Step of the coordinate from output to output; positive.
    pub(crate) stride: isize,
    /// Step of the coordinate from tap to tap; negative in an input gradient.
    pub(crate) dilation: isize,
    /// Coordinate of the first output and tap.
    pub(crate) offset: isize,
    /// Number of coordinates of the image.
    pub(crate) extent: usize,
}

impl WindowAxis {
    /// The lowest and highest coordinate at which the window of the first output has a tap.
    pub(crate) fn reach(&self) -> [isize; 2] {
        let last = (self.taps as isize - 1) * self.dilation;
        [self.offset + last.min(0), self.offset + last.max(0)]
    }

    /// The coordinate where `output` and `tap` meet; in the padding it is outside `0..extent`.
    fn at(&self, output: usize, tap: usize) -> isize {
        output as isize * self.stride + tap as isize * self.dilation + self.offset
    }

    /// The same, if it is inside the image.
    pub(crate) fn inside(&self, output: usize, tap: usize) -> Option<usize> {
        usize::try_from(self.at(output, tap)).ok().filter(|at| *at < self.extent)
    }

    /// The outputs in `range` at which `tap` is inside the image: an interval, as a part of `range`.
    pub(super) fn outputs_inside(&self, tap: usize, range: &Range<usize>) -> Range<usize> {
        let first = self.at(0, tap);
        // o * stride >= -first and o * stride < extent - first, rounded up.
        let up = |x: isize| (x + self.stride - 1).div_euclid(self.stride).max(0) as usize;
        let start = up(-first).clamp(range.start, range.end);
        start..up(self.extent as isize - first).clamp(start, range.end)
    }

    /// The taps at which `output` is inside the image: an interval.
    pub(crate) fn taps_inside(&self, output: usize) -> Range<usize> {
        let (first, extent, step) = (self.at(output, 0), self.extent as isize, self.dilation.abs());
        // Where taps go down, the last coordinate of the image is the first that they meet.
        let (start, end) = if self.dilation > 0 { (-first, extent - first) } else { (first + 1 - extent, first + 1) };
        let up = |x: isize| if step == 1 { x } else { (x + step - 1).div_euclid(step) }.max(0) as usize;
        let start = up(start).min(self.taps);
        start..up(end).clamp(start, self.taps)
    }
}

/// The windows of a batch of channels-last images.
#[derive(Clone, Copy)]
pub(crate) struct Window<'a, T> {
    /// The images, from the first channel of the group on.
    pub(crate) image: &'a [T],
    /// Height.
    pub(crate) y: WindowAxis,
    /// Width.
    pub(crate) x: WindowAxis,
    /// Channels of a pixel.
    pub(crate) pixel: usize,
    /// Channels of the group.
    pub(crate) channels: usize,
}

/// A stretch of taps of one kernel position: neighbours in memory at every pixel.
#[derive(Clone, Copy)]
struct TapRun {
    y: usize,
    x: usize,
    channel: usize,
    len: usize,
}

/// A stretch of outputs in one row of one image.
#[derive(Clone)]
struct PixelRun {
    image: usize,
    y: usize,
    x: Range<usize>,
}

impl<'a, T: Real> Window<'a, T> {
    /// Whether neighbouring outputs see neighbouring elements.
    fn pixels_are_neighbours(&self) -> bool {
        self.pixel == 1 && self.x.stride == 1
    }

    /// Cuts a range of taps into runs.
    fn tap_runs(&self, taps: Range<usize>) -> impl Iterator<Item = TapRun> {
        let (channels, n_x) = (self.channels, self.x.taps);
        let mut at = taps.start;
        std::iter::from_fn(move || {
            let (tap, channel) = (at / channels, at % channels);
            let len = (channels - channel).min(taps.end - at);
            at += len;
            (len > 0).then_some(TapRun { y: tap / n_x, x: tap % n_x, channel, len })
        })
    }

    /// Cuts a range of outputs into runs.
    fn pixel_runs(&self, pixels: Range<usize>) -> impl Iterator<Item = PixelRun> + use<T> {
        let (height, width) = (self.y.outputs, self.x.outputs);
        let mut at = pixels.start;
        let (mut row, mut x) = (at / width, at % width);
        std::iter::from_fn(move || {
            let len = (width - x).min(pixels.end - at);
            let run = PixelRun { image: row / height, y: row % height, x: x..x + len };
            at += len;
            row += 1;
            x = 0;
            (len > 0).then_some(run)
        })
    }

    /// Where the first taps of some outputs lie, which must be inside the images.
    pub(super) fn first_taps(&self, pixels: Range<usize>, to: &mut Vec<isize>) {
        to.clear();
        for run in self.pixel_runs(pixels) {
            let line = self.row(run.image, self.y.at(run.y, 0) as usize) as isize;
            to.extend(run.x.map(|x| line + self.x.at(x, 0) * self.pixel as isize));
        }
    }

    /// Where the image holds row `y`.
    fn row(&self, image: usize, y: usize) -> usize {
        (image * self.y.extent + y) * self.x.extent * self.pixel
    }
}

/// The windows with pixels as rows and taps as steps.
pub(crate) struct PixelRows<'a, T>(pub(crate) Window<'a, T>);

impl<T: Real> PixelRows<'_, T> {
    /// Writes one pixel's taps to row `i` of a chunked panel.
    #[inline(always)]
    fn write_pixel(&self, run: &PixelRun, x: usize, taps: &Range<usize>, width: usize, i: usize, panel: &mut [T]) {
        let w = &self.0;
        let line = w.x.taps * w.channels;
        let merged = w.pixel == w.channels && w.x.dilation == 1;
        let inside = w.x.taps_inside(x);
        let (mut at, mut y) = (taps.start, taps.start / line);
        let mut skip = taps.start - y * line;
        while at < taps.end {
            let k = at - taps.start;
            let row = w.y.inside(run.y, y).map(|y| w.row(run.image, y));
            let n = (line - skip).min(taps.end - at);
            match row {
                None => clear_run(panel, width, i, k, n),
                Some(row) if merged => {
                    // Taps along a kernel row are neighbours in memory; only the ends can be outside.
                    let low = (inside.start * w.channels).clamp(skip, skip + n);
                    let high = (inside.end * w.channels).clamp(low, skip + n);
                    clear_run(panel, width, i, k, low - skip);
                    clear_run(panel, width, i, k + high - skip, skip + n - high);
                    if high > low {
                        let from = w.x.at(x, 0) * w.channels as isize + low as isize;
                        let from = (row as isize + from) as usize;
                        write_run(panel, width, i, k + low - skip, &w.image[from..from + high - low]);
                    }
                }
                Some(row) => {
                    let mut k = k;
                    for tap in w.tap_runs(skip..skip + n) {
                        match w.x.inside(x, tap.x) {
                            None => clear_run(panel, width, i, k, tap.len),
                            Some(x) => {
                                let from = row + x * w.pixel + tap.channel;
                                write_run(panel, width, i, k, &w.image[from..from + tap.len]);
                            }
                        }
                        k += tap.len;
                    }
                }
            }
            at += n;
            y += 1;
            skip = 0;
        }
    }

    /// Writes an interleaved panel: for each tap the pixels of a row, one by one or as neighbours.
    fn interleave(&self, pixels: Range<usize>, taps: Range<usize>, width: usize, panel: &mut [T]) {
        let w = &self.0;
        let mut i = 0;
        for run in w.pixel_runs(pixels) {
            let mut steps = panel.chunks_exact_mut(width);
            for tap in w.tap_runs(taps.clone()) {
                let row = w.y.inside(run.y, tap.y).map(|y| w.row(run.image, y));
                let inside = w.x.outputs_inside(tap.x, &run.x);
                for (channel, step) in (tap.channel..tap.channel + tap.len).zip(&mut steps) {
                    let to = &mut step[i..i + run.x.len()];
                    let Some(row) = row.filter(|_| !inside.is_empty()) else {
                        to.fill(T::ZERO);
                        continue;
                    };
                    let (low, high) = (inside.start - run.x.start, inside.end - run.x.start);
                    to[..low].fill(T::ZERO);
                    to[high..].fill(T::ZERO);
                    let from = row + w.x.at(inside.start, tap.x) as usize * w.pixel + channel;
                    if w.pixels_are_neighbours() {
                        copy_short(&mut to[low..high], &w.image[from..from + high - low]);
                    } else {
                        let stride = w.x.stride as usize * w.pixel;
                        let from = w.image[from..].iter().step_by(stride);
                        to[low..high].iter_mut().zip(from).for_each(|(to, from)| *to = *from);
                    }
                }
            }
            i += run.x.len();
        }
    }
}

impl<T: Real> PanelSource<T> for PixelRows<'_, T> {
    fn layout(&self) -> Layout {
        if self.0.pixels_are_neighbours() { Layout::Interleaved } else { Layout::Chunked }
    }

    fn pack(&self, outer: Range<usize>, inner: Range<usize>, layout: Layout, width: usize, panel: &mut [T]) {
        clear_rows(outer.len(), inner.len(), layout, width, panel);
        match layout {
            Layout::Interleaved => self.interleave(outer, inner, width, panel),
            Layout::Chunked => vectorized(
                #[inline(always)]
                || {
                    let mut i = 0;
                    for run in self.0.pixel_runs(outer) {
                        for x in run.x.clone() {
                            self.write_pixel(&run, x, &inner, width, i, panel);
                            i += 1;
                        }
                    }
                },
            ),
        }
    }

    fn direct(&self) -> Option<(*const T, usize)> {
        None
    }
}

/// The windows with taps as rows and pixels as steps.
pub(crate) struct TapRows<'a, T>(pub(crate) Window<'a, T>);

impl<T: Real> TapRows<'_, T> {
    /// Whether pixels are neighbours in memory rather than taps, which favours row panels.
    pub(crate) fn is_chunked(&self) -> bool {
        self.0.pixels_are_neighbours()
    }

    /// Writes the taps of one run, at all pixels, to the rows from `i` on of an interleaved panel.
    fn interleave(&self, tap: TapRun, pixels: Range<usize>, width: usize, i: usize, panel: &mut [T]) {
        let w = &self.0;
        let stride = w.x.stride as usize * w.pixel;
        let mut at = i;
        for run in w.pixel_runs(pixels) {
            let mut clear = |at: &mut usize, n: usize| {
                for _ in 0..n {
                    panel[*at..*at + tap.len].fill(T::ZERO);
                    *at += width;
                }
            };
            let inside = w.x.outputs_inside(tap.x, &run.x);
            let Some(y) = w.y.inside(run.y, tap.y).filter(|_| !inside.is_empty()) else {
                clear(&mut at, run.x.len());
                continue;
            };
            clear(&mut at, inside.start - run.x.start);
            let from = w.row(run.image, y) + w.x.at(inside.start, tap.x) as usize * w.pixel + tap.channel;
            let (to, from) = (&mut panel[at..], &w.image[from..]);
            match tap.len {
                8 => copy_pieces::<T, 8>(to, width, from, stride, inside.len()),
                16 => copy_pieces::<T, 16>(to, width, from, stride, inside.len()),
                32 => copy_pieces::<T, 32>(to, width, from, stride, inside.len()),
                n => {
                    for piece in 0..inside.len() {
                        to[piece * width..][..n].copy_from_slice(&from[piece * stride..][..n]);
                    }
                }
            }
            at += inside.len() * width;
            let mut clear = |n: usize| {
                for _ in 0..n {
                    panel[at..at + tap.len].fill(T::ZERO);
                    at += width;
                }
            };
            clear(run.x.end - inside.end);
        }
    }

    /// Writes one tap, at all pixels, to row `i` of a chunked panel.
    fn write_tap(&self, tap: TapRun, pixels: Range<usize>, width: usize, i: usize, panel: &mut [T]) {
        let w = &self.0;
        let stride = w.x.stride as usize * w.pixel;
        let mut k = 0;
        for run in w.pixel_runs(pixels) {
            let inside = w.x.outputs_inside(tap.x, &run.x);
            let Some(y) = w.y.inside(run.y, tap.y).filter(|_| !inside.is_empty()) else {
                clear_run(panel, width, i, k, run.x.len());
                k += run.x.len();
                continue;
            };
            let (low, high) = (inside.start - run.x.start, inside.end - run.x.start);
            clear_run(panel, width, i, k, low);
            clear_run(panel, width, i, k + high, run.x.len() - high);
            let from = w.row(run.image, y) + w.x.at(inside.start, tap.x) as usize * w.pixel + tap.channel;
            if stride == 1 {
                write_run(panel, width, i, k + low, &w.image[from..from + inside.len()]);
            } else {
                for (s, x) in w.image[from..].iter().step_by(stride).take(inside.len()).enumerate() {
                    panel[position(Layout::Chunked, width, i, k + low + s)] = *x;
                }
            }
            k += run.x.len();
        }
    }
}

impl<T: Real> PanelSource<T> for TapRows<'_, T> {
    fn layout(&self) -> Layout {
        if self.0.pixels_are_neighbours() { Layout::Chunked } else { Layout::Interleaved }
    }

    fn pack(&self, outer: Range<usize>, inner: Range<usize>, layout: Layout, width: usize, panel: &mut [T]) {
        clear_rows(outer.len(), inner.len(), layout, width, panel);
        let mut i = 0;
        for run in self.0.tap_runs(outer) {
            match layout {
                Layout::Interleaved => self.interleave(run, inner.clone(), width, i, panel),
                Layout::Chunked => {
                    for r in 0..run.len {
                        let tap = TapRun { channel: run.channel + r, len: 1, ..run };
                        self.write_tap(tap, inner.clone(), width, i + r, panel);
                    }
                }
            }
            i += run.len;
        }
    }

    fn direct(&self) -> Option<(*const T, usize)> {
        None
    }
}

/// Copies `n` pieces of `L` elements.
#[inline(always)]
pub(super) fn copy_pieces<T: Copy, const L: usize>(
    to: &mut [T],
    to_stride: usize,
    from: &[T],
    from_stride: usize,
    n: usize,
) {
    for piece in 0..n {
        // Pieces of known length are vector moves instead of calls.
        to[piece * to_stride..][..L].copy_from_slice(&from[piece * from_stride..][..L]);
    }
}

/// Copies a few elements: a panel's width at most.
#[inline(always)]
fn copy_short<T: Copy>(to: &mut [T], from: &[T]) {
    if let (Some(to), Some(from)) = (to.as_mut_array::<12>(), from.as_array::<12>()) {
        *to = *from;
    } else {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    }
}
