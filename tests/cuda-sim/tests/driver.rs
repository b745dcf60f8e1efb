//! The stand-in driver behind the bindings that the backend uses.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUgraphInstantiate_flags, CUresult, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaStream, LaunchConfig, PushKernelArg};
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
