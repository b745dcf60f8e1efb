//! The functions of a library of MPI, and the rank, size and host that they report.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use libloading::os::unix::{self, RTLD_GLOBAL, RTLD_NOW};
use retape_runtime::lock;

/// How long a launcher may take to read the last words of a worker.
pub(crate) const LAST_WORDS: std::time::Duration = std::time::Duration::from_millis(300);

/// Whether a thread of this process ends the job.
static IS_ABORTING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread does.
    static ABORTS: Cell<bool> = const { Cell::new(false) };
}

/// A job that is being aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Abortion {
    /// By this thread.
    Here,
    /// By another thread of this process.
    Elsewhere,
}

/// Whether this process is ending the job.
pub(crate) fn abortion() -> Option<Abortion> {
    let place = if ABORTS.get() { Abortion::Here } else { Abortion::Elsewhere };
    IS_ABORTING.load(Ordering::Acquire).then_some(place)
}

/// `MPI_THREAD_SERIALIZED`: any thread may call, one at a time.
const SERIALIZED: c_int = 2;

/// Room for each text that MPI gives, in all libraries.
const TEXT: usize = 8192;

/// An object of MPI: a pointer in Open MPI, a number in MPICH.
pub(super) trait Handle: Copy + Send + Sync + 'static {
    /// The value of a variable before MPI writes to it.
    const EMPTY: Self;
}

/// The address of an object of Open MPI.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Pointer(*mut c_void);

// SAFETY: the address is only ever given back to the library, one call at a time, and the library allows any thread to
// make the call.
unsafe impl Send for Pointer {}
// SAFETY: as above; nothing is read through a shared reference but the address itself.
unsafe impl Sync for Pointer {}

impl Handle for Pointer {
    const EMPTY: Pointer = Pointer(std::ptr::null_mut());
}

impl Handle for c_int {
    const EMPTY: c_int = 0;
}

type Init = unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int) -> c_int;
type Ask = unsafe extern "C" fn(*mut c_int) -> c_int;
type AskText = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
type OfComm<H> = unsafe extern "C" fn(H, *mut c_int) -> c_int;
type OnRequest<H> = unsafe extern "C" fn(*mut H) -> c_int;

/// The functions, in the binary interface whose handles are `H`.
pub(super) struct Binding<H: Handle> {
    pub(super) comm: H,
    pub(super) byte: H,
    errors_return: H,
    /// `MPI_STATUS_IGNORE`.
    pub(super) no_status: usize,
    init_thread: Init,
    initialized: Ask,
    query_thread: Ask,
    comm_rank: OfComm<H>,
    comm_size: OfComm<H>,
    set_errhandler: unsafe extern "C" fn(H, H) -> c_int,
    pub(super) isend: unsafe extern "C" fn(*const c_void, c_int, H, c_int, c_int, H, *mut H) -> c_int,
    pub(super) irecv: unsafe extern "C" fn(*mut c_void, c_int, H, c_int, c_int, H, *mut H) -> c_int,
    pub(super) test: unsafe extern "C" fn(*mut H, *mut c_int, *mut c_void) -> c_int,
    pub(super) cancel: OnRequest<H>,
    error_string: unsafe extern "C" fn(c_int, *mut c_char, *mut c_int) -> c_int,
    processor_name: AskText,
    abort: unsafe extern "C" fn(H, c_int) -> c_int,
    finalize: unsafe extern "C" fn() -> c_int,
    calls: Mutex<()>,
    /// Whether this binding started MPI, and so ends it.
    is_owner: AtomicBool,
}

/// The libraries of which the binary interface is known, with their versions.
pub(super) enum Abi {
    OpenMpi(String),
    Mpich(String),
}

/// A library that is open, and stays so: MPI leaves threads and handlers behind.
pub(super) struct MpiLibrary(std::mem::ManuallyDrop<unix::Library>);

/// Opens the first of several libraries that can be, and says which.
pub(super) fn open(names: &[String]) -> Result<(MpiLibrary, String), String> {
    let mut errors = vec![];
    for name in names {
        // SAFETY: the library is one of MPI by its name, or by the word of the user, and its initialisers need nothing.
        // Its plug-ins look for its symbols among the global ones.
        match unsafe { unix::Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) } {
            Ok(library) => return Ok((MpiLibrary(std::mem::ManuallyDrop::new(library)), name.clone())),
            Err(error) => errors.push(reason(&error)),
        }
    }
    Err(errors.join("; "))
}

impl MpiLibrary {
    /// Which binary interface the library has.
    pub(super) fn abi(&self) -> Result<Abi, String> {
        // SAFETY: the type is that of `MPI_Get_library_version` in all libraries.
        let version: AskText = unsafe { self.symbol("MPI_Get_library_version") }?;
        // SAFETY: the text fits into `TEXT` bytes, and the function may be called at any time, before MPI starts as well.
        let text = text(|bytes, len| unsafe { version(bytes, len) }).unwrap_or_default();
        let first = text.lines().next().unwrap_or_default();
        let short = first.split(',').next().unwrap_or_default().replace('\t', " ");
        if text.starts_with("Open MPI") {
            return Ok(Abi::OpenMpi(short));
        }
        // Libraries that are built like MPICH have its handles.
        if ["MPICH", "MVAPICH", "Intel(R) MPI"].iter().any(|name| text.contains(name)) {
            return Ok(Abi::Mpich(
                short.replace("MPICH Version:", "MPICH").split_whitespace().collect::<Vec<_>>().join(" "),
            ));
        }
        Err(format!("a library of an unknown kind: `{short}`"))
    }

    /// The functions of Open MPI.
    pub(super) fn open_mpi(&self) -> Result<Binding<Pointer>, String> {
        let object = |name: &str| {
            // SAFETY: the symbols name objects of the library, of which only the addresses are taken.
            unsafe { self.symbol::<*mut c_void>(name) }.map(Pointer)
        };
        let [comm, byte, errors_return] =
            [object("ompi_mpi_comm_world")?, object("ompi_mpi_byte")?, object("ompi_mpi_errors_return")?];
        self.binding(comm, byte, errors_return, 0)
    }

    /// The functions of MPICH, whose handles are numbers that never change.
    pub(super) fn mpich(&self) -> Result<Binding<c_int>, String> {
        self.binding(0x4400_0000, 0x4c00_010d, 0x5400_0001, 1)
    }

    fn binding<H: Handle>(&self, comm: H, byte: H, errors_return: H, no_status: usize) -> Result<Binding<H>, String> {
        // SAFETY: the types are those of the standard's functions, with the handles of this library.
        unsafe {
            Ok(Binding {
                comm,
                byte,
                errors_return,
                no_status,
                init_thread: self.symbol("MPI_Init_thread")?,
                initialized: self.symbol("MPI_Initialized")?,
                query_thread: self.symbol("MPI_Query_thread")?,
                comm_rank: self.symbol("MPI_Comm_rank")?,
                comm_size: self.symbol("MPI_Comm_size")?,
                set_errhandler: self.symbol("MPI_Comm_set_errhandler")?,
                isend: self.symbol("MPI_Isend")?,
                irecv: self.symbol("MPI_Irecv")?,
                test: self.symbol("MPI_Test")?,
                cancel: self.symbol("MPI_Cancel")?,
                error_string: self.symbol("MPI_Error_string")?,
                processor_name: self.symbol("MPI_Get_processor_name")?,
                abort: self.symbol("MPI_Abort")?,
                finalize: self.symbol("MPI_Finalize")?,
                calls: Mutex::new(()),
                is_owner: AtomicBool::new(false),
            })
        }
    }

    /// The address of a symbol.
    ///
    /// # Safety
    ///
    /// `T` is the symbol's type if it is a function, or a pointer if it is an object.
    unsafe fn symbol<T: Copy>(&self, name: &str) -> Result<T, String> {
        // SAFETY: the caller's promise; the library stays open, so the address stays valid.
        unsafe { self.0.get::<T>(name) }
            .map(|symbol| *symbol)
            .map_err(|error| format!("{name} is missing: {}", reason(&error)))
    }
}

/// The system's own words, if there are any.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

impl<H: Handle> Binding<H> {
    /// Lets one thread at a time call the library.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        lock(&self.calls)
    }

    /// The error of a call, if it has one.
    pub(super) fn check(&self, code: c_int) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the text fits into `TEXT` bytes; the library knows its own codes, and refuses others.
        let text = text(|bytes, len| unsafe { (self.error_string)(code, bytes, len) });
        Err(text.unwrap_or_else(|| format!("error {code} of MPI")))
    }

    fn number(&self, call: impl FnOnce(*mut c_int) -> c_int) -> Result<c_int, String> {
        let mut number = 0;
        let code = call(&raw mut number);
        self.check(code)?;
        Ok(number)
    }

    /// Starts MPI, unless the program has done so.
    pub(super) fn init(&self) -> Result<(), String> {
        let _turn = self.turn();
        // SAFETY: the function may be called at any time, and writes one number.
        let level = if self.number(|n| unsafe { (self.initialized)(n) })? != 0 {
            // SAFETY: MPI has been started; the function writes one number.
            self.number(|n| unsafe { (self.query_thread)(n) })?
        } else {
            self.is_owner.store(true, Ordering::Relaxed);
            let none = std::ptr::null_mut();
            // SAFETY: the standard allows both pointers to the arguments of the program to be null.
            self.number(|n| unsafe { (self.init_thread)(none, none.cast(), SERIALIZED, n) })?
        };
        if level < SERIALIZED {
            return Err(format!("calls of several threads are not served (level {level}, {SERIALIZED} is needed)"));
        }
        // SAFETY: MPI has been started, and both handles are the library's own.
        self.check(unsafe { (self.set_errhandler)(self.comm, self.errors_return) })
    }

    /// The number of this process.
    pub(super) fn rank(&self) -> Result<usize, String> {
        let _turn = self.turn();
        // SAFETY: MPI has been started, the handle is the library's own; the function writes one number.
        let rank = self.number(|n| unsafe { (self.comm_rank)(self.comm, n) })?;
        usize::try_from(rank).map_err(|error| error.to_string())
    }

    /// The number of processes.
    pub(super) fn size(&self) -> Result<usize, String> {
        let _turn = self.turn();
        // SAFETY: MPI has been started, the handle is the library's own; the function writes one number.
        let size = self.number(|n| unsafe { (self.comm_size)(self.comm, n) })?;
        usize::try_from(size).map_err(|error| error.to_string())
    }

    /// The name of this machine.
    pub(super) fn host(&self) -> Option<String> {
        let _turn = self.turn();
        // SAFETY: MPI has been started; the text fits into `TEXT` bytes.
        text(|bytes, len| unsafe { (self.processor_name)(bytes, len) })
    }

    /// Ends the job.
    pub(super) fn abort(&self, message: &str) -> ! {
        ABORTS.set(true);
        IS_ABORTING.store(true, Ordering::Release);
        // A job ends whether or not its last words can be written.
        let _ = writeln!(std::io::stderr(), "{message}");
        // Launchers drop what they have not read of a worker when its job is aborted.
        std::thread::sleep(LAST_WORDS);
        let _turn = self.turn();
        // SAFETY: MPI has been started, and the handle is the library's own. The second function takes any status; the job
        // may end while the process exits, which does not begin twice.
        unsafe {
            (self.abort)(self.comm, 1);
            libc::_exit(1)
        }
    }

    /// Ends MPI, if this binding started it.
    pub(super) fn finalize(&self) {
        if self.is_owner.swap(false, Ordering::Relaxed) {
            let _turn = self.turn();
            // SAFETY: MPI has been started, and no call follows.
            unsafe { (self.finalize)() };
        }
    }
}

/// The text that a function writes, with its length.
fn text(call: impl FnOnce(*mut c_char, *mut c_int) -> c_int) -> Option<String> {
    let mut bytes = vec![0_u8; TEXT];
    let mut len = 0;
    if call(bytes.as_mut_ptr().cast(), &raw mut len) != 0 {
        return None;
    }
    bytes.truncate(usize::try_from(len).unwrap_or(0));
    Some(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned())
}
