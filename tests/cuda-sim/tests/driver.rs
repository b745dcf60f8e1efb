//! The stand-in driver behind the bindings that the backend uses.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUgraphInstantiate_flags, CUresult, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, DriverError, LaunchConfig, PushKernelArg, result};
use cudarc::nvrtc::Ptx;
use retape_cuda_sim::driver::{Driver, install};

const AXPY: &str = ".version 7.0
.target sm_75
.address_size 64
.visible .entry axpy(.param .u64 px, .param .u64 py, .param .f32 pa, .param .u32 pn)
.maxntid 256, 1, 1
{
  .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .f32 %f<4>;
  ld.param.u64 %rd1, [px]; ld.param.u64 %rd2, [py]; ld.param.f32 %f1, [pa]; ld.param.u32 %r1, [pn];
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra DONE;
  mul.wide.u32 %rd3, %r5, 4;
  add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;
  ld.global.f32 %f2, [%rd4]; ld.global.f32 %f3, [%rd5];
  fma.rn.f32 %f3, %f1, %f2, %f3;
  st.global.f32 [%rd5], %f3;
DONE:
  ret;
}";

static TURN: Mutex<()> = Mutex::new(());

/// The driver is one for all tests of this process: one at a time.
fn turn() -> (Driver, MutexGuard<'static, ()>) {
    let guard = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let driver = install();
    driver.reset();
    (driver, guard)
}

fn config(n: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (n.div_ceil(256), 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 }
}

#[test]
fn the_library_is_found_by_name() {
    let (_driver, _guard) = turn();
    // SAFETY: only opens the library.
    assert!(unsafe { sys::is_culib_present() });
    assert_eq!(CudaContext::device_count().unwrap(), 2);
    let context = CudaContext::new(0).unwrap();
    assert_eq!(context.compute_capability().unwrap(), (9, 0));
    assert_eq!(context.name().unwrap(), "PTX interpreter 0");
}

#[test]
fn a_kernel_runs_in_a_captured_graph() {
    let (driver, _guard) = turn();
    let context = CudaContext::new(0).unwrap();
    // SAFETY: one stream only.
    unsafe { context.disable_event_tracking() };
    let stream = context.new_stream().unwrap();
    let module = context.load_module(Ptx::from_src(AXPY)).unwrap();
    let axpy = module.load_function("axpy").unwrap();
    let n = 1000_u32;
    let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let xd = stream.clone_htod(&x).unwrap();
    let mut yd = stream.alloc_zeros::<f32>(n as usize).unwrap();
    let a = 2.0_f32;
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    let mut launch = stream.launch_builder(&axpy);
    launch.arg(&xd).arg(&mut yd).arg(&a).arg(&n);
    // SAFETY: the arguments are those of the kernel.
    unsafe { launch.launch(config(n)) }.unwrap();
    let graph = stream.end_capture(CUgraphInstantiate_flags(0)).unwrap().unwrap();
    assert_eq!(driver.counters().launches, 0);
    graph.launch().unwrap();
    graph.launch().unwrap();
    let y = stream.clone_dtoh(&yd).unwrap();
    stream.synchronize().unwrap();
    assert!(y.iter().zip(&x).all(|(y, x)| *y == 4.0 * x));
    assert_eq!((driver.counters().launches, driver.counters().graph_launches), (2, 2));
}

/// The raw function of the kernel above, in the current context.
fn function(text: &str, name: &str) -> (sys::CUmodule, sys::CUfunction) {
    let text = std::ffi::CString::new(text).unwrap();
    // SAFETY: the text ends with a zero, and the module lives as long as the test.
    unsafe {
        let module = result::module::load_data(text.as_ptr().cast()).unwrap();
        (module, result::module::get_function(module, std::ffi::CString::new(name).unwrap()).unwrap())
    }
}

/// Parameters of a kernel node; the values must live as long as the call that takes them.
fn node(function: sys::CUfunction, n: u32, args: &mut [*mut std::ffi::c_void]) -> sys::CUDA_KERNEL_NODE_PARAMS {
    sys::CUDA_KERNEL_NODE_PARAMS_v2_st {
        func: function,
        gridDimX: n.div_ceil(256),
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 256,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        kernelParams: args.as_mut_ptr(),
        extra: std::ptr::null_mut(),
        kern: std::ptr::null_mut(),
        ctx: std::ptr::null_mut(),
    }
}

/// A pointer to a value, as a kernel argument.
fn arg<T>(value: &mut T) -> *mut std::ffi::c_void {
    std::ptr::from_mut(value).cast()
}

#[test]
fn an_explicit_graph_is_built_replayed_and_changed() {
    let (driver, _guard) = turn();
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let (module, axpy) = function(AXPY, "axpy");
    let mut n = 600_u32;
    let x = stream.clone_htod(&vec![1.0_f32; 600]).unwrap();
    stream.synchronize().unwrap();
    // SAFETY: handles are those that the driver gave, arguments live as long as the calls.
    unsafe {
        let y = result::malloc_sync(4 * 600).unwrap();
        let mut graph = std::ptr::null_mut();
        sys::cuGraphCreate(&mut graph, 0).result().unwrap();
        let set = sys::CUDA_MEMSET_NODE_PARAMS { dst: y, pitch: 0, value: 0, elementSize: 4, width: 600, height: 1 };
        let mut zero = std::ptr::null_mut();
        sys::cuGraphAddMemsetNode(&mut zero, graph, std::ptr::null(), 0, &set, context.cu_ctx()).result().unwrap();
        let (x, _sync) = cudarc::driver::DevicePtr::device_ptr(&x, &stream);
        let (mut px, mut py, mut a) = (x, y, 3.0_f32);
        let mut args = [arg(&mut px), arg(&mut py), arg(&mut a), arg(&mut n)];
        let params = node(axpy, 600, &mut args);
        let (mut first, mut second) = (std::ptr::null_mut(), std::ptr::null_mut());
        sys::cuGraphAddKernelNode_v2(&mut first, graph, &zero, 1, &params).result().unwrap();
        sys::cuGraphAddKernelNode_v2(&mut second, graph, &first, 1, &params).result().unwrap();
        let mut count = 0;
        sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count).result().unwrap();
        assert_eq!(count, 3);
        let mut exec = std::ptr::null_mut();
        sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0).result().unwrap();
        let launch = || {
            let mut y_host = vec![0.0_f32; 600];
            sys::cuGraphLaunch(exec, stream.cu_stream()).result().unwrap();
            result::memcpy_dtoh_async(&mut y_host, y, stream.cu_stream()).unwrap();
            y_host
        };
        assert_eq!(launch(), vec![6.0; 600]);
        driver.set_order(retape_cuda_sim::Order::REVERSE);
        assert_eq!(launch(), vec![6.0; 600]);
        // Another factor in one node, then the whole of another graph.
        let mut other = 10.0_f32;
        let mut args = [arg(&mut px), arg(&mut py), arg(&mut other), arg(&mut n)];
        let params = node(axpy, 600, &mut args);
        sys::cuGraphExecKernelNodeSetParams_v2(exec, second, &params).result().unwrap();
        assert_eq!(launch(), vec![13.0; 600]);
        sys::cuGraphKernelNodeSetParams_v2(first, &params).result().unwrap();
        let mut info = std::mem::zeroed();
        sys::cuGraphExecUpdate_v2(exec, graph, &mut info).result().unwrap();
        assert_eq!(launch(), vec![13.0; 600]);
        sys::cuGraphKernelNodeSetParams_v2(second, &params).result().unwrap();
        sys::cuGraphExecUpdate_v2(exec, graph, &mut info).result().unwrap();
        assert_eq!(launch(), vec![20.0; 600]);
        let mut empty = std::ptr::null_mut();
        sys::cuGraphCreate(&mut empty, 0).result().unwrap();
        let refused = sys::cuGraphExecUpdate_v2(exec, empty, &mut info);
        assert_eq!(refused, CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
        assert_eq!(driver.counters().graph_launches, 5);
        assert!(driver.report().contains("0 axpy 10 "), "{}", driver.report());
        sys::cuGraphExecDestroy(exec).result().unwrap();
        sys::cuGraphDestroy(graph).result().unwrap();
        result::free_sync(y).unwrap();
        result::module::unload(module).unwrap();
    }
}

#[test]
fn copies_to_pinned_memory_come_when_somebody_waits() {
    let (driver, _guard) = turn();
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    // SAFETY: memory lives until it is freed at the end, and the driver is idle when it is looked at.
    unsafe {
        let host: *mut u32 = result::malloc_host(16, 0).unwrap().cast();
        let device = result::malloc_sync(16).unwrap();
        host.write(7);
        sys::cuMemcpyHtoDAsync_v2(device, host.cast(), 16, stream.cu_stream()).result().unwrap();
        // The copy has not begun: it takes what is there later.
        host.write(8);
        sys::cuMemcpyDtoHAsync_v2(host.add(1).cast(), device, 4, stream.cu_stream()).result().unwrap();
        assert_eq!((host.add(1).read(), driver.counters().bytes_from_device), (0, 0));
        assert_eq!(sys::cuStreamQuery(stream.cu_stream()), CUresult::CUDA_ERROR_NOT_READY);
        assert_eq!(sys::cuStreamQuery(stream.cu_stream()), CUresult::CUDA_SUCCESS);
        assert_eq!(host.add(1).read(), 8);
        result::memset_d8_sync(device, 0xff, 8).unwrap();
        let mut back = [0_u32; 4];
        result::memcpy_dtoh_sync(&mut back, device).unwrap();
        assert_eq!(back, [u32::MAX, u32::MAX, 0, 0]);
        result::free_sync(device).unwrap();
        result::free_host(host.cast()).unwrap();
    }
}

#[test]
fn streams_wait_for_events_of_others() {
    let (_driver, _guard) = turn();
    let context = CudaContext::new(0).unwrap();
    let (one, two) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    // SAFETY: memory and events live until the end of the test.
    unsafe {
        let host: *mut u32 = result::malloc_host(8, 0).unwrap().cast();
        let device = result::malloc_sync(4).unwrap();
        let event = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING).unwrap();
        host.write(5);
        sys::cuMemcpyHtoDAsync_v2(device, host.cast(), 4, one.cu_stream()).result().unwrap();
        result::event::record(event, one.cu_stream()).unwrap();
        sys::cuStreamWaitEvent(two.cu_stream(), event, 0).result().unwrap();
        sys::cuMemcpyDtoHAsync_v2(host.add(1).cast(), device, 4, two.cu_stream()).result().unwrap();
        two.synchronize().unwrap();
        assert_eq!(host.add(1).read(), 5);
        result::event::destroy(event).unwrap();
        result::free_sync(device).unwrap();
        result::free_host(host.cast()).unwrap();
    }
}

#[test]
fn a_fault_sticks_and_is_told() {
    let (driver, _guard) = turn();
    let context = CudaContext::new(1).unwrap();
    let stream = context.new_stream().unwrap();
    let module = context.load_module(Ptx::from_src(AXPY)).unwrap();
    let axpy = module.load_function("axpy").unwrap();
    let x = stream.clone_htod(&[1.0_f32; 8]).unwrap();
    let mut y = stream.alloc_zeros::<f32>(8).unwrap();
    stream.synchronize().unwrap();
    let (a, n) = (1.0_f32, 9_u32);
    let mut launch = stream.launch_builder(&axpy);
    launch.arg(&x).arg(&mut y).arg(&a).arg(&n);
    // SAFETY: the arguments are those of the kernel, except for the length that is one too great.
    unsafe { launch.launch(config(n)) }.unwrap();
    let refused = stream.synchronize().unwrap_err();
    assert_eq!(refused.0, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(stream.synchronize().unwrap_err(), refused);
    let fault = driver.last_fault();
    assert!(fault.contains("axpy:15: global access out of bounds: 4 bytes at 32 of an allocation of 32"), "{fault}");
    // The other device works on.
    let other = CudaContext::new(0).unwrap();
    assert!(other.new_stream().unwrap().clone_htod(&[1_u8]).is_ok());
    driver.reset();
    stream.synchronize().unwrap();
}

#[test]
fn what_cannot_be_compiled_is_explained() {
    let (driver, _guard) = turn();
    let _context = CudaContext::new(0).unwrap();
    let load = |text: &str| {
        let text = std::ffi::CString::new(text).unwrap();
        let mut log = vec![0_u8; 512];
        let mut options =
            [sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER, sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = [log.as_mut_ptr().cast(), log.len() as *mut std::ffi::c_void];
        let mut module = std::ptr::null_mut();
        // SAFETY: the buffers live as long as the call.
        let code = unsafe {
            sys::cuModuleLoadDataEx(&mut module, text.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr())
        };
        log.truncate(values[1] as usize);
        (code, String::from_utf8(log).unwrap())
    };
    let (code, log) = load(&AXPY.replace("fma.rn.f32", "fmaa.rn.f32"));
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_PTX);
    assert!(log.contains("line 16; error   : unknown instruction fmaa.rn.f32"), "{log}");
    driver.set_capability(0, 75);
    let (code, log) = load(&AXPY.replace("sm_75", "sm_80"));
    assert_eq!(code, CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert!(log.contains("sm_80"), "{log}");
    assert_eq!(load(&AXPY.replace("7.0", "9.9")).0, CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    assert_eq!(load(AXPY).0, CUresult::CUDA_SUCCESS);
    driver.fail("cuModuleLoadDataEx", 1, 2);
    assert_eq!(load(AXPY).0, CUresult::CUDA_SUCCESS);
    assert_eq!(load(AXPY).0, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    assert_eq!(load(AXPY).0, CUresult::CUDA_SUCCESS);
}

#[test]
fn a_linked_image_is_loaded_on_the_same_architecture_only() {
    let (driver, _guard) = turn();
    let _context = CudaContext::new(0).unwrap();
    // SAFETY: handles are those that the driver gave; the image is copied before its link is destroyed.
    unsafe {
        let mut link = std::ptr::null_mut();
        sys::cuLinkCreate_v2(0, std::ptr::null_mut(), std::ptr::null_mut(), &mut link).result().unwrap();
        let mut text = std::ffi::CString::new(AXPY).unwrap().into_bytes_with_nul();
        let kind = sys::CUjitInputType::CU_JIT_INPUT_PTX;
        let none = std::ptr::null_mut;
        let (data, len) = (text.as_mut_ptr().cast(), text.len());
        sys::cuLinkAddData_v2(link, kind, data, len, c"axpy".as_ptr(), 0, none(), std::ptr::null_mut())
            .result()
            .unwrap();
        let (mut image, mut len) = (std::ptr::null_mut(), 0);
        sys::cuLinkComplete(link, &mut image, &mut len).result().unwrap();
        let image = std::slice::from_raw_parts(image.cast::<u8>(), len).to_vec();
        sys::cuLinkDestroy(link).result().unwrap();
        assert_eq!(image[..4], *b"\x7fELF");
        let module = result::module::load_data(image.as_ptr().cast()).unwrap();
        result::module::get_function(module, c"axpy".to_owned()).unwrap();
        assert!(result::module::get_function(module, c"nothing".to_owned()).is_err());
        driver.set_capability(0, 80);
        let refused = result::module::load_data(image.as_ptr().cast()).unwrap_err();
        assert_eq!(refused.0, CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU);
    }
}

#[test]
fn memory_runs_out_and_comes_back() {
    let (driver, _guard) = turn();
    let context = CudaContext::new(0).unwrap();
    let before = driver.counters();
    let (free, total) = context.mem_get_info().unwrap();
    driver.set_memory(0, (total - free + 1000) as u64);
    assert_eq!(context.mem_get_info().unwrap(), (1000, total - free + 1000));
    // SAFETY: nothing uses the memory.
    unsafe {
        let one = result::malloc_sync(600).unwrap();
        assert_eq!(result::malloc_sync(600).unwrap_err(), DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        result::free_sync(one).unwrap();
        let two = result::malloc_sync(600).unwrap();
        assert_eq!(driver.counters().live_allocations, before.live_allocations + 1);
        result::free_sync(two).unwrap();
        assert_eq!(result::free_sync(two).unwrap_err(), DriverError(CUresult::CUDA_ERROR_INVALID_VALUE));
    }
}

#[test]
fn memory_of_dry_runs_is_addresses_only() {
    let (driver, _guard) = turn();
    let context = CudaContext::new(0).unwrap();
    context.bind_to_thread().unwrap();
    driver.set_memory(0, 1 << 40);
    driver.set_dry(true);
    // SAFETY: the copies are within the arrays, which are freed once.
    unsafe {
        let [one, other] = [1 << 39, 1 << 38].map(|bytes| result::malloc_sync(bytes).unwrap());
        assert_eq!(driver.counters().live_bytes, 3 << 38);
        result::memcpy_htod_sync(one + (1 << 39) - 8, &[7_u64]).unwrap();
        assert!(result::memcpy_htod_sync(one + (1 << 39) - 7, &[7_u64]).is_err());
        result::memcpy_dtod_sync(other, one, 1 << 38).unwrap();
        let mut read = [1_u64];
        result::memcpy_dtoh_sync(&mut read, other).unwrap();
        assert_eq!(read, [0]);
        for address in [one, other] {
            result::free_sync(address).unwrap();
        }
    }
    driver.reset();
}

#[test]
fn devices_do_not_mix() {
    let (_driver, _guard) = turn();
    let (one, two) = (CudaContext::new(0).unwrap(), CudaContext::new(1).unwrap());
    let module = one.load_module(Ptx::from_src(AXPY)).unwrap();
    let axpy = module.load_function("axpy").unwrap();
    let stream = two.new_stream().unwrap();
    let (a, n) = (1.0_f32, 0_u32);
    let mut launch = stream.launch_builder(&axpy);
    launch.arg(&0_u64).arg(&0_u64).arg(&a).arg(&n);
    // SAFETY: the kernel of no elements touches nothing.
    let refused = unsafe { launch.launch(config(1)) }.unwrap_err();
    assert_eq!(refused.0, CUresult::CUDA_ERROR_INVALID_HANDLE);
}

#[test]
fn a_launch_that_cannot_be_is_refused_at_once() {
    let (driver, _guard) = turn();
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let module = context.load_module(Ptx::from_src(AXPY)).unwrap();
    let axpy = module.load_function("axpy").unwrap();
    let launch = |block: u32, shared: u32| {
        let (a, n) = (1.0_f32, 0_u32);
        let mut launch = stream.launch_builder(&axpy);
        launch.arg(&0_u64).arg(&0_u64).arg(&a).arg(&n);
        let config = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (block, 1, 1), shared_mem_bytes: shared };
        // SAFETY: the kernel of no elements touches nothing.
        unsafe { launch.launch(config) }.map(drop)
    };
    launch(256, 0).unwrap();
    assert!(launch(257, 0).is_err());
    assert!(driver.last_fault().contains(".maxntid"), "{}", driver.last_fault());
    assert!(launch(32, 50_000).is_err());
    axpy.set_attribute(sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 50_000).unwrap();
    launch(32, 50_000).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn a_capture_is_spoiled_by_what_it_cannot_hold() {
    let (_driver, _guard) = turn();
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let begin = || stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL).unwrap();
    let end = || stream.end_capture(CUgraphInstantiate_flags(0)).map(drop).unwrap_err().0;
    begin();
    assert_eq!(stream.synchronize().unwrap_err().0, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_eq!(end(), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    begin();
    // SAFETY: no memory is made.
    assert!(unsafe { result::malloc_sync(16) }.is_err());
    assert_eq!(end(), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_eq!(end(), CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
}

extern "C" fn double(data: *mut std::ffi::c_void) {
    // SAFETY: the test gives a number that lives as long as the work.
    unsafe { *data.cast::<u32>() *= 2 };
}

#[test]
fn a_capture_goes_over_two_streams_and_calls_the_host() {
    let (driver, _guard) = turn();
    let context = CudaContext::new(0).unwrap();
    let (one, two) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    // SAFETY: memory, events and graphs live until the end of the test.
    unsafe {
        let host: *mut u32 = result::malloc_host(16, 0).unwrap().cast();
        for n in 0..4 {
            host.add(n).write(10 + n as u32);
        }
        let device = result::malloc_sync(8).unwrap();
        let event = || result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING).unwrap();
        let (fork, join) = (event(), event());
        let capture = |joins: bool| {
            one.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
            result::event::record(fork, one.cu_stream()).unwrap();
            sys::cuStreamWaitEvent(two.cu_stream(), fork, 0).result().unwrap();
            sys::cuMemcpyHtoDAsync_v2(device, host.cast(), 4, one.cu_stream()).result().unwrap();
            sys::cuMemcpyHtoDAsync_v2(device + 4, host.add(1).cast(), 4, two.cu_stream()).result().unwrap();
            result::event::record(join, two.cu_stream()).unwrap();
            if joins {
                sys::cuStreamWaitEvent(one.cu_stream(), join, 0).result().unwrap();
            }
            sys::cuMemcpyDtoHAsync_v2(host.add(2).cast(), device, 8, one.cu_stream()).result().unwrap();
            sys::cuLaunchHostFunc(one.cu_stream(), Some(double), host.add(3).cast()).result().unwrap();
            let mut graph = std::ptr::null_mut();
            (sys::cuStreamEndCapture(one.cu_stream(), &mut graph), graph)
        };
        assert_eq!(capture(false).0, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
        let (code, graph) = capture(true);
        assert_eq!(code, CUresult::CUDA_SUCCESS);
        let mut exec = std::ptr::null_mut();
        sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0).result().unwrap();
        for order in retape_cuda_sim::Order::ALL {
            driver.set_order(order);
            sys::cuGraphLaunch(exec, one.cu_stream()).result().unwrap();
            assert_ne!(host.add(3).read(), 22);
            one.synchronize().unwrap();
            assert_eq!((host.add(2).read(), host.add(3).read()), (10, 22));
            host.add(3).write(0);
        }
        for event in [fork, join] {
            result::event::destroy(event).unwrap();
        }
        result::free_sync(device).unwrap();
        result::free_host(host.cast()).unwrap();
    }
}

#[test]
fn functions_are_found_by_name() {
    let (_driver, _guard) = turn();
    let context = CudaContext::new(0).unwrap();
    let mut found = std::ptr::null_mut();
    let mut status = sys::CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS;
    // SAFETY: the function that is found has the type of its name.
    unsafe {
        sys::cuGetProcAddress_v2(c"cuMemGetInfo".as_ptr(), &mut found, 13_000, 0, &mut status).result().unwrap();
        let get: extern "C" fn(*mut usize, *mut usize) -> i32 = std::mem::transmute(found);
        let (mut free, mut total) = (0, 0);
        assert_eq!(get(&mut free, &mut total), 0);
        assert_eq!((free, total), context.mem_get_info().unwrap());
        let missing = sys::cuGetProcAddress_v2(c"cuNothing".as_ptr(), &mut found, 13_000, 0, &mut status);
        assert_eq!(missing, CUresult::CUDA_ERROR_NOT_FOUND);
    }
}
