//! Integers that are affine functions of coordinates, and what follows from that.

use retape_runtime::{DType, Scalar};

use super::bounds::bounds;
use super::constant;
use crate::ir::{Affine, AxisId, Binary, Compare, Inst, KernelBuilder, Value, ValueId};

/// Instructions that are looked through, as for [`bounds`].
const MAX_DEPTH: usize = 12;

/// `offset + sum(stride * coordinate)` over different axes, whose strides are not 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AffineValue {
    pub(crate) offset: i64,
    pub(crate) terms: Vec<(AxisId, i64)>,
}

impl AffineValue {
    /// The function that an integer is, if it is one and nothing wraps on the way to it.
    pub(crate) fn of(k: &KernelBuilder, v: ValueId) -> Option<AffineValue> {
        bounds(k, v)?;
        AffineValue::within_bounds(k, v, MAX_DEPTH)
    }

    fn within_bounds(k: &KernelBuilder, v: ValueId, depth: usize) -> Option<AffineValue> {
        let depth = depth.checked_sub(1)?;
        let of = |v| AffineValue::within_bounds(k, v, depth);
        match k.inst(v) {
            Inst::Const(c) => Some(AffineValue { offset: c.to_i64()?, terms: vec![] }),
            Inst::Index(axis) if k.extent(axis) == 1 => Some(AffineValue::default()),
            Inst::Index(axis) => Some(AffineValue { offset: 0, terms: vec![(axis, 1)] }),
            Inst::Cast(_, x) => of(x),
            Inst::Binary(Binary::Add, x, y) => of(x)?.plus(1, &of(y)?),
            Inst::Binary(Binary::Sub, x, y) => of(x)?.plus(-1, &of(y)?),
            Inst::Binary(Binary::Mul, x, y) => {
                let (factor, x) = if let Some(c) = constant(k, x) { (c, y) } else { (constant(k, y)?, x) };
                AffineValue::default().plus(factor.to_i64()?, &of(x)?)
            }
            Inst::Binary(..)
            | Inst::Select(..)
            | Inst::Load(..)
            | Inst::LoadAt(..)
            | Inst::Unary(..)
            | Inst::Compare(..)
            | Inst::Fma(..)
            | Inst::Bitcast(..)
            | Inst::Call1(..)
            | Inst::Call2(..)
            | Inst::Reduce(..) => None,
        }
    }

    /// The sum of this and a multiple of another.
    pub(crate) fn plus(mut self, factor: i64, other: &AffineValue) -> Option<AffineValue> {
        self.offset = self.offset.checked_add(factor.checked_mul(other.offset)?)?;
        for &(axis, stride) in &other.terms {
            let more = factor.checked_mul(stride)?;
            match self.terms.iter_mut().find(|(known, _)| *known == axis) {
                Some((_, stride)) => *stride = stride.checked_add(more)?,
                None => self.terms.push((axis, more)),
            }
        }
        self.terms.retain(|&(_, stride)| stride != 0);
        Some(self)
    }

    /// The least and the largest value.
    pub(crate) fn bounds(&self, k: &KernelBuilder) -> Option<(i64, i64)> {
        let (mut low, mut high) = (self.offset, self.offset);
        for &(axis, stride) in &self.terms {
            let reach = stride.checked_mul(i64::try_from(k.extent(axis)).ok()?.checked_sub(1)?)?;
            if reach < 0 { low = low.checked_add(reach)? } else { high = high.checked_add(reach)? }
        }
        Some((low, high))
    }

    /// The quotient and the remainder by a positive number, if both are affine: the terms that are multiples of it, and
    /// others that stay below it.
    fn divided(&self, k: &KernelBuilder, divisor: i64) -> Option<[AffineValue; 2]> {
        let [mut quotient, mut rest] = [(); 2].map(|()| AffineValue::default());
        (quotient.offset, rest.offset) = (self.offset.div_euclid(divisor), self.offset.rem_euclid(divisor));
        for &(axis, stride) in &self.terms {
            match stride % divisor {
                0 => quotient.terms.push((axis, stride / divisor)),
                _ => rest.terms.push((axis, stride)),
            }
        }
        let (low, high) = rest.bounds(k)?;
        (low >= 0 && high < divisor).then_some([quotient, rest])
    }

    /// The value, as a computed integer of 64 bits.
    fn value<'k>(&self, k: &'k KernelBuilder) -> Value<'k> {
        let constant = |x: i64| k.constant(Scalar { dtype: DType::I64, bits: x as u64 });
        let terms = self.terms.iter().map(|&(axis, stride)| match stride {
            1 => k.index(axis),
            _ => k.index(axis) * stride,
        });
        let sum = terms.reduce(|sum, term| sum + term);
        match sum {
            None => constant(self.offset),
            Some(sum) if self.offset == 0 => sum,
            Some(sum) => sum + self.offset,
        }
    }

    /// The element of a parameter at this position: strides by axis.
    fn position(&self, n_axes: usize) -> Affine {
        let mut strides = vec![0; n_axes];
        self.terms.iter().for_each(|&(axis, stride)| strides[axis.index()] = stride);
        Affine::new(self.offset, &strides)
    }
}

/// The least and the largest difference of two integers.
fn difference(k: &KernelBuilder, x: ValueId, y: ValueId) -> Option<(i64, i64)> {
    (k.value(x).dtype().is_int()).then_some(())?;
    if let (Some(x), Some(y)) = (AffineValue::of(k, x), AffineValue::of(k, y)) {
        return x.plus(-1, &y)?.bounds(k);
    }
    let (x, y) = (bounds(k, x)?, bounds(k, y)?);
    Some((x.0.checked_sub(y.1)?, x.1.checked_sub(y.0)?))
}

/// A comparison whose answer is the same at all coordinates.
pub(super) fn compare_bounded<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    let Inst::Compare(op, x, y) = *inst else { return None };
    let (low, high) = difference(k, x, y)?;
    let (is_true, is_false) = match op {
        Compare::Lt => (high < 0, low >= 0),
        Compare::Le => (high <= 0, low > 0),
        Compare::Eq => (low == 0 && high == 0, low > 0 || high < 0),
        Compare::Ne => (low > 0 || high < 0, low == 0 && high == 0),
    };
    (is_true || is_false).then(|| k.constant(Scalar { dtype: DType::Bool, bits: u64::from(is_true) }))
}

/// A minimum or maximum that is the same operand at all coordinates.
pub(super) fn min_max_bounded<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    let Inst::Binary(op @ (Binary::Min | Binary::Max), x, y) = *inst else { return None };
    let (low, high) = difference(k, x, y)?;
    let (least, most) = if high <= 0 { (x, y) } else { (low >= 0).then_some((y, x))? };
    Some(k.value(if op == Binary::Min { least } else { most }))
}

/// A quotient or a remainder by a constant that is affine.
pub(super) fn divided_affine<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    let Inst::Binary(op @ (Binary::Div | Binary::Rem), x, y) = *inst else { return None };
    let divisor = constant(k, y)?.to_i64().filter(|&d| d > 0)?;
    let affine = AffineValue::of(k, x)?;
    // Machines truncate.
    (affine.bounds(k)?.0 >= 0).then_some(())?;
    let [quotient, rest] = affine.divided(k, divisor)?;
    Some(if op == Binary::Div { quotient } else { rest }.value(k).cast(k.value(x).dtype()))
}

/// The sum of the parts of a division by a constant. Both parts of a division by zero are zero.
pub(super) fn divided_whole<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    let Inst::Binary(Binary::Add, x, y) = *inst else { return None };
    let whole = |product: ValueId, rest: ValueId| {
        let Inst::Binary(Binary::Mul, p, q) = k.inst(product) else { return None };
        let Inst::Binary(Binary::Rem, x, divisor) = k.inst(rest) else { return None };
        constant(k, divisor)?.to_i64().filter(|&divisor| divisor != 0)?;
        let quotient = Inst::Binary(Binary::Div, x, divisor);
        let is_whole = |(p, q): (ValueId, ValueId)| q == divisor && k.inst(p) == quotient;
        ([(p, q), (q, p)].into_iter().any(is_whole) && k.value(x).dtype().is_int()).then(|| k.value(x))
    };
    whole(x, y).or_else(|| whole(y, x))
}

/// A load at a computed position that is affine and within the parameter.
pub(super) fn load_at_affine<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    let Inst::LoadAt(param, x) = *inst else { return None };
    let affine = AffineValue::of(k, x)?;
    let (low, high) = affine.bounds(k)?;
    let len = i64::try_from(k.param_of(param).len).ok()?;
    (low >= 0 && high < len).then(|| k.load(param, affine.position(k.n_axes())))
}
