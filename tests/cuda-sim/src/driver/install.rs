//! For tests: finds the shared library of this crate and opens it, so that whoever asks for `libcuda.so.1` gets it.
//!
//! The library bears that name inside itself; the loader gives a library that is already open to everyone who asks for
//! its name. State lives in the library alone: this crate's own copy of the driver, which is linked into the test, is
//! never used.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::control::Counters;
use crate::machine::Order;

/// Flags of `dlopen`: all symbols at once, and for all libraries.
const NOW_GLOBAL: c_int = 0x102;

/// Bytes of a text that the library gives back at most.
const ROOM: usize = 1 << 16;

unsafe extern "C" {
    safe fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    safe fn dlerror() -> *const c_char;
}

/// The stand-in driver, open until the process ends.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    library: usize,
}

static OPEN: OnceLock<Result<Driver, String>> = OnceLock::new();

/// Makes the stand-in driver the one that is found as `libcuda.so.1` in this process.
///
/// Call it before anything looks for a driver.
///
/// # Panics
///
/// If the library is not beside the test, where cargo puts it when a package depends on this one.
pub fn install() -> Driver {
    match OPEN.get_or_init(open) {
        Ok(driver) => *driver,
        Err(what) => panic!("the stand-in driver cannot be opened: {what}"),
    }
}

fn open() -> Result<Driver, String> {
    let path = find()?;
    let name = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| "a path with a zero".to_owned())?;
    let library = dlopen(name.as_ptr(), NOW_GLOBAL);
    if library.is_null() {
        let message = dlerror();
        // SAFETY: after a failure it gives a text that lasts until the next call of its family on this thread.
        let message = unsafe { CStr::from_ptr(message) };
        return Err(message.to_string_lossy().into_owned());
    }
    Ok(Driver { library: library as usize })
}

/// The library lies in the folder of the test, or in the one above.
fn find() -> Result<PathBuf, String> {
    let test = std::env::current_exe().map_err(|e| e.to_string())?;
    let name = "libretape_cuda_sim.so";
    let folders = test.ancestors().skip(1).take(3);
    let paths: Vec<PathBuf> = folders.flat_map(|folder| [folder.join(name), folder.join("deps").join(name)]).collect();
    let found = paths.iter().find(|path| Path::exists(path)).cloned();
    found.ok_or_else(|| format!("{name} is not near {}", test.display()))
}

/// The address of a function of the library that this code is in.
pub(super) fn own_symbol(name: &str) -> Option<*mut c_void> {
    let library = dlopen(c"libcuda.so.1".as_ptr(), NOW_GLOBAL);
    ["_v3", "_v2", ""].iter().find_map(|suffix| {
        let name = CString::new(format!("{name}{suffix}")).ok()?;
        // SAFETY: the library is open or null, which stands for all that are open; the name ends with a zero.
        let found = unsafe { dlsym(library, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    })
}

impl Driver {
    /// A function of the library, whose type is `F`.
    ///
    /// # Safety
    ///
    /// `F` must be the type of the function of this name.
    unsafe fn function<F: Copy>(self, name: &CStr) -> F {
        // SAFETY: the library stays open, and the name ends with a zero.
        let found = unsafe { dlsym(self.library as *mut c_void, name.as_ptr()) };
        assert!(!found.is_null(), "the stand-in driver has no {name:?}");
        // SAFETY: by the caller's promise the function has this type, and pointers to functions have the size of others.
        unsafe { std::mem::transmute_copy(&found) }
    }

    /// Ends what is queued, and forgets faults, limits, orders, counters and failures. Memory and handles stay.
    pub fn reset(self) {
        // SAFETY: the type is that of `control::retape_sim_reset`.
        let run = unsafe { self.function::<extern "C" fn()>(c"retape_sim_reset") };
        run();
    }

    /// In which order blocks and warps run from now on; with blocks, the nodes of graphs are reversed, too.
    pub fn set_order(self, order: Order) {
        // SAFETY: the type is that of `control::retape_sim_set_order`.
        let run = unsafe { self.function::<extern "C" fn(c_int, c_int)>(c"retape_sim_set_order") };
        run(order.reverse_blocks.into(), order.reverse_warps.into());
    }

    /// Whether launches are counted and not executed from now on, for those who want no results but code. Memory that
    /// is asked for then is addresses only.
    pub fn set_dry(self, is_dry: bool) {
        // SAFETY: the type is that of `control::retape_sim_set_dry`.
        let run = unsafe { self.function::<extern "C" fn(c_int)>(c"retape_sim_set_dry") };
        run(is_dry.into());
    }

    /// The compute capability of a device, such as 80; it is 90 from the start.
    pub fn set_capability(self, device: usize, capability: u32) {
        // SAFETY: the type is that of `control::retape_sim_set_capability`.
        let run = unsafe { self.function::<extern "C" fn(usize, c_uint)>(c"retape_sim_set_capability") };
        run(device, capability);
    }

    /// Adds devices until there are so many, up to 16; two are there from the start.
    pub fn add_devices(self, n: usize) {
        // SAFETY: the type is that of `control::retape_sim_add_devices`.
        let run = unsafe { self.function::<extern "C" fn(usize)>(c"retape_sim_add_devices") };
        run(n);
    }

    /// How much memory a device has, so that it runs out of it.
    pub fn set_memory(self, device: usize, bytes: u64) {
        // SAFETY: the type is that of `control::retape_sim_set_memory`.
        let run = unsafe { self.function::<extern "C" fn(usize, u64)>(c"retape_sim_set_memory") };
        run(device, bytes);
    }

    /// Whether reading bytes of an array that nobody wrote is a fault. False if no array begins there.
    pub fn set_strict(self, address: u64, is_strict: bool) -> bool {
        // SAFETY: the type is that of `control::retape_sim_set_strict`.
        let run = unsafe { self.function::<extern "C" fn(u64, c_int) -> c_int>(c"retape_sim_set_strict") };
        run(address, is_strict.into()) != 0
    }

    /// Lets a function of the driver fail with a code, once, after so many calls that go well.
    ///
    /// # Panics
    ///
    /// If the name has a zero in it.
    pub fn fail(self, name: &str, skip: u32, code: i32) {
        let name = CString::new(name).expect("the name of a function");
        // SAFETY: the type is that of `control::retape_sim_fail`.
        let run = unsafe { self.function::<extern "C" fn(*const c_char, c_uint, c_int)>(c"retape_sim_fail") };
        run(name.as_ptr(), skip, code);
    }

    /// The driver's counters.
    pub fn counters(self) -> Counters {
        let mut counters = Counters::default();
        // SAFETY: the type is that of `control::retape_sim_counters`.
        let run = unsafe { self.function::<extern "C" fn(*mut Counters)>(c"retape_sim_counters") };
        run(&mut counters);
        counters
    }

    /// The last failure: the fault of a kernel, the log of a compilation, the reason why a launch was refused.
    pub fn last_fault(self) -> String {
        self.text(c"retape_sim_last_fault")
    }

    /// A line for each kernel: device, name, launches, instructions of lanes, bytes loaded and stored.
    pub fn report(self) -> String {
        self.text(c"retape_sim_report")
    }

    fn text(self, name: &CStr) -> String {
        let mut bytes = vec![0_u8; ROOM];
        // SAFETY: the functions of `control` that give texts have this type.
        let run = unsafe { self.function::<extern "C" fn(*mut u8, usize) -> usize>(name) };
        let len = run(bytes.as_mut_ptr(), bytes.len());
        bytes.truncate(len);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
