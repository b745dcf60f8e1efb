//! The values that cross the C interface: pointers of the caller, results, texts.
//!
//! Invariant: values of the pointer types here are made by callers of the C interface only, who promise what the driver
//! API demands: a pointer is null, or valid for what the function does with it.

use std::ffi::{CStr, c_char, c_int, c_void};

/// A result other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code(pub(super) c_int);

/// Names the codes, and gives each its text.
macro_rules! codes {
    ($($constant:ident = $code:literal, $name:literal, $text:literal;)*) => {
        impl Code {
            $(#[allow(dead_code, reason = "some codes only have a text")] pub(super) const $constant: Code = Code($code);)*
        }

        /// Name and text of a code, with a zero behind each.
        pub(super) fn describe(code: c_int) -> Option<(&'static CStr, &'static CStr)> {
            match code {
                $($code => Some(($name, $text)),)*
                _ => None,
            }
        }
    };
}

codes! {
    SUCCESS = 0, c"CUDA_SUCCESS", c"no error";
    INVALID_VALUE = 1, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument";
    OUT_OF_MEMORY = 2, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory";
    NOT_INITIALIZED = 3, c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error";
    NO_DEVICE = 100, c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected";
    INVALID_DEVICE = 101, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal";
    INVALID_IMAGE = 200, c"CUDA_ERROR_INVALID_IMAGE", c"device kernel image is invalid";
    INVALID_CONTEXT = 201, c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context";
    NO_BINARY_FOR_GPU = 209, c"CUDA_ERROR_NO_BINARY_FOR_GPU", c"no kernel image is available for execution on the device";
    INVALID_PTX = 218, c"CUDA_ERROR_INVALID_PTX", c"a PTX JIT compilation failed";
    UNSUPPORTED_PTX_VERSION = 222, c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        c"the provided PTX was compiled with an unsupported toolchain.";
    FILE_NOT_FOUND = 301, c"CUDA_ERROR_FILE_NOT_FOUND", c"file not found";
    INVALID_HANDLE = 400, c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle";
    NOT_FOUND = 500, c"CUDA_ERROR_NOT_FOUND", c"named symbol not found";
    NOT_READY = 600, c"CUDA_ERROR_NOT_READY", c"device not ready";
    ILLEGAL_ADDRESS = 700, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered";
    LAUNCH_OUT_OF_RESOURCES = 701, c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", c"too many resources requested for launch";
    MISALIGNED_ADDRESS = 716, c"CUDA_ERROR_MISALIGNED_ADDRESS", c"misaligned address";
    LAUNCH_FAILED = 719, c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure";
    NOT_SUPPORTED = 801, c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported";
    CAPTURE_UNSUPPORTED = 900, c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        c"operation not permitted when stream is capturing";
    CAPTURE_INVALIDATED = 901, c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        c"operation failed due to a previous error during capture";
    CAPTURE_UNMATCHED = 903, c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
        c"capture was not ended in the same stream as it began";
    CAPTURE_UNJOINED = 904, c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", c"capturing stream has unjoined work";
    CAPTURED_EVENT = 907, c"CUDA_ERROR_CAPTURED_EVENT",
        c"operation not permitted on an event last recorded in a capturing stream";
    GRAPH_EXEC_UPDATE_FAILURE = 910, c"CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
        c"the graph update was not performed because it included changes which violated constraints";
    UNKNOWN = 999, c"CUDA_ERROR_UNKNOWN", c"unknown error";
}

/// The result of a driver function, before it crosses the interface.
pub(super) type Status = Result<(), Code>;

/// A place for a result.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(super) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes the result; a null pointer is an error.
    pub(super) fn set(self, value: T) -> Status {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        self.set_if(value);
        Ok(())
    }

    /// Writes the result, if it is wanted.
    pub(super) fn set_if(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: by the invariant of this file a pointer that is not null is valid for writing.
            unsafe { self.0.write(value) };
        }
    }

    /// Writes the element at an index of an array that the caller made big enough.
    pub(super) fn set_at(self, index: usize, value: T) {
        if !self.0.is_null() {
            // SAFETY: by the invariant of this file the array has room for all that the function writes.
            unsafe { self.0.add(index).write(value) };
        }
    }

    pub(super) fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

impl<T: Copy> Out<T> {
    /// The value there before.
    pub(super) fn get(self) -> Result<T, Code> {
        In(self.0.cast_const()).get()
    }
}

/// An argument, or an array of them.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(super) struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// The value; a null pointer is an error.
    pub(super) fn get(self) -> Result<T, Code> {
        self.at(0)
    }

    /// The value at an index.
    pub(super) fn at(self, index: usize) -> Result<T, Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: by the invariant of this file the array is as long as the function expects.
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }

    /// The first `len` values.
    pub(super) fn list(self, len: usize) -> Result<Vec<T>, Code> {
        (0..len).map(|index| self.at(index)).collect()
    }

    pub(super) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    pub(super) fn null() -> In<T> {
        In(std::ptr::null())
    }
}

/// A text with a zero behind it.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(super) struct Text(*const c_char);

impl Text {
    /// The text at an address that the caller gave.
    pub(super) fn at(address: usize) -> Text {
        Text(address as *const c_char)
    }

    pub(super) fn read(self) -> Result<String, Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: by the invariant of this file a text that is not null ends with a zero.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map(str::to_owned).map_err(|_| Code::INVALID_VALUE)
    }
}

/// Bytes of the caller, from an address that it gave.
pub(super) fn read_host(address: usize, len: usize) -> Result<Vec<u8>, Code> {
    if len > 0 && address == 0 {
        return Err(Code::INVALID_VALUE);
    }
    if len == 0 {
        return Ok(vec![]);
    }
    let mut bytes = vec![0; len];
    // SAFETY: by the invariant of this file the caller's memory has so many bytes until the work with it is done; the
    // vector is new.
    unsafe { std::ptr::copy_nonoverlapping(address as *const u8, bytes.as_mut_ptr(), len) };
    Ok(bytes)
}

/// Writes bytes to memory of the caller.
pub(super) fn write_host(address: usize, bytes: &[u8]) -> Status {
    if bytes.is_empty() {
        return Ok(());
    }
    if address == 0 {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: by the invariant of this file the caller's memory has so many bytes until the work with it is done.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
    Ok(())
}

/// A function of the caller that work on a stream calls.
pub(super) type HostFunction = extern "C" fn(*mut c_void);

/// A text as the caller wants it: cut to its room, with a zero behind. The bytes written without the zero.
pub(super) fn write_text(address: usize, room: usize, text: &str) -> usize {
    let len = text.len().min(room.saturating_sub(1));
    if room == 0 || address == 0 {
        return 0;
    }
    let bytes: Vec<u8> = text.as_bytes()[..len].iter().copied().chain([0]).collect();
    if write_host(address, &bytes).is_ok() { len } else { 0 }
}
