//! Movement: the same elements at other coordinates.

use retape_runtime::{DType, Shape};
use smallvec::SmallVec;

use super::attribute::attributes;
use super::check::{self, refuse};
use super::{Cotangents, Facts, Lowering, Movement, OpDef, Sample, Site, TypeError};
use crate::error::Caller;
use crate::tensor::Tensor;
use crate::types::TensorType;

/// The same elements, in row-major order, as another shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reshape {
    /// The new shape.
    pub shape: Shape,
}

/// Repetition along new axes and along axes of extent 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BroadcastTo {
    /// The new shape.
    pub shape: Shape,
}

/// Axes in another order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Permute {
    /// Axis `i` of the result is axis `perm[i]` of the argument.
    pub perm: SmallVec<[usize; 4]>,
}

attributes! {
    Reshape { shape }
    BroadcastTo { shape }
    Permute { perm }
}

impl OpDef for Reshape {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [x] = check::exactly::<1>(args)?;
        if self.shape.checked_len() != Some(x.n_elements()) {
            refuse!("{x} has {} elements, which do not fill the shape {}", x.n_elements(), self.shape);
        }
        Ok(x.with_shape(&self.shape))
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        Cotangents::of([at.ct.reshape(at.args[0].shape())])
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
        vec![Sample::floats(Reshape { shape: Shape::new(&[2, 6]) }, &[&[4, 3]], -1.0..1.0)]
    }
}

impl OpDef for BroadcastTo {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [x] = check::exactly::<1>(args)?;
        let fits = x.rank() <= self.shape.rank()
            && x.shape.iter().rev().zip(self.shape.iter().rev()).all(|(&from, &to)| from == to || from == 1);
        if !fits {
            refuse!("{x} does not broadcast to {}", self.shape);
        }
        Ok(x.with_shape(&self.shape))
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        Cotangents::of([at.ct.sum_to(at.args[0].shape())])
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        Lowering::Movement(Movement::Broadcast)
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let to = |shape: &[usize]| BroadcastTo { shape: Shape::new(shape) };
        vec![Sample::floats(to(&[3, 4, 5]), &[&[4, 1]], -1.0..1.0), Sample::floats(to(&[2, 3]), &[&[]], -1.0..1.0)]
    }
}

impl OpDef for Permute {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [x] = check::exactly::<1>(args)?;
        let mut sorted = self.perm.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..x.rank()) {
            refuse!("{:?} is no permutation of the axes of {x}", self.perm);
        }
        Ok(x.with_shape(self.perm.iter().map(|&axis| x.shape[axis]).collect::<Shape>()))
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        let mut inverse = self.perm.clone();
        for (to, &from) in self.perm.iter().enumerate() {
            inverse[from] = to;
        }
        Cotangents::of([Tensor::apply(Permute { perm: inverse }, &[at.ct])])
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        Lowering::Movement(Movement::Permute(self.perm.clone()))
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::floats(Permute { perm: [2, 0, 1].into_iter().collect() }, &[&[2, 3, 4]], -1.0..1.0)]
    }
}

impl Tensor {
    /// The same elements, in row-major order, as another shape with as many elements.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([[1.0_f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    /// assert_eq!(x.reshape([3, 2]).at(1).to_vec::<f32>()?, [3.0, 4.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn reshape(&self, shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        if *shape == *self.shape() && self.error().is_none() {
            return self.clone();
        }
        Tensor::apply(Reshape { shape }, &[self])
    }

    /// Repeats the tensor along new leading axes and along axes of extent 1, by NumPy's rule.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let row = Tensor::from([1.0_f32, 2.0]);
    /// assert_eq!(row.broadcast_to([2, 2]).to_vec::<f32>()?, [1.0, 2.0, 1.0, 2.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn broadcast_to(&self, shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        if *shape == *self.shape() && self.error().is_none() {
            return self.clone();
        }
        Tensor::apply(BroadcastTo { shape }, &[self])
    }

    /// [`reshape`](Tensor::reshape) with the caller's line given.
    pub(crate) fn reshape_at(&self, shape: Shape, at: Caller) -> Tensor {
        if *shape == *self.shape() && self.error().is_none() {
            return self.clone();
        }
        Tensor::apply_at(Reshape { shape }, &[self], at)
    }

    /// Sums over the axes along which `broadcast_to` repeats `shape`: its transpose.
    #[track_caller]
    pub(crate) fn sum_to(&self, shape: &[usize]) -> Tensor {
        if self.shape() == shape {
            return self.clone();
        }
        let lead = self.rank() - shape.len();
        let repeated = |axis: &usize| *axis < lead || (shape[axis - lead] == 1 && self.shape()[*axis] != 1);
        let axes: Vec<usize> = (0..self.rank()).filter(repeated).collect();
        let dtype = self.dtype();
        // 16-bit floats are not computed with.
        let sum =
            if dtype.is_half() { self.cast(DType::F32).reduce_sum(&axes).cast(dtype) } else { self.reduce_sum(&axes) };
        sum.reshape(shape)
    }
}
