//! The C functions of NCCL, and some for tests.
//!
//! Invariant: pointers are null, or valid for what the function does with them, as the manual of NCCL demands.

#![allow(non_snake_case, reason = "the names of the C interface")]

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};

use crate::state::{
    Code, Counters, Failure, ID, IN_PROGRESS, INVALID_ARGUMENT, SUCCESS, State, Status, Transfer, start_group,
    with_state,
};

/// `ncclUint8`.
const BYTE: c_int = 1;

thread_local! {
    /// The words on the last error.
    static LAST: RefCell<CString> = RefCell::default();
}

/// The head of a configuration, up to what the stand-in looks at.
#[repr(C)]
struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
}

/// A place for a result.
#[repr(transparent)]
struct Out<T>(*mut T);

impl<T> Out<T> {
    fn set(self, value: T) -> Status {
        if self.0.is_null() {
            return Err((INVALID_ARGUMENT, "a null pointer".to_owned()));
        }
        // SAFETY: by the invariant of this file.
        unsafe { self.0.write(value) };
        Ok(())
    }
}

/// Runs a function: its code gets out, and its words are kept.
fn call(run: impl FnOnce(&mut State) -> Status) -> Code {
    code(with_state(run))
}

fn code(status: Status) -> Code {
    let Err((code, text)) = status else { return SUCCESS };
    LAST.with_borrow_mut(|last| *last = CString::new(text).unwrap_or_default());
    code
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetVersion(version: Out<c_int>) -> Code {
    call(|state| version.set(state.version))
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetUniqueId(id: Out<[u8; ID]>) -> Code {
    call(|state| {
        state.fails("ncclGetUniqueId", 0)?;
        id.set(state.new_id())
    })
}

/// An id, passed by value.
#[repr(C)]
struct UniqueId([u8; ID]);

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitRankConfig(
    comm: Out<usize>,
    size: c_int,
    id: UniqueId,
    rank: c_int,
    config: *const Config,
) -> Code {
    let joined = call(|state| {
        // SAFETY: by the invariant of this file.
        let config = unsafe { config.as_ref() };
        let is_known = |config: &Config| {
            config.magic == 0xcafe_beef && config.version >= 21_700 && config.size >= size_of::<Config>()
        };
        if !config.is_some_and(|config| is_known(config) && config.blocking == 0) {
            return Err((INVALID_ARGUMENT, "the stand-in serves configurations that do not wait".to_owned()));
        }
        let [rank, size] = [rank, size].map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        comm.set(state.join(&id.0, rank, size)?)
    });
    if joined == SUCCESS { IN_PROGRESS } else { joined }
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommGetAsyncError(comm: usize, to: Out<Code>) -> Code {
    let state = with_state(|state| state.progress(comm));
    let state = match state {
        Ok(true) => SUCCESS,
        Ok(false) => IN_PROGRESS,
        Err(error) => code(Err(error)),
    };
    code(to.set(state))
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommFinalize(comm: usize) -> Code {
    let finalized = call(|state| state.finalize(comm));
    if finalized == SUCCESS { IN_PROGRESS } else { finalized }
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommDestroy(comm: usize) -> Code {
    call(|state| state.free(comm, false))
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommAbort(comm: usize) -> Code {
    call(|state| state.free(comm, true))
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupStart() -> Code {
    start_group();
    SUCCESS
}

/// Also where all is done at once, what was begun is asked for later.
#[unsafe(no_mangle)]
extern "C" fn ncclGroupEnd() -> Code {
    let ended = call(State::end_group);
    if ended == SUCCESS { IN_PROGRESS } else { ended }
}

fn transfer(name: &str, dtype: c_int, peer: c_int, transfer: Transfer) -> Code {
    call(|state| {
        if dtype != BYTE {
            return Err((INVALID_ARGUMENT, format!("elements of type {dtype}, where bytes are moved")));
        }
        let peer = usize::try_from(peer).unwrap_or(usize::MAX);
        state.add(name, Transfer { peer, ..transfer })
    })
}

#[unsafe(no_mangle)]
extern "C" fn ncclSend(address: u64, len: usize, dtype: c_int, peer: c_int, comm: usize, stream: usize) -> Code {
    transfer("ncclSend", dtype, peer, Transfer { comm, is_sent: true, peer: 0, address, len, stream })
}

#[unsafe(no_mangle)]
extern "C" fn ncclRecv(address: u64, len: usize, dtype: c_int, peer: c_int, comm: usize, stream: usize) -> Code {
    transfer("ncclRecv", dtype, peer, Transfer { comm, is_sent: false, peer: 0, address, len, stream })
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(code: Code) -> *const c_char {
    let text = match code {
        0 => c"no error",
        1 => c"unhandled cuda error",
        2 => c"unhandled system error",
        3 => c"internal error",
        4 => c"invalid argument",
        5 => c"invalid usage",
        6 => c"remote process exited or there was a network error",
        7 => c"NCCL operation in progress",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetLastError(_comm: usize) -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
}

#[unsafe(no_mangle)]
extern "C" fn retape_nccl_reset() {
    with_state(|state| {
        state.failures.clear();
        state.counters = Counters::default();
        state.version = 22_203;
    });
}

#[unsafe(no_mangle)]
extern "C" fn retape_nccl_set_version(version: c_int) {
    with_state(|state| state.version = version);
}

#[unsafe(no_mangle)]
extern "C" fn retape_nccl_fail(name: *const c_char, rank: usize, skip: u32, code: Code) {
    // SAFETY: by the invariant of this file, it is a text that ends with a zero.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    with_state(|state| state.failures.push(Failure { name, rank, skip, code }));
}

#[unsafe(no_mangle)]
extern "C" fn retape_nccl_counters(to: Out<Counters>) {
    let counters = with_state(|state| Counters { alive: state.comms.len() as u64, ..state.counters });
    code(to.set(counters));
}
