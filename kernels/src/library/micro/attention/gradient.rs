//! The gradient of attention: weights from scores that are computed again.
//!
//! A task has some keys of a head, whose gradients it begins with zeros, and meets the tiles of queries in order. Parts
//! of the queries' gradient that come from several tasks are added in order.

use std::ops::Range;

use super::operand::{HeadOperand, HeadResult};
use super::panels::{ColumnPanels, ProductTarget, RowPanels, blocks, columns_len, pack_columns, write_transposed};
use super::{AttentionTask, Heads, ResultPointer, SLACK, TILE, mask, scale};
use crate::library::micro::drive::Engine;
use crate::library::micro::pack::Strided;
use crate::library::micro::softmax::{LaneTerms, STRIP, Scores, SoftmaxReal};
use crate::library::micro::{Kernels, with_scratch};

/// Keys of a block.
const GRADIENT_BLOCK: usize = 64;

/// Tasks that a gradient is cut into, if it has as many blocks of keys.
const TASKS: usize = 16;

/// The other arguments of the gradient.
#[derive(Clone, Copy)]
pub(crate) struct HeadTerms<'a, T> {
    /// `[batch, head, query]`: the logarithm of the sum of the powers of e of scores.
    pub(crate) logsumexp: &'a [T],
    /// `[batch, head, query]`: subtracted from the cotangents of weights.
    pub(crate) delta: &'a [T],
    /// `[batch, query, head, value feature]`: the cotangent of the result.
    pub(crate) cotangent: HeadOperand<'a, T>,
}

/// The gradients of queries, keys and values, in one buffer.
pub(crate) struct HeadGradients<'a, T> {
    pub(crate) queries: HeadResult,
    pub(crate) keys: HeadResult,
    pub(crate) values: HeadResult,
    pub(crate) data: &'a mut [T],
}

impl Engine {
    /// Writes the gradients of queries, keys and values.
    pub(crate) fn attention_gradient<T: SoftmaxReal>(
        &self,
        x: &Heads<'_, T>,
        terms: &HeadTerms<'_, T>,
        to: &mut HeadGradients<'_, T>,
    ) {
        if x.n_keys == 0 || x.n_queries == 0 {
            to.data.fill(T::ZERO);
            return;
        }
        let checks = || {
            [
                x.queries.check(x.scale),
                x.keys.check(T::ONE),
                x.values.check(T::ONE),
                terms.cotangent.check(T::ONE),
                terms.logsumexp.into(),
                terms.delta.into(),
            ]
        };
        let skips = x.causal && self.all_finite(&checks());
        let n_heads = x.batch * x.heads;
        let n_blocks = x.n_keys.div_ceil(GRADIENT_BLOCK);
        let part = n_blocks.div_ceil(TASKS.div_ceil(n_heads.max(1))).max(1) * GRADIENT_BLOCK;
        let parts = x.n_keys.div_ceil(part);
        let size = x.n_queries * x.features;
        let data = ResultPointer(to.data.as_mut_ptr());
        let head = |result: HeadResult, features, index| data.at(result.head(x.heads, features, index));
        // A head that is one task has its queries' gradient where it belongs.
        let is_whole = parts == 1;
        with_scratch::<T, _>(if is_whole { 0 } else { n_heads * parts * size }, |partial| {
            let all = ResultPointer(partial.as_mut_ptr());
            (self.parallel_for)(n_heads * parts, &|task| {
                let (index, first) = (task / parts, task % parts * part);
                let (kernels, math) = (T::kernels(self.level), T::softmax_kernels(self.level));
                let rows = |result: HeadResult, features| GradientRows {
                    first: head(result, features, index),
                    row: result.row,
                    features,
                };
                let of_part = GradientRows { first: all.at(task * size), row: x.features, features: x.features };
                let gradient = GradientTask {
                    task: AttentionTask { x, kernels, math, index },
                    terms,
                    queries: if is_whole { rows(to.queries, x.features) } else { of_part },
                    is_whole,
                    keys: rows(to.keys, x.features),
                    values: rows(to.values, x.value_features),
                };
                // SAFETY: keys of a head, and its queries or a part of the scratch, which no other task uses.
                unsafe { gradient.run(first..(first + part).min(x.n_keys), skips) };
            });
            if is_whole {
                return;
            }
            let partial = &*partial;
            (self.parallel_for)(n_heads, &|index| {
                let first = head(to.queries, x.features, index);
                for query in 0..x.n_queries {
                    // SAFETY: a row of this head's gradient.
                    let to = unsafe { std::slice::from_raw_parts_mut(first.add(query * to.queries.row), x.features) };
                    let rows = (0..parts).map(|part| &partial[(index * parts + part) * size + query * x.features..]);
                    add_rows(rows, to);
                    scale(to, x.scale);
                }
            });
        });
    }
}

/// The sum of rows, in order.
fn add_rows<'a, T: SoftmaxReal>(mut rows: impl Iterator<Item = &'a [T]>, to: &mut [T]) {
    let Some(first) = rows.next() else { return };
    to.copy_from_slice(&first[..to.len()]);
    rows.for_each(|row| to.iter_mut().zip(row).for_each(|(sum, x)| *sum = *sum + *x));
}

/// Some keys of a head in a gradient.
struct GradientTask<'a, T> {
    task: AttentionTask<'a, T>,
    terms: &'a HeadTerms<'a, T>,
    /// The part of the queries' gradient that comes from these keys, and whether it is all of it.
    queries: GradientRows<T>,
    is_whole: bool,
    keys: GradientRows<T>,
    values: GradientRows<T>,
}

/// The gradient of a head: rows of features at a distance.
struct GradientRows<T> {
    first: *mut T,
    row: usize,
    features: usize,
}

impl<T> GradientRows<T> {
    fn at(&self, position: usize) -> *mut T {
        self.first.wrapping_add(position * self.row)
    }
}

/// Packed queries and cotangents of a tile: as columns over features, strip by strip, and as columns over queries.
struct TilePanels<'a, T> {
    query_strips: &'a mut [T],
    cotangent_strips: &'a mut [T],
    queries: &'a mut [T],
    cotangents: &'a mut [T],
}

/// The memory of a gradient's task.
struct GradientScratch<'a, T> {
    panels: TilePanels<'a, T>,
    keys: &'a mut [T],
    keys_by_feature: &'a mut [T],
    values: &'a mut [T],
    /// Weights and the cotangents of scores of a block, and both as row panels.
    weights: &'a mut [T],
    cotangents: &'a mut [T],
    row_panels: &'a mut [T],
    /// The tile's part of the queries' gradient, transposed.
    sums: &'a mut [T],
}

impl<'a, T: SoftmaxReal> GradientScratch<'a, T> {
    /// Sizes of the parts, in order.
    fn sizes(kernels: &Kernels<T>, x: &Heads<'_, T>) -> [usize; 11] {
        let (width, block) = (x.tile_width(), GRADIENT_BLOCK.min(x.n_keys));
        let strips = width / STRIP;
        let (features, value_features) = (x.features, x.value_features);
        let scores = block * width + SLACK;
        [
            columns_len(kernels, [STRIP, features]) * strips,
            columns_len(kernels, [STRIP, value_features]) * strips,
            columns_len(kernels, [features, width]),
            columns_len(kernels, [value_features, width]),
            RowPanels::len(kernels, block, features),
            RowPanels::len(kernels, features, block),
            RowPanels::len(kernels, block, value_features),
            scores,
            scores,
            RowPanels::len(kernels, block, width),
            features.max(1) * width,
        ]
    }

    fn cut(memory: &'a mut [T], sizes: [usize; 11]) -> Self {
        let mut rest = memory;
        let mut next = |n: usize| {
            let (part, after) = std::mem::take(&mut rest).split_at_mut(sizes[n]);
            rest = after;
            part
        };
        GradientScratch {
            panels: TilePanels {
                query_strips: next(0),
                cotangent_strips: next(1),
                queries: next(2),
                cotangents: next(3),
            },
            keys: next(4),
            keys_by_feature: next(5),
            values: next(6),
            weights: next(7),
            cotangents: next(8),
            row_panels: next(9),
            sums: next(10),
        }
    }
}

impl<T: SoftmaxReal> GradientTask<'_, T> {
    /// Computes what comes from some keys.
    ///
    /// # Safety
    ///
    /// The level is present; the gradients of these keys and values and the part of the queries' are writable, and nobody
    /// else uses them.
    unsafe fn run(&self, keys: Range<usize>, skips: bool) {
        let AttentionTask { x, kernels, .. } = &self.task;
        for to in [&self.keys, &self.values] {
            for key in keys.clone() {
                // SAFETY: a row of the gradient of one of these keys.
                unsafe { std::slice::from_raw_parts_mut(to.at(key), to.features) }.fill(T::ZERO);
            }
        }
        let sizes = GradientScratch::sizes(kernels, x);
        with_scratch::<T, _>(sizes.iter().sum(), |memory| {
            let mut scratch = GradientScratch::cut(memory, sizes);
            scratch.weights.fill(T::ZERO);
            scratch.cotangents.fill(T::ZERO);
            for tile in 0..x.n_queries.div_ceil(TILE) {
                scratch.sums.fill(T::ZERO);
                let end = keys.end.min(x.limit_of_tile(tile, skips));
                let n_queries = TILE.min(x.n_queries - tile * TILE);
                if keys.start < end {
                    self.pack_tile(tile, n_queries, &mut scratch.panels);
                }
                for block in blocks(keys.start..end.max(keys.start), GRADIENT_BLOCK) {
                    // SAFETY: the contract of this function.
                    unsafe { self.block(tile, n_queries, &block, skips, &mut scratch) };
                }
                if self.is_whole {
                    scale(scratch.sums, x.scale);
                }
                let (to, row) = (self.queries.at(tile * TILE), self.queries.row);
                // SAFETY: the rows of the tile's queries.
                unsafe { write_transposed(scratch.sums, x.tile_width(), [x.features, n_queries], to, row) };
            }
        });
    }

    /// Packs what all blocks of keys need of a tile.
    fn pack_tile(&self, tile: usize, n_queries: usize, to: &mut TilePanels<'_, T>) {
        let AttentionTask { x, kernels, index, .. } = &self.task;
        let (queries, cotangents) = (x.queries.head(*index), self.terms.cotangent.head(*index));
        self.task.pack_strips(&queries, x.features, x.strips(tile), to.query_strips);
        self.task.pack_strips(&cotangents, x.value_features, x.strips(tile), to.cotangent_strips);
        pack_columns(kernels, &queries.by_feature(tile * TILE), [x.features, n_queries], to.queries);
        pack_columns(kernels, &cotangents.by_feature(tile * TILE), [x.value_features, n_queries], to.cotangents);
        scale(to.query_strips, x.scale);
        scale(to.queries, x.scale);
    }

    /// Computes a block of keys and a tile of queries.
    ///
    /// # Safety
    ///
    /// As [`run`](Self::run).
    unsafe fn block(
        &self,
        tile: usize,
        n_queries: usize,
        block: &Range<usize>,
        skips: bool,
        scratch: &mut GradientScratch<'_, T>,
    ) {
        let AttentionTask { x, kernels, .. } = &self.task;
        let [keys, values] = self.task.keys_and_values();
        let (from, n, width) = (block.start, block.len(), x.tile_width());
        let packed_keys = RowPanels::pack(kernels, &keys.by_position(from), [n, x.features], scratch.keys);
        let by_feature = RowPanels::pack(kernels, &keys.by_feature(from), [x.features, n], scratch.keys_by_feature);
        let packed_values = RowPanels::pack(kernels, &values.by_position(from), [n, x.value_features], scratch.values);
        let mut first = None;
        for (s, strip) in x.strips(tile).enumerate() {
            let rows = x.limit(&strip, skips).saturating_sub(from).min(n);
            if rows == 0 {
                continue;
            }
            first.get_or_insert(s * STRIP);
            let columns = self.task.strip_columns(scratch.panels.query_strips, x.features, s);
            let cotangents = self.task.strip_columns(scratch.panels.cotangent_strips, x.value_features, s);
            let lanes = |to: &mut [T]| ProductTarget { data: to[s * STRIP..].as_mut_ptr(), row: width, fresh: true };
            // SAFETY: both have a row for each key of a block.
            unsafe {
                self.task.scores(&packed_keys, rows, &columns, lanes(scratch.weights));
                self.task.scores(&packed_values, rows, &cotangents, lanes(scratch.cotangents));
                self.differentiate(
                    &strip,
                    from,
                    [rows, n],
                    &mut scratch.weights[s * STRIP..],
                    &mut scratch.cotangents[s * STRIP..],
                );
            }
            let columns = ColumnPanels {
                data: scratch.cotangents[s * STRIP..].as_ptr(),
                panel: kernels.width,
                row: width,
                cols: STRIP,
            };
            let to = ProductTarget { data: scratch.sums[s * STRIP..].as_mut_ptr(), row: width, fresh: false };
            // SAFETY: the level is present, and the sums have a row for each feature.
            unsafe { by_feature.times(kernels, [x.features, rows], &columns, &to) };
        }
        let Some(first) = first else { return };
        // The rows from the second strip of keys on have no weights for the queries before that strip, if these are left
        // out: their terms are zeros, which change no sum.
        let split = STRIP.next_multiple_of(kernels.heights[0]).min(n);
        let strip = ((from + split) / STRIP * STRIP).saturating_sub(tile * TILE);
        let later = if skips { strip.clamp(first, n_queries) } else { first };
        // SAFETY: the contract of this function.
        unsafe {
            if later == first {
                self.add_rows_of_keys(from, 0..n, first..n_queries, scratch);
                return;
            }
            self.add_rows_of_keys(from, 0..split, first..n_queries, scratch);
            self.add_rows_of_keys(from, split..n, later..n_queries, scratch);
        }
    }

    /// Adds to the gradients of some keys and values of a block what comes from some queries of a tile.
    ///
    /// # Safety
    ///
    /// As [`run`](Self::run).
    unsafe fn add_rows_of_keys(
        &self,
        from: usize,
        keys: Range<usize>,
        queries: Range<usize>,
        scratch: &mut GradientScratch<'_, T>,
    ) {
        let AttentionTask { x, kernels, .. } = &self.task;
        if keys.is_empty() || queries.is_empty() {
            return;
        }
        let width = x.tile_width();
        let places = [&self.values, &self.keys];
        let sources =
            [(&*scratch.weights, &*scratch.panels.cotangents), (&*scratch.cotangents, &*scratch.panels.queries)];
        for ((weights, columns), to) in sources.into_iter().zip(places).filter(|(_, to)| to.features > 0) {
            let first = &weights[keys.start * width + queries.start..];
            // SAFETY: the scores have a row of queries for each key.
            let weights = unsafe { Strided::new(first.as_ptr(), width as isize, 1) };
            let rows = RowPanels::pack(kernels, &weights, [keys.len(), queries.len()], scratch.row_panels);
            let data = columns[queries.start * kernels.width..].as_ptr();
            let columns =
                ColumnPanels { data, panel: queries.end * kernels.width, row: kernels.width, cols: to.features };
            let to = ProductTarget { data: to.at(from + keys.start), row: to.row, fresh: false };
            // SAFETY: the level is present, and the gradients of these keys are writable.
            unsafe { rows.times(kernels, [keys.len(), queries.len()], &columns, &to) };
        }
    }

    /// Makes weights of the scores of a strip, and cotangents of scores of those of weights; both are 0 for the keys of
    /// the block beyond `rows`.
    ///
    /// # Safety
    ///
    /// The level is present.
    unsafe fn differentiate(
        &self,
        strip: &Range<usize>,
        first_key: usize,
        [rows, n]: [usize; 2],
        weights: &mut [T],
        cotangents: &mut [T],
    ) {
        let x = self.task.x;
        let width = x.tile_width();
        let of_lanes = |from: &[T], rest: T| {
            let from = &from[self.task.index * x.n_queries..][strip.clone()];
            std::array::from_fn(|lane| from.get(lane).copied().unwrap_or(rest))
        };
        // The weights of lanes past the last query are 0.
        let terms = LaneTerms {
            logsumexp: of_lanes(self.terms.logsumexp, T::HIGHEST),
            delta: of_lanes(self.terms.delta, T::ZERO),
        };
        let mut scores = Scores { data: weights, stride: width, rows };
        let mut cotangents = Scores { data: cotangents, stride: width, rows };
        let is_masked = x.causal && first_key + rows > strip.start;
        if is_masked {
            mask(&mut scores, first_key, strip, T::LOWEST);
        }
        // SAFETY: the contract of this function.
        unsafe { (self.task.math.differentiate)(&mut scores, &mut cotangents, &terms) };
        if is_masked {
            mask(&mut cotangents, first_key, strip, T::ZERO);
        }
        for scores in [scores, cotangents] {
            scores.data.chunks_mut(width).take(n).skip(rows).for_each(|row| row[..STRIP].fill(T::ZERO));
        }
    }
}
