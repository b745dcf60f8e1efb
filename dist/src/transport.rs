//! How bytes get from one worker to another: over MPI, over mailboxes of threads, or not at all.

use std::io::Write as _;
use std::time::Duration;

/// A body that is sent: to which worker, and the bytes.
pub(crate) type Outgoing<'b> = (usize, &'b [u8]);

/// A body that is received: from which worker, and where to.
pub(crate) type Incoming<'b> = (usize, &'b mut [u8]);

/// One worker's end of the transport.
///
/// Frames and bodies between two workers arrive in the order in which they are sent, each kind for itself. A frame can
/// always be sent, whatever the receiver does: it is the way in which failures become known.
pub(crate) trait Transport: Send + Sync {
    /// The number of this worker, from 0.
    fn rank(&self) -> usize;

    /// The number of workers.
    fn size(&self) -> usize;

    /// The name of the machine.
    fn host(&self) -> String;

    /// Sends a frame, without waiting for its arrival.
    fn send(&self, to: usize, frame: Vec<u8>) -> Result<(), String>;

    /// The next frame that has arrived, and from which worker. Waits for one, but not longer than `patience`.
    fn receive(&self, patience: Duration) -> Result<Option<(usize, Vec<u8>)>, String>;

    /// Sends and receives bodies, each of the length that the receiver expects. `gives_up` is asked again and again
    /// whether there is a reason to give up, and told whether a body has arrived since it was asked last. `work` is done
    /// in between, bit by bit, as long as it says that there is more.
    ///
    /// Fails with the workers whose bodies are missing if it is given up. Where bytes that are lent cannot be taken back
    /// then, the job is aborted, with the reason.
    fn bodies(
        &self,
        sends: &[Outgoing<'_>],
        receives: &mut [Incoming<'_>],
        gives_up: &mut dyn FnMut(bool) -> Option<String>,
        work: &mut dyn FnMut() -> bool,
    ) -> Result<(), Undone>;

    /// Ends the transport, after frames on their way have left. It is clean if all workers have said that they end.
    fn finish(&self, is_clean: bool);

    /// Ends the job, all workers of it.
    fn abort(&self, message: &str) -> !;
}

/// Why bodies did not arrive.
pub(crate) enum Undone {
    /// The workers whose bodies are missing.
    GivenUp(Vec<usize>),
    /// The transport's own error.
    Failed(String),
}

/// The transport of a world of one: there is nobody to send to.
pub(crate) struct Lone;

impl Transport for Lone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn host(&self) -> String {
        "localhost".to_owned()
    }

    fn send(&self, _: usize, _: Vec<u8>) -> Result<(), String> {
        Ok(())
    }

    fn receive(&self, _: Duration) -> Result<Option<(usize, Vec<u8>)>, String> {
        Ok(None)
    }

    fn bodies(
        &self,
        _: &[Outgoing<'_>],
        _: &mut [Incoming<'_>],
        _: &mut dyn FnMut(bool) -> Option<String>,
        _: &mut dyn FnMut() -> bool,
    ) -> Result<(), Undone> {
        Ok(())
    }

    fn finish(&self, _: bool) {}

    fn abort(&self, message: &str) -> ! {
        // A job ends whether or not its last words can be written.
        let _ = writeln!(std::io::stderr(), "{message}");
        std::process::exit(1)
    }
}
