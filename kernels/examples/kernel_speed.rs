//! Nanoseconds per element and bandwidth of some kernels, and how long they take to compile.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program for people")]

use std::time::Instant;

use retape_kernels::ir::{Kernel, parse};
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

fn main() {
    println!("{} threads", n_threads());
    for (name, text) in KERNELS {
        measure(name, text);
    }
}

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
