//! Convolutions that read the image in place: no panel of windows is packed at all.
//!
//! Each task copies the part of an image that it needs, with its padding, to memory of its own. There every tap is at a
//! fixed distance from its pixel, so one table of offsets serves all tiles, whose rows are pixels at a fixed distance.
//! Where the result has few channels, the copy is one of planes, in which pixels are neighbours, and these are the lanes
//! of vectors. Windows that lie inside an image and do not overlap need no copy: a table for its own lines serves as well.

use std::ops::Range;

use super::drive::Engine;
use super::one_channel::OneChannel;
use super::pack::PanelSource;
use super::padding::MetTaps;
use super::pairs::{PhasePair, SharedPixel};
use super::planes::{COLUMNS, Deinterleave, LINES};
use super::tile::Lines;
use super::window::copy_pieces;
use super::{Kernels, LINE, Level, Real, Window, WindowAxis, block_depth, with_scratch};

/// Elements of an image that a task holds at a time, unless a single line of windows needs more.
const MAX_TILE: usize = 96 << 10;

/// Tasks that a convolution is cut into, if it has as many lines.
pub(super) const TASKS: usize = 16;

/// Channels of a result up to which pixels are lanes, for most of a vector of channels would be empty.
const MOST_IN_PLANES: usize = 4;

/// Length of chains from which on twice as many channels pay in planes, for copying the image to them is paid once.
const LONG_CHAIN: usize = 64;

/// Outputs of a single line that all steps are computed for before those of others, so that the planes of their pixels are in
/// the nearest cache for every tap.
const PIECE: usize = 128;

/// Whether pixels are lanes: where channels would leave an eighth of one or two vectors empty, where eight of them would leave
/// half of one empty, and where sixteen of them would wait for loads.
fn is_in_planes<T>(kernels: &Kernels<T>, x: &DirectConv<'_, T>) -> bool {
    /// Channels of two tiles.
    const TWO_TILES: usize = 2 * COLUMNS;

    let n = x.n;
    // Of more vectors, the part that is empty is small.
    let is_wasteful = n < 2 * kernels.lanes && 8 * n < 7 * n.next_multiple_of(kernels.lanes);
    x.parts.iter().all(|part| {
        let w = &part.window;
        // Images are cut along lines for tasks.
        let n_lines = w.y.outputs / TASKS.div_ceil(x.batch.max(1));
        let (outputs, lanes) = (w.x.outputs, w.x.outputs.next_multiple_of(kernels.lanes));
        let taps = w.y.taps * w.x.taps;
        let pays = match n {
            COLUMNS => 2 * outputs >= lanes && taps > 1,
            // Nearly no lane is empty.
            TWO_TILES => {
                let is_long = taps * w.channels >= LONG_CHAIN;
                kernels.waits_for_loads && 10 * outputs >= 9 * lanes && is_long && n_lines >= LINES
            }
            // Else lines of taps that miss the image are left out.
            _ => is_wasteful && 6 * outputs >= 5 * lanes && taps > 1 && 4 * w.y.extent >= 3 * w.y.outputs,
        };
        w.x.stride == 1 && (n <= MOST_IN_PLANES || kernels.exchanges && pays)
    })
}

/// A pass that has a result for each pixel: windows of a batch of images, times a filter.
pub(crate) struct DirectConv<'a, T> {
    /// Number of images.
    pub(crate) batch: usize,
    /// Channels of the result's group.
    pub(crate) n: usize,
    /// Elements of the result for each image.
    pub(crate) out_image: usize,
    /// The parts computed from each image. All parts share image, strides and channels.
    pub(crate) parts: Vec<ConvPart<'a, T>>,
}

/// The outputs that share a filter.
pub(crate) struct ConvPart<'a, T> {
    /// The windows; they need not be valid if one axis has no taps.
    pub(crate) window: Window<'a, T>,
    /// The filter as columns.
    pub(crate) filter: &'a (dyn PanelSource<T> + 'a),
    /// Place of the first output in the result of an image.
    pub(crate) first: usize,
    /// Elements from one output to the next, along height and width.
    pub(crate) step: [usize; 2],
}

/// The part of an image, with padding, that a task holds.
#[derive(Clone, Copy)]
pub(super) struct ImageTile {
    /// Lowest coordinates, for the first line of outputs.
    pub(super) low: [isize; 2],
    /// Height for one line of outputs, and width.
    pub(super) extent: [usize; 2],
    /// Lines of the image from one line of outputs to the next.
    pub(super) stride: usize,
    pub(super) channels: usize,
    /// Elements from line to line.
    pub(super) line: usize,
    /// Whether a line holds its channels one after the other, so that pixels are neighbours.
    in_planes: bool,
    /// Whether the lines are those of the image, which need not be copied.
    in_place: bool,
    /// Readable elements past the end, for tiles that are not full.
    pub(super) slack: usize,
}

impl ImageTile {
    /// The image tile that one line of outputs of all `windows` needs.
    pub(super) fn new<'a, T: Real>(windows: impl Iterator<Item = &'a Window<'a, T>>) -> Option<ImageTile> {
        let mut tile: Option<ImageTile> = None;
        for w in windows {
            let ([low_y, high_y], [low_x, high_x]) = (w.y.reach(), w.x.reach());
            let high_x = high_x + (w.x.outputs as isize - 1) * w.x.stride;
            let (mut low, mut high) = ([low_y, low_x], [high_y, high_x]);
            if let Some(old) = tile {
                let end = |axis: usize| old.low[axis] + old.extent[axis] as isize - 1;
                low = [low[0].min(old.low[0]), low[1].min(old.low[1])];
                high = [high[0].max(end(0)), high[1].max(end(1))];
            }
            let extent = [(high[0] - low[0] + 1) as usize, (high[1] - low[1] + 1) as usize];
            let slack = (16 * w.x.stride as usize * w.channels).max(16);
            let (stride, channels) = (w.y.stride as usize, w.channels);
            let line = extent[1] * channels;
            let [in_planes, in_place] = [false; 2];
            tile = Some(ImageTile { low, extent, stride, channels, line, in_planes, in_place, slack });
        }
        tile
    }

    /// Leaves the part where it lies, if all `windows` are inside the image and none of them overlaps the next: what is
    /// read again and again is quicker to read from a copy.
    fn place<'a, T: Real>(&mut self, mut windows: impl Iterator<Item = &'a Window<'a, T>>) {
        let is_apart = |axis: &WindowAxis| {
            let [first, last] = axis.reach();
            let end = last + (axis.outputs as isize - 1) * axis.stride;
            first >= 0 && end < axis.extent as isize && (last - first < axis.stride || axis.outputs == 1)
        };
        let mut line = 0;
        self.in_place = windows.all(|w| {
            line = w.x.extent * w.pixel;
            w.pixel == w.channels && is_apart(&w.y) && is_apart(&w.x)
        });
        if self.in_place {
            self.line = line;
        }
    }

    /// Lines of the image for some lines of outputs.
    pub(super) fn height(&self, n_lines: usize) -> usize {
        (n_lines - 1) * self.stride + self.extent[0]
    }

    /// Lines of outputs that are computed from one copy.
    pub(super) fn lines_per_tile(&self) -> usize {
        ((MAX_TILE / self.line.max(1)).saturating_sub(self.extent[0]) / self.stride + 1).max(1)
    }

    /// Elements for `n_lines`.
    pub(super) fn len(&self, n_lines: usize) -> usize {
        (self.height(n_lines) - 1) * self.line + self.extent[1] * self.channels + self.slack
    }

    /// The elements that lines `lines` of outputs of `image` need: a part of the images, or a copy.
    fn hold<'h, T: Real>(
        &self,
        level: Level,
        w: &Window<'h, T>,
        image: usize,
        lines: &Range<usize>,
        to: &'h mut [T],
    ) -> &'h [T] {
        if !self.in_place {
            self.copy(level, w, image, lines, to);
            return to;
        }
        let [low_y, low_x] = self.low.map(|low| low as usize);
        let first = ((image * w.y.extent + low_y + lines.start * self.stride) * w.x.extent + low_x) * w.pixel;
        let images = w.image.get(first..).unwrap_or_default();
        if let Some(part) = images.get(..to.len()) {
            return part;
        }
        // A last tile reads beyond the last image.
        let (inside, after) = to.split_at_mut(images.len());
        inside.copy_from_slice(images);
        after.fill(T::ZERO);
        to
    }

    /// Copies what lines `lines` of outputs of `image` need.
    pub(super) fn copy<T: Real>(
        &self,
        level: Level,
        w: &Window<'_, T>,
        image: usize,
        lines: &Range<usize>,
        to: &mut [T],
    ) {
        let low_y = self.low[0] + (lines.start * self.stride) as isize;
        let width = w.x.extent as isize;
        let from_x = self.low[1].clamp(0, width) as usize;
        let to_x = (self.low[1] + self.extent[1] as isize).clamp(from_x as isize, width) as usize;
        let (rows, slack) = to.split_at_mut(self.height(lines.len()) * self.line);
        slack.fill(T::ZERO);
        for (row, y) in rows.chunks_exact_mut(self.line).zip(low_y..) {
            let y = usize::try_from(y).ok().filter(|y| *y < w.y.extent && from_x < to_x);
            let Some(y) = y else {
                row.fill(T::ZERO);
                continue;
            };
            let at = ((image * w.y.extent + y) * w.x.extent + from_x) * w.pixel;
            let inside = (from_x as isize - self.low[1]) as usize..(to_x as isize - self.low[1]) as usize;
            if self.in_planes {
                self.spread(level, w.image.get(at..).unwrap_or_default(), w.pixel, inside, row);
                continue;
            }
            let first = inside.start * self.channels;
            let (before, rest) = row.split_at_mut(first);
            let (inside, after) = rest.split_at_mut((to_x - from_x) * self.channels);
            before.fill(T::ZERO);
            after.fill(T::ZERO);
            if w.pixel == self.channels {
                inside.copy_from_slice(&w.image[at..at + inside.len()]);
            } else {
                let (from, n) = (&w.image[at..], to_x - from_x);
                match self.channels {
                    8 => copy_pieces::<T, 8>(inside, 8, from, w.pixel, n),
                    16 => copy_pieces::<T, 16>(inside, 16, from, w.pixel, n),
                    channels => {
                        for (to, from) in inside.chunks_exact_mut(channels).zip(from.chunks(w.pixel)) {
                            to.copy_from_slice(&from[..channels]);
                        }
                    }
                }
            }
        }
    }

    /// Copies a line of pixels at distance `pixel` to columns `inside` of its planes.
    fn spread<T: Real>(&self, level: Level, pixels: &[T], pixel: usize, inside: Range<usize>, row: &mut [T]) {
        let (channels, plane, len) = (self.channels, self.extent[1], inside.len());
        assert!(inside.end <= plane, "pixels of a line");
        if len < plane {
            // At once: a few elements at a time take longer.
            row.fill(T::ZERO);
        }
        assert!(pixels.len() >= (len - 1) * pixel + channels && row.len() == channels * plane);
        let (from, to) = (pixels.as_ptr(), row[inside.start..].as_mut_ptr());
        // SAFETY: the level is present; as just asserted, the pixels and their planes are there, and `inside` lies in a
        // plane.
        unsafe { (T::kernels(level).spread)(&Deinterleave { from, step: pixel, channels, to, plane, len }) };
    }

    /// Elements from a pixel to the next, and from a channel to the next.
    fn steps(&self) -> [usize; 2] {
        if self.in_planes { [1, self.extent[1]] } else { [self.channels, 1] }
    }

    /// Where the window of the first output of the first line of a copy has its first tap.
    pub(super) fn start<T>(&self, w: &Window<'_, T>) -> usize {
        let [y, x] = [w.y.offset - self.low[0], w.x.offset - self.low[1]];
        y as usize * self.line + x as usize * self.steps()[0]
    }

    /// The distance of each tap of a window from its first.
    fn taps<T>(&self, w: &Window<'_, T>) -> Vec<isize> {
        let mut taps = Vec::with_capacity(w.y.taps * w.x.taps * w.channels);
        let [pixel, channel] = self.steps().map(|step| step as isize);
        for y in 0..w.y.taps as isize {
            for x in 0..w.x.taps as isize {
                let at = y * w.y.dilation * self.line as isize + x * w.x.dilation * pixel;
                taps.extend((0..self.channels as isize).map(|c| at + c * channel));
            }
        }
        taps
    }
}

/// A pointer that tasks share; each writes a part of its own.
pub(super) struct Shared<T>(pub(super) *mut T);

// SAFETY: tasks write disjoint parts.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub(super) fn at(&self, offset: usize) -> *mut T {
        self.0.wrapping_add(offset)
    }
}

/// A part with its offsets and its filter.
struct Ready<'p, 'a, T> {
    part: &'p ConvPart<'a, T>,
    taps: Vec<isize>,
    start: usize,
    /// Where its panels begin, or none if the filter is its own panel.
    packed: Option<usize>,
    /// The lines of taps that each line of outputs is computed from.
    met: Vec<MetTaps>,
}

/// A filter of `n` columns and the distance of its steps, if it lies in memory as its only panel would: all columns that
/// vectors read, and no others. No vector lies in two cache lines, both of which each tile would read.
fn own_panel<T: Real>(kernels: &Kernels<T>, filter: &dyn PanelSource<T>, n: usize) -> Option<(*const T, usize)> {
    let is_whole = n <= kernels.width && kernels.reads_whole(n);
    let is_aligned = |at: *const T| at.addr().is_multiple_of(LINE.min(n * size_of::<T>()));
    filter.direct().filter(|(at, row)| is_whole && *row == n && is_aligned(*at))
}

impl Engine {
    /// Computes a pass that has outputs; `done` is told the image and the lines that are finished in all parts.
    ///
    /// # Safety
    ///
    /// `out` is writable wherever the parts put their outputs, and nobody else uses it.
    pub(crate) unsafe fn direct_conv<T: Real>(
        &self,
        x: &DirectConv<'_, T>,
        out: *mut T,
        done: &(dyn Fn(usize, Range<usize>) + Sync),
    ) {
        let depth = |part: &ConvPart<'_, T>| part.window.y.taps * part.window.x.taps * part.window.channels;
        let mut tile = ImageTile::new(x.parts.iter().filter(|part| depth(part) > 0).map(|part| &part.window));
        if let Some(tile) = &mut tile {
            tile.in_planes = self.narrow && is_in_planes(&T::kernels(self.level), x);
            if self.narrow && !tile.in_planes {
                tile.place(x.parts.iter().filter(|part| depth(part) > 0).map(|part| &part.window));
            }
        }
        let width = self.panel_width::<T>(tile.as_ref(), x.n);
        let panels = x.n.div_ceil(width.max(1));
        let n_lines = x.parts.iter().map(|part| part.window.y.outputs).max().unwrap_or(0);
        let own =
            |part: &ConvPart<'_, T>| own_panel(&T::kernels(self.level), part.filter, x.n).filter(|_| self.unpacked);
        let len_of = |part: &ConvPart<'_, T>| if own(part).is_some() { 0 } else { depth(part) * panels * width };
        // Where pixels are lanes, lines are rows of tiles, which runs of them would cut.
        let in_lines = self.narrow && tile.is_some_and(|tile| !tile.in_planes);
        let may_skip = |w: &Window<'_, T>| in_lines && w.y.leaves_out_pixels(x.batch * w.x.outputs);
        let total = x.parts.iter().map(len_of).sum();
        with_scratch::<T, _>(total, |packed| {
            let mut rest = 0;
            let ready: Vec<Ready<'_, '_, T>> = x
                .parts
                .iter()
                .map(|part| {
                    let len = len_of(part);
                    if len > 0 {
                        let to = &mut packed[rest..rest + len];
                        self.pack_columns(part.filter, &(0..x.n), [depth(part), width], to);
                    }
                    let (taps, start) = match &tile {
                        Some(tile) if depth(part) > 0 && x.n > 0 => (tile.taps(&part.window), tile.start(&part.window)),
                        _ => (Vec::new(), 0),
                    };
                    let filter: &[T] = match own(part) {
                        // SAFETY: a panel of its own has a row of `n` for each step.
                        Some((at, row)) => unsafe { std::slice::from_raw_parts(at, depth(part) * row) },
                        None => &packed[rest..rest + len],
                    };
                    let met = part.window.y.runs(may_skip(&part.window) && self.are_finite(filter));
                    rest += len;
                    Ready { part, taps, start, packed: (len > 0).then_some(rest - len), met }
                })
                .collect();
            let lines_per_tile = tile.map_or(n_lines, |tile| tile.lines_per_tile());
            let chunks = n_lines.div_ceil(lines_per_tile).max(TASKS.div_ceil(x.batch)).min(n_lines);
            let chunk = n_lines.div_ceil(chunks);
            let chunks = n_lines.div_ceil(chunk);
            let (packed, out) = (&*packed, Shared(out));
            let share = |pair| in_lines.then(|| shared_pixels(&T::kernels(self.level), x.n, pair)).flatten();
            let pairs: Vec<_> = ready.chunks(2).map(|pair| (pair, share(pair))).collect();
            self.for_each_in_runs(x.batch * chunks, &|task| {
                let (image, first) = (task / chunks, task % chunks * chunk);
                let lines = first..(first + chunk).min(n_lines);
                with_scratch::<T, _>(tile.map_or(0, |tile| tile.len(lines.len())), |copy| {
                    let mut held: &[T] = &[];
                    if let (Some(tile), Some(part)) = (&tile, x.parts.iter().find(|part| depth(part) > 0)) {
                        held = tile.hold(self.level, &part.window, image, &lines, copy);
                    }
                    let out = out.at(image * x.out_image);
                    for (pair, pixels) in &pairs {
                        if let (Some(pixels), Some(tile), [first, second]) = (pixels, &tile, pair) {
                            self.direct_pair([first.part, second.part], pixels, tile, held, packed, &lines, out);
                            continue;
                        }
                        for part in *pair {
                            self.direct_part(x, part, tile.as_ref(), held, packed, &lines, out);
                        }
                    }
                });
                done(image, lines);
            });
        });
    }

    /// Columns of a panel of a filter: in planes, which take one weight at a time, there are no others.
    fn panel_width<T: Real>(&self, tile: Option<&ImageTile>, n: usize) -> usize {
        if tile.is_some_and(|tile| tile.in_planes) { n } else { T::kernels(self.level).width }
    }

    /// Computes some lines of two phases.
    #[expect(clippy::too_many_arguments, reason = "the inside of a task, cut out for its length")]
    fn direct_pair<T: Real>(
        &self,
        pair: [&ConvPart<'_, T>; 2],
        pixels: &[SharedPixel],
        tile: &ImageTile,
        held: &[T],
        packed: &[T],
        lines: &Range<usize>,
        out: *mut T,
    ) {
        let kernels = T::kernels(self.level);
        let pairs = kernels.pairs.expect("phases share pixels where a kernel serves two of them");
        let ([c_line, c_row], w) = (pair[0].step, &pair[0].window);
        let block = PhasePair {
            lines: lines.end.min(w.y.outputs).saturating_sub(lines.start),
            rows: w.x.outputs,
            pixels,
            channels: w.channels,
            a: held.as_ptr(),
            a_line: tile.stride * tile.line,
            a_row: tile.steps()[0],
            b: packed.as_ptr(),
            b_row: kernels.width,
            c: pair.map(|part| out.wrapping_add(part.first + lines.start * c_line)),
            c_line,
            c_row,
        };
        // SAFETY: the level is present; what is held covers the windows of these lines and the slack a last tile, the
        // filters are packed, and C is this task's own.
        unsafe { pairs(&block) };
    }

    /// Computes some lines of a part.
    #[expect(clippy::too_many_arguments, reason = "the inside of a task, cut out for its length")]
    fn direct_part<T: Real>(
        &self,
        x: &DirectConv<'_, T>,
        ready: &Ready<'_, '_, T>,
        tile: Option<&ImageTile>,
        held: &[T],
        packed: &[T],
        lines: &Range<usize>,
        out: *mut T,
    ) {
        let kernels = T::kernels(self.level);
        let (part, w) = (ready.part, &ready.part.window);
        let n_lines = lines.end.min(w.y.outputs).saturating_sub(lines.start);
        let k = ready.taps.len();
        let Some(tile) = tile.filter(|_| k > 0) else {
            for line in lines.start..lines.start + n_lines {
                for at in 0..w.x.outputs {
                    let c = out.wrapping_add(part.first + line * part.step[0] + at * part.step[1]);
                    // SAFETY: an output of this part.
                    clear_pixel(unsafe { std::slice::from_raw_parts_mut(c, x.n) });
                }
            }
            return;
        };
        let (depth, a_row, a_line) = (block_depth(k), w.x.stride as usize * tile.steps()[0], tile.stride * tile.line);
        let (filter, b_row) = match ready.packed {
            Some(at) => (packed[at..].as_ptr(), self.panel_width::<T>(Some(tile), x.n)),
            None => own_panel(&kernels, part.filter, x.n).expect("a filter that is not packed is its own panel"),
        };
        let held_taps = kernels.one_channel.filter(|_| self.narrow && has_held_taps(&kernels, w, x.n, k <= depth));
        let piece = if tile.in_planes && n_lines == 1 { PIECE } else { w.x.outputs.max(1) };
        let line_of_taps = w.x.taps * w.channels;
        for met in &ready.met {
            let run = met.outputs.start.max(lines.start)..met.outputs.end.min(lines.end);
            if run.is_empty() {
                continue;
            }
            let taps = met.taps.start * line_of_taps..met.taps.end * line_of_taps;
            let a = ready.start + (run.start - lines.start) * a_line;
            let c = out.wrapping_add(part.first + run.start * part.step[0]);
            for first in (0..w.x.outputs).step_by(piece) {
                for block in taps.start / depth..taps.end.div_ceil(depth) {
                    let steps = taps.start.max(block * depth)..taps.end.min((block + 1) * depth);
                    let block = Lines {
                        lines: run.len(),
                        rows: piece.min(w.x.outputs - first),
                        cols: x.n,
                        offsets: &ready.taps[steps.clone()],
                        a: held[a + first * a_row..].as_ptr(),
                        a_line,
                        a_row,
                        b: filter.wrapping_add(steps.start * b_row),
                        b_panel: k * b_row,
                        b_row,
                        c: c.wrapping_add(first * part.step[1]),
                        c_line: part.step[0],
                        c_row: part.step[1],
                        fresh: steps.start == taps.start,
                    };
                    // SAFETY: the level is present; what is held covers the windows of these lines and the slack a last
                    // tile, the panels are packed, and C is this task's own. In planes and of one channel, rows are
                    // neighbours.
                    unsafe {
                        match held_taps {
                            _ if tile.in_planes => (kernels.planes)(&block),
                            Some(one_channel) => one_channel(&OneChannel { lines: block, taps: w.x.taps }),
                            None => (kernels.lines)(&block),
                        }
                    };
                }
            }
        }
    }
}

/// The pixels that two phases of a gradient meet, in an order that is that of both. They must have pixels in common, as many
/// outputs each, and one vector and chain for each output; else there are none.
fn shared_pixels<T: Real>(kernels: &Kernels<T>, n: usize, pair: &[Ready<'_, '_, T>]) -> Option<Vec<SharedPixel>> {
    let [first, second] = pair else { return None };
    let axes = |ready: &Ready<'_, '_, T>| [ready.part.window.y, ready.part.window.x];
    let shared = |axis: WindowAxis| (axis.outputs, axis.stride, axis.dilation);
    let are_alike = axes(first).map(shared) == axes(second).map(shared);
    let is_whole = |ready: &Ready<'_, '_, T>| (1..=block_depth(ready.taps.len())).contains(&ready.taps.len());
    let panels = [first, second].map(|ready| ready.packed);
    let [y, x] = axes(first);
    // Taps then follow each other along lines, and lines along the image, so that distances grow or fall.
    let is_ordered = y.dilation.signum() == x.dilation.signum() && [y.stride, x.stride] == [1, 1];
    if kernels.pairs.is_none() || n != kernels.lanes || !are_alike || !is_ordered || !pair.iter().all(is_whole) {
        return None;
    }
    let channels = first.part.window.channels;
    let mut pixels: Vec<SharedPixel> = Vec::new();
    for (phase, (ready, panel)) in pair.iter().zip(panels).enumerate() {
        let panel = panel?;
        for (tap, offset) in ready.taps.iter().step_by(channels).enumerate() {
            let at = ready.start as isize + offset;
            let index = pixels.iter().position(|pixel| pixel.at == at).unwrap_or(pixels.len());
            if index == pixels.len() {
                pixels.push(SharedPixel { at, filters: [None; 2] });
            }
            pixels[index].filters[phase] = Some(panel + tap * channels * kernels.width);
        }
    }
    pixels.sort_by_key(|pixel| pixel.at * y.dilation.signum());
    pixels.iter().any(|pixel| pixel.filters.iter().all(Option::is_some)).then_some(pixels)
}

/// Whether the image has one channel, and a line of taps is in registers for all outputs of a tile.
fn has_held_taps<T>(kernels: &Kernels<T>, w: &Window<'_, T>, n: usize, is_one_chain: bool) -> bool {
    let is_dense = w.channels == 1 && w.x.stride == 1 && w.x.dilation == 1;
    is_dense && n == kernels.lanes && is_one_chain && OneChannel::<T>::fits(w.x.taps, w.x.outputs)
}

/// Writes zeros, without a call where a pixel is one or two cache lines: it would take longer than its work.
fn clear_pixel<T: Real>(pixel: &mut [T]) {
    // Compilers make a call of a loop over lines.
    match pixel.as_chunks_mut::<16>() {
        ([line], []) => *line = [T::ZERO; 16],
        ([first, second], []) => (*first, *second) = ([T::ZERO; 16], [T::ZERO; 16]),
        _ => pixel.fill(T::ZERO),
    }
}

#[cfg(test)]
mod tests {
    use super::super::pack::Strided;
    use super::*;

    #[test]
    fn filters_are_their_own_panels_where_vectors_read_nothing_else() {
        let words = vec![0.0_f32; 1024];
        let first = words.as_ptr().align_offset(LINE);
        for level in Level::available() {
            let kernels = <f32 as Real>::kernels(level);
            let is_own = |first: usize, n: usize, row: usize| {
                // SAFETY: nothing is read.
                let filter = unsafe { Strided::new(words[first..].as_ptr(), 1, row as isize) };
                own_panel(&kernels, &filter, n).is_some()
            };
            for n in [kernels.width, kernels.lanes, kernels.least_lanes] {
                assert!(is_own(first, n, n), "{level:?} {n}");
                assert!(!is_own(first, n, n + 1) && !is_own(first + 1, n, n), "{level:?} {n}");
            }
            for n in [1, kernels.least_lanes - 1, kernels.lanes + 1, 2 * kernels.width] {
                assert!(n == 1 && kernels.least_lanes == 1 || !is_own(first, n, n), "{level:?} {n}");
            }
        }
    }
}
