//! A world of threads of one process.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use retape_kernels::library::{Communicator, GpuLink, set_communicator};
use retape_runtime::{Gpu, lock};

use crate::error::{Error, Result};
use crate::launcher;
use crate::mailbox::Threads;
use crate::wire::{TIMEOUT, Wire};
use crate::world::World;

/// Any error of a worker's work.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The number of the next group of threads: that of processes is 1.
static NEXT_GROUP: AtomicUsize = AtomicUsize::new(2);

thread_local! {
    /// The groups in which this thread works, with its end of each: a worker may start a world of its own.
    static WORKS_IN: RefCell<Vec<(usize, Arc<Wire>)>> = const { RefCell::new(vec![]) };
}

/// The communicator of a group of threads, which finds out who calls.
struct Group {
    number: usize,
    size: usize,
}

impl Group {
    fn wire(&self) -> Option<Arc<Wire>> {
        WORKS_IN.with_borrow(|all| all.iter().find(|(number, _)| *number == self.number).map(|(_, wire)| wire.clone()))
    }

    /// The wire of this thread, for a call.
    fn wire_for(&self, call: &str) -> std::result::Result<Arc<Wire>, String> {
        self.wire().ok_or_else(|| {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or("without a name");
            format!(
                "the thread {name} is at `{call}`, and is none of the {} threads of group {}",
                self.size, self.number
            )
        })
    }
}

impl Communicator for Group {
    fn rank(&self) -> usize {
        // A thread without a rank learns that it has none when it exchanges.
        self.wire().map_or(0, |wire| wire.rank())
    }

    fn size(&self) -> usize {
        self.size
    }

    fn exchange(&self, call: &str, sends: &[&[u8]], receives: &mut [&mut [u8]]) -> std::result::Result<(), String> {
        self.exchange_while(call, sends, receives, &mut || false)
    }

    fn exchange_while(
        &self,
        call: &str,
        sends: &[&[u8]],
        receives: &mut [&mut [u8]],
        work: &mut dyn FnMut() -> bool,
    ) -> std::result::Result<(), String> {
        self.wire_for(call)?.exchange_while(call, sends, receives, work)
    }

    fn next_round(
        &self,
        call: &str,
        sends: &[&[u8]],
        receives: &mut [&mut [u8]],
        work: &mut dyn FnMut() -> bool,
    ) -> std::result::Result<(), String> {
        self.wire_for(call)?.next_round(call, sends, receives, work)
    }

    fn agree(&self, class: &str, text: &str) -> std::result::Result<(), String> {
        match self.wire() {
            Some(wire) => wire.agree(class, text),
            None => Err(format!("a thread that is none of the {} of group {} traced for it", self.size, self.number)),
        }
    }

    fn link(&self, gpu: &Arc<Gpu>) -> std::result::Result<Option<Arc<dyn GpuLink>>, String> {
        // A thread without a rank learns that it has none when it exchanges.
        self.wire().map_or(Ok(None), |wire| wire.link(gpu))
    }

    fn fail(&self, message: &str) {
        if let Some(wire) = self.wire() {
            wire.fail(message);
        }
    }

    fn check(&self) -> std::result::Result<(), String> {
        self.wire().map_or(Ok(()), |wire| wire.check())
    }
}

/// Forgets a group when its world ends, whatever the end.
struct Registered(usize);

impl Drop for Registered {
    fn drop(&mut self) {
        set_communicator(self.0, None);
    }
}

impl World {
    /// Runs `work` in `n` threads of this process, each of which is a worker, and gives back their results by rank.
    ///
    /// # Errors
    ///
    /// Fails with the first error of a worker, or with its panic: all others are told, and end with the same error when
    /// they need each other the next time.
    pub fn threads<T: Send>(
        n: usize,
        work: impl Fn(World) -> std::result::Result<T, Failure> + Sync,
    ) -> Result<Vec<T>> {
        run(n, work)
    }
}

/// Runs `work` in each thread of a new world.
fn run<T: Send>(size: usize, work: impl Fn(World) -> std::result::Result<T, Failure> + Sync) -> Result<Vec<T>> {
    if size == 0 {
        return Err(Error::Argument("a world of no threads".to_owned()));
    }
    let timeout = launcher::timeout()?.unwrap_or(TIMEOUT);
    let number = NEXT_GROUP.fetch_add(1, Ordering::Relaxed);
    set_communicator(number, Some(Arc::new(Group { number, size })));
    let _registered = Registered(number);
    let first_error: Mutex<Option<Error>> = Mutex::new(None);
    let results = std::thread::scope(|scope| {
        let (work, first_error) = (&work, &first_error);
        let spawn = |(rank, transport): (usize, Threads)| {
            let wire = Arc::new(Wire::new(Box::new(transport)));
            wire.set_timeout(timeout);
            let thread = std::thread::Builder::new().name(format!("worker {rank}"));
            let spawned = {
                let wire = wire.clone();
                thread.spawn_scoped(scope, move || {
                    let result = one(&wire, number, work);
                    result.map_err(|error| {
                        lock(first_error).get_or_insert(error);
                    })
                })
            };
            if let Err(error) = &spawned {
                wire.fail(&format!("rank {rank} has no thread: {error}"));
            }
            spawned.map_err(|error| Error::Launch(format!("rank {rank} has no thread: {error}")))
        };
        let threads: Vec<_> = Threads::of(size).into_iter().enumerate().map(spawn).collect();
        let join = |thread: Result<std::thread::ScopedJoinHandle<'_, std::result::Result<T, ()>>>| {
            Ok(thread?.join().unwrap_or_else(|panic| resume_unwind(panic)))
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    match first_error.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(results.into_iter().flatten().collect()),
    }
}

/// One worker, from its start to the end of all.
fn one<T>(
    wire: &Arc<Wire>,
    group: usize,
    work: &(impl Fn(World) -> std::result::Result<T, Failure> + Sync),
) -> Result<T> {
    WORKS_IN.with_borrow_mut(|all| all.push((group, wire.clone())));
    let rank = wire.rank();
    let world = World::over(wire.clone(), group);
    let result = catch_unwind(AssertUnwindSafe(|| work(world)));
    WORKS_IN.with_borrow_mut(|all| all.retain(|(number, _)| *number != group));
    let broken = wire.broken();
    let failed = match result {
        Ok(Ok(value)) => return wire.end().map(|()| value).map_err(Error::Broken),
        Ok(Err(error)) => match error.downcast::<Error>() {
            Ok(error) if broken.is_some() => return Err(*error),
            Ok(error) => format!("rank {rank} failed: {error}"),
            Err(error) => format!("rank {rank} failed: {error}"),
        },
        Err(panic) => format!("rank {rank} panicked: {}", message(&*panic)),
    };
    match broken {
        // The error that broke the world says itself who is to blame.
        Some(first) if failed.contains(&first) => Err(Error::Broken(first)),
        Some(_) => Err(Error::Broken(failed)),
        None => {
            wire.fail(&failed);
            Err(Error::Broken(failed))
        }
    }
}

/// The text of a panic.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}
