//! Matrix products.

use std::panic::Location;

use retape_kernels::library::{self, Library};
use retape_runtime::{DType, Shape};

use super::attribute::attributes;
use super::check::{self, refuse};
use super::{BroadcastTo, Cotangents, Facts, Lowering, OpDef, Sample, Site, TypeError};
use crate::error::{Caller, ill_typed};
use crate::method::method;
use crate::tensor::Tensor;
use crate::types::TensorType;

/// The most multiplications of a small product: kernels compute it in formulas. Beyond twice as many the library is
/// faster, which keeps tiles of the result in registers.
pub(crate) const SMALL_PRODUCT: usize = 1024;

/// The product of each matrix of the last two axes with its partner; the axes before them are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MatMul;

attributes! {
    MatMul {}
}

impl OpDef for MatMul {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [a, b] = check::exactly::<2>(args)?;
        check::factor(0, a)?;
        if a.dtype != b.dtype {
            refuse!("argument 0 is {a}, argument 1 is {b}: dtypes must be equal; cast one of them");
        }
        let (&[ref batch @ .., m, k], &[ref other_batch @ .., other_k, n]) = (&*a.shape, &*b.shape) else {
            refuse!("argument 0 is {a}, argument 1 is {b}: both must have at least two axes");
        };
        if k != other_k {
            refuse!("argument 0 is {a}, argument 1 is {b}: {k} columns do not meet {other_k} rows");
        }
        if batch != other_batch {
            refuse!("argument 0 is {a}, argument 1 is {b}: all axes before the last two must be equal");
        }
        Ok(a.with_shape(batch.iter().copied().chain([m, n]).collect::<Shape>()))
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        let [a, b] = [&at.args[0], &at.args[1]];
        let caller = Location::caller();
        let product = |x: &Tensor, y: &Tensor| Tensor::apply_at(MatMul, &[x, y], caller);
        Cotangents::of([product(at.ct, &b.transpose()), product(&a.transpose(), at.ct)])
    }

    fn lower(&self, args: &[&TensorType], result: &TensorType) -> Lowering {
        let (batch, last) = result.shape.split_at(result.rank() - 2);
        let sizes = [last[0], last[1], args[0].shape[result.rank() - 1]];
        Lowering::Library(Library::MatMul(library::MatMul::contiguous(result.dtype, batch, sizes)))
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        vec![
            Sample::floats(MatMul, &[&[3, 4], &[4, 5]], -1.0..1.0),
            Sample::floats(MatMul, &[&[2, 3, 4], &[2, 4, 1]], -1.0..1.0),
            Sample::of(DType::Bf16, MatMul, &[&[3, 4], &[4, 5]], -1.0..1.0),
            Sample::of(DType::F16, MatMul, &[&[2, 3, 4], &[2, 4, 1]], -1.0..1.0),
        ]
    }
}

impl Tensor {
    /// The matrix product, as NumPy's `@`.
    ///
    /// The last two axes are matrices, axes before them are broadcast. Of 16-bit floats the sums are in `f32`, and rounded
    /// once. A vector on the left is a row, on the right a
    /// column, and its axis disappears from the result.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let a = Tensor::from([[1.0_f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(a.matmul(&Tensor::from([1.0_f32, 1.0])).to_vec::<f32>()?, [3.0, 7.0]);
    /// assert_eq!(a.matmul(&a).to_vec::<f32>()?, [7.0, 10.0, 15.0, 22.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn matmul(&self, other: &Tensor) -> Tensor {
        let _method = method("matmul");
        self.matmul_at(other, Location::caller())
    }

    /// The sum of the products of the elements of two vectors.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([1.0_f32, 2.0]);
    /// assert_eq!(x.dot(&x).item::<f32>()?, 5.0);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn dot(&self, other: &Tensor) -> Tensor {
        let (at, _method) = (Location::caller(), method("dot"));
        if let Some(refused) = self.refused_vectors(other, at) {
            return refused;
        }
        if self.shape() != other.shape() {
            let message = format!("{} and {} differ in length", self.type_text(), other.type_text());
            return refused_among(&[self, other], message, at);
        }
        (self * other).sum(..)
    }

    /// All products of an element of this vector and one of the other.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([1.0_f32, 2.0]);
    /// assert_eq!(x.outer(&x).to_vec::<f32>()?, [1.0, 2.0, 2.0, 4.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn outer(&self, other: &Tensor) -> Tensor {
        let (at, _method) = (Location::caller(), method("outer"));
        match self.refused_vectors(other, at) {
            Some(refused) => refused,
            None => self.with_axis(1, 1, at) * other.with_axis(0, 1, at),
        }
    }

    fn matmul_at(&self, other: &Tensor, at: Caller) -> Tensor {
        if let Some(poisoned) = [self, other].into_iter().find(|tensor| tensor.error().is_some()) {
            return poisoned.clone();
        }
        if self.rank() == 0 || other.rank() == 0 {
            let message = format!(
                "argument 0 is {}, argument 1 is {}: neither may be a scalar; multiply with `*`",
                self.type_text(),
                other.type_text()
            );
            return refused_among(&[self, other], message, at);
        }
        if let Some(message) = self.refused_beside_vector(other) {
            return refused_among(&[self, other], message, at);
        }
        match (self.rank(), other.rank()) {
            (1, 1) => {
                let product = self.with_axis(0, 1, at).matmul_at(&other.with_axis(1, 1, at), at);
                product.drop_axes(&[0, 1], at)
            }
            (1, rank) => self.with_axis(0, 1, at).matmul_at(other, at).drop_axes(&[rank - 2], at),
            (rank, 1) => self.matmul_at(&other.with_axis(1, 1, at), at).drop_axes(&[rank - 1], at),
            // One matrix for a whole batch: the rows of the batch are rows of one large matrix.
            (3.., 2) if self.extent(-1) == other.extent(0) => {
                let (rows, columns) = (self.shape()[..self.rank() - 1].iter().product(), self.extent(-1));
                let product =
                    Tensor::apply_at(MatMul, &[&self.reshape_at(Shape::new(&[rows, columns]), at), other], at);
                let lead = self.shape()[..self.rank() - 1].iter().copied();
                product.unless_poisoned(|product| product.reshape_at(lead.chain([other.extent(1)]).collect(), at))
            }
            _ => self.batched_product(other, at),
        }
    }

    /// The product of tensors of rank two or more, with the axes before the last two broadcast.
    fn batched_product(&self, other: &Tensor, at: Caller) -> Tensor {
        let ((batch_a, a), (batch_b, b)) =
            (self.shape().split_at(self.rank() - 2), other.shape().split_at(other.rank() - 2));
        let batch = match check::broadcast(batch_a, batch_b) {
            Ok(batch) => batch,
            Err(e) => return refused_among(&[self, other], format!("batch axes: {e}"), at),
        };
        let spread = |tensor: &Tensor, last: &[usize]| {
            let shape: Shape = batch.iter().chain(last).copied().collect();
            if *shape == *tensor.shape() {
                tensor.clone()
            } else {
                Tensor::apply_at(BroadcastTo { shape }, &[tensor], at)
            }
        };
        Tensor::apply_at(MatMul, &[&spread(self, a), &spread(other, b)], at)
    }

    /// The tensor without axes of extent 1.
    pub(crate) fn drop_axes(&self, axes: &[usize], at: Caller) -> Tensor {
        let kept = self.shape().iter().enumerate().filter(|(axis, _)| !axes.contains(axis));
        self.unless_poisoned(|tensor| tensor.reshape_at(kept.map(|(_, &extent)| extent).collect(), at))
    }

    /// The result of `then`, unless the tensor carries an error already.
    pub(crate) fn unless_poisoned(&self, then: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
        if self.error().is_some() { self.clone() } else { then(self) }
    }

    /// Why a product with a vector is none, with the types as they were given; a vector among them gets an axis later.
    fn refused_beside_vector(&self, other: &Tensor) -> Option<String> {
        let (columns, rows) = (self.extent(-1), other.extent(if other.rank() == 1 { 0 } else { -2 }));
        let rule = if self.dtype() != other.dtype() {
            "dtypes must be equal; cast one of them".to_owned()
        } else if columns != rows {
            format!("{columns} columns do not meet {rows} rows")
        } else {
            return None;
        };
        let (x, y) = (self.type_text(), other.type_text());
        (self.rank() == 1 || other.rank() == 1).then(|| format!("argument 0 is {x}, argument 1 is {y}: {rule}"))
    }

    fn refused_vectors(&self, other: &Tensor, at: Caller) -> Option<Tensor> {
        if let Some(poisoned) = [self, other].into_iter().find(|tensor| tensor.error().is_some()) {
            return Some(poisoned.clone());
        }
        let matrix = [self, other].into_iter().find(|tensor| tensor.rank() != 1)?;
        let message = format!("{} is not a vector; for matrices use `matmul` or `einsum`", matrix.type_text());
        Some(refused_among(&[self, other], message, at))
    }
}

/// The poisoned result of the method of some tensors that runs; the trace that one of them belongs to remembers the error.
pub(crate) fn refused_among(tensors: &[&Tensor], message: String, at: Caller) -> Tensor {
    match tensors.iter().find(|tensor| tensor.is_traced()).or(tensors.first()) {
        Some(tensor) => tensor.refused(message, at),
        None => Tensor::poisoned(ill_typed("function of tensors", message, at)),
    }
}
