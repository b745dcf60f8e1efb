//! Arithmetic of two numbers per element.

use super::attribute::attributes;
use super::{Cotangents, Lowering, OpDef, Sample, Site, TypeError, check};
use crate::graph::TensorType;

/// Sum of two tensors, element by element.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Add;

/// Product of two tensors, element by element.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mul;

attributes! {
    Add {}
    Mul {}
}

impl OpDef for Add {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        check::number_elementwise::<2>(args)
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        Cotangents::of([at.ct.clone(), at.ct.clone()])
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        Lowering::pointwise(|at| at.arg(0) + at.arg(1))
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::floats(Add, &[&[3, 4], &[3, 4]], -2.0..2.0)]
    }
}

impl OpDef for Mul {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        check::number_elementwise::<2>(args)
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        Cotangents::of([at.ct * &at.args[1], at.ct * &at.args[0]])
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        Lowering::pointwise(|at| at.arg(0) * at.arg(1))
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::floats(Mul, &[&[3, 4], &[3, 4]], -2.0..2.0)]
    }
}
