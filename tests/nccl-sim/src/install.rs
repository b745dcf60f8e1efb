//! For tests: finds the shared library of this crate and opens it, so that whoever asks for `libnccl.so.2` gets it.
//!
//! The library bears that name inside itself; the loader gives a library that is already open to everyone who asks for
//! its name. State lives in the library alone.

use std::ffi::{CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::state::Counters;

/// The stand-in, open until the process ends.
#[derive(Clone, Copy, Debug)]
pub struct Nccl {
    library: &'static Library,
}

/// Makes the stand-in the library that is found as `libnccl.so.2` in this process.
///
/// # Panics
///
/// If the library is not beside the test, where cargo puts it when a package depends on this one.
pub fn install() -> Nccl {
    static OPEN: OnceLock<Library> = OnceLock::new();
    let library = OPEN.get_or_init(|| {
        let path = path();
        // SAFETY: the library is that of this crate, which has no initialisers.
        let opened = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) };
        opened.unwrap_or_else(|error| panic!("the stand-in for NCCL cannot be opened: {error}"))
    });
    Nccl { library }
}

/// The library lies in the folder of the test, or in the one above.
fn path() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let name = "libretape_nccl_sim.so";
    let folders = test.ancestors().skip(1).take(3);
    let paths: Vec<PathBuf> = folders.flat_map(|folder| [folder.join(name), folder.join("deps").join(name)]).collect();
    let found = paths.into_iter().find(|path| Path::exists(path));
    found.unwrap_or_else(|| panic!("{name} is not near {}", test.display()))
}

impl Nccl {
    /// A function of the library, whose type is `F`.
    ///
    /// # Safety
    ///
    /// `F` must be the type of the function of this name.
    unsafe fn function<F: Copy>(self, name: &str) -> F {
        // SAFETY: as the caller says; the library stays open.
        let found = unsafe { self.library.get::<F>(name) };
        *found.unwrap_or_else(|error| panic!("the stand-in for NCCL has no {name}: {error}"))
    }

    /// Forgets failures and counters; communicators stay.
    pub fn reset(self) {
        // SAFETY: the type is that of `calls::retape_nccl_reset`.
        let run = unsafe { self.function::<extern "C" fn()>("retape_nccl_reset") };
        run();
    }

    /// The version that the library says it has, such as 22203 for 2.22.3.
    pub fn set_version(self, version: i32) {
        // SAFETY: the type is that of `calls::retape_nccl_set_version`.
        let run = unsafe { self.function::<extern "C" fn(c_int)>("retape_nccl_set_version") };
        run(version);
    }

    /// Lets a function fail with a code for a worker, once, after so many calls that go well; `async` is what fails later.
    ///
    /// # Panics
    ///
    /// If the name has a zero in it.
    pub fn fail(self, name: &str, rank: usize, skip: u32, code: u32) {
        let name = CString::new(name).expect("the name of a function");
        // SAFETY: the type is that of `calls::retape_nccl_fail`.
        let run = unsafe { self.function::<extern "C" fn(*const c_char, usize, u32, u32)>("retape_nccl_fail") };
        run(name.as_ptr(), rank, skip, code);
    }

    /// Counts of calls and messages.
    pub fn counters(self) -> Counters {
        let mut counters = Counters::default();
        // SAFETY: the type is that of `calls::retape_nccl_counters`.
        let run = unsafe { self.function::<extern "C" fn(*mut Counters)>("retape_nccl_counters") };
        run(&mut counters);
        counters
    }
}
