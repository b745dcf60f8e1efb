//! The least and the largest value of integers that follow from coordinates and constants.

use retape_runtime::DType;

use super::divisor_of_remainder;
use crate::ir::{Binary, Inst, KernelBuilder, ValueId};

/// Instructions that are looked through, for values with many uses would be looked at as often as there are ways.
const MAX_DEPTH: usize = 12;

/// Both ends are values of the interval.
pub(crate) type Interval = (i64, i64);

/// The interval that the values of an integer lie in, if it can be told from coordinates and constants.
pub(crate) fn bounds(k: &KernelBuilder, v: ValueId) -> Option<Interval> {
    of(k, v, MAX_DEPTH, |_| None)
}

/// The same, also if it can be told from minima and maxima with something unknown.
pub(crate) fn bounds_of_clamped(k: &KernelBuilder, v: ValueId) -> Option<Interval> {
    of(k, v, MAX_DEPTH, all_values)
}

/// The values of a dtype of integers.
fn all_values(dtype: DType) -> Option<Interval> {
    match dtype {
        DType::I64 => Some((i64::MIN, i64::MAX)),
        DType::I32 => Some((i32::MIN.into(), i32::MAX.into())),
        DType::U32 => Some((0, u32::MAX.into())),
        DType::U8 => Some((0, u8::MAX.into())),
        DType::F32 | DType::F64 | DType::F16 | DType::Bf16 | DType::Bool => None,
    }
}

/// `unknown` says what is known of an operand of a minimum or a maximum of which nothing else is.
fn of(k: &KernelBuilder, v: ValueId, depth: usize, unknown: fn(DType) -> Option<Interval>) -> Option<Interval> {
    let (dtype, depth) = (k.value(v).dtype(), depth.checked_sub(1)?);
    let of = |k, v, depth| of(k, v, depth, unknown);
    let (low, high) = match k.inst(v) {
        Inst::Const(c) => c.to_i64().map(|c| (c, c)),
        Inst::Index(axis) => Some((0, i64::try_from(k.extent(axis)).ok()?.checked_sub(1)?)),
        Inst::Cast(_, x) => of(k, x, depth),
        Inst::Select(_, x, y) => {
            let (x, y) = (of(k, x, depth)?, of(k, y, depth)?);
            Some((x.0.min(y.0), x.1.max(y.1)))
        }
        Inst::Binary(op @ (Binary::Min | Binary::Max), x, y) => {
            let or_unknown = |v| of(k, v, depth).or_else(|| unknown(dtype));
            combined(op, dtype, or_unknown(x)?, or_unknown(y)?)
        }
        Inst::Binary(op, x, y) => {
            let (of_x, of_y) = (of(k, x, depth)?, of(k, y, depth)?);
            let divisor = if op == Binary::Sub { divisor_of_remainder(k, x, y) } else { None };
            match divisor {
                Some(divisor) if of_x.0 >= 0 => Some((0, of_x.1.min(i64::from(divisor) - 1))),
                _ => combined(op, dtype, of_x, of_y),
            }
        }
        Inst::Load(..)
        | Inst::LoadAt(..)
        | Inst::Unary(..)
        | Inst::Compare(..)
        | Inst::Fma(..)
        | Inst::Bitcast(..)
        | Inst::Call1(..)
        | Inst::Call2(..)
        | Inst::Reduce(..) => None,
    }?;
    // A value that does not fit the dtype would wrap.
    (low <= high && fits(dtype, low) && fits(dtype, high)).then_some((low, high))
}

fn fits(dtype: DType, x: i64) -> bool {
    all_values(dtype).is_some_and(|(low, high)| (low..=high).contains(&x))
}

fn combined(op: Binary, dtype: DType, x: Interval, y: Interval) -> Option<Interval> {
    match op {
        Binary::Add => Some((x.0.checked_add(y.0)?, x.1.checked_add(y.1)?)),
        Binary::Sub => Some((x.0.checked_sub(y.1)?, x.1.checked_sub(y.0)?)),
        Binary::Mul => {
            let corners = [x.0.checked_mul(y.0)?, x.0.checked_mul(y.1)?, x.1.checked_mul(y.0)?, x.1.checked_mul(y.1)?];
            Some((corners.into_iter().min()?, corners.into_iter().max()?))
        }
        Binary::Min => Some((x.0.min(y.0), x.1.min(y.1))),
        Binary::Max => Some((x.0.max(y.0), x.1.max(y.1))),
        Binary::Div if y.0 > 0 && x.0 >= 0 => Some((x.0 / y.1, x.1 / y.0)),
        Binary::Rem if y.0 > 0 && x.0 >= 0 => Some((0, x.1.min(y.1 - 1))),
        Binary::Shr if y.0 == y.1 && x.0 >= 0 => {
            // Longer distances count modulo the width of the dtype, of which the narrowest has 8 bits.
            let distance = u32::try_from(y.0).ok().filter(|distance| *distance < 8 * dtype.size() as u32)?;
            Some((x.0 >> distance, x.1 >> distance))
        }
        Binary::MulHigh if x.0 >= 0 && y.0 >= 0 => {
            let high = |x: i64, y: i64| x.checked_mul(y).map(|product| product >> 32);
            Some((high(x.0, y.0)?, high(x.1, y.1)?))
        }
        Binary::Div
        | Binary::Rem
        | Binary::And
        | Binary::Or
        | Binary::Xor
        | Binary::Shl
        | Binary::Shr
        | Binary::MulHigh => None,
    }
}
