//! Conversions between number formats, in every rounding that PTX has.

/// How a value between two numbers of a format is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// To the nearest, ties to even.
    Nearest,
    /// To the nearest, ties away from zero.
    Away,
    /// Towards zero.
    Zero,
    /// Towards minus infinity.
    Down,
    /// Towards plus infinity.
    Up,
}

impl Rounding {
    /// The nearest integer in this direction.
    pub(crate) fn integer(self, x: f64) -> f64 {
        match self {
            Rounding::Nearest => x.round_ties_even(),
            Rounding::Away => x.round(),
            Rounding::Zero => x.trunc(),
            Rounding::Down => x.floor(),
            Rounding::Up => x.ceil(),
        }
    }
}

/// A half to a single, exactly.
#[inline(always)]
pub(crate) fn from_f16(h: u16) -> f32 {
    let (sign, magnitude) = (u32::from(h & 0x8000) << 16, u32::from(h & 0x7fff));
    // With the bits in place the exponent is too small by 112; the product is exact for subnormal halves, too.
    let finite = (f32::from_bits(magnitude << 13) * f32::from_bits((127 + 112) << 23)).to_bits();
    let bits = if magnitude < 0x7c00 { finite } else { 0x7f80_0000 | magnitude << 13 };
    f32::from_bits(sign | bits)
}

/// A single to the nearest half.
#[inline]
pub(crate) fn to_f16(x: f32) -> u16 {
    let sign = ((x.to_bits() >> 16) & 0x8000) as u16;
    let size = x.abs();
    if size.is_nan() {
        return 0x7fff;
    }
    if size >= 65520.0 {
        return sign | 0x7c00;
    }
    if size < 2_f32.powi(-14) {
        // The product is exact, and the sum below one unit of 2^-24 is what rounds.
        return sign | (size * 2_f32.powi(24)).round_ties_even() as u16;
    }
    let bits = size.to_bits();
    sign | (((bits + 0xfff + ((bits >> 13) & 1)) >> 13) - (112 << 10)) as u16
}

/// A bf16 to a single, exactly.
#[inline(always)]
pub(crate) fn from_bf16(h: u16) -> f32 {
    f32::from_bits(u32::from(h) << 16)
}

/// A single to the nearest bf16.
#[inline]
pub(crate) fn to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        return 0x7fff;
    }
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

/// A subnormal to a zero of its sign.
#[inline]
pub(crate) fn flush(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE { 0_f32.copysign(x) } else { x }
}

/// A format below double precision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    /// Bits of the significand, the hidden one included.
    pub(crate) digits: i32,
    /// Exponent of the smallest normal number.
    pub(crate) least: i32,
    /// The greatest finite number.
    pub(crate) max: f64,
}

/// Half precision.
pub(crate) const F16: Format = Format { digits: 11, least: -14, max: 65504.0 };

/// The upper half of a single.
pub(crate) const BF16: Format = Format { digits: 8, least: -126, max: f32::from_bits(0x7f7f_0000) as f64 };

/// A single with ten bits of fraction.
pub(crate) const TF32: Format = Format { digits: 11, least: -126, max: f32::from_bits(0x7fff_e000 - 0x80_0000) as f64 };

/// Single precision.
pub(crate) const F32: Format = Format { digits: 24, least: -126, max: f32::MAX as f64 };

/// The number of the format to which `x` rounds. Finite values beyond the greatest go to infinity where the
/// rounding goes outwards or to the nearest.
pub(crate) fn round(x: f64, format: Format, rounding: Rounding) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let exponent = exponent(x).max(format.least) - (format.digits - 1);
    // Both factors are powers of two within range, and the quotient has at most 53 significant bits: exact.
    let unit = 2_f64.powi(exponent);
    let rounded = rounding.integer(x / unit) * unit;
    if rounded.abs() <= format.max {
        return rounded.copysign(x);
    }
    let outwards = match rounding {
        Rounding::Nearest | Rounding::Away => true,
        Rounding::Zero => false,
        Rounding::Down => x < 0.0,
        Rounding::Up => x > 0.0,
    };
    if outwards { f64::INFINITY.copysign(x) } else { format.max.copysign(x) }
}

/// A whole number rounded to so many significant bits.
pub(crate) fn of_integer(value: i128, digits: u32, rounding: Rounding) -> f64 {
    let size = value.unsigned_abs();
    let excess = (128 - size.leading_zeros()).saturating_sub(digits);
    let (kept, rest) = (size >> excess, size & ((1 << excess) - 1));
    let half = (1_u128 << excess) >> 1;
    let is_up = match rounding {
        Rounding::Nearest => rest > half || rest == half && half > 0 && kept & 1 == 1,
        Rounding::Away => rest >= half && half > 0,
        Rounding::Zero => false,
        Rounding::Down => value < 0 && rest > 0,
        Rounding::Up => value > 0 && rest > 0,
    };
    let rounded = ((kept + u128::from(is_up)) << excess) as f64;
    if value < 0 { -rounded } else { rounded }
}

/// The exponent of the leading bit of a finite number other than zero.
fn exponent(x: f64) -> i32 {
    let biased = (x.to_bits() >> 52 & 0x7ff) as i32;
    if biased == 0 { exponent(x * 2_f64.powi(64)) - 64 } else { biased - 1023 }
}

/// `a * b + c` as a single whose last bit is odd if anything was lost, so that rounding it to at most 22 bits gives
/// what rounding the exact result would.
///
/// The factors have at most 11 significant bits, so that their product is exact in double precision.
pub(crate) fn fma_to_odd(a: f32, b: f32, c: f32) -> f32 {
    let (product, addend) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + addend;
    if !sum.is_finite() {
        return sum as f32;
    }
    // The rounding error of the sum, exactly (two-sum).
    let part = sum - product;
    let lost = (product - (sum - part)) + (addend - part);
    let near = sum as f32;
    let rest = (sum - f64::from(near)) + lost;
    if rest == 0.0 || near.to_bits() & 1 == 1 || !near.is_finite() {
        return near;
    }
    let away = (rest > 0.0) == (near > 0.0) || near == 0.0;
    let bits = near.to_bits();
    if near == 0.0 {
        return f32::from_bits(1).copysign(rest as f32);
    }
    f32::from_bits(if away { bits + 1 } else { bits - 1 })
}
