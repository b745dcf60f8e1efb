//! The values that a thread used last, found without a hash and without a write that another thread sees.
//!
//! Guarantees that a use is counted exactly once, and that after [`Recent::forget`] has returned no call finds what was
//! forgotten, nor is it kept alive by anything but the calls that had found it before.
//!
//! The idea: each shard has a handful of handles of its own to shared values, behind a lock that only its thread takes
//! (others come to forget or to count, which is rare). A handle is an allocation of its own, so cloning it writes to
//! memory of the shard and leaves the value's count of owners alone. Nothing waits: a call whose shard is in use
//! finds nothing, and goes the long way. Nothing here knows what a value is; a model checker runs this file.

use crate::sync::{Arc, AtomicU64, Mutex, MutexGuard, Relaxed, lock, try_lock};

/// Handles in a shard: enough for a function that is called with a whole and a partial batch, for training and for
/// validation.
const N_WAYS: usize = 4;

/// A value that takes over the uses that its handles counted.
pub(crate) trait Counted {
    /// Adds uses of this value.
    fn add_uses(&self, n: u64);
}

/// A shard's own hold on a value, on cache lines of its own.
#[repr(align(128))]
pub(crate) struct Handle<T> {
    pub(crate) value: Arc<T>,
    /// Uses through this handle; changed only under the lock of its shard.
    uses: AtomicU64,
}

struct RecentShard<T> {
    handles: [Option<Arc<Handle<T>>>; N_WAYS],
    /// The handle to replace when all are taken: they take turns.
    next: usize,
    /// Uses through all handles there ever were.
    uses: u64,
}

/// The recent values of all threads.
pub(crate) struct Recent<T> {
    shards: Box<[Own<RecentShard<T>>]>,
}

/// A lock on cache lines of its own.
#[repr(align(128))]
struct Own<T>(Mutex<T>);

/// The uses of all shards at one moment; nothing is counted while it lives.
pub(crate) struct Uses<'r, T> {
    shards: Vec<MutexGuard<'r, RecentShard<T>>>,
}

impl<T: Counted> Recent<T> {
    pub(crate) fn new(n_shards: usize) -> Recent<T> {
        let shard = || RecentShard { handles: [const { None }; N_WAYS], next: 0, uses: 0 };
        Recent { shards: (0..n_shards).map(|_| Own(Mutex::new(shard()))).collect() }
    }

    fn shard(&self, thread: usize) -> &Mutex<RecentShard<T>> {
        &self.shards[thread % self.shards.len()].0
    }

    /// The value that `is_wanted`, if this thread used it lately; counts as a use then.
    #[inline]
    pub(crate) fn find(&self, thread: usize, is_wanted: impl Fn(&T) -> bool) -> Option<Arc<Handle<T>>> {
        let mut shard = try_lock(self.shard(thread))?;
        let handle = shard.handles.iter().flatten().find(|handle| is_wanted(&handle.value))?;
        // A load and a store, since the shard is locked.
        handle.uses.store(handle.uses.load(Relaxed) + 1, Relaxed);
        let found = Arc::clone(handle);
        shard.uses += 1;
        Some(found)
    }

    /// Notes that this thread uses `value`; counts as nothing. The caller makes sure that nobody forgets it meanwhile,
    /// and drops what it gets back with no lock held: it made way.
    #[must_use]
    pub(crate) fn insert(&self, thread: usize, value: &Arc<T>) -> Option<Arc<Handle<T>>> {
        let mut shard = try_lock(self.shard(thread))?;
        let is_known = |handle: &Option<Arc<Handle<T>>>| handle.as_ref().is_some_and(|h| Arc::ptr_eq(&h.value, value));
        if shard.handles.iter().any(is_known) {
            return None;
        }
        let handle = Arc::new(Handle { value: Arc::clone(value), uses: AtomicU64::new(0) });
        let way = shard.handles.iter().position(Option::is_none).unwrap_or(shard.next);
        shard.next = (way + 1) % N_WAYS;
        let old = shard.handles[way].replace(handle);
        old.inspect(|old| old.flush_uses())
    }

    /// Forgets all values that are gone, for all threads.
    ///
    /// Handles are dropped here, but not values: the caller keeps those alive, or a call does that has found them.
    pub(crate) fn forget(&self, is_gone: impl Fn(&Arc<T>) -> bool) {
        for Own(shard) in &self.shards {
            let mut shard = lock(shard);
            for way in &mut shard.handles {
                if let Some(gone) = way.take_if(|handle| is_gone(&handle.value)) {
                    gone.flush_uses();
                }
            }
        }
    }

    /// Stops the counting for a look at it.
    pub(crate) fn uses(&self) -> Uses<'_, T> {
        Uses { shards: self.shards.iter().map(|Own(shard)| lock(shard)).collect() }
    }
}

impl<T: Counted> Handle<T> {
    /// Hands the uses over to the value; under the lock of the shard, and when the handle leaves it.
    fn flush_uses(&self) {
        self.value.add_uses(self.uses.load(Relaxed));
    }
}

impl<T> Uses<'_, T> {
    /// Uses of all values that there ever were.
    pub(crate) fn total(&self) -> u64 {
        self.shards.iter().map(|shard| shard.uses).sum()
    }

    /// Uses of a value that it does not know of yet.
    pub(crate) fn of(&self, value: &Arc<T>) -> u64 {
        let handles = self.shards.iter().flat_map(|shard| shard.handles.iter().flatten());
        handles.filter(|handle| Arc::ptr_eq(&handle.value, value)).map(|handle| handle.uses.load(Relaxed)).sum()
    }
}
