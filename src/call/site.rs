//! One call of a routine: the common part of its nodes in a graph.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::routine::{Pull, PullBack, Routine};
use crate::error::{Caller, Result};
use crate::ops::{Call, Callee};
use crate::tensor::Tensor;
use crate::types::TensorType;

/// Compares what compiled code computes with the ops one by one, in check mode, and gives what the call is to go on
/// with.
pub(crate) trait CompareCall: fmt::Debug + Send + Sync {
    /// For the results that the code computed from arguments.
    fn results(&self, arguments: &[Tensor], results: Vec<Tensor>) -> Result<Vec<Tensor>>;

    /// For the gradients that the code computed from arguments and cotangents.
    fn gradients(&self, pull: &Pull, inputs: &[Tensor], gradients: Vec<Tensor>) -> Result<Vec<Tensor>>;
}

/// One call of a routine.
#[derive(Debug)]
pub(crate) struct CallSite {
    pub(crate) routine: Arc<Routine>,
    /// If the routine is the gradient of another one: the call that it is the gradient of.
    pub(super) of: Option<(Arc<CallSite>, Arc<PullBack>)>,
    /// The comparison of results and gradients, in check mode.
    pub(super) check: Option<Box<dyn CompareCall>>,
}

impl CallSite {
    /// A call that the program makes.
    pub(crate) fn new(routine: Arc<Routine>, check: Option<Box<dyn CompareCall>>) -> CallSite {
        CallSite { routine, of: None, check }
    }

    /// The call that a node of a graph is a result of.
    pub(super) fn of_node(node: &Call) -> Arc<CallSite> {
        let callee: Arc<dyn Any + Send + Sync> = Arc::clone(&node.callee) as _;
        callee.downcast().expect("a call of a routine is the only callee")
    }
}

impl Callee for CallSite {
    fn input_types(&self) -> Vec<&TensorType> {
        self.routine.input_types().collect()
    }

    fn output_types(&self) -> &[TensorType] {
        self.routine.output_types()
    }

    fn has_effect(&self) -> bool {
        self.routine.has_effect()
    }

    fn gradient(self: Arc<Self>, arguments: &[usize], results: &[usize], at: Caller) -> Result<Arc<dyn Callee>> {
        let pull = Pull { wrt: arguments.to_vec(), results: results.to_vec() };
        let pull_back = self.routine.pull_back(pull, at)?;
        Ok(Arc::new(CallSite { routine: Arc::clone(pull_back.gradient()), of: Some((self, pull_back)), check: None }))
    }
}
