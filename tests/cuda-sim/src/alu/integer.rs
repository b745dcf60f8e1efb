//! Whole numbers: everything wraps; a division by zero, which PTX leaves undefined, is a fault.

use crate::fault::{Stop, stop};
use crate::lanes::{Alu, Kind, LANES, Raw, Regs, Row, S16, S32, S64, U16, U32, U64, lanes, put, rows};
use crate::types::Ty;

/// Arithmetic of up to 32 bits.
pub(super) const NARROW: &[Row] = rows! {
    "add.u16" U16, U16 => U16 |a, b| a.wrapping_add(b);
    "add.s16" S16, S16 => S16 |a, b| a.wrapping_add(b);
    "add.u32" U32, U32 => U32 |a, b| a.wrapping_add(b);
    "add.s32" S32, S32 => S32 |a, b| a.wrapping_add(b);
    "add.sat.s32" S32, S32 => S32 |a, b| a.saturating_add(b);
    "sub.u16" U16, U16 => U16 |a, b| a.wrapping_sub(b);
    "sub.s16" S16, S16 => S16 |a, b| a.wrapping_sub(b);
    "sub.u32" U32, U32 => U32 |a, b| a.wrapping_sub(b);
    "sub.s32" S32, S32 => S32 |a, b| a.wrapping_sub(b);
    "sub.sat.s32" S32, S32 => S32 |a, b| a.saturating_sub(b);
    "mul.lo.u16" U16, U16 => U16 |a, b| a.wrapping_mul(b);
    "mul.lo.s16" S16, S16 => S16 |a, b| a.wrapping_mul(b);
    "mul.lo.u32" U32, U32 => U32 |a, b| a.wrapping_mul(b);
    "mul.lo.s32" S32, S32 => S32 |a, b| a.wrapping_mul(b);
    "mul.hi.u16" U16, U16 => U16 |a, b| ((u32::from(a) * u32::from(b)) >> 16) as u16;
    "mul.hi.s16" S16, S16 => S16 |a, b| ((i32::from(a) * i32::from(b)) >> 16) as i16;
    "mul.hi.u32" U32, U32 => U32 |a, b| ((u64::from(a) * u64::from(b)) >> 32) as u32;
    "mul.hi.s32" S32, S32 => S32 |a, b| ((i64::from(a) * i64::from(b)) >> 32) as i32;
    "mul.wide.u16" U16, U16 => U32 |a, b| u32::from(a) * u32::from(b);
    "mul.wide.s16" S16, S16 => S32 |a, b| i32::from(a) * i32::from(b);
    "mul.wide.u32" U32, U32 => U64 |a, b| u64::from(a) * u64::from(b);
    "mul.wide.s32" S32, S32 => S64 |a, b| i64::from(a) * i64::from(b);
    "mad.lo.u16" U16, U16, U16 => U16 |a, b, c| a.wrapping_mul(b).wrapping_add(c);
    "mad.lo.s16" S16, S16, S16 => S16 |a, b, c| a.wrapping_mul(b).wrapping_add(c);
    "mad.lo.u32" U32, U32, U32 => U32 |a, b, c| a.wrapping_mul(b).wrapping_add(c);
    "mad.lo.s32" S32, S32, S32 => S32 |a, b, c| a.wrapping_mul(b).wrapping_add(c);
    "mad.hi.u32" U32, U32, U32 => U32 |a, b, c| (((u64::from(a) * u64::from(b)) >> 32) as u32).wrapping_add(c);
    "mad.hi.s32" S32, S32, S32 => S32 |a, b, c| (((i64::from(a) * i64::from(b)) >> 32) as i32).wrapping_add(c);
    "mad.wide.u16" U16, U16, U32 => U32 |a, b, c| (u32::from(a) * u32::from(b)).wrapping_add(c);
    "mad.wide.s16" S16, S16, S32 => S32 |a, b, c| (i32::from(a) * i32::from(b)).wrapping_add(c);
    "mad.wide.u32" U32, U32, U64 => U64 |a, b, c| (u64::from(a) * u64::from(b)).wrapping_add(c);
    "mad.wide.s32" S32, S32, S64 => S64 |a, b, c| (i64::from(a) * i64::from(b)).wrapping_add(c);
    "sad.u32" U32, U32, U32 => U32 |a, b, c| a.abs_diff(b).wrapping_add(c);
    "sad.s32" S32, S32, U32 => U32 |a, b, c| a.abs_diff(b).wrapping_add(c);
    "neg.s16" S16 => S16 |a| a.wrapping_neg();
    "neg.s32" S32 => S32 |a| a.wrapping_neg();
    "abs.s16" S16 => S16 |a| a.wrapping_abs();
    "abs.s32" S32 => S32 |a| a.wrapping_abs();
    "min.u16" U16, U16 => U16 |a, b| a.min(b);
    "min.s16" S16, S16 => S16 |a, b| a.min(b);
    "min.u32" U32, U32 => U32 |a, b| a.min(b);
    "min.s32" S32, S32 => S32 |a, b| a.min(b);
    "max.u16" U16, U16 => U16 |a, b| a.max(b);
    "max.s16" S16, S16 => S16 |a, b| a.max(b);
    "max.u32" U32, U32 => U32 |a, b| a.max(b);
    "max.s32" S32, S32 => S32 |a, b| a.max(b);
    "dp4a.u32.u32" U32, U32, U32 => U32 |a, b, c| dot4(a, b, i64::from).wrapping_add(i64::from(c)) as u32;
    "dp4a.s32.s32" U32, U32, U32 => U32
        |a, b, c| dot4(a, b, |byte| i64::from(byte as i8)).wrapping_add(i64::from(c)) as u32;
};

/// Arithmetic of 64 bits.
pub(super) const WIDE: &[Row] = rows! {
    "add.u64" U64, U64 => U64 |a, b| a.wrapping_add(b);
    "add.s64" S64, S64 => S64 |a, b| a.wrapping_add(b);
    "sub.u64" U64, U64 => U64 |a, b| a.wrapping_sub(b);
    "sub.s64" S64, S64 => S64 |a, b| a.wrapping_sub(b);
    "mul.lo.u64" U64, U64 => U64 |a, b| a.wrapping_mul(b);
    "mul.lo.s64" S64, S64 => S64 |a, b| a.wrapping_mul(b);
    "mul.hi.u64" U64, U64 => U64 |a, b| ((u128::from(a) * u128::from(b)) >> 64) as u64;
    "mul.hi.s64" S64, S64 => S64 |a, b| ((i128::from(a) * i128::from(b)) >> 64) as i64;
    "mad.lo.u64" U64, U64, U64 => U64 |a, b, c| a.wrapping_mul(b).wrapping_add(c);
    "mad.lo.s64" S64, S64, S64 => S64 |a, b, c| a.wrapping_mul(b).wrapping_add(c);
    "mad.hi.u64" U64, U64, U64 => U64 |a, b, c| (((u128::from(a) * u128::from(b)) >> 64) as u64).wrapping_add(c);
    "mad.hi.s64" S64, S64, S64 => S64 |a, b, c| (((i128::from(a) * i128::from(b)) >> 64) as i64).wrapping_add(c);
    "neg.s64" S64 => S64 |a| a.wrapping_neg();
    "abs.s64" S64 => S64 |a| a.wrapping_abs();
    "min.u64" U64, U64 => U64 |a, b| a.min(b);
    "min.s64" S64, S64 => S64 |a, b| a.min(b);
    "max.u64" U64, U64 => U64 |a, b| a.max(b);
    "max.s64" S64, S64 => S64 |a, b| a.max(b);
};

fn dot4(a: u32, b: u32, widen: impl Fn(u8) -> i64) -> i64 {
    a.to_le_bytes().into_iter().zip(b.to_le_bytes()).map(|(a, b)| widen(a) * widen(b)).sum()
}

/// `d = f(a, b)`, where `f` knows no answer for a divisor of zero.
#[inline(always)]
fn divide<K: Kind>(
    regs: &mut Regs,
    alu: &Alu,
    mask: u32,
    f: impl Fn(K::Value, K::Value) -> Option<K::Value>,
) -> Result<(), Stop> {
    let mut out = [K::Raw::default(); LANES];
    let (a, b) = (K::Raw::get(regs, alu.a), K::Raw::get(regs, alu.b));
    for lane in lanes(mask) {
        match f(K::read(a[lane]), K::read(b[lane])) {
            Some(value) => out[lane] = K::write(value),
            None => return stop(format!("integer division by zero (lane {lane})")),
        }
    }
    put(regs, alu.d, mask, &out);
    Ok(())
}

/// Rows of divisions: the least value by minus one wraps.
macro_rules! divisions {
    ($($div:literal, $rem:literal: $kind:ident $value:ty;)*) => { &[$(
        Row {
            name: $div,
            to: Ty::$kind,
            from: &[Ty::$kind, Ty::$kind],
            run: |regs, alu, mask| divide::<$kind>(regs, alu, mask, |a: $value, b| (b != 0).then(|| a.wrapping_div(b))),
        },
        Row {
            name: $rem,
            to: Ty::$kind,
            from: &[Ty::$kind, Ty::$kind],
            run: |regs, alu, mask| divide::<$kind>(regs, alu, mask, |a: $value, b| (b != 0).then(|| a.wrapping_rem(b))),
        },
    )*] };
}

/// Divisions and remainders.
pub(super) const DIVISIONS: &[Row] = divisions! {
    "div.u16", "rem.u16": U16 u16;
    "div.s16", "rem.s16": S16 i16;
    "div.u32", "rem.u32": U32 u32;
    "div.s32", "rem.s32": S32 i32;
    "div.u64", "rem.u64": U64 u64;
    "div.s64", "rem.s64": S64 i64;
};
