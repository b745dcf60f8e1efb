//! Pooling by windows that move on by one column at a time.
//!
//! Results that follow each other in a row, whatever their columns and channels, are combined from elements that follow
//! each other at every place of their windows. Elements of a row of results are the vector axis therefore, so that images
//! of one to three channels fill vectors as well as others, and some hundred bytes of results stay in registers over all
//! places.

use std::ops::Range;

use super::{ENOUGH_TILES, Lanewise, Pool2d, Repeatable, alike, by_full_lanes, lanes};
use crate::library::number::Number;
use crate::library::view::{for_each_tile, vectorized};

/// Whether windows move on by one column at a time, and there are any.
pub(super) fn is_sliding(pool: &Pool2d) -> bool {
    pool.stride[1] == 1 && !pool.windows().contains(&0)
}

/// The elements of each window combined, in row-major order from the unit.
pub(super) fn fold<T: Number>(pool: &Pool2d, x: &[T], unit: T, combine: impl Fn(T, T) -> T + Sync, out: &mut [T]) {
    if out.is_empty() {
        // Without elements, the other extents can be any number.
        return;
    }
    let (&Pool2d { batch, height, width, channels, .. }, [n_rows, n_windows]) = (pool, pool.windows());
    let alike = alike(n_windows, true, |window| pool.covered(1, window));
    let extents = [batch * n_rows, n_windows, channels];
    // Few rows are cut into some windows each.
    let block = [n_windows.div_ceil(ENOUGH_TILES.div_ceil(extents[0])), channels];
    for_each_tile(out, extents, block, pool.work(), &|mut tile| {
        let (image, row) = (tile.outer / n_rows, tile.outer % n_rows);
        let (rows, first) = (pool.covered(0, row), tile.rows.start);
        let held = tile.rows.clone();
        let out = tile.rows(held.clone());
        vectorized(
            #[inline(always)]
            || {
                for (windows, columns) in &alike {
                    let here = windows.start.max(held.start)..windows.end.min(held.end);
                    if here.is_empty() {
                        continue;
                    }
                    let moved = here.start - windows.start;
                    by_full_lanes(
                        here.len() * channels,
                        &mut FoldWindows {
                            x,
                            rows: image * height + rows.start..image * height + rows.end,
                            columns: columns.start + moved..columns.end + moved,
                            line: width * channels,
                            channels,
                            unit,
                            combine: &combine,
                            out: &mut out[(here.start - first) * channels..(here.end - first) * channels],
                        },
                    );
                }
            },
        );
    });
}

impl<T: Number, F: Fn(T, T) -> T> Repeatable<T> for FoldWindows<'_, T, F> {
    #[inline(always)]
    fn reaches(&self, _: usize) -> bool {
        false
    }
}

/// Windows that follow each other.
struct FoldWindows<'x, T, F> {
    x: &'x [T],
    /// The rows of all images in each window.
    rows: Range<usize>,
    /// The columns in the first window.
    columns: Range<usize>,
    /// Elements of a row.
    line: usize,
    channels: usize,
    unit: T,
    combine: &'x F,
    out: &'x mut [T],
}

impl<T: Number, F: Fn(T, T) -> T> Lanewise<T> for FoldWindows<'_, T, F> {
    // Additions of eight vectors of 32 bytes hide how long one takes.
    const BYTES: usize = 256;

    #[inline(always)]
    fn compute<const LANES: usize>(&mut self, at: usize) {
        let mut folded = [self.unit; LANES];
        for row in self.rows.clone() {
            for column in self.columns.clone() {
                let x: [T; LANES] = lanes(self.x, row * self.line + column * self.channels + at);
                for lane in 0..LANES {
                    folded[lane] = (self.combine)(folded[lane], x[lane]);
                }
            }
        }
        self.out[at..at + LANES].copy_from_slice(&folded);
    }
}
