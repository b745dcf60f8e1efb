//! `cvt`: the common pairs of types as loops over the lanes, all others one value at a time.

use crate::lanes::{Alu, AluFn, Bf16, F16, F32, F64, LANES, Regs, S32, S64, U32, U64, map1, map2, put};
use crate::round::{self, Rounding, flush};
use crate::types::Ty;

/// A conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conversion {
    pub(crate) to: Ty,
    pub(crate) from: Ty,
    pub(crate) rounding: Rounding,
    /// Rounds a float to a whole number.
    pub(crate) to_integer: bool,
    pub(crate) flush: bool,
    pub(crate) saturate: bool,
    pub(crate) relu: bool,
}

/// The loop for a common conversion.
pub(crate) fn fast(conversion: &Conversion) -> Option<AluFn> {
    macro_rules! cast {
        ($from:ident => $to:ident as $value:ty) => {
            |regs, alu, mask| {
                map1::<$from, $to>(regs, alu, mask, |a| a as $value);
                Ok(())
            }
        };
    }
    if conversion.flush || conversion.saturate || conversion.relu {
        return None;
    }
    let run: AluFn = match (conversion.to, conversion.from, conversion.rounding) {
        (Ty::U64, Ty::U32, _) | (Ty::S64, Ty::U32, _) => cast!(U32 => U64 as u64),
        (Ty::S64 | Ty::U64, Ty::S32, _) => cast!(S32 => S64 as i64),
        (Ty::U32 | Ty::S32, Ty::U64 | Ty::S64, _) => cast!(U64 => U32 as u32),
        (Ty::F32, Ty::U32, Rounding::Nearest) => cast!(U32 => F32 as f32),
        (Ty::F32, Ty::S32, Rounding::Nearest) => cast!(S32 => F32 as f32),
        (Ty::F64, Ty::U32, _) => cast!(U32 => F64 as f64),
        (Ty::F64, Ty::S32, _) => cast!(S32 => F64 as f64),
        (Ty::F64, Ty::F32, _) if !conversion.to_integer => cast!(F32 => F64 as f64),
        (Ty::F32, Ty::F64, Rounding::Nearest) => cast!(F64 => F32 as f32),
        (Ty::S32, Ty::F32, Rounding::Zero) => cast!(F32 => S32 as i32),
        (Ty::U32, Ty::F32, Rounding::Zero) => cast!(F32 => U32 as u32),
        (Ty::F32, Ty::F16, _) => cast!(F16 => F32 as f32),
        (Ty::F32, Ty::Bf16, _) => cast!(Bf16 => F32 as f32),
        (Ty::F16, Ty::F32, Rounding::Nearest) => cast!(F32 => F16 as f32),
        (Ty::Bf16, Ty::F32, Rounding::Nearest) => cast!(F32 => Bf16 as f32),
        (Ty::F16x2, Ty::F32, Rounding::Nearest) => |regs, alu, mask| {
            map2::<F32, F32, crate::lanes::F16x2>(regs, alu, mask, |upper, lower| [lower, upper]);
            Ok(())
        },
        (Ty::Bf16x2, Ty::F32, Rounding::Nearest) => |regs, alu, mask| {
            map2::<F32, F32, crate::lanes::Bf16x2>(regs, alu, mask, |upper, lower| [lower, upper]);
            Ok(())
        },
        _ => return None,
    };
    Some(run)
}

/// A value between two types: exact.
#[derive(Clone, Copy, Debug)]
enum Value {
    Int(i128),
    Float(f64),
}

/// Converts the lanes of the mask; `alu.extra` has the bits of the destination.
pub(crate) fn convert(regs: &mut Regs, alu: &Alu, conversion: &Conversion, mask: u32) {
    let is_wide = conversion.from.size() == 8;
    let read = |index: u16, lane: usize| match is_wide {
        true => regs.wide[usize::from(index)][lane],
        false => u64::from(regs.narrow[usize::from(index)][lane]),
    };
    let one = |bits: u64, to: Ty| conversion.value(bits, to);
    let out: [u64; LANES] = std::array::from_fn(|lane| match conversion.to {
        _ if mask >> lane & 1 == 0 => 0,
        Ty::F16x2 => one(read(alu.a, lane), Ty::F16) << 16 | one(read(alu.b, lane), Ty::F16),
        Ty::Bf16x2 => one(read(alu.a, lane), Ty::Bf16) << 16 | one(read(alu.b, lane), Ty::Bf16),
        to => widen(one(read(alu.a, lane), to), to, alu.extra),
    });
    if alu.extra == 64 {
        put(regs, alu.d, mask, &out);
    } else {
        put(regs, alu.d, mask, &out.map(|bits| bits as u32));
    }
}

/// A value of type `ty` in a register of so many bits: signed ones fill it with their sign.
pub(crate) fn widen(bits: u64, ty: Ty, register: u32) -> u64 {
    let spare = 64 - 8 * ty.size() as u32;
    let filled = if ty.is_signed() { ((bits << spare) as i64 >> spare) as u64 } else { bits };
    if register >= 64 { filled } else { filled & ((1 << register) - 1) }
}

impl Conversion {
    /// The bits of one converted value.
    fn value(&self, bits: u64, to: Ty) -> u64 {
        match (self.read(bits), to.is_float()) {
            (Value::Int(value), false) => self.integer(value, to),
            (Value::Float(value), false) => self.integer_of(value, to),
            (value, true) => self.float(value, to),
        }
    }

    fn read(&self, bits: u64) -> Value {
        match self.from {
            Ty::F32 | Ty::Tf32 => {
                let value = f32::from_bits(bits as u32);
                Value::Float(f64::from(if self.flush { flush(value) } else { value }))
            }
            Ty::F64 => Value::Float(f64::from_bits(bits)),
            Ty::F16 => Value::Float(f64::from(round::from_f16(bits as u16))),
            Ty::Bf16 => Value::Float(f64::from(round::from_bf16(bits as u16))),
            ty => {
                let filled = widen(bits & width_mask(ty), ty, 64);
                Value::Int(if ty.is_signed() { i128::from(filled as i64) } else { i128::from(filled) })
            }
        }
    }

    /// An integer to an integer: cut off, or clamped to what the type holds.
    fn integer(&self, value: i128, to: Ty) -> u64 {
        let (low, high) = range(to);
        let value = if self.saturate { value.clamp(low, high) } else { value };
        value as u64 & width_mask(to)
    }

    /// A float to an integer always clamps; NaN is zero, but where either has 64 bits.
    fn integer_of(&self, value: f64, to: Ty) -> u64 {
        if value.is_nan() {
            let is_wide = self.from == Ty::F64 || width_mask(to) == u64::MAX;
            return if is_wide { (width_mask(to) >> 1) + 1 } else { 0 };
        }
        let (low, high) = range(to);
        (self.rounding.integer(value) as i128).clamp(low, high) as u64 & width_mask(to)
    }

    fn float(&self, value: Value, to: Ty) -> u64 {
        let mut value = match value {
            Value::Int(value) => round::of_integer(value, digits(to), self.rounding),
            Value::Float(value) if self.to_integer => self.rounding.integer(value).copysign(value),
            Value::Float(value) => value,
        };
        if self.relu && !value.is_nan() {
            value = if value > 0.0 { value } else { 0.0 };
        }
        if self.saturate {
            value = if value > 0.0 { value.min(1.0) } else { 0.0 };
        }
        match to {
            Ty::F64 => value.to_bits(),
            Ty::F32 => {
                let single = round::round(value, round::F32, self.rounding) as f32;
                let single = if self.flush { flush(single) } else { single };
                u64::from(if single.is_nan() { 0x7fff_ffff } else { single.to_bits() })
            }
            Ty::Tf32 if value.is_nan() => 0x7fff_ffff,
            Ty::Tf32 => u64::from((round::round(value, round::TF32, self.rounding) as f32).to_bits()),
            Ty::F16 => u64::from(round::to_f16(round::round(value, round::F16, self.rounding) as f32)),
            _ => u64::from(round::to_bf16(round::round(value, round::BF16, self.rounding) as f32)),
        }
    }
}

/// Bits of the significand of a type.
fn digits(ty: Ty) -> u32 {
    match ty {
        Ty::F64 => 53,
        Ty::F32 => 24,
        Ty::Bf16 => 8,
        _ => 11,
    }
}

fn width_mask(ty: Ty) -> u64 {
    if ty.size() == 8 { u64::MAX } else { (1 << (8 * ty.size())) - 1 }
}

/// The least and the greatest value of a type of whole numbers.
fn range(ty: Ty) -> (i128, i128) {
    let bits = 8 * ty.size() as u32;
    if ty.is_signed() { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}
