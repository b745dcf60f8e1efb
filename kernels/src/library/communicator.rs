//! The workers that compute together: moving bytes between them is left to others, adding is not.
//!
//! A program that trains on several machines registers a [`Communicator`], which knows how bytes get from one worker to
//! another. Steps of a plan name the group by its number only, so that all workers run the same plan.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, RwLock};

use retape_runtime::{DeviceBuffer, Gpu, lock_to_read, lock_to_write};

use super::flag::raised;

/// One worker's connection to the others of its group.
///
/// All methods are called on the thread that runs a plan, or that traces.
pub trait Communicator: Send + Sync {
    /// The number of the worker that calls, from 0.
    fn rank(&self) -> usize;

    /// The number of workers.
    fn size(&self) -> usize;

    /// Sends `sends[r]` to worker `r` and receives `receives[r]` from it, for all workers but the caller itself, whose
    /// own parts are left alone. Returns when all have arrived.
    ///
    /// `call` says which exchange it is: the texts of all workers must be equal, and lengths must fit each other.
    ///
    /// # Errors
    ///
    /// Fails, rather than waits for ever, if another worker is in another exchange, or does not come at all.
    fn exchange(&self, call: &str, sends: &[&[u8]], receives: &mut [&mut [u8]]) -> Result<(), String>;

    /// As [`exchange`](Communicator::exchange), and calls `work` while messages are under way: each call does a little,
    /// and says whether there may be more to do. Work that is left at the end is the caller's, and so is all of it where a
    /// communicator cannot do both at once.
    ///
    /// # Errors
    ///
    /// As [`exchange`](Communicator::exchange).
    fn exchange_while(
        &self,
        call: &str,
        sends: &[&[u8]],
        receives: &mut [&mut [u8]],
        work: &mut dyn FnMut() -> bool,
    ) -> Result<(), String> {
        let _ = work;
        self.exchange(call, sends, receives)
    }

    /// A further round of the exchange in which all workers were last: as
    /// [`exchange_while`](Communicator::exchange_while), of lengths that follow from the call, so that workers need not
    /// ask each other again where they are.
    ///
    /// # Errors
    ///
    /// As [`exchange`](Communicator::exchange).
    fn next_round(
        &self,
        call: &str,
        sends: &[&[u8]],
        receives: &mut [&mut [u8]],
        work: &mut dyn FnMut() -> bool,
    ) -> Result<(), String> {
        self.exchange_while(call, sends, receives, work)
    }

    /// Fails unless workers of the same class have the same text; called by each of them when it has traced, before it
    /// compiles.
    ///
    /// # Errors
    ///
    /// Fails, rather than waits for ever, with where the texts differ.
    fn agree(&self, class: &str, text: &str) -> Result<(), String>;

    /// The link from the GPU of this worker to those of the others; `None` if they go through the host. Called
    /// by all workers before a step whose arrays lie on GPUs; the answer is the same for all of them, every time.
    ///
    /// # Errors
    ///
    /// Fails, rather than waits for ever, if another worker does not come, or the link cannot be made.
    fn link(&self, gpu: &Arc<Gpu>) -> Result<Option<Arc<dyn GpuLink>>, String> {
        let _ = gpu;
        Ok(None)
    }

    /// Tells all workers that this one has failed, so that they wait for it no longer.
    fn fail(&self, message: &str) {
        let _ = message;
    }

    /// Fails if this worker knows by now that another one has failed. Does not wait.
    ///
    /// # Errors
    ///
    /// Fails with what the other worker said.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

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
    /// Queues transfers on the stream of the GPU, which run at the same time: work queued later finds them done.
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

static GROUPS: RwLock<Option<HashMap<usize, Arc<dyn Communicator>>>> = RwLock::new(None);

/// Makes a group known to the plans that name its number, in place of an older one of that number; `None` forgets it.
pub fn set_communicator(group: usize, communicator: Option<Arc<dyn Communicator>>) {
    let mut groups = lock_to_write(&GROUPS);
    let groups = groups.get_or_insert_default();
    match communicator {
        Some(communicator) => groups.insert(group, communicator),
        None => groups.remove(&group),
    };
}

/// The group of a number, if it is known.
pub fn communicator(group: usize) -> Option<Arc<dyn Communicator>> {
    lock_to_read(&GROUPS).as_ref()?.get(&group).cloned()
}

thread_local! {
    static IS_ALONE: Cell<bool> = const { Cell::new(false) };
}

/// Runs work that this worker does and others do not: steps that take other workers fail meanwhile.
pub fn alone<R>(work: impl FnOnce() -> R) -> R {
    raised(&IS_ALONE, work)
}

thread_local! {
    static PLACE: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// Runs work at a place in the program, such as a function: exchanges of this thread meet those of the same place on the
/// other workers, and are refused by those of another one.
pub fn at_place<R>(place: &Arc<str>, work: impl FnOnce() -> R) -> R {
    struct Restore(Option<Arc<str>>);

    impl Drop for Restore {
        fn drop(&mut self) {
            // A thread that ends has no place any more.
            let _ = PLACE.try_with(|place| place.replace(self.0.take()));
        }
    }

    let _restore = Restore(PLACE.try_with(|outer| outer.replace(Some(Arc::clone(place)))).ok().flatten());
    work()
}

/// The place of the work that this thread does, with a space before it.
pub(super) fn place() -> String {
    let text = |place: &RefCell<Option<Arc<str>>>| place.borrow().as_ref().map(|place| format!(" {place}"));
    PLACE.try_with(text).ok().flatten().unwrap_or_default()
}

/// Whether this thread runs the work of [`alone`].
pub fn is_alone() -> bool {
    IS_ALONE.get()
}

/// The shards that a worker holds, of `n` that are numbered through over `size` workers: equal shares, the first workers
/// one more where they cannot be equal.
///
/// ```
/// use retape_kernels::library::share;
///
/// assert_eq!([0, 1, 2].map(|rank| share(4, rank, 3)), [0..2, 2..3, 3..4]);
/// ```
pub fn share(n: usize, rank: usize, size: usize) -> Range<usize> {
    let (each, more) = (n / size.max(1), n % size.max(1));
    let start = |rank: usize| rank * each + rank.min(more);
    start(rank)..start(rank + 1)
}
