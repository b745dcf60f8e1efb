//! The functions of the driver that the library calls.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use libloading::Library;

/// A handle of the driver.
pub(crate) type Handle = *mut c_void;

/// The driver that is open in this process.
pub(crate) struct Cuda {
    get_current: unsafe extern "C" fn(*mut Handle) -> c_int,
    set_current: unsafe extern "C" fn(Handle) -> c_int,
    get_device: unsafe extern "C" fn(*mut c_int) -> c_int,
    stream_context: unsafe extern "C" fn(Handle, *mut Handle) -> c_int,
    stream_sync: unsafe extern "C" fn(Handle) -> c_int,
    address_range: unsafe extern "C" fn(*mut u64, *mut usize, u64) -> c_int,
    copy_out: unsafe extern "C" fn(*mut c_void, u64, usize) -> c_int,
    copy_in: unsafe extern "C" fn(u64, *const c_void, usize, Handle) -> c_int,
    _library: Library,
}

impl Cuda {
    /// The driver, if there is one.
    pub(crate) fn get() -> Result<&'static Cuda, String> {
        static CUDA: OnceLock<Result<Cuda, String>> = OnceLock::new();
        CUDA.get_or_init(Cuda::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Cuda, String> {
        // SAFETY: the functions have the types that the manual of the driver says, and the library stays open.
        let open = || unsafe {
            let library = Library::new("libcuda.so.1")?;
            Ok(Cuda {
                get_current: *library.get("cuCtxGetCurrent")?,
                set_current: *library.get("cuCtxSetCurrent")?,
                get_device: *library.get("cuCtxGetDevice")?,
                stream_context: *library.get("cuStreamGetCtx")?,
                stream_sync: *library.get("cuStreamSynchronize")?,
                address_range: *library.get("cuMemGetAddressRange_v2")?,
                copy_out: *library.get("cuMemcpyDtoH_v2")?,
                copy_in: *library.get("cuMemcpyHtoDAsync_v2")?,
                _library: library,
            })
        };
        open().map_err(|error: libloading::Error| error.to_string())
    }

    /// The current context of this thread, and its device.
    pub(crate) fn current(&self) -> Result<(usize, c_int), String> {
        let (mut context, mut device) = (std::ptr::null_mut(), 0);
        // SAFETY: both places are there to be written.
        let codes = unsafe { ((self.get_current)(&raw mut context), (self.get_device)(&raw mut device)) };
        match codes {
            (0, 0) => Ok((context as usize, device)),
            _ => Err(format!("no current device: {codes:?}")),
        }
    }

    /// Runs something in a context.
    pub(crate) fn within<T>(&self, context: usize, run: impl FnOnce() -> T) -> T {
        let mut before = std::ptr::null_mut();
        // SAFETY: the place is there to be written, and the context is one that was current before.
        unsafe {
            (self.get_current)(&raw mut before);
            (self.set_current)(context as Handle);
        }
        let result = run();
        // SAFETY: the context was that of this thread.
        unsafe { (self.set_current)(before) };
        result
    }

    /// Fails unless a stream is one of a context.
    pub(crate) fn check_stream(&self, stream: usize, context: usize) -> Result<(), String> {
        let mut own = std::ptr::null_mut();
        // SAFETY: the place is there to be written; the stand-in driver checks handles.
        let code = unsafe { (self.stream_context)(stream as Handle, &raw mut own) };
        match code {
            0 if own as usize == context => Ok(()),
            0 => Err("the stream is one of another device".to_owned()),
            code => Err(format!("no stream: {code}")),
        }
    }

    /// Fails unless bytes lie inside an array of a device.
    pub(crate) fn check_memory(&self, address: u64, len: usize) -> Result<(), String> {
        let (mut base, mut room) = (0, 0);
        // SAFETY: both places are there to be written; the stand-in driver checks addresses.
        let code = unsafe { (self.address_range)(&raw mut base, &raw mut room, address) };
        let fits = (address - base.min(address)) as usize + len <= room;
        if code == 0 && fits { Ok(()) } else { Err(format!("{len} bytes at {address:#x} are no memory of a device")) }
    }

    /// Waits for a stream.
    pub(crate) fn sync(&self, stream: usize) -> Result<(), String> {
        // SAFETY: the stand-in driver checks handles.
        let code = unsafe { (self.stream_sync)(stream as Handle) };
        if code == 0 { Ok(()) } else { Err(format!("waiting for the stream failed: {code}")) }
    }

    /// The bytes at an address.
    pub(crate) fn read(&self, address: u64, len: usize) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; len];
        // SAFETY: the vector has as many bytes; the stand-in driver checks addresses.
        let code = unsafe { (self.copy_out)(bytes.as_mut_ptr().cast(), address, len) };
        if code == 0 { Ok(bytes) } else { Err(format!("reading failed: {code}")) }
    }

    /// Queues a copy of bytes to an address; they are not needed any more when this returns.
    pub(crate) fn write(&self, address: u64, bytes: &[u8], stream: usize) -> Result<(), String> {
        // SAFETY: the driver takes a copy of memory that is not pinned; the stand-in checks addresses and handles.
        let code = unsafe { (self.copy_in)(address, bytes.as_ptr().cast(), bytes.len(), stream as Handle) };
        if code == 0 { Ok(()) } else { Err(format!("writing failed: {code}")) }
    }
}
