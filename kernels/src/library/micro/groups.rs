//! Filter gradients from images whose channels lie in groups of a cache line.
//!
//! A chain of a filter's gradient reads one channel after the other at some 256 pixels, and the cotangent at these. Where
//! pixels lie several cache lines apart, in the image and in the cotangent, both fall into a part of the sets of a
//! first-level cache, push each other out, and every tile reads them from the next cache. In the copy of the image that a
//! task makes anyway, the pixels of a group are neighbours, seen from any tap; columns of the cotangent are copied to
//! panels.

use std::ops::Range;

use super::direct::ImageTile;
use super::drive::Engine;
use super::filter::{ChainColumns, FAR, FilterGradient, GROUP_BYTES, TapLine, pixels_of_lines};
use super::tile::Lines;
use super::window::copy_pieces;
use super::{Kernels, Real, Window, with_scratch};
use crate::library::view::vectorized;

/// A part of an image: for each group, the pixels line by line.
struct GroupedTile {
    tile: ImageTile,
    /// Channels of a group, and the number of groups.
    group: usize,
    n_groups: usize,
}

impl GroupedTile {
    /// The part that `tile` holds, for chains of `steps` pixels, if it pays: where pixels of the image lie apart. A window of a
    /// single group then has panels of the cotangent as well, each of which all taps meet in turn. Where steps leave pixels
    /// out, an image is read too few times for each copy.
    fn new<T: Real>(tile: ImageTile, w: &Window<'_, T>, steps: usize) -> Option<GroupedTile> {
        let (group, pixel) = (GROUP_BYTES / size_of::<T>(), w.pixel * size_of::<T>());
        let is_far = pixel > GROUP_BYTES && pixel.saturating_mul(steps) > FAR;
        let pays = is_far && w.channels.is_multiple_of(group) && w.x.stride == 1;
        pays.then(|| GroupedTile { tile, group, n_groups: w.channels / group })
    }

    /// Elements from line to line.
    fn line(&self) -> usize {
        self.tile.extent[1] * self.group
    }

    /// Elements from group to group, of a copy for `n_lines` of outputs.
    fn plane(&self, n_lines: usize) -> usize {
        self.tile.height(n_lines) * self.line()
    }

    /// Elements for `n_lines` of outputs.
    fn len(&self, n_lines: usize) -> usize {
        self.n_groups * self.plane(n_lines) + self.tile.slack
    }

    /// Where the first pixel of a line, seen from a line of taps, lies.
    fn at_tap<T>(&self, w: &Window<'_, T>, y: usize) -> usize {
        let y = y as isize * w.y.dilation + w.y.offset - self.tile.low[0];
        y as usize * self.line() + (w.x.offset - self.tile.low[1]) as usize * self.group
    }

    /// Copies what lines `lines` of outputs of `image` need.
    #[inline(always)]
    fn copy<T: Real>(&self, w: &Window<'_, T>, image: usize, lines: &Range<usize>, to: &mut [T]) {
        let ([low_y, low_x], width) = (self.tile.low, w.x.extent as isize);
        let from_x = low_x.clamp(0, width);
        let to_x = (low_x + self.tile.extent[1] as isize).clamp(from_x, width);
        let [before, n_pixels] = [from_x - low_x, to_x - from_x].map(|n| n as usize);
        let (line, plane) = (self.line(), self.plane(lines.len()));
        let (planes, slack) = to.split_at_mut(self.n_groups * plane);
        slack.fill(T::ZERO);
        for row in 0..self.tile.height(lines.len()) {
            let y = low_y + (lines.start * self.tile.stride + row) as isize;
            let y = usize::try_from(y).ok().filter(|y| *y < w.y.extent && n_pixels > 0);
            for (group, plane) in planes.chunks_exact_mut(plane).enumerate() {
                let to = &mut plane[row * line..][..line];
                let Some(y) = y else {
                    to.fill(T::ZERO);
                    continue;
                };
                let (before, rest) = to.split_at_mut(before * self.group);
                let (pixels, after) = rest.split_at_mut(n_pixels * self.group);
                before.fill(T::ZERO);
                after.fill(T::ZERO);
                let at = ((image * w.y.extent + y) * w.x.extent + from_x as usize) * w.pixel;
                let from = &w.image[at + group * self.group..];
                match self.group {
                    16 => copy_pieces::<T, 16>(pixels, 16, from, w.pixel, n_pixels),
                    _ => copy_pieces::<T, 8>(pixels, 8, from, w.pixel, n_pixels),
                }
            }
        }
    }
}

impl Engine {
    /// The part of a filter's gradient that comes from some images, of which a task holds `tile`, if groups of channels
    /// pay; returns whether they do.
    pub(super) fn gradient_by_groups<T: Real>(
        &self,
        x: &FilterGradient<'_, T>,
        tile: ImageTile,
        images: Range<usize>,
        c: *mut T,
    ) -> bool {
        let (w, chain) = (&x.window, x.lines_of_chain());
        let Some(held) = GroupedTile::new(tile, w, chain * w.x.outputs) else { return false };
        let lines_per_tile = x.lines_of_copy(&tile);
        let pixels = pixels_of_lines([chain, w.x.outputs], [tile.stride.wrapping_mul(held.line()), held.group]);
        let len = held.len(lines_per_tile);
        with_scratch::<T, _>(len + self.len_of_columns(x, pixels.len()), |scratch| {
            let (copy, packed) = scratch.split_at_mut(len);
            let mut fresh = true;
            let skips = x.leaves_out_taps(&T::kernels(self.level));
            for image in images {
                for first in (0..w.y.outputs).step_by(lines_per_tile) {
                    let lines = first..(first + lines_per_tile).min(w.y.outputs);
                    let copy = &mut copy[..held.len(lines.len())];
                    vectorized(
                        #[inline(always)]
                        || held.copy(w, image, &lines, copy),
                    );
                    for line in lines.clone().step_by(chain) {
                        let now = line..(line + chain).min(lines.end);
                        let offsets = &pixels[..now.len() * w.x.outputs];
                        let steps = x.steps(image, line, offsets.len());
                        let columns = self.columns_of_chain(x, steps, [true, skips], packed);
                        let copy = &copy[(line - first) * tile.stride * held.line()..];
                        let plane = held.plane(lines.len());
                        let chain = GroupedChain { held: &held, plane, copy, lines: now, offsets, columns };
                        chain.add(T::kernels(self.level), x, c, fresh);
                        fresh = false;
                    }
                }
            }
        });
        true
    }
}

/// A chain of pixels.
struct GroupedChain<'a, T> {
    held: &'a GroupedTile,
    /// Elements from group to group.
    plane: usize,
    /// The copy, from the line of the first pixel on.
    copy: &'a [T],
    /// The lines of outputs.
    lines: Range<usize>,
    /// Where each pixel lies.
    offsets: &'a [isize],
    columns: ChainColumns<T>,
}

impl<T: Real> GroupedChain<'_, T> {
    /// Adds the chain of each tap and channel to `c`, or stores it: a group of channels and a panel at a time, which a
    /// first-level cache holds; of taps that share pixels, a group and a line of taps, since these read columns less often.
    fn add(&self, kernels: Kernels<T>, x: &FilterGradient<'_, T>, c: *mut T, fresh: bool) {
        let (w, held, columns) = (&x.window, self.held, &self.columns);
        if x.slides(&kernels) {
            for group in 0..held.n_groups {
                for y in 0..w.y.taps {
                    let row = y * w.x.taps * x.tap_rows + group * held.group;
                    let taps = TapLine {
                        a: self.copy[group * self.plane + held.at_tap(w, y)..].as_ptr(),
                        a_line: held.tile.stride.wrapping_mul(held.line()),
                        a_pixel: held.group,
                        a_row: 1,
                        rows: held.group,
                        lines: columns.lines_inside(&w.y, y, &self.lines),
                        c: c.wrapping_add(row * x.n),
                        c_row: x.n,
                    };
                    // SAFETY: the level is present; the copy covers all taps of these pixels and the slack a last tile,
                    // B has whole vectors of the cotangent of these pixels, and C is this task's own.
                    unsafe { taps.add(kernels, x, columns, self.offsets, fresh) };
                }
            }
            return;
        }
        for (panel, j) in (0..x.n).step_by(kernels.width).enumerate() {
            for group in 0..held.n_groups {
                for y in 0..w.y.taps {
                    let row = y * w.x.taps * x.tap_rows + group * held.group;
                    let lines = columns.lines_inside(&w.y, y, &self.lines);
                    let first = group * self.plane + held.at_tap(w, y) + lines.start * held.tile.stride * held.line();
                    let block = Lines {
                        lines: w.x.taps,
                        rows: held.group,
                        cols: kernels.width.min(x.n - j),
                        offsets: &self.offsets[..lines.len() * w.x.outputs],
                        a: self.copy[first..].as_ptr(),
                        a_line: (w.x.dilation as usize).wrapping_mul(held.group),
                        a_row: 1,
                        b: columns.at(lines.start * w.x.outputs).wrapping_add(panel * columns.b_panel),
                        b_panel: columns.b_panel,
                        b_row: columns.b_row,
                        c: c.wrapping_add(row * x.n + j),
                        c_line: x.tap_rows * x.n,
                        c_row: x.n,
                        fresh,
                    };
                    // SAFETY: the level is present; the copy covers all taps of these pixels and the slack a last tile,
                    // B has whole vectors of the cotangent of these pixels, and C is this task's own.
                    unsafe { (kernels.lines)(&block) };
                }
            }
        }
    }
}
