//! Values of a graph and their types: a number, a dtype and a shape. Both have a text that reads back.

use std::fmt;
use std::ops::Index;

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

/// Something for some of the values of a graph, in the order of their ids: tables that are hashed are no longer in a
/// cache where programs are long, and neighbouring values are asked for together.
#[derive(Clone, Debug)]
pub(crate) struct ValueTable<T> {
    entries: Vec<Option<T>>,
}

impl<T> Default for ValueTable<T> {
    fn default() -> ValueTable<T> {
        ValueTable { entries: vec![] }
    }
}

impl<T> ValueTable<T> {
    /// A table that has room for the values of a graph of so many nodes.
    pub(crate) fn with_capacity(n_nodes: usize) -> ValueTable<T> {
        ValueTable { entries: Vec::with_capacity(n_nodes) }
    }

    pub(crate) fn get(&self, id: ValueId) -> Option<&T> {
        self.entries.get(id.index())?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: ValueId) -> Option<&mut T> {
        self.entries.get_mut(id.index())?.as_mut()
    }

    pub(crate) fn contains(&self, id: ValueId) -> bool {
        self.get(id).is_some()
    }

    fn place(&mut self, id: ValueId) -> &mut Option<T> {
        if id.index() >= self.entries.len() {
            self.entries.resize_with(id.index() + 1, || None);
        }
        &mut self.entries[id.index()]
    }

    pub(crate) fn insert(&mut self, id: ValueId, entry: T) {
        *self.place(id) = Some(entry);
    }

    pub(crate) fn remove(&mut self, id: ValueId) -> Option<T> {
        self.entries.get_mut(id.index())?.take()
    }

    /// The entry of a value, which has the default one from now on if it had none.
    pub(crate) fn or_default(&mut self, id: ValueId) -> &mut T
    where
        T: Default,
    {
        self.place(id).get_or_insert_default()
    }
}

/// The entry of a value that has one.
impl<T> Index<ValueId> for ValueTable<T> {
    type Output = T;

    fn index(&self, id: ValueId) -> &T {
        self.get(id).expect("a value without an entry")
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
