//! The arithmetic that formulas are written in.
//!
//! Guarantees that every operation is one that all backends have and round the same way, so that a formula gives the
//! same bits wherever it runs. NaN payloads are the exception: they are left to the machine.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// A float value of a kernel under construction.
pub(super) trait Arith:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Neg<Output = Self>
{
    /// The integer lane of the same width.
    type Int: IntArith<Mask = Self::Mask>;
    /// The result of a comparison.
    type Mask: Mask;
    /// Whether this is double precision; formulas choose polynomials and constants by it.
    const WIDE: bool;

    /// The constant `x`, rounded to this width.
    fn lit(self, x: f64) -> Self;
    /// `self * y + z` rounded once.
    fn fma(self, y: Self, z: Self) -> Self;
    /// Clears the sign.
    fn abs(self) -> Self;
    /// Correctly rounded square root.
    fn sqrt(self) -> Self;
    /// The largest integral value not above.
    fn floor(self) -> Self;
    /// `self < y`.
    fn lt(self, y: Self) -> Self::Mask;
    /// `self <= y`.
    fn le(self, y: Self) -> Self::Mask;
    /// `self == y`.
    fn eq(self, y: Self) -> Self::Mask;
    /// `if mask { self } else { other }`.
    fn when(self, mask: Self::Mask, other: Self) -> Self;
    /// The bits as an integer.
    fn bits(self) -> Self::Int;
    /// The float with these bits.
    fn from_bits(bits: Self::Int) -> Self;

    /// The constant for this width.
    #[inline(always)]
    fn by_width(self, narrow: f64, wide: f64) -> Self {
        self.lit(if Self::WIDE { wide } else { narrow })
    }

    /// `self * y + c`.
    #[inline(always)]
    fn fma_lit(self, y: Self, c: f64) -> Self {
        self.fma(y, self.lit(c))
    }

    /// The constant `1.5 * 2^MANTISSA`: adding it rounds to an integer (ties to even) that stands in the low bits.
    #[inline(always)]
    fn magic(self) -> Self {
        self.by_width(12_582_912.0, 6_755_399_441_055_744.0)
    }

    /// Bits of the stored mantissa.
    const MANTISSA: u32 = if Self::WIDE { 52 } else { 23 };
    /// `self` with the sign flipped where `sign` has its sign bit set.
    fn xor_sign(self, sign: Self) -> Self {
        Self::from_bits(self.bits().xor(sign.sign_bit()))
    }

    /// The sign bit alone.
    fn sign_bit(self) -> Self::Int {
        let bits = self.bits();
        bits.and(bits.lit(if Self::WIDE { i64::MIN } else { i64::from(i32::MIN) }))
    }

    /// [`magic`](Self::magic) plus the exponent bias, so that the rounded integer can be shifted into an exponent.
    fn magic_exponent(self) -> Self {
        self.by_width(12_583_039.0, 6_755_399_441_056_767.0)
    }

    /// `2^k` where `self` is `k` plus [`magic_exponent`](Self::magic_exponent) and `k` is a normal exponent.
    fn exp2_of_magic(self) -> Self {
        Self::from_bits(self.bits().shl(Self::MANTISSA))
    }

    /// [`magic`](Self::magic) plus twice the exponent bias, for [`exp2_halves`](Self::exp2_halves).
    #[inline(always)]
    fn magic_halves(self) -> Self {
        self.by_width(12_583_166.0, 6_755_399_441_057_790.0)
    }

    /// Two normal numbers whose product is `2^k`, where `self` is `k` plus [`magic_halves`](Self::magic_halves) and
    /// `|k|` is at most twice the largest exponent.
    #[inline(always)]
    fn exp2_halves(self) -> [Self; 2] {
        let k = self.bits();
        // The bits of the magic number are even and vanish in the shift; each half is left with one bias.
        let half = k.shr(1);
        [half, k.sub(half)].map(|k| Self::from_bits(k.shl(Self::MANTISSA)))
    }

    /// `self` with both bounds applied; NaN stays.
    fn clamp(self, low: f64, high: f64) -> Self {
        let (low, high) = (self.lit(low), self.lit(high));
        let x = low.when(self.lt(low), self);
        high.when(high.lt(x), x)
    }

    /// `self` with an upper bound applied; NaN stays.
    #[inline(always)]
    fn at_most(self, high: f64) -> Self {
        let high = self.lit(high);
        high.when(high.lt(self), self)
    }
}

/// A signed integer lane; arithmetic wraps.
pub(super) trait IntArith: Copy {
    /// The result of a comparison.
    type Mask: Mask;
    /// Whether this has 64 bits.
    const WIDE: bool;
    /// The constant `x`.
    fn lit(self, x: i64) -> Self;
    /// Sum.
    fn add(self, y: Self) -> Self;
    /// Difference.
    fn sub(self, y: Self) -> Self;
    /// Product.
    fn mul(self, y: Self) -> Self;
    /// Bitwise and.
    fn and(self, y: Self) -> Self;
    /// Bitwise exclusive or.
    fn xor(self, y: Self) -> Self;
    /// Left shift by a constant.
    fn shl(self, distance: u32) -> Self;
    /// Arithmetic right shift by a constant.
    fn shr(self, distance: u32) -> Self;
    /// `self == y`.
    fn eq(self, y: Self) -> Self::Mask;
    /// `self < y`.
    fn lt(self, y: Self) -> Self::Mask;
    /// `if mask { self } else { other }`.
    fn when(self, mask: Self::Mask, other: Self) -> Self;
}

/// A truth value per lane.
pub(super) trait Mask: Copy {
    /// Conjunction.
    fn and(self, other: Self) -> Self;
    /// Disjunction.
    fn or(self, other: Self) -> Self;
    /// Complement.
    fn not(self) -> Self;
}

/// The coefficients of a polynomial for each width, lowest order first.
pub(super) struct Poly {
    /// For `f32`.
    pub(super) narrow: &'static [f64],
    /// For `f64`.
    pub(super) wide: &'static [f64],
}

impl Poly {
    /// The value at `x` by Horner's rule.
    #[inline(always)]
    pub(super) fn at<F: Arith>(&self, x: F) -> F {
        horner(x, if F::WIDE { self.wide } else { self.narrow })
    }
}

/// The polynomial with these coefficients, lowest order first, at `x`.
#[inline(always)]
pub(super) fn horner<F: Arith>(x: F, coefficients: &[f64]) -> F {
    let n = coefficients.len();
    let mut sum = x.lit(coefficients[n - 1]);
    for i in 1..n {
        sum = sum.fma_lit(x, coefficients[n - 1 - i]);
    }
    sum
}

/// An unevaluated sum of two floats, the second below the rounding error of the first.
#[derive(Clone, Copy)]
pub(super) struct Pair<F> {
    /// The leading part.
    pub(super) hi: F,
    /// The rest beyond `hi`.
    pub(super) lo: F,
}

impl<F: Arith> Pair<F> {
    /// A constant given as two doubles; for `f32` the first is split, so that the pair has 48 bits.
    pub(super) fn lit(like: F, hi: f64, lo: f64) -> Self {
        if F::WIDE {
            Pair { hi: like.lit(hi), lo: like.lit(lo) }
        } else {
            let head = hi as f32;
            Pair { hi: like.lit(f64::from(head)), lo: like.lit(hi - f64::from(head)) }
        }
    }

    /// The exact sum, for `|x| >= |y|` or `x == 0`.
    pub(super) fn fast_sum(x: F, y: F) -> Self {
        let hi = x + y;
        Pair { hi, lo: y - (hi - x) }
    }

    /// The exact sum.
    pub(super) fn sum(x: F, y: F) -> Self {
        let hi = x + y;
        let back = hi - x;
        Pair { hi, lo: (x - (hi - back)) + (y - back) }
    }

    /// The exact product.
    pub(super) fn product(x: F, y: F) -> Self {
        let hi = x * y;
        Pair { hi, lo: x.fma(y, -hi) }
    }

    /// `self * y`, about twice the working precision.
    pub(super) fn times(self, y: Pair<F>) -> Self {
        let p = Pair::product(self.hi, y.hi);
        Pair::fast_sum(p.hi, p.lo + self.hi.fma(y.lo, self.lo * y.hi))
    }

    /// `self + y`, about twice the working precision unless the heads cancel.
    pub(super) fn plus(self, y: Pair<F>) -> Self {
        let s = Pair::sum(self.hi, y.hi);
        Pair::fast_sum(s.hi, s.lo + (self.lo + y.lo))
    }

    /// `x / y` to about twice the working precision.
    pub(super) fn quotient(x: F, y: Pair<F>) -> Self {
        let q = x / y.hi;
        let rest = (-q).fma(y.lo, (-q).fma(y.hi, x));
        Pair::fast_sum(q, rest / y.hi)
    }
}
