//! Graph to graph: the passes, in the order they run.

use crate::error::Result;
use crate::graph::Graph;

/// Optimises a graph.
pub(crate) fn run(graph: &Graph) -> Result<Graph> {
    Ok(graph.clone())
}
