//! Transcendental functions of the reference evaluator, in `f64`.
//!
//! Written apart from [`expand`](crate::expand) on purpose, so that a mistake in one shows as a difference.

use std::f64::consts::PI;

use super::{Func1, Func2};

/// The value of a function of one operand.
pub(super) fn call1(func: Func1, x: f64) -> f64 {
    match func {
        Func1::Exp => x.exp(),
        Func1::Exp2 => x.exp2(),
        Func1::Expm1 => x.exp_m1(),
        Func1::Log => x.ln(),
        Func1::Log2 => x.log2(),
        Func1::Log1p => x.ln_1p(),
        Func1::Sin => x.sin(),
        Func1::Cos => x.cos(),
        Func1::Tan => x.tan(),
        Func1::Asin => x.asin(),
        Func1::Acos => x.acos(),
        Func1::Atan => x.atan(),
        Func1::Sinh => x.sinh(),
        Func1::Cosh => x.cosh(),
        Func1::Tanh => x.tanh(),
        Func1::Asinh => libm::asinh(x),
        // `libm` answers outside the domain as well.
        Func1::Acosh if x < 1.0 => f64::NAN,
        Func1::Acosh => libm::acosh(x),
        Func1::Atanh => libm::atanh(x),
        Func1::Erf => libm::erf(x),
        Func1::Erfc => libm::erfc(x),
        Func1::Sigmoid => sigmoid(x),
        Func1::Lgamma => libm::lgamma(x),
        Func1::Digamma => digamma(x),
        Func1::Trigamma => trigamma(x),
        Func1::Tetragamma => tetragamma(x),
    }
}

/// The value of a function of two operands.
pub(super) fn call2(func: Func2, x: f64, y: f64) -> f64 {
    match func {
        Func2::Pow => x.powf(y),
        Func2::Atan2 => x.atan2(y),
    }
}

fn sigmoid(x: f64) -> f64 {
    // The exponent is never positive, so that small results keep all their bits.
    let e = (-x.abs()).exp();
    if x >= 0.0 { 1.0 / (1.0 + e) } else { e / (1.0 + e) }
}

/// The Bernoulli numbers B2, B4, ..., B20 of the asymptotic series.
const BERNOULLI: [f64; 10] = [
    1.0 / 6.0,
    -1.0 / 30.0,
    1.0 / 42.0,
    -1.0 / 30.0,
    5.0 / 66.0,
    -691.0 / 2730.0,
    7.0 / 6.0,
    -3617.0 / 510.0,
    43867.0 / 798.0,
    -174611.0 / 330.0,
];

/// From here on the first omitted term of each series is below 1e-17 of the result.
const FAR: f64 = 16.0;

/// The sum of `weight(2n) * B2n / x^2n` for n = 1, 2, ..., smallest terms first.
fn series(x: f64, weight: impl Fn(f64) -> f64) -> f64 {
    let y = 1.0 / (x * x);
    let term = |(i, b): (usize, &f64)| b * weight(2.0 * i as f64 + 2.0);
    BERNOULLI.iter().enumerate().rev().map(term).fold(0.0, |sum, t| (sum + t) * y)
}

/// Whether `x` is 0, -1, -2, ...
fn is_pole(x: f64) -> bool {
    x <= 0.0 && x == x.floor()
}

/// The sine and cosine of pi * x, exact at multiples of one half.
fn sin_cos_pi(x: f64) -> (f64, f64) {
    let near = x.round_ties_even();
    let sign = if near.rem_euclid(2.0) == 0.0 { 1.0 } else { -1.0 };
    let t = x - near;
    let (s, c) = if t.abs() <= 0.25 {
        (PI * t).sin_cos()
    } else {
        // Around one half, where the cosine vanishes, from the distance to it, which is exact.
        let (c, s) = (PI * (0.5 - t.abs())).sin_cos();
        (s.copysign(t), c)
    };
    (sign * s, sign * c)
}

fn digamma(x: f64) -> f64 {
    if x == 0.0 {
        return -f64::INFINITY.copysign(x);
    }
    if is_pole(x) {
        return f64::NAN;
    }
    if x < 0.0 {
        let (s, c) = sin_cos_pi(x);
        return digamma(1.0 - x) - PI * c / s;
    }
    if x == f64::INFINITY {
        return x;
    }
    let (mut x, mut sum) = (x, 0.0);
    while x < FAR {
        sum -= 1.0 / x;
        x += 1.0;
    }
    sum + (x.ln() - 0.5 / x - series(x, |n| 1.0 / n))
}

fn trigamma(x: f64) -> f64 {
    if x == f64::NEG_INFINITY {
        return f64::NAN;
    }
    if is_pole(x) {
        return f64::INFINITY;
    }
    if x < 0.0 {
        let (s, _) = sin_cos_pi(x);
        return (PI / s) * (PI / s) - trigamma(1.0 - x);
    }
    let (mut x, mut sum) = (x, 0.0);
    while x < FAR {
        sum += 1.0 / (x * x);
        x += 1.0;
    }
    sum + (1.0 + 0.5 / x + series(x, |_| 1.0)) / x
}

fn tetragamma(x: f64) -> f64 {
    if x == 0.0 {
        return -f64::INFINITY.copysign(x);
    }
    if is_pole(x) {
        return f64::NAN;
    }
    if x < 0.0 {
        let (s, c) = sin_cos_pi(x);
        return tetragamma(1.0 - x) - 2.0 * PI * (c / s) * (PI / s) * (PI / s);
    }
    // Vanishes from below.
    let (mut x, mut sum) = (x, -0.0);
    while x < FAR {
        sum -= 2.0 / (x * x * x);
        x += 1.0;
    }
    sum - (1.0 + 1.0 / x + series(x, |n| n + 1.0)) / (x * x)
}
