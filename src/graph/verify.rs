//! The invariants of a graph, each with its own message.

use std::fmt;

use super::{Graph, Node};
use crate::error::{Caller, Error};
use crate::ops::Op;
use crate::types::{TensorType, ValueId};

/// Which node breaks which invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyError {
    /// The offending node, if it is one.
    pub value: Option<ValueId>,
    /// The mistake.
    pub message: String,
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            Some(value) => write!(f, "{value}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for VerifyError {}

impl Graph {
    /// Checks every invariant.
    ///
    /// # Errors
    ///
    /// Names the first node that breaks one.
    pub fn verify(&self) -> Result<(), VerifyError> {
        for (id, node) in self.iter() {
            self.verify_node(id, node).map_err(|message| VerifyError { value: Some(id), message })?;
        }
        for (position, &id) in self.params.iter().enumerate() {
            let op = self.nodes.get(id.index()).map(|node| &node.op);
            if !matches!(op, Some(Op::Parameter(p)) if p.index == position) {
                return Err(VerifyError { value: Some(id), message: format!("is not parameter {position}") });
            }
        }
        match self.outputs.iter().find(|id| id.index() >= self.nodes.len()) {
            Some(id) => Err(VerifyError { value: None, message: format!("output {id} does not exist") }),
            None => Ok(()),
        }
    }

    /// Refuses a graph of the program that breaks an invariant, for a method that relies on them.
    pub(crate) fn verified(&self, method: &'static str, at: Caller) -> Result<(), Error> {
        self.verify().map_err(|e| Error::Type {
            op: method,
            message: format!("the graph does not verify: {e}"),
            at,
            call: None,
        })
    }

    fn verify_node(&self, id: ValueId, node: &Node) -> Result<(), String> {
        if let Some(arg) = node.args.iter().find(|&&arg| arg >= id) {
            return Err(format!("uses {arg}, which does not come before it"));
        }
        let args: Vec<&TensorType> = node.args.iter().map(|&arg| self.ty(arg)).collect();
        let inferred = node.op.infer(&args).map_err(|e| format!("{}: {e}", node.op.name()))?;
        if inferred != node.ty {
            return Err(format!("{} makes {inferred}, not {}", node.op.name(), node.ty));
        }
        if node.ty.checked_bytes().is_none() {
            return Err(format!("{} is too large to address", node.ty));
        }
        node.op.check_kernel(&args, &node.ty).map_err(|e| format!("{}: {e}", node.op.name()))
    }
}
