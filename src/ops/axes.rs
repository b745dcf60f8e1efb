//! Axes as people write them: numbers, counted from the end if negative, lists of them, or all.

use smallvec::SmallVec;

use crate::error::Caller;
use crate::method::ill_typed;
use crate::tensor::Tensor;

/// Axes of a tensor: an axis, several in an array, slice or vector, or `..` for all.
///
/// Negative axes count from the end. Which axes exist is checked when they are applied to a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axes(Selection);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Selection {
    All,
    Some(SmallVec<[isize; 4]>),
}

impl Axes {
    /// The axes of a tensor of the given rank, ascending and distinct.
    ///
    /// # Errors
    ///
    /// Says which axis does not exist or is named twice.
    pub(crate) fn resolve(&self, rank: usize) -> Result<SmallVec<[usize; 4]>, String> {
        let Selection::Some(axes) = &self.0 else { return Ok((0..rank).collect()) };
        let mut resolved = axes.iter().map(|&axis| resolve(axis, rank)).collect::<Result<SmallVec<[_; 4]>, _>>()?;
        resolved.sort_unstable();
        match resolved.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("axis {} is named twice", pair[0])),
            None => Ok(resolved),
        }
    }
}

/// An axis of a tensor of the given rank, counted from the end if negative.
pub(crate) fn resolve(axis: isize, rank: usize) -> Result<usize, String> {
    let positive = if axis < 0 { axis.checked_add_unsigned(rank) } else { Some(axis) };
    positive
        .and_then(|axis| usize::try_from(axis).ok())
        .filter(|&axis| axis < rank)
        .ok_or_else(|| format!("axis {axis} does not exist in a tensor of rank {rank}"))
}

impl From<std::ops::RangeFull> for Axes {
    fn from(_: std::ops::RangeFull) -> Axes {
        Axes(Selection::All)
    }
}

impl From<isize> for Axes {
    fn from(axis: isize) -> Axes {
        Axes(Selection::Some(SmallVec::from_slice(&[axis])))
    }
}

impl<const N: usize> From<[isize; N]> for Axes {
    fn from(axes: [isize; N]) -> Axes {
        Axes(Selection::Some(SmallVec::from_slice(&axes)))
    }
}

impl From<&[isize]> for Axes {
    fn from(axes: &[isize]) -> Axes {
        Axes(Selection::Some(SmallVec::from_slice(axes)))
    }
}

impl From<Vec<isize>> for Axes {
    fn from(axes: Vec<isize>) -> Axes {
        Axes(Selection::Some(SmallVec::from_vec(axes)))
    }
}

impl From<i32> for Axes {
    fn from(axis: i32) -> Axes {
        Axes::from(axis as isize)
    }
}

impl<const N: usize> From<[i32; N]> for Axes {
    fn from(axes: [i32; N]) -> Axes {
        Axes(Selection::Some(axes.iter().map(|&axis| axis as isize).collect()))
    }
}

impl Tensor {
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
            (None, Some(traced)) => traced.tape.fail(error),
            (None, None) => Tensor::poisoned(error),
        }
    }
}
