//! The pool: size-classed reuse of freed buffers, process-wide.
//!
//! Guarantees that what it keeps stays under a cap in bytes, that a request wastes at most a quarter of its size (or
//! under 64 bytes), that live memory stays under the memory limit, and that live bytes are counted exactly.
//!
//! Why: a freed large allocation goes back to the system, and the next one of the same size pays a page fault per 4 KiB
//! again, which costs more than many kernels do. The idea: each thread has a cache, a handful of blocks that it
//! reaches without a lock. Behind are a few shards, each a mutex around one stack of blocks per class; a thread uses its
//! own shard, whose lock is free and whose last block is still in cache, and looks into the others only when its own
//! has nothing. Over the cap, the class that was idle longest goes first.
//!
//! The count of live bytes is one number for the process, which threads would fight over at each small buffer. So a
//! thread that frees some defers the subtraction: up to a bound, they stay counted, and its next buffers claim them. The
//! count is of live bytes and deferred frees; the limit is checked against it when it grows.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock};

use crate::block::Block;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::shard::{CachePadded, thread_number};
use crate::shortage::{Refusal, Shortage};

const N_SHARDS: usize = 8;

/// Blocks in a cache, and the largest that goes there; their product is what a thread hides from the others.
const N_CACHED: usize = 8;
const MAX_CACHED: usize = 512 << 10;

/// Blocks of each linear class in a cache besides: graphs with many small results come here often.
const N_SMALL: usize = 512;

/// Sizes up to this are multiples of 64; above, each power of two is split in four.
const LINEAR: usize = 256;
const N_LINEAR: usize = LINEAR / 64;
const LINEAR_LOG2: usize = LINEAR.ilog2() as usize;
const N_CLASSES: usize = N_LINEAR + 4 * (MAX_LOG2 - LINEAR_LOG2);

/// Requests end here: half of what an allocation may ever be, so that no class size overflows.
const MAX_LOG2: usize = usize::BITS as usize - 2;

/// Bytes handed out in buffers, in class sizes, and the deferred frees of all threads.
static LIVE: AtomicUsize = AtomicUsize::new(0);
/// The deferred frees, by thread: bytes of `LIVE` that are in no buffer any more.
static DEFERRED: [CachePadded<AtomicUsize>; N_DEFERRED] = [const { CachePadded(AtomicUsize::new(0)) }; N_DEFERRED];
const N_DEFERRED: usize = 64;
/// The deferred frees of one thread end here (or one block later).
const MAX_DEFERRED: usize = 64 << 10;
/// The most that `LIVE` was since it was last reset.
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// Bytes held from the system: live ones and kept ones. Kept bytes are a difference, so that only two counters change
/// on the hot path (and one of them rarely).
static HELD: AtomicUsize = AtomicUsize::new(0);
/// Cap on kept bytes.
static KEEP: AtomicUsize = AtomicUsize::new(1 << 30);
/// Cap on live bytes; `usize::MAX` stands for the machine's memory.
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

static SHARDS: [Mutex<Shard>; N_SHARDS] = [const { Mutex::new(Shard::new()) }; N_SHARDS];

/// The stacks of one shard.
#[repr(align(128))]
struct Shard {
    stacks: [Stack; N_CLASSES],
    /// Counts uses, to tell which stack was idle longest.
    tick: u64,
    reused: u64,
    fresh: u64,
}

/// The free blocks of one class.
struct Stack {
    blocks: Vec<Block>,
    last_use: u64,
}

impl Shard {
    const fn new() -> Shard {
        let stacks = [const { Stack { blocks: Vec::new(), last_use: 0 } }; N_CLASSES];
        Shard { stacks, tick: 0, reused: 0, fresh: 0 }
    }

    fn touch(&mut self, class: usize) -> &mut Stack {
        self.tick += 1;
        let stack = &mut self.stacks[class];
        stack.last_use = self.tick;
        stack
    }

    fn take(&mut self, class: usize) -> Option<Block> {
        let block = self.touch(class).blocks.pop()?;
        self.reused += 1;
        Some(block)
    }

    /// Removes a block of the class that was idle longest.
    fn take_stalest(&mut self) -> Option<Block> {
        let stacks = self.stacks.iter_mut().filter(|stack| !stack.blocks.is_empty());
        stacks.min_by_key(|stack| stack.last_use)?.blocks.pop()
    }
}

/// The blocks that one thread reaches without a lock.
struct ThreadCache {
    blocks: [Option<Block>; N_CACHED],
    /// Blocks of the linear classes.
    small: [Vec<Block>; N_LINEAR],
    /// The slot to empty when all are taken: they take turns.
    next: usize,
    /// Uses not yet counted in the shard.
    reused: u64,
}

thread_local! {
    static THREAD_CACHE: RefCell<ThreadCache> = const { RefCell::new(ThreadCache::new()) };
}

impl ThreadCache {
    const fn new() -> ThreadCache {
        ThreadCache { blocks: [const { None }; N_CACHED], small: [const { Vec::new() }; N_LINEAR], next: 0, reused: 0 }
    }

    fn take(&mut self, bytes: usize) -> Option<Block> {
        if bytes <= LINEAR {
            return self.take_small(bytes);
        }
        let is_fit = |block: &Option<Block>| block.as_ref().is_some_and(|block| block.bytes() == bytes);
        let slot = self.blocks.iter().position(is_fit)?;
        self.reused += 1;
        self.blocks[slot].take()
    }

    /// A block of a linear class.
    #[inline(always)]
    fn take_small(&mut self, bytes: usize) -> Option<Block> {
        let block = self.small[bytes / 64 - 1].pop()?;
        self.reused += 1;
        Some(block)
    }

    /// Keeps a block; returns the one that makes way.
    fn put(&mut self, block: Block) -> Option<Block> {
        if block.bytes() <= LINEAR {
            let stack = &mut self.small[block.bytes() / 64 - 1];
            if stack.len() == N_SMALL {
                return Some(block);
            }
            stack.push(block);
            return None;
        }
        let slot = self.blocks.iter().position(Option::is_none).unwrap_or_else(|| {
            self.next = (self.next + 1) % N_CACHED;
            self.next
        });
        self.blocks[slot].replace(block)
    }

    /// Moves all to the shards.
    fn flush(&mut self) {
        lock(own_shard()).reused += std::mem::take(&mut self.reused);
        self.blocks.iter_mut().filter_map(Option::take).for_each(put_back);
        self.small.iter_mut().flat_map(|stack| stack.drain(..)).for_each(put_back);
    }
}

impl Drop for ThreadCache {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Runs `f` on this thread's cache, unless the thread is ending.
fn with_thread_cache<R>(f: impl FnOnce(&mut ThreadCache) -> R) -> Option<R> {
    THREAD_CACHE.try_with(|cache| f(&mut cache.borrow_mut())).ok()
}

/// Numbers of the pool at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Bytes in buffers that exist.
    pub live_bytes: usize,
    /// The most that `live_bytes` was since [`reset_peak_bytes`], or ever; up to 128 KiB per thread more.
    pub peak_bytes: usize,
    /// Bytes kept for reuse.
    pub kept_bytes: usize,
    /// Allocations served from kept bytes; those of other threads may lag until they end.
    pub reused: u64,
    /// Allocations served by the system.
    pub fresh: u64,
}

/// The class whose blocks are the smallest that hold `len > 0` bytes.
fn class_of(len: usize) -> Option<usize> {
    if len <= LINEAR {
        return Some(len.div_ceil(64) - 1);
    }
    let last = len - 1;
    let log2 = last.ilog2() as usize;
    let quarter = (last >> (log2 - 2)) & 3;
    (log2 < MAX_LOG2).then_some(N_LINEAR + 4 * (log2 - LINEAR_LOG2) + quarter)
}

/// The size of the blocks of `class`.
fn class_bytes(class: usize) -> usize {
    match class.checked_sub(N_LINEAR) {
        None => (class + 1) * 64,
        Some(above) => (5 + above % 4) << (above / 4 + LINEAR_LOG2 - 2),
    }
}

/// The shard of this thread.
fn own_shard() -> usize {
    thread_number() % N_SHARDS
}

/// The deferred frees of this thread, in bytes.
fn deferred() -> &'static AtomicUsize {
    &DEFERRED[thread_number() % N_DEFERRED]
}

/// Takes `bytes` from the deferred frees of this thread, which are counted as live; returns whether there are so many.
fn claim(bytes: usize) -> bool {
    let deferred = deferred();
    let left = |deferred: usize| deferred.checked_sub(bytes);
    deferred.load(Relaxed) >= bytes && deferred.try_update(Relaxed, Relaxed, left).is_ok()
}

/// Takes the deferred frees of all threads off the count.
fn settle_deferred() {
    for deferred in &DEFERRED {
        LIVE.fetch_sub(deferred.swap(0, Relaxed), Relaxed);
    }
}

/// Locks a shard; a shard is consistent at every point, so a panic elsewhere does not matter.
fn lock(shard: usize) -> MutexGuard<'static, Shard> {
    crate::lock::lock(&SHARDS[shard])
}

fn try_lock(shard: usize) -> Option<MutexGuard<'static, Shard>> {
    crate::lock::try_lock(&SHARDS[shard])
}

/// Bytes kept, except for those that deferred frees hide.
fn kept_bytes() -> usize {
    HELD.load(Relaxed).saturating_sub(LIVE.load(Relaxed))
}

/// A block of at least `len > 0` bytes, and whether it is fresh, hence zeroed.
pub(crate) fn obtain(len: usize) -> Result<(Block, bool)> {
    let endless = || Error::Allocation(Shortage::unaddressable(len, Device::Cpu));
    let class = class_of(len).ok_or_else(endless)?;
    let bytes = class_bytes(class);
    let live = if claim(bytes) { None } else { Some(charge(len, bytes)?) };
    let found = match reuse(class, bytes) {
        Some(block) => Some((block, false)),
        None => fresh(bytes).map(|block| (block, true)),
    };
    let Some(found) = found else {
        LIVE.fetch_sub(bytes, Relaxed);
        return Err(shortage(len, live_bytes(), Refusal::System));
    };
    if let Some(live) = live.filter(|&live| live > PEAK.load(Relaxed)) {
        PEAK.fetch_max(live, Relaxed);
    }
    Ok(found)
}

/// Adds a buffer for each of `lens`, made by `make` from its length and, as long as lengths are small and this thread's
/// cache has some, a block; the blocks claim deferred frees together.
///
/// The buffers come from an iterator of known length, so that each is written where it stays: pushed one by one, they
/// go by way of the stack, and words that are written there one at a time cannot be read back as one vector soon after.
pub(crate) fn obtain_small<T>(lens: &[usize], buffers: &mut Vec<T>, make: impl Fn(usize, Option<Block>) -> T) {
    let bytes = |len: usize| if (1..=LINEAR).contains(&len) { Some(len.next_multiple_of(64)) } else { None };
    let claimed: usize = lens.iter().map_while(|&len| bytes(len)).sum();
    let mut unused = if claimed > 0 && claim(claimed) { claimed } else { 0 };
    let found = with_thread_cache(|cache| {
        let with_block = |&len: &usize| {
            let bytes = bytes(len).filter(|&bytes| bytes <= unused);
            let block = bytes.and_then(|bytes| cache.take_small(bytes));
            unused -= block.as_ref().and(bytes).unwrap_or(0);
            make(len, block)
        };
        buffers.extend(lens.iter().map(with_block));
    });
    if unused > 0 {
        deferred().fetch_add(unused, Relaxed);
    }
    if found.is_none() {
        // A thread that is ending has no cache.
        buffers.extend(lens.iter().map(|&len| make(len, None)));
    }
}

/// Counts the memory of a block that was not made here as live, and lets go of kept memory that stands in its way.
#[cold]
pub(crate) fn adopt(block: Block) -> Result<Block> {
    let bytes = block.bytes();
    let live = charge(bytes, bytes)?;
    PEAK.fetch_max(live, Relaxed);
    if HELD.fetch_add(bytes, Relaxed).saturating_add(bytes) > memory_limit() {
        trim();
    }
    Ok(block)
}

/// Counts `bytes` for a request of `len` as live; returns the count.
///
/// A request that is refused is never counted, not even for a moment: others that come meanwhile must not fail for it.
fn charge(len: usize, bytes: usize) -> Result<usize> {
    let limit = memory_limit();
    let mut others = LIVE.load(Relaxed);
    let mut is_settled = false;
    loop {
        // The request itself, not its class, is what a caller can compare with the limit.
        if others.saturating_add(len) <= limit {
            let live = others.saturating_add(bytes);
            match LIVE.compare_exchange_weak(others, live, Relaxed, Relaxed) {
                Ok(_) => return Ok(live),
                Err(now) => others = now,
            }
        } else if is_settled {
            let refusal = if limit < machine_memory() { Refusal::Limit } else { Refusal::Size };
            return Err(shortage(len, others, refusal));
        } else {
            settle_deferred();
            is_settled = true;
            others = LIVE.load(Relaxed);
        }
    }
}

/// The error of a request of `bytes` beside those in use.
#[cold]
pub(crate) fn shortage(bytes: usize, in_use: usize, refusal: Refusal) -> Error {
    Error::Allocation(Shortage { bytes, in_use, limit: memory_limit(), device: Device::Cpu, refusal })
}

/// A kept block of `class`, whose size is `bytes`: from this thread's cache, else its shard, else another.
fn reuse(class: usize, bytes: usize) -> Option<Block> {
    if bytes <= MAX_CACHED
        && let Some(block) = with_thread_cache(|cache| cache.take(bytes)).flatten()
    {
        return Some(block);
    }
    let own_shard = own_shard();
    if let Some(block) = lock(own_shard).take(class) {
        return Some(block);
    }
    let away = (1..N_SHARDS).map(|step| (own_shard + step) % N_SHARDS);
    // A shard in use by its thread is passed over: waiting may cost more than fresh memory.
    away.filter_map(try_lock).find_map(|mut shard| shard.take(class))
}

/// A block from the system; kept blocks are freed if they stand in the way.
#[cold]
fn fresh(bytes: usize) -> Option<Block> {
    let held = HELD.fetch_add(bytes, Relaxed).saturating_add(bytes);
    if held > memory_limit() {
        trim();
    }
    let block = Block::fresh(bytes).or_else(|| {
        trim();
        Block::fresh(bytes)
    });
    match block {
        Some(_) => lock(own_shard()).fresh += 1,
        None => drop(HELD.fetch_sub(bytes, Relaxed)),
    }
    block
}

/// Takes a block back that no buffer uses any more.
pub(crate) fn give_back(block: Block) {
    let bytes = block.bytes();
    if block.is_adopted() {
        LIVE.fetch_sub(bytes, Relaxed);
        return free(block);
    }
    let cap = KEEP.load(Relaxed);
    let deferred = deferred();
    // Deferred frees hide what is kept, so there must be room for all of it beneath the cap; and they serve buffers that the
    // limit is not asked about, so what is counted must be within that.
    let is_deferred = bytes <= MAX_DEFERRED
        && deferred.load(Relaxed) < MAX_DEFERRED
        && LIVE.load(Relaxed) <= LIMIT.load(Relaxed)
        && kept_bytes().saturating_add(N_DEFERRED * 2 * MAX_DEFERRED) <= cap;
    if is_deferred {
        deferred.fetch_add(bytes, Relaxed);
    } else {
        LIVE.fetch_sub(bytes, Relaxed);
        if kept_bytes() > cap && (bytes > cap || !shrink(cap)) {
            return free(block);
        }
    }
    if bytes > MAX_CACHED {
        return put_back(block);
    }
    let mut block = Some(block);
    let displaced = with_thread_cache(|cache| cache.put(block.take()?)).flatten();
    // The block itself if the thread is ending and has no cache any more.
    block.into_iter().chain(displaced).for_each(put_back);
}

/// Puts a block into this thread's shard.
fn put_back(block: Block) {
    let class = class_of(block.bytes()).expect("a block has the size of its class");
    lock(own_shard()).touch(class).blocks.push(block);
}

/// Frees blocks until at most `cap` bytes are kept, this thread's shard first; returns whether that is reached.
#[cold]
fn shrink(cap: usize) -> bool {
    with_thread_cache(ThreadCache::flush);
    let own_shard = own_shard();
    for shard in (0..N_SHARDS).map(|step| (own_shard + step) % N_SHARDS) {
        while kept_bytes() > cap {
            // In its own statement, so that the lock is released before the system is called.
            let stalest = lock(shard).take_stalest();
            let Some(block) = stalest else { break };
            free(block);
        }
    }
    kept_bytes() <= cap
}

/// Returns a block to the system.
fn free(block: Block) {
    let bytes = block.bytes();
    drop(block);
    HELD.fetch_sub(bytes, Relaxed);
}

/// Returns all kept memory to the system, except for the few small blocks in the caches of other threads, and for pages of
/// which live blocks have a part.
pub fn trim() {
    settle_deferred();
    with_thread_cache(ThreadCache::flush);
    for shard in 0..N_SHARDS {
        let kept: Vec<Block> = {
            let mut shard = lock(shard);
            shard.stacks.iter_mut().flat_map(|stack| std::mem::take(&mut stack.blocks)).collect()
        };
        kept.into_iter().for_each(free);
    }
    crate::block::close_chunk();
}

/// Sets how many bytes the pool may keep for reuse (at first 1 GiB), and frees what is beyond.
pub fn set_pool_capacity(bytes: usize) {
    KEEP.store(bytes, Relaxed);
    settle_deferred();
    shrink(bytes);
}

/// The numbers of the pool.
pub fn pool_stats() -> PoolStats {
    with_thread_cache(|cache| lock(own_shard()).reused += std::mem::take(&mut cache.reused));
    let live_bytes = live_bytes();
    let mut stats = PoolStats {
        live_bytes,
        peak_bytes: peak_bytes(),
        kept_bytes: HELD.load(Relaxed).saturating_sub(live_bytes),
        ..PoolStats::default()
    };
    for shard in 0..N_SHARDS {
        let shard = lock(shard);
        stats.reused += shard.reused;
        stats.fresh += shard.fresh;
    }
    stats
}

/// Bytes in buffers that exist, in the sizes of their blocks; exact while no thread makes or drops buffers.
pub fn live_bytes() -> usize {
    let deferred = DEFERRED.iter().map(|deferred| deferred.load(Relaxed)).sum();
    LIVE.load(Relaxed).saturating_sub(deferred)
}

/// The most that [`live_bytes`] was since [`reset_peak_bytes`], or ever; up to 128 KiB per thread more.
pub fn peak_bytes() -> usize {
    PEAK.load(Relaxed)
}

/// Makes [`peak_bytes`] count from now on.
pub fn reset_peak_bytes() {
    settle_deferred();
    PEAK.store(LIVE.load(Relaxed), Relaxed);
}

/// The bytes that all buffers together may have; at first the memory of the machine.
pub fn memory_limit() -> usize {
    match LIMIT.load(Relaxed) {
        usize::MAX => machine_memory(),
        limit => limit,
    }
}

/// Sets the bytes that all buffers together may have; `usize::MAX` stands for the memory of the machine.
pub fn set_memory_limit(bytes: usize) {
    LIMIT.store(bytes, Relaxed);
    // Buffers that claim deferred frees are not checked against the limit; those were deferred under the old one.
    settle_deferred();
}

/// The memory of the machine where the system tells, else all that an address reaches.
fn machine_memory() -> usize {
    static MEMORY: OnceLock<usize> = OnceLock::new();
    *MEMORY.get_or_init(|| {
        let total = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| parse_total(&text));
        total.unwrap_or(isize::MAX as usize)
    })
}

/// Reads the line `MemTotal: 123 kB`.
fn parse_total(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;

    #[test]
    fn classes_waste_at_most_a_quarter() {
        let lens = (1..5000).chain((13..40).flat_map(|k| [(1 << k) - 1, 1 << k, (1 << k) + 1, (1 << k) * 11 / 8]));
        for len in lens {
            let class = class_of(len).unwrap();
            let bytes = class_bytes(class);
            assert!(bytes >= len && bytes.is_multiple_of(64), "{len} in {bytes}");
            assert!(bytes - len < 64 || 4 * (bytes - len) <= len, "{len} in {bytes}");
            assert_eq!(class_of(bytes), Some(class), "{len}");
        }
    }

    #[test]
    fn the_largest_class_is_the_last() {
        assert_eq!(class_of(1 << MAX_LOG2), Some(N_CLASSES - 1));
        assert_eq!(class_bytes(N_CLASSES - 1), 1 << MAX_LOG2);
        assert_eq!(class_of((1 << MAX_LOG2) + 1), None);
        assert_eq!(class_of(usize::MAX), None);
    }

    #[test]
    fn meminfo_is_read() {
        let text = "MemFree: 1 kB\nMemTotal:       16384 kB\nBuffers: 2 kB\n";
        assert_eq!(parse_total(text), Some(16384 * 1024));
        assert_eq!(parse_total("MemTotal: lots"), None);
        assert_eq!(parse_total(""), None);
    }

    #[test]
    fn a_shard_gives_up_the_class_idle_longest() {
        let mut shard = Shard::new();
        for len in [100, 1000, 10_000] {
            let class = class_of(len).unwrap();
            shard.touch(class).blocks.push(Block::fresh(class_bytes(class)).unwrap());
        }
        let class = class_of(100).unwrap();
        let block = shard.take(class).unwrap();
        shard.touch(class).blocks.push(block);
        let order: Vec<usize> = std::iter::from_fn(|| shard.take_stalest()).map(|block| block.bytes()).collect();
        assert_eq!(order, [1024, 10240, 128]);
    }

    #[test]
    fn a_front_keeps_a_handful() {
        let block = |n: usize| Block::fresh(class_bytes(n)).unwrap();
        let mut cache = ThreadCache::new();
        assert!((N_LINEAR..N_LINEAR + N_CACHED).all(|n| cache.put(block(n)).is_none()));
        let displaced = cache.put(block(20)).unwrap().bytes();
        assert!(cache.take(displaced).is_none());
        assert_eq!(cache.take(class_bytes(20)).unwrap().bytes(), class_bytes(20));
        assert!(cache.put(block(21)).is_none(), "a slot is free again");
        assert_eq!(cache.reused, 1);
        for class in 0..N_LINEAR {
            assert!((0..N_SMALL).all(|_| cache.put(block(class)).is_none()));
            assert!(cache.put(block(class)).is_some(), "only so many of a class");
            assert_eq!(cache.take(class_bytes(class)).unwrap().bytes(), class_bytes(class));
        }
        assert_eq!(cache.reused, 1 + N_LINEAR as u64);
        // These blocks never came through the pool, so they must not go back there.
        cache.blocks = [const { None }; N_CACHED];
        cache.small = [const { Vec::new() }; N_LINEAR];
        cache.reused = 0;
    }

    /// A size of which no other test has a block.
    const OWN: usize = 3_333_333;

    #[test]
    fn freed_memory_comes_back() {
        let first = Buffer::alloc(OWN).unwrap();
        let address = first.as_ptr() as usize;
        drop(first);
        let reused = pool_stats().reused;
        assert_eq!(Buffer::alloc(OWN - 100).unwrap().as_ptr() as usize, address);
        assert!(pool_stats().reused > reused);
    }

    #[test]
    fn live_bytes_cover_what_lives() {
        let buffer = Buffer::alloc(9 * OWN).unwrap();
        assert!(live_bytes() >= 9 * OWN);
        assert!(peak_bytes() >= 9 * OWN);
        drop(buffer);
        assert!(peak_bytes() >= 9 * OWN);
        reset_peak_bytes();
        assert!(peak_bytes() < 9 * OWN, "other tests use less");
    }
}
