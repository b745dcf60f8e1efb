//! Hyperbolic functions and their inverses.

use super::arith::{Arith, Poly};
use super::exp::{exp_moderate, exp_scaled};
use super::log::{log1p, log1p_shifted};

/// `(sinh x - x) / x^3` in `x^2` on `|x| <= 1`; minimises the error times `x^2`: 2^-31 and 2^-61.
const SINH: Poly = Poly {
    narrow: &[
        0.166_666_671_633_720_4,
        0.008_333_315_141_499_043,
        0.000_198_416_601_051_576_44,
        2.790_046_892_187_092_5e-6,
    ],
    wide: &[
        0.166_666_666_666_666_69,
        0.008_333_333_333_332_967,
        0.000_198_412_698_415_344_68,
        2.755_731_912_924_46e-6,
        2.505_212_704_135_334_5e-8,
        1.605_698_612_287_392_8e-10,
        7.766_327_616_581_833e-13,
    ],
};

/// `sinh x`.
pub(super) fn sinh<F: Arith>(x: F) -> F {
    let a = x.abs();
    let z = a * a;
    let near = (a * z).fma(SINH.at(z), a);
    let half = exp_scaled(a, x.lit(0.0), x.lit(0.5));
    let far = half - x.lit(0.25) / half;
    near.when(a.lt(x.lit(1.0)), far).xor_sign(x)
}

/// `cosh x`.
pub(super) fn cosh<F: Arith>(x: F) -> F {
    let half = exp_scaled(x.abs(), x.lit(0.0), x.lit(0.5));
    half + x.lit(0.25) / half
}

/// `(tanh x - x) / x^3` in `x^2` on `|x| <= 5/8`; minimises the error times `x^2`: 2^-32 and 2^-64.
const TANH: Poly = Poly {
    narrow: &[
        -0.333_333_313_465_118_4,
        0.133_332_237_601_280_2,
        -0.053_948_711_603_879_93,
        0.021_710_222_586_989_403,
        -0.008_198_770_694_434_643,
        0.002_160_961_041_226_983,
    ],
    wide: &[
        -0.333_333_333_333_333_3,
        0.133_333_333_333_330_25,
        -0.053_968_253_968_061_68,
        0.021_869_488_529_876_323,
        -0.008_863_235_405_915_677,
        0.003_592_126_434_857_822,
        -0.001_455_820_207_907_183_3,
        0.000_589_939_095_597_944_8,
        -0.000_238_736_811_177_872_93,
        9.567_358_257_124_259e-5,
        -3.651_113_674_454_041e-5,
        1.169_591_209_293_546_1e-5,
        -2.234_000_234_400_724_4e-6,
    ],
};

/// `tanh x`.
pub(super) fn tanh<F: Arith>(x: F) -> F {
    let one = x.lit(1.0);
    let a = x.abs().at_most(if F::WIDE { 20.0 } else { 10.0 });
    let z = a * a;
    let near = (a * z).fma(TANH.at(z), a);
    let far = one - x.lit(2.0) / (exp_moderate(a + a) + one);
    near.when(a.lt(x.lit(0.625)), far).xor_sign(x)
}

/// From here on `asinh` and `acosh` are `log(2 x)`.
fn is_large<F: Arith>(x: F) -> F::Mask {
    x.by_width(1_073_741_824.0, 1.152_921_504_606_847e18).lt(x)
}

/// `log(1 + near)`, or `log(2 x)` for large `x`.
fn log_either<F: Arith>(x: F, near: F) -> F {
    let large = is_large(x);
    let y = log1p_shifted(x.when(large, near), x.lit(1.0).when(large, x.lit(0.0)));
    y.when(x.lt(x.lit(f64::INFINITY)), x)
}

/// `asinh x`.
pub(super) fn asinh<F: Arith>(x: F) -> F {
    let (a, one) = (x.abs(), x.lit(1.0));
    let square = a * a;
    let near = a + square / (one + (one + square).sqrt());
    log_either(a, near).xor_sign(x)
}

/// `acosh x`.
pub(super) fn acosh<F: Arith>(x: F) -> F {
    let t = x - x.lit(1.0);
    let near = t + (t * (t + x.lit(2.0))).sqrt();
    log_either(x, near).when(x.lit(1.0).le(x), x.lit(f64::NAN))
}

/// `atanh x`.
pub(super) fn atanh<F: Arith>(x: F) -> F {
    let a = x.abs();
    (x.lit(0.5) * log1p((a + a) / (x.lit(1.0) - a))).xor_sign(x)
}
