//! A call of compiled code, as a node.
//!
//! Only the tape of a gradient that is evaluated at once holds such nodes: there an accelerated function stays a call
//! of its machine code, so that its backward pass can be machine code too. Tapes that are to be compiled hold the ops
//! of the function instead.
//!
//! One call makes several values, and a node makes one: so a call is a run of nodes with the same arguments, one for
//! each result, which share a [`CallSite`]. The derivative belongs to the call as a whole and is in `autodiff.rs`.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::{Attributes, Cotangents, Lowering, OpDef, Sample, Site, TypeError};
use crate::accelerate::{PullBack, Recheck, Routine};
use crate::graph::TensorType;

/// One result of a call of compiled code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    pub(crate) site: Arc<CallSite>,
    /// The position among the results.
    pub(crate) output: usize,
}

/// One call of a routine: what its nodes have in common. Equal to itself only.
#[derive(Debug)]
pub(crate) struct CallSite {
    pub(crate) routine: Arc<Routine>,
    /// If the routine is the gradient of another one: the call that it is the gradient of.
    pub(crate) of: Option<(Arc<CallSite>, Arc<PullBack>)>,
    /// What results and gradients are compared with, in check mode.
    pub(crate) check: Option<Recheck>,
}

impl PartialEq for CallSite {
    fn eq(&self, other: &CallSite) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for CallSite {}

impl Hash for CallSite {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::from_ref(self).hash(state);
    }
}

/// For readers only: the text of a call does not read back, as what it calls is no part of it.
impl Attributes for Call {
    fn print_attributes(&self) -> String {
        format!("output={} of {}", self.output, self.site.routine.output_types().len())
    }

    fn parse_attributes(_: &str) -> Option<Call> {
        None
    }
}

impl OpDef for Call {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let routine = &self.site.routine;
        if !routine.input_types().eq(args.iter().copied()) {
            let wanted: Vec<_> = routine.input_types().collect();
            return Err(TypeError(format!("takes {wanted:?}, was given {args:?}")));
        }
        let ty = routine.output_types().get(self.output);
        ty.cloned().ok_or_else(|| TypeError(format!("has no result {}", self.output)))
    }

    fn vjp(&self, _: &Site<'_>) -> Cotangents {
        Cotangents::zero("the cotangents of all results of a call go through it together")
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        // The planner refuses calls before it asks.
        Lowering::Parameter
    }

    fn samples() -> Vec<Sample> {
        // It cannot be made from types alone.
        vec![]
    }
}
