//! Coordinates as values, and what is made of them: triangles, unit matrices, one-hot rows.

use std::panic::Location;

use retape_runtime::{DType, Scalar, Shape};

use super::attribute::attributes;
use super::check::{self, refuse};
use super::{Cotangents, Lowering, Op, OpDef, Sample, Site, TypeError};
use crate::eager;
use crate::error::Caller;
use crate::graph::TensorType;
use crate::tensor::{Tensor, apply_at};

/// The coordinate of each element along an axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Iota {
    /// The axis.
    pub axis: usize,
    /// The dtype of the result.
    pub dtype: DType,
    /// The shape of the result.
    pub shape: Shape,
}

/// The elements on one side of a diagonal of the last two axes, and zeros on the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Triangle {
    /// Whether the elements below the diagonal are kept, rather than those above it.
    pub lower: bool,
    /// How far right of the main diagonal the diagonal is, which is kept itself.
    pub diagonal: i64,
}

attributes! {
    Iota { axis, dtype, shape }
    Triangle { lower, diagonal }
}

impl OpDef for Iota {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        check::exactly::<0>(args)?;
        let result = TensorType::new(self.dtype, &self.shape);
        if self.axis >= result.rank() {
            refuse!("axis {} is out of range for {result}", self.axis);
        }
        if !self.dtype.is_float() && !self.dtype.is_int() {
            refuse!("coordinates cannot be {}; cast them afterwards", self.dtype);
        }
        Ok(result)
    }

    fn vjp(&self, _: &Site<'_>) -> Cotangents {
        Cotangents::zero("coordinates have no arguments")
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        let (axis, dtype) = (self.axis, self.dtype);
        Lowering::pointwise(move |at| at.index(axis).cast(dtype))
    }

    fn samples() -> Vec<Sample> {
        let of = |axis, dtype| Iota { axis, dtype, shape: Shape::new(&[3, 4]) };
        vec![Sample::floats(of(0, DType::I64), &[], 0.0..1.0), Sample::floats(of(1, DType::F64), &[], 0.0..1.0)]
    }
}

impl OpDef for Triangle {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [x] = check::exactly::<1>(args)?;
        if x.rank() < 2 {
            refuse!("argument 0 is {x}, but must have at least two axes");
        }
        Ok((*x).clone())
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        Cotangents::of([apply_at(self.clone(), &[at.ct], Location::caller())])
    }

    fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
        let (lower, diagonal, rank, dtype) = (self.lower, self.diagonal, args[0].rank(), args[0].dtype);
        Lowering::pointwise(move |at| {
            let (on_diagonal, column) = (at.index(rank - 2) + diagonal, at.index(rank - 1));
            let kept = if lower { column.le(on_diagonal) } else { on_diagonal.le(column) };
            kept.select(at.arg(0), at.constant(Scalar { dtype, bits: 0 }))
        })
    }

    fn samples() -> Vec<Sample> {
        vec![
            Sample::floats(Triangle { lower: true, diagonal: 0 }, &[&[5, 5]], -1.0..1.0),
            Sample::floats(Triangle { lower: false, diagonal: -1 }, &[&[2, 3, 4]], -1.0..1.0),
        ]
    }
}

impl Tensor {
    /// The coordinate of each element of a tensor of this dtype and shape along `axis`.
    ///
    /// ```
    /// # use retape::{DType, Tensor};
    /// assert_eq!(Tensor::iota(DType::I64, [2, 2], 1).to_vec::<i64>()?, [0, 1, 0, 1]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn iota(dtype: DType, shape: impl Into<Shape>, axis: usize) -> Tensor {
        apply_at(Iota { axis, dtype, shape: shape.into() }, &[], Location::caller())
    }

    /// The unit matrix of dtype `f32`.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::eye(2).to_vec::<f32>()?, [1.0, 0.0, 0.0, 1.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn eye(n: usize) -> Tensor {
        Tensor::eye_of(DType::F32, n)
    }

    /// The unit matrix of the given dtype.
    #[track_caller]
    pub fn eye_of(dtype: DType, n: usize) -> Tensor {
        Tensor::of_scalar(Scalar::from_f64(1.0, dtype), Location::caller()).broadcast_to([n, n]).tril(0).triu(0)
    }

    /// The elements on and below a diagonal of the last two axes, zeros above it; diagonal `k` lies `k` columns right
    /// of the main one.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([[1.0_f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.tril(0).to_vec::<f32>()?, [1.0, 0.0, 3.0, 4.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn tril(&self, diagonal: i64) -> Tensor {
        apply_at(Triangle { lower: true, diagonal }, &[self], Location::caller())
    }

    /// The elements on and above a diagonal of the last two axes, zeros below it.
    #[track_caller]
    pub fn triu(&self, diagonal: i64) -> Tensor {
        apply_at(Triangle { lower: false, diagonal }, &[self], Location::caller())
    }

    /// Rows of length `n`, of dtype `f32`, with a one at each index and zeros elsewhere; all zeros for an index out of
    /// range.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([1_i64]).one_hot(3).to_vec::<f32>()?, [0.0, 1.0, 0.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn one_hot(&self, n: usize) -> Tensor {
        self.one_hot_of(DType::F32, n)
    }

    /// As [`one_hot`](Tensor::one_hot), of the given dtype.
    #[track_caller]
    pub fn one_hot_of(&self, dtype: DType, n: usize) -> Tensor {
        let at = Location::caller();
        if !self.dtype().is_int() {
            let message = format!("indices are {}, but must be integers: cast them", self.type_text());
            return self.refused("one_hot", message, at);
        }
        let columns = self.nullary(Iota { axis: 0, dtype: DType::I64, shape: Shape::new(&[n]) }, at);
        self.with_axis(self.rank(), 1, at).cast(DType::I64).eq(&columns).cast(dtype)
    }

    /// Applies an op without arguments where this tensor lives: on its tape, or at once.
    pub(crate) fn nullary(&self, op: impl Into<Op>, at: Caller) -> Tensor {
        match (self.error(), self.as_traced()) {
            (Some(_), _) => self.clone(),
            (None, Some(traced)) => traced.tape.record(op.into(), &[], at),
            (None, None) => eager::run_on(self.device(), op.into(), &[], at).unwrap_or_else(Tensor::poisoned),
        }
    }
}
