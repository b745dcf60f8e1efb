//! The one place that runs generated code on a device.
//!
//! Callers pass all buffers of a call, whose sizes were compared with the plan.

use std::ops::Range;

use retape_runtime::DeviceBuffer;
use retape_runtime::cuda::{Chain, LaunchSpan};

use crate::error::{Error, Result};

fn bases(buffers: &[&DeviceBuffer]) -> Vec<u64> {
    buffers.iter().map(|buffer| buffer.address()).collect()
}

/// Queues all launches.
pub(super) fn run(chain: &Chain, buffers: &[&DeviceBuffer]) -> Result<()> {
    // SAFETY: the launches are what the emitter made of the steps of a verified plan: a parameter for each argument, and
    // no access beyond operands and scratch. These lie inside the buffers, which have the sizes that the plan says.
    // Memory of a buffer that is dropped goes to work that is queued later.
    unsafe { chain.run(&bases(buffers)) }.map_err(Error::from)
}

/// Queues some launches.
pub(super) fn run_some(chain: &Chain, launches: Range<usize>, buffers: &[&DeviceBuffer]) -> Result<()> {
    // SAFETY: as in `run`.
    unsafe { chain.run_some(launches, &bases(buffers)) }.map_err(Error::from)
}

/// Runs all launches and measures them.
pub(super) fn run_timed(chain: &Chain, buffers: &[&DeviceBuffer]) -> Result<Vec<LaunchSpan>> {
    // SAFETY: as in `run`.
    unsafe { chain.run_timed(&bases(buffers)) }.map_err(Error::from)
}
