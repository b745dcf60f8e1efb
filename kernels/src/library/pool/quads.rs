//! Pooling by windows of two by two that lie side by side, the most common ones.
//!
//! Without an edge in any window, a row of windows is two runs of elements, each with two pixels for each window, and
//! nothing has to be found out for a window of its own. Some channels of all windows of a row are computed after the
//! other, so that the loop over windows is the innermost one.

use super::{Pool2d, lanes};
use crate::library::number::Number;
use crate::library::view::{for_each_chunk, prefetch, vectorized};

/// Rows of windows from which on there is work for several threads without a cut through channels.
const ENOUGH_ROWS: usize = 8;

/// Bytes of a pixel at most.
const MOST_BYTES: usize = 128;

/// A function of the four elements of each window, in row-major order, for some channels.
trait QuadKernel<T> {
    /// Computes a row of windows: a line of results, or two lines of an image.
    fn compute<const LANES: usize>(&self, row: &QuadRow, channel: usize, out: &mut [T]);
}

/// A row of windows.
struct QuadRow {
    /// Windows, and their channels.
    windows: usize,
    channels: usize,
    /// Elements of the image from one line to the next.
    line: usize,
    /// The place of the first line in the images, and of the first window in the pooled ones.
    start: usize,
    pooled: usize,
}

impl QuadRow {
    /// Calls `body` with the number and the four elements of each window, from a channel on.
    #[inline(always)]
    fn each<T: Copy, const LANES: usize>(&self, x: &[T], channel: usize, mut body: impl FnMut(usize, [[T; LANES]; 4])) {
        let pair = 2 * self.channels;
        let len = self.windows * pair;
        let (top, bottom) = (&x[self.start..][..len], &x[self.start + self.line..][..len]);
        for (window, (top, bottom)) in top.chunks_exact(pair).zip(bottom.chunks_exact(pair)).enumerate() {
            if LANES * size_of::<T>() >= 32 {
                // Processors foresee long runs alone, so the next row of windows is asked for.
                let at = self.start + 2 * self.line + window * pair + channel;
                for pixel in [0, self.channels, self.line, self.line + self.channels] {
                    prefetch(x, at + pixel);
                }
            }
            let at = [channel, self.channels + channel];
            body(window, [lanes(top, at[0]), lanes(top, at[1]), lanes(bottom, at[0]), lanes(bottom, at[1])]);
        }
    }

    /// Writes the four elements of a window, from a channel on, to two lines of an image.
    #[inline(always)]
    fn write<T: Copy, const LANES: usize>(
        &self,
        out: &mut [T],
        window: usize,
        channel: usize,
        new: impl Fn(u32) -> [T; LANES],
    ) {
        let at = 2 * window * self.channels + channel;
        let places = [at, at + self.channels, at + self.line, at + self.line + self.channels];
        for (position, at) in places.into_iter().enumerate() {
            out[at..at + LANES].copy_from_slice(&new(position as u32));
        }
    }
}

/// Computes all channels of a row of windows, sixteen at a time as long as there are as many.
#[inline(always)]
fn by_lanes<T>(row: &QuadRow, kernel: &impl QuadKernel<T>, out: &mut [T]) {
    let (mut channel, end) = (0, row.channels);
    while end - channel >= 16 {
        kernel.compute::<16>(row, channel, out);
        channel += 16;
    }
    if end - channel >= 8 {
        kernel.compute::<8>(row, channel, out);
        channel += 8;
    }
    if end - channel >= 4 {
        kernel.compute::<4>(row, channel, out);
        channel += 4;
    }
    while channel < end {
        kernel.compute::<1>(row, channel, out);
        channel += 1;
    }
}

/// A pooling by such windows.
pub(super) struct Quads<'p> {
    pool: &'p Pool2d,
    rows: usize,
    windows: usize,
}

impl Quads<'_> {
    /// The pooling if its windows are of this kind, there are enough rows of them, and a pixel is so short that processors
    /// foresee the way from one to the next.
    pub(super) fn of(pool: &Pool2d) -> Option<Quads<'_>> {
        let [rows, windows] = pool.pooled();
        let is_quad =
            pool.window == [2, 2] && pool.stride == [2, 2] && pool.padding.iter().all(|padding| padding[0] == 0);
        let is_inside = 2 * rows <= pool.height && 2 * windows <= pool.width;
        let has_rows = pool.batch.saturating_mul(rows) >= ENOUGH_ROWS && windows * pool.channels > 0;
        let is_short = pool.channels * pool.dtype.size() <= MOST_BYTES;
        (is_quad && is_inside && has_rows && is_short).then_some(Quads { pool, rows, windows })
    }

    /// Whether each position of the image is in a window.
    pub(super) fn are_everywhere(&self) -> bool {
        2 * self.rows == self.pool.height && 2 * self.windows == self.pool.width
    }

    /// Computes row by row; each has so many elements of `out`.
    fn each_row<T: Number>(&self, out: &mut [T], len: usize, kernel: &(impl QuadKernel<T> + Sync)) {
        let Pool2d { height, width, channels, .. } = *self.pool;
        let (windows, line) = (self.windows, width * channels);
        for_each_chunk(out, len, self.pool.work(), &|index, out| {
            let (image, row) = (index / self.rows, index % self.rows);
            let (start, pooled) = ((image * height + 2 * row) * line, index * windows * channels);
            vectorized(
                #[inline(always)]
                || by_lanes(&QuadRow { windows, channels, line, start, pooled }, kernel, out),
            );
        });
    }

    /// The elements of each window combined, in row-major order from the unit.
    pub(super) fn fold<T: Number>(&self, x: &[T], unit: T, combine: impl Fn(T, T) -> T + Sync, out: &mut [T]) {
        self.each_row(out, self.windows * self.pool.channels, &QuadFold { x, unit, combine });
    }

    /// The cotangent of each window at the place of its maximum, and 0 at others; windows are everywhere.
    pub(super) fn max_gradient<T: Number>(&self, x: &[T], ct: &[T], out: &mut [T]) {
        self.each_row(out, 2 * self.pool.width * self.pool.channels, &MaxOfQuads { x, ct });
    }

    /// The cotangent of each window at all its positions; windows are everywhere.
    pub(super) fn sum_gradient<T: Number>(&self, ct: &[T], out: &mut [T]) {
        self.each_row(out, 2 * self.pool.width * self.pool.channels, &SumOfQuads { ct });
    }
}

struct QuadFold<'x, T, F> {
    x: &'x [T],
    unit: T,
    combine: F,
}

impl<T: Number, F: Fn(T, T) -> T> QuadKernel<T> for QuadFold<'_, T, F> {
    #[inline(always)]
    fn compute<const LANES: usize>(&self, row: &QuadRow, channel: usize, out: &mut [T]) {
        row.each::<T, LANES>(
            self.x,
            channel,
            #[inline(always)]
            |window, quad| {
                let mut sums = [self.unit; LANES];
                for x in quad {
                    for lane in 0..LANES {
                        sums[lane] = (self.combine)(sums[lane], x[lane]);
                    }
                }
                out[window * row.channels + channel..][..LANES].copy_from_slice(&sums);
            },
        );
    }
}

struct MaxOfQuads<'x, T> {
    x: &'x [T],
    ct: &'x [T],
}

impl<T: Number> QuadKernel<T> for MaxOfQuads<'_, T> {
    #[inline(always)]
    fn compute<const LANES: usize>(&self, row: &QuadRow, channel: usize, out: &mut [T]) {
        row.each::<T, LANES>(
            self.x,
            channel,
            #[inline(always)]
            |window, quad| {
                // The first NaN, or else the first of the largest.
                let (mut best, mut place) = (quad[0], [0_u32; LANES]);
                for (at, x) in quad.into_iter().enumerate().skip(1) {
                    for lane in 0..LANES {
                        let is_larger = x[lane].displaces(best[lane]);
                        best[lane] = if is_larger { x[lane] } else { best[lane] };
                        place[lane] = if is_larger { at as u32 } else { place[lane] };
                    }
                }
                let ct: [T; LANES] = lanes(self.ct, row.pooled + window * row.channels + channel);
                row.write(out, window, channel, |position| {
                    std::array::from_fn::<T, LANES, _>(|lane| {
                        let ct = T::default().plus(ct[lane]);
                        if place[lane] == position { ct } else { T::default() }
                    })
                });
            },
        );
    }
}

struct SumOfQuads<'x, T> {
    ct: &'x [T],
}

impl<T: Number> QuadKernel<T> for SumOfQuads<'_, T> {
    #[inline(always)]
    fn compute<const LANES: usize>(&self, row: &QuadRow, channel: usize, out: &mut [T]) {
        for window in 0..row.windows {
            let ct: [T; LANES] = lanes(self.ct, row.pooled + window * row.channels + channel);
            let ct = ct.map(|ct| T::default().plus(ct));
            row.write(out, window, channel, |_| ct);
        }
    }
}
