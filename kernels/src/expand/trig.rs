//! Sine, cosine, tangent and their inverses.
//!
//! Arguments are reduced by multiples of pi/2: below a bound by subtracting in three parts (Cody and Waite), above it
//! by an integer product with the bits of 2/pi around the argument's exponent (Payne and Hanek). Both are branch-free;
//! loops branch around the second when no argument needs it, which changes no bit.

use super::arith::{Arith, IntArith, Mask, Pair, Poly};

/// Arguments up to here are reduced by subtraction.
const SMALL_NARROW: f32 = 100_000.0;
/// Arguments up to here are reduced by subtraction.
const SMALL_WIDE: f64 = 100_000_000.0;

/// `(sin r - r) / r^3` in `r^2` on `|r| <= pi/4`; minimises the error times `r^2`: 2^-32 and 2^-62.
const SIN: Poly = Poly {
    narrow: &[
        -0.166_666_671_633_720_4,
        0.008_333_372_883_498_669,
        -0.000_198_502_209_968_864_92,
        2.802_877_816_066_029_5e-6,
    ],
    wide: &[
        -0.166_666_666_666_666_66,
        0.008_333_333_333_333_096,
        -0.000_198_412_698_410_502_44,
        2.755_731_912_601_382_2e-6,
        -2.505_208_526_589_632e-8,
        1.605_617_972_910_74e-10,
        -7.482_466_039_825_213e-13,
    ],
};

/// `(cos r - 1 + r^2 / 2) / r^4` in `r^2` on `|r| <= pi/4`; minimises the error times `r^4`: 2^-33 and 2^-63.
const COS: Poly = Poly {
    narrow: &[0.041_666_645_556_688_31, -0.001_388_730_248_436_331_7, 2.443_088_123_982_306_6e-5],
    wide: &[
        0.041_666_666_666_666_595,
        -0.001_388_888_888_887_32,
        2.480_158_728_883_204_6e-5,
        -2.755_731_414_628_231_4e-7,
        2.087_569_310_633_614_6e-9,
        -1.135_798_723_000_939_8e-11,
    ],
};

/// The binary digits of 2/pi in words of 16 bits, after two words of zeros.
const TWO_OVER_PI_16: [i64; 15] =
    [0, 0, 41721, 33646, 20036, 5417, 64551, 22481, 62772, 56768, 56162, 38297, 15427, 36929, 65105];

/// The binary digits of 2/pi in words of 32 bits, after two words of zeros.
const TWO_OVER_PI_32: [i64; 39] = [
    0, 0, 2734261102, 1313084713, 4230436817, 4113882560, 3680671129, 1011060801, 4266746795, 3736847713, 3072618042,
    1112396512, 105459434, 164729372, 4263373596, 2972297022, 3900847605, 784024708, 3919343654, 3026157121, 965858873,
    2203269620, 2625920907, 3187222587, 536385535, 3724908559, 4012839307, 1510632735, 1832287951, 667617719,
    1330003814, 2657085997, 1965537991, 3957715323, 1023883767, 2320667370, 1811636145, 529358088, 1443049542,
];

/// An angle as `quadrant * pi/2 + rest`; the quadrant counts modulo 4 in its low bits.
struct Reduced<F: Arith> {
    quadrant: F::Int,
    rest: Pair<F>,
}

/// Reduces any angle.
fn reduce<F: Arith>(x: F) -> Reduced<F> {
    let small = reduce_small(x);
    let size = x.abs();
    // Infinities and NaN stay with the subtraction, which makes them NaN.
    let huge =
        x.lit(if F::WIDE { SMALL_WIDE } else { f64::from(SMALL_NARROW) }).lt(size).and(size.lt(x.lit(f64::INFINITY)));
    let large = reduce_huge(size);
    let negative = x.lt(x.lit(0.0));
    let quadrant = large.quadrant.lit(0).sub(large.quadrant).when(negative, large.quadrant);
    Reduced {
        quadrant: quadrant.when(huge, small.quadrant),
        rest: Pair {
            hi: large.rest.hi.xor_sign(x).when(huge, small.rest.hi),
            lo: large.rest.lo.xor_sign(x).when(huge, small.rest.lo),
        },
    }
}

/// Reduces by subtracting `n * pi/2` in three parts.
fn reduce_small<F: Arith>(x: F) -> Reduced<F> {
    let t = x.fma(x.lit(std::f64::consts::FRAC_2_PI), x.magic());
    let n = t - x.magic();
    // Exact: n times the head cancels all of x above the last bit of the head.
    let r = n.fma(x.by_width(-1.570_796_370_506_286_6, -std::f64::consts::FRAC_PI_2), x);
    let middle = x.by_width(4.371_138_828_673_793e-8, -6.123_233_995_736_766e-17);
    let p = Pair::product(n, middle);
    let sum = Pair::sum(r, p.hi);
    let lo = n.fma(x.by_width(1.715_124_510_005_881_9e-15, 1.497_384_904_859_169_8e-33), sum.lo + p.lo);
    Reduced { quadrant: t.bits(), rest: Pair { hi: sum.hi, lo } }
}

/// Reduces a finite `x >= 2^20` (`f64`) or `x >= 2^7` (`f32`); other inputs give a meaningless result.
///
/// With words of `h = 16` or `32` bits: `x` is scaled by a power of `2^h` into an integer of three words, and the
/// same power says where in 2/pi the eight words begin that decide the product modulo 4 and its first `4 h` binary
/// places. These suffice for the arguments closest to a multiple of pi/2, which come within 2^-31 (`f32`) and 2^-61.
fn reduce_huge<F: Arith>(x: F) -> Reduced<F> {
    let h = if F::WIDE { 32 } else { 16 };
    let bits = x.bits();
    let low = bits.lit((1 << h) - 1);
    // How many words of 2/pi lie entirely above the ones needed, plus one.
    let field = bits.shr(F::MANTISSA);
    let skip = field.sub(field.lit(if F::WIDE { 1023 + 20 } else { 127 + 7 })).shr(if F::WIDE { 5 } else { 4 });
    let scaled = F::from_bits(bits.sub(skip.sub(skip.lit(1)).shl(F::MANTISSA + if F::WIDE { 5 } else { 4 })));
    let base = if F::WIDE { 4_294_967_296.0 } else { 65_536.0 };
    let top = (scaled * x.lit(1.0 / (base * base))).floor();
    let rest = top.fma(x.lit(-base * base), scaled);
    let middle = (rest * x.lit(1.0 / base)).floor();
    let bottom = middle.fma(x.lit(-base), rest);
    let digits = [bottom, middle, top].map(|d| (d + x.magic()).bits().and(low));

    let window = window(skip);
    let mut carry = bits.lit(0);
    let mut words = [carry; 6];
    for place in (0..6).rev() {
        let mut above = bits.lit(0);
        for (digit, word) in digits.into_iter().zip(&window[place..]) {
            let product = digit.mul(*word);
            carry = carry.add(product.and(low));
            above = above.add(product.shr(h).and(low));
        }
        words[place] = carry.and(low);
        carry = above.add(carry.shr(h));
    }

    // Nearest quadrant: a fraction of one half and more counts from above.
    let up = words[1].lit((1 << (h - 1)) - 1).lt(words[1]);
    let zero = bits.lit(0);
    let quadrant = words[0].add(bits.lit(1).when(up, zero));
    words[1] = words[1].sub(bits.lit(1 << h).when(up, zero));
    let place = |word: F::Int, scale: f64| (F::from_bits(word.add(x.magic().bits())) - x.magic()) * x.lit(scale);
    let a = place(words[1], 1.0 / base);
    let b = place(words[2], 1.0 / (base * base));
    let c = place(words[3], 1.0 / (base * base * base));
    let d = place(words[4], 1.0 / (base * base * base * base));
    // Each sum is exact: its first operand is zero or a multiple of what bounds the second. The heads may cancel.
    let first = Pair::fast_sum(a, b);
    let second = Pair::fast_sum(first.hi, c);
    let fraction = Pair::fast_sum(second.hi, (first.lo + second.lo) + d);
    let quarter = Pair::lit(x, std::f64::consts::FRAC_PI_2, 6.123_233_995_736_766e-17);
    Reduced { quadrant, rest: fraction.times(quarter) }
}

/// Eight words of 2/pi from the word `skip` on, chosen bit by bit of `skip`.
fn window<I: IntArith>(skip: I) -> [I; 8] {
    let zero = skip.lit(0);
    let wide = I::WIDE;
    let bit = |n: i64| skip.and(skip.lit(n)).eq(zero).not();
    let mut words = [zero; 39];
    let (mut step, mut count) = if wide { (16, 39) } else { (4, 15) };
    for i in 0..count {
        words[i] = skip.lit(if wide { TWO_OVER_PI_32[i] } else { TWO_OVER_PI_16[i] });
    }
    while step > 0 {
        let taken = bit(step as i64);
        count -= step;
        for i in 0..count {
            words[i] = words[i + step].when(taken, words[i]);
        }
        step /= 2;
    }
    [words[0], words[1], words[2], words[3], words[4], words[5], words[6], words[7]]
}

/// Sine of a reduced angle's rest.
fn sin_rest<F: Arith>(r: Pair<F>) -> Pair<F> {
    let z = r.hi * r.hi;
    Pair::fast_sum(r.hi, (r.hi * z).fma(SIN.at(z), r.lo))
}

/// Cosine of a reduced angle's rest.
fn cos_rest<F: Arith>(r: Pair<F>) -> Pair<F> {
    let one = r.hi.lit(1.0);
    let z = r.hi * r.hi;
    let half = z * r.hi.lit(0.5);
    let head = one - half;
    let lost = (one - head) - half;
    Pair::fast_sum(head, (z * z).fma(COS.at(z), (-r.hi).fma(r.lo, lost)))
}

/// Sine of `quadrant` quarter turns and a rest.
fn sin_of<F: Arith>(quadrant: F::Int, rest: Pair<F>) -> F {
    let zero = quadrant.lit(0);
    let even = quadrant.and(quadrant.lit(1)).eq(zero);
    let upper = quadrant.and(quadrant.lit(2)).eq(zero);
    let y = sin_rest(rest).hi.when(even, cos_rest(rest).hi);
    y.when(upper, -y)
}

/// `sin x`.
pub(super) fn sin<F: Arith>(x: F) -> F {
    let Reduced { quadrant, rest } = reduce(x);
    x.when(x.eq(x.lit(0.0)), sin_of(quadrant, rest))
}

/// `cos x`.
pub(super) fn cos<F: Arith>(x: F) -> F {
    let Reduced { quadrant, rest } = reduce(x);
    sin_of(quadrant.add(quadrant.lit(1)), rest)
}

/// `tan x`.
pub(super) fn tan<F: Arith>(x: F) -> F {
    let Reduced { quadrant, rest } = reduce(x);
    let even = quadrant.and(quadrant.lit(1)).eq(quadrant.lit(0));
    let (s, c) = (sin_rest(rest), cos_rest(rest));
    let top = Pair { hi: s.hi.when(even, -c.hi), lo: s.lo.when(even, -c.lo) };
    let bottom = Pair { hi: c.hi.when(even, s.hi), lo: c.lo.when(even, s.lo) };
    let inverse = x.lit(1.0) / bottom.hi;
    let y = top.hi * inverse;
    let remainder = (-y).fma(bottom.hi, top.hi) + (-y).fma(bottom.lo, top.lo);
    x.when(x.eq(x.lit(0.0)), remainder.fma(inverse, y))
}

/// `(asin x - x) / x^3` in `x^2` on `|x| <= 1/2`; minimises the error times `x^2`: 2^-31 and 2^-59.
const ASIN: Poly = Poly {
    narrow: &[
        0.166_666_612_029_075_62,
        0.075_004_428_625_106_81,
        0.044_527_448_713_779_45,
        0.031_727_686_524_391_174,
        0.014_719_177_037_477_493,
        0.037_147_548_049_688_34,
    ],
    wide: &[
        0.166_666_666_666_667_38,
        0.074_999_999_999_763_55,
        0.044_642_857_169_700_5,
        0.030_381_942_929_158_23,
        0.022_372_209_077_784_713,
        0.017_351_713_200_436_797,
        0.013_979_659_156_948_808,
        0.011_408_042_972_325_111,
        0.010_730_930_550_965_845,
        0.003_886_418_526_028_335_5,
        0.021_283_315_122_453_794,
        -0.020_416_693_485_217_248,
        0.032_274_648_444_553_31,
    ],
};

/// `(atan x - x) / x^3` in `x^2` on `|x| <= 1`; minimises the relative error of `atan`: 2^-28 and 2^-60.
const ATAN: Poly = Poly {
    narrow: &[
        -0.333_333_015_441_894_53,
        0.199_986_010_789_871_22,
        -0.142_646_506_428_718_57,
        0.109_537_497_162_818_91,
        -0.084_067_575_633_525_85,
        0.057_997_498_661_279_68,
        -0.031_204_406_172_037_125,
        0.010_923_131_369_054_317,
        -0.001_794_472_802_430_391_3,
    ],
    wide: &[
        -0.333_333_333_333_332_9,
        0.199_999_999_999_914_08,
        -0.142_857_142_850_856_38,
        0.111_111_110_877_557_93,
        -0.090_909_085_686_398_48,
        0.076_922_999_456_087_7,
        -0.066_665_855_328_011_68,
        0.058_817_264_568_386_96,
        -0.052_594_780_661_981_616,
        0.047_450_724_217_632_51,
        -0.042_867_670_839_376_155,
        0.038_217_640_945_639_654,
        -0.032_797_410_677_472_216,
        0.026_166_503_000_716_622,
        -0.018_628_467_838_903_803,
        0.011_328_151_724_310_951,
        -0.005_618_157_548_509_026,
        0.002_153_862_972_993_237,
        -0.000_593_494_996_225_608_8,
        0.000_103_965_981_517_029_84,
        -8.660_586_240_466_218e-6,
    ],
};

/// `n * pi/2 - y - rest` with the rounding error of pi/2 made good, for `n` 1 or 2; `|rest|` is below `|y|`.
fn quarter_minus<F: Arith>(n: f64, y: F, rest: F) -> F {
    let hi = y.by_width(n * 1.570_796_370_506_286_6, n * std::f64::consts::FRAC_PI_2);
    let lo = y.by_width(n * -4.371_138_828_673_793e-8, n * 6.123_233_995_736_766e-17);
    let head = Pair::fast_sum(hi, -y);
    head.hi - ((rest - lo) - head.lo)
}

/// The common part of `asin` and `acos`: whether `|x| >= 1/2`, and the inverse sine (a number and what to add to it) of
/// `|x|` below or of `sqrt((1 - |x|) / 2)` above; NaN outside of `[-1, 1]`.
fn asin_half<F: Arith>(x: F) -> (F::Mask, F, F) {
    let (a, half) = (x.abs(), x.lit(0.5));
    let outer = half.le(a);
    let z = ((x.lit(1.0) - a) * half).when(outer, a * a);
    let s = z.sqrt().when(outer, a);
    (outer, s, (s * z) * ASIN.at(z))
}

/// `asin x`.
pub(super) fn asin<F: Arith>(x: F) -> F {
    let (outer, s, rest) = asin_half(x);
    quarter_minus(1.0, s + s, rest + rest).when(outer, s + rest).xor_sign(x)
}

/// `acos x`.
pub(super) fn acos<F: Arith>(x: F) -> F {
    let (outer, s, rest) = asin_half(x);
    let (twice, twice_rest) = (s + s, rest + rest);
    let far = quarter_minus(2.0, twice, twice_rest).when(x.lt(x.lit(0.0)), twice + twice_rest);
    let near = quarter_minus(1.0, s.xor_sign(x), rest.xor_sign(x));
    far.when(outer, near)
}

/// The difference `atan t - t`, for `t` from 0 to 1.
fn atan_rest<F: Arith>(t: F) -> F {
    let z = t * t;
    (t * z) * ATAN.at(z)
}

/// `atan x`.
pub(super) fn atan<F: Arith>(x: F) -> F {
    let a = x.abs();
    let outer = x.lit(1.0).lt(a);
    let t = (x.lit(1.0) / a).when(outer, a);
    let rest = atan_rest(t);
    quarter_minus(1.0, t, rest).when(outer, t + rest).xor_sign(x)
}

/// The angle of `(x, y)`.
pub(super) fn atan2<F: Arith>(y: F, x: F) -> F {
    let (a, b) = (y.abs(), x.abs());
    let steep = b.lt(a);
    let (small, large) = (b.when(steep, a), a.when(steep, b));
    // Equal sizes include both zero, an angle of 0, and both infinite, which count as a diagonal.
    let zero = x.lit(0.0);
    let diagonal = zero.when(large.eq(zero), x.lit(1.0));
    let t = diagonal.when(small.eq(large), small / large);
    let rest = atan_rest(t);
    let behind = x.bits().lt(x.bits().lit(0));
    // Steep angles count from pi/2, others from 0 or pi; behind the origin the sign of the rest changes.
    let flip = |y: F, mask: F::Mask| (-y).when(mask, y);
    let steep_angle = quarter_minus(1.0, flip(t, behind), flip(rest, behind));
    let flat_angle = quarter_minus(2.0, t, rest).when(behind, t + rest);
    steep_angle.when(steep, flat_angle).xor_sign(y)
}
