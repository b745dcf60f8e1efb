//! Removes values that no output needs.
//!
//! Guarantees that afterwards every node but parameters is reachable from an output. One backward sweep.

use super::Rewritten;
use super::rewrite::Rule;
use crate::graph::Graph;

pub(super) fn run(graph: &Graph, _: &'static [Rule]) -> Option<Rewritten> {
    let (live, renaming) = graph.live();
    (live.n_nodes() < graph.n_nodes()).then_some(Rewritten { graph: live, renaming })
}
