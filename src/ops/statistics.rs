//! Composites of folds: mean, variance, and the logarithm of a sum of powers.

use std::panic::Location;

use super::Axes;
use super::check::float;
use crate::error::Caller;
use crate::method::method;
use crate::tensor::Tensor;

impl Tensor {
    /// The tensor if it is of floats, with the number of elements that a reduction over the axes takes together.
    pub(super) fn floats_over(&self, axes: &Axes, at: Caller) -> Result<usize, Tensor> {
        let Some(ty) = self.ty() else { return Err(self.clone()) };
        float(0, ty).map_err(|e| self.refused(e.0, at))?;
        let axes = axes.resolve(self.rank()).map_err(|message| self.refused(message, at))?;
        Ok(axes.iter().map(|&axis| self.shape()[axis]).product())
    }
}

/// A method over axes and its twin that keeps them, each after its docs, from the latter's body.
macro_rules! over_axes {
    ($(
        $(#[$doc:meta])*
        $method:ident
        $(#[$keeping_doc:meta])*
        $keeping:ident($x:ident, $axes:ident, $n:ident) $body:block
    )*) => {
        impl Tensor {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $method(&self, axes: impl Into<Axes>) -> Tensor {
                let (axes, _method) = (axes.into(), method(stringify!($method)));
                let kept = self.$keeping(axes.clone());
                let rank = self.rank();
                kept.over_axes(axes, Location::caller(), |axes| {
                    let left = (0..rank).filter(|axis| !axes.contains(axis)).map(|axis| self.shape()[axis]);
                    kept.reshape(left.collect::<retape_runtime::Shape>())
                })
            }

            $(#[$keeping_doc])*
            #[track_caller]
            pub fn $keeping(&self, axes: impl Into<Axes>) -> Tensor {
                let ($x, $axes, _method) = (self, axes.into(), method(stringify!($keeping)));
                let $n = match self.floats_over(&$axes, Location::caller()) {
                    Ok(n) => n as f64,
                    Err(poison) => return poison,
                };
                let _ = $n;
                $body
            }
        )*}
    };
}

over_axes! {
    /// The mean over axes, which disappear from the shape; floats only.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([[1.0_f32, 2.0], [3.0, 4.0]]).mean(0).to_vec::<f32>()?, [2.0, 3.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    mean
    /// As [`mean`](Tensor::mean), keeping the axes with extent 1.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([[1.0_f32, 2.0], [3.0, 4.0]]);
    /// let kept = x.mean_keep(1);
    /// assert_eq!((kept.shape(), kept.to_vec::<f32>()?), (&[2, 1][..], vec![1.5, 3.5]));
    /// # Ok::<(), retape::Error>(())
    /// ```
    mean_keep(x, axes, n) { x.sum_keep(axes) / n }

    /// The variance over axes, which disappear from the shape: the mean squared distance from the mean.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([1.0_f32, 3.0]).var(..).item::<f32>()?, 1.0);
    /// # Ok::<(), retape::Error>(())
    /// ```
    var
    /// As [`var`](Tensor::var), keeping the axes with extent 1.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([[1.0_f32, 2.0], [3.0, 4.0]]);
    /// let kept = x.var_keep(1);
    /// assert_eq!((kept.shape(), kept.to_vec::<f32>()?), (&[2, 1][..], vec![0.25, 0.25]));
    /// # Ok::<(), retape::Error>(())
    /// ```
    var_keep(x, axes, n) {
        (x - x.mean_keep(axes.clone())).square().mean_keep(axes)
    }

    /// The standard deviation over axes, which disappear from the shape: the square root of the variance.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([[1.0_f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.std(1).to_vec::<f32>()?, [0.5, 0.5]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    std
    /// As [`std`](Tensor::std), keeping the axes with extent 1.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([[1.0_f32, 2.0], [3.0, 4.0]]);
    /// let kept = x.std_keep(1);
    /// assert_eq!((kept.shape(), kept.to_vec::<f32>()?), (&[2, 1][..], vec![0.5, 0.5]));
    /// # Ok::<(), retape::Error>(())
    /// ```
    std_keep(x, axes, n) { x.var_keep(axes).sqrt() }

    /// The logarithm of the sum of e^x over axes, which disappear from the shape, without overflow; over an empty axis
    /// the sum is 0 and its logarithm -inf.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([1000.0_f64]).logsumexp(0).item::<f64>()?, 1000.0);
    /// assert_eq!(Tensor::zeros([2, 0]).logsumexp(1).to_vec::<f32>()?, [f32::NEG_INFINITY; 2]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    logsumexp
    /// As [`logsumexp`](Tensor::logsumexp), keeping the axes with extent 1.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3]).logsumexp_keep(-1).shape(), [2, 1]);
    /// ```
    logsumexp_keep(x, axes, n) {
        if n == 0.0 {
            return x.exp().sum_keep(axes).log();
        }
        let largest = x.max_keep(axes.clone()).stop_gradient();
        // Infinities would give `inf - inf`.
        let shift = largest.is_finite().select(&largest, 0.0);
        (x - &shift).exp().sum_keep(axes).log() + shift
    }
}
