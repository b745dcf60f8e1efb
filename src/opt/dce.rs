//! Removes values that no output needs.
//!
//! Guarantees that afterwards every node but parameters is reachable from an output. One backward sweep.

use crate::graph::Graph;

pub(super) fn run(graph: &Graph) -> Option<Graph> {
    let live = graph.without_dead_nodes();
    (live.n_nodes() < graph.n_nodes()).then_some(live)
}
