//! One node for equal applications.
//!
//! Guarantees that afterwards no two nodes have the same op and arguments, the order of arguments aside where it
//! does not matter. One rebuild with a table of what is known; the first of several equal nodes stays.

use std::collections::HashMap;

use super::Rewritten;
use super::rewrite::Rule;
use crate::graph::{Args, Graph, Node};
use crate::ops::Op;
use crate::types::ValueId;

pub(super) fn run(graph: &Graph, _: &'static [Rule]) -> Option<Rewritten> {
    let mut merged = Graph::default();
    let mut renamed: Vec<ValueId> = Vec::with_capacity(graph.n_nodes());
    let mut known: HashMap<(&Op, Args), ValueId> = HashMap::with_capacity(graph.n_nodes());
    for node in graph.nodes() {
        let args: Args = node.args.iter().map(|arg| renamed[arg.index()]).collect();
        let copy = |args| Node { args, ..node.clone() };
        let in_order = |args: &Args| {
            let mut args = args.clone();
            sort_arguments(&node.op, &mut args);
            args
        };
        let id = *known.entry((&node.op, in_order(&args))).or_insert_with(|| merged.push(copy(args)));
        renamed.push(id);
    }
    merged.set_outputs(graph.outputs().iter().map(|id| renamed[id.index()]).collect());
    let renaming = || renamed.into_iter().map(Some).collect();
    (merged.n_nodes() < graph.n_nodes()).then(|| Rewritten { graph: merged, renaming: renaming() })
}

/// Sorts the arguments of an op if their order does not matter.
pub(crate) fn sort_arguments<I: Ord>(op: &Op, args: &mut [I]) {
    if op.facts().commutes {
        args.sort_unstable();
    }
}
