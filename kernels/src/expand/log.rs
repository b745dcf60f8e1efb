//! Logarithms.
//!
//! `x = 2^k (1 + f)` with `1 + f` between `sqrt(1/2)` and `sqrt(2)`, and `log(1 + f) = 2 atanh(s)` with
//! `s = f / (2 + f)`.

use super::arith::{Arith, IntArith, Pair, Poly};

/// `(log(1 + f) - f + f^2 / 2) / f^3`; minimises the error times `f^2`: 2^-30. Single precision only.
const LOG_NARROW: &[f64] = &[
    0.333_333_104_848_861_7,
    -0.25,
    0.200_022_414_326_667_8,
    -0.166_685_551_404_953,
    0.142_176_479_101_181_03,
    -0.123_952_880_501_747_13,
    0.118_918_523_192_405_7,
    -0.117_360_278_964_042_66,
    0.068_099_461_495_876_31,
];

/// `(2 atanh(s) - 2 s) / s^3` in `s^2`; minimises the error times `s^2`: 2^-34 and 2^-65.
const ATANH: Poly = Poly {
    narrow: &[0.666_666_686_534_881_6, 0.399_998_009_204_864_5, 0.285_658_180_713_653_56, 0.231_097_504_496_574_4],
    wide: &[
        0.666_666_666_666_666_6,
        0.400_000_000_000_048_04,
        0.285_714_285_694_598_34,
        0.222_222_225_994_369_3,
        0.181_817_789_337_968_44,
        0.153_869_652_581_385_27,
        0.132_526_374_994_519_36,
        0.132_307_142_173_178_07,
    ],
};

/// `(2 atanh(s) - 2 s - 2/3 s^3) / s^5` in `s^2`; minimises the error times `s^4`: 2^-35 and 2^-65.
const ATANH_TAIL: Poly = Poly {
    narrow: &[0.400_001_525_878_906_25, 0.285_470_873_117_446_9, 0.234_198_153_018_951_42],
    wide: &[
        0.400_000_000_000_022_06,
        0.285_714_285_701_213_04,
        0.222_222_225_164_501_19,
        0.181_817_846_368_790_6,
        0.153_867_463_825_964_28,
        0.132_570_406_033_603_5,
        0.131_945_373_634_006_01,
    ],
};

/// A positive finite number as `2^k * m`.
pub(super) struct LogParts<F: Arith> {
    /// The exponent as a float.
    pub(super) k: F,
    /// The exponent field that was taken off, to scale something else alike.
    field: F::Int,
    /// The significand, from `sqrt(1/2)` to `sqrt(2)`.
    pub(super) m: F,
}

/// Takes a positive finite number apart; other inputs give meaningless parts.
#[inline(always)]
pub(super) fn parts<F: Arith>(x: F) -> LogParts<F> {
    let tiny = x.lt(x.by_width(f64::from(f32::MIN_POSITIVE), f64::MIN_POSITIVE));
    let shift = if F::WIDE { 54.0 } else { 25.0 };
    let y = (x * x.lit(if F::WIDE { 18_014_398_509_481_984.0 } else { 33_554_432.0 })).when(tiny, x);
    let bits = y.bits();
    let root = bits.lit(if F::WIDE { 0x3FE6_A09E_667F_3BCD } else { 0x3F35_04F3 });
    let field = bits.sub(root).and(bits.lit(if F::WIDE { -1 << 52 } else { -1 << 23 }));
    let exponent = field.shr(F::MANTISSA);
    // A small integer becomes a float by writing it into the low bits of 1.5 * 2^MANTISSA.
    let k = F::from_bits(exponent.add(x.magic().bits())) - x.magic();
    LogParts { k: k - x.lit(shift).when(tiny, x.lit(0.0)), field, m: F::from_bits(bits.sub(field)) }
}

/// Replaces a logarithm `y` where `x` is zero, negative, infinite or NaN.
#[inline(always)]
fn with_edges<F: Arith>(x: F, y: F) -> F {
    let (zero, infinity) = (x.lit(0.0), x.lit(f64::INFINITY));
    let y = y.when(x.lt(infinity), x);
    let below = (-infinity).when(x.eq(zero), x.lit(f64::NAN));
    below.when(x.le(zero), y)
}

/// `f^2 / 2`, and the rest of `log(1 + f)` without it and `f`.
#[inline(always)]
fn tail_of_log<F: Arith>(f: F) -> (F, F) {
    let half_square = f.lit(0.5) * f * f;
    let correction = if F::WIDE {
        let s = f / (f.lit(2.0) + f);
        let z = s * s;
        s * (z.fma(ATANH.at(z), half_square))
    } else {
        super::arith::horner(f, LOG_NARROW) * (f * (f * f))
    };
    (half_square, correction)
}

/// `k ln 2 + log(1 + f)`.
#[inline(always)]
fn log_of_parts<F: Arith>(k: F, f: F) -> F {
    // The head of ln 2 has few enough bits that its product with any exponent is exact.
    let head = f.by_width(0.693_145_751_953_125, 0.693_147_180_559_890_3);
    let tail = f.by_width(1.428_606_765_330_187e-6, 5.497_923_018_708_371e-14);
    let (half_square, correction) = tail_of_log(f);
    let small = f - (half_square - k.fma(tail, correction));
    k.fma(head, small)
}

/// `log x`.
#[inline(always)]
pub(super) fn log<F: Arith>(x: F) -> F {
    let LogParts { k, m, .. } = parts(x);
    with_edges(x, log_of_parts(k, m - x.lit(1.0)))
}

/// `log(1 + x)`.
pub(super) fn log1p<F: Arith>(x: F) -> F {
    let y = log1p_shifted(x, x.lit(0.0));
    let one = x.lit(1.0);
    x.when(x.eq(x.lit(0.0)), with_edges(x + one, y))
}

/// `log(1 + x)`, where `log_of_sum` is that to an absolute error only: taken where it is not small.
pub(super) fn log1p_beside<F: Arith>(x: F, log_of_sum: F) -> F {
    let (half_square, correction) = tail_of_log(x);
    // Both ends are within the range of the polynomials.
    (x - (half_square - correction)).when(x.abs().lt(x.lit(0.28)), log_of_sum)
}

/// `log(1 + x) + n ln 2` for finite `x > -1` and a small integer `n`.
pub(super) fn log1p_shifted<F: Arith>(x: F, n: F) -> F {
    let one = x.lit(1.0);
    let u = one + x;
    let rest = x - (u - one);
    let LogParts { k, field, m } = parts(u);
    // The rest is the rounding error of the sum, scaled as the sum was. For `k = 0` this restores `f = x` exactly; for
    // a huge `x` it is below the rounding error, and the bound keeps the scale a normal number.
    let limit = rest.bits().lit(if F::WIDE { 60 << 52 } else { 60 << 23 });
    let scale = F::from_bits(one.bits().sub(field));
    let f = (m - one) + (rest * scale).when(field.lt(limit), x.lit(0.0));
    log_of_parts(k + n, f)
}

/// `log2(m)` for `m` from `sqrt(1/2)` to `sqrt(2)`, to about 2^-36 (`f32`) or 2^-66 (`f64`) relative.
fn log2_significand<F: Arith>(m: F) -> Pair<F> {
    let f = m - m.lit(1.0);
    // 2 + f = 1 + m, which rounds.
    let s = Pair::quotient(f, Pair::fast_sum(m.lit(1.0), m));
    let z = s.times(s);
    let inner = Pair::fast_sum(m.lit(if F::WIDE { 2.0 / 3.0 } else { 0.666_666_686_534_881_6 }), {
        let low = m.by_width(-1.986_821_551_724_915_5e-8, 3.700_743_415_417_188e-17);
        z.hi.fma(ATANH_TAIL.at(z.hi), low)
    });
    let cubic = s.times(z).times(inner);
    let log = Pair::fast_sum(s.hi + s.hi, s.lo + s.lo).plus(cubic);
    log.times(Pair::lit(m, std::f64::consts::LOG2_E, 2.035_527_374_093_103_3e-17))
}

/// `log2 x` of a positive finite `x` as a pair.
pub(super) fn log2_pair<F: Arith>(x: F) -> Pair<F> {
    let LogParts { k, m, .. } = parts(x);
    let log = log2_significand(m);
    let sum = Pair::sum(k, log.hi);
    Pair::fast_sum(sum.hi, sum.lo + log.lo)
}

/// `log2 x`.
pub(super) fn log2<F: Arith>(x: F) -> F {
    let LogParts { k, m, .. } = parts(x);
    let f = m - x.lit(1.0);
    let (half_square, correction) = tail_of_log(f);
    // f + (correction - f^2/2) as a pair, times log2(e) as a pair.
    let log = Pair::fast_sum(f, correction - half_square);
    let (hi, lo) = if F::WIDE {
        (std::f64::consts::LOG2_E, 2.035_527_374_093_103_3e-17)
    } else {
        (1.442_695_021_629_333_5, 1.925_963_033_500_011e-8)
    };
    let low = log.hi.fma(x.lit(lo), log.lo * x.lit(hi));
    let product = log.hi * x.lit(hi);
    let low = log.hi.fma(x.lit(hi), -product) + low;
    let sum = Pair::sum(k, product);
    with_edges(x, sum.hi + (sum.lo + low))
}
