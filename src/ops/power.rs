//! Powers.

use std::panic::Location;

use retape_kernels::ir::Value;
use retape_runtime::DType;

use super::attribute::attributes;
use super::check::{self, refuse};
use super::operators::TensorOrScalar;
use super::{Cotangents, Facts, Lowering, OpDef, Sample, Site, TypeError};
use crate::method::method;
use crate::tensor::Tensor;
use crate::types::TensorType;

/// Powers of elements with elements as exponents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pow;

/// Powers of all elements with one small integer exponent, by multiplication.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IntPow {
    /// The exponent.
    pub exponent: i64,
}

attributes! {
    Pow {}
    IntPow { exponent }
}

/// The largest magnitude of an exponent for which repeated squaring is as accurate as `pow`.
const MAX_INT_EXPONENT: i64 = 16;

impl OpDef for Pow {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        check::float_elementwise::<2>(args)
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        let [x, y] = [&at.args[0], &at.args[1]];
        // `y * x^(y - 1)`, and 0 where x^0 is 1 for an x without a reciprocal.
        let size = x.abs();
        let is_extreme = size.lt(least_normal(x.dtype())) | size.ge(f64::INFINITY) | size.is_nan();
        let is_flat = y.eq(0.0) & is_extreme;
        let base = y * is_flat.select(1.0, x).pow(is_flat.select(1.0, y - 1.0));
        // `x^y * log(x)`, and 0 where that would be a product of 0 and an infinity, and wherever x is 0.
        let is_flat = x.eq(0.0) | at.output.eq(0.0);
        let exponent = is_flat.select(0.0, at.output) * is_flat.select(1.0, x).log();
        Cotangents::of([at.ct * base, at.ct * exponent])
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        Lowering::pointwise(|at| at.arg(0).pow(at.arg(1)))
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::floats(Pow, &[&[3, 4], &[3, 4]], 0.5..3.0)]
    }
}

impl OpDef for IntPow {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [x] = check::exactly::<1>(args)?;
        check::number(0, x)?;
        if self.exponent < 0 && x.dtype.is_int() {
            refuse!("{x} has no power {}: integers have none below 0; cast to a float first", self.exponent);
        }
        if self.exponent == i64::MIN {
            refuse!("the power {} is too low: its derivative is of a lower one, which is no i64", self.exponent);
        }
        Ok(x.clone())
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        match self.exponent {
            0 => Cotangents::zero("the power 0 is constant"),
            1 => Cotangents::of([at.ct.clone()]),
            n => {
                let power = Tensor::apply(IntPow { exponent: n - 1 }, &[&at.args[0]]);
                Cotangents::of([at.ct * (power * n as f64)])
            }
        }
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        let exponent = self.exponent;
        Lowering::pointwise(move |at| {
            let (x, n) = (at.arg(0), exponent.unsigned_abs());
            let power = int_power(x, n);
            match exponent {
                0.. => power,
                -1 => 1.0 / x,
                // Where a power is too large or too small its reciprocal need not be: so that of a power within the
                // normal numbers, and elsewhere the power of the reciprocal, which leaves the range where the result does.
                _ => {
                    let size = power.abs();
                    let is_normal = size.ge(least_normal(x.dtype())) & size.lt(f64::INFINITY);
                    is_normal.select(1.0 / power, int_power(1.0 / x, n))
                }
            }
        })
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let of = |exponent, range| Sample::floats(IntPow { exponent }, &[&[3, 4]], range);
        vec![of(0, -2.0..2.0), of(1, -2.0..2.0), of(5, -1.5..1.5), of(-2, 0.5..2.0)]
    }
}

impl Tensor {
    /// Every element to the power of `exponent`: a number or a tensor. Special values are those of `pow` in IEEE 754.
    ///
    /// The derivative with respect to the exponent is taken as 0 where the element is 0. Of integers there are powers
    /// with whole numbers from 0 to 16.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([2.0_f32, -3.0]).pow(3).to_vec::<f32>()?, [8.0, -27.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn pow(&self, exponent: impl TensorOrScalar) -> Tensor {
        let (at, _method) = (Location::caller(), method("pow"));
        match exponent.number() {
            Some(n) if n.fract() == 0.0 && n.abs() <= MAX_INT_EXPONENT as f64 => {
                Tensor::apply(IntPow { exponent: n as i64 }, &[self])
            }
            Some(_) if self.error().is_none() && !self.dtype().is_float() => {
                let message =
                    format!("{} has powers with whole numbers up to {MAX_INT_EXPONENT} only", self.type_text());
                self.refused(message, at)
            }
            Some(0.5) => self.by_root(Tensor::sqrt, f64::INFINITY),
            Some(-0.5) => self.by_root(Tensor::rsqrt, 0.0),
            Some(_) | None => {
                let exponent = exponent.tensor_like(self, at);
                Tensor::broadcast_apply(Pow, &[self, &exponent])
            }
        }
    }

    /// A power by a root, which rounds less: they differ at -0, of which the root is -0, and at -inf, of which there is
    /// none.
    #[track_caller]
    fn by_root(&self, root: impl Fn(&Tensor) -> Tensor, of_infinity: f64) -> Tensor {
        let is_infinity = self.eq(f64::NEG_INFINITY);
        // The other branch must have a derivative where it is not chosen; a sum with +0 is not -0.
        let power = root(&(is_infinity.select(1.0, self) + 0.0));
        is_infinity.select(of_infinity, power)
    }
}

/// The smallest positive number of a float dtype with all its bits.
fn least_normal(dtype: DType) -> f64 {
    if dtype == DType::F32 { f32::MIN_POSITIVE.into() } else { f64::MIN_POSITIVE }
}

/// `x^n` for `n >= 0` by repeated squaring.
pub(super) fn int_power(x: Value<'_>, n: u64) -> Value<'_> {
    let (mut power, mut base, mut left) = (None, x, n);
    while left > 0 {
        if left & 1 == 1 {
            power = Some(power.map_or(base, |power| power * base));
        }
        left >>= 1;
        if left > 0 {
            base = base * base;
        }
    }
    power.unwrap_or(x.like(1.0))
}
