//! The end of a process that has not ended its world: by `std::process::exit`, or with a world in a `static`.
//!
//! Otherwise a launcher may count a worker that is gone in the middle of a job as one that ended well. A handler, which
//! the C library calls when the process exits, ends the world as the drop of its last handle does. The handler waits for
//! other workers, and never for a thread of this process: where one of them holds the world, nobody can end it in order,
//! and the process ends with a status that no launcher takes for success.

use std::ffi::c_int;
use std::io::Write as _;
use std::sync::{Arc, OnceLock, Weak};

use crate::mpi;
use crate::wire::{GRACE, Left, Wire};

/// The status of a process whose world could not end in order.
const FAILURE: c_int = 1;

/// The world that is to end with its process.
struct Watched {
    /// The process, as a child of it that does not start a program of its own runs the handler as well.
    process: u32,
    wire: Weak<Wire>,
}

static WATCHED: OnceLock<Watched> = OnceLock::new();

/// Sees to it that the world of this process ends with the process, at the latest.
pub(crate) fn watch(wire: &Arc<Wire>) {
    let watched = Watched { process: std::process::id(), wire: Arc::downgrade(wire) };
    // MPI starts once in a process, so there is one world to watch.
    if WATCHED.set(watched).is_ok() {
        register();
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn register() {
    use std::ffi::c_void;

    unsafe extern "C" {
        fn on_exit(handler: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    }

    extern "C" fn handler(status: c_int, _: *mut c_void) {
        at_exit(status);
    }

    // SAFETY: the type is that of the C library, which calls the handler once; the handler ignores its argument.
    unsafe { on_exit(handler, std::ptr::null_mut()) };
}

/// Other C libraries do not tell the status, so a process ends as one that succeeds.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn register() {
    extern "C" fn handler() {
        at_exit(0);
    }

    // SAFETY: the C library calls the handler once, and it takes no argument.
    unsafe { libc::atexit(handler) };
}

/// Ends the world of this process, which exits with a status.
fn at_exit(status: c_int) {
    let Some(Watched { process, wire }) = WATCHED.get() else { return };
    if *process != std::process::id() {
        return;
    }
    match mpi::abortion() {
        None => {}
        // The library runs the handlers of the process in the middle of its own end of the job.
        Some(mpi::Abortion::Here) => return,
        Some(mpi::Abortion::Elsewhere) => {
            // The other thread ends the process with the job, unless that hangs.
            std::thread::sleep(2 * mpi::LAST_WORDS);
            end_now();
        }
    }
    let Some(wire) = wire.upgrade() else { return };
    match wire.leave_at_exit(status) {
        Left::Ended => {}
        // The status says already that the job has failed.
        Left::Busy if status != 0 => {}
        Left::Busy => {
            let transport = wire.transport();
            let (rank, size) = (transport.rank(), transport.size());
            // Nobody may be there to read it, which is no reason to panic.
            let _ = writeln!(
                std::io::stderr(),
                "rank {rank} of {size} exits while another of its threads is in a call of the world, which cannot end in \
                 order: the status is {FAILURE}"
            );
            end_now();
        }
        Left::Failed(error) => {
            std::thread::sleep(GRACE);
            wire.transport().abort(&error);
        }
    }
}

/// Ends the process without further handlers.
fn end_now() -> ! {
    // SAFETY: the function takes any status.
    unsafe { libc::_exit(FAILURE) }
}
