//! Activation functions.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};
use std::panic::Location;

use super::Axes;
use super::unary::unary;
use crate::method::method;
use crate::tensor::Tensor;

unary! {
    /// Every element, but 0 for those below. The derivative at 0 is 0.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([-1.0_f32, 2.0]).relu().to_vec::<f32>()?, [0.0, 2.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Relu relu: number in -2.0..2.0;
    // Written on the output, so that the forward pass may drop its input.
    d(x, y, ct) = y.gt(0.0).select(ct, 0.0);
    f(v) = v.max(0.0);

    /// log(1 + e^x) of every element, without overflow.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let y = Tensor::from([0.0_f64, 1000.0]).softplus().to_vec::<f64>()?;
    /// assert!((y[0] - 2.0_f64.ln()).abs() < 1e-15 && y[1] == 1000.0);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Softplus softplus: float in -4.0..4.0;
    d(x, y, ct) = ct * x.sigmoid();
    f(v) = v.max(0.0) + (-v.abs()).exp().log1p();
}

impl Tensor {
    /// Every element, but 0 for those below and 6 for those above (Howard et al., "MobileNets", 2017). The derivative
    /// is 0 at 0 and at 6.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([-1.0_f32, 2.0, 7.0]).relu6().to_vec::<f32>()?, [0.0, 2.0, 6.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn relu6(&self) -> Tensor {
        let _method = method("relu6");
        let above = self.relu();
        above.ge(6.0).select(6.0, above)
    }

    /// The logarithm of the logistic function of every element; accurate far below 0.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([-1000.0_f64]).log_sigmoid().to_vec::<f64>()?, [-1000.0]); // sigmoid is 0 there
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn log_sigmoid(&self) -> Tensor {
        let _method = method("log_sigmoid");
        -(-self).softplus()
    }

    /// x * sigmoid(x) of every element, also known as swish.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let y = Tensor::from([0.0_f64, 2.0]).silu().to_vec::<f64>()?;
    /// assert!(y[0] == 0.0 && (y[1] - 2.0 / (1.0 + (-2.0_f64).exp())).abs() < 1e-15);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn silu(&self) -> Tensor {
        let _method = method("silu");
        self * self.sigmoid()
    }

    /// The Gaussian error linear unit: x times the probability that a standard normal variable is below x.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let y = Tensor::from([0.0_f64, 1.0]).gelu_erf().to_vec::<f64>()?;
    /// assert!(y[0] == 0.0 && (y[1] - 0.841_344_746_068_542_9).abs() < 1e-15);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn gelu_erf(&self) -> Tensor {
        let _method = method("gelu_erf");
        self * ((self * -FRAC_1_SQRT_2).erfc() * 0.5)
    }

    /// The approximation of [`gelu_erf`](Tensor::gelu_erf) by a hyperbolic tangent, as many published models use it.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([-2.0_f64, 0.5, 2.0]);
    /// let apart = (x.gelu_tanh() - x.gelu_erf()).abs().max(..).item::<f64>()?;
    /// assert!(0.0 < apart && apart < 1e-3);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn gelu_tanh(&self) -> Tensor {
        let _method = method("gelu_tanh");
        let inner = (self + self * self * self * 0.044715) * FRAC_2_PI.sqrt();
        self * ((inner.tanh() + 1.0) * 0.5)
    }

    /// Every element; those below 0 are multiplied by `slope`.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([-2.0_f32, 3.0]).leaky_relu(0.5).to_vec::<f32>()?, [-1.0, 3.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn leaky_relu(&self, slope: f64) -> Tensor {
        let _method = method("leaky_relu");
        self.ge(0.0).select(self, self * slope)
    }

    /// Every element; those below 0 become alpha * (e^x - 1).
    ///
    /// ```
    /// # use retape::Tensor;
    /// let y = Tensor::from([-1.0_f64, 3.0]).elu(2.0).to_vec::<f64>()?;
    /// assert!((y[0] - 2.0 * (-1.0_f64).exp_m1()).abs() < 1e-15 && y[1] == 3.0);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn elu(&self, alpha: f64) -> Tensor {
        let _method = method("elu");
        // The other branch must stay finite where it is not chosen, for the sake of its derivative.
        let positive = self.gt(0.0);
        let below = positive.select(0.0, self).expm1();
        positive.select(self, if alpha == 1.0 { below } else { below * alpha })
    }

    /// e to the power of every element, divided by the sum of these over the axes; over an empty axis there is nothing
    /// to divide, and the result is as empty.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([7.0_f32, 7.0]).softmax(0).to_vec::<f32>()?, [0.5, 0.5]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn softmax(&self, axes: impl Into<Axes>) -> Tensor {
        let (axes, _method) = (axes.into(), method("softmax"));
        match self.less_the_largest(&axes) {
            Ok(shifted) => {
                let powers = shifted.exp();
                let sum = powers.sum_keep(axes);
                powers.mul_reciprocal(&sum.broadcast_to(powers.shape()))
            }
            Err(poison) => poison,
        }
    }

    /// The logarithm of [`softmax`](Tensor::softmax), accurate also where that vanishes.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let y = Tensor::from([0.0_f64, 1000.0]).log_softmax(0).to_vec::<f64>()?;
    /// assert_eq!(y, [-1000.0, 0.0]); // softmax is 0 and 1
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn log_softmax(&self, axes: impl Into<Axes>) -> Tensor {
        let (axes, _method) = (axes.into(), method("log_softmax"));
        match self.less_the_largest(&axes) {
            Ok(shifted) => {
                let sum = shifted.exp().sum_keep(axes);
                shifted - sum.log()
            }
            Err(poison) => poison,
        }
    }

    /// The tensor less its largest element over the axes, so that no power of it overflows; of no elements none is the
    /// largest.
    #[track_caller]
    fn less_the_largest(&self, axes: &Axes) -> Result<Tensor, Tensor> {
        match self.floats_over(axes, Location::caller())? {
            0 => Ok(self.clone()),
            _ => Ok(self - self.max_keep(axes.clone()).stop_gradient()),
        }
    }
}
