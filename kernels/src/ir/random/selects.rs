//! Kernels of selects whose sides are long, and which share conditions, operands and each other.

use retape_runtime::DType;

use super::Rng;
use crate::ir::{Affine, AxisId, Compare, Func1, Kernel, KernelBuilder, ReductionOp, Value};

/// A verified kernel whose results are all exact, once it is expanded.
pub fn random_kernel_of_selects(seed: u64) -> Kernel {
    let mut rng = Rng::new(seed);
    let k = KernelBuilder::new();
    let [kept, reduced] = [1 + rng.below(40), 1 + rng.below(40)];
    let folds = rng.one_in(2);
    k.axis(kept, false);
    k.axis(reduced, folds);
    let strides = if rng.one_in(2) { [reduced as i64, 1] } else { [1, kept as i64] };
    let [once, row, all] = [[0, 0], [1, 0], strides].map(|strides| Affine::new(0, &strides));
    let mut load = |len: usize, at: &Affine| {
        let dtype = rng.pick(&[DType::F32, DType::F32, DType::F64, DType::I32, DType::I64, DType::U8]);
        k.load(k.param(dtype, len, false), at.clone())
    };
    let (number, rows) = (load(1, &once), [load(kept, &row), load(kept, &row)]);
    let elements = [(); 3].map(|()| load(kept * reduced, &all));
    let table = k.param(DType::F32, 7, false);
    let mut make = Maker { rng, values: vec![number], conditions: vec![] };
    make.steps(1);
    make.values.extend(rows);
    make.steps(3);
    let mut tail = Maker { rng: Rng::new(!seed), values: make.values.clone(), conditions: make.conditions.clone() };
    make.values.extend(elements);
    make.values.push(k.index(AxisId(1)));
    make.steps(2);
    if make.rng.one_in(3) {
        let at = make.value().cast(DType::I64);
        make.values.push(k.load_at(table, at));
    }
    make.steps(3);
    let of_points = make.value();
    let mut results = vec![(kept * reduced, &all, of_points), (kept * reduced, &all, make.value())];
    if folds {
        let folded = match make.rng.pick(&[ReductionOp::Max, ReductionOp::Min, ReductionOp::Sum]) {
            ReductionOp::Sum => of_points.cast(DType::I64).reduce(ReductionOp::Sum),
            other @ (ReductionOp::Prod | ReductionOp::Max | ReductionOp::Min | ReductionOp::All | ReductionOp::Any) => {
                of_points.reduce(other)
            }
        };
        tail.values.push(folded);
        tail.steps(3);
        results.truncate(make.rng.below(3));
        results.extend([(kept, &row, folded), (kept, &row, tail.value())]);
    }
    for (len, at, value) in results {
        k.store(k.param(value.dtype(), len, true), at.clone(), value);
    }
    k.finish()
}

/// The values made so far, and the conditions for selects between them.
struct Maker<'k> {
    rng: Rng,
    values: Vec<Value<'k>>,
    conditions: Vec<Value<'k>>,
}

impl<'k> Maker<'k> {
    /// Any value, one of the last half of the time.
    fn value(&mut self) -> Value<'k> {
        let n = self.values.len();
        let first = if self.rng.one_in(2) { n.saturating_sub(6) } else { 0 };
        self.values[first + self.rng.below(n - first)]
    }

    fn value_as(&mut self, dtype: DType) -> Value<'k> {
        let value = self.value();
        if value.dtype() == dtype { value } else { value.cast(dtype) }
    }

    /// Instructions, of which somebody else may use one.
    fn chain(&mut self, mut value: Value<'k>, len: usize) -> Value<'k> {
        let dtype = value.dtype();
        if dtype == DType::F32 && self.rng.one_in(4) {
            value = value.call1(self.rng.pick(&[Func1::Sin, Func1::Cos]));
        }
        let shared = if self.rng.one_in(3) { self.rng.below(len) } else { len };
        for n in 0..len {
            let other = if self.rng.one_in(3) { self.value_as(dtype) } else { value.like(n as f64) };
            value = match self.rng.below(4) {
                0 => value + other,
                1 => value - other,
                2 => value.max(other),
                _ => value * value.like(0.5) - other,
            };
            if n == shared {
                self.values.push(value);
            }
        }
        value
    }

    /// A condition, two times of three one that others have.
    fn condition(&mut self) -> Value<'k> {
        if !self.conditions.is_empty() && !self.rng.one_in(3) {
            return self.rng.pick(&self.conditions);
        }
        let x = self.value();
        let y = if self.rng.one_in(2) { self.value_as(x.dtype()) } else { x.like(self.rng.below(4) as f64 - 1.0) };
        let op = self.rng.pick(Compare::ALL);
        let mut condition = x.compare(op, y);
        if let Some(&other) = self.conditions.last().filter(|_| self.rng.one_in(3)) {
            condition = condition.and(other);
        }
        self.conditions.push(condition);
        condition
    }

    /// Some selects on a condition each, up to `most` times.
    fn steps(&mut self, most: usize) {
        const DTYPES: [DType; 7] = [DType::F32, DType::F32, DType::F64, DType::I32, DType::I64, DType::U8, DType::U32];
        for _ in 0..self.rng.below(most + 1) {
            let condition = self.condition();
            for _ in 0..1 + self.rng.below(3) {
                let dtype = self.rng.pick(&DTYPES);
                let (mut from, len) = (self.value_as(dtype), if self.rng.one_in(4) { 4 } else { 80 });
                if self.rng.one_in(3) {
                    // So that the side is harmless where it is not taken.
                    from = condition.select(from, from.like(0.5));
                }
                let side = self.chain(from, len);
                let other = match self.rng.below(4) {
                    0 => side.like(2.0),
                    1 => self.chain(from, 5),
                    _ => self.value_as(dtype),
                };
                let is_half = dtype == DType::F32 && self.rng.one_in(5);
                let [side, other] = [side, other].map(|x| if is_half { x.cast(DType::F16) } else { x });
                let chosen =
                    if self.rng.one_in(2) { condition.select(side, other) } else { condition.select(other, side) };
                self.values.push(if is_half { chosen.cast(dtype) } else { chosen });
            }
        }
    }
}
