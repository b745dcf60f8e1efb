//! The type of a value in a graph: dtype and shape.

use std::fmt;

use retape_runtime::{DType, Shape};

/// Dtype and shape of a tensor.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// The dtype of the elements.
    pub dtype: DType,
    /// The extents.
    pub shape: Shape,
}

impl TensorType {
    /// The type with this dtype and shape.
    pub fn new(dtype: DType, shape: impl Into<Shape>) -> TensorType {
        TensorType { dtype, shape: shape.into() }
    }

    /// The same shape with another dtype.
    pub fn with_dtype(&self, dtype: DType) -> TensorType {
        TensorType { dtype, shape: self.shape.clone() }
    }

    /// The same dtype with another shape.
    pub fn with_shape(&self, shape: impl Into<Shape>) -> TensorType {
        TensorType { dtype: self.dtype, shape: shape.into() }
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.shape.rank()
    }

    /// The number of elements.
    pub fn n_elements(&self) -> usize {
        self.shape.n_elements()
    }

    /// The number of bytes of a dense tensor of this type, if it fits `isize`.
    ///
    /// Empty axes count as one element for this: where a loop nest has them beside others, it must be able to count
    /// the others.
    pub fn checked_bytes(&self) -> Option<usize> {
        let bytes = self.shape.iter().try_fold(self.dtype.size(), |n, &extent| n.checked_mul(extent.max(1)))?;
        let is_empty = self.shape.contains(&0);
        (bytes <= isize::MAX as usize).then_some(if is_empty { 0 } else { bytes })
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}

impl fmt::Debug for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
