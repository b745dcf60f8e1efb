//! The same values with another dtype, or without a derivative.

use retape_kernels::library::CastHalf;
use retape_runtime::DType;

use super::attribute::attributes;
use super::{Cotangents, Facts, Lowering, Movement, OpDef, Sample, Site, TypeError, check};
use crate::tensor::Tensor;
use crate::types::TensorType;

/// Conversion to another dtype, as [`Tensor::cast`] says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cast {
    /// The new dtype.
    pub dtype: DType,
}

/// The argument, of which the result does not count as a function when differentiating.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StopGradient;

attributes! {
    Cast { dtype }
    StopGradient {}
}

/// Whether the dtype is a float of any size.
fn is_real(dtype: DType) -> bool {
    dtype.is_float() || dtype.is_half()
}

impl OpDef for Cast {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [x] = check::exactly::<1>(args)?;
        Ok(x.with_dtype(self.dtype))
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        let from = at.args[0].dtype();
        if is_real(from) && is_real(self.dtype) {
            Cotangents::of([at.ct.cast(from)])
        } else {
            Cotangents::zero("integers and truth values have no derivatives")
        }
    }

    fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
        let (from, to) = (args[0].dtype, self.dtype);
        if from == to {
            Lowering::Movement(Movement::Reshape)
        } else if (from.is_half() || to.is_half()) && ![from, to].contains(&DType::F32) {
            // Generated code has vectors for the way from and to `f32` alone.
            Lowering::Library(CastHalf { from, to, len: args[0].n_elements() }.into())
        } else {
            Lowering::pointwise(move |at| at.arg(0).cast(to))
        }
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, to: fn(DType) -> DType) -> Self {
        Cast { dtype: to(self.dtype) }
    }

    fn samples() -> Vec<Sample> {
        let pairs = DType::ALL.into_iter().flat_map(|from| DType::ALL.into_iter().map(move |to| (from, to)));
        let sample = |(from, to)| Sample::typed(Cast { dtype: to }, &[(TensorType::new(from, [3, 4]), 0.0..5.0)]);
        pairs.map(sample).collect()
    }
}

impl OpDef for StopGradient {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [x] = check::exactly::<1>(args)?;
        Ok(x.clone())
    }

    fn vjp(&self, _: &Site<'_>) -> Cotangents {
        Cotangents::zero("stopped")
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        Lowering::Movement(Movement::Reshape)
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        // Its derivative is meant to differ from the difference quotient, so it is tested apart.
        vec![]
    }
}

impl Tensor {
    /// The elements as another dtype.
    ///
    /// Towards floats values round once to the nearest, of two the even one, and to infinity beyond the largest; towards
    /// integers they are truncated and saturate (NaN becomes 0); towards `bool` they are compared with zero.
    ///
    /// ```
    /// # use retape::{DType, Tensor};
    /// assert_eq!(Tensor::from([2.7_f32, -1e20]).cast(DType::I32).to_vec::<i32>()?, [2, i32::MIN]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn cast(&self, dtype: DType) -> Tensor {
        if self.dtype() == dtype && self.error().is_none() {
            return self.clone();
        }
        Tensor::apply(Cast { dtype }, &[self])
    }

    /// The tensor itself, as a constant when differentiating: no gradient flows back through it.
    ///
    /// ```
    /// # use retape::{Tensor, value_and_grad};
    /// let (_, dx) = value_and_grad(|x: &Tensor| (x * x.stop_gradient()).sum(..), &Tensor::from([3.0_f64]))?;
    /// assert_eq!(dx.item::<f64>()?, 3.0);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn stop_gradient(&self) -> Tensor {
        if self.is_traced() { Tensor::apply(StopGradient, &[self]) } else { self.clone() }
    }
}
