//! Plans on a GPU, against the same plans on the CPU: on the stand-in driver, or with `RETAPE_TEST_GPU=real` on that of
//! the machine.

#![cfg(all(feature = "cuda", target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{env, fs, thread};

use retape_cuda_sim::Order;
use retape_cuda_sim::driver::{Driver, install};
use retape_kernels::ir::{ParamId, parse};
use retape_kernels::library::{Library, MatMul, Print, Token, set_print_sink};
use retape_kernels::{
    BufferType, DeviceExecutable, Donation, Epilogue, Error, Executable, Input, Modes, Operand, Place, Plan, Step, Work,
};
use retape_runtime::{Buffer, DType, DeviceBuffer, Gpu, Shape};

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

fn f32s(n: usize) -> BufferType {
    BufferType { dtype: DType::F32, len: n }
}

fn step(label: &str, text: &str, places: &[Place]) -> Step {
    let kernel = parse(text).unwrap();
    let operands =
        kernel.params.iter().zip(places).map(|(p, &place)| Operand { place, dtype: p.dtype, len: p.len }).collect();
    Step { work: Work::Kernel(kernel), operands, label: label.into() }
}

fn ramp(n: usize, seed: usize) -> Buffer {
    let value = |i: usize| (((i + seed) * 7919) % 1013) as f32 * 1e-2 - 5.0;
    Buffer::copy_of(&(0..n).map(value).collect::<Vec<f32>>()).unwrap()
}

/// A kernel over `n` elements that reads its first parameters at the coordinate and writes to the last.
fn pointwise(n: usize, op: &str) -> String {
    format!(
        "kernel (p0: f32[{n}], p1: f32[{n}], p2: f32[{n}] out) {{\n  axes a0 = {n}\n%0 = load p0[a0]\n\
         %1 = load p1[a0]\n%2 = {op} %0, %1\nstore p2[a0], %2\n}}\n"
    )
}

/// A reversed copy of the first input; the sum of both; a quarter of the copy, times the second.
fn chain(n: usize) -> Plan {
    let reverse = format!(
        "kernel (p0: f32[{n}], p1: f32[{n}] out) {{\n  axes a0 = {n}\n%0 = load p0[{} + a0 * -1]\n\
         store p1[a0], %0\n}}\n",
        n - 1
    );
    let quarter = format!(
        "kernel (p0: f32[{n}], p1: f32[{n}] out) {{\n  axes a0 = {n}\n%0 = load p0[a0]\n%1 = const 0.25: f32\n\
         %2 = mul %0, %1\nstore p1[a0], %2\n}}\n"
    );
    let [a, b, slot] = [Place::Input(0), Place::Input(1), Place::Slot { offset: 0 }];
    Plan {
        inputs: vec![f32s(n); 2],
        outputs: vec![f32s(n); 2],
        arena_bytes: n * 4,
        steps: vec![
            step("reverse", &reverse, &[a, slot]),
            step("sum", &pointwise(n, "add"), &[a, b, Place::Output(0)]),
            step("scaled", &quarter, &[slot, slot]),
            step("product", &pointwise(n, "mul"), &[slot, b, Place::Output(1)]),
        ],
        ..Plan::default()
    }
}

/// [`chain`] with a print of the copy and one of a result.
fn printing(n: usize) -> Plan {
    let mut plan = chain(n);
    let print = |label: &str, place: Place| {
        let print = Print { label: label.into(), dtype: DType::F32, shape: Shape::new(&[n]) };
        let token = Operand { place: Place::Slot { offset: 0 }, dtype: Token::DTYPE, len: 0 };
        let operands = [Operand { place, dtype: DType::F32, len: n }, token, token].into_iter().collect();
        Step { work: Work::library(Library::from(print)), operands, label: label.into() }
    };
    plan.steps.insert(3, print("copy", Place::Slot { offset: 0 }));
    plan.steps.push(print("input", Place::Input(1)));
    plan
}

fn upload(gpu: &Arc<Gpu>, buffer: &Buffer) -> DeviceBuffer {
    DeviceBuffer::from_bytes(gpu, buffer.bytes()).unwrap()
}

fn assert_same(found: &[DeviceBuffer], expected: &[Buffer]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.to_host().unwrap().as_slice::<f32>(), expected.as_slice::<f32>());
    }
}

#[test]
fn plans_run_as_they_do_on_the_cpu() {
    let (_alone, gpu) = gpu();
    let set_order = |order| driver().iter().for_each(|driver| driver.set_order(order));
    for n in [1, 5, 1000, 4099] {
        let plan = chain(n);
        let host = Executable::compile(plan.clone()).unwrap();
        let device = DeviceExecutable::compile(plan, Arc::clone(&gpu), false).unwrap();
        assert_eq!((device.n_launches(), device.launch_steps().len()), (3, 3));
        assert!(device.arena_bytes() >= n * 4 && device.code_bytes() > 0);
        for seed in 0..4 {
            // No result depends on the order of what has none.
            set_order(if seed % 2 == 0 { Order::FORWARD } else { Order::REVERSE });
            let (a, b) = (ramp(n, seed), ramp(n, 10 * seed));
            let expected = host.run(&[&a, &b]).unwrap();
            let (on_a, on_b) = (upload(&gpu, &a), upload(&gpu, &b));
            let found = device.run(&[&on_a, &on_b]).unwrap();
            // Dropped while the work may be running.
            drop((on_a, on_b));
            assert_same(&found, &expected);
        }
        assert_eq!(device.idle_bytes(), device.arena_bytes());
    }
    set_order(Order::FORWARD);
}

/// Each row of a square array minus its largest element, in one kernel with barriers; or the transposed array, by way of
/// shared memory where it is large.
fn of_square(side: usize, is_transposed: bool) -> String {
    let head = format!("kernel (p0: f32[{len}], p1: f32[{len}], p2: f32[{len}] out) {{\n", len = side * side);
    let body = if is_transposed {
        format!(
            "  axes a0 = {side}, a1 = {side}\n%0 = load p0[a0 + a1 * {side}]\n%1 = load p1[a0 * {side} + a1]\n\
             %2 = sub %0, %1\nstore p2[a0 * {side} + a1], %2\n}}\n"
        )
    } else {
        format!(
            "  axes a0 = {side}, a1 = {side} reduced\n%0 = load p0[a0 * {side} + a1]\n%1 = reduce max %0\n\
             %2 = load p1[a0 * {side} + a1]\n%3 = sub %2, %0\nstore p2[a0 * {side} + a1], %3\n}}\n"
        )
    };
    head + &body
}

/// A plan of small steps, each of which reads two of the arrays so far and writes a slot, perhaps one of those two.
fn random_plan(side: usize, seed: usize) -> Plan {
    const SLOTS: usize = 5;
    let n = side * side;
    let mut state = seed as u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let slot = |k: usize| Place::Slot { offset: k * n.next_multiple_of(64) * 4 };
    let mut written = vec![Place::Input(0), Place::Input(1)];
    let mut steps = vec![];
    for k in 0..14 {
        let (a, b) = (written[random(written.len())], written[random(written.len())]);
        let to = slot(random(SLOTS));
        let is_square = random(3) == 0 && a != to && b != to;
        let op = ["add", "sub", "mul", "max"][random(4)];
        let text = if is_square { of_square(side, random(2) == 0) } else { pointwise(n, op) };
        steps.push(step(&format!("{op} {k}"), &text, &[a, b, to]));
        if !written.contains(&to) {
            written.push(to);
        }
    }
    let last = steps.iter().rev().filter_map(|step| step.operands.last().map(|operand| operand.place)).take(2);
    for (k, from) in last.collect::<Vec<_>>().into_iter().enumerate() {
        // The second may be written over what the first reads.
        steps.push(step("out", &pointwise(n, "add"), &[from, Place::Input(k as u32), Place::Output(k as u32)]));
    }
    let arena_bytes = SLOTS * n.next_multiple_of(64) * 4;
    let donations = vec![Donation { output: 1, input: 0 }];
    Plan { inputs: vec![f32s(n); 2], outputs: vec![f32s(n); 2], arena_bytes, steps, donations }
}

/// Small steps that do not depend on each other are one launch, of blocks whose order does not matter. The stand-in
/// reports what one of them reads or writes that another one wrote.
#[test]
fn small_steps_run_side_by_side() {
    let (_alone, gpu) = gpu();
    let set_order = |order| driver().iter().for_each(|driver| driver.set_order(order));
    let (mut n_launches, mut n_steps) = (0, 0);
    for seed in 0..60 {
        let side = [2, 10, 26, 70][seed % 4];
        let (n, plan) = (side * side, random_plan(side, seed));
        let host = Executable::compile(plan.clone()).unwrap();
        let device = DeviceExecutable::compile(plan.clone(), Arc::clone(&gpu), false).unwrap();
        n_launches += device.n_launches();
        n_steps += plan.steps.len();
        let covered = device.launch_steps().fold(0, |end, steps| {
            assert_eq!(steps.start, end, "each launch begins where the last one ends");
            steps.end
        });
        assert_eq!(covered, plan.steps.len());
        let (a, b) = (ramp(n, seed), ramp(n, seed + 9));
        let expected = host.run(&[&a, &b]).unwrap();
        for order in [Order::FORWARD, Order::REVERSE] {
            set_order(order);
            let (on_a, on_b) = (upload(&gpu, &a), upload(&gpu, &b));
            for _ in 0..2 {
                assert_same(&device.run(&[&on_a, &on_b]).unwrap(), &expected);
            }
            let given = device.run_donating([Input::donated(on_a), Input::borrowed(&on_b)]).unwrap();
            assert_same(&given, &expected);
        }
        let mut seen = vec![];
        let inputs = [upload(&gpu, &a), upload(&gpu, &b)];
        device.run_stepwise(&[&inputs[0], &inputs[1]], &mut |step, _, _| seen.push(step)).unwrap();
        assert_eq!(seen, (0..plan.steps.len()).collect::<Vec<_>>());
        let modes = Modes { separate: true, ..Modes::default() };
        let apart = DeviceExecutable::compile_with(plan, Arc::clone(&gpu), false, modes).unwrap();
        assert_eq!(apart.n_launches(), apart.plan().steps.len());
    }
    set_order(Order::FORWARD);
    assert!(5 * n_launches < 4 * n_steps, "{n_launches} launches of {n_steps} steps");
}

/// A kernel has room for 512 addresses, and so has one that does the work of 16.
#[test]
fn what_runs_side_by_side_has_room_for_its_addresses() {
    let (_alone, gpu) = gpu();
    let n_inputs = 40;
    let loads: String = (0..n_inputs).map(|k| format!("%{k} = load p{k}[a0]\n")).collect();
    let sum = |k: usize| format!("%{} = add %{}, %{k}\n", n_inputs + k - 1, if k == 1 { 0 } else { n_inputs + k - 2 });
    let sums: String = (1..n_inputs).map(sum).collect();
    let of_all = |n: usize| {
        let params: Vec<String> = (0..n_inputs).map(|k| format!("p{k}: f32[{n}]")).collect();
        let last = 2 * n_inputs - 2;
        format!(
            "kernel ({}, p{n_inputs}: f32[{n}] out) {{\n  axes a0 = {n}\n{loads}{sums}store p{n_inputs}[a0], %{last}\n}}\n",
            params.join(", ")
        )
    };
    let n_steps = 16;
    let places = |k: usize| -> Vec<Place> {
        (0..n_inputs).map(|input| Place::Input(input as u32)).chain([Place::Output(k as u32)]).collect()
    };
    let plan = Plan {
        inputs: vec![f32s(1); n_inputs],
        outputs: vec![f32s(1); n_steps],
        steps: (0..n_steps).map(|k| step("sum", &of_all(1), &places(k))).collect(),
        ..Plan::default()
    };
    let arrays: Vec<Buffer> = (0..n_inputs).map(|seed| ramp(1, seed)).collect();
    let expected = Executable::compile(plan.clone()).unwrap().run(&arrays.iter().collect::<Vec<_>>()).unwrap();
    let device = DeviceExecutable::compile(plan, Arc::clone(&gpu), false).unwrap();
    let there: Vec<DeviceBuffer> = arrays.iter().map(|array| upload(&gpu, array)).collect();
    assert_same(&device.run(&there.iter().collect::<Vec<_>>()).unwrap(), &expected);
    assert_eq!(device.n_launches(), 2);
}

/// A product of square matrices with a kernel that reads it as a parameter.
fn product_with(n: usize, text: &str, accumulator: u32) -> Work {
    let kernel = MatMul::contiguous(DType::F32, &[], [n, n, n]).into();
    let epilogue = Epilogue::new(&parse(text).unwrap(), ParamId(accumulator));
    assert!(epilogue.is_some(), "{text}");
    Work::Library { kernel, epilogue }
}

/// Products with a bias that read one array run side by side, as the products alone do.
#[test]
fn products_with_what_follows_run_side_by_side() {
    let (_alone, gpu) = gpu();
    let n = 24;
    let f32_at = |place| Operand { place, dtype: DType::F32, len: n * n };
    let with_bias = |k: u32| {
        let slot = Place::Slot { offset: k as usize * n * n * 4 };
        let places = [Place::Input(0), Place::Input(1 + k), Place::Input(1), Place::Output(k), slot];
        let operands = places.map(f32_at).into_iter().collect();
        Step { work: product_with(n, &pointwise(n * n, "add"), 0), operands, label: "product+bias".into() }
    };
    let plan = Plan {
        inputs: vec![f32s(n * n); 4],
        outputs: vec![f32s(n * n); 3],
        arena_bytes: 3 * n * n * 4,
        steps: (0..3).map(with_bias).collect(),
        ..Plan::default()
    };
    let arrays: Vec<Buffer> = (0..4).map(|seed| ramp(n * n, seed)).collect();
    let modes = Modes { separate: true, ..Modes::default() };
    let apart = DeviceExecutable::compile_with(plan.clone(), Arc::clone(&gpu), false, modes).unwrap();
    let device = DeviceExecutable::compile(plan, Arc::clone(&gpu), false).unwrap();
    let there: Vec<DeviceBuffer> = arrays.iter().map(|array| upload(&gpu, array)).collect();
    let there: Vec<&DeviceBuffer> = there.iter().collect();
    let expected: Vec<Buffer> = apart.run(&there).unwrap().iter().map(|buffer| buffer.to_host().unwrap()).collect();
    assert_same(&device.run(&there).unwrap(), &expected);
    assert_eq!((device.n_launches(), apart.n_launches()), (1, 6));
}

/// Each of these kernels declares four kilobytes of shared memory, of which a launch has 48.
#[test]
fn what_runs_side_by_side_fits_shared_memory() {
    let (_alone, gpu) = gpu();
    let (n, n_steps) = (40, 16);
    let text = format!(
        "kernel (p0: f32[{len}], p1: f32[{len}] out) {{\n  axes a0 = {n}, a1 = {n}\n%0 = load p0[a0 + a1 * {n}]\n\
         store p1[a0 * {n} + a1], %0\n}}\n",
        len = n * n
    );
    let transpose = |k: u32| step("transpose", &text, &[Place::Input(0), Place::Output(k)]);
    let plan = Plan {
        inputs: vec![f32s(n * n)],
        outputs: vec![f32s(n * n); n_steps as usize],
        steps: (0..n_steps).map(transpose).collect(),
        ..Plan::default()
    };
    let expected = Executable::compile(plan.clone()).unwrap().run(&[&ramp(n * n, 1)]).unwrap();
    let device = DeviceExecutable::compile(plan, Arc::clone(&gpu), false).unwrap();
    assert_same(&device.run(&[&upload(&gpu, &ramp(n * n, 1))]).unwrap(), &expected);
    assert!(device.text().unwrap().contains(".shared"));
    assert_eq!(device.n_launches(), 2);
}

/// As a file under `tests/golden/ptx`, which `RETAPE_BLESS=1` writes anew.
#[test]
fn launches_side_by_side_have_one_text() {
    let (_alone, gpu) = gpu();
    if driver().is_none() {
        return;
    }
    let [a, b] = [Place::Input(0), Place::Input(1)];
    let steps = vec![
        step("sum", &pointwise(2, "add"), &[a, a, Place::Output(0)]),
        step("product", &pointwise(300, "mul"), &[b, b, Place::Output(1)]),
    ];
    let types = vec![f32s(2), f32s(300)];
    let plan = Plan { inputs: types.clone(), outputs: types, steps, ..Plan::default() };
    let made = DeviceExecutable::compile(plan, gpu, false).unwrap().text().unwrap();
    assert!(made.starts_with("; sum, product\n// grid [2, 1, 1], 96 threads a block"), "{made}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/ptx/beside.ptx");
    if env::var("RETAPE_BLESS").is_ok_and(|value| value == "1") {
        fs::write(&path, &made).unwrap();
    }
    assert!(made == fs::read_to_string(&path).unwrap_or_default(), "RETAPE_BLESS=1 rewrites it. Made:\n{made}");
}

#[test]
fn what_follows_a_product_runs_in_its_launch() {
    let (_alone, gpu) = gpu();
    let n = 24;
    let place = |place| Operand { place, dtype: DType::F32, len: n * n };
    let places = [Place::Input(0), Place::Input(1), Place::Input(1), Place::Output(0), Place::Slot { offset: 0 }];
    let operands = places.map(place).into_iter().collect();
    let steps = vec![
        step("other", &pointwise(n * n, "mul"), &[Place::Input(0), Place::Input(1), Place::Output(1)]),
        Step { work: product_with(n, &pointwise(n * n, "add"), 1), operands, label: "product+tail".into() },
    ];
    let plan = Plan {
        inputs: vec![f32s(n * n); 2],
        outputs: vec![f32s(n * n); 2],
        arena_bytes: n * n * 4,
        steps,
        ..Plan::default()
    };
    let fused = DeviceExecutable::compile(plan.clone(), Arc::clone(&gpu), false).unwrap();
    let modes = Modes { separate: true, ..Modes::default() };
    let apart = DeviceExecutable::compile_with(plan, Arc::clone(&gpu), false, modes).unwrap();
    assert_eq!(fused.launch_steps().collect::<Vec<_>>(), [0..1, 1..2]);
    assert_eq!(apart.launch_steps().collect::<Vec<_>>(), [0..1, 1..2, 1..2]);
    let inputs = [upload(&gpu, &ramp(n * n, 1)), upload(&gpu, &ramp(n * n, 2))];
    let inputs = [&inputs[0], &inputs[1]];
    let expected: Vec<Buffer> = apart.run(&inputs).unwrap().iter().map(|buffer| buffer.to_host().unwrap()).collect();
    assert_same(&fused.run(&inputs).unwrap(), &expected);
    let seen = |code: &DeviceExecutable| {
        let mut seen = vec![];
        code.run_stepwise(&inputs, &mut |step, position, bytes| seen.push((step, position, bytes.to_vec()))).unwrap();
        seen
    };
    let found = seen(&fused);
    assert_eq!(found.iter().map(|(step, position, _)| (*step, *position)).collect::<Vec<_>>(), [(0, 0), (1, 0)]);
    assert_eq!(found, seen(&apart));
}

#[test]
fn nothing_is_run_on_nothing() {
    let (_alone, gpu) = gpu();
    let plan = Plan {
        inputs: vec![f32s(0); 2],
        outputs: vec![f32s(0)],
        steps: vec![step("sum", &pointwise(0, "add"), &[Place::Input(0), Place::Input(1), Place::Output(0)])],
        ..Plan::default()
    };
    let device = DeviceExecutable::compile(plan, Arc::clone(&gpu), false).unwrap();
    let empty = DeviceBuffer::alloc(&gpu, 0).unwrap();
    for _ in 0..3 {
        assert!(device.run(&[&empty, &empty]).unwrap()[0].to_host().unwrap().is_empty());
    }
    assert!(device.profile(&[&empty, &empty]).is_ok() && device.run_trapped(&[&empty, &empty]).is_ok());
}

#[test]
fn results_take_the_memory_of_given_inputs() {
    let (_alone, gpu) = gpu();
    let n = 1000;
    let donations = [(0, 0), (1, 1), (1, 0)].map(|(output, input)| Donation { output, input }).to_vec();
    let plan = Plan { donations, ..chain(n) };
    let expected = Executable::compile(plan.clone()).unwrap().run(&[&ramp(n, 1), &ramp(n, 2)]).unwrap();
    let device = DeviceExecutable::compile(plan, Arc::clone(&gpu), false).unwrap();
    let make = || [upload(&gpu, &ramp(n, 1)), upload(&gpu, &ramp(n, 2))];

    let [a, b] = make();
    let places = [a.address(), b.address()];
    let found = device.run_donating([Input::donated(a), Input::donated(b)]).unwrap();
    assert_eq!([found[0].address(), found[1].address()], places);
    assert_same(&found, &expected);

    let [a, b] = make();
    let place = a.address();
    let found = device.run_donating([Input::donated(a), Input::borrowed(&b)]).unwrap();
    assert_eq!(found[0].address(), place);
    assert_same(&found, &expected);

    let [a, b] = make();
    assert_same(&device.run_donating([Input::borrowed(&a), Input::borrowed(&b)]).unwrap(), &expected);
    assert_eq!(a.to_host().unwrap().bytes(), ramp(n, 1).bytes());
    let [a, _] = make();
    assert!(matches!(device.run_donating([Input::donated(a)]), Err(Error::Buffers(_))));
}

#[test]
fn loops_that_feed_results_back_run_as_they_do_on_the_cpu() {
    let (_alone, gpu) = gpu();
    let n = 300;
    let donations = vec![Donation { output: 0, input: 0 }];
    let mut plan = Plan { donations, ..chain(n) };
    plan.steps.truncate(2);
    plan.outputs.truncate(1);
    let host = Executable::compile(plan.clone()).unwrap();
    let device = DeviceExecutable::compile(plan, Arc::clone(&gpu), false).unwrap();
    let (mut sum, b) = (ramp(n, 1), ramp(n, 2));
    let (mut on_sum, on_b) = (upload(&gpu, &sum), upload(&gpu, &b));
    let fresh = gpu.memory().fresh;
    for round in 0..20 {
        sum = host.run(&[&sum, &b]).unwrap().remove(0);
        on_sum = match round % 2 {
            0 => device.run(&[&on_sum, &on_b]).unwrap().remove(0),
            _ => device.run_donating([Input::donated(on_sum), Input::borrowed(&on_b)]).unwrap().remove(0),
        };
    }
    assert_same(&[on_sum], &[sum]);
    assert!(gpu.memory().fresh - fresh <= 3, "an arena and two sums");
}

#[test]
fn threads_share_an_executable() {
    let (_alone, gpu) = gpu();
    let n = 257;
    let device = DeviceExecutable::compile(chain(n), Arc::clone(&gpu), false).unwrap();
    let host = Executable::compile(chain(n)).unwrap();
    thread::scope(|scope| {
        for thread in 0..8 {
            let (gpu, device, host) = (&gpu, &device, &host);
            scope.spawn(move || {
                for round in 0..10 {
                    let (a, b) = (ramp(n, thread), ramp(n, 100 * round));
                    let found = device.run(&[&upload(gpu, &a), &upload(gpu, &b)]).unwrap();
                    assert_same(&found, &host.run(&[&a, &b]).unwrap());
                }
            });
        }
    });
}

#[test]
fn executables_may_go_before_their_work_is_done() {
    let (_alone, gpu) = gpu();
    let n = 64;
    let expected = Executable::compile(chain(n)).unwrap().run(&[&ramp(n, 1), &ramp(n, 2)]).unwrap();
    let (before, code) = (gpu.memory().live_bytes, gpu.code_stats().live);
    for runs in [1, 2, 5] {
        let device = DeviceExecutable::compile(chain(n), Arc::clone(&gpu), false).unwrap();
        let inputs = [1, 2].map(|seed| upload(&gpu, &ramp(n, seed)));
        let mut found = vec![];
        for _ in 0..runs {
            found = device.run(&[&inputs[0], &inputs[1]]).unwrap();
        }
        drop((device, inputs));
        assert_same(&found, &expected);
    }
    gpu.sync().unwrap();
    assert_eq!((gpu.memory().live_bytes, gpu.code_stats().live), (before, code));
}

#[test]
fn an_idle_arena_is_given_up_when_memory_is_short() {
    let (_alone, gpu) = gpu();
    let n = 1 << 15;
    let device = DeviceExecutable::compile(chain(n), Arc::clone(&gpu), false).unwrap();
    let inputs = [1, 2].map(|seed| upload(&gpu, &ramp(n, seed)));
    let run = || device.run(&[&inputs[0], &inputs[1]]);
    let first: Vec<Buffer> = run().unwrap().iter().map(|found| found.to_host().unwrap()).collect();
    gpu.trim().unwrap();
    let live = gpu.memory().live_bytes;
    assert!(device.idle_bytes() > 0);
    gpu.set_memory_limit(live + 1024);
    let other = DeviceBuffer::alloc(&gpu, n).unwrap();
    assert_eq!(device.idle_bytes(), 0);
    // No memory for results, and none for the arena.
    assert!(matches!(run(), Err(Error::Runtime(retape_runtime::Error::Allocation(_)))));
    gpu.set_memory_limit(usize::MAX);
    drop(other);
    assert_same(&run().unwrap(), &first);
    assert_same(&run().unwrap(), &first);
}

#[test]
fn prints_come_in_order_and_may_run_the_plan() {
    let (_alone, gpu) = gpu();
    let n = 3;
    let lines = Arc::new(Mutex::new(vec![]));
    let log = |lines: &Arc<Mutex<Vec<String>>>| {
        let lines = Arc::clone(lines);
        set_print_sink(Some(Arc::new(move |line: &str| lines.lock().unwrap().push(line.to_owned()))));
    };
    log(&lines);
    let host = Executable::compile(printing(n)).unwrap();
    let expected = host.run(&[&ramp(n, 1), &ramp(n, 2)]).unwrap();
    let from_host = std::mem::take(&mut *lines.lock().unwrap());
    assert_eq!(from_host.len(), 2);

    let device = Arc::new(DeviceExecutable::compile(printing(n), Arc::clone(&gpu), false).unwrap());
    assert_eq!(device.launch_steps().map(|steps| steps.start).collect::<Vec<_>>(), [0, 2, 3, 4, 5]);
    let inputs = Arc::new([1, 2].map(|seed| upload(&gpu, &ramp(n, seed))));
    for _ in 0..3 {
        assert_same(&device.run(&[&inputs[0], &inputs[1]]).unwrap(), &expected);
        assert_eq!(std::mem::take(&mut *lines.lock().unwrap()), from_host);
    }
    let (found, times) = device.profile(&[&inputs[0], &inputs[1]]).unwrap();
    assert_same(&found, &expected);
    assert_eq!(times.len(), 5);
    lines.lock().unwrap().clear();

    // The sink runs the same plan on the first line, before the run that printed it goes on.
    let (heard, again, shared) = (Arc::clone(&lines), Arc::clone(&device), Arc::clone(&inputs));
    set_print_sink(Some(Arc::new(move |line: &str| {
        heard.lock().unwrap().push(line.to_owned());
        if heard.lock().unwrap().len() == 1 {
            again.run(&[&shared[1], &shared[0]]).unwrap();
        }
    })));
    let found = device.run(&[&inputs[0], &inputs[1]]).unwrap();
    set_print_sink(None);
    assert_same(&found, &expected);
    assert_eq!(lines.lock().unwrap().len(), 4);
}

#[test]
fn steps_show_what_they_wrote() {
    let (_alone, gpu) = gpu();
    let n = 40;
    let device = DeviceExecutable::compile(printing(n), Arc::clone(&gpu), false).unwrap();
    let inputs = [1, 2].map(|seed| upload(&gpu, &ramp(n, seed)));
    let mut seen = vec![];
    let found = device.run_stepwise(&[&inputs[0], &inputs[1]], &mut |step, operand, bytes| {
        assert_eq!(operand, 0);
        seen.push((step, bytes.to_vec()));
    });
    let found = found.unwrap();
    let mut reversed = ramp(n, 1).as_slice::<f32>().to_vec();
    reversed.reverse();
    assert_eq!(seen.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [0, 1, 2, 4]);
    assert_eq!(seen[0].1, Buffer::copy_of(&reversed).unwrap().bytes());
    assert_eq!(seen[1].1, found[0].to_host().unwrap().bytes());
    assert_eq!(seen[3].1, found[1].to_host().unwrap().bytes());
}

#[test]
fn the_first_step_that_stores_what_is_not_finite_is_told() {
    let (_alone, gpu) = gpu();
    let n = 40;
    let device = DeviceExecutable::compile(chain(n), Arc::clone(&gpu), false).unwrap();
    let mut large = ramp(n, 1);
    let first = |a: &Buffer, b: &Buffer| device.run_trapped(&[&upload(&gpu, a), &upload(&gpu, b)]).unwrap().1;
    assert_eq!(first(&large, &ramp(n, 2)), None);
    large.as_mut_slice::<f32>()[0] = 3e38;
    assert_eq!(first(&ramp(n, 1), &large), None);
    assert_eq!(first(&large, &large).as_deref(), Some("sum"));
    large.as_mut_slice::<f32>()[0] = f32::NAN;
    assert_eq!(first(&large, &ramp(n, 2)).as_deref(), Some("reverse"));
}

#[test]
fn wrong_plans_and_buffers_are_refused() {
    let (_alone, gpu) = gpu();
    let n = 40;
    let compile = |plan| DeviceExecutable::compile(plan, Arc::clone(&gpu), false);
    assert!(matches!(compile(Plan { arena_bytes: 0, ..chain(n) }), Err(Error::Plan(_))));
    let device = compile(chain(n)).unwrap();
    let [fits, short] = [n, n - 1].map(|n| upload(&gpu, &ramp(n, 1)));
    for wrong in [&[][..], &[&fits], &[&fits, &fits, &fits], &[&fits, &short]] {
        assert!(matches!(device.run(wrong), Err(Error::Buffers(_))));
        assert!(matches!(device.profile(wrong), Err(Error::Buffers(_))));
    }
    assert!(device.run(&[&fits, &fits]).is_ok());
}
