//! The remainder of floats, exact for quotients of any size.

use retape_runtime::DType;

use super::cast::cast;
use super::function::{Class, PtxFunction, Reg, ptx};
use super::value::RegValue;

/// Bits of a quotient that one step of the long division makes: a remainder of 53 bits has room for them in 64.
const STEP: u32 = 11;

/// `x - trunc(x / y) * y` without rounding, with the sign of `x`; NaN for an infinite `x` and a `y` of zero.
///
/// In `f64` for both dtypes: remainders of `f32` values are `f32` values.
pub(super) fn remainder(f: &mut PtxFunction, x: RegValue, y: RegValue) -> RegValue {
    let (p, q) = (cast(f, DType::F64, x).reg, cast(f, DType::F64, y).reg);
    let result = f.reg(Class::F64);
    let (a, b) = (magnitude(f, p), magnitude(f, q));
    let end = f.label();
    // Smaller operands are their own remainders.
    ptx!(f, "mov.f64 {result}, {p}");
    let smaller = f.op(Class::Pred, "setp.lt.u64", format_args!("{a}, {b}"));
    let infinite = f.op(Class::Pred, "setp.ge.u64", format_args!("{a}, 0x7FF0000000000000"));
    let nan = f.op(Class::Pred, "setp.gt.u64", format_args!("{b}, 0x7FF0000000000000"));
    let zero = f.op(Class::Pred, "setp.eq.u64", format_args!("{b}, 0"));
    ptx!(f, "or.pred {infinite}, {infinite}, {nan}");
    ptx!(f, "or.pred {infinite}, {infinite}, {zero}");
    ptx!(f, "@{infinite} mov.f64 {result}, 0d7FF8000000000000");
    ptx!(f, "or.pred {infinite}, {infinite}, {smaller}");
    ptx!(f, "@{infinite} bra {end}");
    let (mut left, exponent) = parts(f, a);
    let (divisor, scale) = parts(f, b);
    let distance = f.op(Class::B32, "sub.s32", format_args!("{exponent}, {scale}"));
    left = f.op(Class::B64, "rem.u64", format_args!("{left}, {divisor}"));
    long_division(f, left, divisor, distance);
    // First into the range of 1, then to the exponent of `y`; both steps are exact.
    let whole = f.op(Class::F64, "cvt.rn.f64.u64", format_args!("{left}"));
    let small = f.op(Class::F64, "mul.rn.f64", format_args!("{whole}, 0d3CB0000000000000"));
    let scale = f.op(Class::B64, "cvt.u64.u32", format_args!("{scale}"));
    let scale = f.op(Class::F64, "shl.b64", format_args!("{scale}, 52"));
    let scaled = f.op(Class::F64, "mul.rn.f64", format_args!("{small}, {scale}"));
    let bits = f.op(Class::B64, "mov.b64", format_args!("{p}"));
    let sign = f.op(Class::B64, "and.b64", format_args!("{bits}, 0x8000000000000000"));
    ptx!(f, "or.b64 {result}, {scaled}, {sign}");
    f.place(end);
    cast(f, x.dtype, RegValue::new(DType::F64, result))
}

/// Replaces `left` by `left * 2^distance` modulo `divisor`, some bits at a time.
fn long_division(f: &mut PtxFunction, left: Reg, divisor: Reg, distance: Reg) {
    let (again, done) = (f.label(), f.label());
    f.place(again);
    let finished = f.op(Class::Pred, "setp.le.s32", format_args!("{distance}, 0"));
    ptx!(f, "@{finished} bra {done}");
    let bits = f.op(Class::B32, "min.s32", format_args!("{distance}, {STEP}"));
    ptx!(f, "shl.b64 {left}, {left}, {bits}");
    ptx!(f, "rem.u64 {left}, {left}, {divisor}");
    ptx!(f, "sub.s32 {distance}, {distance}, {bits}");
    ptx!(f, "bra {again}");
    f.place(done);
}

fn magnitude(f: &mut PtxFunction, x: Reg) -> Reg {
    let bits = f.op(Class::B64, "mov.b64", format_args!("{x}"));
    f.op(Class::B64, "and.b64", format_args!("{bits}, 0x7FFFFFFFFFFFFFFF"))
}

/// The integers of which the magnitude is `first * 2^(second - 1075)`, the second at least 1.
fn parts(f: &mut PtxFunction, magnitude: Reg) -> (Reg, Reg) {
    let fraction = f.op(Class::B64, "and.b64", format_args!("{magnitude}, 0x000FFFFFFFFFFFFF"));
    let whole = f.op(Class::B64, "or.b64", format_args!("{fraction}, 0x0010000000000000"));
    let upper = f.op(Class::B64, "shr.u64", format_args!("{magnitude}, 52"));
    let exponent = f.op(Class::B32, "cvt.u32.u64", format_args!("{upper}"));
    let subnormal = f.op(Class::Pred, "setp.eq.u32", format_args!("{exponent}, 0"));
    let whole = f.op(Class::B64, "selp.b64", format_args!("{fraction}, {whole}, {subnormal}"));
    (whole, f.op(Class::B32, "max.u32", format_args!("{exponent}, 1")))
}
