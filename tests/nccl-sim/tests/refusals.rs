//! Calls that NCCL would not survive: each is refused, with a code and with words, and leaves the others as they were.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;

use libloading::Library;
use retape_runtime::{DeviceBuffer, Gpu};

const IN_PROGRESS: u32 = 7;
const INVALID_ARGUMENT: u32 = 4;
const INVALID_USAGE: u32 = 5;

/// `ncclUint8`.
const BYTE: c_int = 1;

/// `ncclFloat32`.
const FLOAT: c_int = 7;

type Id = [u8; 128];

/// An id, passed by value.
#[repr(C)]
struct UniqueId(Id);

/// The head of a configuration.
#[repr(C)]
#[derive(Clone, Copy)]
struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
}

const CONFIG: Config = Config { size: size_of::<Config>(), magic: 0xcafe_beef, version: 22_000, blocking: 0 };

/// The stand-in, as a program finds it.
struct Nccl(Library);

/// A send or a receive.
#[derive(Clone, Copy)]
struct Transfer {
    is_sent: bool,
    address: u64,
    len: usize,
    dtype: c_int,
    peer: c_int,
    comm: usize,
    stream: usize,
}

impl Nccl {
    fn open() -> Nccl {
        retape_cuda_sim::driver::install();
        retape_nccl_sim::install();
        // SAFETY: the library is open already, and has no initialisers.
        Nccl(unsafe { Library::new("libnccl.so.2") }.unwrap())
    }

    /// A function of the library.
    ///
    /// # Safety
    ///
    /// `F` is the function's type.
    unsafe fn function<F: Copy>(&self, name: &str) -> F {
        // SAFETY: the caller's promise; the library stays open.
        unsafe { *self.0.get::<F>(name).unwrap() }
    }

    /// Calls a function of a communicator, or of an address, or of nothing.
    fn of(&self, name: &str, comm: usize) -> u32 {
        // SAFETY: the functions that are called so take a number, an address (all are null here), or nothing: an argument that
        // nobody reads is none in the calling convention of C.
        let function = unsafe { self.function::<unsafe extern "C" fn(usize) -> u32>(name) };
        // SAFETY: the stand-in checks handles.
        unsafe { function(comm) }
    }

    /// The words on the last error of this thread.
    fn words(&self) -> String {
        // SAFETY: the type is that of the function, which gives a text that ends with a zero.
        unsafe {
            let function = self.function::<unsafe extern "C" fn(usize) -> *const c_char>("ncclGetLastError");
            CStr::from_ptr(function(0)).to_string_lossy().into_owned()
        }
    }

    fn id(&self) -> Id {
        let mut id = [0; 128];
        // SAFETY: the type is that of the function, which writes an id.
        unsafe { self.function::<unsafe extern "C" fn(*mut Id) -> u32>("ncclGetUniqueId")(&raw mut id) };
        id
    }

    fn join(&self, id: Id, rank: c_int, size: c_int, config: Option<&Config>) -> (u32, usize) {
        type Join = unsafe extern "C" fn(*mut usize, c_int, UniqueId, c_int, *const Config) -> u32;
        let config = config.map_or(std::ptr::null(), std::ptr::from_ref);
        let mut comm = 0;
        // SAFETY: the type is that of the function, which reads a configuration, if there is one, and writes a handle.
        let code =
            unsafe { self.function::<Join>("ncclCommInitRankConfig")(&raw mut comm, size, UniqueId(id), rank, config) };
        (code, comm)
    }

    /// The code of the question, and the state that it tells.
    fn state(&self, comm: usize) -> (u32, u32) {
        let mut state = 99;
        // SAFETY: the type is that of the function, which writes a code.
        let code = unsafe {
            self.function::<unsafe extern "C" fn(usize, *mut u32) -> u32>("ncclCommGetAsyncError")(comm, &raw mut state)
        };
        (code, state)
    }

    fn transfer(&self, transfer: Transfer) -> u32 {
        type Move = unsafe extern "C" fn(u64, usize, c_int, c_int, usize, usize) -> u32;
        let Transfer { is_sent, address, len, dtype, peer, comm, stream } = transfer;
        let name = if is_sent { "ncclSend" } else { "ncclRecv" };
        // SAFETY: the type is that of both functions; the stand-in checks handles and addresses.
        unsafe { self.function::<Move>(name)(address, len, dtype, peer, comm, stream) }
    }

    /// A transfer in a group of its own.
    fn alone(&self, transfer: Transfer) -> u32 {
        self.of("ncclGroupStart", 0);
        let code = self.transfer(transfer);
        assert_eq!(self.of("ncclGroupEnd", 0), IN_PROGRESS);
        code
    }

    /// A call was refused with a code and with words.
    #[track_caller]
    fn refused(&self, code: u32, wanted: u32, words: &str) {
        let found = self.words();
        assert!(code == wanted && found.contains(words), "{code} and `{found}`, not {wanted} and `{words}`");
    }
}

fn gpu(ordinal: u32) -> Arc<Gpu> {
    let gpu = Gpu::open(ordinal).unwrap();
    gpu.set_code_folder(None);
    // Each buffer is an allocation of its own, so that its end is known.
    gpu.set_exact_memory(true);
    gpu
}

/// Two workers, each with a GPU and 16 bytes there.
struct Pair {
    nccl: Nccl,
    id: Id,
    gpus: [Arc<Gpu>; 2],
    buffers: [DeviceBuffer; 2],
    comms: [usize; 2],
}

impl Pair {
    fn new() -> Pair {
        let nccl = Nccl::open();
        let gpus = [gpu(0), gpu(1)];
        let id = nccl.id();
        let comms = [0, 1].map(|rank| {
            let (code, comm) = gpus[rank].with_stream(|_| nccl.join(id, rank as c_int, 2, Some(&CONFIG))).unwrap();
            assert_eq!(code, IN_PROGRESS);
            comm
        });
        let buffers = [0, 1].map(|rank| DeviceBuffer::from_bytes(&gpus[rank], &[1 + rank as u8; 16]).unwrap());
        Pair { nccl, id, gpus, buffers, comms }
    }

    fn stream(&self, rank: usize) -> usize {
        self.gpus[rank].with_stream(|stream| stream as usize).unwrap()
    }

    /// The transfer of all bytes of a worker to, or from, the other one.
    fn whole(&self, rank: usize) -> Transfer {
        let (comm, stream) = (self.comms[rank], self.stream(rank));
        let (address, len) = (self.buffers[rank].address(), 16);
        Transfer { is_sent: rank == 0, address, len, dtype: BYTE, peer: 1 - rank as c_int, comm, stream }
    }
}

#[test]
fn a_null_pointer_is_refused() {
    let nccl = Nccl::open();
    for name in ["ncclGetVersion", "ncclGetUniqueId"] {
        nccl.refused(nccl.of(name, 0), INVALID_ARGUMENT, "a null pointer");
    }
}

#[test]
fn configurations_that_wait_or_are_none_are_refused() {
    let nccl = Nccl::open();
    let id = nccl.id();
    let waits = Config { blocking: 1, ..CONFIG };
    let strange = Config { magic: 0, ..CONFIG };
    let old = Config { version: 21_000, ..CONFIG };
    let short = Config { size: 8, ..CONFIG };
    for config in [None, Some(&waits), Some(&strange), Some(&old), Some(&short)] {
        let (code, _) = nccl.join(id, 0, 2, config);
        nccl.refused(code, INVALID_ARGUMENT, "the stand-in serves configurations that do not wait");
    }
}

#[test]
fn workers_that_do_not_fit_the_others_are_refused() {
    let Pair { nccl, id, gpus, .. } = Pair::new();
    let join = |id, rank, size, ordinal: usize| {
        gpus[ordinal].with_stream(|_| nccl.join(id, rank, size, Some(&CONFIG)).0).unwrap()
    };
    nccl.refused(join([7; 128], 0, 2, 0), INVALID_ARGUMENT, "an id that ncclGetUniqueId did not make");
    nccl.refused(join(id, 1, 2, 1), INVALID_ARGUMENT, "rank 1 of 2, where [0, 1] of 2 are");
    let id = nccl.id();
    nccl.refused(join(id, 2, 2, 0), INVALID_ARGUMENT, "rank 2 of 2, where [] of 0 are");
    assert_eq!(join(id, 0, 2, 0), IN_PROGRESS);
    nccl.refused(join(id, 1, 3, 1), INVALID_ARGUMENT, "rank 1 of 3, where [0] of 2 are");
    nccl.refused(join(id, 1, 2, 0), INVALID_USAGE, "duplicate GPU: rank 1 and rank 0 both on device 0");
    // A thread without a device of its own.
    let code = std::thread::scope(|scope| {
        let joins = || (nccl.join(id, 1, 2, Some(&CONFIG)).0, nccl.words());
        scope.spawn(joins).join().unwrap()
    });
    assert!(code.0 == 1 && code.1.contains("no current device"), "{code:?}");
    assert_eq!(join(id, 1, 2, 1), IN_PROGRESS);
}

#[test]
fn transfers_that_cannot_be_are_refused() {
    let pair = Pair::new();
    let (nccl, whole) = (&pair.nccl, pair.whole(0));
    let refused = |transfer: Transfer, words: &str| {
        for is_sent in [true, false] {
            nccl.refused(nccl.alone(Transfer { is_sent, ..transfer }), INVALID_ARGUMENT, words);
        }
    };
    refused(Transfer { dtype: FLOAT, ..whole }, "elements of type 7, where bytes are moved");
    refused(Transfer { comm: 5, ..whole }, "no communicator");
    refused(Transfer { peer: 0, ..whole }, "rank 0 and peer 0 of 2");
    refused(Transfer { peer: 2, ..whole }, "rank 0 and peer 2 of 2");
    refused(Transfer { peer: -1, ..whole }, "rank 0 and peer ");
    refused(Transfer { stream: pair.stream(1), ..whole }, "the stream is one of another device");
    refused(Transfer { stream: 5, ..whole }, "no stream");
    refused(Transfer { len: 1 << 40, ..whole }, "are no memory of a device");
    refused(Transfer { address: 5, ..whole }, "16 bytes at 0x5 are no memory of a device");
    // The pair is as good as before.
    assert_eq!([nccl.alone(whole), nccl.alone(pair.whole(1))], [0, 0]);
    assert_eq!(nccl.state(pair.comms[1]), (0, 0));
    assert_eq!(pair.buffers[1].to_host().unwrap().bytes(), [1; 16]);
}

#[test]
fn transfers_of_communicators_that_are_not_ready_are_refused() {
    let pair = Pair::new();
    let nccl = &pair.nccl;
    let (_, early) = pair.gpus[0].with_stream(|_| nccl.join(nccl.id(), 0, 2, Some(&CONFIG))).unwrap();
    assert_eq!(nccl.state(early), (0, IN_PROGRESS));
    assert_eq!(nccl.of("ncclCommFinalize", pair.comms[0]), IN_PROGRESS);
    for comm in [early, pair.comms[0]] {
        let transfer = Transfer { comm, ..pair.whole(0) };
        nccl.refused(nccl.alone(transfer), INVALID_USAGE, "the communicator is not ready");
    }
}

#[test]
fn groups_that_do_not_begin_are_refused() {
    let pair = Pair::new();
    let nccl = &pair.nccl;
    nccl.refused(nccl.of("ncclGroupEnd", 0), INVALID_USAGE, "the end of no group");
    nccl.refused(nccl.transfer(pair.whole(0)), INVALID_USAGE, "a transfer outside of a group");
}

#[test]
fn messages_of_another_length_are_refused() {
    let pair = Pair::new();
    let nccl = &pair.nccl;
    assert_eq!(nccl.alone(pair.whole(0)), 0);
    assert_eq!(nccl.alone(Transfer { len: 8, ..pair.whole(1) }), 0);
    let (asked, state) = nccl.state(pair.comms[1]);
    assert_eq!(asked, 0);
    nccl.refused(state, INVALID_ARGUMENT, "rank 0 sends 16 bytes, rank 1 receives 8");
}

#[test]
fn ends_that_come_too_early_or_twice_are_refused() {
    let pair = Pair::new();
    let nccl = &pair.nccl;
    let early = "a communicator that is not finalized is destroyed";
    nccl.refused(nccl.of("ncclCommDestroy", pair.comms[0]), INVALID_USAGE, early);
    // A receive is still to come.
    assert_eq!(nccl.alone(pair.whole(1)), 0);
    assert_eq!(nccl.of("ncclCommFinalize", pair.comms[1]), IN_PROGRESS);
    nccl.refused(nccl.of("ncclCommDestroy", pair.comms[1]), INVALID_USAGE, early);
    assert_eq!(nccl.alone(pair.whole(0)), 0);
    assert_eq!(nccl.state(pair.comms[1]), (0, 0));
    assert_eq!(nccl.of("ncclCommDestroy", pair.comms[1]), 0);
    assert_eq!(nccl.of("ncclCommAbort", pair.comms[0]), 0);
    for comm in pair.comms {
        for name in ["ncclCommFinalize", "ncclCommDestroy", "ncclCommAbort"] {
            nccl.refused(nccl.of(name, comm), INVALID_ARGUMENT, "no communicator");
        }
        nccl.refused(nccl.state(comm).1, INVALID_ARGUMENT, "no communicator");
    }
}
