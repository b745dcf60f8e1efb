//! Values of a graph and their types: a number, a dtype and a shape. Both have a text that reads back.

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

/// A value of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ValueId(pub u32);

impl ValueId {
    /// The id as an index into the nodes.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ValueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

/// Reads `f32[3, 4]`.
pub(crate) fn parse_type(text: &str) -> Option<TensorType> {
    let (dtype, shape) = text.split_at(text.find('[')?);
    Some(TensorType { dtype: DType::from_name(dtype)?, shape: parse_shape(shape)? })
}

/// Reads `[3, 4]`.
pub(crate) fn parse_shape(text: &str) -> Option<Shape> {
    let inside = text.strip_prefix('[')?.strip_suffix(']')?;
    split_outside_brackets(inside).map(|extent| extent.trim().parse().ok()).collect()
}

/// Splits at commas that are not inside square brackets; no parts for blank text.
pub(crate) fn split_outside_brackets(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |c| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .filter(|part| !part.trim().is_empty())
}
