//! The link between GPUs: NCCL, found when the program runs.
//!
//! NCCL only moves bytes, by sends and receives in groups; it never adds. Its calls do not wait for other workers here:
//! while something is under way, a worker asks again and again whether another one has failed.

mod binding;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use retape_kernels::library::{Communicator, GpuLink, GpuTransfer};
use retape_runtime::{Gpu, lock};

use binding::Piece;
pub(crate) use binding::{ID, Library};

/// Names of the library.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// How long the end of a link may take, before it is cut off.
const LAST: Duration = Duration::from_secs(10);

/// The library of this process, or why there is none.
pub(crate) fn library() -> Result<&'static Library, String> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    let open = || match std::env::var("RETAPE_NCCL") {
        Ok(off) if off == "off" => Err("RETAPE_NCCL=off".to_owned()),
        Ok(path) => Library::open(&[path]),
        Err(_) => Library::open(&NAMES.map(str::to_owned)),
    };
    LIBRARY.get_or_init(open).as_ref().map_err(Clone::clone)
}

/// One worker's end of the link between the GPUs of all workers.
pub(crate) struct Link {
    library: &'static Library,
    gpu: Arc<Gpu>,
    /// `None` once it has ended.
    comm: Mutex<Option<binding::Communicator>>,
    /// How long other workers are waited for.
    patience: Duration,
}

impl Link {
    /// Begins to join the link of an id; [`settle`](Link::settle) waits until all workers have.
    pub(crate) fn join(
        library: &'static Library,
        gpu: &Arc<Gpu>,
        id: [u8; ID],
        peers: &dyn Communicator,
        patience: Duration,
    ) -> Result<Link, String> {
        let joined = gpu.with_stream(|_| library.join(id, peers.rank(), peers.size()));
        let comm = Mutex::new(Some(joined.map_err(|error| error.to_string())??));
        Ok(Link { library, gpu: gpu.clone(), comm, patience })
    }

    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    fn comm(&self) -> MutexGuard<'_, Option<binding::Communicator>> {
        lock(&self.comm)
    }

    /// Waits until what was begun by a call is done, or another worker has failed.
    pub(crate) fn settle(&self, call: &str, peers: &dyn Communicator) -> Result<(), String> {
        self.settle_within(self.patience, call, &|| peers.check())
    }

    fn settle_within(
        &self,
        patience: Duration,
        call: &str,
        check: &dyn Fn() -> Result<(), String>,
    ) -> Result<(), String> {
        let comm = self.comm();
        let Some(comm) = comm.as_ref() else { return Err(ENDED.to_owned()) };
        let start = Instant::now();
        let mut pause = Duration::from_micros(1);
        while !self.library.is_done(comm, call)? {
            check()?;
            if start.elapsed() > patience {
                return Err(format!("waited {patience:?} for {call} of NCCL {}", self.library.version()));
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(Duration::from_millis(1));
        }
        Ok(())
    }

    fn queue(&self, transfers: &[GpuTransfer<'_>]) -> Result<(), String> {
        let comm = self.comm();
        let Some(comm) = comm.as_ref() else { return Err(ENDED.to_owned()) };
        let pieces = transfers.iter().map(|transfer| piece(&self.gpu, transfer)).collect::<Result<Vec<_>, _>>()?;
        // SAFETY: the stream is that of the communicator's GPU, on which all work of it is queued, and `piece` has found
        // that all pieces lie inside of buffers of that GPU. Memory of a buffer that is dropped goes to later work.
        let queued = self.gpu.with_stream(|stream| unsafe { self.library.queue(comm, stream, &pieces) });
        queued.map_err(|error| error.to_string())?
    }

    /// Ends the link when all workers have come to their end.
    pub(crate) fn close(&self) {
        let ended = match self.comm().as_ref() {
            Some(comm) => self.library.finalize(comm),
            None => return,
        };
        let ended = ended.and_then(|()| self.settle_within(LAST, "ncclCommFinalize", &|| Ok(())));
        match (ended, self.comm().take()) {
            (Ok(()), Some(comm)) => self.library.destroy(comm),
            (Err(_), Some(comm)) => self.library.abort(comm),
            (_, None) => {}
        }
    }
}

const ENDED: &str = "the link between GPUs has ended after an error";

/// A transfer as NCCL takes it.
fn piece(gpu: &Arc<Gpu>, transfer: &GpuTransfer<'_>) -> Result<Piece, String> {
    let GpuTransfer { peer, is_sent, buffer, bytes } = transfer;
    if !Arc::ptr_eq(buffer.gpu(), gpu) || bytes.start > bytes.end || bytes.end > buffer.len() {
        let (there, here, len) = (buffer.gpu().device(), gpu.device(), buffer.len());
        return Err(format!("bytes {bytes:?} of a buffer of {len} on {there} for a link of {here}"));
    }
    let address = buffer.address() + bytes.start as u64;
    Ok(Piece { peer: *peer, is_sent: *is_sent, address, len: bytes.len() })
}

impl GpuLink for Link {
    fn exchange(&self, peers: &dyn Communicator, transfers: &[GpuTransfer<'_>]) -> Result<(), String> {
        self.queue(transfers)?;
        self.settle("ncclGroupEnd", peers)
    }

    fn abort(&self) {
        if let Some(comm) = self.comm().take() {
            self.library.abort(comm);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.abort();
    }
}
