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
    Exp2 exp2: float in -3.0..3.0;
    d(x, y, ct) = ct * (y * LN_2);
    f(v) = v.exp2();

    /// e to the power of every element, less 1; accurate for small elements.
    Expm1 expm1: float in -3.0..3.0;
    // Not `y + 1`, which rounds to 0 for elements far below 0.
    d(x, y, ct) = ct * x.exp();
    f(v) = v.expm1();

    /// The natural logarithm of every element.
    Log log: float in 0.5..3.0;
    d(x, y, ct) = ct / x;
    f(v) = v.log();

    /// The binary logarithm of every element.
    Log2 log2: float in 0.5..3.0;
    d(x, y, ct) = ct / (x * LN_2);
    f(v) = v.log2();

    /// The natural logarithm of 1 plus every element; accurate for small elements.
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
    Rsqrt rsqrt: float in 0.5..3.0;
    // `y / x` rather than `y * y * y`, which overflows first.
    d(x, y, ct) = ct * (y / x * -0.5);
    f(v) = 1.0 / v.sqrt();

    /// The hyperbolic sine of every element.
    Sinh sinh: float in -2.0..2.0;
    d(x, y, ct) = ct * x.cosh();
    f(v) = v.sinh();

    /// The hyperbolic cosine of every element.
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
    Asinh asinh: float in -3.0..3.0;
    d(x, y, ct) = ct * (x * x + 1.0).rsqrt();
    f(v) = v.asinh();

    /// The inverse hyperbolic cosine of every element; NaN below 1.
    Acosh acosh: float in 1.5..4.0;
    d(x, y, ct) = ct * ((x - 1.0) * (x + 1.0)).rsqrt();
    f(v) = v.acosh();

    /// The inverse hyperbolic tangent of every element; NaN beyond -1 and 1.
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
    #[track_caller]
    pub fn reciprocal(&self) -> Tensor {
        let _method = method("reciprocal");
        1.0 / self
    }
}
