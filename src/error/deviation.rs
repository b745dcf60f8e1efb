//! A difference between a compiled call and the un-accelerated one.

use std::fmt;
use std::sync::Arc;

use retape_runtime::Scalar;

use super::Caller;
use crate::signature::Signature;

/// A difference between an accelerated call and the un-accelerated one.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Deviation {
    /// The function's name.
    pub function: Arc<str>,
    /// The arguments.
    pub signature: Signature,
    /// The line of the call.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serialise::text"))]
    pub at: Caller,
    /// The leaf of the result, such as `result[1].w`; the first that differs.
    pub path: String,
    /// The result of the un-accelerated path: an element, a static value or a structure; or the error it failed with.
    pub expected: String,
    /// The result of the compiled code.
    pub got: String,
    /// By how much the elements of the leaf differ; none if its type, its static value or the structure does.
    pub gap: Option<Gap>,
    /// How many tensors of the result differ.
    pub n_tensors: usize,
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Deviation { function, path, expected, got, at, .. } = self;
        write!(f, "{path} of an accelerated call of `{function}` differs from the un-accelerated one: ")?;
        write!(f, "{got} instead of {expected}")?;
        if let Some(gap) = &self.gap {
            write!(f, " ({gap})")?;
        }
        write!(f, "; the arguments are ({}), the call is at {at}; `bisect` finds the cause", self.signature.summary())
    }
}

/// How two tensors of one type differ.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Gap {
    /// The elements of each.
    pub n_elements: usize,
    /// Those that differ beyond the tolerance.
    pub n_differing: usize,
    /// The position of the first of them, in row-major order.
    pub first: usize,
    /// Some that differ, the first ones.
    pub samples: Vec<ElementPair>,
    /// The largest difference among those that differ; infinite if one of two is not finite.
    pub largest_absolute: f64,
    /// The largest difference over the expected magnitude.
    pub largest_relative: f64,
    /// The largest difference in units in the last place; of integers as it is.
    pub largest_ulps: u64,
}

/// An element that differs.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ElementPair {
    /// Its position in row-major order.
    pub position: usize,
    /// The expected element.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serialise::text"))]
    pub expected: Scalar,
    /// The computed element.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serialise::text"))]
    pub got: Scalar,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} elements differ", self.n_differing, self.n_elements)?;
        let (absolute, relative, ulps) = (self.largest_absolute, self.largest_relative, self.largest_ulps);
        write!(f, ", by at most {absolute:e} (relative {relative:e}, {ulps} ulp)")?;
        for pair in self.samples.iter().take(1) {
            let (expected, got) = (shown(pair.expected), shown(pair.got));
            write!(f, "; element {} is {got} and not {expected}", pair.position)?;
        }
        Ok(())
    }
}

/// A number as people read it, 16-bit floats included.
pub(crate) fn shown(x: Scalar) -> String {
    if x.dtype.is_half() || x.to_f64().is_nan() { x.to_f64().to_string() } else { x.to_string() }
}
