//! Graph to plan.

use retape_kernels::Plan;

use crate::error::{Error, Result};
use crate::graph::Graph;

/// Plans a graph.
pub(crate) fn plan(_graph: &Graph) -> Result<Plan> {
    Err(Error::Internal("scaffold".into()))
}
