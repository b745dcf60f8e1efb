//! Gradients of pooling, one row of windows after the other.
//!
//! Each row of the image that a row of windows covers is read and written once for it, and takes at each element, in
//! registers, what the windows over it send, in their order. For a maximum the places in the windows are found first, for
//! the whole row of windows, so that both loops are over elements that follow each other.

use std::ops::{Range, RangeFrom};

use super::{ColumnRun, ENOUGH_TILES, Lanewise, Pool2d, PoolKind, Repeatable, alike, by_full_lanes, by_lanes, lanes};
use crate::library::number::Number;
use crate::library::view::{TileView, for_each_tile, tile_columns, vectorized};

/// Cotangents that a row of windows sends to the image.
trait Sent<T> {
    /// Adds what windows send to elements that follow each other, as the windows' elements do from `window` on: each is
    /// at the same place of its window.
    fn add<const LANES: usize>(&self, window: usize, place: u32, sums: &mut [T; LANES]);
}

/// The cotangents of sums go to all places.
struct ToAll<'x, T>(&'x [T]);

impl<T: Number> Sent<T> for ToAll<'_, T> {
    #[inline(always)]
    fn add<const LANES: usize>(&self, window: usize, _: u32, sums: &mut [T; LANES]) {
        let ct: [T; LANES] = lanes(self.0, window);
        for lane in 0..LANES {
            sums[lane] = sums[lane].plus(ct[lane]);
        }
    }
}

/// The cotangents of maxima go to one place each.
struct ToPlaces<'x, T> {
    ct: &'x [T],
    places: &'x [u32],
}

impl<T: Number> Sent<T> for ToPlaces<'_, T> {
    #[inline(always)]
    fn add<const LANES: usize>(&self, window: usize, place: u32, sums: &mut [T; LANES]) {
        let (ct, places): ([T; LANES], [u32; LANES]) = (lanes(self.ct, window), lanes(self.places, window));
        for lane in 0..LANES {
            // Both are computed before one is chosen, so that the choice needs no branch.
            let (old, new) = (sums[lane], sums[lane].plus(ct[lane]));
            sums[lane] = if places[lane] == place { new } else { old };
        }
    }
}

/// Columns beyond which their runs are not kept, if each is one by itself.
const LONG: usize = 1 << 12;

/// A pooling whose gradient is computed.
pub(super) struct Gradient<'p> {
    pool: &'p Pool2d,
    /// Image rows and channels of a task.
    block: [usize; 2],
    /// Whether no two windows share a position, so that elements need no other ones, and no zeros, before they are written.
    is_alone: bool,
    /// Whether each position is in a window besides.
    is_set: bool,
    /// Columns of the image with the columns of the windows over them: those that move on together in one run, if a task has
    /// all channels, else one by one, unless they are very many.
    columns: Vec<ColumnRun>,
    /// Columns of windows with the columns of the image in them, likewise.
    windows: Vec<ColumnRun>,
}

impl Gradient<'_> {
    /// The pooling, cut into tasks: into as few as threads are busy with, if places of windows that reach from one into the
    /// next are found for both.
    pub(super) fn of(pool: &Pool2d) -> Gradient<'_> {
        let (&Pool2d { batch, height, channels, window, stride, kind, .. }, [_, n_windows]) = (pool, pool.windows());
        let least = match kind {
            PoolKind::Sum => 1,
            PoolKind::Max => window[0].saturating_mul(if pool.is_disjoint() { 1 } else { 4 }),
        };
        let n_tiles = (4 * ENOUGH_TILES).div_ceil(batch.max(1)).min(height / least).max(1);
        let rows = height.div_ceil(n_tiles).next_multiple_of(stride[0].min(height.max(1)));
        let outer = batch.saturating_mul(height.div_ceil(rows.max(1)));
        let some = if outer < ENOUGH_TILES / 2 { tile_columns(outer, channels) } else { channels };
        let is_alone = pool.is_disjoint();
        let is_set = is_alone && pool.is_covered();
        let mut gradient = Gradient { pool, block: [rows, some], is_alone, is_set, columns: vec![], windows: vec![] };
        let joins = stride[1] == 1 && some >= channels;
        if pool.n_unpooled() > 0 && (joins || pool.width.max(n_windows) <= LONG) {
            gradient.columns = alike(pool.width, joins, |column| pool.over(1, &(column..column + 1)));
            gradient.windows = alike(n_windows, joins, |window| pool.covered(1, window));
        }
        gradient
    }

    /// The cotangent of each window added to all its positions.
    pub(super) fn sum<T: Number>(&self, ct: &[T], out: &mut [T]) {
        self.each_tile(
            out,
            #[inline(always)]
            |tile| {
                self.each_row(
                    tile,
                    #[inline(always)]
                    |row, line, tile| self.add(row, &ToAll(&ct[line]), tile),
                );
            },
        );
    }

    /// The cotangent of each window added at the place of its maximum.
    pub(super) fn max<T: Number>(&self, x: &[T], ct: &[T], out: &mut [T]) {
        self.each_tile(
            out,
            #[inline(always)]
            |tile| {
                let mut places = vec![0; self.line()];
                self.each_row(
                    tile,
                    #[inline(always)]
                    |row, line, tile| {
                        self.find_places(x, row, tile, &mut places);
                        self.add(row, &ToPlaces { ct: &ct[line], places: &places }, tile);
                    },
                );
            },
        );
    }

    /// Elements of a row of windows.
    fn line(&self) -> usize {
        self.pool.windows()[1] * self.pool.channels
    }

    /// Calls `body` with tiles of some channels of some rows of an image each.
    fn each_tile<T: Number>(&self, out: &mut [T], body: impl Fn(&mut TileView<'_, T>) + Sync) {
        if out.is_empty() {
            // Without elements, the other extents can be any number.
            return;
        }
        let &Pool2d { batch, height, width, channels, .. } = self.pool;
        let [rows, some] = self.block;
        for_each_tile(out, [batch, height * width, channels], [rows * width, some], self.pool.work(), &|mut tile| {
            vectorized(
                #[inline(always)]
                || body(&mut tile),
            );
        });
    }

    /// Calls `body` with each row of windows that reaches into a tile, and with its elements in the pooled images. Rows of
    /// the tile are set to zero before.
    #[inline(always)]
    fn each_row<T: Number>(
        &self,
        tile: &mut TileView<'_, T>,
        mut body: impl FnMut(usize, Range<usize>, &mut TileView<'_, T>),
    ) {
        let ([n_rows, _], width) = (self.pool.windows(), self.pool.width);
        let (mut unset, end) = (tile.rows.start, tile.rows.end);
        for row in self.pool.over(0, &(unset / width..end / width)) {
            let covered = (self.pool.covered(0, row).end * width).clamp(unset, end);
            self.fill_with_zeros(tile, unset..covered);
            unset = covered;
            let start = (tile.outer * n_rows + row) * self.line();
            body(row, start..start + self.line(), tile);
        }
        self.fill_with_zeros(tile, unset..end);
    }

    /// Sets some rows of a tile to zero, unless each element is written anyway.
    #[inline(always)]
    fn fill_with_zeros<T: Number>(&self, tile: &mut TileView<'_, T>, rows: Range<usize>) {
        if self.is_set {
            return;
        }
        if tile.contiguous().is_some() {
            tile.rows(rows).fill(T::default());
        } else {
            rows.for_each(|row| tile.row(row).fill(T::default()));
        }
    }

    /// Calls `body` with windows of a row that move on together, and with the columns of the image in the first of them, if there
    /// are any.
    #[inline(always)]
    fn each_window(&self, mut body: impl FnMut(&Range<usize>, &Range<usize>)) {
        each_run(
            &self.windows,
            self.pool.windows()[1],
            |window| self.pool.covered(1, window),
            #[inline(always)]
            |windows, columns| {
                if !columns.is_empty() {
                    body(windows, columns);
                }
            },
        );
    }

    /// Finds the place of each maximum in a row of windows, for the channels of a tile. Places lie as windows do.
    #[inline(always)]
    fn find_places<T: Number>(&self, x: &[T], row: usize, tile: &TileView<'_, T>, places: &mut [u32]) {
        let &Pool2d { height, width, channels, .. } = self.pool;
        let (rows, some) = (self.pool.covered(0, row), &tile.columns);
        if rows.is_empty() {
            // Nothing is sent anywhere.
            return;
        }
        let first = (rows.start + self.pool.padding[0][0] - row * self.pool.stride[0]) * self.pool.window[1];
        let line = (tile.outer * height + rows.start) * width;
        self.each_window(
            #[inline(always)]
            |windows, columns| {
                let len = (windows.len() - 1) * channels + some.len();
                by_full_lanes(
                    len,
                    &mut FindPlaces {
                        x: &x[(line + columns.start) * channels + some.start..],
                        extent: [rows.len(), columns.len()],
                        line: width * channels,
                        channels,
                        first: (first + self.column_in(windows.start, columns.start)) as u32,
                        window: self.pool.window[1] as u32,
                        places: &mut places[windows.start * channels + some.start..],
                    },
                );
            },
        );
    }

    /// Adds what a row of windows sends to the rows of the image below it that a tile has.
    #[inline(always)]
    fn add<T: Number>(&self, row: usize, sent: &impl Sent<T>, tile: &mut TileView<'_, T>) {
        let &Pool2d { width, channels, .. } = self.pool;
        let (covered, first) = (self.pool.covered(0, row), tile.columns.start);
        let lines = covered.start.max(tile.rows.start / width)..covered.end.min(tile.rows.end / width);
        let over = |column: usize| self.pool.over(1, &(column..column + 1));
        for line in lines {
            let place = (line + self.pool.padding[0][0] - row * self.pool.stride[0]) * self.pool.window[1];
            if self.is_alone && self.pool.stride[1] > 1 && tile.columns.len() == channels {
                self.spread(line, place, sent, tile);
                continue;
            }
            each_run(
                &self.columns,
                width,
                over,
                #[inline(always)]
                |columns, windows| {
                    if windows.is_empty() {
                        return;
                    }
                    let out = tile.rows(line * width + columns.start..line * width + columns.end);
                    by_lanes(
                        out.len(),
                        &mut AddSent {
                            sent,
                            windows: windows.clone(),
                            channels,
                            first,
                            place: (place + self.column_in(windows.start, columns.start)) as u32,
                            stride: self.pool.stride[1] as u32,
                            is_alone: self.is_alone,
                            out,
                        },
                    );
                },
            );
        }
    }

    /// Sets a row of the image to what a row of windows sends, of which no two share a column. The row's first column in a window
    /// is at `place`.
    #[inline(always)]
    fn spread<T: Number>(&self, line: usize, place: usize, sent: &impl Sent<T>, tile: &mut TileView<'_, T>) {
        let &Pool2d { width, channels, .. } = self.pool;
        let (first, some) = (tile.columns.start, tile.columns.len());
        self.each_window(
            #[inline(always)]
            |windows, columns| {
                by_full_lanes(
                    some,
                    &mut SpreadSent {
                        sent,
                        window: windows.start * channels + first,
                        places: (place + self.column_in(windows.start, columns.start)) as u32..,
                        channels,
                        out: tile.rows(line * width + columns.start..line * width + columns.end),
                    },
                );
            },
        );
    }

    /// The place of a column of the image in the windows of a column.
    #[inline(always)]
    fn column_in(&self, window: usize, column: usize) -> usize {
        column + self.pool.padding[1][0] - window * self.pool.stride[1]
    }
}

/// Calls `body` with the runs that are known, or else with each column below `end` by itself.
#[inline(always)]
fn each_run(
    known: &[ColumnRun],
    end: usize,
    range: impl Fn(usize) -> Range<usize>,
    mut body: impl FnMut(&Range<usize>, &Range<usize>),
) {
    for (columns, range) in known {
        body(columns, range);
    }
    let rest = if known.is_empty() { 0..end } else { 0..0 };
    for column in rest {
        body(&(column..column + 1), &range(column));
    }
}

/// Places of maxima in windows, counted in row-major order with the padding: of the first NaN, or else of the first of
/// the largest.
struct FindPlaces<'x, T> {
    /// The images from the first position in a window on.
    x: &'x [T],
    /// Rows and columns of the image in each window.
    extent: [usize; 2],
    /// Elements of a row of the image.
    line: usize,
    channels: usize,
    /// The place of the first position.
    first: u32,
    /// Columns of a window.
    window: u32,
    places: &'x mut [u32],
}

impl<T: Number> Lanewise<T> for FindPlaces<'_, T> {
    const BYTES: usize = 128;

    #[inline(always)]
    fn compute<const LANES: usize>(&mut self, at: usize) {
        let (mut best, mut places): ([T; LANES], _) = (lanes(self.x, at), [self.first; LANES]);
        for row in 0..self.extent[0] {
            for column in 0..self.extent[1] {
                let x: [T; LANES] = lanes(self.x, row * self.line + column * self.channels + at);
                let place = self.first + row as u32 * self.window + column as u32;
                for lane in 0..LANES {
                    // Values are read before they are chosen from, so that the choice needs no branch.
                    let (old, new, old_place) = (best[lane], x[lane], places[lane]);
                    let is_larger = new.displaces(old);
                    best[lane] = if is_larger { new } else { old };
                    places[lane] = if is_larger { place } else { old_place };
                }
            }
        }
        self.places[at..at + LANES].copy_from_slice(&places);
    }
}

impl<T: Number> Repeatable<T> for FindPlaces<'_, T> {
    /// Places beyond are those of the next window, which are found later.
    #[inline(always)]
    fn reaches(&self, end: usize) -> bool {
        let last = (self.extent[0] - 1) * self.line + (self.extent[1] - 1) * self.channels;
        last + end <= self.x.len() && end <= self.places.len()
    }
}

/// The cotangents that a window sends to its columns in a row of the image, to which nothing else is sent.
struct SpreadSent<'x, T, S> {
    sent: &'x S,
    /// The window's first element.
    window: usize,
    /// The places of the columns.
    places: RangeFrom<u32>,
    channels: usize,
    out: &'x mut [T],
}

impl<T: Number, S: Sent<T>> Lanewise<T> for SpreadSent<'_, T, S> {
    const BYTES: usize = 128;

    #[inline(always)]
    fn compute<const LANES: usize>(&mut self, at: usize) {
        for (out, place) in self.out.chunks_exact_mut(self.channels).zip(self.places.clone()) {
            let mut sums = [T::default(); LANES];
            self.sent.add::<LANES>(self.window + at, place, &mut sums);
            out[at..at + LANES].copy_from_slice(&sums);
        }
    }
}

impl<T: Number, S: Sent<T>> Repeatable<T> for SpreadSent<'_, T, S> {
    #[inline(always)]
    fn reaches(&self, _: usize) -> bool {
        false
    }
}

/// The sum of cotangents that the windows over some columns send to a row of the image.
struct AddSent<'x, T, S> {
    sent: &'x S,
    /// The columns of the windows over the first column.
    windows: Range<usize>,
    channels: usize,
    /// The first channel.
    first: usize,
    /// The place of the first column in the first window, and how far it is in each window from that in the next.
    place: u32,
    stride: u32,
    /// Whether nothing else is sent to these elements.
    is_alone: bool,
    out: &'x mut [T],
}

impl<T: Number, S: Sent<T>> Lanewise<T> for AddSent<'_, T, S> {
    const BYTES: usize = 128;

    #[inline(always)]
    fn compute<const LANES: usize>(&mut self, at: usize) {
        let mut sums: [T; LANES] = if self.is_alone { [T::default(); LANES] } else { lanes(self.out, at) };
        let mut place = self.place;
        for window in self.windows.clone() {
            self.sent.add::<LANES>(window * self.channels + self.first + at, place, &mut sums);
            place = place.wrapping_sub(self.stride);
        }
        self.out[at..at + LANES].copy_from_slice(&sums);
    }
}
