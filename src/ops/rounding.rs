//! Absolute value, sign and rounding, element by element.

use retape_runtime::DType;

use super::unary::unary;

unary! {
    /// The absolute value of every element. The derivative at 0 is 0.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([-2.5_f32, 1.0]).abs().to_vec::<f32>()?, [2.5, 1.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Abs abs: number in -2.0..2.0;
    d(x, y, ct) = ct * x.sign();
    f(v) = if matches!(v.dtype(), DType::U32 | DType::U8) { v } else { v.abs() };

    /// -1, 0 or 1 as every element is below, at or above zero; zeros keep their sign, NaN stays NaN.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([-3, 0, 7]).sign().to_vec::<i32>()?, [-1, 0, 1]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Sign sign: number in -2.0..2.0;
    f(v) = v.gt(0.0).select(v.like(1.0), v.lt(0.0).select(v.like(-1.0), v));

    /// The largest integral value not above every element.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([1.7_f32, -1.2]).floor().to_vec::<f32>()?, [1.0, -2.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Floor floor: float in -3.0..3.0;
    f(v) = v.floor();

    /// The smallest integral value not below every element.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([1.2_f32, -1.7]).ceil().to_vec::<f32>()?, [2.0, -1.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Ceil ceil: float in -3.0..3.0;
    f(v) = v.ceil();

    /// The nearest integral value to every element, ties to even.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([0.5_f32, 1.5, -1.2]).round().to_vec::<f32>()?, [0.0, 2.0, -1.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Round round: float in -3.0..3.0;
    f(v) = v.round();

    /// The integral part of every element.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([1.7_f32, -1.7]).trunc().to_vec::<f32>()?, [1.0, -1.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Trunc trunc: float in -3.0..3.0;
    f(v) = v.trunc();
}
