//! Attention in one pass over blocks of keys, so that scores stay in cache (Dao, Fu, Ermon, Rudra and Re,
//! "FlashAttention", 2022), and its gradient, which computes them again.
//!
//! Scores are held transposed: keys are rows, and queries are lanes, in strips of [`STRIP`]. A strip meets the blocks of
//! keys in order and ends with the key that its last query may attend to, whatever the width of vectors; so the bits
//! depend on the shape alone. A task is a tile of queries of a head.

mod gradient;
mod operand;
mod panels;

use std::ops::Range;

use self::operand::Head;
use self::panels::{ColumnPanels, ProductTarget, RowPanels, blocks, columns_len, pack_columns, write_transposed};
use super::drive::Engine;
use super::softmax::{OnlineSoftmax, STRIP, Scores, SoftmaxKernels, SoftmaxReal};
use super::{Kernels, with_scratch};
use crate::library::view::vectorized;
pub(crate) use gradient::{HeadGradients, HeadTerms};
pub(crate) use operand::{HeadOperand, HeadResult};

/// Queries of a tile.
const TILE: usize = 4 * STRIP;

/// Keys of a block.
const BLOCK: usize = 128;

/// Elements past the last lane of scores, which a vector at the edge reads.
const SLACK: usize = 64;

/// Queries, keys and values, all `[batch, position, head, feature]`.
#[derive(Clone, Copy)]
pub(crate) struct Heads<'a, T> {
    pub(crate) batch: usize,
    pub(crate) heads: usize,
    pub(crate) n_queries: usize,
    pub(crate) n_keys: usize,
    pub(crate) features: usize,
    pub(crate) value_features: usize,
    /// Whether a query attends to keys of its own position and those before it only.
    pub(crate) causal: bool,
    /// The factor of queries.
    pub(crate) scale: T,
    pub(crate) queries: HeadOperand<'a, T>,
    pub(crate) keys: HeadOperand<'a, T>,
    pub(crate) values: HeadOperand<'a, T>,
}

/// A pointer to a result, of which each task writes a part of its own.
struct ResultPointer<T>(*mut T);

// SAFETY: tasks write disjoint parts.
unsafe impl<T: Send> Sync for ResultPointer<T> {}

impl<T> ResultPointer<T> {
    fn at(&self, offset: usize) -> *mut T {
        self.0.wrapping_add(offset)
    }
}

impl<T: SoftmaxReal> Heads<'_, T> {
    /// Queries of a tile at most, in whole strips.
    fn tile_width(&self) -> usize {
        TILE.min(self.n_queries.next_multiple_of(STRIP))
    }

    /// The strips of a tile: their queries.
    fn strips(&self, tile: usize) -> impl Iterator<Item = Range<usize>> + Clone + use<T> {
        let end = ((tile + 1) * TILE).min(self.n_queries);
        (tile * TILE..end).step_by(STRIP).map(move |start| start..(start + STRIP).min(end))
    }

    /// Keys that a strip meets.
    fn limit(&self, strip: &Range<usize>, skips: bool) -> usize {
        if skips { self.n_keys.min(strip.start + STRIP) } else { self.n_keys }
    }

    /// Keys that a tile meets.
    fn limit_of_tile(&self, tile: usize, skips: bool) -> usize {
        if skips {
            self.n_keys.min((tile * TILE + TILE).min(self.n_queries.next_multiple_of(STRIP)))
        } else {
            self.n_keys
        }
    }
}

/// Gives lanes whose query must not attend to a key the number `masked`.
fn mask<T: SoftmaxReal>(scores: &mut Scores<'_, T>, first_key: usize, strip: &Range<usize>, masked: T) {
    for (row, key) in scores.data.chunks_mut(scores.stride).take(scores.rows).zip(first_key..) {
        let lanes = key.saturating_sub(strip.start).min(STRIP);
        row[..lanes].fill(masked);
    }
}

/// Multiplies numbers by a factor, which most often is 1.
fn scale<T: SoftmaxReal>(x: &mut [T], factor: T) {
    if factor != T::ONE {
        vectorized(
            #[inline(always)]
            || x.iter_mut().for_each(|x| *x = *x * factor),
        );
    }
}

impl Engine {
    /// Writes the weighted means of values `[batch, query, head, value feature]`, and the logarithms of the sums of the
    /// powers of e of scores `[batch, head, query]`.
    pub(crate) fn attend<T: SoftmaxReal>(&self, x: &Heads<'_, T>, out: &mut [T], logsumexp: &mut [T]) {
        if x.n_keys == 0 {
            out.fill(T::ZERO);
            logsumexp.fill(T::LOWEST);
            return;
        }
        // A weight of zero hides no value that is not finite: then no key is left out.
        let skips = x.causal && self.all_finite(&[x.values.check(T::ONE)]);
        let tiles = x.n_queries.div_ceil(TILE);
        let row = x.heads * x.value_features;
        let means = HeadResult { start: 0, batch: x.n_queries * row, row };
        let (out, logsumexp) = (ResultPointer(out.as_mut_ptr()), ResultPointer(logsumexp.as_mut_ptr()));
        (self.parallel_for)(x.batch * x.heads * tiles, &|task| {
            let (index, tile) = (task / tiles, task % tiles);
            let call =
                AttentionTask { x, kernels: T::kernels(self.level), math: T::softmax_kernels(self.level), index };
            let out = out.at(means.head(x.heads, x.value_features, index));
            // SAFETY: the queries of this tile, which no other task writes.
            unsafe { call.attend(tile, skips, out, logsumexp.at(index * x.n_queries)) };
        });
    }
}

/// A head under way.
struct AttentionTask<'a, T> {
    x: &'a Heads<'a, T>,
    kernels: Kernels<T>,
    math: SoftmaxKernels<T>,
    /// The head, counted over the batch.
    index: usize,
}

impl<T: SoftmaxReal> AttentionTask<'_, T> {
    /// The head's keys and values.
    fn keys_and_values(&self) -> [Head<T>; 2] {
        [self.x.keys.head(self.index), self.x.values.head(self.index)]
    }

    /// Packs rows of queries, or of cotangents, as columns: a group of panels for each strip.
    fn pack_strips(&self, head: &Head<T>, features: usize, strips: impl Iterator<Item = Range<usize>>, to: &mut [T]) {
        let len = columns_len(&self.kernels, [STRIP, features]);
        for (strip, to) in strips.zip(to.chunks_mut(len.max(1))) {
            if strip.len() < STRIP || !STRIP.is_multiple_of(self.kernels.width) {
                // Lanes past the last query are zero.
                to.fill(T::ZERO);
            }
            pack_columns(&self.kernels, &head.by_position(strip.start), [strip.len(), features], to);
        }
    }

    /// The columns of a strip that [`pack_strips`](Self::pack_strips) has packed.
    fn strip_columns(&self, packed: &[T], features: usize, strip: usize) -> ColumnPanels<T> {
        let width = self.kernels.width;
        let data = packed[strip * columns_len(&self.kernels, [STRIP, features])..].as_ptr();
        ColumnPanels { data, panel: features * width, row: width, cols: STRIP }
    }

    /// Scores of a strip and the first `rows` of packed keys, or the like for cotangents and values.
    ///
    /// # Safety
    ///
    /// `to` is writable for all rows that were packed.
    unsafe fn scores(&self, packed: &RowPanels<'_, T>, rows: usize, strip: &ColumnPanels<T>, to: ProductTarget<T>) {
        if packed.steps == 0 {
            for row in 0..rows {
                // SAFETY: a row of the scores.
                unsafe { std::slice::from_raw_parts_mut(to.data.add(row * to.row), STRIP) }.fill(T::ZERO);
            }
        }
        // SAFETY: the level is present; the strip has the steps of the panels.
        unsafe { packed.times(&self.kernels, [rows, packed.steps], strip, &to) };
    }

    /// Computes a tile of queries. `out` is the head's first element of the result.
    ///
    /// # Safety
    ///
    /// The head's results of these queries are writable, and nobody else uses them.
    unsafe fn attend(&self, tile: usize, skips: bool, out: *mut T, logsumexp: *mut T) {
        let (x, kernels) = (self.x, &self.kernels);
        let (features, value_features) = (x.features, x.value_features);
        let [keys, values] = self.keys_and_values();
        let (strips, block) = (x.tile_width() / STRIP, BLOCK.min(x.n_keys));
        let query_len = columns_len(kernels, [STRIP, features]) * strips;
        let key_len = RowPanels::len(kernels, block, features);
        let value_len = RowPanels::len(kernels, value_features, block);
        let score_len = block * STRIP + SLACK;
        let mean_len = value_features * STRIP;
        let total = query_len + key_len + value_len + score_len + mean_len * strips;
        with_scratch::<T, _>(total, |scratch| {
            let (packed_queries, scratch) = scratch.split_at_mut(query_len);
            let (key_panels, scratch) = scratch.split_at_mut(key_len);
            let (value_panels, scratch) = scratch.split_at_mut(value_len);
            let (scores, means) = scratch.split_at_mut(score_len);
            scores.fill(T::ZERO);
            self.pack_strips(&x.queries.head(self.index), features, x.strips(tile), packed_queries);
            scale(packed_queries, x.scale);
            let mut states = [OnlineSoftmax::over(x.n_keys); TILE / STRIP];
            for block in blocks(0..x.limit_of_tile(tile, skips), BLOCK) {
                let (from, n) = (block.start, block.len());
                let packed_keys = RowPanels::pack(kernels, &keys.by_position(from), [n, features], key_panels);
                let packed_values =
                    RowPanels::pack(kernels, &values.by_feature(from), [value_features, n], value_panels);
                for (s, strip) in x.strips(tile).enumerate() {
                    let rows = x.limit(&strip, skips).saturating_sub(from).min(n);
                    if rows == 0 {
                        continue;
                    }
                    let columns = self.strip_columns(packed_queries, features, s);
                    let to = ProductTarget { data: scores.as_mut_ptr(), row: STRIP, fresh: true };
                    // SAFETY: the scores have a row for each key of a block.
                    unsafe { self.scores(&packed_keys, rows, &columns, to) };
                    let means = &mut means[s * mean_len..][..mean_len];
                    // SAFETY: the level is present.
                    unsafe { self.absorb(scores, rows, block.start, &strip, &mut states[s], means) };
                    let weights = ColumnPanels { data: scores.as_ptr(), panel: kernels.width, row: STRIP, cols: STRIP };
                    let to = ProductTarget { data: means.as_mut_ptr(), row: STRIP, fresh: from == 0 };
                    // SAFETY: the level is present, the weights have a row for each key, and the means one for each feature.
                    unsafe { packed_values.times(kernels, [value_features, rows], &weights, &to) };
                }
            }
            for (s, strip) in x.strips(tile).enumerate() {
                // SAFETY: the queries of the strip.
                unsafe { self.finish(&states[s], &strip, &mut means[s * mean_len..][..mean_len], out, logsumexp) };
            }
        });
    }

    /// Makes weights of the scores of a strip, and corrects the means of the keys before.
    ///
    /// # Safety
    ///
    /// The level is present.
    unsafe fn absorb(
        &self,
        scores: &mut [T],
        rows: usize,
        first_key: usize,
        strip: &Range<usize>,
        state: &mut OnlineSoftmax<T>,
        means: &mut [T],
    ) {
        let mut scores = Scores { data: scores, stride: STRIP, rows };
        if self.x.causal && first_key + rows > strip.start {
            mask(&mut scores, first_key, strip, T::LOWEST);
        }
        // SAFETY: the contract of this function.
        unsafe {
            (self.math.absorb)(&mut scores, state);
            if first_key > 0 {
                let rows = self.x.value_features;
                (self.math.scale)(&mut Scores { data: means, stride: STRIP, rows }, &state.correction);
            }
        }
    }

    /// Divides by the sums of a strip, and writes its results.
    ///
    /// # Safety
    ///
    /// The level is present, and the results of these queries are writable.
    unsafe fn finish(
        &self,
        state: &OnlineSoftmax<T>,
        strip: &Range<usize>,
        means: &mut [T],
        out: *mut T,
        logsumexp: *mut T,
    ) {
        let rows = self.x.value_features;
        let stride = self.x.heads * rows;
        // SAFETY: the contract of this function.
        unsafe {
            let [inverse, logs] = (self.math.finish)(state);
            (self.math.scale)(&mut Scores { data: means, stride: STRIP, rows }, &inverse);
            write_transposed(means, STRIP, [rows, strip.len()], out.add(strip.start * stride), stride);
            std::slice::from_raw_parts_mut(logsumexp.add(strip.start), strip.len())
                .copy_from_slice(&logs[..strip.len()]);
        }
    }
}
