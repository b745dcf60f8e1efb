//! Removes values that no output needs.
//!
//! Guarantees that afterwards every node but parameters is reachable from an output. One backward sweep.

use super::Rewritten;
use super::rewrite::Rule;
use crate::graph::{Graph, Node};
use crate::ops::Op;

pub(super) fn run(graph: &Graph, _: &'static [Rule], spare: &mut Graph) -> Option<Rewritten> {
    let is_kept = |(node, is_needed): (&Node, bool)| is_needed || matches!(node.op, Op::Parameter(_));
    if graph.nodes().iter().zip(graph.needed()).all(is_kept) {
        return None;
    }
    let (live, renaming) = graph.live_in(std::mem::take(spare));
    Some(Rewritten { graph: live, renaming })
}
