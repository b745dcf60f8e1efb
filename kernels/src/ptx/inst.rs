//! Scalar instructions of the kernel IR on registers.
//!
//! Guarantees the bits of [`eval_inst`](crate::ir::eval_inst) for all operands, payloads and signs of NaN aside;
//! under [`Target::fast`](super::Target) quotients and square roots of `f32` are off by 2 units in the last place at
//! most.

use retape_runtime::{DType, Scalar};

use super::fast;
use super::function::{Class, PtxFunction, ptx};
use super::value::{RegValue, bits_suffix};
use super::{cast, remainder};
use crate::ir::{Binary, Compare, Inst, ReductionOp, Unary};

/// The suffix of arithmetic on a dtype that is computed with; unsigned for `u8`, which lies in 32 bits.
const fn suffix(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "f32",
        DType::F64 => "f64",
        DType::I32 => "s32",
        DType::I64 => "s64",
        DType::U32 | DType::U8 => "u32",
        DType::F16 | DType::Bf16 => "b16",
        DType::Bool => "pred",
    }
}

/// A constant in a register.
pub(crate) fn constant(f: &mut PtxFunction, c: Scalar) -> RegValue {
    RegValue::new(c.dtype, f.constant(c))
}

/// Emits an instruction over values of the dtypes that it is defined for.
///
/// `None` for the instructions that need memory or coordinates (`Index`, `Load`, `LoadAt`, `Reduce`), and for
/// transcendental functions, which are expanded before, except for those that [`fast`] has under `Target::fast`.
pub(crate) fn emit_inst(f: &mut PtxFunction, inst: &Inst<RegValue>) -> Option<RegValue> {
    Some(match *inst {
        Inst::Const(c) => constant(f, c),
        Inst::Index(_) | Inst::Load(..) | Inst::LoadAt(..) | Inst::Reduce(..) | Inst::Call2(..) => return None,
        Inst::Unary(op, x) => unary(f, op, x),
        Inst::Binary(op, x, y) => binary(f, op, x, y),
        Inst::Compare(op, x, y) => compare(f, op, x, y),
        Inst::Select(c, x, y) => select(f, c, x, y),
        Inst::Fma(x, y, z) => {
            let op = format!("fma.rn.{}", suffix(x.dtype));
            simple(f, x.dtype, &op, format_args!("{}, {}, {}", x.reg, y.reg, z.reg))
        }
        Inst::Cast(dtype, x) => cast::cast(f, dtype, x),
        Inst::Bitcast(dtype, x) => cast::bitcast(f, dtype, x),
        Inst::Call1(func, x) => return fast::call1(f, func, x),
    })
}

/// One step of a reduction.
pub(crate) fn combine(f: &mut PtxFunction, op: ReductionOp, x: RegValue, y: RegValue) -> RegValue {
    binary(f, op.binary(), x, y)
}

fn simple(f: &mut PtxFunction, dtype: DType, op: &str, operands: std::fmt::Arguments<'_>) -> RegValue {
    RegValue { dtype, reg: f.op(Class::of(dtype), op, operands) }
}

/// The low byte of a 32-bit register, as `u8`.
fn low_byte(f: &mut PtxFunction, x: RegValue) -> RegValue {
    simple(f, DType::U8, "and.b32", format_args!("{}, 255", x.reg))
}

fn unary(f: &mut PtxFunction, op: Unary, x: RegValue) -> RegValue {
    let (dtype, r, ty) = (x.dtype, x.reg, suffix(x.dtype));
    let signed = matches!(dtype, DType::I32 | DType::I64);
    match op {
        Unary::Neg if dtype.is_float() => simple(f, dtype, &format!("neg.{ty}"), format_args!("{r}")),
        Unary::Neg => {
            let op = if dtype == DType::I64 { "neg.s64" } else { "neg.s32" };
            let negated = simple(f, dtype, op, format_args!("{r}"));
            if dtype == DType::U8 { low_byte(f, negated) } else { negated }
        }
        Unary::Abs if dtype.is_float() => simple(f, dtype, &format!("abs.{ty}"), format_args!("{r}")),
        Unary::Abs if signed => {
            // The larger of both also where negation wraps.
            let negated = unary(f, Unary::Neg, x);
            simple(f, dtype, &format!("max.{ty}"), format_args!("{r}, {}", negated.reg))
        }
        Unary::Abs => x,
        Unary::Sqrt if dtype == DType::F32 && f.target().fast => {
            simple(f, dtype, "sqrt.approx.f32", format_args!("{r}"))
        }
        Unary::Sqrt => simple(f, dtype, &format!("sqrt.rn.{ty}"), format_args!("{r}")),
        Unary::Floor => simple(f, dtype, &format!("cvt.rmi.{ty}.{ty}"), format_args!("{r}")),
        Unary::Ceil => simple(f, dtype, &format!("cvt.rpi.{ty}.{ty}"), format_args!("{r}")),
        Unary::Round => simple(f, dtype, &format!("cvt.rni.{ty}.{ty}"), format_args!("{r}")),
        Unary::Trunc => simple(f, dtype, &format!("cvt.rzi.{ty}.{ty}"), format_args!("{r}")),
        Unary::Not if dtype == DType::U8 => simple(f, dtype, "xor.b32", format_args!("{r}, 255")),
        Unary::Not => simple(f, dtype, &format!("not.{}", bits_suffix(dtype)), format_args!("{r}")),
    }
}

fn binary(f: &mut PtxFunction, op: Binary, x: RegValue, y: RegValue) -> RegValue {
    if matches!(op, Binary::And | Binary::Or | Binary::Xor) {
        logic(f, op, x, y)
    } else if x.dtype.is_float() {
        float_binary(f, op, x, y)
    } else {
        int_binary(f, op, x, y)
    }
}

fn logic(f: &mut PtxFunction, op: Binary, x: RegValue, y: RegValue) -> RegValue {
    let op = format!("{}.{}", op.name(), bits_suffix(x.dtype));
    simple(f, x.dtype, &op, format_args!("{}, {}", x.reg, y.reg))
}

fn float_binary(f: &mut PtxFunction, op: Binary, x: RegValue, y: RegValue) -> RegValue {
    let (dtype, ty) = (x.dtype, suffix(x.dtype));
    let op = match op {
        Binary::Div if dtype == DType::F32 && f.target().fast => "div.full.f32".to_owned(),
        Binary::Add | Binary::Sub | Binary::Mul | Binary::Div => format!("{}.rn.{ty}", op.name()),
        Binary::Rem => return remainder::remainder(f, x, y),
        Binary::Min | Binary::Max if dtype == DType::F64 => return double_min_max(f, op, x, y),
        Binary::Min | Binary::Max if f.target().arch() >= 80 => format!("{}.NaN.f32", op.name()),
        Binary::Min | Binary::Max => return single_min_max(f, op, x, y),
        Binary::And | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr | Binary::MulHigh => return x,
    };
    simple(f, dtype, &op, format_args!("{}, {}", x.reg, y.reg))
}

/// The machine's minimum prefers numbers to NaN.
fn single_min_max(f: &mut PtxFunction, op: Binary, x: RegValue, y: RegValue) -> RegValue {
    let (p, q) = (x.reg, y.reg);
    let number = f.op(Class::F32, &format!("{}.f32", op.name()), format_args!("{p}, {q}"));
    let is_nan = f.op(Class::Pred, "setp.nan.f32", format_args!("{p}, {q}"));
    simple(f, DType::F32, "selp.f32", format_args!("0f7FC00000, {number}, {is_nan}"))
}

/// Equal values differ at most in the signs of zeros; a sum with NaN is NaN.
fn double_min_max(f: &mut PtxFunction, op: Binary, x: RegValue, y: RegValue) -> RegValue {
    let (p, q) = (x.reg, y.reg);
    let (closer, both) = if op == Binary::Min { ("lt", "or") } else { ("gt", "and") };
    let wins = f.op(Class::Pred, &format!("setp.{closer}.f64"), format_args!("{p}, {q}"));
    let number = f.op(Class::F64, "selp.f64", format_args!("{p}, {q}, {wins}"));
    let signs = f.op(Class::F64, &format!("{both}.b64"), format_args!("{p}, {q}"));
    let equal = f.op(Class::Pred, "setp.eq.f64", format_args!("{p}, {q}"));
    let number = f.op(Class::F64, "selp.f64", format_args!("{signs}, {number}, {equal}"));
    let is_nan = f.op(Class::Pred, "setp.nan.f64", format_args!("{p}, {q}"));
    simple(f, DType::F64, "selp.f64", format_args!("0d7FF8000000000000, {number}, {is_nan}"))
}

fn int_binary(f: &mut PtxFunction, op: Binary, x: RegValue, y: RegValue) -> RegValue {
    let (dtype, p, q, ty) = (x.dtype, x.reg, y.reg, suffix(x.dtype));
    let wrapping = |f: &mut PtxFunction, op: &str| {
        let wide = simple(f, dtype, op, format_args!("{p}, {q}"));
        if dtype == DType::U8 { low_byte(f, wide) } else { wide }
    };
    match op {
        Binary::Add | Binary::Sub => wrapping(f, &format!("{}.{ty}", op.name())),
        Binary::Mul => wrapping(f, &format!("mul.lo.{ty}")),
        Binary::Min | Binary::Max => simple(f, dtype, &format!("{}.{ty}", op.name()), format_args!("{p}, {q}")),
        Binary::Div | Binary::Rem => divide(f, op, x, y),
        Binary::Shl | Binary::Shr => shift(f, op, x, y),
        Binary::MulHigh => simple(f, dtype, "mul.hi.u32", format_args!("{p}, {q}")),
        Binary::And | Binary::Or | Binary::Xor => logic(f, op, x, y),
    }
}

/// Division by 1 stands for what the machine leaves undefined: by 0, and by -1, which may overflow.
fn divide(f: &mut PtxFunction, op: Binary, x: RegValue, y: RegValue) -> RegValue {
    let (dtype, p, q, ty, bits) = (x.dtype, x.reg, y.reg, suffix(x.dtype), bits_suffix(x.dtype));
    let class = Class::of(dtype);
    let signed = matches!(dtype, DType::I32 | DType::I64);
    let by_zero = f.op(Class::Pred, &format!("setp.eq.{ty}"), format_args!("{q}, 0"));
    let mut safe = f.op(class, &format!("selp.{bits}"), format_args!("1, {q}, {by_zero}"));
    let minus_one = signed.then(|| {
        let minus_one = f.op(Class::Pred, &format!("setp.eq.{ty}"), format_args!("{q}, -1"));
        safe = f.op(class, &format!("selp.{bits}"), format_args!("1, {safe}, {minus_one}"));
        minus_one
    });
    if op == Binary::Rem {
        return simple(f, dtype, &format!("rem.{ty}"), format_args!("{p}, {safe}"));
    }
    let mut quotient = f.op(class, &format!("div.{ty}"), format_args!("{p}, {safe}"));
    if let Some(minus_one) = minus_one {
        let negated = f.op(class, &format!("neg.{ty}"), format_args!("{p}"));
        quotient = f.op(class, &format!("selp.{bits}"), format_args!("{negated}, {quotient}, {minus_one}"));
    }
    simple(f, dtype, &format!("selp.{bits}"), format_args!("0, {quotient}, {by_zero}"))
}

fn shift(f: &mut PtxFunction, op: Binary, x: RegValue, y: RegValue) -> RegValue {
    let mask = 8 * x.dtype.size() - 1;
    let distance =
        if y.reg.class == Class::B64 { f.op(Class::B32, "cvt.u32.u64", format_args!("{}", y.reg)) } else { y.reg };
    let distance = f.op(Class::B32, "and.b32", format_args!("{distance}, {mask}"));
    if op == Binary::Shl {
        let op = format!("shl.{}", bits_suffix(x.dtype));
        let wide = simple(f, x.dtype, &op, format_args!("{}, {distance}", x.reg));
        return if x.dtype == DType::U8 { low_byte(f, wide) } else { wide };
    }
    simple(f, x.dtype, &format!("shr.{}", suffix(x.dtype)), format_args!("{}, {distance}", x.reg))
}

fn compare(f: &mut PtxFunction, op: Compare, x: RegValue, y: RegValue) -> RegValue {
    let (p, q) = (x.reg, y.reg);
    let reg = match (op, x.dtype) {
        (Compare::Ne, DType::Bool) => f.op(Class::Pred, "xor.pred", format_args!("{p}, {q}")),
        (Compare::Eq, DType::Bool) => {
            let differ = f.op(Class::Pred, "xor.pred", format_args!("{p}, {q}"));
            f.op(Class::Pred, "not.pred", format_args!("{differ}"))
        }
        (Compare::Lt | Compare::Le, DType::Bool) => {
            let not = f.op(Class::Pred, "not.pred", format_args!("{p}"));
            let op = if op == Compare::Lt { "and.pred" } else { "or.pred" };
            f.op(Class::Pred, op, format_args!("{not}, {q}"))
        }
        // A comparison with NaN is true.
        (Compare::Ne, DType::F32) => f.op(Class::Pred, "setp.neu.f32", format_args!("{p}, {q}")),
        (Compare::Ne, DType::F64) => f.op(Class::Pred, "setp.neu.f64", format_args!("{p}, {q}")),
        (_, dtype) => f.op(Class::Pred, &format!("setp.{}.{}", op.name(), suffix(dtype)), format_args!("{p}, {q}")),
    };
    RegValue { dtype: DType::Bool, reg }
}

/// `if c { x } else { y }`.
pub(crate) fn select(f: &mut PtxFunction, c: RegValue, x: RegValue, y: RegValue) -> RegValue {
    let (c, p, q) = (c.reg, x.reg, y.reg);
    if x.dtype == DType::Bool {
        let first = f.op(Class::Pred, "and.pred", format_args!("{c}, {p}"));
        let not = f.op(Class::Pred, "not.pred", format_args!("{c}"));
        let second = f.op(Class::Pred, "and.pred", format_args!("{not}, {q}"));
        return simple(f, DType::Bool, "or.pred", format_args!("{first}, {second}"));
    }
    let op = format!("selp.{}", bits_suffix(x.dtype));
    let d = f.reg(Class::of(x.dtype));
    ptx!(f, "{op} {d}, {p}, {q}, {c}");
    RegValue { dtype: x.dtype, reg: d }
}
