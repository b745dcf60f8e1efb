//! The error function and the family of the gamma function, element by element; floats only.

use std::f64::consts::{FRAC_2_SQRT_PI, PI};

use retape_kernels::ir::Value;

use retape_runtime::DType;

use super::attribute::attributes;
use super::power::int_power;
use super::unary::unary;
use super::{Cotangents, Facts, Lowering, OpDef, Sample, Site, TypeError, check};
use crate::method::method;
use crate::tensor::Tensor;
use crate::types::TensorType;

unary! {
    /// The error function of every element.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let y = Tensor::from([0.0_f64, 1.0]).erf().to_vec::<f64>()?;
    /// assert!(y[0] == 0.0 && (y[1] - 0.842_700_792_949_714_9).abs() < 1e-15);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Erf erf: float in -2.0..2.0;
    d(x, y, ct) = ct * ((-(x * x)).exp() * FRAC_2_SQRT_PI);
    f(v) = v.erf();

    /// 1 less the error function of every element; accurate where that is small.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let y = Tensor::from(10.0_f64).erfc().item::<f64>()?;
    /// assert!((y / 2.088_487_583_762_545e-45 - 1.0).abs() < 1e-12); // 1 - erf(10) is 0
    /// # Ok::<(), retape::Error>(())
    /// ```
    Erfc erfc: float in -2.0..2.0;
    d(x, y, ct) = ct * ((-(x * x)).exp() * -FRAC_2_SQRT_PI);
    f(v) = v.erfc();

    /// The logistic function 1 / (1 + e^-x) of every element.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([0.0_f32]).sigmoid().to_vec::<f32>()?, [0.5]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Sigmoid sigmoid: float in -4.0..4.0;
    // Written on the output, so that the forward pass may drop its input.
    d(x, y, ct) = ct * y * (1.0 - y);
    f(v) = v.sigmoid();

    /// The logarithm of the absolute value of the gamma function of every element.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let y = Tensor::from(5.0_f64).lgamma().item::<f64>()?; // the logarithm of 4!
    /// assert!((y - 24.0_f64.ln()).abs() < 1e-14);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Lgamma lgamma: float in 0.5..4.0;
    d(x, y, ct) = ct * x.digamma();
    f(v) = v.lgamma();

    /// The first derivative of [`lgamma`](Tensor::lgamma) of every element.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let y = Tensor::from(1.0_f64).digamma().item::<f64>()?; // less than 0 by Euler's constant
    /// assert!((y + 0.577_215_664_901_532_9).abs() < 1e-14);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Digamma digamma: float in 0.5..4.0;
    d(x, y, ct) = ct * x.polygamma(1);
    f(v) = v.digamma();
}

/// The op of [`Tensor::polygamma`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Polygamma {
    /// How often `digamma` is differentiated; at least 1.
    pub order: u32,
}

attributes! {
    Polygamma { order }
}

/// The highest order: beyond it coefficients come near the largest `f32`.
const MAX_ORDER: u32 = 20;

impl OpDef for Polygamma {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        if !(1..=MAX_ORDER).contains(&self.order) {
            check::refuse!("order {} is not between 1 and {MAX_ORDER}", self.order);
        }
        check::float_elementwise::<1>(args)
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        Cotangents::of([at.ct * at.args[0].polygamma(self.order + 1)])
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        let order = self.order;
        Lowering::pointwise(move |at| match order {
            1 => at.arg(0).trigamma(),
            2 => at.arg(0).tetragamma(),
            _ => polygamma(order, at.arg(0)),
        })
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let of = |order| Sample::floats(Polygamma { order }, &[&[3, 4]], 0.5..4.0);
        vec![of(1), of(2), of(3), of(4)]
    }
}

impl Tensor {
    /// The second derivative of [`lgamma`](Tensor::lgamma) of every element.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let y = Tensor::from(1.0_f64).trigamma().item::<f64>()?;
    /// assert!((y - std::f64::consts::PI.powi(2) / 6.0).abs() < 1e-13);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn trigamma(&self) -> Tensor {
        let _method = method("trigamma");
        self.polygamma(1)
    }

    /// The derivative of [`digamma`](Tensor::digamma) of the given order, 1 to 20, of every element.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let y = Tensor::from(1.0_f64).polygamma(2).item::<f64>()?; // -2 zeta(3)
    /// assert!((y + 2.404_113_806_319_188_6).abs() < 1e-12);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn polygamma(&self, order: u32) -> Tensor {
        Tensor::apply(Polygamma { order }, &[self])
    }
}

/// The derivative of digamma of the given order.
///
/// Right of 1/2 by its recurrence and the asymptotic series; left of it by the reflection
/// `psi_n(x) = (-1)^n psi_n(1 - x) - pi d^n/dx^n cot(pi x)`.
fn polygamma(order: u32, x: Value<'_>) -> Value<'_> {
    let reflected = x.lt(0.5);
    let right = polygamma_right(order, reflected.select(1.0 - x, x));
    let sign = if order.is_multiple_of(2) { 1.0 } else { -1.0 };
    // The cotangent has period 1; the distance to the nearest pole is exact.
    let near = (x - x.round()) * PI;
    let cot = near.cos() / near.sin();
    let derivative = cot_derivative(order).iter().rev().fold(x.like(0.0), |sum, &c| sum.fma(cot, c));
    let left = right * sign - derivative * PI.powi(order as i32 + 1);
    reflected.select(left, right)
}

/// `(-1)^(n+1) psi_n(x)` is the sum of `n! / (x + k)^(n+1)` over all `k`: the first terms one by one, the rest by
/// Euler and Maclaurin's formula.
fn polygamma_right(order: u32, x: Value<'_>) -> Value<'_> {
    /// The Bernoulli numbers of index 2, 4, ...
    const BERNOULLI: [f64; 8] =
        [1.0 / 6.0, -1.0 / 30.0, 1.0 / 42.0, -1.0 / 30.0, 5.0 / 66.0, -691.0 / 2730.0, 7.0 / 6.0, -3617.0 / 510.0];
    let n = order;
    let factorial = |n: u32| (1..=n).map(f64::from).product::<f64>();
    let power = |x, n: u32| int_power(x, n.into());
    // Terms of the series shrink from the first on if `x` is well above the order.
    let shift = 10 + n;
    let first = (0..shift).map(|k| power(1.0 / (x + f64::from(k)), n + 1));
    let head = first.reduce(|a, b| a + b).unwrap_or(x) * factorial(n);
    let inverse = 1.0 / (x + f64::from(shift));
    let square = inverse * inverse;
    let mut tail = x.like(0.0);
    for (k, bernoulli) in BERNOULLI.iter().enumerate().rev() {
        let k = 2 * (k as u32 + 1);
        tail = tail * square + bernoulli * (factorial(k + n - 1) / factorial(k));
    }
    let lead = power(inverse, n) * factorial(n - 1) + power(inverse, n + 1) * (factorial(n) / 2.0);
    let sum = head + lead + tail * power(inverse, n + 2);
    if order.is_multiple_of(2) { -sum } else { sum }
}

/// The coefficients of the `n`th derivative of the cotangent as a polynomial of the cotangent, by
/// `cot' = -(1 + cot^2)`.
fn cot_derivative(n: u32) -> Vec<f64> {
    let mut coefficients = vec![0.0, 1.0];
    for _ in 0..n {
        let mut next = vec![0.0; coefficients.len() + 1];
        for (power, c) in coefficients.iter().enumerate().skip(1) {
            next[power - 1] -= power as f64 * c;
            next[power + 1] -= power as f64 * c;
        }
        coefficients = next;
    }
    coefficients
}
