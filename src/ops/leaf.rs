//! Leaves of a graph: parameters and constants.

use retape_runtime::{DType, Scalar, Shape};

use super::attribute::attributes;
use super::{Cotangents, Facts, Lowering, OpDef, Sample, Site, TypeError, check};
use crate::types::TensorType;

/// An input of the graph.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Parameter {
    /// Its position among the inputs.
    pub index: usize,
    /// Its type.
    pub ty: TensorType,
}

/// One constant, repeated over a shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Splat {
    /// The constant.
    pub value: Scalar,
    /// The shape of the result.
    pub shape: Shape,
}

attributes! {
    Parameter { index, ty }
    Splat { value, shape }
}

impl OpDef for Parameter {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        check::exactly::<0>(args)?;
        Ok(self.ty.clone())
    }

    fn vjp(&self, _: &Site<'_>) -> Cotangents {
        Cotangents::zero("a parameter has no arguments")
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        Lowering::Parameter
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, to: fn(DType) -> DType) -> Self {
        Parameter { index: self.index, ty: self.ty.with_dtype(to(self.ty.dtype)) }
    }

    fn samples() -> Vec<Sample> {
        // A parameter is not applied to anything; every other sample has some.
        vec![]
    }
}

impl OpDef for Splat {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        check::exactly::<0>(args)?;
        Ok(TensorType { dtype: self.value.dtype, shape: self.shape.clone() })
    }

    fn vjp(&self, _: &Site<'_>) -> Cotangents {
        Cotangents::zero("a constant has no arguments")
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        let value = self.value;
        Lowering::pointwise(move |at| at.constant(value))
    }

    fn facts(&self) -> Facts {
        Facts { constant: Some(self.value), ..Facts::PLAIN }
    }

    fn in_dtypes(&self, to: fn(DType) -> DType) -> Self {
        let value = self.value.cast(to(self.value.dtype));
        Splat { value, shape: self.shape.clone() }
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::floats(Splat { value: 2.5_f64.into(), shape: Shape::new(&[2, 3]) }, &[], 0.0..1.0)]
    }
}
