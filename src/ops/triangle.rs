//! Coordinates as values, and what is made of them: triangles, unit matrices, one-hot rows.

use std::panic::Location;

use retape_runtime::{DType, Element, Scalar, Shape};

use super::attribute::attributes;
use super::axes::{self, AsIndex};
use super::check::{self, refuse};
use super::index::absent;
use super::{Cotangents, Facts, Lowering, OpDef, Sample, Site, TypeError};
use crate::error::ill_typed;
use crate::method::method;
use crate::tensor::Tensor;
use crate::types::TensorType;

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

/// One where the coordinate along the last axis is the argument, and zero elsewhere; what indices out of range read
/// where the argument is no coordinate of that axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OneHot {
    /// The dtype of the result.
    pub dtype: DType,
}

attributes! {
    Iota { axis, dtype, shape }
    Triangle { lower, diagonal }
    OneHot { dtype }
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
        let last = self.shape[self.axis].saturating_sub(1) as i64;
        if last.to_scalar().element(self.dtype).is_none() {
            refuse!("coordinates up to {last} are not values of {}", self.dtype);
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

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, to: fn(DType) -> DType) -> Self {
        Iota { dtype: to(self.dtype), ..self.clone() }
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
        Cotangents::of([Tensor::apply_at(self.clone(), &[at.ct], Location::caller())])
    }

    fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
        let (lower, diagonal, rank, dtype) = (self.lower, self.diagonal, args[0].rank(), args[0].dtype);
        // A diagonal beyond the corners is as good as one just beyond them, and its sum with a row has a sign.
        let [rows, columns] = [2, 1].map(|from_end| args[0].shape[rank - from_end] as i64);
        let diagonal = diagonal.clamp(-rows, columns);
        Lowering::pointwise(move |at| {
            let (on_diagonal, column) = (at.index(rank - 2) + diagonal, at.index(rank - 1));
            let kept = if lower { column.le(on_diagonal) } else { on_diagonal.le(column) };
            kept.select(at.arg(0), at.constant(Scalar { dtype, bits: 0 }))
        })
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        vec![
            Sample::floats(Triangle { lower: true, diagonal: 0 }, &[&[5, 5]], -1.0..1.0),
            Sample::floats(Triangle { lower: false, diagonal: -1 }, &[&[2, 3, 4]], -1.0..1.0),
        ]
    }
}

impl OpDef for OneHot {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [x] = check::exactly::<1>(args)?;
        check::of_dtype(0, x, "an integer: cast it", DType::is_int)?;
        if x.rank() == 0 {
            refuse!("argument 0 is {x}, but must have an axis for the coordinates");
        }
        if self.dtype.is_half() {
            refuse!("{} is for storage: make f32 and cast the result", self.dtype);
        }
        Ok(x.with_dtype(self.dtype))
    }

    fn vjp(&self, _: &Site<'_>) -> Cotangents {
        Cotangents::zero("indices are integers")
    }

    fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
        let (dtype, axis) = (self.dtype, args[0].rank() - 1);
        let [zero, one] = [0.0, 1.0].map(|x| Scalar::from_f64(x, dtype));
        let extent = args[0].shape[axis] as i64;
        Lowering::pointwise(move |at| {
            let index = at.arg(0).cast(DType::I64);
            let hot = index.eq(at.index(axis)).select(at.constant(one), at.constant(zero));
            (index.ge(0_i64) & index.lt(extent)).select(hot, at.constant(absent(dtype)))
        })
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, to: fn(DType) -> DType) -> Self {
        OneHot { dtype: to(self.dtype) }
    }

    fn samples() -> Vec<Sample> {
        let of = |dtype, from| Sample::typed(OneHot { dtype }, &[(TensorType::new(from, [3, 4]), 0.0..6.0)]);
        vec![of(DType::F64, DType::I64), of(DType::F32, DType::U8), of(DType::I32, DType::U32)]
    }
}

impl Tensor {
    /// The coordinate of each element of a tensor of this dtype and shape along `axis`, counted from the end if
    /// negative; refused if `dtype` is of integers and does not have all of them.
    ///
    /// ```
    /// # use retape::{DType, Tensor};
    /// assert_eq!(Tensor::iota(DType::I64, [2, 2], 1).to_vec::<i64>()?, [0, 1, 0, 1]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn iota(dtype: DType, shape: impl Into<Shape>, axis: impl AsIndex) -> Tensor {
        let (at, shape) = (Location::caller(), shape.into());
        match axes::resolve(axis, shape.rank()) {
            Ok(axis) => Tensor::apply_at(Iota { axis, dtype, shape }, &[], at),
            Err(message) => Tensor::poisoned(ill_typed("iota", message, at)),
        }
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
        let _method = method("tril");
        Tensor::apply(Triangle { lower: true, diagonal }, &[self])
    }

    /// The elements on and above a diagonal of the last two axes, zeros below it.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([[1.0_f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.triu(0).to_vec::<f32>()?, [1.0, 2.0, 0.0, 4.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn triu(&self, diagonal: i64) -> Tensor {
        let _method = method("triu");
        Tensor::apply(Triangle { lower: false, diagonal }, &[self])
    }

    /// Rows of length `n`, of dtype `f32`, with a one at each index (an integer of any dtype) and zeros elsewhere.
    ///
    /// An index that is not in `0..n` has a row of what [`take`](Tensor::take) reads out of range: NaN, so that a loss
    /// of a wrong label is NaN, and of integers the least signed or largest unsigned number. Negative ones do not count
    /// from the end, for they are rather labels than positions.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([1_i64]).one_hot(3).to_vec::<f32>()?, [0.0, 1.0, 0.0]);
    /// assert!(Tensor::from([3_i64]).one_hot(3).to_vec::<f32>()?.iter().all(|x| x.is_nan()));
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn one_hot(&self, n: usize) -> Tensor {
        let _method = method("one_hot");
        self.one_hot_of(DType::F32, n)
    }

    /// As [`one_hot`](Tensor::one_hot), of the given dtype; of `bool`, the row of an index out of range is true.
    ///
    /// ```
    /// # use retape::{DType, Tensor};
    /// let rows = Tensor::from([1_i64]).one_hot_of(DType::F64, 3);
    /// assert_eq!(rows.to_vec::<f64>()?, [0.0, 1.0, 0.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn one_hot_of(&self, dtype: DType, n: usize) -> Tensor {
        let (at, _method) = (Location::caller(), method("one_hot_of"));
        if self.error().is_none() && !self.dtype().is_int() {
            return self.refused(format!("indices are {}, but must be integers: cast them", self.type_text()), at);
        }
        let rows: Shape = self.shape().iter().copied().chain([n]).collect();
        let computed = if dtype.is_half() { DType::F32 } else { dtype };
        let indices = self.with_axis(self.rank(), 1, at).broadcast_to(rows);
        Tensor::apply(OneHot { dtype: computed }, &[&indices]).cast(dtype)
    }
}
