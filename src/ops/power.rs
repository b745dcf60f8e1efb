//! Powers.

use std::panic::Location;

use retape_kernels::ir::Value;

use super::attribute::attributes;
use super::check::{self, refuse};
use super::{Cotangents, Lowering, OpDef, Sample, Site, TypeError};
use crate::graph::TensorType;
use crate::tensor::{Tensor, TensorOrScalar, apply, broadcast_apply};

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
        let zero = x.eq(0.0);
        // `y * x^(y - 1)` and `x^y * log(x)`, both 0 where x^y is 0^0 and the second wherever x is 0.
        let less = (&zero & y.eq(0.0)).select(1.0, y - 1.0);
        let log = zero.select(1.0, x).log();
        Cotangents::of([at.ct * (y * x.pow(less)), at.ct * (at.output * log)])
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        Lowering::pointwise(|at| at.arg(0).pow(at.arg(1)))
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
        Ok(x.clone())
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        match self.exponent {
            0 => Cotangents::zero("the power 0 is constant"),
            1 => Cotangents::of([at.ct.clone()]),
            n => {
                let power = apply(IntPow { exponent: n - 1 }, &[&at.args[0]]);
                Cotangents::of([at.ct * (power * n as f64)])
            }
        }
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        let exponent = self.exponent;
        Lowering::pointwise(move |at| {
            let power = int_power(at.arg(0), exponent.unsigned_abs());
            if exponent < 0 { 1.0 / power } else { power }
        })
    }

    fn samples() -> Vec<Sample> {
        let of = |exponent, range| Sample::floats(IntPow { exponent }, &[&[3, 4]], range);
        vec![of(0, -2.0..2.0), of(1, -2.0..2.0), of(5, -1.5..1.5), of(-2, 0.5..2.0)]
    }
}

impl Tensor {
    /// Every element to the power of `exponent`: a number or a tensor.
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
        match exponent.number() {
            Some(n) if n.fract() == 0.0 && n.abs() <= MAX_INT_EXPONENT as f64 => {
                apply(IntPow { exponent: n as i64 }, &[self])
            }
            Some(0.5) => self.sqrt(),
            Some(-0.5) => self.rsqrt(),
            Some(_) | None => {
                let exponent = exponent.tensor_like(self, Location::caller());
                broadcast_apply(Pow, &[self, &exponent])
            }
        }
    }
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
