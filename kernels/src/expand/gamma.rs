//! The logarithm of the gamma function and its first three derivatives.
//!
//! From 8 on: Stirling's series with fitted coefficients. Below: recurrence, whose sums and products are taken as one
//! fraction. Negative arguments: reflection. Relative accuracy is that of the parts; where parts cancel (near the
//! zeros of the functions on the negative axis, and of `digamma` at 1.46) it is the absolute error that stays small.

use super::arith::{Arith, Mask, Poly};
use super::log::log;

/// `lgamma(2 + d) / d` on `|d| <= 1/2`; minimises the absolute error: 2^-27 and 2^-57.
const NEAR_TWO: Poly = Poly {
    narrow: &[
        0.422_784_328_460_693_36,
        0.322_467_029_094_696_04,
        -0.067_351_929_843_425_75,
        0.020_581_360_906_362_534,
        -0.007_391_255_348_920_822,
        0.002_880_678_977_817_297,
        -0.001_158_707_193_098_962_3,
        0.000_566_502_450_965_344_9,
        -0.000_302_149_506_751_447_9,
    ],
    wide: &[
        0.422_784_335_098_467_13,
        0.322_467_033_424_113_26,
        -0.067_352_301_053_195_4,
        0.020_580_808_427_777_43,
        -0.007_385_551_028_950_048,
        0.002_890_510_331_164_587_3,
        -0.001_192_753_900_615_552_6,
        0.000_509_669_512_621_689_8,
        -0.000_223_154_982_764_858_08,
        9.945_770_662_636_53e-5,
        -4.492_368_620_083_568e-5,
        2.050_536_226_452_125_5e-5,
        -9.456_471_334_908_629e-6,
        4.385_620_368_473_182_4e-6,
        -1.973_883_648_319_063e-6,
        9.180_785_435_386_399e-7,
        -5.815_372_345_753_04e-7,
        2.805_102_161_719_868_7e-7,
    ],
};

/// `x (lgamma x - (x - 1/2) log x + x - log(2 pi) / 2)` in `1/x^2` for `x >= 8`.
const STIRLING: Poly = Poly {
    narrow: &[0.083_333_335_816_860_2, -0.002_778_352_005_407_214, 0.000_813_494_203_612_208_4],
    wide: &[
        0.083_333_333_333_333_33,
        -0.002_777_777_777_766_814_4,
        0.000_793_650_786_092_387_2,
        -0.000_595_235_783_578_289_1,
        0.000_841_384_838_146_075_8,
        -0.001_886_026_056_204_232_3,
        0.004_980_233_245_855_698,
    ],
};

/// `x^2 (log x - 1/(2x) - digamma x)` in `1/x^2` for `x >= 8`.
const DIGAMMA: Poly = Poly {
    narrow: &[0.083_333_335_816_860_2, -0.008_333_542_384_207_249, 0.003_912_467_509_508_133],
    wide: &[
        0.083_333_333_333_333_33,
        -0.008_333_333_333_321_119,
        0.003_968_253_958_722_231,
        -0.004_166_663_286_354_425_6,
        0.007_575_113_717_442_052,
        -0.021_022_079_453_358_18,
        0.078_787_696_236_942_12,
        -0.278_349_034_309_575_77,
    ],
};

/// `x^3 (trigamma x - 1/x - 1/(2x^2))` in `1/x^2` for `x >= 8`.
const TRIGAMMA: Poly = Poly {
    narrow: &[0.166_666_656_732_559_2, -0.033_327_408_134_937_286, 0.022_977_756_336_331_367],
    wide: &[
        0.166_666_666_666_666_66,
        -0.033_333_333_333_291_38,
        0.023_809_523_761_877_647,
        -0.033_333_310_653_901_24,
        0.075_752_047_274_226_85,
        -0.252_360_265_464_830_87,
        1.107_907_713_760_414_5,
        -4.550_749_963_074_101,
    ],
};

/// `x^4 (-tetragamma x - 1/x^2 - 1/x^3)` in `1/x^2` for `x >= 8`.
const TETRAGAMMA: Poly = Poly {
    narrow: &[0.499_999_970_197_677_6, -0.166_628_941_893_577_58, 0.160_014_942_288_398_74],
    wide: &[
        0.499_999_999_999_999_94,
        -0.166_666_666_666_176_72,
        0.166_666_665_991_653_9,
        -0.299_999_646_760_584_4,
        0.833_242_142_259_826_7,
        -3.277_547_848_813_394_4,
        16.459_635_410_474_192,
        -74.219_497_842_670_89,
    ],
};

/// `sin(pi r) / r` in `r^2` on `|r| <= 1/4`; minimises the absolute error: 2^-23 and 2^-53, from rounding pi.
const SIN_PI: Poly = Poly {
    narrow: &[
        3.141_592_741_012_573_2,
        -5.167_733_192_443_848,
        2.551_384_210_586_548,
        -0.625_758_707_523_346,
        0.271_715_492_010_116_6,
    ],
    wide: &[
        std::f64::consts::PI,
        -5.167_712_780_049_888_5,
        2.550_164_039_862_547,
        -0.599_264_528_161_568_6,
        0.082_145_840_506_524_85,
        -0.007_369_455_126_804_794_5,
        0.000_455_824_057_000_607_27,
        2.304_188_478_715_927_5e-5,
    ],
};

/// `cos(pi r)` in `r^2` on `|r| <= 1/4`; minimises the absolute error: 2^-31 and 2^-61.
const COS_PI: Poly = Poly {
    narrow: &[1.0, -4.934_802_055_358_887, 4.058_698_177_337_646_5, -1.334_816_455_841_064_5, 0.229_554_891_586_303_7],
    wide: &[
        1.0,
        -4.934_802_200_544_679,
        4.058_712_126_416_665_5,
        -1.335_262_768_842_353_7,
        0.235_330_629_640_735_2,
        -0.025_806_868_294_308_807,
        0.001_929_159_417_790_770_2,
        -0.000_100_730_067_053_068_39,
        -1.074_692_402_222_987_4e-5,
    ],
};

/// The parts of a reflection about 1/2.
struct Reflected<F: Arith> {
    /// Whether the argument is negative.
    negative: F::Mask,
    /// The argument, or one minus it if negative.
    positive: F,
    /// `|sin(pi x)|`, exactly zero for integers.
    sin: F,
    /// `-cos(pi x) * sign(sin(pi x))` for negative `x`.
    cos: F,
}

/// Prepares the reflection of `x`.
fn reflect<F: Arith>(x: F) -> Reflected<F> {
    let (half, one) = (x.lit(0.5), x.lit(1.0));
    let negative = x.lt(x.lit(0.0));
    let a = x.abs();
    let fraction = a - a.floor();
    let upper = half.lt(fraction);
    let folded = (one - fraction).when(upper, fraction);
    let steep = x.lit(0.25).lt(folded);
    let r = (half - folded).when(steep, folded);
    let z = r * r;
    let (s, c) = (r * SIN_PI.at(z), COS_PI.at(z));
    let cos = s.when(steep, c);
    Reflected { negative, positive: (one - x).when(negative, x), sin: c.when(steep, s), cos: (-cos).when(upper, cos) }
}

/// `log |gamma x|`.
pub(super) fn lgamma<F: Arith>(x: F) -> F {
    let Reflected { negative, positive: a, sin, .. } = reflect(x);
    let (half, one, infinity) = (x.lit(0.5), x.lit(1.0), x.lit(f64::INFINITY));
    // gamma a = gamma(2 + d) * product, or divided by it below 1.5, with |d| <= 1/2.
    let (below_half, below) = (a.lt(half), a.lt(x.lit(1.5)));
    let mut d = a.when(below_half, (a - one).when(below, a - x.lit(2.0)));
    let mut product = (a * (a + one)).when(below_half, a.when(below, one));
    for _ in 0..6 {
        let above = half.lt(d);
        d = (d - one).when(above, d);
        product = product * (d + x.lit(2.0)).when(above, one);
    }
    let large = x.lit(8.0).le(a);
    let log_part = log(a.when(large, product));
    let near = d.fma(NEAR_TWO.at(d), (-log_part).when(below, log_part));
    let inverse = one / a;
    let rest = inverse.fma_lit(STIRLING.at(inverse * inverse), HALF_LOG_TWO_PI - 0.5);
    let far = (a - half).fma(log_part - one, rest);
    let y = far.when(large, near);
    let mirrored = -log(sin * x.lit(std::f64::consts::FRAC_1_PI)) - y;
    let y = mirrored.when(negative, y);
    // The poles, among them all large negative arguments, where both parts may be infinite.
    let pole = negative.and(sin.eq(x.lit(0.0))).or(x.abs().eq(infinity));
    infinity.when(pole, y)
}

/// `log(2 pi) / 2`.
const HALF_LOG_TWO_PI: f64 = 0.918_938_533_204_672_8;

/// Where a series in `1/z` is used, and the sum that the recurrence adds: the sum of `1 / (a + k)^N` for `k` from 0 to
/// 7, or nothing from 8 on.
fn recur<F: Arith, const N: usize>(a: F) -> (F, F) {
    let large = a.lit(8.0).le(a);
    let power = |t: F| match N {
        1 => t,
        2 => t * t,
        _ => t * t * t,
    };
    let (mut numerator, mut denominator) = (a.lit(0.0), a.lit(1.0));
    for k in 1..8 {
        let t = power(a + a.lit(f64::from(k)));
        numerator = numerator.fma(t, denominator);
        denominator = denominator * t;
    }
    // The first summand stays apart because it overflows.
    let sum = power(a.lit(1.0) / a) + numerator / denominator;
    (a.when(large, a + a.lit(8.0)), a.lit(0.0).when(large, sum))
}

/// First derivative of `lgamma`.
pub(super) fn digamma<F: Arith>(x: F) -> F {
    let Reflected { negative, positive, sin, cos } = reflect(x);
    let (z, sum) = recur::<F, 1>(positive);
    let inverse = x.lit(1.0) / z;
    let square = inverse * inverse;
    let small = square.fma(DIGAMMA.at(square), x.lit(0.5) * inverse);
    let y = (log(z) - small) - sum;
    let mirrored = y + x.lit(std::f64::consts::PI) * cos / sin;
    let mirrored = x.lit(f64::NAN).when(sin.eq(x.lit(0.0)), mirrored);
    mirrored.when(negative, y)
}

/// Second derivative of `lgamma`.
pub(super) fn trigamma<F: Arith>(x: F) -> F {
    let Reflected { negative, positive, sin, .. } = reflect(x);
    let (z, sum) = recur::<F, 2>(positive);
    let inverse = x.lit(1.0) / z;
    let square = inverse * inverse;
    let small = inverse.fma(TRIGAMMA.at(square), x.lit(0.5)) * square;
    let y = sum + (inverse + small);
    let ratio = x.lit(std::f64::consts::PI) / sin;
    ratio.fma(ratio, -y).when(negative, y)
}

/// Third derivative of `lgamma`.
pub(super) fn tetragamma<F: Arith>(x: F) -> F {
    let Reflected { negative, positive, sin, cos } = reflect(x);
    let (z, sum) = recur::<F, 3>(positive);
    let inverse = x.lit(1.0) / z;
    let square = inverse * inverse;
    let tail = square.fma(TETRAGAMMA.at(square), inverse);
    let y = -(sum + sum + square.fma(tail, square));
    let ratio = x.lit(std::f64::consts::PI) / sin;
    let mirrored = (ratio * ratio).fma(ratio * (cos + cos), y);
    let mirrored = x.lit(f64::NAN).when(sin.eq(x.lit(0.0)), mirrored);
    mirrored.when(negative, y)
}
