//! Coordinates, and what is computed from them, in 32 bits where these hold them.
//!
//! Coordinates have 64 bits. Positions and masks that follow from them seldom need more than 32, of which a vector holds
//! twice as many, and for which the machines have minima, products and comparisons of all kinds.

use retape_runtime::DType;

use super::bounds::bounds;
use crate::ir::{Binary, Inst, KernelBuilder, Value, ValueId};

/// Instructions that are looked through, as for [`bounds`].
const MAX_DEPTH: usize = 12;

/// A comparison of integers of 64 bits that fit 32, as one of those.
pub(super) fn compare_narrow<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    let Inst::Compare(op, x, y) = *inst else { return None };
    let [x, y] = both(k, x, y)?;
    Some(k.push(Inst::Compare(op, x.id(), y.id())))
}

/// A conversion of a computed integer of 64 bits that fits 32, as one of that.
pub(super) fn cast_narrow<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    let Inst::Cast(dtype, x) = *inst else { return None };
    let is_computed = matches!(k.inst(x), Inst::Binary(..) | Inst::Select(..));
    (is_computed && k.value(x).dtype() == DType::I64).then_some(())?;
    Some(narrowed(k, x)?.cast(dtype))
}

/// A load at a position that fits 32 bits, as one at the conversion of such a position.
pub(super) fn load_at_narrow<'k>(k: &'k KernelBuilder, inst: &Inst<ValueId>) -> Option<Value<'k>> {
    let Inst::LoadAt(param, x) = *inst else { return None };
    let is_narrow = matches!(k.inst(x), Inst::Cast(_, y) if k.value(y).dtype() == DType::I32);
    let is_constant = matches!(k.inst(x), Inst::Const(_));
    (!is_narrow && !is_constant).then_some(())?;
    Some(k.load_at(param, narrowed(k, x)?.cast(DType::I64)))
}

fn both<'k>(k: &'k KernelBuilder, x: ValueId, y: ValueId) -> Option<[Value<'k>; 2]> {
    (k.value(x).dtype() == DType::I64 && fits(k, x, MAX_DEPTH) && fits(k, y, MAX_DEPTH)).then_some(())?;
    Some([narrowed(k, x)?, narrowed(k, y)?])
}

/// An integer of 64 bits as one of 32, if that holds it and all that it is computed from.
fn narrowed(k: &KernelBuilder, v: ValueId) -> Option<Value<'_>> {
    fits(k, v, MAX_DEPTH).then(|| in_32_bits(k, v))
}

/// Whether 32 bits hold a value and all that it is computed from.
fn fits(k: &KernelBuilder, v: ValueId, depth: usize) -> bool {
    let is_short = bounds(k, v).is_some_and(|(low, high)| low >= i64::from(i32::MIN) && high <= i64::from(i32::MAX));
    let Some(depth) = depth.checked_sub(1).filter(|_| is_short) else { return false };
    match k.inst(v) {
        Inst::Const(_) | Inst::Index(_) => true,
        Inst::Cast(_, x) => k.value(x).dtype().size() <= 4,
        Inst::Select(_, x, y) => fits(k, x, depth) && fits(k, y, depth),
        Inst::Binary(op, x, y) => is_exact(op) && fits(k, x, depth) && fits(k, y, depth),
        Inst::Load(..)
        | Inst::LoadAt(..)
        | Inst::Unary(..)
        | Inst::Compare(..)
        | Inst::Fma(..)
        | Inst::Bitcast(..)
        | Inst::Call1(..)
        | Inst::Call2(..)
        | Inst::Reduce(..) => false,
    }
}

/// Whether an operation is the same on 32 bits as on 64, where operands and result fit.
fn is_exact(op: Binary) -> bool {
    match op {
        Binary::Add | Binary::Sub | Binary::Mul | Binary::Min | Binary::Max => true,
        Binary::Div
        | Binary::Rem
        | Binary::And
        | Binary::Or
        | Binary::Xor
        | Binary::Shl
        | Binary::Shr
        | Binary::MulHigh => false,
    }
}

/// A value that [`fits`], in 32 bits.
fn in_32_bits(k: &KernelBuilder, v: ValueId) -> Value<'_> {
    match k.inst(v) {
        Inst::Select(c, x, y) => k.value(c).select(in_32_bits(k, x), in_32_bits(k, y)),
        Inst::Binary(op, x, y) => in_32_bits(k, x).binary(op, in_32_bits(k, y)),
        Inst::Cast(_, x) => k.value(x).cast(DType::I32),
        Inst::Const(_)
        | Inst::Index(_)
        | Inst::Load(..)
        | Inst::LoadAt(..)
        | Inst::Unary(..)
        | Inst::Compare(..)
        | Inst::Fma(..)
        | Inst::Bitcast(..)
        | Inst::Call1(..)
        | Inst::Call2(..)
        | Inst::Reduce(..) => k.value(v).cast(DType::I32),
    }
}
