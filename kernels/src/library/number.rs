//! Element types that library kernels compute with, and the dispatch from a dtype to a type.

use retape_runtime::{DType, Element};

/// An element type with the arithmetic that library kernels need; integers wrap.
pub(crate) trait Number: Element + PartialOrd + Default {
    /// The type that long sums and products are kept in.
    type Wide: Number;
    /// The unit of multiplication; `default` is the unit of addition.
    const ONE: Self;
    /// The unit of the maximum.
    const LOWEST: Self;
    /// The unit of the minimum.
    const HIGHEST: Self;

    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn is_nan(self) -> bool;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;

    /// Whether the first maximum of values becomes this one after it was `old`: if it is larger, or the first NaN.
    ///
    /// A conjunction: of the opposite, a disjunction, compilers make vectors that are taken apart and put together.
    #[inline(always)]
    #[expect(clippy::neg_cmp_op_on_partial_ord, reason = "true of a NaN")]
    fn displaces(self, old: Self) -> bool {
        !(self <= old) & !old.is_nan()
    }

    /// The larger value, the first of equals; a NaN wins.
    #[inline(always)]
    fn larger(self, next: Self) -> Self {
        if (next > self) | next.is_nan() { next } else { self }
    }

    /// The smaller value, the first of equals; a NaN wins.
    #[inline(always)]
    fn smaller(self, next: Self) -> Self {
        if (next < self) | next.is_nan() { next } else { self }
    }
}

macro_rules! floats {
    ($($t:ident wide $wide:ty,)*) => {$(
        impl Number for $t {
            type Wide = $wide;
            const ONE: Self = 1.0;
            const LOWEST: Self = $t::NEG_INFINITY;
            const HIGHEST: Self = $t::INFINITY;
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                $t::is_nan(self)
            }
            #[inline(always)]
            fn widen(self) -> $wide {
                self.into()
            }
            #[inline(always)]
            fn narrow(wide: $wide) -> Self {
                wide as $t
            }
        }
    )*};
}

macro_rules! integers {
    ($($t:ident)*) => {$(
        impl Number for $t {
            type Wide = $t;
            const ONE: Self = 1;
            const LOWEST: Self = $t::MIN;
            const HIGHEST: Self = $t::MAX;
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                false
            }
            #[inline(always)]
            fn widen(self) -> $t {
                self
            }
            #[inline(always)]
            fn narrow(wide: $t) -> Self {
                wide
            }
        }
    )*};
}

floats! { f32 wide f64, f64 wide f64, }
integers! { i32 i64 u32 u8 }

/// A float with the arithmetic of linear algebra.
pub(crate) trait Float:
    Number + std::ops::Sub<Output = Self> + std::ops::Mul<Output = Self> + std::ops::Div<Output = Self>
{
    const NAN: Self;
    fn sqrt(self) -> Self;
}

impl Float for f32 {
    const NAN: Self = f32::NAN;
    #[inline(always)]
    fn sqrt(self) -> Self {
        self.sqrt()
    }
}

impl Float for f64 {
    const NAN: Self = f64::NAN;
    #[inline(always)]
    fn sqrt(self) -> Self {
        self.sqrt()
    }
}

/// Whether [`with_number`] takes `dtype`; `bool` computes as the bytes 0 and 1.
pub(crate) const fn is_number(dtype: DType) -> bool {
    !dtype.is_half()
}

/// Runs `$body` with `$T` as the element type of `$dtype`; `bool` is seen as `u8`.
macro_rules! with_number {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            DType::F32 => {
                type $T = f32;
                $body
            }
            DType::F64 => {
                type $T = f64;
                $body
            }
            DType::I32 => {
                type $T = i32;
                $body
            }
            DType::I64 => {
                type $T = i64;
                $body
            }
            DType::U32 => {
                type $T = u32;
                $body
            }
            DType::U8 | DType::Bool => {
                type $T = u8;
                $body
            }
            DType::F16 | DType::Bf16 => unreachable!("{} has no arithmetic", $dtype),
        }
    };
}

/// Runs `$body` with `$T` as a type of the size of a dtype: where elements are copied, any will do.
macro_rules! with_bits {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype.size() {
            1 => {
                type $T = u8;
                $body
            }
            2 => {
                type $T = retape_runtime::f16;
                $body
            }
            4 => {
                type $T = u32;
                $body
            }
            _ => {
                type $T = i64;
                $body
            }
        }
    };
}

/// Runs `$body` with `$T` as `f32` or `f64`.
macro_rules! with_float {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            DType::F32 => {
                type $T = f32;
                $body
            }
            DType::F64 => {
                type $T = f64;
                $body
            }
            other => unreachable!("{other} is not a float to compute with"),
        }
    };
}

pub(crate) use {with_bits, with_float, with_number};
