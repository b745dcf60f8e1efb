//! The functions of the driver, each looked up by name in the library that is found at run time.
//!
//! Guarantees that nothing panics: a missing library, a missing function and a code that these bindings do not know are
//! all [`Failure`]s. So functions are taken from the library by their names, with the types of the bindings, and return
//! plain numbers. Without the feature `cuda` all of them fail.

#![allow(non_snake_case, clippy::too_many_arguments, reason = "functions are as the driver has them")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt;
use std::sync::OnceLock;

use binding::*;

/// Why a call of the driver failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// The function that was called.
    pub(super) call: &'static str,
    pub(super) cause: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The function returned this code.
    Code(u32),
    /// The library has no such function.
    Missing,
    /// There is no library.
    NoLibrary,
}

impl Failure {
    /// The code that the driver returned.
    pub(super) fn code(self) -> Option<u32> {
        match self.cause {
            Cause::Code(code) => Some(code),
            Cause::Missing | Cause::NoLibrary => None,
        }
    }

    /// Whether memory is what is missing.
    pub(super) fn is_shortage(self) -> bool {
        self.code() == Some(2)
    }

    /// Whether every later call fails as well: the kernel that ran broke the context, or the driver lost it.
    pub(super) fn is_final(self) -> bool {
        matches!(self.code(), Some(214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 999))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = self.call;
        match self.cause {
            Cause::Missing => write!(f, "the driver library has no function {call}; it is too old or broken"),
            Cause::NoLibrary => write!(f, "{call} cannot be called: there is no driver library"),
            Cause::Code(code) => {
                let (name, text) = (error_text(code, cuGetErrorName), error_text(code, cuGetErrorString));
                let name = name.unwrap_or_else(|| "an unknown error".into());
                write!(f, "{call} failed with {name} ({code})")?;
                match text {
                    Some(text) => write!(f, ", {text}"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// Where the library has its first function.
pub(super) fn library_address() -> Option<usize> {
    cuInit::find().ok().map(|function| function as *const () as usize)
}

type ErrorText = unsafe fn(c_uint, *mut *const c_char) -> Result<(), Failure>;

/// The driver's text for one of its codes.
fn error_text(code: u32, ask: ErrorText) -> Option<String> {
    let mut text = std::ptr::null();
    // SAFETY: `text` is there to be written.
    let asked = unsafe { ask(code, &mut text) };
    if asked.is_err() || text.is_null() {
        return None;
    }
    // SAFETY: the driver set it to a string of its own, which ends with a zero and lives as long as the library.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Declares the functions: the name in the library, the binding that has the same type, and the parameters.
macro_rules! calls {
    ($($name:ident $(= $like:ident)? ($($arg:ident: $ty:ty),*);)*) => {
        /// Whether the library has all functions; else the first that it lacks.
        ///
        /// # Errors
        ///
        /// Fails if there is no library, or if it lacks a function.
        pub(super) fn verify() -> Result<(), Failure> {
            $($name::find()?;)*
            Ok(())
        }


        $(
            mod $name {
                use super::*;

                type F = unsafe extern "C" fn($($ty),*) -> u32;
                #[cfg(feature = "cuda")]
                #[allow(dead_code, reason = "some functions have no binding of their type")]
                type Binding = unsafe fn($($ty),*) -> cudarc::driver::sys::CUresult;
                $(
                    #[cfg(feature = "cuda")]
                    const _: Binding = cudarc::driver::sys::$like;
                )?

                pub(super) fn find() -> Result<F, Failure> {
                    const NAME: &str = stringify!($name);
                    static FOUND: OnceLock<Option<F>> = OnceLock::new();
                    if !is_present() {
                        return Err(Failure { call: NAME, cause: Cause::NoLibrary });
                    }
                    // SAFETY: the type is that of the binding, except for codes, which are numbers of 32 bits.
                    let found = FOUND.get_or_init(|| unsafe { symbol::<F>(concat!(stringify!($name), "\0")) });
                    found.ok_or(Failure { call: NAME, cause: Cause::Missing })
                }
            }

            /// Calls the function of this name.
            ///
            /// # Safety
            ///
            /// The arguments are as the driver's manual demands.
            pub(super) unsafe fn $name($($arg: $ty),*) -> Result<(), Failure> {
                let function = $name::find()?;
                // SAFETY: as the caller says.
                match unsafe { function($($arg),*) } {
                    0 => Ok(()),
                    code => Err(Failure { call: stringify!($name), cause: Cause::Code(code) }),
                }
            }
        )*
    };
}

calls! {
    cuInit = cuInit(flags: c_uint);
    cuDriverGetVersion = cuDriverGetVersion(version: *mut c_int);
    // These take codes, which may be newer than the bindings.
    cuGetErrorName(code: c_uint, text: *mut *const c_char);
    cuGetErrorString(code: c_uint, text: *mut *const c_char);
    cuDeviceGetCount = cuDeviceGetCount(count: *mut c_int);
    cuDeviceGet = cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    cuDeviceGetName = cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice);
    cuDeviceGetAttribute = cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice);
    // Its type is a plain array in all versions.
    cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: CUdevice);
    cuDeviceTotalMem_v2 = cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    cuDevicePrimaryCtxRetain = cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    cuCtxGetCurrent = cuCtxGetCurrent(context: *mut CUcontext);
    cuCtxSetCurrent = cuCtxSetCurrent(context: CUcontext);
    cuStreamCreate = cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    cuStreamSynchronize = cuStreamSynchronize(stream: CUstream);
    cuMemAlloc_v2 = cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    cuMemFree_v2 = cuMemFree_v2(address: CUdeviceptr);
    cuMemGetInfo_v2 = cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemHostAlloc = cuMemHostAlloc(memory: *mut *mut c_void, bytes: usize, flags: c_uint);
    cuMemcpyHtoDAsync_v2 = cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
    cuMemcpyDtoHAsync_v2 = cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemcpyDtoDAsync_v2 = cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
    cuEventCreate = cuEventCreate(event: *mut CUevent, flags: c_uint);
    cuEventRecord = cuEventRecord(event: CUevent, stream: CUstream);
    cuEventQuery = cuEventQuery(event: CUevent);
    cuEventSynchronize = cuEventSynchronize(event: CUevent);
    // The name that drivers of all versions have.
    cuEventElapsedTime = cuEventElapsedTime_v2(millis: *mut f32, start: CUevent, end: CUevent);
    cuEventDestroy_v2 = cuEventDestroy_v2(event: CUevent);
    cuLinkCreate_v2 = cuLinkCreate_v2(
        n_options: c_uint, options: *mut CUjit_option, values: *mut *mut c_void, state: *mut CUlinkState
    );
    cuLinkAddData_v2 = cuLinkAddData_v2(
        state: CUlinkState, kind: CUjitInputType, data: *mut c_void, len: usize, name: *const c_char,
        n_options: c_uint, options: *mut CUjit_option, values: *mut *mut c_void
    );
    cuLinkComplete = cuLinkComplete(state: CUlinkState, image: *mut *mut c_void, len: *mut usize);
    cuLinkDestroy = cuLinkDestroy(state: CUlinkState);
    cuModuleLoadData = cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
    cuModuleGetFunction = cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    cuModuleUnload = cuModuleUnload(module: CUmodule);
    cuFuncSetAttribute = cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int);
    cuLaunchKernel = cuLaunchKernel(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: CUstream, arguments: *mut *mut c_void, extra: *mut *mut c_void
    );
    cuGraphCreate = cuGraphCreate(graph: *mut CUgraph, flags: c_uint);
    cuGraphAddKernelNode_v2 = cuGraphAddKernelNode_v2(
        node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, n_after: usize,
        parameters: *const CUDA_KERNEL_NODE_PARAMS
    );
    cuGraphInstantiateWithFlags = cuGraphInstantiateWithFlags(
        instance: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong
    );
    cuGraphExecKernelNodeSetParams_v2 = cuGraphExecKernelNodeSetParams_v2(
        instance: CUgraphExec, node: CUgraphNode, parameters: *const CUDA_KERNEL_NODE_PARAMS
    );
    cuGraphLaunch = cuGraphLaunch(instance: CUgraphExec, stream: CUstream);
    cuGraphExecDestroy = cuGraphExecDestroy(instance: CUgraphExec);
    cuGraphDestroy = cuGraphDestroy(graph: CUgraph);
}

/// The library and the types of its functions.
#[cfg(feature = "cuda")]
pub(super) mod binding {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use cudarc::driver::sys;
    pub(crate) use cudarc::driver::sys::{
        CUDA_KERNEL_NODE_PARAMS, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction,
        CUfunction_attribute, CUgraph, CUgraphExec, CUgraphNode, CUjit_option, CUjitInputType, CUlinkState, CUmodule,
        CUstream,
    };

    /// Whether the library is there. Once it is, it stays; else it is looked for again the next time.
    pub(crate) fn is_present() -> bool {
        static PRESENT: AtomicBool = AtomicBool::new(false);
        if PRESENT.load(Relaxed) {
            return true;
        }
        // SAFETY: the library is opened and closed, as loading it later does.
        let found = unsafe { sys::is_culib_present() };
        PRESENT.fetch_or(found, Relaxed) || found
    }

    /// The names under which the library is looked for, the usual ones first.
    pub(crate) fn library_names() -> Vec<String> {
        let mut names: Vec<String> = ["cuda", "nvcuda"].into_iter().flat_map(cudarc::get_lib_name_candidates).collect();
        names.sort_by_key(String::len);
        names
    }

    /// A function of the library.
    ///
    /// # Safety
    ///
    /// `F` is the type of the function of this name, which ends with a zero.
    pub(crate) unsafe fn symbol<F: Copy>(name: &str) -> Option<F> {
        if !is_present() {
            return None;
        }
        // SAFETY: the library was found before, so loading it does not panic; its initialisers are NVIDIA's.
        let library = unsafe { sys::culib() };
        // SAFETY: as the caller says.
        unsafe { library.get::<F>(name.as_bytes()) }.ok().map(|symbol| *symbol)
    }
}

/// The stand-in for the library where the feature is off.
#[cfg(not(feature = "cuda"))]
#[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "the names of the driver")]
pub(super) mod binding {
    use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

    pub(crate) type CUcontext = *mut c_void;
    pub(crate) type CUdevice = c_int;
    pub(crate) type CUdeviceptr = c_ulonglong;
    pub(crate) type CUevent = *mut c_void;
    pub(crate) type CUfunction = *mut c_void;
    pub(crate) type CUgraph = *mut c_void;
    pub(crate) type CUgraphExec = *mut c_void;
    pub(crate) type CUgraphNode = *mut c_void;
    pub(crate) type CUlinkState = *mut c_void;
    pub(crate) type CUmodule = *mut c_void;
    pub(crate) type CUstream = *mut c_void;

    /// Declares numbers of the driver by name.
    macro_rules! numbers {
        ($($type:ident { $($name:ident = $number:literal),* })*) => {
            $(
                #[derive(Clone, Copy)]
                #[repr(u32)]
                pub(crate) enum $type { $($name = $number),* }
            )*
        };
    }

    numbers! {
        CUdevice_attribute {
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
            CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16
        }
        CUfunction_attribute { CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 }
        CUjit_option { CU_JIT_ERROR_LOG_BUFFER = 5, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6 }
        CUjitInputType { CU_JIT_INPUT_PTX = 1 }
    }

    /// A node of a graph that launches a kernel.
    #[derive(Clone, Copy)]
    #[repr(C)]
    pub(crate) struct CUDA_KERNEL_NODE_PARAMS {
        pub(crate) func: CUfunction,
        pub(crate) gridDimX: c_uint,
        pub(crate) gridDimY: c_uint,
        pub(crate) gridDimZ: c_uint,
        pub(crate) blockDimX: c_uint,
        pub(crate) blockDimY: c_uint,
        pub(crate) blockDimZ: c_uint,
        pub(crate) sharedMemBytes: c_uint,
        pub(crate) kernelParams: *mut *mut c_void,
        pub(crate) extra: *mut *mut c_void,
        pub(crate) kern: *mut c_void,
        pub(crate) ctx: CUcontext,
    }

    pub(crate) fn is_present() -> bool {
        false
    }

    pub(crate) fn library_names() -> Vec<String> {
        vec![]
    }

    /// No function.
    ///
    /// # Safety
    ///
    /// None is needed.
    pub(crate) unsafe fn symbol<F: Copy>(_: &str) -> Option<F> {
        None
    }
}
