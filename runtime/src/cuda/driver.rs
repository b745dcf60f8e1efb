//! The driver's side of one GPU: memory, copies, events, code and graphs, on one context and one stream.
//!
//! Guarantees that handles are used in the context that they belong to: each call makes it the current one of the
//! thread, and the one that was so before again when it returns. The owner of a [`Driver`] owns the lifetimes: an
//! object that queued work uses must not be destroyed.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr::{self, null_mut};

use smallvec::SmallVec;

use super::api::{self, Cause, Failure, binding::*};

/// The facts about a device.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) name: String,
    pub(super) capability: (u32, u32),
    pub(super) total_bytes: usize,
    pub(super) n_multiprocessors: u32,
    pub(super) driver_version: u32,
    /// The same in all processes, whatever number they give the device.
    pub(super) uuid: [u8; 16],
}

/// A context with its stream.
pub(super) struct Driver {
    context: CUcontext,
    stream: CUstream,
}

// SAFETY: the driver allows handles to be used from all threads, also at once.
unsafe impl Send for Driver {}
// SAFETY: as above.
unsafe impl Sync for Driver {}

/// Declares owned handles, which may go from thread to thread.
macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident($type:ty);)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub(super) struct $name($type);

            // SAFETY: a handle is a number to this process; the driver allows it in all threads.
            unsafe impl Send for $name {}
            // SAFETY: as above.
            unsafe impl Sync for $name {}
        )*
    };
}

handles! {
    /// A place in the stream that work passes.
    Event(CUevent);
    /// Code on the device.
    Module(CUmodule);
    /// A kernel in a module.
    Entry(CUfunction);
    /// Host memory that the device reads by itself. It is never given back.
    Pinned(*mut u8);
}

/// The context of a thread gives way to another one as long as this lives: other users of the driver in the process
/// find theirs again.
struct Entered {
    /// None if they are the same.
    before: Option<CUcontext>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // SAFETY: the context was that of this thread. If it is gone by now, the driver refuses.
            let _ = unsafe { api::cuCtxSetCurrent(before) };
        }
    }
}

/// How a kernel is launched.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaunchConfig {
    pub(super) grid: [u32; 3],
    pub(super) block: u32,
    pub(super) shared: u32,
}

/// A chain of kernels that is launched at once.
#[derive(Debug)]
pub(super) struct Graph {
    graph: CUgraph,
    instance: CUgraphExec,
    nodes: Vec<CUgraphNode>,
}

// SAFETY: as for the handles above; changing a graph takes a mutable borrow of it.
unsafe impl Send for Graph {}
// SAFETY: as above.
unsafe impl Sync for Graph {}

/// Why text became no code.
#[derive(Debug)]
pub(super) struct LinkFailure {
    pub(super) failure: Failure,
    /// The log of the driver's compiler.
    pub(super) log: String,
}

impl From<Failure> for LinkFailure {
    fn from(failure: Failure) -> LinkFailure {
        LinkFailure { failure, log: String::new() }
    }
}

/// The names of the library, if there is none.
pub(super) fn missing_library() -> Option<Vec<String>> {
    (!is_present()).then(library_names)
}

/// Wakes the driver; the first that is called.
pub(super) fn start() -> Result<(), Failure> {
    api::verify()?;
    // SAFETY: there is nothing to know about the arguments.
    unsafe { api::cuInit(0) }
}

/// The number of devices.
pub(super) fn count() -> Result<u32, Failure> {
    let mut count: c_int = 0;
    // SAFETY: `count` is there to be written.
    unsafe { api::cuDeviceGetCount(&mut count)? };
    Ok(u32::try_from(count).unwrap_or(0))
}

fn device(ordinal: u32) -> Result<CUdevice, Failure> {
    let mut device: CUdevice = 0;
    let ordinal = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
    // SAFETY: `device` is there to be written.
    unsafe { api::cuDeviceGet(&mut device, ordinal)? };
    Ok(device)
}

/// The facts about the device with this number.
pub(super) fn facts(ordinal: u32) -> Result<Facts, Failure> {
    let device = device(ordinal)?;
    let attribute = |attribute: CUdevice_attribute| {
        let mut value: c_int = 0;
        // SAFETY: `value` is there to be written.
        unsafe { api::cuDeviceGetAttribute(&mut value, attribute, device)? };
        Ok(u32::try_from(value).unwrap_or(0))
    };
    let mut name = [0_u8; 256];
    let (mut total_bytes, mut version): (usize, c_int) = (0, 0);
    let mut uuid = [0_u8; 16];
    // SAFETY: each pointer is to memory of its type, and the length is that of `name`.
    unsafe {
        api::cuDeviceGetName(name.as_mut_ptr().cast::<c_char>(), name.len() as c_int - 1, device)?;
        api::cuDeviceTotalMem_v2(&mut total_bytes, device)?;
        api::cuDriverGetVersion(&mut version)?;
        api::cuDeviceGetUuid_v2(&mut uuid, device)?;
    }
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(Facts {
        name: String::from_utf8_lossy(name).into_owned(),
        capability: (
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        n_multiprocessors: attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        total_bytes,
        driver_version: u32::try_from(version).unwrap_or(0),
        uuid,
    })
}

impl Driver {
    /// The primary context of a device and a new stream in it, which does not wait for the default stream.
    pub(super) fn open(ordinal: u32) -> Result<Driver, Failure> {
        const NON_BLOCKING: c_uint = 1;
        let device = device(ordinal)?;
        let mut context = null_mut();
        // SAFETY: the handle is there to be written; the context is retained and never released.
        unsafe { api::cuDevicePrimaryCtxRetain(&mut context, device)? };
        let mut driver = Driver { context, stream: null_mut() };
        let entered = driver.enter()?;
        // SAFETY: the handle is there to be written.
        unsafe { api::cuStreamCreate(&mut driver.stream, NON_BLOCKING)? };
        drop(entered);
        Ok(driver)
    }

    /// Makes the context that of this thread, until what is returned is dropped.
    fn enter(&self) -> Result<Entered, Failure> {
        let mut before = null_mut();
        // SAFETY: `before` is there to be written, and the context lives as long as the process.
        unsafe {
            api::cuCtxGetCurrent(&mut before)?;
            if before == self.context {
                return Ok(Entered { before: None });
            }
            api::cuCtxSetCurrent(self.context)?;
        }
        Ok(Entered { before: Some(before) })
    }

    /// Calls something with the stream, in the context.
    pub(super) fn with_stream<T>(&self, work: impl FnOnce(*mut c_void) -> T) -> Result<T, Failure> {
        let _entered = self.enter()?;
        Ok(work(self.stream.cast()))
    }

    /// Waits for all work that was queued before.
    pub(super) fn sync(&self) -> Result<(), Failure> {
        let _entered = self.enter()?;
        // SAFETY: the stream lives as long as the process.
        unsafe { api::cuStreamSynchronize(self.stream) }
    }

    /// New memory, aligned to 256 bytes or more.
    pub(super) fn alloc(&self, bytes: usize) -> Result<u64, Failure> {
        let _entered = self.enter()?;
        let mut address: CUdeviceptr = 0;
        // SAFETY: `address` is there to be written.
        unsafe { api::cuMemAlloc_v2(&mut address, bytes)? };
        Ok(address)
    }

    /// Frees memory that no queued work uses.
    pub(super) fn free(&self, address: u64) -> Result<(), Failure> {
        let _entered = self.enter()?;
        // SAFETY: memory of the device is not memory of Rust; the driver checks the address.
        unsafe { api::cuMemFree_v2(address) }
    }

    /// Bytes of the device that no process has asked for.
    pub(super) fn free_bytes(&self) -> Result<usize, Failure> {
        let _entered = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both numbers are there to be written.
        unsafe { api::cuMemGetInfo_v2(&mut free, &mut total)? };
        Ok(free)
    }

    /// Host memory that the device reads by itself.
    pub(super) fn pinned(&self, bytes: usize) -> Result<Pinned, Failure> {
        let _entered = self.enter()?;
        let mut memory = null_mut();
        // SAFETY: `memory` is there to be written; flags of zero are ordinary memory.
        unsafe { api::cuMemHostAlloc(&mut memory, bytes, 0)? };
        Ok(Pinned(memory.cast()))
    }

    /// Queues a copy to the device through a part of pinned memory.
    ///
    /// # Safety
    ///
    /// The memory has `at + bytes.len()` bytes, and no work that is queued still reads that part; nor does anyone write
    /// it until this work is done.
    pub(super) unsafe fn send_through(&self, pinned: &Pinned, at: usize, bytes: &[u8], to: u64) -> Result<(), Failure> {
        let _entered = self.enter()?;
        // SAFETY: as the caller says; only this copy and the device use the part.
        unsafe {
            let part = pinned.0.add(at);
            ptr::copy_nonoverlapping(bytes.as_ptr(), part, bytes.len());
            api::cuMemcpyHtoDAsync_v2(to, part.cast::<c_void>(), bytes.len(), self.stream)
        }
    }

    /// Copies to the device and waits until that is done.
    pub(super) fn send(&self, bytes: &[u8], to: u64) -> Result<(), Failure> {
        let _entered = self.enter()?;
        // SAFETY: the bytes stay borrowed until the stream has passed the copy, or is broken and copies nothing more.
        unsafe { api::cuMemcpyHtoDAsync_v2(to, bytes.as_ptr().cast(), bytes.len(), self.stream)? };
        self.sync()
    }

    /// Copies from the device, after all that was queued before, and waits until that is done.
    pub(super) fn receive(&self, from: u64, bytes: &mut [u8]) -> Result<(), Failure> {
        let _entered = self.enter()?;
        // SAFETY: the bytes stay borrowed until the stream has passed the copy, or is broken and copies nothing more.
        unsafe { api::cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), from, bytes.len(), self.stream)? };
        self.sync()
    }

    /// Queues a copy on the device.
    pub(super) fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), Failure> {
        let _entered = self.enter()?;
        // SAFETY: memory of the device is not memory of Rust; the driver checks the addresses.
        unsafe { api::cuMemcpyDtoDAsync_v2(to, from, bytes, self.stream) }
    }

    /// A new event, which may tell times.
    pub(super) fn event(&self, tells_time: bool) -> Result<Event, Failure> {
        const NO_TIMES: c_uint = 2;
        let _entered = self.enter()?;
        let mut event = null_mut();
        // SAFETY: `event` is there to be written.
        unsafe { api::cuEventCreate(&mut event, if tells_time { 0 } else { NO_TIMES })? };
        Ok(Event(event))
    }

    /// Queues the event.
    pub(super) fn record(&self, event: &Event) -> Result<(), Failure> {
        let _entered = self.enter()?;
        // SAFETY: both handles are alive and of this context.
        unsafe { api::cuEventRecord(event.0, self.stream) }
    }

    /// Whether the stream has passed the event, if it was recorded.
    pub(super) fn has_passed(&self, event: &Event) -> bool {
        // SAFETY: the handle is alive and of this context.
        self.enter().is_ok_and(|_entered| unsafe { api::cuEventQuery(event.0) }.is_ok())
    }

    /// Waits until the stream has passed the event, if it was recorded.
    pub(super) fn wait(&self, event: &Event) -> Result<(), Failure> {
        let _entered = self.enter()?;
        // SAFETY: the handle is alive and of this context.
        unsafe { api::cuEventSynchronize(event.0) }
    }

    /// Milliseconds between two events that the stream has passed.
    pub(super) fn millis_between(&self, start: &Event, end: &Event) -> Result<f32, Failure> {
        let _entered = self.enter()?;
        let mut millis = 0.0;
        // SAFETY: `millis` is there to be written, the handles are alive and of this context.
        unsafe { api::cuEventElapsedTime(&mut millis, start.0, end.0)? };
        Ok(millis)
    }

    /// Destroys the event, once it is passed if it is still to be.
    pub(super) fn drop_event(&self, event: Event) {
        // SAFETY: the handle is alive, of this context, and not used again.
        let _ = self.enter().and_then(|_entered| unsafe { api::cuEventDestroy_v2(event.0) });
    }

    /// Compiles text to what [`load`](Driver::load) takes.
    pub(super) fn link(&self, text: &str) -> Result<Vec<u8>, LinkFailure> {
        let _entered = self.enter()?;
        let mut log = vec![0_u8; 8 << 10];
        let mut options = [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The driver takes numbers as pointers.
        let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(log.len() - 1)];
        let mut state = null_mut();
        // SAFETY: as many options as values are there, and they, the log and its length outlive the state.
        unsafe { api::cuLinkCreate_v2(2, options.as_mut_ptr(), values.as_mut_ptr(), &mut state)? };
        let linked = self.link_in(state, text);
        // SAFETY: the state is alive and not used again.
        let destroyed = unsafe { api::cuLinkDestroy(state) };
        let image = linked.map_err(|failure| LinkFailure { failure, log: String::new() });
        image.and_then(|image| Ok(destroyed.map(|()| image)?)).map_err(|mut failure| {
            let written = log.split(|&byte| byte == 0).next().unwrap_or_default();
            failure.log = String::from_utf8_lossy(written).trim().to_owned();
            failure
        })
    }

    fn link_in(&self, state: CUlinkState, text: &str) -> Result<Vec<u8>, Failure> {
        let text = c_string(text, "cuLinkAddData_v2")?;
        let len = text.as_bytes_with_nul().len();
        let (mut image, mut image_len) = (null_mut(), 0);
        // SAFETY: the text ends with the zero that its length counts, and is only read; no options are passed; the
        // image is the driver's until the state is destroyed and has as many bytes as it says.
        unsafe {
            let data = text.as_ptr().cast_mut().cast();
            let kind = CUjitInputType::CU_JIT_INPUT_PTX;
            api::cuLinkAddData_v2(state, kind, data, len, c"kernel.ptx".as_ptr(), 0, null_mut(), null_mut())?;
            api::cuLinkComplete(state, &mut image, &mut image_len)?;
            if image.is_null() {
                return Ok(vec![]);
            }
            Ok(std::slice::from_raw_parts(image.cast::<u8>(), image_len).to_vec())
        }
    }

    /// Loads what [`link`](Driver::link) made, and finds a kernel in it.
    pub(super) fn load(&self, image: &[u8], name: &str) -> Result<(Module, Entry), Failure> {
        let _entered = self.enter()?;
        let name = c_string(name, "cuModuleGetFunction")?;
        let (mut module, mut function) = (null_mut(), null_mut());
        // A driver that takes the image for text reads up to a zero.
        let image: Vec<u8> = image.iter().copied().chain([0]).collect();
        // SAFETY: the image is whole, since it is as the driver made it, and is only read during the call.
        unsafe { api::cuModuleLoadData(&mut module, image.as_ptr().cast())? };
        let module = Module(module);
        // SAFETY: the handle is alive, the name ends with a zero.
        match unsafe { api::cuModuleGetFunction(&mut function, module.0, name.as_ptr()) } {
            Ok(()) => Ok((module, Entry(function))),
            Err(failure) => {
                self.unload(module);
                Err(failure)
            }
        }
    }

    /// Removes code that no queued work runs.
    pub(super) fn unload(&self, module: Module) {
        // SAFETY: the handle is alive, of this context, and not used again.
        let _ = self.enter().and_then(|_entered| unsafe { api::cuModuleUnload(module.0) });
    }

    /// Lets launches of a kernel ask for so much shared memory beyond what it declares.
    pub(super) fn allow_shared(&self, entry: &Entry, bytes: u32) -> Result<(), Failure> {
        let _entered = self.enter()?;
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the kernel is alive and of this context.
        unsafe { api::cuFuncSetAttribute(entry.0, attribute, c_int::try_from(bytes).unwrap_or(c_int::MAX)) }
    }

    /// Queues a kernel.
    ///
    /// # Safety
    ///
    /// The kernel has as many parameters as there are addresses, all of them addresses, and accesses memory only that is
    /// there for it when it runs.
    pub(super) unsafe fn launch(&self, entry: &Entry, config: LaunchConfig, addresses: &[u64]) -> Result<(), Failure> {
        let _entered = self.enter()?;
        let LaunchConfig { grid: [x, y, z], block, shared } = config;
        let mut arguments = arguments(addresses);
        // SAFETY: the kernel is alive; there are as many arguments as it has parameters, and they are read during the
        // call. The caller vouches for the memory that it accesses.
        unsafe {
            let arguments = arguments.as_mut_ptr();
            api::cuLaunchKernel(entry.0, x, y, z, block, 1, 1, shared, self.stream, arguments, null_mut())
        }
    }

    /// A graph of kernels that run one after the other.
    ///
    /// # Safety
    ///
    /// As [`launch`](Driver::launch), for each launch of the graph; the kernels live as long as it.
    pub(super) unsafe fn graph<'a>(
        &self,
        launches: impl Iterator<Item = (&'a Entry, LaunchConfig, SmallVec<[u64; 6]>)>,
    ) -> Result<Graph, Failure> {
        let _entered = self.enter()?;
        let mut made = Graph { graph: null_mut(), instance: null_mut(), nodes: vec![] };
        let fill = || {
            // SAFETY: the handle is there to be written.
            unsafe { api::cuGraphCreate(&mut made.graph, 0)? };
            for (entry, config, addresses) in launches {
                let mut arguments = arguments(&addresses);
                let parameters = parameters(entry, config, &mut arguments);
                let mut node = null_mut();
                let (after, n_after) = made.nodes.last().map_or((ptr::null(), 0), |last| (ptr::from_ref(last), 1));
                // SAFETY: handles are alive, the node is there to be written, the parameters are copied.
                unsafe { api::cuGraphAddKernelNode_v2(&mut node, made.graph, after, n_after, &parameters)? };
                made.nodes.push(node);
            }
            // SAFETY: the graph is alive and the handle there to be written.
            unsafe { api::cuGraphInstantiateWithFlags(&mut made.instance, made.graph, 0) }
        };
        match fill() {
            Ok(()) => Ok(made),
            Err(failure) => {
                self.drop_graph(made);
                Err(failure)
            }
        }
    }

    /// Changes the addresses of a kernel in a graph, for later launches of it.
    ///
    /// # Safety
    ///
    /// As [`launch`](Driver::launch); `n` is the position of the kernel in the graph.
    pub(super) unsafe fn set_node(
        &self,
        graph: &mut Graph,
        n: usize,
        entry: &Entry,
        config: LaunchConfig,
        addresses: &[u64],
    ) -> Result<(), Failure> {
        let _entered = self.enter()?;
        let mut arguments = arguments(addresses);
        let parameters = parameters(entry, config, &mut arguments);
        // SAFETY: handles are alive, the parameters are copied; launches that are queued keep the old ones.
        unsafe { api::cuGraphExecKernelNodeSetParams_v2(graph.instance, graph.nodes[n], &parameters) }
    }

    /// Queues a graph.
    ///
    /// # Safety
    ///
    /// As [`launch`](Driver::launch).
    pub(super) unsafe fn launch_graph(&self, graph: &Graph) -> Result<(), Failure> {
        let _entered = self.enter()?;
        // SAFETY: handles are alive; the rest is as the caller says.
        unsafe { api::cuGraphLaunch(graph.instance, self.stream) }
    }

    /// Destroys a graph that no queued work runs.
    pub(super) fn drop_graph(&self, graph: Graph) {
        let _entered = self.enter();
        // SAFETY: the handles that were made are alive and not used again.
        unsafe {
            if !graph.instance.is_null() {
                let _ = api::cuGraphExecDestroy(graph.instance);
            }
            if !graph.graph.is_null() {
                let _ = api::cuGraphDestroy(graph.graph);
            }
        }
    }
}

/// Text for the driver, which must have no zero inside.
fn c_string(text: &str, call: &'static str) -> Result<CString, Failure> {
    const INVALID_VALUE: u32 = 1;
    CString::new(text).map_err(|_| Failure { call, cause: Cause::Code(INVALID_VALUE) })
}

/// Pointers to the arguments, which the driver reads during the call.
fn arguments(addresses: &[u64]) -> SmallVec<[*mut c_void; 6]> {
    addresses.iter().map(|address| ptr::from_ref(address).cast_mut().cast()).collect()
}

fn parameters(entry: &Entry, config: LaunchConfig, arguments: &mut [*mut c_void]) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: entry.0,
        gridDimX: config.grid[0],
        gridDimY: config.grid[1],
        gridDimZ: config.grid[2],
        blockDimX: config.block,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: config.shared,
        kernelParams: arguments.as_mut_ptr(),
        extra: null_mut(),
        kern: null_mut(),
        ctx: null_mut(),
    }
}
