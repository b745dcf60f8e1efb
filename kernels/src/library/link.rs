//! How bytes get from the memory of one worker's GPU to that of another, without the host.

use std::ops::Range;

use retape_runtime::DeviceBuffer;

use super::communicator::Communicator;

/// Bytes of a GPU's memory that another worker gets, or gives.
#[derive(Clone, Debug)]
pub struct GpuTransfer<'b> {
    /// The number of the other worker.
    pub peer: usize,
    /// Whether the bytes are sent; else they are received.
    pub is_sent: bool,
    /// The memory.
    pub buffer: &'b DeviceBuffer,
    /// Which bytes of it.
    pub bytes: Range<usize>,
}

/// One worker's end of what carries bytes between the GPUs of all workers of a group.
pub trait GpuLink: Send + Sync {
    /// Queues transfers on the stream of the GPU, which run at the same time: what is queued later finds them done.
    ///
    /// Between two workers, transfers match in their order. `peers` is asked again and again whether another worker has
    /// failed, while there is something to wait for.
    ///
    /// # Errors
    ///
    /// Fails, with the name of the call, if the library that carries the bytes refuses, or another worker has failed.
    fn exchange(&self, peers: &dyn Communicator, transfers: &[GpuTransfer<'_>]) -> Result<(), String>;

    /// Ends the link after an error: transfers that are queued wait for nobody any more.
    fn abort(&self);
}
