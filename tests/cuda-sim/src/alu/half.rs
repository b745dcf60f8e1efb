//! Half precision and bf16, alone and in pairs.
//!
//! A single holds the exact value, or one that rounds to the same half: its 24 bits are twice 11 and two more, which
//! suffices for sums, products and quotients; a fused multiply-add rounds to odd first.

use crate::lanes::{Bf16, Bf16x2, F16, F16x2, Row, rows};
use crate::round::fma_to_odd;

/// Rows for one number and for a pair, in both formats.
macro_rules! halves {
    ($($f16:literal, $bf16:literal, $f16x2:literal, $bf16x2:literal: $a:ident => $one:expr;)*) => {
        rows! { $(
            $f16 F16 => F16 |$a| $one;
            $bf16 Bf16 => Bf16 |$a| $one;
            $f16x2 F16x2 => F16x2 |pair| pair.map(|$a| $one);
            $bf16x2 Bf16x2 => Bf16x2 |pair| pair.map(|$a| $one);
        )* }
    };
    ($($f16:literal, $bf16:literal, $f16x2:literal, $bf16x2:literal: $a:ident, $b:ident => $one:expr;)*) => {
        rows! { $(
            $f16 F16, F16 => F16 |$a, $b| $one;
            $bf16 Bf16, Bf16 => Bf16 |$a, $b| $one;
            $f16x2 F16x2, F16x2 => F16x2 |x, y| zip(x, y, |$a, $b| $one);
            $bf16x2 Bf16x2, Bf16x2 => Bf16x2 |x, y| zip(x, y, |$a, $b| $one);
        )* }
    };
    ($($f16:literal, $bf16:literal, $f16x2:literal, $bf16x2:literal: $a:ident, $b:ident, $c:ident => $one:expr;)*) => {
        rows! { $(
            $f16 F16, F16, F16 => F16 |$a, $b, $c| $one;
            $bf16 Bf16, Bf16, Bf16 => Bf16 |$a, $b, $c| $one;
            $f16x2 F16x2, F16x2, F16x2 => F16x2 |x, y, z| zip3(x, y, z, |$a, $b, $c| $one);
            $bf16x2 Bf16x2, Bf16x2, Bf16x2 => Bf16x2 |x, y, z| zip3(x, y, z, |$a, $b, $c| $one);
        )* }
    };
}

/// Instructions of one operand.
pub(super) const UNARY: &[Row] = halves! {
    "neg.f16", "neg.bf16", "neg.f16x2", "neg.bf16x2": a => -a;
    "abs.f16", "abs.bf16", "abs.f16x2", "abs.bf16x2": a => a.abs();
    "ex2.approx.f16", "ex2.approx.bf16", "ex2.approx.f16x2", "ex2.approx.bf16x2": a => f64::from(a).exp2() as f32;
    "tanh.approx.f16", "tanh.approx.bf16", "tanh.approx.f16x2", "tanh.approx.bf16x2": a => f64::from(a).tanh() as f32;
};

/// Instructions of two operands.
pub(super) const BINARY: &[Row] = halves! {
    "add.f16", "add.bf16", "add.f16x2", "add.bf16x2": a, b => a + b;
    "sub.f16", "sub.bf16", "sub.f16x2", "sub.bf16x2": a, b => a - b;
    "mul.f16", "mul.bf16", "mul.f16x2", "mul.bf16x2": a, b => a * b;
    "min.f16", "min.bf16", "min.f16x2", "min.bf16x2": a, b => min(a, b);
    "max.f16", "max.bf16", "max.f16x2", "max.bf16x2": a, b => -min(-a, -b);
    "min.NaN.f16", "min.NaN.bf16", "min.NaN.f16x2", "min.NaN.bf16x2": a, b => or_nan(a, b, min(a, b));
    "max.NaN.f16", "max.NaN.bf16", "max.NaN.f16x2", "max.NaN.bf16x2": a, b => or_nan(a, b, -min(-a, -b));
};

/// Instructions of three operands.
pub(super) const TERNARY: &[Row] = halves! {
    "fma.rn.f16", "fma.rn.bf16", "fma.rn.f16x2", "fma.rn.bf16x2": a, b, c => fma_to_odd(a, b, c);
    "fma.rn.relu.f16", "fma.rn.relu.bf16", "fma.rn.relu.f16x2", "fma.rn.relu.bf16x2": a, b, c => relu(fma_to_odd(a, b, c));
};

fn zip(x: [f32; 2], y: [f32; 2], f: impl Fn(f32, f32) -> f32) -> [f32; 2] {
    [f(x[0], y[0]), f(x[1], y[1])]
}

fn zip3(x: [f32; 2], y: [f32; 2], z: [f32; 2], f: impl Fn(f32, f32, f32) -> f32) -> [f32; 2] {
    [f(x[0], y[0], z[0]), f(x[1], y[1], z[1])]
}

/// The smaller one; a number wins over NaN, and -0 is less than +0.
fn min(a: f32, b: f32) -> f32 {
    if a < b || b.is_nan() || a == b && a.is_sign_negative() { a } else { b }
}

fn or_nan(a: f32, b: f32, value: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::NAN } else { value }
}

fn relu(a: f32) -> f32 {
    if a > 0.0 || a.is_nan() { a } else { 0.0 }
}
