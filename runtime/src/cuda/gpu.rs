//! GPUs: found once, opened once, kept for the life of the process.
//!
//! Guarantees that all work of a GPU runs in the order in which it was queued, on one stream. Memory may therefore be
//! given to somebody else as soon as its owner drops it: the next owner queues later.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use super::api::{self, Failure};
use super::disk::{self, Key};
use super::driver::{self, Driver, Entry, Facts, Graph, Module};
use super::origin;
use super::pool::{DeviceBlock, GpuMemory, Pool};
use super::staging::Staging;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::lock::lock;
use crate::memo::Memo;
use crate::shortage::{Refusal, Shortage};

/// The lowest compute capability that code is made for.
const LOWEST: (u32, u32) = (7, 5);

/// The GPUs that were opened, by ordinal.
static OPENED: Mutex<BTreeMap<u32, Arc<Gpu>>> = Mutex::new(BTreeMap::new());

/// Memory that its owner can do without until it is used again.
pub trait Idle: Send + Sync {
    /// Drops it, unless it is in use. Must not wait for anything.
    fn give_up(&self);
}

/// An object that queued work may still use when its owner drops it.
pub(super) enum Remains {
    Module(Module),
    Graph(Graph),
}

/// The counters behind [`CodeStats`](super::CodeStats).
#[derive(Debug, Default)]
pub(super) struct CodeCounters {
    pub(super) compiled: AtomicU64,
    pub(super) from_disk: AtomicU64,
    pub(super) live: AtomicUsize,
}

/// A kernel that is loaded on a GPU. It stays there until the work that uses it is done.
pub struct Function {
    pub(super) gpu: Arc<Gpu>,
    pub(super) name: String,
    /// Taken when it is dropped.
    pub(super) module: Option<Module>,
    pub(super) entry: Entry,
    pub(super) bytes: usize,
    /// Shared memory that launches may ask for.
    pub(super) shared: Mutex<u32>,
}

/// An NVIDIA GPU with its context, its stream, its memory and its code.
pub struct Gpu {
    ordinal: u32,
    facts: Facts,
    /// Which build of the driver this is, where the system tells.
    pub(super) driver_build: Option<String>,
    pub(super) driver: Driver,
    pool: Mutex<Pool>,
    /// Held while idle memory goes back to the driver, so that an allocation that finds too little waits until it is
    /// there.
    trimming: Mutex<()>,
    pub(super) staging: Mutex<Staging>,
    /// Code in use, by what it was made from.
    pub(super) functions: Memo<Key, Function>,
    pub(super) code: CodeCounters,
    /// Where compiled code is kept.
    pub(super) code_folder: Mutex<Option<PathBuf>>,
    /// In the order of the stream, each with the event behind its last use.
    retired: Mutex<VecDeque<(driver::Event, Remains)>>,
    idle: Mutex<Vec<Weak<dyn Idle>>>,
    /// Why nothing works any more.
    broken: OnceLock<String>,
}

/// Starts the driver; returns the number of devices.
fn start() -> Result<u32, String> {
    if !cfg!(feature = "cuda") {
        return Err("this program was built without the feature `cuda`".into());
    }
    if let Some(names) = driver::missing_library() {
        let (first, rest) = names.split_at(names.len().min(4));
        let n_rest = rest.len();
        return Err(format!(
            "no NVIDIA driver is found: the system could open no library called {} (or one of {n_rest} longer names)",
            first.join(", ")
        ));
    }
    driver::start().and_then(|()| driver::count()).map_err(|failure| format!("the NVIDIA driver refused: {failure}"))
}

/// The facts about a device that code can be made for.
fn look_at(ordinal: u32) -> Result<Facts, String> {
    let count = start()?;
    if ordinal >= count {
        return Err(match count {
            0 => "the NVIDIA driver lists no device".into(),
            1 => "this machine has one, cuda:0".into(),
            n => format!("this machine has {n}, cuda:0 to cuda:{}", n - 1),
        });
    }
    let facts = driver::facts(ordinal).map_err(|failure| failure.to_string())?;
    if facts.capability < LOWEST {
        let ((major, minor), name) = (facts.capability, &facts.name);
        return Err(format!("{name} has compute capability {major}.{minor}, and at least 7.5 is needed"));
    }
    Ok(facts)
}

impl Function {
    /// The bytes of its code.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The name of the kernel.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Lets launches ask for so much shared memory beyond what the text declares.
    pub(super) fn allow_shared(&self, bytes: u32) -> Result<()> {
        let mut allowed = lock(&self.shared);
        if bytes > *allowed {
            self.gpu.check(|driver| driver.allow_shared(&self.entry, bytes))?;
            *allowed = bytes;
        }
        Ok(())
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        self.gpu.code.live.fetch_sub(1, Relaxed);
        if let Some(module) = self.module.take() {
            self.gpu.retire(Remains::Module(module));
        }
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Function({}, {} bytes)", self.name, self.bytes)
    }
}

impl Gpu {
    /// The GPU with this ordinal; all calls return the same one.
    ///
    /// # Errors
    ///
    /// [`Error::Unusable`] if there is no driver, no such device, or one that is too old.
    pub fn open(ordinal: u32) -> Result<Arc<Gpu>> {
        let mut opened = lock(&OPENED);
        if let Some(gpu) = opened.get(&ordinal) {
            return Ok(Arc::clone(gpu));
        }
        let unusable = |reason| Error::Unusable { device: Device::Cuda(ordinal), reason };
        let facts = look_at(ordinal).map_err(unusable)?;
        let driver = Driver::open(ordinal).map_err(|failure| unusable(failure.to_string()))?;
        let gpu = Arc::new(Gpu {
            ordinal,
            facts,
            driver_build: api::library_address().and_then(origin::of),
            driver,
            pool: Mutex::new(Pool::new()),
            trimming: Mutex::default(),
            staging: Mutex::default(),
            functions: Memo::in_use(),
            code: CodeCounters::default(),
            code_folder: Mutex::new(disk::folder()),
            retired: Mutex::default(),
            idle: Mutex::default(),
            broken: OnceLock::new(),
        });
        opened.insert(ordinal, Arc::clone(&gpu));
        Ok(gpu)
    }

    /// The ordinals of the GPUs that can be used; none if there is no driver.
    pub(crate) fn ordinals() -> Vec<u32> {
        (0..start().unwrap_or(0)).filter(|&ordinal| look_at(ordinal).is_ok()).collect()
    }

    /// Its place among devices.
    pub fn device(&self) -> Device {
        Device::Cuda(self.ordinal)
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.facts.name
    }

    /// Its compute capability, as major and minor.
    pub fn capability(&self) -> (u32, u32) {
        self.facts.capability
    }

    /// Its memory, in bytes.
    pub fn total_bytes(&self) -> usize {
        self.facts.total_bytes
    }

    /// The number of its multiprocessors. No result may depend on it.
    pub fn n_multiprocessors(&self) -> u32 {
        self.facts.n_multiprocessors
    }

    /// The version of CUDA that its driver supports: 13000 for 13.0.
    pub fn driver_version(&self) -> u32 {
        self.facts.driver_version
    }

    /// The device's own name for itself, the same in all processes of its machine.
    pub fn uuid(&self) -> [u8; 16] {
        self.facts.uuid
    }

    /// Calls another library that queues work: with the stream of the GPU, a `CUstream`, and in its context, which is the
    /// primary one of the device. Work that the library queues runs in the order of the stream, like all other work.
    ///
    /// # Errors
    ///
    /// [`Error::Gpu`] if earlier work broke the device.
    pub fn with_stream<T>(&self, work: impl FnOnce(*mut c_void) -> T) -> Result<T> {
        self.check(|driver| driver.with_stream(work))
    }

    /// Waits until all work that was queued before is done.
    ///
    /// # Errors
    ///
    /// [`Error::Gpu`] if some of that work failed.
    pub fn sync(&self) -> Result<()> {
        self.check(|driver| driver.sync())?;
        self.bury();
        Ok(())
    }

    /// Runs a call of the driver, unless earlier work broke the device.
    pub(super) fn check<T>(&self, call: impl FnOnce(&Driver) -> Result<T, Failure>) -> Result<T> {
        let broken = |reason: &String| Error::Gpu { device: self.device(), reason: reason.clone() };
        if let Some(reason) = self.broken.get() {
            return Err(broken(reason));
        }
        call(&self.driver).map_err(|failure| match failure.is_final() {
            true => broken(self.broken.get_or_init(|| {
                format!(
                    "work on the device failed, which ends the use of it by this process (found when {failure}); \
                     likely a kernel accessed memory that is not its own"
                )
            })),
            false => self.failure(failure),
        })
    }

    /// As [`check`](Gpu::check); a call that has too little memory is made again once idle memory is freed.
    pub(super) fn check_with_room<T>(&self, call: impl Fn(&Driver) -> Result<T, Failure>) -> Result<T> {
        let is_short = Cell::new(false);
        let first = self.check(|driver| call(driver).inspect_err(|failure| is_short.set(failure.is_shortage())));
        if !is_short.get() {
            return first;
        }
        self.trim_all()?;
        self.check(call)
    }

    /// The error for a failed call.
    pub(super) fn failure(&self, failure: Failure) -> Error {
        Error::Gpu { device: self.device(), reason: failure.to_string() }
    }

    /// Memory for `len` bytes; frees idle memory if there is too little.
    pub(super) fn obtain(&self, len: usize) -> Result<DeviceBlock> {
        let endless = || Error::Allocation(Shortage::unaddressable(len, self.device()));
        let bytes = lock(&self.pool).size_for(len).ok_or_else(endless)?;
        if let Some(block) = lock(&self.pool).take(bytes) {
            return Ok(block);
        }
        if let Some(block) = self.fresh(bytes)? {
            return Ok(block);
        }
        self.trim()?;
        if let Some(block) = self.fresh(bytes)? {
            return Ok(block);
        }
        self.trim_all()?;
        if let Some(block) = self.fresh(bytes)? {
            return Ok(block);
        }
        let pool = lock(&self.pool);
        let (in_use, total) = (pool.numbers().live_bytes, self.total_bytes());
        let (limit, refusal) = match in_use.saturating_add(bytes) {
            wanted if wanted > pool.limit => (pool.limit, Refusal::Limit),
            wanted if wanted > total => (total, Refusal::Size),
            // Other processes have it, or the driver.
            _ => (total, Refusal::System),
        };
        Err(Error::Allocation(Shortage { bytes: len, in_use, limit, device: self.device(), refusal }))
    }

    /// A block from the driver, if it has one.
    fn fresh(&self, bytes: usize) -> Result<Option<DeviceBlock>> {
        if !lock(&self.pool).reserve(bytes) {
            return Ok(None);
        }
        let asked = self.check(|driver| match driver.alloc(bytes) {
            Err(failure) if failure.is_shortage() => Ok(None),
            other => other.map(Some),
        });
        lock(&self.pool).settle(bytes, matches!(asked, Ok(Some(_))));
        Ok(asked?.map(|address| DeviceBlock { address, bytes }))
    }

    /// Takes memory back, which queued work may still use.
    pub(super) fn give_back(&self, block: DeviceBlock) {
        let is_kept = lock(&self.pool).give_back(block);
        if !is_kept {
            // The driver may or may not wait for that work. A block that it does not take back is lost, and nothing
            // else.
            let _ = self.sync().and_then(|()| self.check(|driver| driver.free(block.address)));
        }
    }

    /// Returns all memory that is kept for reuse to the driver, when the work that uses it is done.
    ///
    /// # Errors
    ///
    /// As [`sync`](Gpu::sync).
    pub fn trim(&self) -> Result<()> {
        let _trimming = lock(&self.trimming);
        let blocks = lock(&self.pool).clear();
        self.sync()?;
        for address in blocks {
            self.check(|driver| driver.free(address))?;
        }
        Ok(())
    }

    /// As [`trim`](Gpu::trim), and also returns what its owners can do without.
    pub(super) fn trim_all(&self) -> Result<()> {
        // Arenas that no run is using are made again when they are needed.
        let idle: Vec<Arc<dyn Idle>> = lock(&self.idle).iter().filter_map(Weak::upgrade).collect();
        idle.iter().for_each(|idle| idle.give_up());
        self.trim()
    }

    /// The numbers of its memory.
    pub fn memory(&self) -> GpuMemory {
        lock(&self.pool).numbers()
    }

    /// Bytes of the device that no process has, by the driver's own count: code, graphs and what other programs hold are
    /// missing from it as well as buffers.
    ///
    /// # Errors
    ///
    /// [`Error::Gpu`] if earlier work broke the device.
    pub fn free_bytes(&self) -> Result<usize> {
        self.check(|driver| driver.free_bytes())
    }

    /// Makes the peak of [`memory`](Gpu::memory) count from now on.
    pub fn reset_peak_bytes(&self) {
        lock(&self.pool).reset_peak();
    }

    /// Sets the bytes that may be held; `usize::MAX`, as at the start, leaves it to the driver.
    pub fn set_memory_limit(&self, bytes: usize) {
        lock(&self.pool).limit = bytes;
    }

    /// Sets whether each buffer has memory of its very size, which the driver gets back as soon as it is dropped: so a
    /// driver that checks accesses sees those beyond a buffer, and reads of what nobody wrote. It is for tests, since
    /// every drop waits for the device then.
    pub fn set_exact_memory(&self, is_exact: bool) {
        lock(&self.pool).is_exact = is_exact;
    }

    /// Asks `idle` to give up its memory when there is too little.
    pub fn on_shortage(&self, idle: Weak<dyn Idle>) {
        let mut all = lock(&self.idle);
        all.retain(|idle| idle.strong_count() > 0);
        all.push(idle);
    }

    /// Destroys what is dropped when the work that was queued before is done.
    pub(super) fn retire(&self, remains: Remains) {
        let queued = self.check(|driver| {
            let event = driver.event(false)?;
            driver.record(&event)?;
            Ok(event)
        });
        // On a broken device nothing can be destroyed, nor is there a use in it.
        if let Ok(event) = queued {
            lock(&self.retired).push_back((event, remains));
        }
        self.bury();
    }

    /// Destroys what was retired and is not in use any more.
    fn bury(&self) {
        // Held until all is destroyed, so that code goes after the graphs that run it.
        let mut retired = lock(&self.retired);
        while let Some((event, remains)) = retired.pop_front_if(|(event, _)| self.driver.has_passed(event)) {
            match remains {
                Remains::Module(module) => self.driver.unload(module),
                Remains::Graph(graph) => self.driver.drop_graph(graph),
            }
            self.driver.drop_event(event);
        }
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gpu({}, {})", self.device(), self.facts.name)
    }
}
