//! Arithmetic of two numbers per element.

use retape_runtime::DType;

use super::attribute::attributes;
use super::{Cotangents, Facts, Lowering, OpDef, Sample, Site, TypeError, check};
use crate::tensor::Tensor;
use crate::types::TensorType;

/// Sum of two tensors, element by element.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Add;

/// Difference of two tensors, element by element.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sub;

/// Product of two tensors, element by element.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mul;

/// Quotient of two tensors, element by element; integers truncate, and division by zero gives 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Div;

/// Product of floats and the reciprocals of others, element by element: a quotient that is rounded twice.
///
/// Where the second argument is the same for all elements of a row, its reciprocal is computed once for the row, and a
/// division takes as long as four to ten products.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MulReciprocal;

/// Remainder with the sign of the dividend, element by element; of integers by zero it is 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rem;

/// Negation of every element.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Neg;

attributes! {
    Add {}
    Sub {}
    Mul {}
    Div {}
    MulReciprocal {}
    Rem {}
    Neg {}
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

    fn facts(&self) -> Facts {
        Facts { commutes: true, ..Facts::PLAIN }
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
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

    fn facts(&self) -> Facts {
        Facts { commutes: true, ..Facts::PLAIN }
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::floats(Mul, &[&[3, 4], &[3, 4]], -2.0..2.0)]
    }
}

impl OpDef for Sub {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        check::number_elementwise::<2>(args)
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        Cotangents::of([at.ct.clone(), -at.ct])
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        Lowering::pointwise(|at| at.arg(0) - at.arg(1))
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::floats(Sub, &[&[3, 4], &[3, 4]], -2.0..2.0)]
    }
}

impl OpDef for Div {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        check::number_elementwise::<2>(args)
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        let (y, d) = (at.output, &at.args[1]);
        Cotangents::of([at.ct / d, -(at.ct * y / d)])
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        Lowering::pointwise(|at| at.arg(0) / at.arg(1))
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::floats(Div, &[&[3, 4], &[3, 4]], 0.5..2.0)]
    }
}

impl OpDef for MulReciprocal {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        check::float_elementwise::<2>(args)
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        let d = &at.args[1];
        Cotangents::of([at.ct.mul_reciprocal(d), -(at.ct * at.output).mul_reciprocal(d)])
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        Lowering::pointwise(|at| at.arg(0) * (1.0 / at.arg(1)))
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::floats(MulReciprocal, &[&[3, 4], &[3, 4]], 0.5..2.0)]
    }
}

impl Tensor {
    /// [`MulReciprocal`] with tensors of one type.
    #[track_caller]
    pub(crate) fn mul_reciprocal(&self, divisor: &Tensor) -> Tensor {
        Tensor::apply(MulReciprocal, &[self, divisor])
    }
}

impl OpDef for Rem {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        check::number_elementwise::<2>(args)
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        // The truncated quotient `(x - x % y) / y` is piecewise constant, so only its value counts.
        let [x, y] = [&at.args[0], &at.args[1]];
        Cotangents::of([at.ct.clone(), at.ct * (at.output - x) / y])
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        Lowering::pointwise(|at| at.arg(0) % at.arg(1))
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::floats(Rem, &[&[3, 4], &[3, 4]], 0.5..2.0)]
    }
}

impl OpDef for Neg {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        check::number_elementwise::<1>(args)
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        Cotangents::of([-at.ct])
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        Lowering::pointwise(|at| -at.arg(0))
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::floats(Neg, &[&[3, 4]], -2.0..2.0)]
    }
}
