//! The functions of NCCL, each looked up by name in the library that is found at run time, and communicators.
//!
//! Types are those of the bindings of `cudarc`, except that codes are plain numbers, since a library may be newer than the
//! bindings. Loading is not left to `cudarc`, which panics where the library or a function is missing, and takes no path.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr::null_mut;

use cudarc::nccl::sys;

/// Room for the id of a communicator.
pub(crate) const ID: usize = 128;

/// The oldest version whose configuration has the layout of [`Config`].
const OLDEST: u32 = 21_800;

/// Codes of the library.
const SUCCESS: u32 = 0;
const IN_PROGRESS: u32 = 7;

/// `ncclUint8`.
const BYTE: sys::ncclDataType_t = sys::ncclDataType_t::ncclUint8;

type Comm = sys::ncclComm_t;
type Stream = sys::cudaStream_t;

/// How a communicator behaves. Later versions of the library take this layout by its size and version.
#[repr(C)]
struct Config {
    size: usize,
    magic: u32,
    version: u32,
    /// Calls do not wait for other workers, if this is 0.
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
}

impl Config {
    /// Calls return at once, so that a worker can look after the others while it waits.
    fn without_waiting() -> Config {
        const UNSET: c_int = c_int::MIN;
        Config {
            size: size_of::<Config>(),
            magic: 0xcafe_beef,
            version: OLDEST,
            blocking: 0,
            cga_cluster_size: UNSET,
            min_ctas: UNSET,
            max_ctas: UNSET,
            net_name: std::ptr::null(),
            split_share: UNSET,
        }
    }
}

/// Declares the functions: the name in the library, the binding that has the same type, and the parameters.
macro_rules! functions {
    ($($name:ident $(= $like:ident)? ($($arg:ty),*);)*) => {
        /// The functions of the library.
        #[allow(non_snake_case, reason = "functions are as the library has them")]
        struct Functions {
            $($name: unsafe extern "C" fn($($arg),*) -> u32,)*
            ncclGetErrorString: unsafe extern "C" fn(u32) -> *const c_char,
            ncclGetLastError: unsafe extern "C" fn(Comm) -> *const c_char,
        }

        $(
            #[allow(non_snake_case, reason = "functions are as the library has them")]
            mod $name {
                #[allow(unused_imports, reason = "some functions have numbers only")]
                use super::*;

                #[allow(dead_code, reason = "some functions have no binding of their type")]
                type Binding = unsafe fn($($arg),*) -> sys::ncclResult_t;
                $(const _: Binding = sys::$like;)?
            }
        )*
        const _: unsafe fn(Comm) -> *const c_char = sys::ncclGetLastError;

        impl Functions {
            fn of(library: &libloading::Library) -> Result<Functions, String> {
                // SAFETY: the types are those of the library's header, except that codes are numbers of the same size.
                unsafe {
                    Ok(Functions {
                        $($name: symbol(library, stringify!($name))?,)*
                        ncclGetErrorString: symbol(library, "ncclGetErrorString")?,
                        ncclGetLastError: symbol(library, "ncclGetLastError")?,
                    })
                }
            }
        }
    };
}

functions! {
    ncclGetVersion = ncclGetVersion(*mut c_int);
    ncclGetUniqueId = ncclGetUniqueId(*mut sys::ncclUniqueId);
    // The configuration of the bindings is that of one version.
    ncclCommInitRankConfig(*mut Comm, c_int, sys::ncclUniqueId, c_int, *mut Config);
    // It writes a code, which may be newer than the bindings.
    ncclCommGetAsyncError(Comm, *mut u32);
    ncclCommFinalize = ncclCommFinalize(Comm);
    ncclCommDestroy = ncclCommDestroy(Comm);
    ncclCommAbort = ncclCommAbort(Comm);
    ncclGroupStart = ncclGroupStart();
    ncclGroupEnd = ncclGroupEnd();
    ncclSend = ncclSend(*const c_void, usize, sys::ncclDataType_t, c_int, Comm, Stream);
    ncclRecv = ncclRecv(*mut c_void, usize, sys::ncclDataType_t, c_int, Comm, Stream);
}

/// The address of a function.
///
/// # Safety
///
/// `F` is the function's type.
unsafe fn symbol<F: Copy>(library: &libloading::Library, name: &str) -> Result<F, String> {
    // SAFETY: the caller's promise; the library stays open, so the address stays valid.
    unsafe { library.get::<F>(name) }.map(|symbol| *symbol).map_err(|_| format!("it has no function {name}"))
}

/// The library, which is open until the process ends.
pub(crate) struct Library {
    functions: Functions,
    version: u32,
    _library: ManuallyDrop<libloading::Library>,
}

/// Bytes on a GPU that go to another worker, or come from it.
pub(super) struct Piece {
    pub(super) peer: usize,
    pub(super) is_sent: bool,
    pub(super) address: u64,
    pub(super) len: usize,
}

/// One worker's end of a communicator, until it is destroyed or aborted.
pub(super) struct Communicator(Comm);

// SAFETY: the library allows any thread to make a call, one at a time; the owner holds a lock.
unsafe impl Send for Communicator {}

impl Library {
    /// Opens the first of several libraries that can be.
    pub(super) fn open(names: &[String]) -> Result<Library, String> {
        let mut errors = vec![];
        for name in names {
            // SAFETY: the library is NCCL by its name, or by the word of the user, and its initialisers need nothing.
            match unsafe { libloading::Library::new(name) } {
                Ok(library) => return Library::of(library).map_err(|error| format!("{name}: {error}")),
                Err(error) => errors.push(reason(&error)),
            }
        }
        Err(format!("NCCL is not found: {}", errors.join("; ")))
    }

    fn of(library: libloading::Library) -> Result<Library, String> {
        let functions = Functions::of(&library)?;
        let mut version = 0;
        // SAFETY: the function may be called at any time, and writes one number.
        let code = unsafe { (functions.ncclGetVersion)(&raw mut version) };
        let version = u32::try_from(version).unwrap_or(0);
        if code != SUCCESS || version < OLDEST {
            return Err(format!("NCCL {} is older than {}, which is needed", dotted(version), dotted(OLDEST)));
        }
        Ok(Library { functions, version, _library: ManuallyDrop::new(library) })
    }

    /// The version, such as `2.22.3`.
    pub(crate) fn version(&self) -> String {
        dotted(self.version)
    }

    /// A new id, under which the workers of one communicator find each other.
    pub(crate) fn new_id(&self) -> Result<[u8; ID], String> {
        let mut id = sys::ncclUniqueId { internal: [0; ID] };
        // SAFETY: the function writes one id.
        let code = unsafe { (self.functions.ncclGetUniqueId)(&raw mut id) };
        self.check("ncclGetUniqueId", code, None)?;
        Ok(id.internal.map(|byte| byte as u8))
    }

    /// Begins to join the communicator of an id, for the GPU whose context is the current one.
    pub(super) fn join(&self, id: [u8; ID], rank: usize, size: usize) -> Result<Communicator, String> {
        let [n, rank] = [size, rank].map(number);
        let id = sys::ncclUniqueId { internal: id.map(|byte| byte as c_char) };
        let (mut config, mut comm) = (Config::without_waiting(), null_mut());
        // SAFETY: the handle is there to be written, and the configuration is read during the call.
        let code = unsafe { (self.functions.ncclCommInitRankConfig)(&raw mut comm, n?, id, rank?, &raw mut config) };
        self.check("ncclCommInitRankConfig", code, None)?;
        Ok(Communicator(comm))
    }

    /// Whether what was begun on a communicator is done.
    pub(super) fn is_done(&self, comm: &Communicator, call: &str) -> Result<bool, String> {
        let mut state = SUCCESS;
        // SAFETY: the communicator is alive; the function writes one code.
        let code = unsafe { (self.functions.ncclCommGetAsyncError)(comm.0, &raw mut state) };
        self.check("ncclCommGetAsyncError", code, Some(comm))?;
        self.check(call, state, Some(comm))?;
        Ok(state != IN_PROGRESS)
    }

    /// Begins to queue transfers on a stream.
    ///
    /// # Safety
    ///
    /// The stream is one of the communicator's GPU, and the pieces lie in memory of that GPU that belongs to the transfers
    /// until the stream has passed them.
    pub(super) unsafe fn queue(
        &self,
        comm: &Communicator,
        stream: *mut c_void,
        pieces: &[Piece],
    ) -> Result<(), String> {
        // SAFETY: a group takes calls of this thread until its end, which follows below.
        self.check("ncclGroupStart", unsafe { (self.functions.ncclGroupStart)() }, None)?;
        // SAFETY: as the caller says.
        let queued = pieces.iter().try_for_each(|piece| unsafe { self.queue_one(comm, stream.cast(), piece) });
        // SAFETY: the group was begun by this thread.
        let code = unsafe { (self.functions.ncclGroupEnd)() };
        queued?;
        self.check("ncclGroupEnd", code, Some(comm))
    }

    /// Adds a transfer to the group.
    ///
    /// # Safety
    ///
    /// As [`queue`](Library::queue).
    unsafe fn queue_one(&self, comm: &Communicator, stream: Stream, piece: &Piece) -> Result<(), String> {
        let Piece { peer, is_sent, address, len } = *piece;
        let (peer, memory) = (number(peer)?, address as usize as *mut c_void);
        if is_sent {
            // SAFETY: as the caller says.
            let code = unsafe { (self.functions.ncclSend)(memory, len, BYTE, peer, comm.0, stream) };
            return self.check("ncclSend", code, Some(comm));
        }
        // SAFETY: as the caller says.
        let code = unsafe { (self.functions.ncclRecv)(memory, len, BYTE, peer, comm.0, stream) };
        self.check("ncclRecv", code, Some(comm))
    }

    /// Begins to end a communicator: queued work is done first.
    pub(super) fn finalize(&self, comm: &Communicator) -> Result<(), String> {
        // SAFETY: the communicator is alive, and nothing is queued on it any more.
        let code = unsafe { (self.functions.ncclCommFinalize)(comm.0) };
        self.check("ncclCommFinalize", code, Some(comm))
    }

    /// Frees a communicator that was finalized. If the library refuses, its memory is lost, and nothing else.
    pub(super) fn destroy(&self, comm: Communicator) {
        // SAFETY: the communicator is alive, and not used again.
        let _ = unsafe { (self.functions.ncclCommDestroy)(comm.0) };
    }

    /// Frees a communicator, and ends what waits for other workers. If the library refuses, its memory is lost, and nothing
    /// else.
    pub(super) fn abort(&self, comm: Communicator) {
        // SAFETY: the communicator is alive, and not used again.
        let _ = unsafe { (self.functions.ncclCommAbort)(comm.0) };
    }

    /// The error of a call, if it has one.
    fn check(&self, call: &str, code: u32, comm: Option<&Communicator>) -> Result<(), String> {
        if matches!(code, SUCCESS | IN_PROGRESS) {
            return Ok(());
        }
        // SAFETY: the function knows its own codes, and has a text for others; the text is the library's own.
        let text = unsafe { text((self.functions.ncclGetErrorString)(code)) };
        let comm = comm.map_or(null_mut(), |comm| comm.0);
        // SAFETY: the communicator is alive, or null, which stands for the last error of all; the text is the library's.
        let last = unsafe { text_of_last((self.functions.ncclGetLastError)(comm)) };
        Err(format!("{call} of NCCL {} failed: {text} ({code}){last}", self.version()))
    }
}

/// A number of workers, or of one.
fn number(n: usize) -> Result<c_int, String> {
    c_int::try_from(n).map_err(|_| format!("{n} workers are more than NCCL counts"))
}

/// A version as people write it: 22203 is 2.22.3.
fn dotted(version: u32) -> String {
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

/// The system's own words, if there are any.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// A text of the library.
///
/// # Safety
///
/// The pointer is null, or to a text that ends with a zero and is not changed meanwhile.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return "an unknown error".to_owned();
    }
    // SAFETY: as the caller says.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned()
}

/// More words on an error, if there are any.
///
/// # Safety
///
/// As [`text`].
unsafe fn text_of_last(last: *const c_char) -> String {
    if last.is_null() {
        return String::new();
    }
    // SAFETY: as the caller says.
    match unsafe { text(last) } {
        last if last.is_empty() => last,
        last => format!(", {last}"),
    }
}
