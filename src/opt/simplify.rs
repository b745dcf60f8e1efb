//! Named local rewrites of arithmetic.
//!
//! All are exact: results keep their bits, infinities and signed zeros included (those of NaN are open, see
//! [`super`]). So `x + 0` stays, for it turns -0 into +0, while `x + -0` goes. A rule never makes the graph costlier.

use retape_runtime::{DType, Scalar};
use smallvec::SmallVec;

use super::convolution::{conv_filter_grad_is_product, conv_input_grad_is_product, conv_is_product};
use super::rewrite::{RewriteSite, Rule, rules};
use crate::ops::{Add, Div, Mul, Neg, Op, Reduction, Reshape, Select, Sub};
use crate::types::ValueId;

pub(super) const RULES: &[Rule] = rules![
    add_zero,
    sub_zero,
    zero_sub,
    mul_one,
    mul_minus_one,
    div_one,
    div_power_of_two,
    neg_neg,
    add_neg,
    sub_neg,
    mul_neg_neg,
    div_neg_neg,
    mul_neg_constant,
    neg_mul_constant,
    not_not,
    select_constant,
    select_same,
    select_not,
    cast_same,
    cast_cast,
    stop_gradient,
    reshape_same,
    broadcast_same,
    slice_same,
    pad_same,
    reduce_nothing,
    reduce_extent_one,
    conv_is_product,
    conv_input_grad_is_product,
    conv_filter_grad_is_product,
];

/// The argument of the negation that a value is, if it is one.
fn negated(at: &RewriteSite<'_>, id: ValueId) -> Option<ValueId> {
    let node = at.node(id);
    matches!(node.op, Op::Neg(_)).then(|| node.args[0])
}

/// A constant argument and the other one, for an op that takes them in either order.
fn constant_and_other(at: &RewriteSite<'_>) -> Option<(usize, ValueId)> {
    let constant = (0..2).find(|&arg| at.splat(arg).is_some())?;
    Some((constant, at.args[1 - constant]))
}

/// The number that a sum does not change by, whatever the sign of a zero: -0 for floats.
fn neutral(dtype: DType) -> f64 {
    if dtype.is_float() { -0.0 } else { 0.0 }
}

/// `x + -0` is `x` for floats, `x + 0` for integers.
fn add_zero(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::Add(_) = at.op else { return None };
    let (constant, x) = constant_and_other(at)?;
    at.is_number(constant, neutral(at.ty.dtype)).then_some(x)
}

/// `x - 0` is `x`.
fn sub_zero(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::Sub(_) = at.op else { return None };
    at.is_number(1, 0.0).then_some(at.args[0])
}

/// `-0 - x` is `-x` for floats, `0 - x` for integers.
fn zero_sub(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::Sub(_) = at.op else { return None };
    if at.is_number(0, neutral(at.ty.dtype)) { at.apply(Neg, &at.args[1..]) } else { None }
}

/// `x * 1` is `x`.
fn mul_one(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::Mul(_) = at.op else { return None };
    let (constant, x) = constant_and_other(at)?;
    at.is_number(constant, 1.0).then_some(x)
}

/// `x * -1` is `-x`.
fn mul_minus_one(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::Mul(_) = at.op else { return None };
    let (constant, x) = constant_and_other(at)?;
    // An unsigned dtype has no -1, and the nearest number it has is 0.
    let minus_one = at.splat(constant)?.to_f64() == -1.0;
    if minus_one { at.apply(Neg, &[x]) } else { None }
}

/// `x / 1` is `x`.
fn div_one(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::Div(_) = at.op else { return None };
    at.is_number(1, 1.0).then_some(at.args[0])
}

/// `x / c` is `x * (1 / c)` if `c` is a power of two whose reciprocal is a normal number.
fn div_power_of_two(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::Div(_) = at.op else { return None };
    let reciprocal = reciprocal(at.splat(1)?)?;
    let reciprocal = at.constant(reciprocal, &at.ty.shape)?;
    at.apply(Mul, &[at.args[0], reciprocal])
}

/// The reciprocal, if it is normal and exact, and the number normal too.
fn reciprocal(c: Scalar) -> Option<Scalar> {
    let x = c.to_f64();
    let (smallest, fraction_bits) = match c.dtype {
        DType::F32 => (f64::from(f32::MIN_POSITIVE), 52),
        DType::F64 => (f64::MIN_POSITIVE, 52),
        DType::F16 | DType::Bf16 | DType::I32 | DType::I64 | DType::U32 | DType::U8 | DType::Bool => return None,
    };
    let power_of_two = x.is_normal() && x.to_bits() & ((1 << fraction_bits) - 1) == 0;
    let normal = x.abs() >= smallest && x.abs().recip() >= smallest;
    (power_of_two && normal).then(|| Scalar::from_f64(x.recip(), c.dtype))
}

/// `-(-x)` is `x`.
fn neg_neg(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::Neg(_) = at.op else { return None };
    negated(at, at.args[0])
}

/// `x + -y` is `x - y`, and `-x + y` is `y - x`.
fn add_neg(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::Add(_) = at.op else { return None };
    let [x, y] = *at.args else { return None };
    match (negated(at, x), negated(at, y)) {
        (_, Some(y)) => at.apply(Sub, &[x, y]),
        (Some(x), None) => at.apply(Sub, &[y, x]),
        (None, None) => None,
    }
}

/// `x - -y` is `x + y`.
fn sub_neg(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::Sub(_) = at.op else { return None };
    let y = negated(at, at.args[1])?;
    at.apply(Add, &[at.args[0], y])
}

/// `-x * -y` is `x * y`.
fn mul_neg_neg(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::Mul(_) = at.op else { return None };
    let (x, y) = (negated(at, at.args[0])?, negated(at, at.args[1])?);
    at.apply(Mul, &[x, y])
}

/// `-x / -y` is `x / y`; for floats, since the least integer is its own negative.
fn div_neg_neg(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::Div(_) = at.op else { return None };
    let (x, y) = (negated(at, at.args[0])?, negated(at, at.args[1])?);
    if at.ty.dtype.is_float() { at.apply(Div, &[x, y]) } else { None }
}

/// `-x * c` is `x * -c`.
fn mul_neg_constant(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::Mul(_) = at.op else { return None };
    let (constant, x) = constant_and_other(at)?;
    let (x, c) = (negated(at, x)?, at.splat(constant)?);
    scaled(at, x, minus(c)?)
}

/// `-(x * c)` is `x * -c`.
fn neg_mul_constant(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::Neg(_) = at.op else { return None };
    let product = at.node(at.args[0]);
    let Op::Mul(_) = product.op else { return None };
    let [x, y] = *product.args else { return None };
    let (x, c) = match (at.splat_of(x), at.splat_of(y)) {
        (_, Some(c)) => (x, c),
        (Some(c), None) => (y, c),
        (None, None) => return None,
    };
    scaled(at, x, minus(c)?)
}

fn scaled(at: &mut RewriteSite<'_>, x: ValueId, factor: Scalar) -> Option<ValueId> {
    let factor = at.constant(factor, &at.ty.shape)?;
    at.apply(Mul, &[x, factor])
}

/// The negative of a number; none of NaN.
fn minus(c: Scalar) -> Option<Scalar> {
    let of = |bits| Some(Scalar { dtype: c.dtype, bits });
    match c.dtype {
        DType::F32 | DType::F64 if c.to_f64().is_nan() => None,
        DType::F32 => of(c.bits ^ 1 << 31),
        DType::F64 => of(c.bits ^ 1 << 63),
        DType::I32 | DType::U32 => of((c.bits as u32).wrapping_neg().into()),
        DType::I64 => of(c.bits.wrapping_neg()),
        DType::U8 => of((c.bits as u8).wrapping_neg().into()),
        DType::F16 | DType::Bf16 | DType::Bool => None,
    }
}

/// `!!x` is `x`.
fn not_not(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let (Op::Not(_), Some((Op::Not(_), x))) = (at.op, at.inner()) else { return None };
    Some(x)
}

/// A choice by a constant is made now.
fn select_constant(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let (Op::Select(_), [_, x, y]) = (at.op, at.args) else { return None };
    let condition = at.splat(0)?;
    Some(if condition.bits != 0 { *x } else { *y })
}

/// A choice between a value and itself is that value.
fn select_same(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let (Op::Select(_), [_, x, y]) = (at.op, at.args) else { return None };
    (x == y).then_some(*x)
}

/// A choice by `!c` is the choice by `c` the other way round.
fn select_not(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let (Op::Select(_), [condition, x, y]) = (at.op, at.args) else { return None };
    let node = at.node(*condition);
    let Op::Not(_) = node.op else { return None };
    at.apply(Select, &[node.args[0], *y, *x])
}

/// A cast to the dtype that is there already does nothing.
fn cast_same(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::Cast(_) = at.op else { return None };
    (at.arg_ty(0) == at.ty).then_some(at.args[0])
}

/// A cast after one that loses nothing is one cast.
fn cast_cast(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let (Op::Cast(outer), Some((Op::Cast(inner), x))) = (at.op, at.inner()) else { return None };
    if holds_all(inner.dtype, at.node(x).ty.dtype) { at.apply(outer.clone(), &[x]) } else { None }
}

/// Whether a dtype has all values of another one.
fn holds_all(wide: DType, narrow: DType) -> bool {
    match narrow {
        DType::Bool => true,
        DType::U8 => wide != DType::Bool,
        DType::I32 => matches!(wide, DType::I32 | DType::I64 | DType::F64),
        DType::U32 => matches!(wide, DType::U32 | DType::I64 | DType::F64),
        DType::I64 => wide == DType::I64,
        DType::F16 | DType::Bf16 => wide == narrow || wide.is_float(),
        DType::F32 => wide.is_float(),
        DType::F64 => wide == DType::F64,
    }
}

/// Derivatives have been taken, so there is none left to stop.
fn stop_gradient(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::StopGradient(_) = at.op else { return None };
    Some(at.args[0])
}

/// A reshape to the shape that is there already does nothing.
fn reshape_same(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::Reshape(_) = at.op else { return None };
    (at.arg_ty(0) == at.ty).then_some(at.args[0])
}

/// A broadcast to the shape that is there already does nothing.
fn broadcast_same(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::BroadcastTo(_) = at.op else { return None };
    (at.arg_ty(0) == at.ty).then_some(at.args[0])
}

/// A slice of all elements in their order is its argument.
fn slice_same(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::Slice(slice) = at.op else { return None };
    let forward = slice.step.iter().zip(&slice.start).zip(at.ty.shape.iter());
    let whole = forward.into_iter().all(|((&step, &start), &extent)| start == 0 && (step == 1 || extent <= 1));
    (whole && at.arg_ty(0) == at.ty).then_some(at.args[0])
}

/// Padding with nothing does nothing.
fn pad_same(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Op::Pad(pad) = at.op else { return None };
    let ends = pad.low.iter().chain(&pad.high).all(|&n| n == 0);
    // Between fewer than two elements there is no room for constants.
    let between = pad.interior.iter().zip(at.ty.shape.iter()).all(|(&n, &extent)| n == 0 || extent < 2);
    (ends && between).then_some(at.args[0])
}

/// A reduction over no axes is its argument.
fn reduce_nothing(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    at.op.facts().reduction?.axes.is_empty().then_some(at.args[0])
}

/// Axes of extent 1 need no reduction. If no other axis is left, sums of floats still need `+ 0`, which they start
/// from.
fn reduce_extent_one(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let Reduction { axes: reduced, over } = at.op.facts().reduction?;
    let shape = at.arg_ty(0).shape.clone();
    let is_dropped = |axis: usize| reduced.contains(&axis) && shape[axis] == 1;
    let kept: SmallVec<[usize; 4]> = (0..shape.rank()).filter(|&axis| !is_dropped(axis)).collect();
    if kept.len() == shape.rank() {
        return None;
    }
    let without = Reshape { shape: kept.iter().map(|&axis| shape[axis]).collect() };
    let x = at.apply(without, at.args)?;
    let axes: SmallVec<[usize; 4]> = (0..kept.len()).filter(|&axis| reduced.contains(&kept[axis])).collect();
    if !axes.is_empty() {
        return at.apply(over(axes), &[x]);
    }
    let Op::ReduceSum(_) = at.op else { return Some(x) };
    if !at.ty.dtype.is_float() {
        return Some(x);
    }
    let zero = at.constant(Scalar::from_f64(0.0, at.ty.dtype), &at.ty.shape)?;
    at.apply(Add, &[x, zero])
}
