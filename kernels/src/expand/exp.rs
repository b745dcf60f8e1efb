//! Exponentials.
//!
//! `e^x = 2^k * e^r` with `|r| <= ln 2 / 2`. The power of two is applied as two factors, each a normal number, so that
//! results round once into the subnormal range and overflow only where they should. Where the result is zero the factors
//! are those of `e^0` and zero is selected afterwards: processors are ten times slower at products that underflow.
//! Results that are known to be far from both ends of the range take one factor, with the same bits.

use super::arith::{Arith, Poly};

/// `e^r` on `|r| <= ln 2 / 2`; minimises the relative error: 2^-27 and 2^-57.
const EXP: Poly = Poly {
    narrow: &[
        1.0,
        1.0,
        0.5,
        0.166_665_405_035_018_92,
        0.041_666_477_918_624_88,
        0.008_366_821_333_765_984,
        0.001_393_369_282_595_813_3,
    ],
    wide: &[
        1.0,
        1.0,
        0.500_000_000_000_000_6,
        0.166_666_666_666_666_77,
        0.041_666_666_666_573_635,
        0.008_333_333_333_321_452,
        0.001_388_888_893_237_386_2,
        0.000_198_412_698_865_231_88,
        2.480_150_445_235_580_5e-5,
        2.755_724_385_001_198e-6,
        2.762_632_399_462_59e-7,
        2.510_915_133_606_230_6e-8,
    ],
};

/// `(e^r - 1 - r) / r^2` on `|r| <= ln 2 / 2`; minimises the error times `r`: 2^-31 and 2^-61.
const EXPM1: Poly = Poly {
    narrow: &[
        0.5,
        0.166_666_671_633_720_4,
        0.041_666_470_468_044_28,
        0.008_333_193_138_241_768,
        0.001_393_457_408_994_436_3,
        0.000_199_573_711_142_875_25,
    ],
    wide: &[
        0.5,
        0.166_666_666_666_666_77,
        0.041_666_666_666_666_68,
        0.008_333_333_333_321_162,
        0.001_388_888_888_887_720_8,
        0.000_198_412_698_877_962_23,
        2.480_158_734_157_247_4e-5,
        2.755_724_213_354_133e-6,
        2.755_725_799_579_554e-7,
        2.510_987_666_756_632_8e-8,
        2.091_998_811_794_789_3e-9,
    ],
};

/// `(2^r - 1) / r` on `|r| <= 1/2`; minimises the error times `r / 2^r`: 2^-28 and 2^-57.
const EXP2: Poly = Poly {
    narrow: &[
        0.693_147_182_464_599_6,
        0.240_226_447_582_244_87,
        0.055_503_588_169_813_156,
        0.009_618_838_317_692_28,
        0.001_339_135_342_277_586_5,
        0.000_152_396_576_596_492_66,
    ],
    wide: &[
        std::f64::consts::LN_2,
        0.240_226_506_959_101_33,
        0.055_504_108_664_822_23,
        0.009_618_129_107_593_338,
        0.001_333_355_814_639_103_6,
        0.000_154_035_304_581_083_13,
        1.525_273_379_520_937_3e-5,
        1.321_543_477_507_710_7e-6,
        1.017_809_093_161_826_3e-7,
        7.073_872_610_148_164e-9,
        4.449_367_490_834_980_6e-10,
    ],
};

/// The whole number `k` plus a magic constant, and `r`.
#[inline(always)]
fn exp_parts<F: Arith>(x: F, magic: F) -> (F, F) {
    let t = x.fma(x.lit(std::f64::consts::LOG2_E), magic);
    let k = t - magic;
    // Exact: k times the head cancels all of x above the last bit of the head.
    let r = k.fma(x.by_width(-0.693_147_182_464_599_6, -std::f64::consts::LN_2), x);
    let r = k.fma(x.by_width(1.904_654_212_125_933_6e-9, -2.319_046_813_846_299_6e-17), r);
    (t, r)
}

/// Evaluates a formula for a power whose exponent is `x`, which is zero up to `lowest` and infinite from `highest` on.
#[inline(always)]
fn bounded<F: Arith>(x: F, lowest: f64, highest: f64, power: impl FnOnce(F) -> F) -> F {
    let (zero, vanishes) = (x.lit(0.0), x.le(x.lit(lowest)));
    let y = power(zero.when(vanishes, x.at_most(highest)));
    zero.when(vanishes, y)
}

/// `e^(x + rest) * factor`, rounded once into the subnormal range.
///
/// `|rest|` is at most a rounding error of `x`; `factor` is 1/2 or 1.
pub(super) fn exp_scaled<F: Arith>(x: F, rest: F, factor: F) -> F {
    let [lowest, highest] = if F::WIDE { [-746.0, 711.0] } else { [-104.0, 90.0] };
    bounded(x, lowest, highest, |x| {
        let (t, r) = exp_parts(x, x.magic_halves());
        let [first, second] = t.exp2_halves();
        EXP.at(r + rest) * (first * factor) * second
    })
}

/// `e^x`.
#[inline(always)]
pub(super) fn exp<F: Arith>(x: F) -> F {
    let [lowest, highest] = if F::WIDE { [-746.0, 710.0] } else { [-104.0, 89.0] };
    bounded(x, lowest, highest, exp_unclamped)
}

/// `e^x` for `x` between the logarithms of about half the smallest and twice the largest number.
#[inline(always)]
fn exp_unclamped<F: Arith>(x: F) -> F {
    let (t, r) = exp_parts(x, x.magic_halves());
    let [first, second] = t.exp2_halves();
    EXP.at(r) * first * second
}

/// `e^x` for `x` whose power is well inside the normal range: the power of two is one factor.
#[inline(always)]
pub(super) fn exp_moderate<F: Arith>(x: F) -> F {
    let (t, r) = exp_parts(x, x.magic_exponent());
    EXP.at(r) * t.exp2_of_magic()
}

/// `e^x` for `x` that is at most a rounding error above zero; zero below about 2^-100, or 2^-938 of `f64`.
///
/// For weights of a softmax: no weight is subnormal, and products with numbers of usual size are not either, with which
/// processors compute a hundred times as slowly.
#[inline(always)]
pub(super) fn exp_or_zero<F: Arith>(x: F) -> F {
    let (zero, vanishes) = (x.lit(0.0), x.le(x.lit(if F::WIDE { -650.0 } else { -69.0 })));
    let y = exp_moderate(zero.when(vanishes, x));
    zero.when(vanishes, y)
}

/// `e^x` for `x` that is not positive.
fn exp_of_negative<F: Arith>(x: F) -> F {
    let (zero, vanishes) = (x.lit(0.0), x.le(x.lit(if F::WIDE { -746.0 } else { -104.0 })));
    let y = exp_unclamped(zero.when(vanishes, x));
    zero.when(vanishes, y)
}

/// `2^(x + rest)`; `|rest|` is at most a rounding error of `x`.
pub(super) fn exp2_pair<F: Arith>(x: F, rest: F) -> F {
    exp2_of(x, |r| r + rest)
}

/// `2^x`.
pub(super) fn exp2<F: Arith>(x: F) -> F {
    exp2_of(x, |r| r)
}

/// `2^x`, where `corrected` adds to the fraction of `x` what `x` itself cannot hold.
fn exp2_of<F: Arith>(x: F, corrected: impl FnOnce(F) -> F) -> F {
    let [lowest, highest] = if F::WIDE { [-1080.0, 1025.0] } else { [-152.0, 129.0] };
    bounded(x, lowest, highest, |x| {
        let t = x + x.magic_halves();
        let r = corrected(x - (t - x.magic_halves()));
        let [first, second] = t.exp2_halves();
        EXP2.at(r).fma_lit(r, 1.0) * first * second
    })
}

/// `e^x - 1`.
pub(super) fn expm1<F: Arith>(x: F) -> F {
    let y = x.clamp(if F::WIDE { -40.0 } else { -20.0 }, if F::WIDE { 710.0 } else { 89.0 });
    let t = y.fma(x.lit(std::f64::consts::LOG2_E), x.magic_exponent());
    let k = t - x.magic_exponent();
    let r = k.fma(x.by_width(-0.693_147_182_464_599_6, -std::f64::consts::LN_2), y);
    let r = k.fma(x.by_width(1.904_654_212_125_933_6e-9, -2.319_046_813_846_299_6e-17), r);
    let p = (r * r).fma(EXPM1.at(r), r);
    // 2^k (p + 1) - 1, through 2^(k-1) because 2^k may overflow where the result does not.
    let half = (t - x.lit(1.0)).exp2_of_magic();
    let z = half.fma(p, half - x.lit(0.5));
    // Where the square vanishes beside x, x is the result; half of it would lose bits of subnormal numbers.
    let tiny = x.abs().lt(x.by_width(1.0 / 33_554_432.0, 1.0 / 18_014_398_509_481_984.0));
    x.when(tiny, z + z)
}

/// `1 / (1 + e^-x)`.
pub(super) fn sigmoid<F: Arith>(x: F) -> F {
    // The exponential of the negative magnitude neither overflows nor, in the denominator, cancels. Subtracting the
    // share from the whole damps the error of the quotient.
    let e = exp_of_negative(-x.abs());
    let one = x.lit(1.0);
    let whole = e.when(x.lt(x.lit(0.0)), one);
    (-whole).fma(e / (one + e), whole)
}
