//! Exponentials.
//!
//! `e^x = 2^(2k) * e^r` with `|r| <= ln 2`. The even power of two is two equal factors, each a normal number, so that
//! results round once into the subnormal range and overflow only where they should, at no extra cost.

use super::arith::{Arith, Poly};

/// `e^r` on `|r| <= ln 2`; minimises the relative error: 2^-30 and 2^-61.
const EXP: Poly = Poly {
    narrow: &[
        1.0,
        1.0,
        0.5,
        0.166_666_731_238_365_17,
        0.041_666_623_204_946_52,
        0.008_332_571_014_761_925,
        0.001_389_093_114_994_466_3,
        0.000_201_039_045_350_626_1,
        2.468_950_515_321_921_6e-5,
    ],
    wide: &[
        1.0,
        1.0,
        0.5,
        0.166_666_666_666_666_55,
        0.041_666_666_666_666_88,
        0.008_333_333_333_337_526,
        0.001_388_888_888_884_509_2,
        0.000_198_412_698_361_342_98,
        2.480_158_733_384_572_5e-5,
        2.755_732_219_974_765_8e-6,
        2.755_730_849_461_127e-7,
        2.505_122_170_299_700_8e-8,
        2.087_831_232_988_404e-9,
        1.619_039_161_234_205e-10,
        1.141_757_181_043_226_2e-11,
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

/// `(2^r - 1) / r` on `|r| <= 1`; minimises the error times `r / 2^r`: 2^-29 and 2^-58.
pub(super) const EXP2: Poly = Poly {
    narrow: &[
        0.693_147_182_464_599_6,
        0.240_226_522_088_050_84,
        0.055_504_120_886_325_836,
        0.009_618_043_899_536_133,
        0.001_333_247_404_545_545_6,
        0.000_154_171_735_630_370_68,
        1.544_844_417_367_130_5e-5,
        1.261_611_032_532_528e-6,
    ],
    wide: &[
        0.693_147_180_559_945_3,
        0.240_226_506_959_100_67,
        0.055_504_108_664_822,
        0.009_618_129_107_629_332,
        0.001_333_355_814_640_488,
        0.000_154_035_303_928_419_55,
        1.525_273_380_925_723_2e-5,
        1.321_548_694_790_346_7e-6,
        1.017_808_571_472_462_5e-7,
        7.054_888_287_147_417e-9,
        4.445_485_194_908_612_4e-10,
        2.569_528_839_223_442_2e-11,
        1.377_301_700_153_34e-12,
        6.321_545_978_432_942e-14,
    ],
};

/// `e^(x + rest) * factor` with one rounding into the subnormal range.
///
/// `|rest|` is at most a rounding error of `x`; `factor` is a power of two.
#[inline(always)]
pub(super) fn exp_scaled<F: Arith>(x: F, rest: F, factor: F) -> F {
    // Beyond these bounds the result is 0 or infinite for every factor in use.
    let x = x.clamp(if F::WIDE { -747.0 } else { -105.0 }, if F::WIDE { 712.0 } else { 91.0 });
    let t = x.fma(x.lit(std::f64::consts::LOG2_E / 2.0), x.magic_exponent());
    let k = t - x.magic_exponent();
    let r = k.fma(x.by_width(-2.0 * 0.693_147_182_464_599_6, -2.0 * std::f64::consts::LN_2), x);
    let r = k.fma(x.by_width(2.0 * 1.904_654_212_125_933_6e-9, -2.0 * 2.319_046_813_846_299_6e-17), r) + rest;
    let scale = t.exp2_of_magic();
    EXP.at(r) * scale * (scale * factor)
}

/// `e^x`.
#[inline(always)]
pub(super) fn exp<F: Arith>(x: F) -> F {
    let x = x.clamp(if F::WIDE { -746.0 } else { -104.0 }, if F::WIDE { 710.0 } else { 89.0 });
    let t = x.fma(x.lit(std::f64::consts::LOG2_E / 2.0), x.magic_exponent());
    let k = t - x.magic_exponent();
    let r = k.fma(x.by_width(-2.0 * 0.693_147_182_464_599_6, -2.0 * std::f64::consts::LN_2), x);
    let r = k.fma(x.by_width(2.0 * 1.904_654_212_125_933_6e-9, -2.0 * 2.319_046_813_846_299_6e-17), r);
    let scale = t.exp2_of_magic();
    EXP.at(r) * scale * scale
}

/// `2^(x + rest)`; `|rest|` is at most a rounding error of `x`.
#[inline(always)]
pub(super) fn exp2_pair<F: Arith>(x: F, rest: F) -> F {
    let x = x.clamp(if F::WIDE { -1080.0 } else { -152.0 }, if F::WIDE { 1025.0 } else { 129.0 });
    let t = x.fma_lit(x.lit(0.5), if F::WIDE { 6_755_399_441_056_767.0 } else { 12_583_039.0 });
    let k = t - x.magic_exponent();
    let r = k.fma(x.lit(-2.0), x) + rest;
    let scale = t.exp2_of_magic();
    EXP2.at(r).fma_lit(r, 1.0) * scale * scale
}

/// `2^x`.
#[inline(always)]
pub(super) fn exp2<F: Arith>(x: F) -> F {
    exp2_pair(x, x.lit(0.0))
}

/// `e^x - 1`.
#[inline(always)]
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
    x.when(x.eq(x.lit(0.0)), z + z)
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(super) fn sigmoid<F: Arith>(x: F) -> F {
    // The exponential of the negative magnitude neither overflows nor, in the denominator, cancels.
    let e = exp(-x.abs());
    let one = x.lit(1.0);
    e.when(x.lt(x.lit(0.0)), one) / (one + e)
}
