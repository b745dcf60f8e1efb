//! Tensors from arrays of the crate `ndarray`, and back.

use std::panic::Location;

use ::ndarray::{ArrayBase, ArrayD, Data, Dimension, IxDyn};
use retape_runtime::{Buffer, Element, Shape};

use super::Tensor;
use super::create::dense;
use crate::error::{Caller, Error, Result, ill_typed};
use crate::method::method;
use crate::types::TensorType;

/// Copies the elements, in whatever order the array holds them; poisoned if the memory is refused.
///
/// ```
/// # use retape::Tensor;
/// let array = ndarray::array![[1.0_f32, 2.0, 3.0], [4.0, 5.0, 6.0]];
/// assert_eq!(Tensor::from(array.t()).to_vec::<f32>()?, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
/// # Ok::<(), retape::Error>(())
/// ```
impl<T, S, D> From<&ArrayBase<S, D>> for Tensor
where
    T: Element,
    S: Data<Elem = T>,
    D: Dimension,
{
    #[track_caller]
    fn from(array: &ArrayBase<S, D>) -> Tensor {
        let shape = Shape::new(array.shape());
        match array.as_slice() {
            Some(elements) => dense(elements, shape),
            None => gathered(array.iter(), shape, Location::caller()),
        }
    }
}

/// A tensor of elements in row-major order. A view may repeat what there is more often than memory can hold.
fn gathered<'e, T: Element>(elements: impl Iterator<Item = &'e T>, shape: Shape, at: Caller) -> Tensor {
    let ty = TensorType { dtype: T::DTYPE, shape };
    let Some(n_bytes) = ty.checked_bytes() else {
        return Tensor::poisoned(ill_typed("from", format!("{ty} has more bytes than can be addressed"), at));
    };
    let mut bytes = match Buffer::alloc(n_bytes) {
        Ok(bytes) => bytes,
        Err(refused) => return Tensor::poisoned(Error::from(refused).of_op("from", at)),
    };
    for (place, element) in bytes.bytes_mut().chunks_exact_mut(size_of::<T>()).zip(elements) {
        place.copy_from_slice(&element.to_scalar().bits.to_le_bytes()[..size_of::<T>()]);
    }
    Tensor::concrete(ty, bytes)
}

/// As from a reference, but an array that owns its elements, in row-major order, becomes the tensor without a copy; see
/// [`Tensor::from_vec`].
impl<T, S, D> From<ArrayBase<S, D>> for Tensor
where
    T: Element,
    S: Data<Elem = T>,
    D: Dimension,
{
    #[track_caller]
    fn from(array: ArrayBase<S, D>) -> Tensor {
        if !array.is_standard_layout() {
            return Tensor::from(&array);
        }
        let shape = Shape::new(array.shape());
        let (mut elements, first) = array.into_owned().into_raw_vec_and_offset();
        // Parts of an array own all of it.
        elements.drain(..first.unwrap_or(0));
        elements.truncate(shape.checked_len().unwrap_or(0));
        dense(elements, shape)
    }
}

impl Tensor {
    /// The elements as an array.
    ///
    /// # Errors
    ///
    /// As [`to_vec`](Tensor::to_vec).
    ///
    /// ```
    /// # use retape::Tensor;
    /// let array = Tensor::from([[1.0_f32, 2.0], [3.0, 4.0]]).to_ndarray::<f32>()?;
    /// assert_eq!(array, ndarray::array![[1.0, 2.0], [3.0, 4.0]].into_dyn());
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn to_ndarray<T: Element>(&self) -> Result<ArrayD<T>> {
        let _method = method("to_ndarray");
        let elements = self.to_vec::<T>()?;
        ArrayD::from_shape_vec(IxDyn(self.shape()), elements).map_err(|e| Error::Internal(e.to_string()))
    }
}
