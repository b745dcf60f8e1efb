//! The op that makes NaN or an infinity from finite numbers, and its arguments.

use std::fmt;
use std::sync::Arc;

use super::Caller;
use crate::method::Origin;
use crate::types::TensorType;

/// Where a call made NaN or an infinity from finite numbers.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct NonFinite {
    /// The name of the accelerated function that traps; none in a gradient that is evaluated at once.
    pub function: Option<Arc<str>>,
    /// The op, such as `log`.
    pub op: &'static str,
    /// The method of the program that it is part of, such as `softmax`, and whether it is part of the gradient of that.
    /// None if it is a method itself, or if its code comes from an artefact.
    pub origin: Option<Origin>,
    /// Its application as graph text.
    pub node: String,
    /// The line that asked for it; of an op of a backward pass the line of the op that it belongs to.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serialise::text_if_any"))]
    pub at: Option<Caller>,
    /// The steps of the compiled code that noted it; empty if the call was not accelerated.
    pub group: String,
    /// The elements of the result.
    pub n_elements: usize,
    /// The NaN among them.
    pub n_nan: usize,
    /// The infinities among them.
    pub n_infinite: usize,
    /// The position of the first element that is not finite, in row-major order.
    pub first: usize,
    /// The value of this element.
    pub value: f64,
    /// The arguments of the op.
    pub inputs: Vec<InputSummary>,
    /// The line of the call.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serialise::text"))]
    pub called_at: Caller,
}

/// A summary of an argument of an op.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct InputSummary {
    /// Dtype and shape.
    #[cfg_attr(feature = "serde", serde(rename = "type", serialize_with = "crate::serialise::text"))]
    pub ty: TensorType,
    /// The least finite element; infinite if there is none.
    pub min: f64,
    /// The greatest finite element; minus infinity if there is none.
    pub max: f64,
    /// The mean of the finite elements; NaN if there is none.
    pub mean: f64,
    /// How many elements are NaN.
    pub n_nan: usize,
    /// How many elements are infinite.
    pub n_infinite: usize,
    /// The element that the first non-finite result was computed from, where one was.
    pub at_first: Option<f64>,
}

impl fmt::Display for NonFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.op)?;
        match self.origin {
            Some(Origin { method, is_gradient: true }) => write!(f, ", in the gradient of `{method}`,")?,
            Some(Origin { method, .. }) => write!(f, ", in `{method}`,")?,
            None => {}
        }
        write!(f, " makes {:?} of finite numbers", self.value)?;
        if let Some(at) = self.at {
            write!(f, " at {at}")?;
        }
        write!(f, ": {}, {} NaN and {} infinite of {}", self.node, self.n_nan, self.n_infinite, self.n_elements)?;
        self.inputs.iter().enumerate().try_for_each(|(n, input)| write!(f, "; input {n}: {input}"))?;
        if !self.group.is_empty() {
            write!(f, "; noted by {}", self.group)?;
        }
        match &self.function {
            Some(function) => write!(f, " (in `{function}`, called at {})", self.called_at),
            None => write!(f, " (called at {})", self.called_at),
        }
    }
}

impl fmt::Display for InputSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // With an exponent where a number is long.
        write!(f, "{} min {:?} max {:?} mean {:?}", self.ty, self.min, self.max, self.mean)?;
        if self.n_nan + self.n_infinite > 0 {
            write!(f, ", {} NaN, {} infinite", self.n_nan, self.n_infinite)?;
        }
        self.at_first.map_or(Ok(()), |x| write!(f, ", {x:?} there"))
    }
}
