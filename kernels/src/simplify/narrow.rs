//! Coordinates, and what is computed from them, in 32 bits where these hold them.
//!
//! Coordinates have 64 bits. Positions and masks that follow from them seldom need more than 32, of which a vector holds
//! twice as many, and for which the machines have minima, products and comparisons of all kinds.

use retape_runtime::DType;

use super::bounds::{bounds, bounds_of_clamped};
use crate::ir::{Binary, Inst, KernelBuilder, Value, ValueId};

/// The integers that are cast to 32 bits as they are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaves {
    /// Coordinates, and conversions of short integers.
    Coordinates,
    /// Those, and minima and maxima of what 32 bits need not hold.
    Clamped,
}

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
    // An index that was loaded has all its bits until it is clamped.
    let is_sum = matches!(k.inst(x), Inst::Binary(Binary::Add | Binary::Sub, ..));
    let clamped = || narrowed_from(k, x, Leaves::Clamped).filter(|_| is_sum);
    let position = narrowed(k, x).or_else(clamped)?;
    Some(k.load_at(param, position.cast(DType::I64)))
}

fn both<'k>(k: &'k KernelBuilder, x: ValueId, y: ValueId) -> Option<[Value<'k>; 2]> {
    (k.value(x).dtype() == DType::I64).then_some(())?;
    Some([narrowed(k, x)?, narrowed(k, y)?])
}

/// An integer of 64 bits as one of 32, if that holds it and all that it is computed from.
fn narrowed(k: &KernelBuilder, v: ValueId) -> Option<Value<'_>> {
    narrowed_from(k, v, Leaves::Coordinates)
}

fn narrowed_from(k: &KernelBuilder, v: ValueId, leaves: Leaves) -> Option<Value<'_>> {
    leaves.fit(k, v, MAX_DEPTH).then(|| leaves.in_32_bits(k, v))
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

impl Leaves {
    /// Whether 32 bits hold a value, and all that it is computed from.
    fn fit(self, k: &KernelBuilder, v: ValueId, depth: usize) -> bool {
        let bounds = if self == Leaves::Clamped { bounds_of_clamped(k, v) } else { bounds(k, v) };
        let is_short = bounds.is_some_and(|(low, high)| low >= i64::from(i32::MIN) && high <= i64::from(i32::MAX));
        let Some(depth) = depth.checked_sub(1).filter(|_| is_short) else { return false };
        match k.inst(v) {
            Inst::Const(_) | Inst::Index(_) => true,
            Inst::Cast(_, x) => k.value(x).dtype().size() <= 4,
            Inst::Select(_, x, y) => self.fit(k, x, depth) && self.fit(k, y, depth),
            Inst::Binary(op, ..) if self.has(op) => true,
            Inst::Binary(op, x, y) => is_exact(op) && self.fit(k, x, depth) && self.fit(k, y, depth),
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

    /// Whether values of an operation are leaves.
    fn has(self, op: Binary) -> bool {
        self == Leaves::Clamped && matches!(op, Binary::Min | Binary::Max)
    }

    /// A value that fits, in 32 bits.
    fn in_32_bits(self, k: &KernelBuilder, v: ValueId) -> Value<'_> {
        match k.inst(v) {
            Inst::Select(c, x, y) => k.value(c).select(self.in_32_bits(k, x), self.in_32_bits(k, y)),
            Inst::Binary(op, x, y) if !self.has(op) => self.in_32_bits(k, x).binary(op, self.in_32_bits(k, y)),
            Inst::Cast(_, x) => k.value(x).cast(DType::I32),
            Inst::Const(_)
            | Inst::Index(_)
            | Inst::Load(..)
            | Inst::LoadAt(..)
            | Inst::Unary(..)
            | Inst::Binary(..)
            | Inst::Compare(..)
            | Inst::Fma(..)
            | Inst::Bitcast(..)
            | Inst::Call1(..)
            | Inst::Call2(..)
            | Inst::Reduce(..) => k.value(v).cast(DType::I32),
        }
    }
}
