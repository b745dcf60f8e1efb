//! Numeric conversions between all pairs of dtypes, and changes of type that keep the bits.
//!
//! Guarantees rounding to nearest even towards floats, truncation from floats to integers, saturation of what
//! integers, and 0 for NaN. Every result is the exact value rounded once.

use retape_runtime::{DType, Scalar};

use super::function::{Class, PtxFunction, Reg, ptx};
use super::value::{RegValue, bits_suffix};
use crate::ir::int_range;

/// A numeric conversion.
pub(crate) fn cast(f: &mut PtxFunction, to: DType, x: RegValue) -> RegValue {
    if x.dtype == to {
        return x;
    }
    let reg = match (x.dtype, to) {
        (DType::F16 | DType::Bf16, _) => return from_half(f, to, x),
        (DType::Bool, _) => choose(f, x.reg, to),
        (_, DType::F16 | DType::Bf16) => to_half(f, to, x),
        (DType::F32 | DType::F64, DType::Bool) => {
            let zero = f.constant(Scalar { dtype: x.dtype, bits: 0 });
            f.op(Class::Pred, &format!("setp.neu.{}", x.dtype), format_args!("{}, {zero}", x.reg))
        }
        (_, DType::Bool) => {
            f.op(Class::Pred, &format!("setp.ne.{}", bits_suffix(x.dtype)), format_args!("{}, 0", x.reg))
        }
        (DType::F32 | DType::F64, _) => float_to(f, to, x),
        (DType::I32 | DType::I64 | DType::U32 | DType::U8, DType::F32 | DType::F64) => {
            f.op(Class::of(to), &format!("cvt.rn.{to}.{}", int(x.dtype)), format_args!("{}", x.reg))
        }
        (DType::I32 | DType::I64 | DType::U32 | DType::U8, _) => int_to(f, to, x),
    };
    RegValue::new(to, reg)
}

/// The same bits as another dtype of the same size.
pub(crate) fn bitcast(f: &mut PtxFunction, to: DType, x: RegValue) -> RegValue {
    if x.dtype == DType::Bool && to != DType::Bool {
        return cast(f, to, x);
    }
    if x.reg.class == Class::of(to) {
        return RegValue { dtype: to, reg: x.reg };
    }
    let reg = f.op(Class::of(to), &format!("mov.{}", bits_suffix(to)), format_args!("{}", x.reg));
    RegValue::new(to, reg)
}

/// The name of an integer dtype in conversions.
const fn int(dtype: DType) -> &'static str {
    match dtype {
        DType::I32 => "s32",
        DType::I64 => "s64",
        DType::U32 | DType::U8 | DType::Bool | DType::F16 | DType::Bf16 | DType::F32 | DType::F64 => "u32",
    }
}

/// 1 or 0.
fn choose(f: &mut PtxFunction, c: Reg, to: DType) -> Reg {
    let one = f.constant(Scalar::from_f64(1.0, to));
    let zero = f.constant(Scalar::from_f64(0.0, to));
    f.op(Class::of(to), &format!("selp.{}", bits_suffix(to)), format_args!("{one}, {zero}, {c}"))
}

/// All halves are `f32` values.
fn from_half(f: &mut PtxFunction, to: DType, x: RegValue) -> RegValue {
    let wide = f.reg(Class::F32);
    if x.dtype == DType::F16 {
        ptx!(f, "cvt.f32.f16 {wide}, {}", x.reg);
    } else {
        let zero = f.reg(Class::B16);
        ptx!(f, "mov.b16 {zero}, 0");
        ptx!(f, "mov.b32 {wide}, {{{zero}, {}}}", x.reg);
    }
    cast(f, to, RegValue::new(DType::F32, wide))
}

fn to_half(f: &mut PtxFunction, to: DType, x: RegValue) -> Reg {
    let single = match x.dtype {
        DType::F32 => x.reg,
        DType::U8 => cast(f, DType::F32, x).reg,
        DType::I64 => {
            let odd = i64_to_odd(f, x.reg);
            f64_to_odd(f, odd)
        }
        DType::F64 | DType::I32 | DType::U32 | DType::Bool | DType::F16 | DType::Bf16 => {
            let double = cast(f, DType::F64, x).reg;
            f64_to_odd(f, double)
        }
    };
    if to == DType::F16 {
        f.op(Class::B16, "cvt.rn.f16.f32", format_args!("{single}"))
    } else if f.target().arch() >= 80 {
        f.op(Class::B16, "cvt.rn.bf16.f32", format_args!("{single}"))
    } else {
        round_to_bf16(f, single)
    }
}

/// The upper half after adding just less than half of its last place, or half of it if that is odd.
fn round_to_bf16(f: &mut PtxFunction, x: Reg) -> Reg {
    let bits = f.op(Class::B32, "mov.b32", format_args!("{x}"));
    let upper = f.op(Class::B32, "shr.u32", format_args!("{bits}, 16"));
    let odd = f.op(Class::B32, "and.b32", format_args!("{upper}, 1"));
    let sum = f.op(Class::B32, "add.u32", format_args!("{bits}, {odd}"));
    let sum = f.op(Class::B32, "add.u32", format_args!("{sum}, 32767"));
    let rounded = f.op(Class::B32, "shr.u32", format_args!("{sum}, 16"));
    let is_nan = f.op(Class::Pred, "setp.nan.f32", format_args!("{x}, {x}"));
    let rounded = f.op(Class::B32, "selp.b32", format_args!("32704, {rounded}, {is_nan}"));
    f.op(Class::B16, "cvt.u16.u32", format_args!("{rounded}"))
}

/// `x` itself if an `f32` can hold it, else the neighbour whose last bit is 1: rounds to 16 bits as `x` does.
fn f64_to_odd(f: &mut PtxFunction, x: Reg) -> Reg {
    let near = f.op(Class::F32, "cvt.rz.f32.f64", format_args!("{x}"));
    let back = f.op(Class::F64, "cvt.f64.f32", format_args!("{near}"));
    let differs = f.op(Class::Pred, "setp.ne.f64", format_args!("{back}, {x}"));
    let odd = f.op(Class::F32, "or.b32", format_args!("{near}, 1"));
    f.op(Class::F32, "selp.f32", format_args!("{odd}, {near}, {differs}"))
}

/// `x` itself if an `f64` can hold it, else the neighbour whose last bit is 1.
fn i64_to_odd(f: &mut PtxFunction, x: Reg) -> Reg {
    let near = f.op(Class::F64, "cvt.rz.f64.s64", format_args!("{x}"));
    let back = f.op(Class::B64, "cvt.rzi.s64.f64", format_args!("{near}"));
    let differs = f.op(Class::Pred, "setp.ne.s64", format_args!("{back}, {x}"));
    let odd = f.op(Class::F64, "or.b64", format_args!("{near}, 1"));
    f.op(Class::F64, "selp.f64", format_args!("{odd}, {near}, {differs}"))
}

/// The machine saturates; NaN becomes 0 there only from `f32` to 32 bits.
fn float_to(f: &mut PtxFunction, to: DType, x: RegValue) -> Reg {
    let (r, from) = (x.reg, x.dtype);
    match to {
        DType::F64 => f.op(Class::F64, "cvt.f64.f32", format_args!("{r}")),
        DType::F32 => f.op(Class::F32, "cvt.rn.f32.f64", format_args!("{r}")),
        DType::I32 | DType::I64 | DType::U32 | DType::U8 | DType::Bool | DType::F16 | DType::Bf16 => {
            let class = Class::of(to);
            let mut whole = f.op(class, &format!("cvt.rzi.{}.{from}", int(to)), format_args!("{r}"));
            if from == DType::F64 || to == DType::I64 {
                let is_nan = f.op(Class::Pred, &format!("setp.nan.{from}"), format_args!("{r}, {r}"));
                whole = f.op(class, &format!("selp.{}", bits_suffix(to)), format_args!("0, {whole}, {is_nan}"));
            }
            if to == DType::U8 { f.op(class, "min.u32", format_args!("{whole}, 255")) } else { whole }
        }
    }
}

/// Clamped to the range of the other integers.
fn int_to(f: &mut PtxFunction, to: DType, x: RegValue) -> Reg {
    let ((low, high), (lowest, highest)) = (int_range(to), int_range(x.dtype));
    let class = Class::of(x.dtype);
    let mut r = x.reg;
    if low > lowest {
        r = f.op(class, &format!("max.{}", int(x.dtype)), format_args!("{r}, {low}"));
    }
    if high < highest {
        r = f.op(class, &format!("min.{}", int(x.dtype)), format_args!("{r}, {high}"));
    }
    match (class, Class::of(to)) {
        (Class::B64, Class::B32) => f.op(Class::B32, "cvt.u32.u64", format_args!("{r}")),
        (Class::B32, Class::B64) if x.dtype == DType::I32 => f.op(Class::B64, "cvt.s64.s32", format_args!("{r}")),
        (Class::B32, Class::B64) => f.op(Class::B64, "cvt.u64.u32", format_args!("{r}")),
        _ => r,
    }
}
