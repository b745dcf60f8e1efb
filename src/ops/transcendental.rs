//! Exponentials, logarithms, roots and hyperbolic functions, element by element; floats only.

use std::f64::consts::LN_2;

use super::unary::unary;
use crate::method::method;
use crate::tensor::Tensor;

unary! {
    /// e to the power of every element.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([0.0_f64]).exp().to_vec::<f64>()?, [1.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Exp exp: float in -3.0..3.0;
    d(x, y, ct) = ct * y;
    f(v) = v.exp();

    /// 2 to the power of every element.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([3.0_f64, -1.0]).exp2().to_vec::<f64>()?, [8.0, 0.5]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Exp2 exp2: float in -3.0..3.0;
    d(x, y, ct) = ct * (y * LN_2);
    f(v) = v.exp2();

    /// e to the power of every element, less 1; accurate for small elements.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let y = Tensor::from(1e-20_f64).expm1().item::<f64>()?;
    /// assert_eq!(y, 1e-20); // e^x rounds to 1
    /// # Ok::<(), retape::Error>(())
    /// ```
    Expm1 expm1: float in -3.0..3.0;
    // Not `y + 1`, which rounds to 0 for elements far below 0.
    d(x, y, ct) = ct * x.exp();
    f(v) = v.expm1();

    /// The natural logarithm of every element.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([1.0_f64]).log().to_vec::<f64>()?, [0.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Log log: float in 0.5..3.0;
    d(x, y, ct) = ct / x;
    f(v) = v.log();

    /// The binary logarithm of every element.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([8.0_f64, 0.5]).log2().to_vec::<f64>()?, [3.0, -1.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Log2 log2: float in 0.5..3.0;
    d(x, y, ct) = ct / (x * LN_2);
    f(v) = v.log2();

    /// The natural logarithm of 1 plus every element; accurate for small elements.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let y = Tensor::from(1e-20_f64).log1p().item::<f64>()?;
    /// assert_eq!(y, 1e-20); // 1 + x rounds to 1
    /// # Ok::<(), retape::Error>(())
    /// ```
    Log1p log1p: float in -0.5..3.0;
    d(x, y, ct) = ct / (x + 1.0);
    f(v) = v.log1p();

    /// The square root of every element, correctly rounded; NaN below zero.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([4.0_f32, 9.0]).sqrt().to_vec::<f32>()?, [2.0, 3.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Sqrt sqrt: float in 0.5..3.0;
    d(x, y, ct) = ct / (y * 2.0);
    f(v) = v.sqrt();

    /// The reciprocal of the square root of every element.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([4.0_f64]).rsqrt().to_vec::<f64>()?, [0.5]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Rsqrt rsqrt: float in 0.5..3.0;
    // `y / x` rather than `y * y * y`, which overflows first.
    d(x, y, ct) = ct * (y / x * -0.5);
    f(v) = 1.0 / v.sqrt();

    /// The hyperbolic sine of every element.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let y = Tensor::from(1.0_f64).sinh().item::<f64>()?;
    /// assert!((y - 1.0_f64.sinh()).abs() < 1e-15);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Sinh sinh: float in -2.0..2.0;
    d(x, y, ct) = ct * x.cosh();
    f(v) = v.sinh();

    /// The hyperbolic cosine of every element.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let y = Tensor::from(1.0_f64).cosh().item::<f64>()?;
    /// assert!((y - 1.0_f64.cosh()).abs() < 1e-15);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Cosh cosh: float in -2.0..2.0;
    d(x, y, ct) = ct * x.sinh();
    f(v) = v.cosh();

    /// The hyperbolic tangent of every element.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([0.0_f32]).tanh().to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Tanh tanh: float in -4.0..4.0;
    // Written on the output, so that the forward pass may drop its input; as a product, because `1 - y * y`
    // loses all digits where tanh saturates.
    d(x, y, ct) = ct * (1.0 - y) * (1.0 + y);
    f(v) = v.tanh();

    /// The inverse hyperbolic sine of every element.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let y = Tensor::from(1.0_f64).asinh().item::<f64>()?;
    /// assert!((y - 1.0_f64.asinh()).abs() < 1e-15);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Asinh asinh: float in -3.0..3.0;
    d(x, y, ct) = ct * (x * x + 1.0).rsqrt();
    f(v) = v.asinh();

    /// The inverse hyperbolic cosine of every element; NaN below 1.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let y = Tensor::from(2.0_f64).acosh().item::<f64>()?;
    /// assert!((y - 2.0_f64.acosh()).abs() < 1e-15);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Acosh acosh: float in 1.5..4.0;
    d(x, y, ct) = ct * ((x - 1.0) * (x + 1.0)).rsqrt();
    f(v) = v.acosh();

    /// The inverse hyperbolic tangent of every element; NaN beyond -1 and 1.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let y = Tensor::from(0.5_f64).atanh().item::<f64>()?;
    /// assert!((y - 0.5_f64.atanh()).abs() < 1e-15);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Atanh atanh: float in -0.8..0.8;
    d(x, y, ct) = ct / ((1.0 - x) * (1.0 + x));
    f(v) = v.atanh();
}

impl Tensor {
    /// The square of every element.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([3, -2]).square().to_vec::<i32>()?, [9, 4]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn square(&self) -> Tensor {
        let _method = method("square");
        self * self
    }

    /// 1 divided by every element.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([4.0_f64, -2.0]).reciprocal().to_vec::<f64>()?, [0.25, -0.5]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn reciprocal(&self) -> Tensor {
        let _method = method("reciprocal");
        1.0 / self
    }
}
