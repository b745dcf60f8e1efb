//! Convolutions of three by three taps with 16 multiplications for four outputs instead of 36 (Winograd; Lavin and Gray,
//! 2016).
//!
//! Outputs are cut into tiles of two by two, which see patches of four by four pixels. A patch and the filter are
//! transformed to 16 numbers each, their *points*, by sums and differences; points are multiplied and added over the
//! channels, which for all tiles is one product of matrices per point; and 16 sums make four outputs. A filter's gradient
//! is the same backwards: at each point, a product of transformed patches and transformed cotangents, over all tiles.
//!
//! Along one axis, with pixels d, taps g and outputs y:
//!
//! ```text
//! patch   d0 - d2    d1 + d2                d2 - d1                d3 - d1
//! filter  g0         ((g0 + g2) + g1) / 2   ((g0 + g2) - g1) / 2   g2
//! outputs y0 = (m0 + m1) + m2               y1 = (m1 - m2) + m3
//! ```
//!
//! An output is made of the pixels of its own window alone, each of them in every sum that holds it; so one that meets a
//! NaN or an infinity is not finite. Outputs that are not finite are computed again without the transforms, which
//! gives them their values by IEEE 754, and those that a difference of large pixels has overflowed their number.
//!
//! Guarantees the same bits on every instruction set and for any number of threads: transforms are additions of single
//! elements, along the width first, and products are chains by [`block_depth`]. A chain of a filter's gradient has the
//! tiles of a strip, strips of a group of rows of tiles are added in order, and so are groups; all follow from shapes.

use std::ops::Range;
use std::sync::Mutex;

use retape_runtime::lock;

use super::direct::{ImageTile, Shared, TASKS};
use super::drive::Engine;
use super::simd::Simd;
use super::tile::Lines;
use super::{Kernels, Real, Window, block_depth, with_scratch};
use crate::library::extents::count;

/// Points of a patch.
const POINTS: usize = 16;

/// Channels are multiples of this, the lanes of the widest vector.
const LANES: usize = 16;

/// Rows that a product may read past its last one.
const SLACK: usize = 16;

/// With fewer channels than these, the transforms take longer than the multiplications that they save.
const MIN_CHANNELS: usize = 32;

/// Fewer tiles than these do not repay the transform of the filter.
const MIN_TILES: usize = 64;

/// Elements of the filter at each point: all points fill a second-level cache, from which each strip reads them.
const MAX_FILTER: usize = 1 << 14;

/// Transformed elements of a row of tiles: half a second-level cache.
const MAX_ROW: usize = 1 << 18;

/// Tiles of a chain of a filter's gradient that are worth a group of their own.
const GROUP_TILES: usize = 64;

/// Transforms of some patches that lie at one distance from each other: along one axis, a number of elements to another.
pub(super) struct Patches<T> {
    /// Number of patches, and their channels: a multiple of [`LANES`], neighbours in memory.
    count: usize,
    channels: usize,
    /// The first element, and the distances of patches, of lines and of columns.
    from: *const T,
    from_step: usize,
    from_line: usize,
    from_column: usize,
    /// The same of the result.
    to: *mut T,
    to_step: usize,
    to_line: usize,
    to_column: usize,
    /// Lines and columns of the result that are wanted.
    keep: [usize; 2],
}

/// The transforms of one instruction set. Each returns whether all that it wrote is finite, if it is asked to look.
#[derive(Clone, Copy)]
pub(super) struct Transforms<T> {
    /// Patches of an image: four by four to four by four.
    pub(super) image: unsafe fn(&Patches<T>) -> bool,
    /// Filters: three by three to four by four.
    pub(super) filter: unsafe fn(&Patches<T>) -> bool,
    /// Results: four by four to two by two; looks.
    pub(super) result: unsafe fn(&Patches<T>) -> bool,
    /// Cotangents of results: two by two to four by four.
    pub(super) cotangent: unsafe fn(&Patches<T>) -> bool,
    /// Gradients of filters: four by four to three by three.
    pub(super) gradient: unsafe fn(&Patches<T>) -> bool,
}

/// A transform of `N` elements along one axis to `M`.
trait Transform<const N: usize, const M: usize> {
    /// Whether the results are looked at.
    const LOOKS: bool = false;

    /// The transform of each lane.
    ///
    /// # Safety
    ///
    /// The instruction set of `S`.
    unsafe fn along<S: Simd>(x: [S::Vector; N]) -> [S::Vector; M];
}

struct OfImage;

impl Transform<4, 4> for OfImage {
    #[inline(always)]
    unsafe fn along<S: Simd>([a, b, c, d]: [S::Vector; 4]) -> [S::Vector; 4] {
        // SAFETY: see the trait.
        unsafe { [S::sub(a, c), S::add(b, c), S::sub(c, b), S::sub(d, b)] }
    }
}

/// Half of each lane.
#[inline(always)]
unsafe fn half<S: Simd>(x: S::Vector) -> S::Vector {
    let half = S::Elem::HALF;
    // SAFETY: the caller has the instruction set of `S`, and the number is readable.
    unsafe { S::mul_add(x, S::splat(&raw const half), S::zero()) }
}

struct OfFilter;

impl Transform<3, 4> for OfFilter {
    #[inline(always)]
    unsafe fn along<S: Simd>([a, b, c]: [S::Vector; 3]) -> [S::Vector; 4] {
        // SAFETY: see the trait.
        unsafe {
            let outer = S::add(a, c);
            [a, half::<S>(S::add(outer, b)), half::<S>(S::sub(outer, b)), c]
        }
    }
}

struct OfResult;

impl Transform<4, 2> for OfResult {
    const LOOKS: bool = true;

    #[inline(always)]
    unsafe fn along<S: Simd>([a, b, c, d]: [S::Vector; 4]) -> [S::Vector; 2] {
        // SAFETY: see the trait.
        unsafe { [S::add(S::add(a, b), c), S::add(S::sub(b, c), d)] }
    }
}

struct OfCotangent;

impl Transform<2, 4> for OfCotangent {
    #[inline(always)]
    unsafe fn along<S: Simd>([a, b]: [S::Vector; 2]) -> [S::Vector; 4] {
        // SAFETY: see the trait.
        unsafe { [a, S::add(a, b), S::sub(a, b), b] }
    }
}

struct OfGradient;

impl Transform<4, 3> for OfGradient {
    #[inline(always)]
    unsafe fn along<S: Simd>([a, b, c, d]: [S::Vector; 4]) -> [S::Vector; 3] {
        // SAFETY: see the trait.
        unsafe {
            let outer = half::<S>(S::add(b, c));
            [S::add(a, outer), half::<S>(S::sub(b, c)), S::add(outer, d)]
        }
    }
}

/// Transforms patches along both axes, the width first.
#[inline(always)]
unsafe fn transform<S: Simd, F: Transform<N, M>, const N: usize, const M: usize>(x: &Patches<S::Elem>) -> bool {
    // SAFETY: the caller has the instruction set of `S`, and the patches are memory.
    unsafe {
        let mut looked_at = S::zero();
        for patch in 0..x.count {
            for channel in (0..x.channels).step_by(S::LANES) {
                let from = x.from.add(patch * x.from_step + channel);
                let mut lines = [[S::zero(); M]; N];
                for (i, line) in lines.iter_mut().enumerate() {
                    let mut elements = [S::zero(); N];
                    for (j, element) in elements.iter_mut().enumerate() {
                        *element = S::load(from.add(i * x.from_line + j * x.from_column));
                    }
                    *line = F::along::<S>(elements);
                }
                let to = x.to.add(patch * x.to_step + channel);
                for j in 0..M {
                    let mut elements = [S::zero(); N];
                    for (element, line) in elements.iter_mut().zip(&lines) {
                        *element = line[j];
                    }
                    for (i, element) in F::along::<S>(elements).into_iter().enumerate() {
                        if i < x.keep[0] && j < x.keep[1] {
                            S::store(to.add(i * x.to_line + j * x.to_column), element);
                            if F::LOOKS {
                                // Zero times what is not finite is NaN, which stays.
                                looked_at = S::mul_add(element, S::zero(), looked_at);
                            }
                        }
                    }
                }
            }
        }
        let mut lanes = [S::Elem::ZERO; LANES];
        S::store(lanes.as_mut_ptr(), looked_at);
        lanes.iter().all(|lane| lane.is_finite())
    }
}

/// [`Transforms::image`]
#[inline(always)]
pub(super) unsafe fn image<S: Simd>(x: &Patches<S::Elem>) -> bool {
    // SAFETY: handed on.
    unsafe { transform::<S, OfImage, 4, 4>(x) }
}

/// [`Transforms::filter`]
#[inline(always)]
pub(super) unsafe fn filter<S: Simd>(x: &Patches<S::Elem>) -> bool {
    // SAFETY: handed on.
    unsafe { transform::<S, OfFilter, 3, 4>(x) }
}

/// [`Transforms::result`]
#[inline(always)]
pub(super) unsafe fn result<S: Simd>(x: &Patches<S::Elem>) -> bool {
    // SAFETY: handed on.
    unsafe { transform::<S, OfResult, 4, 2>(x) }
}

/// [`Transforms::cotangent`]
#[inline(always)]
pub(super) unsafe fn cotangent<S: Simd>(x: &Patches<S::Elem>) -> bool {
    // SAFETY: handed on.
    unsafe { transform::<S, OfCotangent, 2, 4>(x) }
}

/// [`Transforms::gradient`]
#[inline(always)]
pub(super) unsafe fn gradient<S: Simd>(x: &Patches<S::Elem>) -> bool {
    // SAFETY: handed on.
    unsafe { transform::<S, OfGradient, 4, 3>(x) }
}

/// The tiles of a pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WinogradExtents {
    /// Number of images.
    batch: usize,
    /// Height and width of an image of outputs.
    outputs: [usize; 2],
    /// Channels of the patches.
    channels: usize,
    /// Channels of the outputs.
    n: usize,
}

impl WinogradExtents {
    /// The tiles of a pass of three by three taps at distance one, with so many outputs, if they are worth it.
    pub(crate) fn new(batch: usize, outputs: [usize; 2], channels: usize, n: usize) -> Option<WinogradExtents> {
        let x = WinogradExtents { batch, outputs, channels, n };
        let [down, across] = x.tiles();
        let is_whole = |n: usize| n >= MIN_CHANNELS && n.is_multiple_of(LANES);
        let fits = count(&[channels, n]) <= MAX_FILTER && count(&[across, POINTS, channels + n]) <= MAX_ROW;
        // Tiles that end beyond the outputs compute for nothing: two thirds of the multiplications at most.
        let is_less = fits && 3 * POINTS * count(&[down, across]) <= 2 * 9 * count(&outputs);
        let is_worth = is_whole(channels) && is_whole(n) && is_less && count(&[batch, down, across]) >= MIN_TILES;
        is_worth.then_some(x)
    }

    /// Rows of tiles of an image, and tiles of a row.
    fn tiles(&self) -> [usize; 2] {
        self.outputs.map(|n| n.div_ceil(2))
    }

    /// Rows of tiles of all images.
    fn n_rows(&self) -> usize {
        self.batch * self.tiles()[0]
    }

    /// Rows of tiles that are computed at a time: their points stay in a second-level cache.
    fn strip(&self) -> usize {
        let tiles = (8192 / (self.channels + self.n)).clamp(32, 128);
        (tiles / self.tiles()[1]).clamp(1, self.n_rows().div_ceil(TASKS))
    }

    /// Rows of tiles whose part of a filter's gradient is added up before that of others.
    fn group(&self) -> usize {
        let groups = (count(&[self.n_rows(), self.tiles()[1]]) / GROUP_TILES).clamp(1, TASKS);
        self.n_rows().div_ceil(groups)
    }

    /// The outputs of some rows of tiles, which are neighbours over all images.
    fn pixels(&self, rows: &Range<usize>) -> Range<usize> {
        let [height, width] = self.outputs;
        let first = |row: usize| {
            let down = self.tiles()[0];
            (row / down * height + row % down * 2) * width
        };
        first(rows.start)..first(rows.end)
    }

    /// The same windows for whole tiles.
    fn whole<'a, T>(&self, mut window: Window<'a, T>) -> Window<'a, T> {
        let [down, across] = self.tiles();
        (window.y.outputs, window.x.outputs) = (2 * down, 2 * across);
        window
    }
}

/// A pass that has a result for each pixel.
pub(crate) struct WinogradConv<'a, T> {
    /// Its tiles.
    pub(crate) extents: WinogradExtents,
    /// The windows, whose taps run forward.
    pub(crate) window: Window<'a, T>,
    /// The filter: lines, columns, channels of the window, channels of the result.
    pub(crate) filter: &'a [T],
    /// Whether lines and columns of the filter run backwards, and its channels are the other way round.
    pub(crate) is_transposed: bool,
}

/// A filter's gradient.
pub(crate) struct WinogradGradient<'a, T> {
    /// Its tiles.
    pub(crate) extents: WinogradExtents,
    /// The windows of the image.
    pub(crate) window: Window<'a, T>,
    /// The cotangent as windows of one tap.
    pub(crate) ct: Window<'a, T>,
}

impl<T> Kernels<T> {
    /// Elements from one row to the next of a right operand of `cols` columns that can be read in place.
    fn row_of(&self, cols: usize) -> usize {
        if self.reads_whole(cols) { cols } else { cols.next_multiple_of(self.width) }
    }
}

impl Engine {
    /// Computes a pass that has outputs; `done` is told of finished pixels, and `direct` computes the pass without
    /// transforms.
    ///
    /// # Safety
    ///
    /// `out` is writable for all outputs, and nobody else uses it.
    pub(crate) unsafe fn winograd_conv<T: Real>(
        &self,
        x: &WinogradConv<'_, T>,
        out: *mut T,
        done: &(dyn Fn(Range<usize>) + Sync),
        direct: &dyn Fn(&mut [T]),
    ) {
        let WinogradExtents { channels, n, .. } = x.extents;
        let filter_len = POINTS * channels * T::kernels(self.level).row_of(n);
        let (n_rows, strip) = (x.extents.n_rows(), x.extents.strip());
        let (out, spoiled) = (Shared(out), Mutex::new(Vec::new()));
        with_scratch::<T, _>(filter_len, |filter| {
            self.transform_filter(x, filter);
            let filter = &*filter;
            (self.parallel_for)(n_rows.div_ceil(strip), &|task| {
                let rows = task * strip..((task + 1) * strip).min(n_rows);
                if self.strip_of_outputs(x, filter, &rows, out.at(0)) {
                    done(x.extents.pixels(&rows));
                } else {
                    lock(&spoiled).push(x.extents.pixels(&rows));
                }
            });
        });
        let spoiled = std::mem::take(&mut *lock(&spoiled));
        if spoiled.is_empty() {
            return;
        }
        with_scratch::<T, _>(x.extents.pixels(&(0..n_rows)).len() * n, |again| {
            direct(again);
            for pixels in spoiled {
                let elements = pixels.start * n..pixels.end * n;
                // SAFETY: outputs that no task uses any more.
                let found = unsafe { std::slice::from_raw_parts_mut(out.at(elements.start), elements.len()) };
                replace_not_finite(found, &again[elements]);
                done(pixels);
            }
        });
    }

    /// The points of a filter: at each, a row for each channel of the windows.
    fn transform_filter<T: Real>(&self, x: &WinogradConv<'_, T>, to: &mut [T]) {
        let WinogradExtents { channels, n, .. } = x.extents;
        let kernels = T::kernels(self.level);
        let row = kernels.row_of(n);
        let to = Shared(to.as_mut_ptr());
        let block = |from: &[T], distance: usize, first: usize| {
            let patches = Patches {
                count: LANES,
                channels: n,
                from: from.as_ptr(),
                from_step: n,
                from_line: 3 * distance,
                from_column: distance,
                to: to.at(first * row),
                to_step: row,
                to_line: 4 * channels * row,
                to_column: channels * row,
                keep: [4, 4],
            };
            // SAFETY: the level is present; the filter has nine taps at this distance, each with rows for these channels,
            // and the points of these channels are this task's own.
            unsafe { (kernels.transforms.filter)(&patches) };
        };
        (self.parallel_for)(channels / LANES, &|task| {
            let first = task * LANES;
            if !x.is_transposed {
                block(&x.filter[first * n..9 * channels * n], channels * n, first);
                return;
            }
            with_scratch::<T, _>(9 * LANES * n, |turned| {
                for (tap, turned) in turned.chunks_exact_mut(LANES * n).rev().enumerate() {
                    let rows = x.filter[tap * n * channels..][..n * channels].chunks_exact(channels);
                    for (column, row) in rows.enumerate() {
                        for (channel, element) in row[first..first + LANES].iter().enumerate() {
                            turned[channel * n + column] = *element;
                        }
                    }
                }
                block(turned, LANES * n, first);
            });
        });
    }

    /// The points of some rows of tiles of windows: at each, rows at the distance `row`, and points at `point`.
    ///
    /// # Safety
    ///
    /// `transform` is one of this level that takes the patches of these windows, and `to` is writable for its points.
    #[expect(clippy::too_many_arguments, reason = "the inside of two passes, cut out because they share it")]
    unsafe fn transform_rows<T: Real>(
        &self,
        transform: unsafe fn(&Patches<T>) -> bool,
        extents: &WinogradExtents,
        w: &Window<'_, T>,
        tile: &ImageTile,
        rows: &Range<usize>,
        copy: &mut [T],
        to: *mut T,
        [point, step]: [usize; 2],
    ) {
        let [down, across] = extents.tiles();
        let mut row = rows.start;
        while row < rows.end {
            let (image, first) = (row / down, row % down);
            let lines = (down - first).min(rows.end - row);
            let copy = &mut copy[..tile.len(2 * lines)];
            tile.copy(self.level, w, image, &(2 * first..2 * (first + lines)), copy);
            for line in 0..lines {
                let patches = Patches {
                    count: across,
                    channels: w.channels,
                    from: copy[tile.start(w) + 2 * line * tile.line()..].as_ptr(),
                    from_step: 2 * w.channels,
                    from_line: tile.line(),
                    from_column: w.channels,
                    to: to.wrapping_add((row + line - rows.start) * across * step),
                    to_step: step,
                    to_line: 4 * point,
                    to_column: point,
                    keep: [4, 4],
                };
                // SAFETY: the copy holds the patches of these lines with all their taps; the rest is the caller's word.
                unsafe { transform(&patches) };
            }
            row += lines;
        }
    }

    /// Computes the outputs of some rows of tiles; whether all of them are finite.
    fn strip_of_outputs<T: Real>(
        &self,
        x: &WinogradConv<'_, T>,
        filter: &[T],
        rows: &Range<usize>,
        out: *mut T,
    ) -> bool {
        let WinogradExtents { channels, n, .. } = x.extents;
        let [down, across] = x.extents.tiles();
        let (kernels, n_tiles) = (T::kernels(self.level), rows.len() * across);
        let (row, w) = (kernels.row_of(n), x.extents.whole(x.window));
        let Some(tile) = ImageTile::new(std::iter::once(&w)) else { return true };
        let lens = [POINTS * n_tiles * channels + SLACK * channels, POINTS * n_tiles * n];
        with_scratch::<T, _>(lens[0] + lens[1] + tile.len(2 * rows.len().min(down)), |scratch| {
            let (points, rest) = scratch.split_at_mut(lens[0]);
            let (products, copy) = rest.split_at_mut(lens[1]);
            let transform = kernels.transforms.image;
            let distances = [n_tiles * channels, channels];
            // SAFETY: windows of three taps have patches of four, and there is room for all points.
            unsafe {
                self.transform_rows(transform, &x.extents, &w, &tile, rows, copy, points.as_mut_ptr(), distances);
            }
            let steps: Vec<isize> = (0..channels as isize).collect();
            let depth = block_depth(channels);
            for point in 0..POINTS {
                for (block, offsets) in steps.chunks(depth).enumerate() {
                    let lines = Lines {
                        lines: 1,
                        rows: n_tiles,
                        cols: n,
                        offsets,
                        a: points[point * n_tiles * channels..].as_ptr(),
                        a_line: 0,
                        a_row: channels,
                        b: filter[(point * channels + block * depth) * row..].as_ptr(),
                        b_panel: kernels.width,
                        b_row: row,
                        c: products[point * n_tiles * n..].as_mut_ptr(),
                        c_line: 0,
                        c_row: n,
                        fresh: block == 0,
                    };
                    // SAFETY: the level is present; rows of points and of the filter are whole, with slack past the last
                    // row of points, and C is this task's own.
                    unsafe { (kernels.lines)(&lines) };
                }
            }
            self.outputs_of_rows(x, products, rows, out)
        })
    }

    /// Makes outputs of the products at all points of some rows of tiles; whether all of them are finite.
    fn outputs_of_rows<T: Real>(
        &self,
        x: &WinogradConv<'_, T>,
        products: &[T],
        rows: &Range<usize>,
        out: *mut T,
    ) -> bool {
        let WinogradExtents { n, outputs: [height, width], .. } = x.extents;
        let [down, across] = x.extents.tiles();
        let point = rows.len() * across * n;
        let mut is_finite = true;
        for row in rows.clone() {
            let first = (row - rows.start) * across;
            let lines = (height - row % down * 2).min(2);
            // The last tile may have one column.
            let whole = width / 2;
            for (tiles, columns) in [(0..whole, 2), (whole..across, 1)] {
                let patches = Patches {
                    count: tiles.len(),
                    channels: n,
                    from: products[(first + tiles.start) * n..].as_ptr(),
                    from_step: n,
                    from_line: 4 * point,
                    from_column: point,
                    to: out.wrapping_add((x.extents.pixels(&(row..row)).start + 2 * tiles.start) * n),
                    to_step: 2 * n,
                    to_line: width * n,
                    to_column: n,
                    keep: [lines, columns],
                };
                // SAFETY: the level is present; there is a product at each point of these tiles, and the outputs that are
                // kept are those of this row of tiles, which are this task's own.
                is_finite &= unsafe { (T::kernels(self.level).transforms.result)(&patches) };
            }
        }
        is_finite
    }

    /// Computes a filter's gradient; `direct` computes it without transforms.
    pub(crate) fn winograd_filter_gradient<T: Real>(
        &self,
        x: &WinogradGradient<'_, T>,
        out: &mut [T],
        direct: &dyn Fn(&mut [T]),
    ) {
        let (n_rows, group) = (x.extents.n_rows(), x.extents.group());
        let (groups, size) = (n_rows.div_ceil(group), out.len());
        with_scratch::<T, _>(groups * size, |partial| {
            let all = Shared(partial.as_mut_ptr());
            (self.parallel_for)(groups, &|task| {
                self.gradient_of_rows(x, &(task * group..((task + 1) * group).min(n_rows)), all.at(task * size));
            });
            // One tap of all groups at a time, so that threads share the work and sums stay in cache.
            let (partial, to, tap) = (&*partial, Shared(out.as_mut_ptr()), size / 9);
            (self.parallel_for)(9, &|task| {
                // SAFETY: this task's tap.
                let to = unsafe { std::slice::from_raw_parts_mut(to.at(task * tap), tap) };
                to.copy_from_slice(&partial[task * tap..][..tap]);
                for group in 1..groups {
                    let more = &partial[group * size + task * tap..][..tap];
                    to.iter_mut().zip(more).for_each(|(sum, y)| *sum = *sum + *y);
                }
            });
        });
        if !out.iter().all(|x| x.is_finite()) {
            with_scratch::<T, _>(size, |again| {
                direct(again);
                replace_not_finite(out, again);
            });
        }
    }

    /// The part of a filter's gradient that comes from some rows of tiles.
    fn gradient_of_rows<T: Real>(&self, x: &WinogradGradient<'_, T>, rows: &Range<usize>, to: *mut T) {
        let WinogradExtents { channels, n, .. } = x.extents;
        let [down, across] = x.extents.tiles();
        let kernels = T::kernels(self.level);
        let (row, strip) = (kernels.row_of(n), x.extents.strip());
        let [image, ct] = [x.window, x.ct].map(|window| x.extents.whole(window));
        let tiles = [&image, &ct].map(|w| ImageTile::new(std::iter::once(w)));
        let [Some(image_tile), Some(ct_tile)] = tiles else { return };
        let (most, held) = (strip * across, 2 * strip.min(down));
        let lens = [
            POINTS * channels * n,
            POINTS * most * channels + SLACK * channels,
            POINTS * most * row,
            image_tile.len(held).max(ct_tile.len(held)),
        ];
        with_scratch::<T, _>(lens.iter().sum(), |scratch| {
            let (sums, rest) = scratch.split_at_mut(lens[0]);
            let (points, rest) = rest.split_at_mut(lens[1]);
            let (ct_points, copy) = rest.split_at_mut(lens[2]);
            for first in rows.clone().step_by(strip) {
                let now = first..(first + strip).min(rows.end);
                let n_tiles = now.len() * across;
                let Transforms { image: of_image, cotangent: of_ct, .. } = kernels.transforms;
                let (a, b) = (points.as_mut_ptr(), ct_points.as_mut_ptr());
                let [at_a, at_b] = [[n_tiles * channels, channels], [n_tiles * row, row]];
                // SAFETY: windows of three taps have patches of four and windows of one have patches of two, and there is
                // room for all points.
                unsafe {
                    self.transform_rows(of_image, &x.extents, &image, &image_tile, &now, copy, a, at_a);
                    self.transform_rows(of_ct, &x.extents, &ct, &ct_tile, &now, copy, b, at_b);
                }
                let steps: Vec<isize> = (0..n_tiles).map(|tile| (tile * channels) as isize).collect();
                self.add_products(x, &steps, points, ct_points, sums, first == rows.start);
            }
            let patches = Patches {
                count: channels,
                channels: n,
                from: sums.as_ptr(),
                from_step: n,
                from_line: 4 * channels * n,
                from_column: channels * n,
                to,
                to_step: n,
                to_line: 3 * channels * n,
                to_column: channels * n,
                keep: [3, 3],
            };
            // SAFETY: the level is present; there is a sum at each point, and the caller gives room for nine taps.
            unsafe { (kernels.transforms.gradient)(&patches) };
        });
    }

    /// Adds to the sums at each point the products of a strip of tiles, which lie at `steps`.
    fn add_products<T: Real>(
        &self,
        x: &WinogradGradient<'_, T>,
        steps: &[isize],
        points: &[T],
        ct_points: &[T],
        sums: &mut [T],
        is_first: bool,
    ) {
        let WinogradExtents { channels, n, .. } = x.extents;
        let kernels = T::kernels(self.level);
        let row = kernels.row_of(n);
        let depth = block_depth(steps.len());
        for point in 0..POINTS {
            for (block, offsets) in steps.chunks(depth).enumerate() {
                let lines = Lines {
                    lines: 1,
                    rows: channels,
                    cols: n,
                    offsets,
                    a: points[point * steps.len() * channels..].as_ptr(),
                    a_line: 0,
                    a_row: 1,
                    b: ct_points[(point * steps.len() + block * depth) * row..].as_ptr(),
                    b_panel: kernels.width,
                    b_row: row,
                    c: sums[point * channels * n..].as_mut_ptr(),
                    c_line: 0,
                    c_row: n,
                    fresh: is_first && block == 0,
                };
                // SAFETY: the level is present; each step has whole rows of both operands, with slack past the last, and
                // C is this task's own.
                unsafe { (kernels.lines)(&lines) };
            }
        }
    }
}

/// Takes from `again` what is not finite in `found`.
fn replace_not_finite<T: Real>(found: &mut [T], again: &[T]) {
    let not_finite = found.iter_mut().zip(again).filter(|(x, _)| !x.is_finite());
    not_finite.for_each(|(x, again)| *x = *again);
}
