//! Trigonometric functions and their inverses, in radians, element by element; floats only.

use retape_runtime::DType;

use super::attribute::attributes;
use super::operators::TensorOrScalar;
use super::unary::unary;
use super::{Cotangents, Facts, Lowering, OpDef, Sample, Site, TypeError, check};
use crate::method::method;
use crate::tensor::Tensor;
use crate::types::TensorType;

unary! {
    /// The sine of every element.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let y = Tensor::from(1.0_f64).sin().item::<f64>()?;
    /// assert!((y - 1.0_f64.sin()).abs() < 1e-15);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Sin sin: float in -4.0..4.0;
    d(x, y, ct) = ct * x.cos();
    f(v) = v.sin();

    /// The cosine of every element.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let y = Tensor::from(1.0_f64).cos().item::<f64>()?;
    /// assert!((y - 1.0_f64.cos()).abs() < 1e-15);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Cos cos: float in -4.0..4.0;
    d(x, y, ct) = -(ct * x.sin());
    f(v) = v.cos();

    /// The tangent of every element.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let y = Tensor::from(1.0_f64).tan().item::<f64>()?;
    /// assert!((y - 1.0_f64.tan()).abs() < 1e-15);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Tan tan: float in -1.2..1.2;
    d(x, y, ct) = ct * (y * y + 1.0);
    f(v) = v.tan();

    /// The inverse sine of every element; NaN beyond -1 and 1.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let y = Tensor::from(0.5_f64).asin().item::<f64>()?;
    /// assert!((y - 0.5_f64.asin()).abs() < 1e-15);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Asin asin: float in -0.8..0.8;
    d(x, y, ct) = ct * ((1.0_f64 - x) * (1.0_f64 + x)).rsqrt();
    f(v) = v.asin();

    /// The inverse cosine of every element; NaN beyond -1 and 1.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let y = Tensor::from(0.5_f64).acos().item::<f64>()?;
    /// assert!((y - 0.5_f64.acos()).abs() < 1e-15);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Acos acos: float in -0.8..0.8;
    d(x, y, ct) = -(ct * ((1.0_f64 - x) * (1.0_f64 + x)).rsqrt());
    f(v) = v.acos();

    /// The inverse tangent of every element.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let y = Tensor::from(2.0_f64).atan().item::<f64>()?;
    /// assert!((y - 2.0_f64.atan()).abs() < 1e-15);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Atan atan: float in -3.0..3.0;
    d(x, y, ct) = ct / (x * x + 1.0);
    f(v) = v.atan();
}

/// The op of [`Tensor::atan2`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Atan2;

attributes! {
    Atan2 {}
}

impl OpDef for Atan2 {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        check::float_elementwise::<2>(args)
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        // `x / (x^2 + y^2)` with both divided by the larger, so that squares neither overflow nor vanish. The formula
        // does not depend on the divisor, which is why its gradient can be stopped.
        let [y, x] = [&at.args[0], &at.args[1]];
        let scale = y.abs().maximum(x.abs()).stop_gradient();
        let [v, u] = [y / &scale, x / &scale];
        let ct = at.ct / (&u * &u + &v * &v) / scale;
        Cotangents::of([&ct * u, -(ct * v)])
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        Lowering::pointwise(|at| at.arg(0).atan2(at.arg(1)))
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::floats(Atan2, &[&[3, 4], &[3, 4]], -2.0..2.0)]
    }
}

impl Tensor {
    /// The angle of each point with ordinate `self` and abscissa `x`, between -pi and pi.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let angle = Tensor::from([1.0_f64]).atan2(0.0);
    /// assert_eq!(angle.to_vec::<f64>()?, [std::f64::consts::FRAC_PI_2]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn atan2(&self, x: impl TensorOrScalar) -> Tensor {
        let _method = method("atan2");
        let x = x.tensor_like(self, std::panic::Location::caller());
        Tensor::broadcast_apply(Atan2, &[self, &x])
    }
}
