//! GPUs: memory, copies, code and graphs of the real bindings, on the stand-in driver, or with `RETAPE_TEST_GPU=real` on
//! that of the machine, where tests that let the driver fail do nothing.

#![cfg(all(feature = "cuda", target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::{env, fs, thread};

use retape_cuda_sim::driver::{Driver, install};
use retape_runtime::cuda::{Address, Chain, Function, Idle, Launch, Source};
use retape_runtime::{ByteCount, Device, DeviceBuffer, Error, Gpu, Refusal, Shortage};

/// The stand-in driver, unless tests run on a real one.
fn driver() -> Option<Driver> {
    (env::var("RETAPE_TEST_GPU").as_deref() != Ok("real")).then(install)
}

/// The first GPU, for one test at a time: all share its numbers.
fn gpu() -> (MutexGuard<'static, ()>, Arc<Gpu>) {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    driver();
    let gpu = Gpu::open(0).unwrap();
    gpu.set_code_folder(None);
    gpu.trim().unwrap();
    (guard, gpu)
}

/// Runs a test of this file in a process of its own, where `RETAPE_CHILD` is set; returns whether this is that process.
fn is_child(test: &str, variables: &[(&str, &str)]) -> bool {
    if env::var("RETAPE_CHILD").is_ok_and(|child| child == test) {
        return true;
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--test-threads=1"]).env("RETAPE_CHILD", test).envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn floats(buffer: &DeviceBuffer) -> Vec<f32> {
    buffer.to_host().unwrap().to_vec().unwrap()
}

/// A kernel that adds `what` to the 64 floats of its first buffer and writes them into its second one.
fn adding(what: f32) -> String {
    format!(
        ".version 7.0
.target sm_75
.address_size 64
.visible .entry add(.param .u64 p0, .param .u64 p1)
.reqntid 64
{{
    .reg .b32 %r<1>;
    .reg .b64 %rd<4>;
    .reg .f32 %f<1>;
    ld.param.u64 %rd0, [p0];
    cvta.to.global.u64 %rd0, %rd0;
    ld.param.u64 %rd1, [p1];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd2, %r0, 4;
    add.u64 %rd0, %rd0, %rd2;
    add.u64 %rd1, %rd1, %rd2;
    ld.global.f32 %f0, [%rd0];
    add.rn.f32 %f0, %f0, 0f{:08X};
    st.global.f32 [%rd1], %f0;
    ret;
}}
",
        what.to_bits()
    )
}

fn load(gpu: &Arc<Gpu>, what: f32) -> Arc<Function> {
    let text = adding(what);
    gpu.load(&[Source { name: "add", text: &text }]).unwrap().remove(0)
}

fn launch(function: &Arc<Function>, from: usize, to: usize) -> Launch {
    let at = |base| Address { base, offset: 0 };
    let arguments = [at(from), at(to)].into_iter().collect();
    Launch { function: Arc::clone(function), grid: [1, 1, 1], block: 64, shared: 0, arguments }
}

/// Adds 1, then 10, from the first buffer by the second to the third.
fn two_steps(gpu: &Arc<Gpu>) -> Chain {
    let (one, ten) = (load(gpu, 1.0), load(gpu, 10.0));
    Chain::new(gpu, vec![launch(&one, 0, 1), launch(&ten, 1, 2)]).unwrap()
}

fn run(chain: &Chain, buffers: &[&DeviceBuffer]) {
    let bases: Vec<u64> = buffers.iter().map(|buffer| buffer.address()).collect();
    // SAFETY: the kernels of these tests use 256 bytes of two buffers each.
    unsafe { chain.run(&bases) }.unwrap();
}

#[test]
fn without_a_driver_the_error_says_what_was_looked_for() {
    if !is_child("without_a_driver_the_error_says_what_was_looked_for", &[("LD_LIBRARY_PATH", "")]) {
        return;
    }
    match Device::cuda(0) {
        Ok(device) => assert!(Device::available().contains(&device), "this machine has a driver"),
        Err(refused) => {
            let text = refused.to_string();
            assert!(text.starts_with("cuda:0 cannot be used: "), "{text}");
            assert!(text.contains("libcuda.so, ") || text.contains("the NVIDIA driver"), "{text}");
            assert_eq!(Device::available(), [Device::Cpu]);
        }
    }
    // A driver that comes later is found.
    if driver().is_some() {
        assert!(Device::cuda(0).is_ok());
    }
}

#[test]
fn a_driver_that_refuses_is_an_error() {
    if !is_child("a_driver_that_refuses_is_an_error", &[]) {
        return;
    }
    let Some(driver) = driver() else { return };
    for (code, name) in [(100, "CUDA_ERROR_NO_DEVICE"), (4444, "an unknown error")] {
        driver.fail("cuInit", 0, code);
        let refused = Device::cuda(0).unwrap_err().to_string();
        let expected = format!("cuda:0 cannot be used: the NVIDIA driver refused: cuInit failed with {name} ({code})");
        assert!(refused.starts_with(&expected), "{refused}");
        driver.fail("cuInit", 0, code);
        assert_eq!(Device::available(), [Device::Cpu]);
    }
    driver.fail("cuDevicePrimaryCtxRetain", 0, 2);
    let refused = Device::cuda(0).unwrap_err().to_string();
    assert!(refused.contains("cuDevicePrimaryCtxRetain failed with CUDA_ERROR_OUT_OF_MEMORY (2)"), "{refused}");
    driver.set_capability(1, 70);
    assert_eq!(Device::available(), [Device::Cpu, Device::Cuda(0)]);
    let refused = Device::cuda(1).unwrap_err().to_string();
    assert!(refused.contains("has compute capability 7.0, and at least 7.5 is needed"), "{refused}");
    assert_eq!(Device::cuda(0), Ok(Device::Cuda(0)));
}

#[test]
fn copies_need_no_pinned_memory() {
    if !is_child("copies_need_no_pinned_memory", &[]) {
        return;
    }
    let Some(driver) = driver() else { return };
    driver.fail("cuMemHostAlloc", 0, 2);
    let gpu = Gpu::open(0).unwrap();
    for len in [5, 3 << 20] {
        let source: Vec<u8> = (0..len).map(|n| (n * 7) as u8).collect();
        assert_eq!(DeviceBuffer::from_bytes(&gpu, &source).unwrap().to_host().unwrap().bytes(), source);
    }
}

#[test]
fn copies_go_from_one_device_to_another() {
    let (_alone, gpu) = gpu();
    let Ok(other) = Gpu::open(1) else {
        assert!(driver().is_none(), "the stand-in has two devices");
        return;
    };
    let source: Vec<u8> = (0..100_000).map(|n| (n * 7) as u8).collect();
    let copy = DeviceBuffer::from_bytes(&gpu, &source).unwrap().copy_to(&other).unwrap();
    assert!(Arc::ptr_eq(copy.gpu(), &other));
    let back = copy.copy_to(&gpu).unwrap();
    assert_eq!(back.to_host().unwrap().bytes(), source);
    assert!(Device::available().starts_with(&[Device::Cpu, Device::Cuda(0), Device::Cuda(1)]));
}

#[test]
fn graphs_are_an_optimisation_only() {
    let (_alone, gpu) = gpu();
    let Some(driver) = driver() else { return };
    let chain = two_steps(&gpu);
    let buffer = |x: f32| DeviceBuffer::from_bytes(&gpu, &bytes(&[x; 64])).unwrap();
    let (input, middle, output) = (buffer(1.0), buffer(0.0), buffer(0.0));
    let mut counts = vec![];
    for n in 0..4 {
        let before = driver.counters();
        // No graph can be made the first time, nor the second.
        if n < 2 {
            driver.fail("cuGraphInstantiateWithFlags", 0, 2);
        }
        run(&chain, &[&input, &middle, &output]);
        assert_eq!(floats(&output), [12.0; 64]);
        let now = driver.counters();
        counts.push((now.launches - before.launches, now.graph_launches - before.graph_launches));
    }
    assert_eq!(counts, [(2, 0), (2, 0), (2, 1), (2, 1)]);
    // Nor can one be changed.
    for n in 0..8 {
        let output = buffer(0.0);
        let inputs: Vec<DeviceBuffer> = (0..n).map(|n| buffer(n as f32)).collect();
        for input in inputs.iter().chain([&input]) {
            driver.fail("cuGraphExecKernelNodeSetParams_v2", 1, 1);
            run(&chain, &[input, &middle, &output]);
        }
        assert_eq!(floats(&output), [12.0; 64]);
    }
    assert_eq!(chain.n_graphs(), 4);
    driver.reset();
}

#[test]
fn code_is_loaded_after_idle_memory_is_freed() {
    let (_alone, gpu) = gpu();
    let Some(driver) = driver() else { return };
    drop(DeviceBuffer::alloc(&gpu, 1 << 20).unwrap());
    assert!(gpu.memory().idle_bytes > 0);
    driver.fail("cuModuleLoadData", 0, 2);
    assert_eq!(load(&gpu, 7.0).name(), "add");
    assert_eq!(gpu.memory().idle_bytes, 0);
    for (n, call) in ["cuLinkCreate_v2", "cuLinkAddData_v2", "cuLinkComplete"].into_iter().enumerate() {
        drop(DeviceBuffer::alloc(&gpu, 1 << 20).unwrap());
        driver.fail(call, 0, 2);
        assert_eq!(load(&gpu, 8.0 + n as f32).name(), "add", "{call}");
        assert_eq!(gpu.memory().idle_bytes, 0, "{call}");
    }
}

#[test]
fn exact_memory_shows_the_driver_every_buffer() {
    let (_alone, gpu) = gpu();
    let Some(driver) = driver() else { return };
    let before = driver.counters();
    gpu.set_exact_memory(true);
    let buffer = DeviceBuffer::from_bytes(&gpu, &[7; 1001]).unwrap();
    assert_eq!(driver.counters().live_bytes, before.live_bytes + 1001);
    assert_eq!(buffer.to_host().unwrap().bytes(), [7; 1001]);
    drop(buffer);
    gpu.set_exact_memory(false);
    assert_eq!(driver.counters().live_bytes, before.live_bytes);
    assert_eq!((gpu.memory().live_bytes, gpu.memory().idle_bytes), (0, 0));
}

#[test]
fn memory_that_the_driver_refuses_is_an_error() {
    let (_alone, gpu) = gpu();
    let Some(driver) = driver() else { return };
    let held = driver.counters().live_bytes;
    driver.set_memory(0, held + (1 << 20));
    let half = DeviceBuffer::alloc(&gpu, 512 << 10).unwrap();
    let refused = DeviceBuffer::alloc(&gpu, 768 << 10).unwrap_err();
    assert!(matches!(refused, Error::Allocation(Shortage { bytes: 786_432, .. })), "{refused}");
    drop(half);
    assert!(DeviceBuffer::alloc(&gpu, 768 << 10).is_ok(), "what is idle makes way");
    driver.reset();
    assert!(DeviceBuffer::alloc(&gpu, 8 << 20).is_ok());
}

/// The context of this thread.
fn current() -> cudarc::driver::sys::CUcontext {
    let mut context = std::ptr::null_mut();
    // SAFETY: the context is there to be written.
    assert_eq!(unsafe { cudarc::driver::sys::cuCtxGetCurrent(&mut context) } as u32, 0);
    context
}

/// Another library that uses the driver in the same thread finds its context as it left it.
#[test]
fn the_context_of_a_thread_stays() {
    use cudarc::driver::sys;
    let (_guard, gpu) = gpu();
    let work = || {
        let buffer = DeviceBuffer::from_bytes(&gpu, &bytes(&[1.0; 64])).unwrap();
        let (middle, last) = (DeviceBuffer::alloc(&gpu, 256).unwrap(), DeviceBuffer::alloc(&gpu, 256).unwrap());
        let chain = two_steps(&gpu);
        for _ in 0..3 {
            run(&chain, &[&buffer, &middle, &last]);
        }
        assert_eq!(floats(&last), [12.0; 64]);
    };
    thread::scope(|scope| {
        let of_none = scope.spawn(|| {
            work();
            assert!(current().is_null());
        });
        of_none.join().unwrap();
        let of_another = scope.spawn(|| {
            let (mut own, mut other) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: the contexts are there to be written, and are released by no one.
            unsafe {
                let device = if Device::available().contains(&Device::Cuda(1)) { 1 } else { 0 };
                assert_eq!(sys::cuDevicePrimaryCtxRetain(&mut own, 0) as u32, 0);
                assert_eq!(sys::cuDevicePrimaryCtxRetain(&mut other, device) as u32, 0);
            }
            for context in [own, other] {
                // SAFETY: the context was retained.
                assert_eq!(unsafe { sys::cuCtxSetCurrent(context) } as u32, 0);
                work();
                assert_eq!(current(), context);
            }
        });
        of_another.join().unwrap();
    });
}

#[test]
fn devices_are_found_and_named() {
    let (_alone, gpu) = gpu();
    assert_eq!(Device::cuda(0), Ok(Device::Cuda(0)));
    assert_eq!(gpu.device().to_string(), "cuda:0");
    assert!(Device::available().contains(&Device::Cuda(0)));
    assert!(gpu.capability() >= (7, 5) && gpu.total_bytes() > 0 && !gpu.name().is_empty());
    assert!(Arc::ptr_eq(&gpu, &Gpu::open(0).unwrap()));
    let refused = Device::cuda(99).unwrap_err().to_string();
    assert!(refused.starts_with("cuda:99 cannot be used: this machine has "), "{refused}");
    assert!(refused.contains("cuda:0"), "{refused}");
    // Other machines have other numbers of them.
    if driver().is_some() {
        assert!(refused.ends_with("this machine has 2, cuda:0 to cuda:1"), "{refused}");
    }
}

#[test]
fn copies_come_back() {
    let (_alone, gpu) = gpu();
    for len in [0, 1, 63, 64, 1000, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, (9 << 20) + 5] {
        let source: Vec<u8> = (0..len).map(|n| (n * 7 + n / 251) as u8).collect();
        let mut buffer = DeviceBuffer::from_bytes(&gpu, &source).unwrap();
        assert_eq!(buffer.to_host().unwrap().bytes(), source);
        let copy = buffer.copy_to(&gpu).unwrap();
        buffer.write(&vec![9; len]).unwrap();
        assert_eq!(copy.to_host().unwrap().bytes(), source);
        let mut middle = vec![0; len / 3];
        copy.read_at(len / 3, &mut middle).unwrap();
        assert_eq!(middle, source[len / 3..len / 3 * 2]);
        assert!(buffer.write(&vec![0; len + 1]).is_err() && copy.read_at(1, &mut vec![0; len]).is_err());
        assert!(buffer.address().is_multiple_of(256));
    }
    // More than the ring holds, in small pieces.
    let buffers: Vec<DeviceBuffer> =
        (0..1200_u32).map(|n| DeviceBuffer::from_bytes(&gpu, &[n as u8; 9001]).unwrap()).collect();
    for (n, buffer) in buffers.iter().enumerate().step_by(7) {
        assert_eq!(buffer.to_host().unwrap().bytes(), [n as u8; 9001]);
    }
}

#[test]
fn bytes_are_copied_within_a_buffer() {
    let (_alone, gpu) = gpu();
    let buffer = DeviceBuffer::from_bytes(&gpu, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    buffer.copy_within(1, 4, 3).unwrap();
    buffer.copy_within(7, 0, 1).unwrap();
    buffer.copy_within(8, 8, 0).unwrap();
    assert_eq!(buffer.to_host().unwrap().bytes(), [8, 2, 3, 4, 2, 3, 4, 8]);
    for (from, to, len) in [(6, 0, 3), (0, 6, 3), (usize::MAX, 0, 2), (0, 2, 3), (3, 3, 1)] {
        assert!(buffer.copy_within(from, to, len).is_err(), "{len} bytes from {from} to {to}");
    }
    assert_eq!(buffer.to_host().unwrap().bytes(), [8, 2, 3, 4, 2, 3, 4, 8]);
}

#[test]
fn a_part_of_a_buffer_is_copied() {
    let (_alone, gpu) = gpu();
    let buffer = DeviceBuffer::from_bytes(&gpu, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    for bytes in [0..8, 3..7, 7..8, 4..4, 8..8] {
        let copy = buffer.copy_of(bytes.clone()).unwrap();
        assert_eq!(copy.to_host().unwrap().bytes(), buffer.to_host().unwrap().bytes()[bytes].as_ref());
    }
    for bytes in [7..9, 9..9, usize::MAX - 1..usize::MAX] {
        assert!(buffer.copy_of(bytes.clone()).is_err(), "{bytes:?}");
    }
}

#[test]
fn another_library_gets_the_stream_in_its_context() {
    let (_alone, gpu) = gpu();
    let before = current();
    let of = |gpu: &Gpu| gpu.with_stream(|stream| (stream as usize, current())).unwrap();
    let (stream, context) = of(&gpu);
    assert!(stream != 0 && !context.is_null() && gpu.uuid() != [0; 16]);
    if let Ok(other) = Gpu::open(1) {
        let (other_stream, other_context) = of(&other);
        assert!(other_stream != stream && other_context != context && other.uuid() != gpu.uuid());
    }
    assert_eq!(current(), before);
}

#[test]
fn freed_memory_is_used_again() {
    let (_alone, gpu) = gpu();
    let before = gpu.memory();
    let first = DeviceBuffer::alloc(&gpu, 100_000).unwrap();
    let address = first.address();
    drop(first);
    let second = DeviceBuffer::alloc(&gpu, 99_000).unwrap();
    assert_eq!(second.address(), address);
    let now = gpu.memory();
    assert_eq!((now.fresh - before.fresh, now.reused - before.reused), (1, 1));
    assert!(now.live_bytes - before.live_bytes >= 100_000 && now.peak_bytes >= now.live_bytes);
    drop(second);
    assert_eq!(gpu.memory().live_bytes, before.live_bytes);
    gpu.trim().unwrap();
    assert_eq!(gpu.memory().idle_bytes, 0);
}

/// Memory that can be given up.
struct Spare(Mutex<Option<DeviceBuffer>>);

impl Idle for Spare {
    fn give_up(&self) {
        *self.0.lock().unwrap() = None;
    }
}

#[test]
fn too_little_memory_is_an_error_and_no_end() {
    let (_alone, gpu) = gpu();
    let live = gpu.memory().live_bytes;
    gpu.set_memory_limit(live + (1 << 20));
    let held = DeviceBuffer::alloc(&gpu, 512 << 10).unwrap();
    let refused = DeviceBuffer::alloc(&gpu, 768 << 10).unwrap_err();
    let in_use = live + (512 << 10);
    let total = live + (1 << 20);
    let (used, limit) = (ByteCount(in_use), ByteCount(total));
    let text = format!("cannot allocate: 768.0 KiB asked for, {used} in use on cuda:0, limit {limit}");
    assert_eq!(refused.to_string(), text);
    assert!(matches!(refused, Error::Allocation(Shortage { bytes: 786_432, refusal: Refusal::Limit, .. })));
    assert_eq!(gpu.memory().live_bytes, in_use, "what was refused is not counted");
    // Kept memory of another size makes way.
    drop(held);
    let all = DeviceBuffer::alloc(&gpu, 1 << 20).unwrap();
    drop(all);
    // So does what its owner can do without.
    let spare = Arc::new(Spare(Mutex::new(Some(DeviceBuffer::alloc(&gpu, 900 << 10).unwrap()))));
    let weak: Weak<Spare> = Arc::downgrade(&spare);
    gpu.on_shortage(weak);
    let all = DeviceBuffer::alloc(&gpu, 1 << 20).unwrap();
    assert!(spare.0.lock().unwrap().is_none());
    gpu.set_memory_limit(usize::MAX);
    drop(all);
    let large = DeviceBuffer::alloc(&gpu, usize::MAX / 4).unwrap_err();
    assert!(large.to_string().contains("cuda:0"), "{large}");
    assert_eq!(DeviceBuffer::from_bytes(&gpu, &[1, 2, 3]).unwrap().to_host().unwrap().bytes(), [1, 2, 3]);
}

#[test]
fn chains_become_graphs_for_the_buffers_that_they_meet() {
    let (_alone, gpu) = gpu();
    let chain = two_steps(&gpu);
    let input = |n: usize| DeviceBuffer::from_bytes(&gpu, &bytes(&[n as f32; 64])).unwrap();
    let new = || DeviceBuffer::alloc(&gpu, 256).unwrap();
    let middle = new();
    assert_eq!(chain.n_graphs(), 0);
    run(&chain, &[&input(1), &middle, &new()]);
    assert_eq!(chain.n_graphs(), 1, "the first run makes one");
    let chain = two_steps(&gpu);
    // Two that alternate, which is what a training loop does: one graph each.
    let (inputs, outputs) = ([input(1), input(2)], [new(), new()]);
    for n in 0..10 {
        run(&chain, &[&inputs[n % 2], &middle, &outputs[n % 2]]);
        assert_eq!(floats(&outputs[n % 2]), [(n % 2 + 12) as f32; 64]);
    }
    assert_eq!(chain.n_graphs(), 2);
    // Many different ones: graphs are changed.
    for n in 0..20 {
        let (input, output) = (input(n), new());
        run(&chain, &[&input, &middle, &output]);
        run(&chain, &[&output, &middle, &inputs[0]]);
        assert_eq!(floats(&output), [(n + 11) as f32; 64]);
        assert_eq!(floats(&inputs[0]), [(n + 22) as f32; 64]);
    }
    assert!(chain.n_graphs() <= 4);
}

#[test]
fn times_are_told() {
    let (_alone, gpu) = gpu();
    let chain = two_steps(&gpu);
    let buffers = [[1.0; 64]; 3].map(|values| DeviceBuffer::from_bytes(&gpu, &bytes(&values)).unwrap());
    let bases = [&buffers[0], &buffers[1], &buffers[2]].map(DeviceBuffer::address);
    // SAFETY: as in `run`.
    let spans = unsafe { chain.run_timed(&bases) }.unwrap();
    assert_eq!(spans.len(), 2);
    assert_eq!(spans[0].start, 0);
    assert!(spans[1].start >= spans[0].nanos);
    assert_eq!(floats(&buffers[2]), [12.0; 64]);
}

#[test]
fn code_is_shared_while_it_lives() {
    let (_alone, gpu) = gpu();
    let before = gpu.code_stats();
    let (first, second) = (load(&gpu, 4.0), load(&gpu, 4.0));
    assert!(Arc::ptr_eq(&first, &second));
    let (text, other) = (adding(4.0), adding(5.0));
    let source = |text| Source { name: "add", text };
    let three = gpu.load(&[source(&other), source(&text), source(&other)]).unwrap();
    assert!(Arc::ptr_eq(&three[0], &three[2]) && Arc::ptr_eq(&three[1], &first));
    assert_eq!(gpu.code_stats().live, before.live + 2);
    assert!(first.bytes() > 0);
    drop((first, second, three));
    assert_eq!(gpu.code_stats().live, before.live);
}

#[test]
fn refused_code_says_why() {
    let (_alone, gpu) = gpu();
    let before = gpu.code_stats();
    let text = adding(1.5).replace("add.rn.f32", "add.nonsense.f32");
    let refused = gpu.load(&[Source { name: "add", text: &text }]).unwrap_err().to_string();
    assert!(refused.starts_with("cuda:0: kernel add: ") && refused.contains("nonsense"), "{refused}");
    let refused = gpu.load(&[Source { name: "subtract", text: &adding(1.5) }]).unwrap_err().to_string();
    assert!(refused.contains("cuModuleGetFunction"), "{refused}");
    assert!(gpu.load(&[Source { name: "add", text: "zero \0 inside" }]).is_err());
    assert_eq!(gpu.code_stats().live, before.live);
    assert_eq!(load(&gpu, 1.5).name(), "add");
}

#[test]
fn empty_launches_are_refused() {
    let (_alone, gpu) = gpu();
    let one = load(&gpu, 1.0);
    for (grid, block) in [([1, 0, 1], 64), ([1, 1, 1], 0)] {
        let refused = Chain::new(&gpu, vec![Launch { grid, block, ..launch(&one, 0, 1) }]).unwrap_err();
        assert_eq!(refused.to_string(), "cuda:0: a launch of add has no threads");
    }
}

#[test]
fn threads_share_a_chain() {
    let (_alone, gpu) = gpu();
    let chain = two_steps(&gpu);
    thread::scope(|scope| {
        for thread in 0..8 {
            let (chain, gpu) = (&chain, &gpu);
            scope.spawn(move || {
                for n in 0..40 {
                    let input = DeviceBuffer::from_bytes(gpu, &bytes(&[(thread * 100 + n) as f32; 64])).unwrap();
                    let (middle, output) =
                        (DeviceBuffer::alloc(gpu, 256).unwrap(), DeviceBuffer::alloc(gpu, 256).unwrap());
                    run(chain, &[&input, &middle, &output]);
                    drop((input, middle));
                    assert_eq!(floats(&output), [(thread * 100 + n + 11) as f32; 64]);
                }
            });
        }
    });
}

#[test]
fn nothing_piles_up() {
    let (_alone, gpu) = gpu();
    let live = || {
        let counters = driver().map(|driver| driver.counters());
        counters.map(|now| [now.live_bytes, now.live_modules, now.live_graphs, now.live_events])
    };
    let round = |round: usize| {
        let chain = two_steps(&gpu);
        let input = DeviceBuffer::from_bytes(&gpu, &bytes(&[round as f32; 64])).unwrap();
        let (middle, output) = (DeviceBuffer::alloc(&gpu, 256).unwrap(), DeviceBuffer::alloc(&gpu, 256).unwrap());
        for _ in 0..3 {
            run(&chain, &[&input, &middle, &output]);
        }
        // Dropped while the work may be running.
        drop(chain);
        drop((input, middle));
        assert_eq!(floats(&output), [(round + 11) as f32; 64]);
    };
    let (memory, code, before) = (gpu.memory(), gpu.code_stats(), live());
    round(0);
    // Events that were used once are kept for the next use.
    let events = live().map(|[.., events]| events);
    (1..30).for_each(round);
    gpu.sync().unwrap();
    assert_eq!(gpu.memory().live_bytes, memory.live_bytes);
    assert_eq!(gpu.code_stats().live, code.live);
    assert!(gpu.memory().fresh - memory.fresh <= 3, "blocks are used again");
    gpu.trim().unwrap();
    assert_eq!(
        live(),
        before.zip(events).map(|([bytes, modules, graphs, _], events)| [bytes, modules, graphs, events])
    );
}

#[test]
fn the_driver_counts_free_memory() {
    let (_alone, gpu) = gpu();
    let before = gpu.free_bytes().unwrap();
    assert!(0 < before && before <= gpu.total_bytes());
    // On a real device, others may take and give memory at the same time.
    let Some(driver) = driver() else { return };
    let buffer = DeviceBuffer::alloc(&gpu, 1 << 20).unwrap();
    assert_eq!(before - gpu.free_bytes().unwrap(), 1 << 20);
    drop(buffer);
    assert_eq!(before - gpu.free_bytes().unwrap(), 1 << 20, "kept for reuse");
    gpu.trim().unwrap();
    assert_eq!(gpu.free_bytes().unwrap(), before);
    driver.fail("cuMemGetInfo_v2", 0, 1);
    assert!(gpu.free_bytes().unwrap_err().to_string().contains("cuMemGetInfo_v2"));
}

#[test]
fn code_on_disk_is_used_by_the_next_process() {
    const TEST: &str = "code_on_disk_is_used_by_the_next_process";
    let folder = env::temp_dir().join(format!("retape-cubin-{}", std::process::id()));
    if env::var("RETAPE_CHILD").is_err() {
        let _ = fs::remove_dir_all(&folder);
        let place = folder.to_str().unwrap();
        let child = |expected| is_child(TEST, &[("RETAPE_CUBIN_CACHE", place), ("RETAPE_EXPECT", expected)]);
        let files = || -> Vec<_> { fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect() };
        child("1 0");
        assert_eq!(files().len(), 1);
        child("0 1");
        for damage in [&b""[..], b"something else", b"retape cubin 1\n"] {
            fs::write(&files()[0], damage).unwrap();
            child("1 0");
            child("0 1");
        }
        let whole = fs::read(&files()[0]).unwrap();
        fs::write(&files()[0], &whole[..whole.len() - 1]).unwrap();
        child("1 0");
        fs::remove_dir_all(&folder).unwrap();
        is_child(TEST, &[("RETAPE_CUBIN_CACHE", "0"), ("RETAPE_EXPECT", "1 0")]);
        assert!(!folder.exists());
        // A folder that cannot be made.
        fs::write(&folder, b"a file").unwrap();
        child("1 0");
        fs::remove_file(&folder).unwrap();
        return;
    }
    driver();
    let gpu = Gpu::open(0).unwrap();
    let chain = Chain::new(&gpu, vec![launch(&load(&gpu, 3.0), 0, 1)]).unwrap();
    let buffers = [[1.0; 64]; 2].map(|values| DeviceBuffer::from_bytes(&gpu, &bytes(&values)).unwrap());
    run(&chain, &[&buffers[0], &buffers[1]]);
    assert_eq!(floats(&buffers[1]), [4.0; 64]);
    let stats = gpu.code_stats();
    assert_eq!(format!("{} {}", stats.compiled, stats.from_disk), env::var("RETAPE_EXPECT").unwrap());
}

#[test]
fn a_broken_device_says_so_from_then_on() {
    if !is_child("a_broken_device_says_so_from_then_on", &[("RETAPE_CUBIN_CACHE", "0")]) {
        return;
    }
    driver();
    let gpu = Gpu::open(0).unwrap();
    let one = load(&gpu, 1.0);
    let buffer = DeviceBuffer::from_bytes(&gpu, &bytes(&[1.0; 64])).unwrap();
    let chain = Chain::new(&gpu, vec![launch(&one, 0, 1)]).unwrap();
    // SAFETY: the stand-in checks accesses; on a device, the context does not survive this, which is the point.
    let _ = unsafe { chain.run(&[buffer.address(), 64]) };
    let first = gpu.sync().unwrap_err();
    assert!(matches!(first, Error::Gpu { .. }) && first.to_string().contains("(700)"), "{first}");
    assert_eq!(buffer.to_host().unwrap_err(), first);
    assert_eq!(DeviceBuffer::alloc(&gpu, 12345).unwrap_err(), first);
    assert_eq!(DeviceBuffer::from_bytes(&gpu, &[1; 256]).unwrap_err(), first);
    // Nothing panics on the way out.
    drop((chain, one, buffer));
}

#[test]
fn a_lost_context_ends_the_use_of_a_device() {
    let lost = |code| is_child("a_lost_context_ends_the_use_of_a_device", &[("RETAPE_EXPECT", code)]);
    if !["709", "999"].into_iter().any(lost) {
        return;
    }
    let Some(driver) = driver() else { return };
    let (gpu, code) = (Gpu::open(0).unwrap(), env::var("RETAPE_EXPECT").unwrap());
    driver.fail("cuStreamSynchronize", 0, code.parse().unwrap());
    let first = gpu.sync().unwrap_err();
    assert!(first.to_string().contains("ends the use") && first.to_string().contains(&code), "{first}");
    assert_eq!(gpu.sync().unwrap_err(), first);
}
