//! The place of NCCL where the feature `nccl` is off: no library.

use std::sync::Arc;
use std::time::Duration;

use retape_kernels::library::{Communicator, GpuLink, GpuTransfer};
use retape_runtime::Gpu;

/// Room for the id of a communicator.
pub(crate) const ID: usize = 128;

/// A library that is never there.
pub(crate) enum Library {}

/// A link that is never there.
pub(crate) enum Link {}

/// Why there is no library.
pub(crate) fn library() -> Result<&'static Library, String> {
    Err("this program was built without the feature `nccl`".to_owned())
}

impl Library {
    pub(crate) fn version(&self) -> String {
        match *self {}
    }

    pub(crate) fn new_id(&self) -> Result<[u8; ID], String> {
        match *self {}
    }
}

impl Link {
    pub(crate) fn join(
        library: &'static Library,
        _: &Arc<Gpu>,
        _: [u8; ID],
        _: &dyn Communicator,
        _: Duration,
    ) -> Result<Link, String> {
        match *library {}
    }

    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        match *self {}
    }

    pub(crate) fn settle(&self, _: &str, _: &dyn Communicator) -> Result<(), String> {
        match *self {}
    }

    pub(crate) fn close(&self) {
        match *self {}
    }
}

impl GpuLink for Link {
    fn exchange(&self, _: &dyn Communicator, _: &[GpuTransfer<'_>]) -> Result<(), String> {
        match *self {}
    }

    fn abort(&self) {
        match *self {}
    }
}
