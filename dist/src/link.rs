//! How bytes get from GPU to GPU: over NCCL if all workers have it, and each a GPU of its own, else through the host.
//!
//! The workers agree on it when they come to the first collective of tensors on GPUs, and it stays so: all of them take
//! the same way.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use retape_kernels::library::{Communicator, GpuLink};
use retape_runtime::{Gpu, lock};

use crate::nccl::{self, ID, Link};

/// How tensors on GPUs get from worker to worker.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GpuTransport {
    /// It is decided at the first collective of tensors on GPUs.
    Undecided,
    /// From GPU to GPU, by this version of NCCL.
    Nccl {
        /// The version, such as `2.22.3`.
        version: String,
    },
    /// Through the memory of the host.
    Host {
        /// Why NCCL is not used.
        reason: String,
    },
}

impl fmt::Display for GpuTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GpuTransport::Undecided => f.write_str("not decided before the first collective of tensors on GPUs"),
            GpuTransport::Nccl { version } => write!(f, "NCCL {version}"),
            GpuTransport::Host { reason } => write!(f, "through the host: {reason}"),
        }
    }
}

/// The decision that the workers have agreed on.
#[derive(Default)]
enum Way {
    #[default]
    Undecided,
    Linked(Arc<Link>, String),
    Host(String),
}

/// The link of a worker's GPU, if it has one.
#[derive(Default)]
pub(crate) struct Links(Mutex<Way>);

impl Links {
    fn lock(&self) -> MutexGuard<'_, Way> {
        lock(&self.0)
    }

    /// How tensors on GPUs get from worker to worker.
    pub(crate) fn transport(&self) -> GpuTransport {
        match &*self.lock() {
            Way::Undecided => GpuTransport::Undecided,
            Way::Linked(_, version) => GpuTransport::Nccl { version: version.clone() },
            Way::Host(reason) => GpuTransport::Host { reason: reason.clone() },
        }
    }

    /// The link between the GPUs of all workers, of whom this one has `gpu` on the machine `host`; `None` if they have
    /// none. The first call needs all workers.
    pub(crate) fn link(
        &self,
        peers: &dyn Communicator,
        host: &str,
        gpu: &Arc<Gpu>,
        patience: Duration,
    ) -> Result<Option<Arc<dyn GpuLink>>, String> {
        let mut way = self.lock();
        if let Way::Undecided = *way {
            *way = agree(peers, host, gpu, patience)?;
        }
        match &*way {
            Way::Linked(link, _) if Arc::ptr_eq(link.gpu(), gpu) => Ok(Some(link.clone())),
            Way::Linked(link, _) => {
                let (first, other) = (link.gpu().device(), gpu.device());
                let error = format!("the first collective was of tensors on {first}, this one is on {other}");
                Err(failed(peers, &error))
            }
            Way::Host(_) | Way::Undecided => Ok(None),
        }
    }

    /// Ends the link when all workers have come to their end.
    pub(crate) fn close(&self) {
        if let Way::Linked(link, _) = &*self.lock() {
            link.close();
        }
    }

    /// Ends the link, so that work of the GPU waits for no other worker.
    pub(crate) fn abort(&self) {
        if let Way::Linked(link, _) = &*self.lock() {
            link.abort();
        }
    }
}

/// Tells the other workers of an error, unless it is theirs.
fn failed(peers: &dyn Communicator, error: &str) -> String {
    if let Err(first) = peers.check()
        && error.contains(&first)
    {
        return first;
    }
    let error = format!("rank {} failed: {error}", peers.rank());
    peers.fail(&error);
    error
}

/// A worker's words on itself: the version of its library, its machine and its GPU, or why it has no library.
fn record(host: &str, gpu: &Gpu) -> String {
    match nccl::library() {
        Ok(library) => format!("+{}\n{host} {:x?}", library.version(), gpu.uuid()),
        Err(reason) => format!("-{reason}"),
    }
}

/// Why the workers have no link, if they have none, from what they say.
fn reason(records: &[String]) -> Option<String> {
    let missing = |(rank, record): (usize, &String)| Some(format!("rank {rank}: {}", record.strip_prefix('-')?));
    if let Some(missing) = records.iter().enumerate().find_map(missing) {
        return Some(missing);
    }
    let parts: Vec<(&str, &str)> = records.iter().filter_map(|record| record.split_once('\n')).collect();
    for (rank, (version, gpu)) in parts.iter().enumerate() {
        let first = parts[0].0;
        if *version != first {
            return Some(format!("rank 0 has NCCL {}, rank {rank} has NCCL {}", &first[1..], &version[1..]));
        }
        if let Some(other) = parts[..rank].iter().position(|(_, other)| other == gpu) {
            return Some(format!("ranks {other} and {rank} have the same GPU"));
        }
    }
    None
}

/// Decides on the way, and makes the link.
fn agree(peers: &dyn Communicator, host: &str, gpu: &Arc<Gpu>, patience: Duration) -> Result<Way, String> {
    let records = gather(peers, record(host, gpu).as_bytes())?;
    let records: Vec<String> = records.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect();
    if let Some(reason) = reason(&records) {
        return Ok(Way::Host(reason));
    }
    let library = nccl::library()?;
    let mut id = [0; ID];
    if peers.rank() == 0 {
        id = library.new_id().map_err(|error| failed(peers, &error))?;
    }
    from_first(peers, "the id of the link between GPUs", &mut id)?;
    let link = Link::join(library, gpu, id, peers, patience).map_err(|error| failed(peers, &error))?;
    from_first(peers, "the start of the link between GPUs", &mut [])?;
    link.settle("ncclCommInitRankConfig", peers).map_err(|error| failed(peers, &error))?;
    Ok(Way::Linked(Arc::new(link), library.version()))
}

/// The bytes of all workers, whose lengths differ.
fn gather(peers: &dyn Communicator, mine: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let (rank, size) = (peers.rank(), peers.size());
    let mut lens = vec![mine.len().to_le_bytes(); size];
    let mut receives: Vec<&mut [u8]> = lens.iter_mut().map(<[u8; 8]>::as_mut_slice).collect();
    let len = mine.len().to_le_bytes();
    peers.exchange("the way between GPUs: lengths", &vec![len.as_slice(); size], &mut receives)?;
    let mut all: Vec<Vec<u8>> = lens.iter().map(|len| vec![0; usize::from_le_bytes(*len)]).collect();
    let mut receives: Vec<&mut [u8]> = all.iter_mut().map(Vec::as_mut_slice).collect();
    peers.exchange("the way between GPUs", &vec![mine; size], &mut receives)?;
    all[rank] = mine.to_vec();
    Ok(all)
}

/// Replaces the bytes of each worker by those of worker 0.
fn from_first(peers: &dyn Communicator, call: &str, bytes: &mut [u8]) -> Result<(), String> {
    let size = peers.size();
    let mut receives: Vec<&mut [u8]> = (0..size).map(|_| [].as_mut_slice()).collect();
    if peers.rank() == 0 {
        return peers.exchange(call, &vec![&*bytes; size], &mut receives);
    }
    receives[0] = bytes;
    peers.exchange(call, &vec![[].as_slice(); size], &mut receives)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use retape_kernels::library::Communicator;

    use super::{failed, reason};

    /// Worker 1, with the first error that it knows of.
    struct Peers(Mutex<Option<String>>);

    impl Communicator for Peers {
        fn rank(&self) -> usize {
            1
        }

        fn size(&self) -> usize {
            3
        }

        fn exchange(&self, _: &str, _: &[&[u8]], _: &mut [&mut [u8]]) -> Result<(), String> {
            self.check()
        }

        fn agree(&self, _: &str, _: &str) -> Result<(), String> {
            self.check()
        }

        fn fail(&self, message: &str) {
            self.0.lock().unwrap().get_or_insert(message.to_owned());
        }

        fn check(&self) -> Result<(), String> {
            self.0.lock().unwrap().clone().map_or(Ok(()), Err)
        }
    }

    #[test]
    fn an_error_of_another_worker_is_not_told_again() {
        let peers = Peers(Mutex::default());
        assert_eq!(failed(&peers, "no memory"), "rank 1 failed: no memory");
        let peers = Peers(Mutex::new(Some("rank 2 failed: no memory".to_owned())));
        assert_eq!(failed(&peers, "ncclGroupEnd: rank 2 failed: no memory"), "rank 2 failed: no memory");
        assert_eq!(failed(&peers, "no stream"), "rank 1 failed: no stream");
    }

    #[test]
    fn one_worker_without_a_link_is_enough_for_none() {
        let reason = |records: &[&str]| reason(&records.iter().map(|&text| text.to_owned()).collect::<Vec<_>>());
        assert_eq!(reason(&["+2.22.3\na 1", "+2.22.3\na 2", "+2.22.3\nb 1"]), None);
        assert_eq!(reason(&["+2.22.3\na 1", "-no library"]).unwrap(), "rank 1: no library");
        assert_eq!(
            reason(&["+2.22.3\na 1", "+2.22.3\na 2", "+2.22.3\na 1"]).unwrap(),
            "ranks 0 and 2 have the same GPU"
        );
        let versions = reason(&["+2.22.3\na 1", "+2.18.5\nb 1"]).unwrap();
        assert_eq!(versions, "rank 0 has NCCL 2.22.3, rank 1 has NCCL 2.18.5");
    }
}
