//! Single and double precision. The approximate instructions are computed as exactly as the format allows.

use crate::lanes::{Alu, B32, F32, F64, Kind, LANES, Raw, Regs, Row, S32, rows};
use crate::types::Ty;

/// Instructions of two operands.
pub(super) const BINARY: &[Row] = rows! {
    "add.f32" F32, F32 => F32 |a, b| a + b;
    "sub.f32" F32, F32 => F32 |a, b| a - b;
    "mul.f32" F32, F32 => F32 |a, b| a * b;
    "div.rn.f32" F32, F32 => F32 |a, b| a / b;
    "div.approx.f32" F32, F32 => F32 |a, b| rough_quotient(a, b);
    "div.full.f32" F32, F32 => F32 |a, b| a / b;
    "min.f32" F32, F32 => F32 |a, b| min(a, b);
    "max.f32" F32, F32 => F32 |a, b| max(a, b);
    "min.NaN.f32" F32, F32 => F32 |a, b| if a.is_nan() || b.is_nan() { f32::NAN } else { min(a, b) };
    "max.NaN.f32" F32, F32 => F32 |a, b| if a.is_nan() || b.is_nan() { f32::NAN } else { max(a, b) };
    "copysign.f32" F32, F32 => F32 |a, b| b.copysign(a);
    "add.f64" F64, F64 => F64 |a, b| a + b;
    "sub.f64" F64, F64 => F64 |a, b| a - b;
    "mul.f64" F64, F64 => F64 |a, b| a * b;
    "div.rn.f64" F64, F64 => F64 |a, b| a / b;
    "min.f64" F64, F64 => F64 |a, b| min(a, b);
    "max.f64" F64, F64 => F64 |a, b| max(a, b);
    "copysign.f64" F64, F64 => F64 |a, b| b.copysign(a);
    "slct.f32.s32" F32, F32, S32 => F32 |a, b, c| if c >= 0 { a } else { b };
    "slct.f32.f32" F32, F32, F32 => F32 |a, b, c| if c >= 0.0 { a } else { b };
    "slct.b32.f32" B32, B32, F32 => B32 |a, b, c| if c >= 0.0 { a } else { b };
    "slct.f64.f32" F64, F64, F32 => F64 |a, b, c| if c >= 0.0 { a } else { b };
};

/// Instructions of one operand.
pub(super) const UNARY: &[Row] = rows! {
    "neg.f32" F32 => F32 |a| -a;
    "abs.f32" F32 => F32 |a| a.abs();
    "sqrt.rn.f32" F32 => F32 |a| a.sqrt();
    "sqrt.approx.f32" F32 => F32 |a| a.sqrt();
    "rcp.rn.f32" F32 => F32 |a| 1.0 / a;
    "rcp.approx.f32" F32 => F32 |a| 1.0 / a;
    "rsqrt.approx.f32" F32 => F32 |a| (1.0 / f64::from(a).sqrt()) as f32;
    "ex2.approx.f32" F32 => F32 |a| f64::from(a).exp2() as f32;
    "lg2.approx.f32" F32 => F32 |a| f64::from(a).log2() as f32;
    "sin.approx.f32" F32 => F32 |a| f64::from(a).sin() as f32;
    "cos.approx.f32" F32 => F32 |a| f64::from(a).cos() as f32;
    "tanh.approx.f32" F32 => F32 |a| f64::from(a).tanh() as f32;
    "neg.f64" F64 => F64 |a| -a;
    "abs.f64" F64 => F64 |a| a.abs();
    "sqrt.rn.f64" F64 => F64 |a| a.sqrt();
    "rcp.rn.f64" F64 => F64 |a| 1.0 / a;
    "rcp.approx.ftz.f64" F64 => F64 |a| 1.0 / a;
    "rsqrt.approx.f64" F64 => F64 |a| 1.0 / a.sqrt();
    "rsqrt.approx.ftz.f64" F64 => F64 |a| 1.0 / a.sqrt();
};

/// The smaller one; a number wins over NaN, and -0 is less than +0.
trait Least: Copy + PartialOrd {
    fn is_nan(self) -> bool;
    fn is_negative(self) -> bool;
}

impl Least for f32 {
    fn is_nan(self) -> bool {
        self.is_nan()
    }

    fn is_negative(self) -> bool {
        self.is_sign_negative()
    }
}

impl Least for f64 {
    fn is_nan(self) -> bool {
        self.is_nan()
    }

    fn is_negative(self) -> bool {
        self.is_sign_negative()
    }
}

/// The smaller one; a number wins over NaN, and -0 is less than +0.
#[inline(always)]
fn min<T: Least>(a: T, b: T) -> T {
    let a_wins = a < b || b.is_nan() || a == b && a.is_negative();
    if a_wins { a } else { b }
}

/// The greater one, in the same order.
#[inline(always)]
fn max<T: Least>(a: T, b: T) -> T {
    let a_wins = a > b || b.is_nan() || a == b && b.is_negative();
    if a_wins { a } else { b }
}

/// `a (1 / b)`: an inverse that is subnormal counts as zero, and one of a subnormal as infinite.
#[inline(always)]
fn rough_quotient(a: f32, b: f32) -> f32 {
    let inverse = 1.0 / b;
    if inverse.is_subnormal() {
        a * 0.0_f32.copysign(b)
    } else if b.is_subnormal() {
        a * f32::INFINITY.copysign(b)
    } else {
        a / b
    }
}

/// A test of a number's class, as lanes of a predicate.
#[inline(always)]
fn test<K: Kind>(regs: &mut Regs, alu: &Alu, mask: u32, is: impl Fn(K::Value) -> bool) {
    let a = K::Raw::get(regs, alu.a);
    let value = (0..LANES).fold(0, |bits, lane| bits | u32::from(is(K::read(a[lane]))) << lane);
    let to = &mut regs.preds[usize::from(alu.d)];
    *to = *to & !mask | value & mask;
}

/// Rows of `testp`.
macro_rules! tests {
    ($($single:literal, $double:literal: |$a:ident| $is:expr;)*) => { &[$(
        Row {
            name: $single,
            to: Ty::Pred,
            from: &[Ty::F32],
            run: |regs, alu, mask| {
                test::<F32>(regs, alu, mask, |$a| $is);
                Ok(())
            },
        },
        Row {
            name: $double,
            to: Ty::Pred,
            from: &[Ty::F64],
            run: |regs, alu, mask| {
                test::<F64>(regs, alu, mask, |$a| $is);
                Ok(())
            },
        },
    )*] };
}

/// `testp`.
pub(super) const TESTS: &[Row] = tests! {
    "testp.finite.f32", "testp.finite.f64": |a| a.is_finite();
    "testp.infinite.f32", "testp.infinite.f64": |a| a.is_infinite();
    "testp.number.f32", "testp.number.f64": |a| !a.is_nan();
    "testp.notanumber.f32", "testp.notanumber.f64": |a| a.is_nan();
    "testp.normal.f32", "testp.normal.f64": |a| a.is_normal();
    "testp.subnormal.f32", "testp.subnormal.f64": |a| a.is_subnormal();
};
