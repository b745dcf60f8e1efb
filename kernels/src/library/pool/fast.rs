//! Pooling with channels as lanes: some channels of a window stay in registers over all its positions.

use std::ops::Range;

use super::gradient::Gradient;
use super::quads::Quads;
use super::{Pool2d, PoolKind, PoolTwin, lanes, sliding};
use crate::library::number::Number;
use crate::library::view::{TileView, for_each_tile, prefetch, tile_columns, vectorized};

/// The kernels.
pub(super) struct FastPool;

impl PoolTwin for FastPool {
    fn forward<T: Number>(&self, pool: &Pool2d, kind: PoolKind, x: &[T], out: &mut [T]) {
        match kind {
            PoolKind::Max => fold(pool, x, T::LOWEST, T::larger, out),
            PoolKind::Sum => fold(pool, x, T::default(), T::plus, out),
        }
    }

    fn sum_gradient<T: Number>(&self, pool: &Pool2d, ct: &[T], out: &mut [T]) {
        match Quads::of(pool).filter(Quads::are_everywhere) {
            Some(quads) => quads.sum_gradient(ct, out),
            None => Gradient::of(pool).sum(ct, out),
        }
    }

    fn max_gradient<T: Number>(&self, pool: &Pool2d, x: &[T], ct: &[T], out: &mut [T]) {
        match Quads::of(pool).filter(Quads::are_everywhere) {
            Some(quads) => quads.max_gradient(x, ct, out),
            None => Gradient::of(pool).max(x, ct, out),
        }
    }

    fn max_gather<T: Number>(&self, pool: &Pool2d, x: &[T], t: &[T], out: &mut [T]) {
        each_result(pool, out, &MaxGather { x, t });
    }
}

/// The elements of each window combined, in row-major order from the unit.
fn fold<T: Number>(pool: &Pool2d, x: &[T], unit: T, combine: impl Fn(T, T) -> T + Sync, out: &mut [T]) {
    if let Some(quads) = Quads::of(pool) {
        quads.fold(x, unit, combine, out);
    } else if sliding::is_sliding(pool) {
        sliding::fold(pool, x, unit, combine, out);
    } else {
        each_result(pool, out, &Fold { x, unit, combine });
    }
}

/// A function of a window.
trait WindowKernel<T> {
    /// Elements of the images.
    fn len(&self) -> usize;

    /// The results of the channels from `channel` on.
    fn compute<const LANES: usize>(&self, window: &PooledWindow, channel: usize) -> [T; LANES];
}

/// Positions from which on a window is large.
const MANY_POSITIONS: usize = 9;

/// A window of an image, without the padding.
struct PooledWindow {
    rows: Range<usize>,
    columns: Range<usize>,
    /// Columns of the image.
    width: usize,
    /// The column of the pooled image.
    column: usize,
    /// The place of the image's first channel in the images.
    start: usize,
    /// Channels of the images.
    channels: usize,
    /// Elements of the images from a row of windows to the next.
    ahead: usize,
}

impl PooledWindow {
    /// Whether what is read takes longer than results that are written one by one.
    #[inline(always)]
    fn is_large(&self) -> bool {
        self.rows.len() * self.columns.len() >= MANY_POSITIONS
    }

    /// The end of the elements that are read for the channels below `end`.
    #[inline(always)]
    fn ends_by(&self, end: usize) -> usize {
        let last = (self.rows.end - 1) * self.width + self.columns.end - 1;
        self.start + last * self.channels + end
    }

    /// Calls `body` with each image position, in row-major order.
    #[inline(always)]
    fn each(&self, mut body: impl FnMut(usize)) {
        for row in self.rows.clone() {
            for column in self.columns.clone() {
                body(row * self.width + column);
            }
        }
    }

    /// The same for a short `body`, for which the most common window is no loop: one of two steps costs more than it does.
    #[inline(always)]
    fn each_in_short(&self, mut body: impl FnMut(usize)) {
        if (self.rows.len(), self.columns.len()) == (2, 2) {
            let first = self.rows.start * self.width + self.columns.start;
            body(first);
            body(first + 1);
            body(first + self.width);
            body(first + self.width + 1);
        } else {
            self.each(body);
        }
    }

    /// The elements of `x` at an image position, from a channel on.
    #[inline(always)]
    fn load<T: Copy, const LANES: usize>(&self, x: &[T], position: usize, channel: usize) -> [T; LANES] {
        lanes(x, self.start + position * self.channels + channel)
    }

    /// The same, read for the first time: what the next row of windows needs is asked for, since windows hop between
    /// rows of the image and processors foresee long runs alone.
    #[inline(always)]
    fn load_ahead<T: Copy, const LANES: usize>(&self, x: &[T], position: usize, channel: usize) -> [T; LANES] {
        if LANES * size_of::<T>() >= 32 {
            prefetch(x, self.start + position * self.channels + channel + self.ahead);
        }
        self.load(x, position, channel)
    }

    /// The image position of the maximum of each channel, which is the first NaN or else the first of the largest; none
    /// if the window has no position.
    #[inline(always)]
    fn maxima<T: Number, const LANES: usize>(&self, x: &[T], channel: usize) -> Option<[u32; LANES]> {
        if self.rows.is_empty() || self.columns.is_empty() {
            return None;
        }
        let first = self.rows.start * self.width + self.columns.start;
        let (mut best, mut place): ([T; LANES], _) = (self.load(x, first, channel), [first as u32; LANES]);
        self.each(
            #[inline(always)]
            |position| {
                let x: [T; LANES] = self.load_ahead(x, position, channel);
                for lane in 0..LANES {
                    // Values are read before they are chosen from, so that the choice needs no branch.
                    let (old, new, old_place) = (best[lane], x[lane], place[lane]);
                    let is_larger = new.displaces(old);
                    best[lane] = if is_larger { new } else { old };
                    place[lane] = if is_larger { position as u32 } else { old_place };
                }
            },
        );
        Some(place)
    }
}

/// Stores elements in a tile's row from a channel on. Rows of the tile are columns of the pooled images.
#[inline(always)]
fn store<T: Copy, const LANES: usize>(tile: &mut TileView<'_, T>, row: usize, channel: usize, new: [T; LANES]) {
    let at = channel - tile.columns.start;
    tile.row(row)[at..at + LANES].copy_from_slice(&new);
}

/// As [`store`], of those elements alone that the tile has.
#[inline(always)]
fn store_some<T: Copy, const LANES: usize>(tile: &mut TileView<'_, T>, row: usize, channel: usize, new: [T; LANES]) {
    let at = channel - tile.columns.start;
    tile.row(row)[at..].iter_mut().zip(new).for_each(|(out, new)| *out = new);
}

/// Computes all channels of a tile in a window, sixteen at a time as long as there are as many.
#[inline(always)]
fn by_lanes<T: Copy>(window: &PooledWindow, tile: &mut TileView<'_, T>, kernel: &impl WindowKernel<T>) {
    let mut channel = tile.columns.start;
    let left = |channel: usize, tile: &TileView<'_, T>| tile.columns.end - channel;
    while left(channel, tile) >= 16 {
        store(tile, window.column, channel, kernel.compute::<16>(window, channel));
        channel += 16;
    }
    if window.is_large() && left(channel, tile) > 0 {
        // Each of these takes as long as all of them.
        let has = |lanes: usize| window.ends_by(channel + lanes) <= kernel.len();
        match left(channel, tile) {
            2..=3 if has(4) => return store_some(tile, window.column, channel, kernel.compute::<4>(window, channel)),
            5..=7 if has(8) => return store_some(tile, window.column, channel, kernel.compute::<8>(window, channel)),
            9..=15 if has(16) => {
                return store_some(tile, window.column, channel, kernel.compute::<16>(window, channel));
            }
            _ => {}
        }
    }
    if left(channel, tile) >= 8 {
        store(tile, window.column, channel, kernel.compute::<8>(window, channel));
        channel += 8;
    }
    if left(channel, tile) >= 4 {
        store(tile, window.column, channel, kernel.compute::<4>(window, channel));
        channel += 4;
    }
    while left(channel, tile) > 0 {
        store(tile, window.column, channel, kernel.compute::<1>(window, channel));
        channel += 1;
    }
}

/// Computes each window of a row of windows in turn.
#[inline(always)]
fn row_of_windows<T: Copy>(
    pool: &Pool2d,
    [image, row]: [usize; 2],
    columns: Range<usize>,
    tile: &mut TileView<'_, T>,
    kernel: &impl WindowKernel<T>,
) {
    let rows = pool.covered(0, row);
    for column in columns {
        let window = PooledWindow {
            rows: rows.clone(),
            columns: pool.covered(1, column),
            width: pool.width,
            column,
            start: image * pool.height * pool.width * pool.channels,
            channels: pool.channels,
            ahead: pool.stride[0].min(pool.height) * pool.width * pool.channels,
        };
        by_lanes(&window, tile, kernel);
    }
}

/// Computes a pooled image; a tile is some channels of a row of windows.
fn each_result<T: Number>(pool: &Pool2d, out: &mut [T], kernel: &(impl WindowKernel<T> + Sync)) {
    let [rows, columns] = pool.pooled();
    let outer = pool.batch * rows;
    let block = [columns, tile_columns(outer, pool.channels)];
    for_each_tile(out, [outer, columns, pool.channels], block, pool.work(), &|mut tile| {
        vectorized(
            #[inline(always)]
            || {
                let at = [tile.outer / rows, tile.outer % rows];
                row_of_windows(pool, at, tile.rows.clone(), &mut tile, kernel);
            },
        );
    });
}

/// The elements of each window combined, in row-major order from the unit.
struct Fold<'x, T, F> {
    x: &'x [T],
    unit: T,
    combine: F,
}

impl<T: Number, F: Fn(T, T) -> T> WindowKernel<T> for Fold<'_, T, F> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.x.len()
    }

    #[inline(always)]
    fn compute<const LANES: usize>(&self, window: &PooledWindow, channel: usize) -> [T; LANES] {
        let mut sums = [self.unit; LANES];
        window.each_in_short(
            #[inline(always)]
            |position| {
                let x: [T; LANES] = window.load_ahead(self.x, position, channel);
                for lane in 0..LANES {
                    sums[lane] = (self.combine)(sums[lane], x[lane]);
                }
            },
        );
        sums
    }
}

/// The tangents at the places of the maxima; 0 for an empty window.
struct MaxGather<'x, T> {
    x: &'x [T],
    t: &'x [T],
}

impl<T: Number> WindowKernel<T> for MaxGather<'_, T> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.x.len()
    }

    #[inline(always)]
    fn compute<const LANES: usize>(&self, window: &PooledWindow, channel: usize) -> [T; LANES] {
        let mut found = [T::default(); LANES];
        if let Some(places) = window.maxima::<T, LANES>(self.x, channel) {
            window.each(
                #[inline(always)]
                |position| {
                    let t: [T; LANES] = window.load(self.t, position, channel);
                    for lane in 0..LANES {
                        let (old, new) = (found[lane], t[lane]);
                        found[lane] = if places[lane] == position as u32 { new } else { old };
                    }
                },
            );
        }
        found
    }
}
