//! Tensors from arrays of the crate `ndarray`, and back.

use ::ndarray::{ArrayBase, ArrayD, Data, Dimension, IxDyn};
use retape_runtime::{Element, Shape};

use super::Tensor;
use super::create::dense;
use crate::error::{Error, Result};

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
    fn from(array: &ArrayBase<S, D>) -> Tensor {
        let shape = Shape::new(array.shape());
        match array.as_slice() {
            Some(elements) => dense(elements, shape),
            None => dense(&array.iter().copied().collect::<Vec<T>>(), shape),
        }
    }
}

/// As from a reference.
impl<T, S, D> From<ArrayBase<S, D>> for Tensor
where
    T: Element,
    S: Data<Elem = T>,
    D: Dimension,
{
    fn from(array: ArrayBase<S, D>) -> Tensor {
        Tensor::from(&array)
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
        let elements = self.to_vec::<T>()?;
        ArrayD::from_shape_vec(IxDyn(self.shape()), elements).map_err(|e| Error::Internal(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use ::ndarray::{Array0, Array2, Array3, Axis, Slice, arr0};

    use super::*;

    #[test]
    fn arrays_survive_the_round_trip() {
        let array = Array3::from_shape_fn([2, 3, 4], |(i, j, k)| (100 * i + 10 * j + k) as i64);
        let tensor = Tensor::from(&array);
        assert_eq!(tensor.shape(), [2, 3, 4]);
        assert_eq!(tensor.to_ndarray::<i64>().unwrap(), array.into_dyn());
        let scalar: Array0<bool> = arr0(true);
        assert_eq!(Tensor::from(scalar.clone()).to_ndarray::<bool>().unwrap(), scalar.into_dyn());
        let empty = Array2::<f32>::zeros([0, 3]);
        assert_eq!(Tensor::from(empty.view()).shape(), [0, 3]);
        assert_eq!(Tensor::from(&empty).to_ndarray::<f32>().unwrap(), empty.into_dyn());
    }

    #[test]
    fn views_of_any_layout_are_read_in_their_order() {
        let array = Array2::from_shape_fn([3, 4], |(i, j)| (10 * i + j) as f64);
        let backward = array.slice_axis(Axis(0), Slice::new(0, None, -1));
        let every_other = array.slice_axis(Axis(1), Slice::new(1, None, 2));
        for view in [array.t(), backward, every_other] {
            let tensor = Tensor::from(view);
            assert_eq!(tensor.shape(), view.shape());
            assert_eq!(tensor.to_vec::<f64>().unwrap(), view.iter().copied().collect::<Vec<_>>());
        }
        let row = array.index_axis(Axis(0), 2);
        assert_eq!(Tensor::from(row).to_vec::<f64>().unwrap(), [20.0, 21.0, 22.0, 23.0]);
    }

    #[test]
    fn another_dtype_is_an_error() {
        assert!(matches!(Tensor::ones([2]).to_ndarray::<f64>(), Err(Error::Type { .. })));
    }
}
