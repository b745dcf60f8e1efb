//! One node for equal applications.
//!
//! Guarantees that afterwards no two nodes have the same op and arguments, the order of arguments aside where it
//! does not matter. One sweep with a table of what is known, and a rebuild if nodes are equal, of which the first stays.

use std::collections::HashMap;

use super::Rewritten;
use super::rewrite::Rule;
use crate::graph::{Args, Graph, Node};
use crate::ops::Op;
use crate::types::ValueId;

pub(super) fn run(graph: &Graph, _: &'static [Rule]) -> Option<Rewritten> {
    let mut kept: Vec<ValueId> = Vec::with_capacity(graph.n_nodes());
    let mut renamed: Vec<ValueId> = Vec::with_capacity(graph.n_nodes());
    let mut known: HashMap<(&Op, Args), ValueId> = HashMap::with_capacity(graph.n_nodes());
    let args_of = |node: &Node, renamed: &[ValueId]| node.args.iter().map(|arg| renamed[arg.index()]).collect::<Args>();
    for (id, node) in graph.iter() {
        let mut in_order = args_of(node, &renamed);
        sort_arguments(&node.op, &mut in_order);
        let keep = || {
            kept.push(id);
            ValueId(kept.len() as u32 - 1)
        };
        renamed.push(*known.entry((&node.op, in_order)).or_insert_with(keep));
    }
    // Most graphs that come here a second time have no equal nodes.
    if kept.len() == graph.n_nodes() {
        return None;
    }
    let mut merged = Graph::with_capacity(kept.len());
    for node in kept.iter().map(|&id| graph.node(id)) {
        merged.push(Node { args: args_of(node, &renamed), ..node.clone() });
    }
    merged.set_outputs(graph.outputs().iter().map(|id| renamed[id.index()]).collect());
    Some(Rewritten { graph: merged, renaming: renamed.into_iter().map(Some).collect() })
}

/// Sorts the arguments of an op if their order does not matter.
pub(crate) fn sort_arguments<I: Ord>(op: &Op, args: &mut [I]) {
    if op.facts().commutes {
        args.sort_unstable();
    }
}
