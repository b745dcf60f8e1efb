//! Scalar instructions on numbers: the meaning that the evaluator, the constant folder and all emitters share.
//!
//! Floats are computed in their own dtype, one rounding per instruction; transcendental functions in `f64`.

use retape_runtime::{DType, Element, Scalar};

use super::special::{call1, call2};
use super::{Binary, Compare, Inst, Unary, ValueId};

/// The value of an instruction over numbers.
///
/// `None` for the instructions that need memory or coordinates (`Index`, `Load`, `LoadAt`, `Reduce`) and for operands
/// of wrong dtypes.
pub fn eval_inst(inst: &Inst<Scalar>) -> Option<Scalar> {
    match *inst {
        Inst::Const(c) => Some(c),
        Inst::Index(_) | Inst::Load(..) | Inst::LoadAt(..) | Inst::Reduce(..) => None,
        Inst::Unary(op, x) => unary(op, x),
        Inst::Binary(op, x, y) => (x.dtype == y.dtype).then(|| binary(op, x, y))?,
        Inst::Compare(op, x, y) => (x.dtype == y.dtype).then(|| compare(op, x, y))?,
        Inst::Select(c, x, y) => {
            (c.dtype == DType::Bool && x.dtype == y.dtype).then_some(if c.bits != 0 { x } else { y })
        }
        Inst::Fma(x, y, z) => match (x.dtype, y.dtype, z.dtype) {
            (DType::F32, DType::F32, DType::F32) => Some(f32::of(x).mul_add(f32::of(y), f32::of(z)).to_scalar()),
            (DType::F64, DType::F64, DType::F64) => Some(f64::of(x).mul_add(f64::of(y), f64::of(z)).to_scalar()),
            _ => None,
        },
        Inst::Cast(dtype, x) => Some(x.cast(dtype)),
        Inst::Bitcast(dtype, x) => {
            let valid = dtype.size() == x.dtype.size() && (dtype != DType::Bool || x.dtype == DType::Bool);
            valid.then_some(Scalar { dtype, bits: x.bits })
        }
        Inst::Call1(func, x) => x.dtype.is_float().then(|| Scalar::from_f64(call1(func, x.to_f64()), x.dtype)),
        Inst::Call2(func, x, y) => (x.dtype.is_float() && x.dtype == y.dtype)
            .then(|| Scalar::from_f64(call2(func, x.to_f64(), y.to_f64()), x.dtype)),
    }
}

/// The constant that an instruction over constants makes, if every machine makes the same.
///
/// Transcendental functions are left alone, since generated code rounds them otherwise than this file, and so are
/// results of NaN, whose sign and payload depend on the machine.
pub(crate) fn fold(inst: &Inst<ValueId>, constant: impl Fn(ValueId) -> Option<Scalar>) -> Option<Scalar> {
    match inst {
        Inst::Const(_)
        | Inst::Index(_)
        | Inst::Load(..)
        | Inst::LoadAt(..)
        | Inst::Call1(..)
        | Inst::Call2(..)
        | Inst::Reduce(..) => None,
        Inst::Unary(..)
        | Inst::Binary(..)
        | Inst::Compare(..)
        | Inst::Select(..)
        | Inst::Fma(..)
        | Inst::Cast(..)
        | Inst::Bitcast(..) => eval_inst(&inst.try_map(constant)?).filter(|c| !c.to_f64().is_nan()),
    }
}

/// A type to compute with.
trait Arithmetic: Element + PartialOrd {
    fn of(scalar: Scalar) -> Self;
    fn unary(self, op: Unary) -> Option<Self>;
    fn binary(self, op: Binary, y: Self) -> Option<Self>;
}

macro_rules! floats {
    ($($t:ident $bits:ident;)*) => {$(
        impl Arithmetic for $t {
            fn of(scalar: Scalar) -> $t {
                $t::from_bits(scalar.bits as $bits)
            }

            fn unary(self, op: Unary) -> Option<$t> {
                Some(match op {
                    Unary::Neg => -self,
                    Unary::Abs => self.abs(),
                    Unary::Sqrt => self.sqrt(),
                    Unary::Floor => self.floor(),
                    Unary::Ceil => self.ceil(),
                    Unary::Round => self.round_ties_even(),
                    Unary::Trunc => self.trunc(),
                    Unary::Not => return None,
                })
            }

            fn binary(self, op: Binary, y: $t) -> Option<$t> {
                Some(match op {
                    Binary::Add => self + y,
                    Binary::Sub => self - y,
                    Binary::Mul => self * y,
                    Binary::Div => self / y,
                    Binary::Rem => self % y,
                    // A sum with NaN is NaN; equal values differ at most in the signs of zeros.
                    Binary::Min | Binary::Max if self.is_nan() || y.is_nan() => self + y,
                    Binary::Min if self == y => if self.is_sign_negative() { self } else { y },
                    Binary::Max if self == y => if self.is_sign_negative() { y } else { self },
                    Binary::Min => if self < y { self } else { y },
                    Binary::Max => if self > y { self } else { y },
                    Binary::And | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr | Binary::MulHigh => return None,
                })
            }
        }
    )*};
}

floats! {
    f32 u32;
    f64 u64;
}

macro_rules! ints {
    ($($t:ident;)*) => {$(
        impl Arithmetic for $t {
            fn of(scalar: Scalar) -> $t {
                scalar.bits as $t
            }

            fn unary(self, op: Unary) -> Option<$t> {
                match op {
                    Unary::Neg => Some(self.wrapping_neg()),
                    #[allow(unused_comparisons, reason = "unsigned types have no negative values")]
                    Unary::Abs => Some(if self < 0 { self.wrapping_neg() } else { self }),
                    Unary::Not => Some(!self),
                    Unary::Sqrt | Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc => None,
                }
            }

            fn binary(self, op: Binary, y: $t) -> Option<$t> {
                Some(match op {
                    Binary::Add => self.wrapping_add(y),
                    Binary::Sub => self.wrapping_sub(y),
                    Binary::Mul => self.wrapping_mul(y),
                    Binary::Div => if y == 0 { 0 } else { self.wrapping_div(y) },
                    Binary::Rem => if y == 0 { 0 } else { self.wrapping_rem(y) },
                    Binary::Min => Ord::min(self, y),
                    Binary::Max => Ord::max(self, y),
                    Binary::And => self & y,
                    Binary::Or => self | y,
                    Binary::Xor => self ^ y,
                    // These take the distance modulo the width, of which the low bits are enough.
                    Binary::Shl => self.wrapping_shl(y as u32),
                    Binary::Shr => self.wrapping_shr(y as u32),
                    Binary::MulHigh => {
                        let high = (self as u64).wrapping_mul(y as u64) >> 32;
                        return ($t::DTYPE == DType::U32).then_some(high as $t);
                    }
                })
            }
        }
    )*};
}

ints! {
    i32;
    i64;
    u32;
    u8;
}

impl Arithmetic for bool {
    fn of(scalar: Scalar) -> bool {
        scalar.bits != 0
    }

    fn unary(self, op: Unary) -> Option<bool> {
        (op == Unary::Not).then_some(!self)
    }

    fn binary(self, op: Binary, y: bool) -> Option<bool> {
        match op {
            Binary::And => Some(self & y),
            Binary::Or => Some(self | y),
            Binary::Xor => Some(self ^ y),
            Binary::Add
            | Binary::Sub
            | Binary::Mul
            | Binary::Div
            | Binary::Rem
            | Binary::Min
            | Binary::Max
            | Binary::Shl
            | Binary::Shr
            | Binary::MulHigh => None,
        }
    }
}

/// Evaluates an expression with `$t` as the type of a dtype that can be computed with; `None` for 16-bit floats.
macro_rules! with_number {
    ($dtype:expr, $t:ident => $e:expr) => {
        match $dtype {
            DType::F32 => with_number!(@ f32, $t, $e),
            DType::F64 => with_number!(@ f64, $t, $e),
            DType::I32 => with_number!(@ i32, $t, $e),
            DType::I64 => with_number!(@ i64, $t, $e),
            DType::U32 => with_number!(@ u32, $t, $e),
            DType::U8 => with_number!(@ u8, $t, $e),
            DType::Bool => with_number!(@ bool, $t, $e),
            DType::F16 | DType::Bf16 => None,
        }
    };
    (@ $number:ident, $t:ident, $e:expr) => {{
        type $t = $number;
        $e
    }};
}

fn unary(op: Unary, x: Scalar) -> Option<Scalar> {
    with_number!(x.dtype, T => T::of(x).unary(op).map(Element::to_scalar))
}

fn binary(op: Binary, x: Scalar, y: Scalar) -> Option<Scalar> {
    with_number!(x.dtype, T => T::of(x).binary(op, T::of(y)).map(Element::to_scalar))
}

fn compare(op: Compare, x: Scalar, y: Scalar) -> Option<Scalar> {
    with_number!(x.dtype, T => Some(holds(op, T::of(x), T::of(y)).to_scalar()))
}

fn holds<T: PartialOrd>(op: Compare, x: T, y: T) -> bool {
    match op {
        Compare::Eq => x == y,
        Compare::Ne => x != y,
        Compare::Lt => x < y,
        Compare::Le => x <= y,
    }
}
