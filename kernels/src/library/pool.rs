//! Pooling over two-dimensional windows, batch x height x width x channels, and its derivatives.
//!
//! A window covers input positions only: padding adds nothing to a sum and is -inf to a maximum. The maximum of a
//! window is its first NaN, or else its first largest element, in row-major order. `Gradient` is the transpose of
//! `Forward` (of the selection that it made, for a maximum) and `MaxGather` is the transpose of that.
//! The vector axis is that of channels, or of columns and channels where windows move on by one column. A gradient adds the
//! windows of one input element in row-major order.

mod fast;
mod gradient;
mod quads;
mod sliding;

use std::ops::Range;

use retape_runtime::DType;

use self::fast::FastPool;
use super::extents::{Checked, count, countable, near};
use super::number::{Number, with_float};
use super::text::{alternatives, descriptor};
use super::view::{Plain, exactly, only, view, view_mut};
use crate::ensure::ensure;

alternatives! {
    /// The operation over the elements of a window.
    PoolKind {
        /// The largest; NaN wins.
        Max = "max",
        /// The sum. Average pooling divides by the size of the window afterwards.
        Sum = "sum",
    }
}

alternatives! {
    /// Which function of the family is computed.
    PoolPass {
        /// From x `[batch, height, width, channels]` to the pooled shape.
        Forward = "forward",
        /// From ct of the pooled shape (for a maximum: from x and ct) to the shape of x.
        Gradient = "gradient",
        /// From x and t of the shape of x to the pooled shape: t where x has its maximum, 0 for an empty window.
        /// Only for a maximum.
        MaxGather = "max_gather",
    }
}

descriptor! {
    /// Pooling over windows of an image.
    Pool2d "pool2d" {
        /// `f32` or `f64`.
        dtype: DType,
        /// The number of images.
        batch: usize,
        /// Rows of an image.
        height: usize,
        /// Columns of an image.
        width: usize,
        /// Channels of an image.
        channels: usize,
        /// Rows and columns of a window.
        window: [usize; 2],
        /// Rows and columns from a window to the next.
        stride: [usize; 2],
        /// Positions added before and after the rows and the columns.
        padding: [[usize; 2]; 2],
        /// The operation over a window.
        kind: PoolKind,
        /// Which function.
        pass: PoolPass,
    }
}

impl Pool2d {
    fn check(&self) -> Checked {
        let Pool2d { dtype, batch, channels, window, stride, kind, pass, .. } = *self;
        ensure!(dtype.is_float(), "images of {dtype} are not pooled");
        ensure!(kind == PoolKind::Max || pass != PoolPass::MaxGather, "a sum has no {}", pass.name());
        ensure!(!window.contains(&0), "the window {window:?} is empty");
        ensure!(!stride.contains(&0), "the stride {stride:?} does not move on");
        for (axis, stride) in stride.into_iter().enumerate() {
            near("the stride", Some(stride))?;
            near("the extent of the padded image", Some(self.padded(axis)))?;
        }
        let positions = self.height.saturating_mul(self.width);
        ensure!(u32::try_from(positions).is_ok(), "an image has {positions} positions, but {} at most", u32::MAX);
        let padded = [batch, self.padded(0), self.padded(1), channels, window[0], window[1]];
        countable("the work on the padded images", &padded)
    }

    /// The extent of the padded image along an axis.
    fn padded(&self, axis: usize) -> usize {
        let [before, after] = self.padding[axis];
        [self.height, self.width][axis].saturating_add(before).saturating_add(after)
    }

    /// Rows and columns of the pooled image.
    pub fn pooled(&self) -> [usize; 2] {
        [0, 1].map(|axis| {
            let windows = |rest: usize| rest.checked_div(self.stride[axis])?.checked_add(1);
            self.padded(axis).checked_sub(self.window[axis]).and_then(windows).unwrap_or(0)
        })
    }

    /// Rows and columns of windows; where there are no windows, of which there can be any number of empty rows, none.
    fn windows(&self) -> [usize; 2] {
        let pooled = self.pooled();
        if pooled.contains(&0) { [0, 0] } else { pooled }
    }

    fn n_unpooled(&self) -> usize {
        count(&[self.batch, self.height, self.width, self.channels])
    }

    fn n_pooled(&self) -> usize {
        let [rows, columns] = self.pooled();
        count(&[self.batch, rows, columns, self.channels])
    }

    fn work(&self) -> usize {
        count(&[self.n_pooled(), self.window[0], self.window[1]])
    }

    /// One operation for each position of each window.
    pub(super) fn flops(&self) -> u64 {
        count(&[self.n_pooled(), count(&self.window)]) as u64
    }

    /// The dtype and the number of elements of each input.
    pub fn inputs(&self) -> Vec<(DType, usize)> {
        let (x, pooled) = ((self.dtype, self.n_unpooled()), (self.dtype, self.n_pooled()));
        match (self.pass, self.kind) {
            (PoolPass::Forward, _) => vec![x],
            (PoolPass::Gradient, PoolKind::Sum) => vec![pooled],
            (PoolPass::Gradient, PoolKind::Max) => vec![x, pooled],
            (PoolPass::MaxGather, _) => vec![x, x],
        }
    }

    /// The dtype and the number of elements of each output.
    pub fn outputs(&self) -> Vec<(DType, usize)> {
        match self.pass {
            PoolPass::Forward | PoolPass::MaxGather => vec![(self.dtype, self.n_pooled())],
            PoolPass::Gradient => vec![(self.dtype, self.n_unpooled())],
        }
    }

    /// Computes the outputs.
    ///
    /// # Panics
    /// If the descriptor is not valid or the buffers are not as `inputs` and `outputs` say.
    pub fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert!(self.is_valid(), "{self}");
        with_float!(self.dtype, T => self.dispatch::<T>(inputs, outputs, &FastPool));
    }

    /// Computes the outputs in the naive way, one element at a time.
    ///
    /// # Panics
    /// As [`run`](Pool2d::run).
    pub fn reference(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert!(self.is_valid(), "{self}");
        with_float!(self.dtype, T => self.dispatch::<T>(inputs, outputs, &NaivePool));
    }

    fn dispatch<T: Number + Plain>(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], twin: &impl PoolTwin) {
        let (n_x, n_pooled) = (self.n_unpooled(), self.n_pooled());
        let out = only(outputs);
        match (self.pass, self.kind) {
            (PoolPass::Forward, kind) => {
                let [x] = exactly(inputs);
                twin.forward::<T>(self, kind, view(x, n_x), view_mut(out, n_pooled));
            }
            (PoolPass::Gradient, PoolKind::Sum) => {
                let [ct] = exactly(inputs);
                twin.sum_gradient::<T>(self, view(ct, n_pooled), view_mut(out, n_x));
            }
            (PoolPass::Gradient, PoolKind::Max) => {
                let [x, ct] = exactly(inputs);
                twin.max_gradient::<T>(self, view(x, n_x), view(ct, n_pooled), view_mut(out, n_x));
            }
            (PoolPass::MaxGather, _) => {
                let [x, t] = exactly(inputs);
                twin.max_gather::<T>(self, view(x, n_x), view(t, n_x), view_mut(out, n_pooled));
            }
        }
    }

    /// The input positions along `axis` in the window at `position`.
    fn covered(&self, axis: usize, position: usize) -> Range<usize> {
        let extent = [self.height, self.width][axis];
        let (start, before) = (position * self.stride[axis], self.padding[axis][0]);
        let end = (start + self.window[axis]).saturating_sub(before).min(extent);
        start.saturating_sub(before).min(end)..end
    }

    /// The windows along `axis` that reach into some positions of the image.
    fn over(&self, axis: usize, positions: &Range<usize>) -> Range<usize> {
        let (n_windows, before, stride) = (self.windows()[axis], self.padding[axis][0], self.stride[axis]);
        let start = (positions.start + before + 1).saturating_sub(self.window[axis]).div_ceil(stride).min(n_windows);
        start..(positions.end + before).div_ceil(stride).clamp(start, n_windows)
    }

    /// Whether no two windows share a position.
    fn is_disjoint(&self) -> bool {
        (0..2).all(|axis| self.stride[axis] >= self.window[axis])
    }

    /// Whether each position of the image is in a window.
    fn is_covered(&self) -> bool {
        let windows = self.windows();
        (0..2).all(|axis| {
            let end = (windows[axis] * self.stride[axis]).saturating_sub(self.padding[axis][0]);
            self.stride[axis] <= self.window[axis] && end >= [self.height, self.width][axis]
        })
    }

    /// The image positions (row times width plus column) in the window at `row`, `column`, in row-major order.
    fn positions(&self, row: usize, column: usize) -> impl Iterator<Item = usize> + use<> {
        let (rows, columns, width) = (self.covered(0, row), self.covered(1, column), self.width);
        rows.flat_map(move |h| columns.clone().map(move |w| h * width + w))
    }

    /// The elements of `x` at an image position, in the given channels.
    #[inline(always)]
    fn at<'x, T>(&self, x: &'x [T], image: usize, position: usize, channels: &Range<usize>) -> &'x [T] {
        let start = (image * self.height * self.width + position) * self.channels;
        &x[start + channels.start..start + channels.end]
    }
}

/// Some elements that follow each other.
#[inline(always)]
fn lanes<T: Copy, const LANES: usize>(x: &[T], at: usize) -> [T; LANES] {
    let x = &x[at..at + LANES];
    std::array::from_fn(|lane| x[lane])
}

/// Tiles from which on a few threads have an even share.
const ENOUGH_TILES: usize = 8;

/// Columns that follow each other, and the range that the first of them has.
type ColumnRun = (Range<usize>, Range<usize>);

/// Columns below `end` with their ranges: those whose ranges move on with them together, if they may be joined, and others
/// one by one.
fn alike(end: usize, joins: bool, range: impl Fn(usize) -> Range<usize>) -> Vec<ColumnRun> {
    let mut alike: Vec<ColumnRun> = vec![];
    for column in 0..end {
        let range = range(column);
        match alike.last_mut() {
            Some((columns, first)) if joins && range == (first.start + columns.len()..first.end + columns.len()) => {
                columns.end += 1;
            }
            _ => alike.push((column..column + 1, range)),
        }
    }
    alike
}

/// A function of elements that follow each other.
trait Lanewise<T> {
    /// Bytes of elements at a time.
    const BYTES: usize;

    /// Computes the elements from `at` on.
    fn compute<const LANES: usize>(&mut self, at: usize);
}

/// A function whose elements may be computed again.
trait Repeatable<T>: Lanewise<T> {
    /// Whether elements up to `end` may be computed, of which those beyond the last are not wanted.
    fn reaches(&self, end: usize) -> bool;
}

/// Computes so many elements.
#[inline(always)]
fn by_lanes<T, K: Lanewise<T>>(len: usize, kernel: &mut K) {
    let at = 0;
    let at = repeated::<T, K, 64>(at, len, kernel);
    let at = repeated::<T, K, 32>(at, len, kernel);
    let at = repeated::<T, K, 16>(at, len, kernel);
    let at = repeated::<T, K, 8>(at, len, kernel);
    let at = repeated::<T, K, 4>(at, len, kernel);
    repeated::<T, K, 1>(at, len, kernel);
}

/// Computes so many elements, where the last ones take time: together with others.
#[inline(always)]
fn by_full_lanes<T, K: Repeatable<T>>(len: usize, kernel: &mut K) {
    let at = 0;
    let at = repeated::<T, K, 64>(at, len, kernel);
    let at = repeated::<T, K, 32>(at, len, kernel);
    let at = filled::<T, K, 16>(at, len, kernel);
    let at = filled::<T, K, 8>(at, len, kernel);
    let at = filled::<T, K, 4>(at, len, kernel);
    repeated::<T, K, 1>(at, len, kernel);
}

/// Computes elements from `at` on, as long as there are as many as lanes; returns where it ended.
#[inline(always)]
fn repeated<T, K: Lanewise<T>, const LANES: usize>(mut at: usize, len: usize, kernel: &mut K) -> usize {
    if LANES * size_of::<T>() <= K::BYTES {
        while len - at >= LANES {
            kernel.compute::<LANES>(at);
            at += LANES;
        }
    }
    at
}

/// As [`repeated`]; the last elements too, if they are more than half as many as lanes, and others may be computed beside them:
/// those before, or some beyond.
#[inline(always)]
fn filled<T, K: Repeatable<T>, const LANES: usize>(mut at: usize, len: usize, kernel: &mut K) -> usize {
    while at < len {
        if len - at < LANES {
            if len - at <= LANES / 2 {
                break;
            }
            if len >= LANES {
                at = len - LANES;
            } else if !kernel.reaches(at + LANES) {
                break;
            }
        }
        kernel.compute::<LANES>(at);
        at += LANES;
    }
    at.min(len)
}

/// The four functions, implemented twice.
trait PoolTwin {
    fn forward<T: Number>(&self, pool: &Pool2d, kind: PoolKind, x: &[T], out: &mut [T]);
    fn sum_gradient<T: Number>(&self, pool: &Pool2d, ct: &[T], out: &mut [T]);
    fn max_gradient<T: Number>(&self, pool: &Pool2d, x: &[T], ct: &[T], out: &mut [T]);
    fn max_gather<T: Number>(&self, pool: &Pool2d, x: &[T], t: &[T], out: &mut [T]);
}

/// The twins: one element of the output at a time, gathering what belongs to it.
struct NaivePool;

impl NaivePool {
    /// Calls `body` with image, row, column and channel of each element of the pooled images and sets it.
    fn set_pooled<T>(pool: &Pool2d, out: &mut [T], body: impl Fn(usize, usize, usize, usize) -> T) {
        let [rows, columns] = pool.pooled();
        for (at, out) in out.iter_mut().enumerate() {
            let (at, channel) = (at / pool.channels, at % pool.channels);
            let (at, column) = (at / columns, at % columns);
            *out = body(at / rows, at % rows, column, channel);
        }
    }

    /// Sets each element of the unpooled images to the sum of what `term` gives for the windows that cover it.
    /// Windows are given as image, row and column, then the element's position in the image and channel.
    fn sum_of_windows<T: Number>(pool: &Pool2d, out: &mut [T], term: impl Fn([usize; 3], usize, usize) -> Option<T>) {
        let [rows, columns] = pool.windows();
        for (at, out) in out.iter_mut().enumerate() {
            let (at, channel) = (at / pool.channels, at % pool.channels);
            let (image, position) = (at / (pool.height * pool.width), at % (pool.height * pool.width));
            *out = T::default();
            for row in 0..rows {
                for column in 0..columns {
                    if pool.positions(row, column).any(|covered| covered == position)
                        && let Some(term) = term([image, row, column], position, channel)
                    {
                        *out = out.plus(term);
                    }
                }
            }
        }
    }

    /// The position of the maximum of a window.
    fn place<T: Number>(pool: &Pool2d, x: &[T], [image, row, column]: [usize; 3], channel: usize) -> Option<usize> {
        let value = |position: usize| pool.at(x, image, position, &(channel..channel + 1))[0];
        let nan = pool.positions(row, column).find(|&position| value(position).is_nan());
        nan.or_else(|| {
            pool.positions(row, column)
                .find(|&candidate| pool.positions(row, column).all(|position| value(position) <= value(candidate)))
        })
    }
}

impl PoolTwin for NaivePool {
    fn forward<T: Number>(&self, pool: &Pool2d, kind: PoolKind, x: &[T], out: &mut [T]) {
        NaivePool::set_pooled(pool, out, |image, row, column, channel| {
            let value = |position: usize| pool.at(x, image, position, &(channel..channel + 1))[0];
            match kind {
                PoolKind::Sum => pool.positions(row, column).map(value).fold(T::default(), T::plus),
                PoolKind::Max => NaivePool::place(pool, x, [image, row, column], channel).map_or(T::LOWEST, value),
            }
        });
    }

    fn sum_gradient<T: Number>(&self, pool: &Pool2d, ct: &[T], out: &mut [T]) {
        let [rows, columns] = pool.pooled();
        NaivePool::sum_of_windows(pool, out, |[image, row, column], _, channel| {
            Some(ct[((image * rows + row) * columns + column) * pool.channels + channel])
        });
    }

    fn max_gradient<T: Number>(&self, pool: &Pool2d, x: &[T], ct: &[T], out: &mut [T]) {
        let [rows, columns] = pool.pooled();
        NaivePool::sum_of_windows(pool, out, |[image, row, column], position, channel| {
            let selected = NaivePool::place(pool, x, [image, row, column], channel) == Some(position);
            selected.then(|| ct[((image * rows + row) * columns + column) * pool.channels + channel])
        });
    }

    fn max_gather<T: Number>(&self, pool: &Pool2d, x: &[T], t: &[T], out: &mut [T]) {
        NaivePool::set_pooled(pool, out, |image, row, column, channel| {
            let value = |position: usize| pool.at(t, image, position, &(channel..channel + 1))[0];
            NaivePool::place(pool, x, [image, row, column], channel).map_or(T::default(), value)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::quads::Quads;
    use super::*;
    use crate::library::testing::{Draw, assert_twins, values_of};

    fn drawn(draw: &mut Draw, dtype: DType, kind: PoolKind, pass: PoolPass) -> Pool2d {
        let window = [draw.below(3) + 1, draw.below(4) + 1];
        Pool2d {
            dtype,
            batch: draw.below(4),
            height: draw.below(8),
            width: draw.below(8),
            channels: [0, 1, 3, 16, 37][draw.below(5)],
            window,
            stride: [draw.below(3) + 1, draw.below(3) + 1],
            padding: [[draw.below(3), draw.below(3)], [draw.below(4), draw.below(3)]],
            kind,
            pass,
        }
    }

    #[test]
    fn kernels_agree_with_their_twins() {
        let mut draw = Draw::new(1);
        for _ in 0..60 {
            for dtype in [DType::F32, DType::F64] {
                for &kind in PoolKind::ALL {
                    for &pass in PoolPass::ALL {
                        let pool = drawn(&mut draw, dtype, kind, pass);
                        if pool.is_valid() {
                            assert_twins(&pool.into(), &mut draw);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn windows_side_by_side_agree_with_their_twins() {
        let (mut draw, mut n_quads, mut n_everywhere) = (Draw::new(4), 0, 0);
        for round in 0..200 {
            let [height, width] = [0; 2].map(|_| [2, 3, 4, 6, 7, 8, 12][draw.below(7)]);
            // Now and then a row or a column before the image, and more often behind it.
            let mut padding = [[0; 2]; 2];
            for (place, n) in padding.as_flattened_mut().iter_mut().zip([10, 4, 10, 4]) {
                *place = usize::from(draw.below(n) == 0);
            }
            let pool = Pool2d {
                dtype: [DType::F32, DType::F64][round % 2],
                batch: [1, 3, 8][draw.below(3)],
                height,
                width,
                channels: [1, 2, 3, 4, 7, 8, 12, 16, 29, 36][draw.below(10)],
                window: [2, 2],
                stride: [2, 2],
                padding,
                kind: PoolKind::ALL[round / 2 % 2],
                pass: [PoolPass::Forward, PoolPass::Gradient][round / 4 % 2],
            };
            let quads = Quads::of(&pool);
            n_quads += usize::from(quads.is_some());
            n_everywhere += usize::from(quads.is_some_and(|quads| quads.are_everywhere()));
            assert_twins(&pool.into(), &mut draw);
        }
        assert!(
            n_quads > n_everywhere && n_everywhere > 20,
            "{n_quads} with such windows, {n_everywhere} of them alone"
        );
    }

    #[test]
    fn windows_that_move_on_by_one_column_agree_with_their_twins() {
        let (mut draw, mut n_padded) = (Draw::new(5), 0);
        for round in 0..120 {
            let window = [[1, 2, 3, 5][draw.below(4)], [1, 2, 3, 7][draw.below(4)]];
            let pool = Pool2d {
                dtype: [DType::F32, DType::F64][round % 2],
                batch: [1, 2, 9][draw.below(3)],
                height: [1, 2, 5, 9][draw.below(4)],
                width: [1, 3, 6, 11, 26][draw.below(5)],
                channels: [1, 2, 3, 5, 17, 65][draw.below(6)],
                window,
                stride: [[1, 1, 2][draw.below(3)], 1],
                // As wide as the window, it has windows without a position.
                padding: window.map(|window| [draw.below(window + 1), draw.below(window + 1)]),
                kind: PoolKind::ALL[round / 2 % 2],
                pass: [PoolPass::Forward, PoolPass::Gradient][round / 4 % 2],
            };
            n_padded += usize::from(!pool.windows().contains(&0) && pool.padding[1] != [0, 0]);
            assert_twins(&pool.into(), &mut draw);
        }
        assert!(n_padded > 40, "{n_padded} with padded rows");
    }

    #[test]
    fn gradients_agree_with_their_twins_where_windows_cross_tiles() {
        let mut draw = Draw::new(2);
        for (window, stride, padding) in [([3, 2], [2, 1], [1, 0]), ([2, 2], [2, 2], [1, 1]), ([2, 3], [3, 3], [2, 1])]
        {
            for &kind in PoolKind::ALL {
                let (dtype, pass) = (DType::F32, PoolPass::Gradient);
                let padding = [padding, [1, 1]];
                let (batch, height, width, channels) = (2, 70, 9, 17);
                assert_twins(
                    &Pool2d { dtype, batch, height, width, channels, window, stride, padding, kind, pass }.into(),
                    &mut draw,
                );
            }
        }
    }

    /// Rows of windows that are cut into tasks by windows, by rows and by channels.
    #[test]
    fn few_rows_agree_with_their_twins() {
        let mut draw = Draw::new(6);
        for (extent, window, stride) in [
            ([1, 2, 70, 3], [2, 5], [1, 1]),
            ([1, 9, 9, 70], [3, 3], [1, 1]),
            ([1, 8, 8, 70], [8, 8], [8, 8]),
            ([1, 40, 3, 5], [3, 2], [2, 1]),
            ([2, 33, 4, 2], [2, 3], [1, 2]),
            ([3, 24, 5, 20], [4, 2], [4, 2]),
        ] {
            let [batch, height, width, channels] = extent;
            for &kind in PoolKind::ALL {
                for pass in [PoolPass::Forward, PoolPass::Gradient] {
                    let (dtype, padding) = (DType::F32, [[1, 0], [0, 1]]);
                    assert_twins(
                        &Pool2d { dtype, batch, height, width, channels, window, stride, padding, kind, pass }.into(),
                        &mut draw,
                    );
                }
            }
        }
    }

    /// Windows of many positions, whose last channels are computed together with those of the next position, and of which no two
    /// share a column.
    #[test]
    fn large_windows_of_few_channels_agree_with_their_twins() {
        let mut draw = Draw::new(7);
        for channels in 1..24 {
            for (kind, pass) in [
                (PoolKind::Max, PoolPass::Forward),
                (PoolKind::Sum, PoolPass::Forward),
                (PoolKind::Max, PoolPass::Gradient),
                (PoolKind::Sum, PoolPass::Gradient),
                (PoolKind::Max, PoolPass::MaxGather),
            ] {
                for (dtype, stride) in [(DType::F32, [4, 5]), (DType::F64, [4, 7]), (DType::F32, [3, 2])] {
                    let (padding, window) = ([[draw.below(3), 0], [0, draw.below(3)]], [4, 5]);
                    let (batch, height, width) = (2, 4 * (1 + draw.below(2)), 10 + draw.below(2));
                    assert_twins(
                        &Pool2d { dtype, batch, height, width, channels, window, stride, padding, kind, pass }.into(),
                        &mut draw,
                    );
                }
            }
        }
    }

    /// No image, but windows without end.
    #[test]
    fn results_without_elements_take_no_time() {
        for pass in [PoolPass::Forward, PoolPass::Gradient] {
            let pool = Pool2d {
                dtype: DType::F64,
                batch: 0,
                height: 5,
                width: 4,
                channels: 3,
                window: [2, 3],
                stride: [1, 1],
                padding: [[0, 1], [1 << 40, 0]],
                kind: PoolKind::Max,
                pass,
            };
            assert!(pool.is_valid());
            let inputs: &[&[u8]] = if pass == PoolPass::Forward { &[&[]] } else { &[&[], &[]] };
            pool.run(inputs, &mut [&mut []]);
        }
    }

    #[test]
    fn images_without_rows_have_no_gradient() {
        let mut draw = Draw::new(3);
        for &kind in PoolKind::ALL {
            let (dtype, pass, padding) = (DType::F32, PoolPass::Gradient, [[2, 2], [0, 0]]);
            let (batch, height, width, channels) = (1, 0, 5000, 1);
            let (window, stride) = ([2, 2], [1, 1]);
            assert_twins(
                &Pool2d { dtype, batch, height, width, channels, window, stride, padding, kind, pass }.into(),
                &mut draw,
            );
        }
    }

    #[test]
    fn gradient_goes_to_the_first_maximum() {
        let pool = |pass| Pool2d {
            dtype: DType::F32,
            batch: 1,
            height: 2,
            width: 4,
            channels: 1,
            window: [2, 2],
            stride: [2, 2],
            padding: [[0, 0]; 2],
            kind: PoolKind::Max,
            pass,
        };
        let x = [1.0, 3.0, f32::NEG_INFINITY, 5.0, 3.0, 3.0, f32::NAN, f32::NAN];
        let out = values_of::<f32>(&pool(PoolPass::Gradient).into(), &[&x, &[7.0, 9.0]]);
        assert_eq!(out, [0.0, 7.0, 0.0, 0.0, 0.0, 0.0, 9.0, 0.0]);
        let t = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        assert_eq!(values_of::<f32>(&pool(PoolPass::MaxGather).into(), &[&x, &t]), [1.0, 6.0]);
        let y = values_of::<f32>(&pool(PoolPass::Forward).into(), &[&x]);
        assert!(y[0] == 3.0 && y[1].is_nan());
    }
}
