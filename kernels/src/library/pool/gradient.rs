//! Gradients of pooling, one row of windows after the other.
//!
//! Each row of the image that a row of windows covers is read and written once for it, and takes at each element, in
//! registers, what the windows over it send, in their order. For a maximum the places in the windows are found first, for
//! the whole row of windows, so that both loops are over elements that follow each other.

use std::ops::Range;

use super::{Lanewise, Pool2d, by_lanes, lanes};
use crate::library::number::Number;
use crate::library::view::{TileView, for_each_tile, vectorized};

/// Cotangents that a row of windows sends to the image.
trait Sent<T> {
    /// Adds what windows send to elements that follow each other, as the windows' elements do from `window` on: each is
    /// at the same place of its window.
    fn add<const LANES: usize>(&self, window: usize, place: u32, sums: [T; LANES]) -> [T; LANES];
}

/// The cotangents of sums go to all places.
struct ToAll<'x, T>(&'x [T]);

impl<T: Number> Sent<T> for ToAll<'_, T> {
    #[inline(always)]
    fn add<const LANES: usize>(&self, window: usize, _: u32, sums: [T; LANES]) -> [T; LANES] {
        let ct: [T; LANES] = lanes(self.0, window);
        std::array::from_fn(|lane| sums[lane].plus(ct[lane]))
    }
}

/// The cotangents of maxima go to one place each.
struct ToPlaces<'x, T> {
    ct: &'x [T],
    places: &'x [u32],
}

impl<T: Number> Sent<T> for ToPlaces<'_, T> {
    #[inline(always)]
    fn add<const LANES: usize>(&self, window: usize, place: u32, sums: [T; LANES]) -> [T; LANES] {
        let (ct, places): ([T; LANES], [u32; LANES]) = (lanes(self.ct, window), lanes(self.places, window));
        std::array::from_fn(|lane| {
            // Both are computed before one is chosen, so that the choice needs no branch.
            let (old, new) = (sums[lane], sums[lane].plus(ct[lane]));
            if places[lane] == place { new } else { old }
        })
    }
}

/// A pooling whose gradient is computed.
pub(super) struct Gradient<'p> {
    pool: &'p Pool2d,
    /// Columns of the image, and the columns of the windows over the first: over each other one they are shifted as far as
    /// it is.
    columns: Vec<(Range<usize>, Range<usize>)>,
    /// Columns of windows, and the columns of the image in the first, likewise.
    windows: Vec<(Range<usize>, Range<usize>)>,
}

impl Gradient<'_> {
    pub(super) fn of(pool: &Pool2d) -> Gradient<'_> {
        let windows_over = |column: usize| pool.over(1, &(column..column + 1));
        let covered = |window: usize| pool.covered(1, window);
        Gradient {
            pool,
            columns: pool.alike(pool.width, windows_over).collect(),
            windows: pool.alike(pool.windows()[1], covered).collect(),
        }
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
                        self.find_places(x, [tile.outer, row], &mut places);
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

    /// Calls `body` with tiles of some rows of an image each, as few as give each thread work: windows that cross from one
    /// to the next are looked at for both.
    fn each_tile<T: Number>(&self, out: &mut [T], body: impl Fn(&mut TileView<'_, T>) + Sync) {
        /// Tiles from which on threads have an even share.
        const ENOUGH: usize = 8;
        let Pool2d { batch, height, width, channels, window, .. } = *self.pool;
        if out.is_empty() {
            // Without elements, the other extents can be any number.
            return;
        }
        let least = if self.pool.is_disjoint() { 1 } else { 2 * window[0].min(height) };
        let rows = height.div_ceil(ENOUGH.div_ceil(batch)).max(least);
        for_each_tile(
            out,
            [batch, height, width * channels],
            [rows, width * channels],
            self.pool.work(),
            &|mut tile| {
                vectorized(
                    #[inline(always)]
                    || body(&mut tile),
                );
            },
        );
    }

    /// Calls `body` with each row of windows that reaches into a tile, and with its elements in the pooled images. Rows of
    /// the tile are filled with zeros before.
    #[inline(always)]
    fn each_row<T: Number>(
        &self,
        tile: &mut TileView<'_, T>,
        mut body: impl FnMut(usize, Range<usize>, &mut TileView<'_, T>),
    ) {
        let ([n_rows, _], line, end) = (self.pool.windows(), self.line(), tile.rows.end);
        let mut unset = tile.rows.start;
        for row in self.pool.over(0, &tile.rows) {
            let covered = self.pool.covered(0, row).end.clamp(unset, end);
            (unset..covered).for_each(|row| tile.row(row).fill(T::default()));
            unset = covered;
            let start = (tile.outer * n_rows + row) * line;
            body(row, start..start + line, tile);
        }
        (unset..end).for_each(|row| tile.row(row).fill(T::default()));
    }

    /// Finds the place of each maximum in a row of windows.
    #[inline(always)]
    fn find_places<T: Number>(&self, x: &[T], [image, row]: [usize; 2], places: &mut [u32]) {
        let Pool2d { height, width, channels, .. } = *self.pool;
        let rows = self.pool.covered(0, row);
        for (windows, columns) in &self.windows {
            let places = &mut places[windows.start * channels..windows.end * channels];
            if rows.is_empty() || columns.is_empty() {
                // Nothing is sent anywhere.
                continue;
            }
            by_lanes(
                places.len(),
                &mut FindPlaces {
                    x: &x[((image * height + rows.start) * width + columns.start) * channels..],
                    extent: [rows.len(), columns.len()],
                    line: width * channels,
                    channels,
                    first: self.pool.place([row, windows.start], [rows.start, columns.start]),
                    window: self.pool.window[1] as u32,
                    places,
                },
            );
        }
    }

    /// Adds what a row of windows sends to the rows of the image below it that a tile has.
    #[inline(always)]
    fn add<T: Number>(&self, row: usize, sent: &impl Sent<T>, tile: &mut TileView<'_, T>) {
        let (covered, channels) = (self.pool.covered(0, row), self.pool.channels);
        for line in covered.start.max(tile.rows.start)..covered.end.min(tile.rows.end) {
            let out = tile.row(line);
            for (columns, windows) in &self.columns {
                if windows.is_empty() {
                    continue;
                }
                by_lanes(
                    columns.len() * channels,
                    &mut AddSent {
                        sent,
                        windows: windows.clone(),
                        channels,
                        place: self.pool.place([row, windows.start], [line, columns.start]),
                        stride: self.pool.stride[1] as u32,
                        out: &mut out[columns.start * channels..columns.end * channels],
                    },
                );
            }
        }
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

/// The sum of cotangents that the windows over some columns send to a row of the image.
struct AddSent<'x, T, S> {
    sent: &'x S,
    /// The columns of the windows over the first column.
    windows: Range<usize>,
    channels: usize,
    /// The place of the first column in the first window, and how far it is in each window from that in the next.
    place: u32,
    stride: u32,
    out: &'x mut [T],
}

impl<T: Number, S: Sent<T>> Lanewise<T> for AddSent<'_, T, S> {
    const BYTES: usize = 128;

    #[inline(always)]
    fn compute<const LANES: usize>(&mut self, at: usize) {
        let (mut sums, mut place) = (lanes(self.out, at), self.place);
        for window in self.windows.clone() {
            sums = self.sent.add::<LANES>(window * self.channels + at, place, sums);
            place = place.wrapping_sub(self.stride);
        }
        self.out[at..at + LANES].copy_from_slice(&sums);
    }
}
