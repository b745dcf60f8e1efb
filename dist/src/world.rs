//! One worker's view of all workers.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use retape_kernels::library::{Communicator, set_communicator, share};

use retape_runtime::lock;

use crate::agree;
use crate::error::{Error, Result};
use crate::launcher::{self, Launcher};
use crate::link::GpuTransport;
use crate::transport::{Lone, Transport};
use crate::wire::{GRACE, TIMEOUT, Wire};

/// The group of the processes that a launcher started.
const PROCESSES: usize = 1;

/// One worker's view of all workers: cheap to clone.
///
/// Calls that need all workers fail with [`Error::Broken`], on every worker, if they are not in the same call, if one has
/// failed, or does not come before the time-out.
#[derive(Clone)]
pub struct World {
    shared: Arc<Shared>,
    n_shards: usize,
}

/// The state that all clones share.
struct Shared {
    wire: Arc<Wire>,
    group: usize,
    local_rank: usize,
    hosts: Vec<String>,
    /// Whether the world ends with the last clone; a world of threads ends with the threads.
    ends: bool,
}

impl World {
    /// The world at the end of a wire, which somebody else ends.
    pub(crate) fn over(wire: Arc<Wire>, group: usize) -> World {
        let hosts = vec![wire.transport().host(); wire.size()];
        let (n_shards, local_rank) = (wire.size(), wire.rank());
        World { shared: Arc::new(Shared { wire, group, local_rank, hosts, ends: false }), n_shards }
    }

    /// The number of this worker, from 0.
    pub fn rank(&self) -> usize {
        self.shared.wire.rank()
    }

    /// The number of workers.
    pub fn size(&self) -> usize {
        self.shared.wire.size()
    }

    /// The number of this worker among those of its machine, from 0.
    pub fn local_rank(&self) -> usize {
        self.shared.local_rank
    }

    /// The name of the machine of each worker.
    pub fn hosts(&self) -> &[String] {
        &self.shared.hosts
    }

    /// The number under which steps of a graph find these workers.
    pub fn group(&self) -> usize {
        self.shared.group
    }

    /// The number of the GPU that this worker takes: the one that `RETAPE_DEVICES` (`0,2,3`) lists for the local rank, or
    /// else the local rank itself.
    ///
    /// # Errors
    ///
    /// Fails if the list has too few entries, or one that is not a number.
    pub fn device_ordinal(&self) -> Result<usize> {
        let local = self.local_rank();
        let Ok(list) = std::env::var("RETAPE_DEVICES") else { return Ok(local) };
        let entry = list.split(',').nth(local).map(str::trim);
        let ordinal = entry.and_then(|entry| entry.parse().ok());
        ordinal.ok_or_else(|| Error::Argument(format!("RETAPE_DEVICES={list} has no device for local rank {local}")))
    }

    /// How tensors on GPUs get from worker to worker, as all workers have agreed at the first collective of such tensors.
    ///
    /// ```
    /// use retape_dist::{GpuTransport, World};
    ///
    /// let seen = World::threads(2, |world| Ok(world.gpu_transport()))?;
    /// assert_eq!(seen, [GpuTransport::Undecided, GpuTransport::Undecided]);
    /// # Ok::<(), retape_dist::Error>(())
    /// ```
    pub fn gpu_transport(&self) -> GpuTransport {
        self.shared.wire.links().transport()
    }

    /// The number of shards into which the work is divided: as many as workers, if nothing else is said.
    pub fn n_shards(&self) -> usize {
        self.n_shards
    }

    /// The same world with another number of shards, which is the same for all workers.
    ///
    /// # Errors
    ///
    /// Fails if there are fewer shards than workers.
    pub fn with_shards(&self, n: usize) -> Result<World> {
        if n < self.size() {
            return Err(Error::Argument(format!("{n} shards for {} workers: each must hold one", self.size())));
        }
        Ok(World { shared: self.shared.clone(), n_shards: n })
    }

    /// The shards that this worker holds.
    pub fn shards(&self) -> Range<usize> {
        share(self.n_shards, self.rank(), self.size())
    }

    /// Sets how long this worker waits for others, 5 minutes or `RETAPE_DIST_TIMEOUT` seconds if nothing else is said:
    /// longer than what any of them does between two calls, compiling and reading of files included.
    pub fn set_timeout(&self, timeout: Duration) {
        self.shared.wire.set_timeout(timeout);
    }

    /// Waits until all workers are here.
    ///
    /// # Errors
    ///
    /// As [`World`] says.
    pub fn barrier(&self) -> Result<()> {
        self.all_to_all("barrier", &[], &vec![0; self.size()]).map(drop)
    }

    /// Whether any worker says so. Needs all workers.
    ///
    /// # Errors
    ///
    /// As [`World`] says.
    pub fn any(&self, mine: bool) -> Result<bool> {
        let all = self.all_to_all("any", &[u8::from(mine)], &vec![1; self.size()])?;
        Ok(all.iter().any(|bytes| bytes != &[0]))
    }

    /// The bytes of all workers, by rank, on each of them; lengths may differ. Needs all workers.
    ///
    /// # Errors
    ///
    /// As [`World`] says.
    pub fn gather_bytes(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        let lens =
            self.all_to_all("gather: lengths", &mine.len().to_le_bytes(), &vec![size_of::<usize>(); self.size()])?;
        let lens: Vec<usize> = lens.iter().filter_map(|bytes| length(bytes)).collect();
        self.all_to_all("gather", mine, &lens)
    }

    /// Replaces the bytes of each worker by those of worker 0, whatever their length. Needs all workers.
    ///
    /// # Errors
    ///
    /// As [`World`] says.
    pub fn broadcast_bytes(&self, bytes: &mut Vec<u8>) -> Result<()> {
        let (rank, size) = (self.rank(), self.size());
        let root = |len: usize| (0..size).map(|from| if from == 0 { len } else { 0 }).collect::<Vec<_>>();
        let of_root = |bytes: &'_ [u8]| if rank == 0 { bytes.to_vec() } else { vec![] };
        let len = of_root(&bytes.len().to_le_bytes());
        let len = self.all_to_all("broadcast: length", &len, &root(size_of::<usize>()))?;
        let len = length(&len[0]).unwrap_or(0);
        if rank != 0 {
            *bytes = vec![0; len];
        }
        // Long messages go out in parts, one to each worker, and the workers pass them on to each other.
        let is_short = size <= 2 || len <= 64 << 10;
        let part = |to: usize| if is_short { 0..len } else { share(len, to, size) };
        let mut nowhere: Vec<&mut [u8]> = (0..size).map(|_| [].as_mut_slice()).collect();
        if rank == 0 {
            let sends: Vec<&[u8]> = (0..size).map(|to| &bytes[part(to)]).collect();
            self.exchange("broadcast", &sends, &mut nowhere)?;
        } else {
            nowhere[0] = &mut bytes[part(rank)];
            self.exchange("broadcast", &vec![[].as_slice(); size], &mut nowhere)?;
        }
        if is_short { Ok(()) } else { self.pass_on(bytes, &part) }
    }

    /// Each worker sends the part that it holds to all others.
    fn pass_on(&self, bytes: &mut [u8], part: &dyn Fn(usize) -> Range<usize>) -> Result<()> {
        let (rank, size) = (self.rank(), self.size());
        let mine = bytes[part(rank)].to_vec();
        // Worker 0 has all parts, and receives none.
        let sends: Vec<&[u8]> = (0..size).map(|to| if to == 0 { [].as_slice() } else { &mine }).collect();
        let mut rest = bytes;
        let mut receives: Vec<&mut [u8]> = vec![];
        for from in 0..size {
            let (here, others) = rest.split_at_mut(part(from).len());
            receives.push(if rank == 0 || from == rank { &mut [] } else { here });
            rest = others;
        }
        self.exchange("broadcast: parts", &sends, &mut receives)
    }

    /// The numbers of all workers, for a monitor: each name with ` of rank N` behind it, by name and then by rank. In a
    /// world of one the names stay as they are. Workers give the same names. Needs all workers.
    ///
    /// ```
    /// use retape_dist::World;
    ///
    /// let all = World::threads(2, |world| Ok(world.by_rank(&[("rows", 8.0 + world.rank() as f64)])?))?;
    /// let wanted = [("rows of rank 0".to_owned(), 8.0), ("rows of rank 1".to_owned(), 9.0)];
    /// assert_eq!(all, [wanted.clone(), wanted]);
    /// # Ok::<(), retape_dist::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`World`] says.
    pub fn by_rank(&self, numbers: &[(&str, f64)]) -> Result<Vec<(String, f64)>> {
        let mine: Vec<u8> = numbers.iter().flat_map(|(_, number)| number.to_le_bytes()).collect();
        let names: Vec<&str> = numbers.iter().map(|(name, _)| *name).collect();
        let call = format!("numbers by rank: {}", names.join(", "));
        let all = self.all_to_all(&call, &mine, &vec![mine.len(); self.size()])?;
        let mut named = Vec::with_capacity(numbers.len() * self.size());
        for (n, name) in names.iter().enumerate() {
            for (rank, bytes) in all.iter().enumerate() {
                let name = if self.size() == 1 { (*name).to_owned() } else { format!("{name} of rank {rank}") };
                named.extend(bytes.as_chunks().0.get(n).map(|bytes| (name, f64::from_le_bytes(*bytes))));
            }
        }
        Ok(named)
    }

    /// Makes sure that all workers have the same of something, by its digest. `text` shows it, and is made only if it
    /// differs. Needs all workers.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Disagreement`], on every worker, if digests differ: the error says whose, and shows the first
    /// lines in which the texts do. Otherwise as [`World`] says.
    pub fn agree(&self, what: &str, digest: &[u8], text: &dyn Fn() -> String) -> Result<()> {
        let len = digest.len();
        let call = format!("agreement on {what} by {len} bytes");
        let digests = self.all_to_all(&call, digest, &vec![len; self.size()])?;
        if digests.iter().all(|other| other == digest) {
            return Ok(());
        }
        let texts = self.gather_bytes(text().as_bytes())?;
        Err(Error::Disagreement(agree::differences(what, &(0..self.size()).collect::<Vec<_>>(), &digests, &texts)))
    }

    /// Tells all workers that this one has failed, and why: the calls that they are in, and later ones, fail with that. For
    /// an error that ends this worker: a world that is dropped without a word ends the job with less to go by.
    pub fn fail(&self, message: &str) {
        self.shared.wire.fail(&format!("rank {} failed: {message}", self.rank()));
    }

    /// Ends the job, all workers of it, with a message that names this one. Does not need the others.
    ///
    /// # Panics
    ///
    /// In a world of threads, for the other threads end when they need this one.
    pub fn abort(&self, message: &str) -> ! {
        let wire = &self.shared.wire;
        wire.transport().abort(&format!("rank {} of {} ends the job: {message}", self.rank(), self.size()))
    }

    /// Sends the same bytes to all, and receives as many from each as `lens` says.
    fn all_to_all(&self, call: &str, mine: &[u8], lens: &[usize]) -> Result<Vec<Vec<u8>>> {
        let rank = self.rank();
        let mut all: Vec<Vec<u8>> = lens
            .iter()
            .enumerate()
            .map(|(from, &len)| if from == rank { mine.to_vec() } else { vec![0; len] })
            .collect();
        let mut receives: Vec<&mut [u8]> = all.iter_mut().map(Vec::as_mut_slice).collect();
        self.exchange(call, &vec![mine; self.size()], &mut receives)?;
        Ok(all)
    }

    fn exchange(&self, call: &str, sends: &[&[u8]], receives: &mut [&mut [u8]]) -> Result<()> {
        self.shared.wire.exchange(call, sends, receives).map_err(Error::Broken)
    }
}

/// A length that was sent.
fn length(bytes: &[u8]) -> Option<usize> {
    Some(usize::from_le_bytes(bytes.try_into().ok()?))
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "World(rank {} of {}, {} shards)", self.rank(), self.size(), self.n_shards)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.ends {
            return;
        }
        set_communicator(self.group, None);
        if std::thread::panicking() && self.wire.broken().is_none() {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or("without a name");
            self.wire.fail(&format!("rank {} panicked in the thread {name}", self.wire.rank()));
            // The launcher ends the others when this one has ended: they may say why before.
            std::thread::sleep(GRACE);
        }
        if let Err(error) = self.wire.end() {
            // There is nobody left to return it to, and without an abort this worker would count as one that ended well.
            std::thread::sleep(GRACE);
            self.wire.transport().abort(&error);
        }
    }
}

/// The world of this process, while it exists.
static STARTED: Mutex<Weak<Shared>> = Mutex::new(Weak::new());

/// The world that the launcher of this process started, or a world of one if there was none.
///
/// Further calls give the same world. It ends when its last clone is dropped, or when the process exits, which waits for
/// the other workers to come to their end, so it is kept until the end of `main`, or in a `static`. A worker that comes to
/// its end while others wait for it in a call ends the job.
///
/// A process that exits with a status other than 0 tells the others and does not wait for them; one that exits with 0
/// while another of its threads is in a call of the world ends with status 1.
///
/// # Errors
///
/// Fails if there is a launcher and no library of MPI that belongs to it.
pub fn init() -> Result<World> {
    let mut started = lock(&STARTED);
    if let Some(shared) = started.upgrade() {
        let n_shards = shared.wire.size();
        return Ok(World { shared, n_shards });
    }
    let timeout = launcher::timeout()?;
    let launcher = launcher::launcher()?;
    let transport = match &launcher {
        Some(launcher) => connect(launcher)?,
        None => Box::new(Lone),
    };
    let wire = Arc::new(Wire::new(transport));
    wire.set_timeout(timeout.unwrap_or(TIMEOUT));
    #[cfg(unix)]
    if launcher.is_some() {
        crate::exit::watch(&wire);
    }
    let first = World::over(wire.clone(), PROCESSES);
    let names = first.gather_bytes(wire.transport().host().as_bytes())?;
    let hosts: Vec<String> = names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let rank = wire.rank();
    let on_this_machine = hosts[..rank].iter().filter(|&host| *host == hosts[rank]).count();
    let local_rank = launcher.and_then(|launcher| launcher.local_rank).unwrap_or(on_this_machine);
    set_communicator(PROCESSES, Some(wire.clone()));
    let n_shards = wire.size();
    let shared = Arc::new(Shared { wire, group: PROCESSES, local_rank, hosts, ends: true });
    *started = Arc::downgrade(&shared);
    Ok(World { shared, n_shards })
}

#[cfg(unix)]
fn connect(launcher: &Launcher) -> Result<Box<dyn Transport>> {
    static HAS_CONNECTED: AtomicBool = AtomicBool::new(false);
    if HAS_CONNECTED.swap(true, Ordering::Relaxed) {
        return Err(Error::Launch("MPI starts once in a process: keep the first world until the end".to_owned()));
    }
    crate::mpi::connect(launcher)
}

#[cfg(not(unix))]
fn connect(launcher: &Launcher) -> Result<Box<dyn Transport>> {
    Err(Error::Launch(format!("{}: launchers of MPI are served on Unix only", launcher.evidence)))
}
