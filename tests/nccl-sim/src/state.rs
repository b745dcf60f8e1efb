//! Communicators, and the messages between their workers.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::cuda::Cuda;

/// Bytes of an id.
pub(crate) const ID: usize = 128;

/// A result other than success.
pub(crate) type Code = u32;

pub(crate) const SUCCESS: Code = 0;
pub(crate) const UNHANDLED_CUDA_ERROR: Code = 1;
pub(crate) const INVALID_ARGUMENT: Code = 4;
pub(crate) const INVALID_USAGE: Code = 5;
pub(crate) const IN_PROGRESS: Code = 7;

/// A code, with what is wrong in words.
pub(crate) type Status = Result<(), (Code, String)>;

/// Counts of calls and messages since the library was loaded or reset.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Communicators that were joined, by one worker each.
    pub joined: u64,
    /// Groups of calls.
    pub groups: u64,
    /// Messages that arrived, and their bytes.
    pub messages: u64,
    /// See `messages`.
    pub bytes: u64,
    /// Ends of communicators that were destroyed after they were finalized.
    pub destroyed: u64,
    /// Ends of communicators that were aborted.
    pub aborted: u64,
    /// Ends of communicators that are alive.
    pub alive: u64,
}

/// A send or a receive.
#[derive(Clone, Copy)]
pub(crate) struct Transfer {
    pub(crate) comm: usize,
    pub(crate) is_sent: bool,
    pub(crate) peer: usize,
    pub(crate) address: u64,
    pub(crate) len: usize,
    pub(crate) stream: usize,
}

/// The workers of an id.
#[derive(Default)]
struct World {
    size: usize,
    /// The devices of those that have joined.
    devices: BTreeMap<usize, i32>,
    messages: HashMap<(usize, usize), VecDeque<Vec<u8>>>,
}

/// One worker's end of a communicator.
pub(crate) struct Comm {
    id: u64,
    pub(crate) rank: usize,
    size: usize,
    context: usize,
    /// Receives that wait for their messages.
    pending: VecDeque<Transfer>,
    is_finalized: bool,
}

/// A function that is to fail for a worker, after so many calls that go well.
pub(crate) struct Failure {
    pub(crate) name: String,
    pub(crate) rank: usize,
    pub(crate) skip: u32,
    pub(crate) code: Code,
}

/// Everything.
pub(crate) struct State {
    pub(crate) version: i32,
    worlds: HashMap<u64, World>,
    pub(crate) comms: HashMap<usize, Comm>,
    pub(crate) failures: Vec<Failure>,
    pub(crate) counters: Counters,
    next: u64,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| Mutex::new(State::new()));

thread_local! {
    /// How many groups are open, and the transfers in them.
    static GROUP: RefCell<(u32, Vec<Transfer>)> = const { RefCell::new((0, vec![])) };
}

/// Works with the state.
pub(crate) fn with_state<T>(run: impl FnOnce(&mut State) -> T) -> T {
    run(&mut STATE.lock().unwrap_or_else(PoisonError::into_inner))
}

fn invalid<T>(text: impl Into<String>) -> Result<T, (Code, String)> {
    Err((INVALID_ARGUMENT, text.into()))
}

fn of_cuda(text: String) -> (Code, String) {
    (UNHANDLED_CUDA_ERROR, text)
}

impl State {
    fn new() -> State {
        State {
            version: 22_203,
            worlds: HashMap::new(),
            comms: HashMap::new(),
            failures: vec![],
            counters: Counters::default(),
            next: 0x1000,
        }
    }

    /// Whether a test wants this call of a worker to fail.
    pub(crate) fn fails(&mut self, name: &str, rank: usize) -> Status {
        let wanted = |failure: &Failure| failure.name == name && failure.rank == rank;
        let Some(at) = self.failures.iter().position(wanted) else { return Ok(()) };
        if self.failures[at].skip > 0 {
            self.failures[at].skip -= 1;
            return Ok(());
        }
        Err((self.failures.remove(at).code, "on purpose".to_owned()))
    }

    fn handle(&mut self) -> u64 {
        self.next += 16;
        self.next
    }

    /// A new id.
    pub(crate) fn new_id(&mut self) -> [u8; ID] {
        let number = self.handle();
        self.worlds.insert(number, World::default());
        let mut id = [0; ID];
        id[..8].copy_from_slice(&number.to_le_bytes());
        id
    }

    /// Begins to join the communicator of an id, for the current device.
    pub(crate) fn join(&mut self, id: &[u8; ID], rank: usize, size: usize) -> Result<usize, (Code, String)> {
        self.fails("ncclCommInitRankConfig", rank)?;
        let (context, device) = Cuda::get().and_then(Cuda::current).map_err(of_cuda)?;
        let id = id.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let handle = self.handle() as usize;
        let Some(world) = self.worlds.get_mut(&id) else { return invalid("an id that ncclGetUniqueId did not make") };
        if rank >= size || !world.devices.is_empty() && world.size != size || world.devices.contains_key(&rank) {
            return invalid(format!("rank {rank} of {size}, where {:?} of {} are", world.devices.keys(), world.size));
        }
        if let Some((other, _)) = world.devices.iter().find(|(_, other)| **other == device) {
            return Err((
                INVALID_USAGE,
                format!("duplicate GPU: rank {rank} and rank {other} both on device {device}"),
            ));
        }
        world.size = size;
        world.devices.insert(rank, device);
        self.counters.joined += 1;
        self.comms.insert(handle, Comm { id, rank, size, context, pending: VecDeque::new(), is_finalized: false });
        Ok(handle)
    }

    /// The end of a communicator with this handle.
    pub(crate) fn comm(&mut self, handle: usize) -> Result<&mut Comm, (Code, String)> {
        self.comms.get_mut(&handle).ok_or_else(|| (INVALID_ARGUMENT, "no communicator".to_owned()))
    }

    fn has_all(&self, comm: &Comm) -> bool {
        self.worlds.get(&comm.id).is_some_and(|world| world.devices.len() == comm.size)
    }

    /// Adds a transfer to the group of this thread.
    pub(crate) fn add(&mut self, name: &str, transfer: Transfer) -> Status {
        let Transfer { comm: handle, peer, address, len, stream, .. } = transfer;
        let rank = self.comm(handle)?.rank;
        self.fails(name, rank)?;
        let cuda = Cuda::get().map_err(of_cuda)?;
        let Some(comm) = self.comms.get(&handle) else { return invalid("no communicator") };
        if !self.has_all(comm) || comm.is_finalized {
            return Err((INVALID_USAGE, "the communicator is not ready".to_owned()));
        }
        if peer >= comm.size || peer == comm.rank {
            return invalid(format!("rank {} and peer {peer} of {}", comm.rank, comm.size));
        }
        cuda.check_stream(stream, comm.context).or_else(invalid)?;
        cuda.within(comm.context, || cuda.check_memory(address, len)).or_else(invalid)?;
        GROUP.with_borrow_mut(|(depth, transfers)| {
            if *depth == 0 {
                return Err((INVALID_USAGE, "a transfer outside of a group".to_owned()));
            }
            transfers.push(transfer);
            Ok(())
        })
    }

    /// Ends a group: the last one lets its transfers begin.
    pub(crate) fn end_group(&mut self) -> Status {
        let taken = GROUP.with_borrow_mut(|(depth, transfers)| {
            *depth = depth.checked_sub(1)?;
            Some(if *depth == 0 { std::mem::take(transfers) } else { vec![] })
        });
        let Some(transfers) = taken else { return Err((INVALID_USAGE, "the end of no group".to_owned())) };
        let Some(first) = transfers.first() else { return Ok(()) };
        let rank = self.comm(first.comm)?.rank;
        self.fails("ncclGroupEnd", rank)?;
        self.counters.groups += 1;
        transfers.into_iter().try_for_each(|transfer| self.begin(transfer))
    }

    fn begin(&mut self, transfer: Transfer) -> Status {
        let Transfer { comm: handle, is_sent, peer, address, len, stream } = transfer;
        let cuda = Cuda::get().map_err(of_cuda)?;
        let comm = self.comm(handle)?;
        if !is_sent {
            comm.pending.push_back(transfer);
            return Ok(());
        }
        let (id, rank, context) = (comm.id, comm.rank, comm.context);
        let read = || cuda.sync(stream).and_then(|()| cuda.read(address, len));
        let bytes = cuda.within(context, read).map_err(of_cuda)?;
        if let Some(world) = self.worlds.get_mut(&id) {
            world.messages.entry((rank, peer)).or_default().push_back(bytes);
        }
        Ok(())
    }

    /// Lets what was begun go on; whether it is done.
    pub(crate) fn progress(&mut self, handle: usize) -> Result<bool, (Code, String)> {
        let rank = self.comm(handle)?.rank;
        self.fails("async", rank)?;
        let cuda = Cuda::get().map_err(of_cuda)?;
        let Some(comm) = self.comms.get(&handle) else { return invalid("no communicator") };
        if !self.has_all(comm) {
            return Ok(false);
        }
        let (Some(comm), worlds) = (self.comms.get_mut(&handle), &mut self.worlds) else { return Ok(true) };
        let Some(world) = worlds.get_mut(&comm.id) else { return Ok(true) };
        // Messages of one peer match its receives in their order.
        for transfer in std::mem::take(&mut comm.pending) {
            let waits = comm.pending.iter().any(|other| other.peer == transfer.peer);
            let queue = world.messages.get_mut(&(transfer.peer, comm.rank));
            let Some(bytes) = queue.filter(|_| !waits).and_then(VecDeque::pop_front) else {
                comm.pending.push_back(transfer);
                continue;
            };
            if bytes.len() != transfer.len {
                let Transfer { peer, len, .. } = transfer;
                return invalid(format!("rank {peer} sends {} bytes, rank {} receives {len}", bytes.len(), comm.rank));
            }
            self.counters.messages += 1;
            self.counters.bytes += bytes.len() as u64;
            let write = || cuda.write(transfer.address, &bytes, transfer.stream);
            cuda.within(comm.context, write).map_err(of_cuda)?;
        }
        Ok(comm.pending.is_empty())
    }

    pub(crate) fn finalize(&mut self, handle: usize) -> Status {
        let rank = self.comm(handle)?.rank;
        self.fails("ncclCommFinalize", rank)?;
        self.comm(handle)?.is_finalized = true;
        Ok(())
    }

    /// Frees an end that is finalized, or that is aborted.
    pub(crate) fn free(&mut self, handle: usize, is_aborted: bool) -> Status {
        let comm = self.comm(handle)?;
        if !is_aborted && (!comm.is_finalized || !comm.pending.is_empty()) {
            return Err((INVALID_USAGE, "a communicator that is not finalized is destroyed".to_owned()));
        }
        self.comms.remove(&handle);
        *(if is_aborted { &mut self.counters.aborted } else { &mut self.counters.destroyed }) += 1;
        Ok(())
    }
}

/// Begins a group of this thread.
pub(crate) fn start_group() {
    GROUP.with_borrow_mut(|(depth, _)| *depth += 1);
}
