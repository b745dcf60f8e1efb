//! Axes and positions along them as people write them: numbers, counted from the end if negative, ranges and lists.

use std::fmt;
use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};
use std::panic::Location;

use smallvec::SmallVec;

use crate::error::{Caller, ill_typed};
use crate::method::method;
use crate::tensor::Tensor;

mod sealed {
    pub trait Sealed {}
}

/// A number that names an axis, or a position along one: `i32`, `isize` or `usize`. Negative numbers count from the end.
///
/// ```
/// # use retape::Tensor;
/// let x = Tensor::zeros([2, 3]);
/// let last: usize = x.rank() - 1;
/// assert_eq!([x.dim(last), x.dim(1), x.dim(-1), x.dim(1_isize)], [3; 4]);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no axis and no position along one",
    label = "not an index",
    note = "an index is an `i32`, `isize` or `usize`; convert other integers, as in `n as isize`"
)]
pub trait AsIndex: Copy + sealed::Sealed {
    /// The number with its sign; one beyond `isize::MAX` names nothing, and becomes the largest, which does not either.
    #[doc(hidden)]
    fn as_index(self) -> isize;
}

impl sealed::Sealed for i32 {}
impl AsIndex for i32 {
    fn as_index(self) -> isize {
        self as isize
    }
}

impl sealed::Sealed for isize {}
impl AsIndex for isize {
    fn as_index(self) -> isize {
        self
    }
}

impl sealed::Sealed for usize {}
impl AsIndex for usize {
    fn as_index(self) -> isize {
        isize::try_from(self).unwrap_or(isize::MAX)
    }
}

/// A number from `0` to below `extent`, counted from the end if negative.
fn position(index: isize, extent: usize) -> Option<usize> {
    let from_start = if index < 0 { index.checked_add_unsigned(extent)? } else { index };
    usize::try_from(from_start).ok().filter(|&position| position < extent)
}

/// An axis of a tensor of the given rank, counted from the end if negative.
pub(crate) fn resolve(axis: impl AsIndex, rank: usize) -> Result<usize, String> {
    let axis = axis.as_index();
    position(axis, rank).ok_or_else(|| format!("axis {axis} does not exist in a tensor of rank {rank}"))
}

/// A range of positions along an axis, as Rust writes ranges; negative ends count from the end of the axis.
///
/// Clippy takes a literal `1..-1` for an empty range of numbers; `1..n - 1` says the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexRange {
    start: Bound<isize>,
    end: Bound<isize>,
}

impl IndexRange {
    const FULL: IndexRange = IndexRange { start: Bound::Unbounded, end: Bound::Unbounded };

    fn of<I: AsIndex>(range: impl RangeBounds<I>) -> IndexRange {
        IndexRange {
            start: range.start_bound().map(|&index| index.as_index()),
            end: range.end_bound().map(|&index| index.as_index()),
        }
    }

    /// The first position and the one after the last, if both lie within the extent and in this order.
    pub(crate) fn within(&self, extent: usize) -> Option<(usize, usize)> {
        let end = |bound: Bound<isize>, open: usize, shift: [usize; 2]| {
            let (end, shift) = match bound {
                Bound::Unbounded => return Some(open),
                Bound::Included(end) => (end, shift[0]),
                Bound::Excluded(end) => (end, shift[1]),
            };
            let end = if end < 0 { end.checked_add_unsigned(extent)? } else { end };
            usize::try_from(end).ok()?.checked_add(shift)
        };
        let (start, stop) = (end(self.start, 0, [0, 1])?, end(self.end, extent, [1, 0])?);
        (start <= stop && stop <= extent).then_some((start, stop))
    }
}

impl fmt::Display for IndexRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.start {
            Bound::Included(start) => write!(f, "{start}..")?,
            Bound::Excluded(before) => write!(f, "{}..", before.saturating_add(1))?,
            Bound::Unbounded => write!(f, "..")?,
        }
        match self.end {
            Bound::Included(end) => write!(f, "={end}"),
            Bound::Excluded(end) => write!(f, "{end}"),
            Bound::Unbounded => Ok(()),
        }
    }
}

impl From<RangeFull> for IndexRange {
    fn from(_: RangeFull) -> IndexRange {
        IndexRange::FULL
    }
}

impl<I: AsIndex> From<(Bound<I>, Bound<I>)> for IndexRange {
    fn from(bounds: (Bound<I>, Bound<I>)) -> IndexRange {
        IndexRange::of(bounds)
    }
}

/// Axes of a tensor: an axis, several in an array, slice or vector, or a range of them; `..` is all.
///
/// Negative axes count from the end. Which axes exist is checked when they are applied to a tensor.
///
/// ```
/// # use retape::Tensor;
/// let x = Tensor::ones([2, 3, 4]);
/// assert_eq!(x.sum([0, -1]).shape(), [3]);
/// assert_eq!(x.sum(1..).shape(), [2]);
/// assert_eq!(x.sum(..-1).shape(), [4]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axes(Selection);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Selection {
    Range(IndexRange),
    Some(SmallVec<[isize; 4]>),
}

impl Axes {
    fn some<I: AsIndex>(axes: &[I]) -> Axes {
        Axes(Selection::Some(axes.iter().map(|axis| axis.as_index()).collect()))
    }

    /// The axes of a tensor of the given rank, in the order in which they were written.
    ///
    /// # Errors
    ///
    /// Says which axis does not exist.
    pub(crate) fn in_order(&self, rank: usize) -> Result<SmallVec<[usize; 4]>, String> {
        match &self.0 {
            Selection::Some(axes) => axes.iter().map(|&axis| resolve(axis, rank)).collect(),
            Selection::Range(range) => match range.within(rank) {
                Some((start, stop)) => Ok((start..stop).collect()),
                None => Err(format!("axes {range} do not exist in a tensor of rank {rank}")),
            },
        }
    }

    /// The axes of a tensor of the given rank, ascending and distinct.
    ///
    /// # Errors
    ///
    /// Says which axis does not exist or is named twice.
    pub(crate) fn resolve(&self, rank: usize) -> Result<SmallVec<[usize; 4]>, String> {
        let mut resolved = self.in_order(rank)?;
        resolved.sort_unstable();
        match resolved.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("axis {} is named twice", pair[0])),
            None => Ok(resolved),
        }
    }
}

impl From<RangeFull> for Axes {
    fn from(_: RangeFull) -> Axes {
        Axes(Selection::Range(IndexRange::FULL))
    }
}

impl<I: AsIndex> From<I> for Axes {
    fn from(axis: I) -> Axes {
        Axes::some(&[axis])
    }
}

impl<I: AsIndex, const N: usize> From<[I; N]> for Axes {
    fn from(axes: [I; N]) -> Axes {
        Axes::some(&axes)
    }
}

impl<I: AsIndex, const N: usize> From<&[I; N]> for Axes {
    fn from(axes: &[I; N]) -> Axes {
        Axes::some(axes)
    }
}

impl<I: AsIndex> From<&[I]> for Axes {
    fn from(axes: &[I]) -> Axes {
        Axes::some(axes)
    }
}

impl<I: AsIndex> From<Vec<I>> for Axes {
    fn from(axes: Vec<I>) -> Axes {
        Axes::some(&axes)
    }
}

impl<I: AsIndex> From<&Vec<I>> for Axes {
    fn from(axes: &Vec<I>) -> Axes {
        Axes::some(axes)
    }
}

/// A choice along one axis: a position, which makes the axis disappear, or a range of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subscript {
    /// A position.
    Index(isize),
    /// A range of positions.
    Range(IndexRange),
}

/// Choices along the first axes of a tensor: one [`Subscript`] (an index or a range), or a tuple of up to six.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscripts(pub(crate) SmallVec<[Subscript; 4]>);

impl Subscript {
    /// The first position along an axis of the tensor and the one after the last.
    ///
    /// # Errors
    ///
    /// Says what lies outside of the axis.
    pub(crate) fn along(&self, axis: usize, of: &Tensor) -> Result<(usize, usize), String> {
        let extent = of.shape()[axis];
        match self {
            Subscript::Index(index) => match position(*index, extent) {
                Some(position) => Ok((position, position + 1)),
                None => Err(format!("index {index} is out of range for axis {axis} of {}", of.type_text())),
            },
            Subscript::Range(range) => match range.within(extent) {
                Some(ends) => Ok(ends),
                None => Err(format!("the range {range} does not lie within axis {axis} of {}", of.type_text())),
            },
        }
    }
}

impl<I: AsIndex> From<I> for Subscript {
    fn from(index: I) -> Subscript {
        Subscript::Index(index.as_index())
    }
}

impl From<RangeFull> for Subscript {
    fn from(_: RangeFull) -> Subscript {
        Subscript::Range(IndexRange::FULL)
    }
}

impl<I: AsIndex> From<I> for Subscripts {
    fn from(index: I) -> Subscripts {
        Subscripts(SmallVec::from_slice(&[index.into()]))
    }
}

impl From<RangeFull> for Subscripts {
    fn from(range: RangeFull) -> Subscripts {
        Subscripts(SmallVec::from_slice(&[range.into()]))
    }
}

macro_rules! ranges {
    ($($range:ident),*) => {$(
        impl<I: AsIndex> From<$range<I>> for IndexRange {
            fn from(range: $range<I>) -> IndexRange {
                IndexRange::of(range)
            }
        }

        impl<I: AsIndex> From<$range<I>> for Axes {
            fn from(range: $range<I>) -> Axes {
                Axes(Selection::Range(range.into()))
            }
        }

        impl<I: AsIndex> From<$range<I>> for Subscript {
            fn from(range: $range<I>) -> Subscript {
                Subscript::Range(range.into())
            }
        }

        impl<I: AsIndex> From<$range<I>> for Subscripts {
            fn from(range: $range<I>) -> Subscripts {
                Subscripts(SmallVec::from_slice(&[range.into()]))
            }
        }
    )*};
}

ranges!(Range, RangeFrom, RangeInclusive, RangeTo, RangeToInclusive);

macro_rules! tuples {
    ($($name:ident $index:tt),*) => {
        impl<$($name: Into<Subscript>),*> From<($($name,)*)> for Subscripts {
            fn from(subscripts: ($($name,)*)) -> Subscripts {
                Subscripts([$(subscripts.$index.into()),*].into_iter().collect())
            }
        }
    };
}

tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
tuples!(A 0, B 1, C 2, D 3, E 4);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5);

impl Tensor {
    /// The extent of an axis, counted from the end if negative.
    ///
    /// If there is no such axis, the call that this tensor is traced in fails with this line. A tensor that is not traced
    /// has no error to give with a number: its extent is 1 there, and that of a poisoned one everywhere.
    ///
    /// ```
    /// # use retape::{Tensor, accelerate};
    /// let x = Tensor::ones([2, 3]);
    /// assert_eq!((x.dim(0), x.dim(-1), x.dim(2)), (2, 3, 1));
    /// let mean = accelerate(|x: &Tensor| x.sum(..) / x.dim(2) as f64);
    /// assert!(mean.call(&x).unwrap_err().to_string().contains("dim: axis 2 does not exist"));
    /// ```
    #[track_caller]
    pub fn dim(&self, axis: impl AsIndex) -> usize {
        let (at, _method) = (Location::caller(), method("dim"));
        match resolve(axis, self.rank()) {
            Ok(axis) => self.shape()[axis],
            Err(message) => {
                // A trace remembers the error.
                self.refused(message, at);
                1
            }
        }
    }

    /// The extent of an axis, or 1 where a method that is given too few axes says so in its own words.
    pub(crate) fn extent(&self, axis: impl AsIndex) -> usize {
        resolve(axis, self.rank()).map_or(1, |axis| self.shape()[axis])
    }

    /// Resolves axes and goes on with them; poisoned if one does not exist.
    pub(crate) fn over_axes(
        &self,
        axes: Axes,
        at: Caller,
        then: impl FnOnce(SmallVec<[usize; 4]>) -> Tensor,
    ) -> Tensor {
        match axes.resolve(self.rank()) {
            Ok(axes) => then(axes),
            Err(message) => self.refused(message, at),
        }
    }

    /// The poisoned result of the method that runs, which does not accept this tensor; an error that the tensor carries
    /// comes first.
    pub(crate) fn refused(&self, message: String, at: Caller) -> Tensor {
        let error = ill_typed("tensor", message, at);
        match (self.error(), self.as_traced()) {
            (Some(_), _) => self.clone(),
            (None, Some(traced)) => traced.recording.fail(error),
            (None, None) => Tensor::poisoned(error),
        }
    }
}
