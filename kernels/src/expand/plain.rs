//! Formulas on plain floats, for library kernels: the bits are those of compiled code.

use super::arith::{Arith, IntArith, Mask};
use super::{exp, log};

/// A float with the transcendental functions that library kernels need.
pub(crate) trait Transcendental {
    /// `e^self` for a number that is at most a rounding error above zero; zero below about 2^-100, or 2^-938 of `f64`.
    fn exp_or_zero(self) -> Self;
    /// The natural logarithm.
    fn log(self) -> Self;
}

impl Mask for bool {
    #[inline(always)]
    fn and(self, other: Self) -> Self {
        self & other
    }
    #[inline(always)]
    fn or(self, other: Self) -> Self {
        self | other
    }
    #[inline(always)]
    fn not(self) -> Self {
        !self
    }
}

macro_rules! plain {
    ($float:ident, $int:ident, $wide:literal) => {
        impl Arith for $float {
            type Int = $int;
            type Mask = bool;
            const WIDE: bool = $wide;

            #[inline(always)]
            fn lit(self, x: f64) -> Self {
                x as $float
            }
            #[inline(always)]
            fn fma(self, y: Self, z: Self) -> Self {
                self.mul_add(y, z)
            }
            #[inline(always)]
            fn abs(self) -> Self {
                $float::abs(self)
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                $float::sqrt(self)
            }
            #[inline(always)]
            fn floor(self) -> Self {
                $float::floor(self)
            }
            #[inline(always)]
            fn lt(self, y: Self) -> bool {
                self < y
            }
            #[inline(always)]
            fn le(self, y: Self) -> bool {
                self <= y
            }
            #[inline(always)]
            fn eq(self, y: Self) -> bool {
                self == y
            }
            #[inline(always)]
            fn when(self, mask: bool, other: Self) -> Self {
                if mask { self } else { other }
            }
            #[inline(always)]
            fn bits(self) -> $int {
                self.to_bits().cast_signed()
            }
            #[inline(always)]
            fn from_bits(bits: $int) -> Self {
                $float::from_bits(bits.cast_unsigned())
            }
        }

        impl IntArith for $int {
            type Mask = bool;
            const WIDE: bool = $wide;

            #[inline(always)]
            fn lit(self, x: i64) -> Self {
                x as $int
            }
            #[inline(always)]
            fn add(self, y: Self) -> Self {
                self.wrapping_add(y)
            }
            #[inline(always)]
            fn sub(self, y: Self) -> Self {
                self.wrapping_sub(y)
            }
            #[inline(always)]
            fn mul(self, y: Self) -> Self {
                self.wrapping_mul(y)
            }
            #[inline(always)]
            fn and(self, y: Self) -> Self {
                self & y
            }
            #[inline(always)]
            fn xor(self, y: Self) -> Self {
                self ^ y
            }
            #[inline(always)]
            fn shl(self, distance: u32) -> Self {
                self.wrapping_shl(distance)
            }
            #[inline(always)]
            fn shr(self, distance: u32) -> Self {
                self.wrapping_shr(distance)
            }
            #[inline(always)]
            fn eq(self, y: Self) -> bool {
                self == y
            }
            #[inline(always)]
            fn lt(self, y: Self) -> bool {
                self < y
            }
            #[inline(always)]
            fn when(self, mask: bool, other: Self) -> Self {
                if mask { self } else { other }
            }
        }

        impl Transcendental for $float {
            #[inline(always)]
            fn exp_or_zero(self) -> Self {
                exp::exp_or_zero(self)
            }
            #[inline(always)]
            fn log(self) -> Self {
                log::log(self)
            }
        }
    };
}

plain!(f32, i32, false);
plain!(f64, i64, true);
