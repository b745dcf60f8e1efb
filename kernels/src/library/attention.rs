//! Softmax attention and its gradient, without scores in memory.
//!
//! Inputs are `[batch, position, head, feature]`, at any strides, and the results of a pass lie in one buffer. A weight is
//! the power of e of the scaled product of a query and a key, less the logarithm of the sum of these powers over the keys
//! that the query attends to. Keys that it does not attend to have the weight 0, which makes NaN of a value that is
//! not finite.

use retape_runtime::{DType, Scalar};
use smallvec::SmallVec;

use super::dense::{check_arity, view, view_mut};
use super::extents::{Checked, count, countable};
use super::matmul::MatrixLayout;
use super::micro::{Engine, HeadGradients, HeadOperand, HeadResult, HeadTerms, Heads, SoftmaxReal};
use super::number::with_float;
use super::text::{alternatives, descriptor};
use crate::ensure::ensure;

alternatives! {
    /// Which function of the family is computed.
    AttentionPass {
        /// From queries, keys and values to the weighted means of the values `[batch, query, head, value feature]` and
        /// the logarithms of the sums of powers `[batch, head, query]`.
        Forward = "forward",
        /// From queries, keys, values, the logarithms, what is to be subtracted from the cotangents of weights
        /// `[batch, head, query]`, and the cotangent of the means, to the cotangents of queries, keys and values.
        Gradient = "gradient",
    }
}

descriptor! {
    /// Attention of queries to keys.
    Attention "attention" {
        /// `f32` or `f64`.
        dtype: DType,
        /// The number of sequences.
        batch: usize,
        /// The number of heads.
        heads: usize,
        /// Queries of a sequence.
        queries: usize,
        /// Keys of a sequence, and values.
        keys: usize,
        /// Features of a query and of a key.
        features: usize,
        /// Features of a value.
        value_features: usize,
        /// Whether a query attends to keys of its own position and those before it only.
        causal: bool,
        /// The factor of all products of a query and a key, in the dtype: queries are multiplied by it.
        scale: Scalar,
        /// Where queries, keys, values and, in the gradient, the cotangent lie in their buffers: rows are positions and
        /// columns features, with strides for batch and head.
        operands: Vec<MatrixLayout>,
        /// Whether the results of the gradient are `[batch, position, feature]`, for a position the features of all heads
        /// of its query, then those of its key, then those of its value; there are as many queries as keys then. Otherwise
        /// they lie one after the other.
        joined: bool,
        /// Which function.
        pass: AttentionPass,
    }
}

/// Names of operands.
const SIDES: [&str; 4] = ["queries'", "keys'", "values'", "cotangent's"];

impl Attention {
    fn check(&self) -> Checked {
        let Attention { dtype, batch, heads, queries, keys, features, value_features, joined, .. } = *self;
        ensure!(dtype.is_float(), "attention is computed in floats, not in {dtype}");
        ensure!(self.scale.dtype == dtype, "the scale of attention in {dtype} is a number in {}", self.scale.dtype);
        let widest = features.saturating_add(value_features).saturating_add(1);
        countable("the work on queries and keys", &[batch, heads, queries, keys, widest])?;
        let (n, expected) = (self.operands.len(), self.extents().len());
        ensure!(n == expected, "there are layouts of {n} operands, but there must be {expected}");
        for ((layout, [positions, features]), side) in self.operands.iter().zip(self.extents()).zip(SIDES) {
            layout.check(side, &[batch, heads], positions, features)?;
        }
        let may_join = self.pass == AttentionPass::Gradient && queries == keys;
        ensure!(!joined || may_join, "only gradients of as many queries as keys are joined by position");
        Ok(())
    }

    /// Positions and features of the operands that have a layout.
    fn extents(&self) -> SmallVec<[[usize; 2]; 4]> {
        let Attention { queries, keys, features, value_features, .. } = *self;
        let all = [[queries, features], [keys, features], [keys, value_features], [queries, value_features]];
        let n = if self.pass == AttentionPass::Forward { 3 } else { 4 };
        SmallVec::from_slice(&all[..n])
    }

    /// The same with operands that are dense.
    #[must_use]
    pub fn contiguous(self) -> Attention {
        let heads = self.heads;
        let dense = |[positions, features]: [usize; 2]| {
            let row = heads.saturating_mul(features);
            let batch_strides = SmallVec::from_slice(&[positions.saturating_mul(row), features]);
            MatrixLayout { offset: 0, batch_strides, row_stride: row, col_stride: 1 }
        };
        Attention { operands: self.extents().into_iter().map(dense).collect(), ..self }
    }

    /// The numbers of elements of queries, keys, values, means, and logarithms.
    fn lens(&self) -> [usize; 5] {
        let Attention { batch, heads, queries, keys, features, value_features, .. } = *self;
        [
            count(&[batch, queries, heads, features]),
            count(&[batch, keys, heads, features]),
            count(&[batch, keys, heads, value_features]),
            count(&[batch, queries, heads, value_features]),
            count(&[batch, heads, queries]),
        ]
    }

    /// The number of pairs of a query and a key that it attends to, of one head.
    fn pairs(&self) -> usize {
        let Attention { queries, keys, .. } = *self;
        if !self.causal {
            return count(&[queries, keys]);
        }
        let rising = queries.min(keys);
        count(&[rising, rising + 1]) / 2 + count(&[queries - rising, keys])
    }

    /// A multiplication and an addition for each feature of each pair: in two products or, in the gradient, in five.
    pub(super) fn flops(&self) -> u64 {
        let per_pair = match self.pass {
            AttentionPass::Forward => self.features + self.value_features,
            AttentionPass::Gradient => 3 * self.features + 2 * self.value_features,
        };
        count(&[2, self.batch, self.heads, self.pairs(), per_pair]) as u64
    }

    /// The dtype and the least number of elements of each input.
    pub fn inputs(&self) -> Vec<(DType, usize)> {
        let len = |layout: &MatrixLayout, [positions, features]: [usize; 2]| {
            layout.checked_len(&[self.batch, self.heads], positions, features).unwrap_or(usize::MAX)
        };
        self.of_inputs(len).into_iter().map(|len| (self.dtype, len)).collect()
    }

    /// The number of elements that are read of each input.
    pub(super) fn n_read(&self) -> SmallVec<[usize; 6]> {
        self.of_inputs(|layout, [positions, features]| layout.n_read(&[self.batch, self.heads], positions, features))
    }

    /// A number for each input: of those with a layout as `of_operand` says, else how many elements there are.
    fn of_inputs(&self, of_operand: impl Fn(&MatrixLayout, [usize; 2]) -> usize) -> SmallVec<[usize; 6]> {
        let operands = self.operands.iter().zip(self.extents());
        let mut all: SmallVec<[usize; 6]> = operands.map(|(layout, extents)| of_operand(layout, extents)).collect();
        if self.pass == AttentionPass::Gradient {
            let [.., logs] = self.lens();
            all.insert_many(3.min(all.len()), [logs, logs]);
        }
        all
    }

    /// The dtype and the number of elements of the output.
    pub fn outputs(&self) -> Vec<(DType, usize)> {
        vec![(self.dtype, self.result_lens().iter().fold(0, |sum: usize, &len| sum.saturating_add(len)))]
    }

    /// The numbers of elements of the results, in order.
    fn result_lens(&self) -> Vec<usize> {
        let [queries, keys, values, means, logs] = self.lens();
        match self.pass {
            AttentionPass::Forward => vec![means, logs],
            AttentionPass::Gradient => vec![queries, keys, values],
        }
    }

    /// Computes the pass.
    ///
    /// # Panics
    ///
    /// Panics if the descriptor is not valid, or if a buffer is missing, of another length or not aligned to its
    /// elements.
    pub fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.run_on(&Engine::best(), inputs, outputs);
    }

    /// [`Attention::run`] on a given engine.
    pub(super) fn run_on(&self, engine: &Engine, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert!(self.is_valid(), "{self}");
        with_float!(self.dtype, T => self.run_typed::<T>(engine, inputs, outputs));
    }

    /// The formulas, with sums in f64: the reference for `run`, up to rounding.
    ///
    /// # Panics
    ///
    /// As [`Attention::run`].
    pub fn reference(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert!(self.is_valid(), "{self}");
        with_float!(self.dtype, T => self.reference_typed::<T>(inputs, outputs));
    }

    fn run_typed<T: SoftmaxReal>(&self, engine: &Engine, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        check_arity(inputs, outputs, self.inputs().len());
        let inputs: SmallVec<[&[T]; 6]> =
            inputs.iter().zip(self.inputs()).map(|(bytes, (_, len))| view(bytes, len, "input")).collect();
        let results: &mut [T] = view_mut(outputs[0], self.outputs()[0].1, "result");
        let operand = |data, index: usize| {
            let (layout, [positions, features]) = (&self.operands[index], self.extents()[index]);
            HeadOperand {
                data,
                offset: layout.offset,
                extents: [self.batch, positions, self.heads, features],
                strides: [layout.batch_strides[0], layout.row_stride, layout.batch_strides[1], layout.col_stride],
            }
        };
        let [queries, keys, values, terms @ ..] = &inputs[..] else { return };
        let heads = Heads {
            batch: self.batch,
            heads: self.heads,
            n_queries: self.queries,
            n_keys: self.keys,
            features: self.features,
            value_features: self.value_features,
            causal: self.causal,
            scale: T::from_f64(self.scale.to_f64()),
            queries: operand(queries, 0),
            keys: operand(keys, 1),
            values: operand(values, 2),
        };
        let [.., means, _] = self.lens();
        match *terms {
            [] => {
                let (means, logs) = results.split_at_mut(means);
                engine.attend(&heads, means, logs);
            }
            [logsumexp, delta, cotangent] => {
                let terms = HeadTerms { logsumexp, delta, cotangent: operand(cotangent, 3) };
                engine.attention_gradient(&heads, &terms, &mut self.gradients(results));
            }
            _ => unreachable!("{self} with other buffers"),
        }
    }

    /// Where the results of a gradient lie.
    fn gradients<'a, T>(&self, results: &'a mut [T]) -> HeadGradients<'a, T> {
        let [queries, keys, ..] = self.lens();
        let widths = [self.features, self.features, self.value_features].map(|features| self.heads * features);
        let joined_row = widths.iter().sum();
        let starts = if self.joined { [0, widths[0], widths[0] + widths[1]] } else { [0, queries, queries + keys] };
        let positions = [self.queries, self.keys, self.keys];
        let result = |index: usize| {
            let row = if self.joined { joined_row } else { widths[index] };
            HeadResult { start: starts[index], batch: positions[index] * row, row }
        };
        HeadGradients { queries: result(0), keys: result(1), values: result(2), data: results }
    }

    fn reference_typed<T: SoftmaxReal>(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        check_arity(inputs, outputs, self.inputs().len());
        let buffers: Vec<&[T]> =
            inputs.iter().zip(self.inputs()).map(|(bytes, (_, len))| view(bytes, len, "input")).collect();
        let mut inputs: Vec<Vec<f64>> = buffers.iter().map(|x| x.iter().map(|x| x.to_f64()).collect()).collect();
        let places = if self.pass == AttentionPass::Forward { vec![0, 1, 2] } else { vec![0, 1, 2, 5] };
        for (operand, &place) in places.iter().enumerate() {
            inputs[place] = self.gathered(operand, &inputs[place]);
        }
        let scale = self.scale.to_f64();
        inputs[0].iter_mut().for_each(|x| *x *= scale);
        let mut sums: Vec<Vec<f64>> = self.result_lens().iter().map(|&len| vec![0.0; len]).collect();
        for head in 0..self.batch * self.heads {
            for query in 0..self.queries {
                match self.pass {
                    AttentionPass::Forward => self.attend_naively(&inputs, &mut sums, head, query),
                    AttentionPass::Gradient => self.differentiate_naively(&inputs, &mut sums, head, query),
                }
            }
        }
        if self.pass == AttentionPass::Gradient {
            sums[0].iter_mut().for_each(|x| *x *= scale);
        }
        let results: &mut [T] = view_mut(outputs[0], self.outputs()[0].1, "result");
        if self.joined {
            let rows = sums.iter().map(|sums| sums.chunks((sums.len() / (self.batch * self.queries).max(1)).max(1)));
            let mut rows: Vec<_> = rows.collect();
            let mut to = results.iter_mut();
            for _ in 0..self.batch * self.queries {
                let joined = rows.iter_mut().flat_map(|rows| rows.next().unwrap_or_default());
                joined.zip(&mut to).for_each(|(sum, x)| *x = T::from_f64(*sum));
            }
        } else {
            results.iter_mut().zip(sums.iter().flatten()).for_each(|(x, sum)| *x = T::from_f64(*sum));
        }
    }

    /// An operand `[batch, position, head, feature]` without gaps.
    fn gathered(&self, operand: usize, buffer: &[f64]) -> Vec<f64> {
        let (layout, [positions, features]) = (&self.operands[operand], self.extents()[operand]);
        let n = count(&[self.batch, positions, self.heads, features]);
        let mut dense = Vec::with_capacity(n);
        if n == 0 {
            return dense;
        }
        for sequence in 0..self.batch {
            for (position, head) in (0..positions).flat_map(|position| (0..self.heads).map(move |h| (position, h))) {
                let first = layout.start(&[self.batch, self.heads], sequence * self.heads + head)
                    + position * layout.row_stride;
                dense.extend((0..features).map(|feature| buffer[first + feature * layout.col_stride]));
            }
        }
        dense
    }

    /// The places of a row of features.
    fn row(&self, head: usize, position: usize, positions: usize, features: usize) -> std::ops::Range<usize> {
        let (sequence, head) = (head / self.heads, head % self.heads);
        let start = ((sequence * positions + position) * self.heads + head) * features;
        start..start + features
    }

    fn query_row(&self, head: usize, query: usize) -> std::ops::Range<usize> {
        self.row(head, query, self.queries, self.features)
    }

    fn key_row(&self, head: usize, key: usize) -> std::ops::Range<usize> {
        self.row(head, key, self.keys, self.features)
    }

    fn value_row(&self, head: usize, key: usize) -> std::ops::Range<usize> {
        self.row(head, key, self.keys, self.value_features)
    }

    fn mean_row(&self, head: usize, query: usize) -> std::ops::Range<usize> {
        self.row(head, query, self.queries, self.value_features)
    }

    /// The scores of a query: -inf for keys that it does not attend to.
    fn naive_scores(&self, inputs: &[Vec<f64>], head: usize, query: usize) -> Vec<f64> {
        let row = &inputs[0][self.query_row(head, query)];
        let score = |key: usize| match self.causal && key > query {
            true => f64::NEG_INFINITY,
            false => dot(row, &inputs[1][self.key_row(head, key)]),
        };
        (0..self.keys).map(score).collect()
    }

    fn attend_naively(&self, inputs: &[Vec<f64>], sums: &mut [Vec<f64>], head: usize, query: usize) {
        let scores = self.naive_scores(inputs, head, query);
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let powers: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
        let sum: f64 = powers.iter().sum();
        let [means, logs] = sums else { unreachable!("a forward pass has two results") };
        let is_hidden = scores.iter().all(|&score| score == f64::NEG_INFINITY);
        logs[head * self.queries + query] = if is_hidden { f64::NEG_INFINITY } else { max + sum.ln() };
        let to = &mut means[self.mean_row(head, query)];
        for (key, power) in powers.iter().enumerate() {
            add_scaled(to, power / sum, &inputs[2][self.value_row(head, key)]);
        }
    }

    fn differentiate_naively(&self, inputs: &[Vec<f64>], sums: &mut [Vec<f64>], head: usize, query: usize) {
        let scores = self.naive_scores(inputs, head, query);
        let [queries, keys, values, logs, delta, cotangents] = inputs else {
            unreachable!("a gradient has six inputs")
        };
        let [to_queries, to_keys, to_values] = sums else { unreachable!("a gradient has three results") };
        let (lane, cotangent) = (head * self.queries + query, &cotangents[self.mean_row(head, query)]);
        for (key, score) in scores.into_iter().enumerate() {
            let (key_row, value_row) = (self.key_row(head, key), self.value_row(head, key));
            let weight = (score - logs[lane]).exp();
            let of_score = match self.causal && key > query {
                true => 0.0,
                false => weight * (dot(cotangent, &values[value_row.clone()]) - delta[lane]),
            };
            add_scaled(&mut to_values[value_row], weight, cotangent);
            add_scaled(&mut to_keys[key_row.clone()], of_score, &queries[self.query_row(head, query)]);
            add_scaled(&mut to_queries[self.query_row(head, query)], of_score, &keys[key_row]);
        }
    }
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

fn add_scaled(to: &mut [f64], factor: f64, x: &[f64]) {
    to.iter_mut().zip(x).for_each(|(sum, x)| *sum += factor * x);
}

#[cfg(test)]
mod tests {
    use retape_runtime::Buffer;

    use super::*;
    use crate::library::micro::Level;
    use crate::library::testing::{Draw, assert_close, drawn};

    fn of_shape(draw: &mut Draw, dtype: DType, pass: AttentionPass) -> Attention {
        let queries = [0, 1, 5, 33, 130, 200][draw.below(6)];
        let joined = pass == AttentionPass::Gradient && draw.below(2) == 0;
        let kernel = Attention {
            dtype,
            batch: draw.below(3),
            heads: draw.below(3) + 1,
            queries,
            keys: if joined { queries } else { [0, 1, 7, 64, 129, 190][draw.below(6)] },
            features: [0, 1, 5, 16, 33, 300][draw.below(6)],
            value_features: [0, 1, 4, 17, 64][draw.below(5)],
            causal: draw.below(2) == 0,
            scale: Scalar::from_f64([1.0, 0.125, -0.3][draw.below(3)], dtype),
            joined,
            ..small(dtype, pass)
        }
        .contiguous();
        let place = |draw: &mut Draw, dense: &MatrixLayout, [positions, features]: [usize; 2]| {
            let heads = kernel.heads;
            let [gap, offset] = [0, 0].map(|_| draw.below(3));
            let strides = |batch, head, row_stride, col_stride| MatrixLayout {
                offset,
                batch_strides: SmallVec::from_slice(&[batch, head]),
                row_stride,
                col_stride,
            };
            match draw.below(5) {
                // Heads of a wider row, heads apart, heads before positions, features apart, and features before positions.
                0 => strides((heads * features + gap) * positions, features, heads * features + gap, 1),
                1 => strides((features + gap) * heads * positions, features + gap, heads * (features + gap), 1),
                2 => strides((features * heads + gap) * positions, features * positions + gap, features, 1),
                3 => strides(2 * features * heads * positions, 2 * features, 2 * features * heads, 2),
                4 => strides(features * heads * positions, features * positions, 1, positions),
                _ => dense.clone(),
            }
        };
        let operands = kernel.operands.iter().zip(kernel.extents());
        let operands = operands.map(|(dense, extents)| place(draw, dense, extents)).collect();
        Attention { operands, ..kernel }
    }

    /// A query, a key and a value of one number.
    fn small(dtype: DType, pass: AttentionPass) -> Attention {
        Attention {
            dtype,
            batch: 1,
            heads: 1,
            queries: 1,
            keys: 1,
            features: 1,
            value_features: 1,
            causal: false,
            scale: Scalar::from_f64(1.0, dtype),
            operands: Vec::new(),
            joined: false,
            pass,
        }
        .contiguous()
    }

    /// Numbers small enough that weights are of one order.
    fn inputs(draw: &mut Draw, kernel: &Attention) -> Vec<Buffer> {
        let mut small = |(dtype, n): (DType, usize)| {
            let next = |draw: &mut Draw| (draw.bits() >> 11) as f64 / (1_u64 << 54) as f64 - 0.25;
            match dtype {
                DType::F64 => Buffer::copy_of(&(0..n).map(|_| next(draw)).collect::<Vec<f64>>()).unwrap(),
                _ => Buffer::copy_of(&(0..n).map(|_| next(draw) as f32).collect::<Vec<f32>>()).unwrap(),
            }
        };
        kernel.inputs().into_iter().map(&mut small).collect()
    }

    #[test]
    fn kernels_agree_with_their_twins() {
        let mut draw = Draw::new(1);
        for _ in 0..60 {
            for (dtype, tolerance) in [(DType::F32, 3e-5), (DType::F64, 3e-13)] {
                for &pass in AttentionPass::ALL {
                    let kernel = of_shape(&mut draw, dtype, pass);
                    let inputs = inputs(&mut draw, &kernel);
                    assert_close(&kernel.into(), &inputs, tolerance);
                }
            }
        }
    }

    /// Far below the largest score weights are zero, and no subnormal numbers.
    #[test]
    fn scores_may_be_far_apart() {
        let kernel =
            |[queries, keys]: [usize; 2], pass| Attention { queries, keys, ..small(DType::F64, pass) }.contiguous();
        let of = |x: &[f64]| Buffer::copy_of(x).unwrap();
        for (apart, value, mean) in [(-600.0, 1e260, 1.0 + (-600.0_f64).exp() * 1e260), (-660.0, 1e300, 1.0)] {
            let inputs = [of(&[1.0]), of(&[0.0, apart]), of(&[1.0, value])];
            let made = bits::<f64>(&kernel([1, 2], AttentionPass::Forward), &Engine::best(), &inputs);
            let made: &[f64] = view(&made, 2, "the mean and the logarithm");
            assert!((made[0] - mean).abs() <= 1e-13 * mean, "{made:?}, not {mean}");
        }
        for level in Level::available() {
            let engine = Engine { level, ..Engine::best() };
            let single = Attention { keys: 3, ..small(DType::F32, AttentionPass::Forward) }.contiguous();
            let of = |x: &[f32]| Buffer::copy_of(x).unwrap();
            for (apart, mean) in [(-60.0_f32, 8757.511_f32), (-70.0, 1.0), (f32::NEG_INFINITY, 1.0)] {
                let inputs = [of(&[1.0]), of(&[0.0, apart, apart]), of(&[1.0, 1e30, 0.0])];
                let made = bits::<f32>(&single, &engine, &inputs);
                let made = view::<f32>(&made, 2, "the mean and the logarithm")[0];
                assert!((made - mean).abs() <= 1e-5 * mean, "{made}, not {mean}, on {}", level.name());
            }
        }
        let mut draw = Draw::new(5);
        for &pass in AttentionPass::ALL {
            let kernel = kernel([70, 150], pass);
            let mut inputs = inputs(&mut draw, &kernel);
            for x in &mut inputs[..2] {
                let far: Vec<f64> =
                    view::<f64>(x.bytes(), x.bytes().len() / 8, "x").iter().map(|x| x * 200.0).collect();
                *x = of(&far);
            }
            if pass == AttentionPass::Gradient {
                let forward = Attention { pass: AttentionPass::Forward, ..kernel.clone() }.contiguous();
                let made = bits::<f64>(&forward, &Engine::best(), &inputs[..3]);
                inputs[3] = of(&view::<f64>(&made, 140, "means and logarithms")[70..]);
            }
            assert_close(&kernel.into(), &inputs, 3e-10);
        }
    }

    #[test]
    fn numbers_that_are_not_finite_go_where_they_do_in_the_twin() {
        let mut draw = Draw::new(2);
        let kernel = Attention {
            heads: 2,
            queries: 150,
            keys: 140,
            features: 2,
            value_features: 3,
            causal: true,
            ..small(DType::F64, AttentionPass::Forward)
        }
        .contiguous();
        for causal in [false, true] {
            for argument in 0..3 {
                for special in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                    let kernel = Attention { causal, ..kernel.clone() };
                    let mut inputs = inputs(&mut draw, &kernel);
                    let mut values: Vec<f64> =
                        view(inputs[argument].bytes(), kernel.inputs()[argument].1, "x").to_vec();
                    let at = draw.below(values.len());
                    values[at] = special;
                    inputs[argument] = Buffer::copy_of(&values).unwrap();
                    assert_close(&kernel.into(), &inputs, 3e-13);
                }
            }
        }
    }

    fn bits<T: SoftmaxReal>(kernel: &Attention, engine: &Engine, inputs: &[Buffer]) -> Vec<u8> {
        let inputs: Vec<&[u8]> = inputs.iter().map(Buffer::bytes).collect();
        let mut out = Buffer::from_bytes(&vec![0xa5; kernel.outputs()[0].1 * size_of::<T>()]).unwrap();
        kernel.run_on(engine, &inputs, &mut [out.bytes_mut()]);
        out.bytes().to_vec()
    }

    fn same_on_every_level<T: SoftmaxReal>(kernel: &Attention, draw: &mut Draw) {
        let inputs: Vec<Buffer> = kernel.inputs().into_iter().map(|(dtype, n)| drawn(draw, dtype, n, false)).collect();
        let best = bits::<T>(kernel, &Engine::best(), &inputs);
        for level in Level::available() {
            let engine = Engine { level, ..Engine::best() };
            assert_eq!(best, bits::<T>(kernel, &engine, &inputs), "{kernel} on {}", level.name());
        }
    }

    #[test]
    fn bits_are_those_of_every_level() {
        let mut draw = Draw::new(3);
        for _ in 0..20 {
            for &pass in AttentionPass::ALL {
                same_on_every_level::<f32>(&of_shape(&mut draw, DType::F32, pass), &mut draw);
                same_on_every_level::<f64>(&of_shape(&mut draw, DType::F64, pass), &mut draw);
            }
        }
    }

    /// A number that is not finite, in the last sequence, has all of the work done in the first one as well.
    #[test]
    fn what_a_mask_leaves_out_changes_no_bit() {
        let mut draw = Draw::new(4);
        let shapes = [[128, 128], [130, 200], [300, 129], [31, 33], [97, 97]];
        for ([queries, keys], &pass) in
            shapes.into_iter().flat_map(|shape| AttentionPass::ALL.iter().map(move |p| (shape, p)))
        {
            let kernel = Attention {
                batch: 2,
                heads: 2,
                queries,
                keys,
                features: 19,
                value_features: 9,
                causal: true,
                ..small(DType::F32, pass)
            }
            .contiguous();
            let mut inputs = inputs(&mut draw, &kernel);
            let engine = Engine::best();
            let of_first = |kernel: &Attention, inputs: &[Buffer]| -> Vec<u8> {
                let bytes = bits::<f32>(kernel, &engine, inputs);
                let mut at = 0;
                kernel.result_lens().into_iter().fold(Vec::new(), |mut first, len| {
                    first.extend_from_slice(&bytes[at..at + len * size_of::<f32>() / 2]);
                    at += len * size_of::<f32>();
                    first
                })
            };
            let left_out = of_first(&kernel, &inputs);
            let mut values: Vec<f32> = view(inputs[2].bytes(), kernel.inputs()[2].1, "x").to_vec();
            *values.last_mut().expect("a value") = f32::NAN;
            inputs[2] = Buffer::copy_of(&values).unwrap();
            assert!(left_out == of_first(&kernel, &inputs), "{kernel}");
        }
    }

    /// The same kernel on dense copies of its operands, and its results one after the other.
    fn dense_results(kernel: &Attention, engine: &Engine, inputs: &[Buffer]) -> Vec<f64> {
        let dense = Attention { joined: false, ..kernel.clone() }.contiguous();
        let mut copies = Vec::new();
        for (position, (buffer, (_, len))) in inputs.iter().zip(kernel.inputs()).enumerate() {
            let all: &[f64] = view(buffer.bytes(), len, "x");
            let operand = [Some(0), Some(1), Some(2), None, None, Some(3)][position];
            let copy = operand.map_or(all.to_vec(), |operand| kernel.gathered(operand, all));
            copies.push(Buffer::copy_of(&copy).unwrap());
        }
        let made = bits::<f64>(&dense, engine, &copies);
        let made: &[f64] = view(&made, dense.outputs()[0].1, "results");
        if !kernel.joined {
            return made.to_vec();
        }
        let [queries, keys, ..] = kernel.lens();
        let (parts, rows) = ([0, queries, queries + keys, made.len()], kernel.batch * kernel.queries);
        let row = |row: usize| {
            parts.windows(2).flat_map(move |ends| {
                let width = (ends[1] - ends[0]) / rows.max(1);
                made[ends[0] + row * width..][..width].to_vec()
            })
        };
        (0..rows).flat_map(row).collect()
    }

    /// Numbers that are not finite decide what a mask leaves out, wherever their operand lies.
    #[test]
    fn strides_change_no_bit() {
        let (mut draw, engine) = (Draw::new(6), Engine::best());
        let specials = [None, Some(f64::NAN), Some(f64::INFINITY), Some(1e300)];
        for n in 0..160 {
            let kernel = of_shape(&mut draw, DType::F64, AttentionPass::ALL[n % 2]);
            let kernel = Attention { causal: n % 3 > 0, ..kernel };
            let mut inputs = inputs(&mut draw, &kernel);
            let argument = draw.below(inputs.len());
            let mut values: Vec<f64> = view(inputs[argument].bytes(), kernel.inputs()[argument].1, "x").to_vec();
            if let (Some(special), false) = (specials[draw.below(4)], values.is_empty()) {
                let at = draw.below(values.len());
                values[at] = special;
                inputs[argument] = Buffer::copy_of(&values).unwrap();
            }
            let made = bits::<f64>(&kernel, &engine, &inputs);
            let made: &[f64] = view(&made, kernel.outputs()[0].1, "results");
            let expected = dense_results(&kernel, &engine, &inputs);
            let is_same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
            assert!(made.len() == expected.len() && made.iter().zip(&expected).all(is_same), "{kernel}");
        }
    }

    #[test]
    fn masked_blocks_count_for_nothing() {
        let kernel = |causal, pass| {
            let shape = Attention { batch: 2, heads: 3, queries: 10, keys: 4, ..small(DType::F32, pass) };
            Attention { features: 5, value_features: 7, causal, ..shape }.contiguous()
        };
        assert_eq!(kernel(false, AttentionPass::Forward).flops(), 2 * 6 * 40 * 12);
        assert_eq!(kernel(true, AttentionPass::Gradient).flops(), 2 * 6 * (10 + 6 * 4) * 29);
        let forward = kernel(true, AttentionPass::Forward);
        assert!(forward.is_valid());
        assert!(!Attention { dtype: DType::I32, ..forward.clone() }.is_valid());
        assert!(!Attention { scale: Scalar::from_f64(1.0, DType::F64), ..forward.clone() }.is_valid());
        assert!(!Attention { operands: Vec::new(), ..forward.clone() }.is_valid());
        assert!(!Attention { joined: true, ..kernel(true, AttentionPass::Gradient) }.is_valid());
    }
}
