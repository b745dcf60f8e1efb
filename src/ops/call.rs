//! A call of compiled code, as a node.
//!
//! Only the tape of a gradient that is evaluated at once holds such nodes: there an accelerated function stays a call
//! of its machine code, so that its backward pass can be machine code too. Tapes that are to be compiled hold the ops
//! of the function instead.
//!
//! One call makes several values, and a node makes one: so a call is a run of nodes with the same arguments, one for
//! each result, which share a [`Callee`]. The derivative belongs to the call as a whole and is in `autodiff`.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use retape_runtime::DType;

use super::{Attributes, Cotangents, Facts, Lowering, OpDef, Sample, Site, TypeError};
use crate::error::{Caller, Result};
use crate::types::TensorType;

/// One call of compiled code, as far as graphs and derivatives know it; the module `call` knows the rest.
pub(crate) trait Callee: Any + fmt::Debug + Send + Sync {
    /// The types of the arguments.
    fn input_types(&self) -> Vec<&TensorType>;

    /// The types of the results.
    fn output_types(&self) -> &[TensorType];

    /// Whether a call does something besides computing its results; then the last result is a token.
    fn has_effect(&self) -> bool;

    /// The call that computes the cotangents of some arguments, by position, from the arguments and the cotangents of
    /// some results.
    ///
    /// # Errors
    ///
    /// Fails if code for the gradient may not be made, or cannot.
    fn gradient(self: Arc<Self>, arguments: &[usize], results: &[usize], at: Caller) -> Result<Arc<dyn Callee>>;
}

/// One result of a call of compiled code.
#[derive(Clone, Debug)]
pub struct Call {
    pub(crate) callee: Arc<dyn Callee>,
    /// The position among the results.
    pub(crate) output: usize,
}

impl Call {
    /// A number that the results of one call share, and no other call has.
    fn identity(&self) -> usize {
        Arc::as_ptr(&self.callee).addr()
    }
}

/// Results are equal if they are the same result of the same call.
impl PartialEq for Call {
    fn eq(&self, other: &Call) -> bool {
        self.identity() == other.identity() && self.output == other.output
    }
}

impl Eq for Call {}

impl Hash for Call {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.identity(), self.output).hash(state);
    }
}

/// For readers only: the text of a call does not read back, as what it calls is no part of it.
impl Attributes for Call {
    fn print_attributes(&self) -> String {
        format!("output={} of {}", self.output, self.callee.output_types().len())
    }

    fn parse_attributes(_: &str) -> Option<Call> {
        None
    }
}

impl OpDef for Call {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let wanted = self.callee.input_types();
        if wanted != args {
            return Err(TypeError(format!("takes {wanted:?}, was given {args:?}")));
        }
        let ty = self.callee.output_types().get(self.output);
        ty.cloned().ok_or_else(|| TypeError(format!("has no result {}", self.output)))
    }

    fn vjp(&self, _: &Site<'_>) -> Cotangents {
        Cotangents::zero("the cotangents of all results of a call go through it together")
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        // The planner refuses calls before it asks.
        Lowering::Parameter
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        // It cannot be made from types alone.
        vec![]
    }
}
