//! Nanoseconds per element and bandwidth of some kernels, and how long they take to compile; and convolutions in groups
//! beside a copy of their image. With `convolutions` as argument, the latter only.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program for people")]

use std::time::Instant;

use retape_kernels::ir::{Kernel, parse};
use retape_kernels::library::{Conv2d, ConvPass};
use retape_kernels::{BufferType, Executable, Operand, Place, Plan, Step, Work};
use retape_runtime::{Buffer, DType, Element, n_threads};

fn plan(kernel: Kernel, label: &str) -> Plan {
    let mut plan = Plan::default();
    let mut operands = Vec::new();
    for param in &kernel.params {
        let list = if param.written { &mut plan.outputs } else { &mut plan.inputs };
        list.push(BufferType { dtype: param.dtype, len: param.len });
        let n = list.len() as u32 - 1;
        let place = if param.written { Place::Output(n) } else { Place::Input(n) };
        operands.push(Operand { place, dtype: param.dtype, len: param.len });
    }
    plan.steps.push(Step { work: Work::Kernel(kernel), operands: operands.into(), label: label.into() });
    plan
}

fn filled(ty: &BufferType) -> Buffer {
    let values = (0..ty.len).map(|i| (i % 1000) as f64 * 1e-3 + 0.5);
    match ty.dtype {
        DType::F32 => Buffer::copy_of(&values.map(f32::from_f64).collect::<Vec<_>>()).expect("there is memory"),
        DType::F64 => Buffer::copy_of(&values.collect::<Vec<_>>()).expect("there is memory"),
        _ => Buffer::zeroed(ty.bytes()).expect("there is memory"),
    }
}

fn measure(name: &str, text: &str) {
    let kernel = parse(text).expect("the kernel is well-formed");
    let points = kernel.n_points() as f64;
    let plan = plan(kernel, name);
    let bytes: usize = plan.inputs.iter().chain(&plan.outputs).map(BufferType::bytes).sum();
    let inputs: Vec<Buffer> = plan.inputs.iter().map(filled).collect();
    let inputs: Vec<&Buffer> = inputs.iter().collect();
    let mut compile = f64::INFINITY;
    for _ in 0..20 {
        let start = Instant::now();
        drop(Executable::compile(plan.clone()).expect("the machine is supported"));
        compile = compile.min(start.elapsed().as_secs_f64());
    }
    let executable = Executable::compile(plan).expect("the machine is supported");
    let mut outputs = executable.run(&inputs).expect("the buffers fit");
    let repeats = (2e8 / points).clamp(5.0, 1e6) as usize;
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        for _ in 0..repeats {
            outputs = executable.run_into(&inputs, outputs).expect("the buffers fit");
        }
        best = best.min(start.elapsed().as_secs_f64() / repeats as f64);
    }
    println!(
        "{name:30} {:9.4} ns/element {:7.2} GB/s {:11.2} us/call; compile {:7.0} us, {} bytes of code",
        best * 1e9 / points,
        bytes as f64 / best * 1e-9,
        best * 1e6,
        compile * 1e6,
        executable.code_bytes()
    );
}

/// The convolution that is measured: 16 images of 56 x 56 pixels and 96 channels, with a filter of 3 x 3.
fn convolution(groups: usize, pass: ConvPass) -> Conv2d {
    Conv2d {
        dtype: DType::F32,
        batch: 16,
        height: 56,
        width: 56,
        in_channels: 96,
        kernel_height: 3,
        kernel_width: 3,
        out_channels: 96,
        stride: [1, 1],
        padding: [[1, 1], [1, 1]],
        dilation: [1, 1],
        groups,
        pass,
    }
}

/// The median of some durations, in seconds.
fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Measures a pass alternately with an addition of 1 to the same image: a copy on as many threads, by vector code.
fn measure_convolution(conv: &Conv2d, copy: &Executable) {
    let buffers = |types: &[(DType, usize)]| -> Vec<Buffer> {
        types.iter().map(|&(dtype, len)| filled(&BufferType { dtype, len })).collect()
    };
    let (inputs, mut outputs) = (buffers(&conv.inputs()), buffers(&conv.outputs()));
    let bytes: usize = inputs.iter().chain(&outputs).map(|buffer| buffer.bytes().len()).sum();
    let image = filled(&BufferType { dtype: DType::F32, len: IMAGE });
    let mut copied = copy.run(&[&image]).expect("the buffers fit");
    let (mut times, mut copies) = (Vec::new(), Vec::new());
    for _ in 0..31 {
        let start = Instant::now();
        copied = copy.run_into(&[&image], copied).expect("the buffers fit");
        copies.push(start.elapsed().as_secs_f64());
        let views: Vec<&[u8]> = inputs.iter().map(Buffer::bytes).collect();
        let start = Instant::now();
        conv.run(&views, &mut outputs.iter_mut().map(Buffer::bytes_mut).collect::<Vec<_>>());
        times.push(start.elapsed().as_secs_f64());
    }
    let (time, copy) = (median(&mut times), median(&mut copies));
    let name = format!("{} in {} groups", conv.pass.name(), conv.groups);
    println!(
        "{name:30} {:7.2} ms {:7.2} GB/s; a copy takes {:5.2} ms, {:4.2} of it",
        time * 1e3,
        bytes as f64 / time * 1e-9,
        copy * 1e3,
        copy / time
    );
}

/// Measures all passes of a convolution in 1 to 96 groups.
fn measure_convolutions() {
    let text = COPY.replace("IMAGE", &IMAGE.to_string());
    let copy = Executable::compile(plan(parse(&text).expect("the kernel is well-formed"), "copy"));
    let copy = copy.expect("the machine is supported");
    for &pass in ConvPass::ALL {
        for groups in [1, 2, 8, 12, 24, 32, 48, 96] {
            measure_convolution(&convolution(groups, pass), &copy);
        }
    }
}

fn main() {
    println!("{} threads", n_threads());
    if !std::env::args().any(|argument| argument == "convolutions") {
        for (name, text) in KERNELS {
            measure(name, text);
        }
    }
    measure_convolutions();
}

/// Elements of the image that convolutions are measured on.
const IMAGE: usize = 16 * 56 * 56 * 96;

/// A copy of an image that no compiler takes for one.
const COPY: &str = "kernel (p0: f32[IMAGE], p1: f32[IMAGE] out) {
axes a0 = IMAGE
%0 = load p0[a0]
%1 = const 1.0: f32
%2 = add %0, %1
store p1[a0], %2
}";

const KERNELS: &[(&str, &str)] = &[
    (
        "add [16]",
        "kernel (p0: f32[16], p1: f32[16], p2: f32[16] out) {
axes a0 = 16
%0 = load p0[a0]
%1 = load p1[a0]
%2 = add %0, %1
store p2[a0], %2
}",
    ),
    (
        "add [1024]",
        "kernel (p0: f32[1024], p1: f32[1024], p2: f32[1024] out) {
axes a0 = 1024
%0 = load p0[a0]
%1 = load p1[a0]
%2 = add %0, %1
store p2[a0], %2
}",
    ),
    (
        "add [4194304]",
        "kernel (p0: f32[4194304], p1: f32[4194304], p2: f32[4194304] out) {
axes a0 = 4194304
%0 = load p0[a0]
%1 = load p1[a0]
%2 = add %0, %1
store p2[a0], %2
}",
    ),
    (
        "relu [4194304]",
        "kernel (p0: f32[4194304], p1: f32[4194304] out) {
axes a0 = 4194304
%0 = load p0[a0]
%1 = const 0.0: f32
%2 = max %0, %1
store p1[a0], %2
}",
    ),
    (
        "relu [65536]",
        "kernel (p0: f32[65536], p1: f32[65536] out) {
axes a0 = 65536
%0 = load p0[a0]
%1 = const 0.0: f32
%2 = max %0, %1
store p1[a0], %2
}",
    ),
    (
        "less to bool [4194304]",
        "kernel (p0: f32[4194304], p1: f32[4194304], p2: bool[4194304] out) {
axes a0 = 4194304
%0 = load p0[a0]
%1 = load p1[a0]
%2 = lt %0, %1
store p2[a0], %2
}",
    ),
    (
        "sum [4096]",
        "kernel (p0: f32[4096], p1: f32[1] out) {
axes a0 = 4096 reduced
%0 = load p0[a0]
%1 = reduce sum %0
store p1[0], %1
}",
    ),
    (
        "sum [4194304]",
        "kernel (p0: f32[4194304], p1: f32[1] out) {
axes a0 = 4194304 reduced
%0 = load p0[a0]
%1 = reduce sum %0
store p1[0], %1
}",
    ),
    (
        "column sum [25088,16]",
        "kernel (p0: f32[401408], p1: f32[16] out) {
axes a0 = 25088 reduced, a1 = 16
%0 = load p0[a0 * 16 + a1]
%1 = reduce sum %0
store p1[a1], %1
}",
    ),
    (
        "column sum [8192,10]",
        "kernel (p0: f32[81920], p1: f32[10] out) {
axes a0 = 8192 reduced, a1 = 10
%0 = load p0[a0 * 10 + a1]
%1 = reduce sum %0
store p1[a1], %1
}",
    ),
    (
        "row max [4096,1000]",
        "kernel (p0: f32[4096000], p1: f32[4096] out) {
axes a0 = 4096, a1 = 1000 reduced
%0 = load p0[a0 * 1000 + a1]
%1 = reduce max %0
store p1[a0], %1
}",
    ),
    (
        "row shift and square sum [4096,1000]",
        "kernel (p0: f32[4096000], p1: f32[4096], p2: f32[4096] out) {
axes a0 = 4096, a1 = 1000 reduced
%0 = load p0[a0 * 1000 + a1]
%1 = load p1[a0]
%2 = sub %0, %1
%3 = mul %2, %2
%4 = reduce sum %3
store p2[a0], %4
}",
    ),
    (
        "row divide [4096,1000]",
        "kernel (p0: f32[4096000], p1: f32[4096], p2: f32[4096000] out) {
axes a0 = 4096, a1 = 1000
%0 = load p0[a0 * 1000 + a1]
%1 = load p1[a0]
%2 = div %0, %1
store p2[a0 * 1000 + a1], %2
}",
    ),
    (
        "row max [16384,10]",
        "kernel (p0: f32[163840], p1: f32[16384] out) {
axes a0 = 16384, a1 = 10 reduced
%0 = load p0[a0 * 10 + a1]
%1 = reduce max %0
store p1[a0], %1
}",
    ),
    (
        "row shift and square sum [16384,10]",
        "kernel (p0: f32[163840], p1: f32[16384], p2: f32[16384] out) {
axes a0 = 16384, a1 = 10 reduced
%0 = load p0[a0 * 10 + a1]
%1 = load p1[a0]
%2 = sub %0, %1
%3 = mul %2, %2
%4 = reduce sum %3
store p2[a0], %4
}",
    ),
    (
        "row divide [16384,10]",
        "kernel (p0: f32[163840], p1: f32[16384], p2: f32[163840] out) {
axes a0 = 16384, a1 = 10
%0 = load p0[a0 * 10 + a1]
%1 = load p1[a0]
%2 = div %0, %1
store p2[a0 * 10 + a1], %2
}",
    ),
    (
        "bias [25088,16]",
        "kernel (p0: f32[401408], p1: f32[16], p2: f32[401408] out) {
axes a0 = 25088, a1 = 16
%0 = load p0[a0 * 16 + a1]
%1 = load p1[a1]
%2 = add %0, %1
%3 = const 0.0: f32
%4 = max %2, %3
store p2[a0 * 16 + a1], %4
}",
    ),
    (
        "transpose [1024,1024]",
        "kernel (p0: f32[1048576], p1: f32[1048576] out) {
axes a0 = 1024, a1 = 1024
%0 = load p0[a1 * 1024 + a0]
store p1[a0 * 1024 + a1], %0
}",
    ),
    (
        "Adam [1048576]",
        "kernel (p0: f32[1048576], p1: f32[1048576], p2: f32[1048576], p3: f32[1048576], p4: f32[1], p5: f32[1048576] out, p6: f32[1048576] out, p7: f32[1048576] out) {
axes a0 = 1048576
%0 = load p0[a0]
%1 = load p1[a0]
%2 = load p2[a0]
%3 = load p3[a0]
%4 = load p4[0]
%5 = const 0.9: f32
%6 = const 0.1: f32
%7 = const 0.999: f32
%8 = const 0.001: f32
%9 = const 1e-8: f32
%10 = mul %2, %5
%11 = fma %1, %6, %10
%12 = mul %1, %1
%13 = mul %3, %7
%14 = fma %12, %8, %13
%15 = sqrt %14
%16 = add %15, %9
%17 = div %11, %16
%18 = mul %17, %4
%19 = sub %0, %18
store p5[a0], %19
store p6[a0], %11
store p7[a0], %14
}",
    ),
];
