//! Data types: the closed set of element types, their sizes and names.
//!
//! Guarantees that every `Element` is plain old data: any bit pattern that a buffer of its dtype may hold is valid
//! (for `bool` the buffer's writer keeps bytes at 0 or 1).

use std::fmt;

use half::{bf16, f16};

use crate::half_format::{BF16, F16};

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DType {
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
    /// IEEE half precision; storage and casts only.
    F16,
    /// Brain float: the upper half of an `f32`; storage and casts only.
    Bf16,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 8-bit integer.
    U8,
    /// Truth value, one byte, 0 or 1.
    Bool,
}

impl DType {
    /// All dtypes, in declaration order.
    pub const ALL: [DType; 9] =
        [DType::F32, DType::F64, DType::F16, DType::Bf16, DType::I32, DType::I64, DType::U32, DType::U8, DType::Bool];

    /// Bytes per element.
    pub const fn size(self) -> usize {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F16 | DType::Bf16 => 2,
            DType::U8 | DType::Bool => 1,
        }
    }

    /// The name used in text forms and messages.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U32 => "u32",
            DType::U8 => "u8",
            DType::Bool => "bool",
        }
    }

    /// The dtype called `name`.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|d| d.name() == name)
    }

    /// Whether arithmetic on it is floating point: `f32` and `f64`.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64)
    }

    /// Whether it is a 16-bit float, which can be stored and cast but not computed with.
    pub const fn is_half(self) -> bool {
        matches!(self, DType::F16 | DType::Bf16)
    }

    /// Whether it is an integer.
    pub const fn is_int(self) -> bool {
        matches!(self, DType::I32 | DType::I64 | DType::U32 | DType::U8)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that a tensor can hold.
pub trait Element: Copy + Send + Sync + PartialEq + fmt::Debug + fmt::Display + sealed::Sealed + 'static {
    /// The dtype of `Self`.
    const DTYPE: DType;

    /// The value as a [`Scalar`].
    fn to_scalar(self) -> Scalar;

    /// The nearest value of this type, as a numeric cast gives it (`as` in Rust, of two the even one; `bool` is `x != 0`).
    fn from_f64(x: f64) -> Self;

    /// The value as an `f64`; exact for all types but `i64` beyond 2^53.
    fn to_f64(self) -> f64;
}

macro_rules! elements {
    ($($t:ty, $d:ident, $bits:expr, $from:expr, $to:expr;)*) => {$(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            const DTYPE: DType = DType::$d;
            fn to_scalar(self) -> Scalar {
                let bits: fn($t) -> u64 = $bits;
                Scalar { dtype: DType::$d, bits: bits(self) }
            }
            fn from_f64(x: f64) -> Self {
                let from: fn(f64) -> $t = $from;
                from(x)
            }
            fn to_f64(self) -> f64 {
                let to: fn($t) -> f64 = $to;
                to(self)
            }
        }
    )*};
}

elements! {
    f32, F32, |x| x.to_bits().into(), |x| x as f32, |x| x.into();
    f64, F64, |x| x.to_bits(), |x| x, |x| x;
    f16, F16, |x| x.to_bits().into(), |x| f16::from_bits(F16.of_f64(x)), f16::to_f64;
    bf16, Bf16, |x| x.to_bits().into(), |x| bf16::from_bits(BF16.of_f64(x)), bf16::to_f64;
    i32, I32, |x| u64::from(x as u32), |x| x as i32, |x| x.into();
    i64, I64, |x| x as u64, |x| x as i64, |x| x as f64;
    u32, U32, |x| x.into(), |x| x as u32, |x| x.into();
    u8, U8, |x| x.into(), |x| x as u8, |x| x.into();
    bool, Bool, |x| x.into(), |x| x != 0.0, |x| f64::from(u8::from(x));
}

/// One value with its dtype; equality and hash are those of the bits, so that NaN equals itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scalar {
    /// The dtype.
    pub dtype: DType,
    /// The little-endian bits, zero-extended.
    pub bits: u64,
}

impl Scalar {
    /// `x` converted to `dtype` as [`Element::from_f64`] does.
    pub fn from_f64(x: f64, dtype: DType) -> Scalar {
        match dtype {
            DType::F32 => f32::from_f64(x).to_scalar(),
            DType::F64 => x.to_scalar(),
            DType::F16 => <f16 as Element>::from_f64(x).to_scalar(),
            DType::Bf16 => <bf16 as Element>::from_f64(x).to_scalar(),
            DType::I32 => (x as i32).to_scalar(),
            DType::I64 => (x as i64).to_scalar(),
            DType::U32 => (x as u32).to_scalar(),
            DType::U8 => (x as u8).to_scalar(),
            DType::Bool => (x != 0.0).to_scalar(),
        }
    }

    /// The value as `f64`; exact for all dtypes but `i64` beyond 2^53.
    pub fn to_f64(self) -> f64 {
        match self.dtype {
            DType::F32 => f32::from_bits(self.bits as u32).into(),
            DType::F64 => f64::from_bits(self.bits),
            DType::F16 => f16::from_bits(self.bits as u16).to_f64(),
            DType::Bf16 => bf16::from_bits(self.bits as u16).to_f64(),
            DType::I32 => (self.bits as u32 as i32).into(),
            DType::I64 => self.bits as i64 as f64,
            DType::U32 | DType::U8 | DType::Bool => self.bits as f64,
        }
    }

    /// The value as `i64` if the dtype is an integer or `bool`.
    pub fn to_i64(self) -> Option<i64> {
        match self.dtype {
            DType::I32 => Some((self.bits as u32 as i32).into()),
            DType::I64 | DType::U32 | DType::U8 | DType::Bool => Some(self.bits as i64),
            DType::F32 | DType::F64 | DType::F16 | DType::Bf16 => None,
        }
    }
}

impl<T: Element> From<T> for Scalar {
    fn from(x: T) -> Scalar {
        x.to_scalar()
    }
}

impl fmt::Debug for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} {}", self.dtype)
    }
}

/// Prints the shortest text that reads back as the same value; NaN prints its bits, so that it survives as well.
impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.dtype {
            DType::F32 if f32::from_bits(self.bits as u32).is_nan() => write!(f, "nan:{:08x}", self.bits),
            DType::F64 if f64::from_bits(self.bits).is_nan() => write!(f, "nan:{:016x}", self.bits),
            DType::F32 => write!(f, "{:?}", f32::from_bits(self.bits as u32)),
            DType::F64 => write!(f, "{:?}", f64::from_bits(self.bits)),
            DType::F16 | DType::Bf16 => write!(f, "bits:{:04x}", self.bits),
            DType::I32 => write!(f, "{}", self.bits as u32 as i32),
            DType::I64 => write!(f, "{}", self.bits as i64),
            DType::U32 | DType::U8 => write!(f, "{}", self.bits),
            DType::Bool => write!(f, "{}", self.bits != 0),
        }
    }
}

impl Scalar {
    /// Reads what `Display` printed, as a value of `dtype`.
    pub fn parse(text: &str, dtype: DType) -> Option<Scalar> {
        if let Some(hex) = text.strip_prefix("nan:").or_else(|| text.strip_prefix("bits:")) {
            let bits = u64::from_str_radix(hex, 16).ok()?;
            let fits = bits.checked_shr(8 * dtype.size() as u32).unwrap_or(0) == 0;
            return (fits && (dtype.is_float() || dtype.is_half())).then_some(Scalar { dtype, bits });
        }
        match dtype {
            DType::F32 => text.parse::<f32>().ok().map(Element::to_scalar),
            DType::F64 => text.parse::<f64>().ok().map(Element::to_scalar),
            DType::F16 | DType::Bf16 => None,
            DType::I32 => text.parse::<i32>().ok().map(Element::to_scalar),
            DType::I64 => text.parse::<i64>().ok().map(Element::to_scalar),
            DType::U32 => text.parse::<u32>().ok().map(Element::to_scalar),
            DType::U8 => text.parse::<u8>().ok().map(Element::to_scalar),
            DType::Bool => text.parse::<bool>().ok().map(Element::to_scalar),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_read_back_as_printed() {
        for x in [0.0, -0.0, 1.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-310, 3.0] {
            for dtype in DType::ALL {
                let s = Scalar::from_f64(x, dtype);
                assert_eq!(Scalar::parse(&s.to_string(), dtype), Some(s), "{x} as {dtype}");
            }
        }
    }

    #[test]
    fn bits_beyond_the_dtype_are_refused() {
        for text in ["nan:17fc00000", "bits:ffffffffffffffff", "nan:", "bits:-1"] {
            assert_eq!(Scalar::parse(text, DType::F32), None, "{text}");
        }
        assert_eq!(Scalar::parse("bits:10000", DType::F16), None);
        assert_eq!(Scalar::parse("bits:2", DType::Bool), None);
        assert_eq!(Scalar::parse("nan:ffffffffffffffff", DType::F64).map(|s| s.bits), Some(u64::MAX));
    }

    #[test]
    fn names_read_back() {
        for dtype in DType::ALL {
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
        }
    }
}
