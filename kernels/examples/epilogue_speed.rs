//! Products with an epilogue, beside the same product with a kernel of its own behind it: microseconds of a call, and
//! what the product takes alone.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program for people")]

use std::time::Instant;

use retape_kernels::ir::{Kernel, ParamId, parse};
use retape_kernels::library::{Conv2d, ConvPass, Library, MatMul};
use retape_kernels::{BufferType, Epilogue, Executable, Operand, Place, Plan, Step, Work};
use retape_runtime::{Buffer, DType, n_threads};

/// A bias for each column and a rectifier.
fn relu(m: usize, n: usize) -> String {
    let len = m * n;
    format!(
        "kernel (p0: f32[{len}], p1: f32[{n}], p2: f32[{len}] out) {{\n  axes a0 = {m}, a1 = {n}\n\
         %0 = load p0[a0 * {n} + a1]\n%1 = load p1[a1]\n%2 = add %0, %1\n%3 = const 0: f32\n%4 = max %2, %3\n\
         store p2[a0 * {n} + a1], %4\n}}\n"
    )
}

/// The sum with another matrix.
fn residual(m: usize, n: usize) -> String {
    let len = m * n;
    format!(
        "kernel (p0: f32[{len}], p1: f32[{len}], p2: f32[{len}] out) {{\n  axes a0 = {m}, a1 = {n}\n\
         %0 = load p0[a0 * {n} + a1]\n%1 = load p1[a0 * {n} + a1]\n%2 = add %0, %1\nstore p2[a0 * {n} + a1], %2\n}}\n"
    )
}

/// A step of gradient descent with momentum, by the gradient that the product is.
fn update(m: usize, n: usize) -> String {
    let len = m * n;
    format!(
        "kernel (p0: f32[{len}], p1: f32[{len}], p2: f32[{len}], p3: f32[{len}] out, p4: f32[{len}] out) {{\n  \
         axes a0 = {m}, a1 = {n}\n%0 = load p1[a0 * {n} + a1]\n%1 = const 0.9: f32\n%2 = load p0[a0 * {n} + a1]\n\
         %3 = fma %0, %1, %2\n%4 = load p2[a0 * {n} + a1]\n%5 = sub %4, %3\nstore p3[a0 * {n} + a1], %3\n\
         store p4[a0 * {n} + a1], %5\n}}\n"
    )
}

/// A plan of the product, then the kernel, whose first parameter is the product: as one step or as two.
fn plan(library: &Library, kernel: Option<&Kernel>, is_one: bool) -> Plan {
    let ty = |(dtype, len): (DType, usize)| BufferType { dtype, len };
    let mut plan = Plan { inputs: library.inputs().into_iter().map(ty).collect(), ..Plan::default() };
    let at = |place, ty: BufferType| Operand { place, dtype: ty.dtype, len: ty.len };
    let result = ty(library.outputs()[0]);
    let sources: Vec<Operand> = (0..2).map(|n| at(Place::Input(n as u32), plan.inputs[n])).collect();
    let Some(kernel) = kernel else {
        plan.outputs.push(result);
        let operands = sources.iter().copied().chain([at(Place::Output(0), result)]).collect();
        plan.steps.push(Step { work: Work::library(library.clone()), operands, label: "product".into() });
        return plan;
    };
    let mut others = vec![];
    for param in &kernel.params[1..] {
        let list = if param.written { &mut plan.outputs } else { &mut plan.inputs };
        list.push(BufferType { dtype: param.dtype, len: param.len });
        let n = list.len() as u32 - 1;
        others.push(at(if param.written { Place::Output(n) } else { Place::Input(n) }, list[n as usize]));
    }
    plan.arena_bytes = result.bytes();
    let slot = at(Place::Slot { offset: 0 }, result);
    if is_one {
        // One result can pass through the other's memory.
        let passing = if plan.outputs.len() == 1 { at(Place::Output(0), result) } else { slot };
        let operands = sources.iter().chain(&others).copied().chain([passing]).collect();
        let epilogue = Epilogue::new(kernel, ParamId(0));
        let work = Work::Library { kernel: library.clone(), epilogue };
        plan.steps.push(Step { work, operands, label: "both".into() });
    } else {
        let operands = sources.iter().copied().chain([slot]).collect();
        plan.steps.push(Step { work: Work::library(library.clone()), operands, label: "product".into() });
        let operands = [slot].into_iter().chain(others).collect();
        plan.steps.push(Step { work: Work::Kernel(kernel.clone()), operands, label: "kernel".into() });
    }
    plan
}

struct Timed {
    executable: Executable,
    inputs: Vec<Buffer>,
    outputs: Vec<Buffer>,
    times: Vec<f64>,
}

impl Timed {
    fn new(plan: Plan) -> Timed {
        let fill = |ty: &BufferType| {
            Buffer::copy_of(&(0..ty.len).map(|i| (i % 1000) as f32 * 1e-3 - 0.4).collect::<Vec<_>>()).unwrap()
        };
        let inputs: Vec<Buffer> = plan.inputs.iter().map(fill).collect();
        let executable = Executable::compile(plan).unwrap();
        let outputs = executable.run(&inputs.iter().collect::<Vec<_>>()).unwrap();
        Timed { executable, inputs, outputs, times: vec![] }
    }

    fn time(&mut self) {
        let inputs: Vec<&Buffer> = self.inputs.iter().collect();
        let outputs = std::mem::take(&mut self.outputs);
        let start = Instant::now();
        self.outputs = self.executable.run_into(&inputs, outputs).unwrap();
        self.times.push(start.elapsed().as_secs_f64() * 1e6);
    }

    fn median(&mut self) -> f64 {
        self.times.sort_by(f64::total_cmp);
        self.times[self.times.len() / 2]
    }
}

fn measure(name: &str, library: &Library, kernel: &str) {
    let kernel = parse(kernel).unwrap();
    let mut all = [plan(library, None, false), plan(library, Some(&kernel), false), plan(library, Some(&kernel), true)]
        .map(Timed::new);
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < 0.6 {
        all.iter_mut().for_each(Timed::time);
    }
    let [alone, apart, fused] = all.each_mut().map(Timed::median);
    let bytes = kernel.params.iter().map(|p| p.len * p.dtype.size()).sum::<usize>() as f64 / 1e6;
    println!(
        "{name:34} {bytes:6.2} MB  alone {alone:9.1}  apart {apart:9.1}  fused {fused:9.1}  {:6.3}",
        fused / apart
    );
}

fn main() {
    println!("{} threads; microseconds, and fused over apart", n_threads());
    for [m, n, k] in [
        [32, 32, 32],
        [64, 128, 64],
        [128, 10, 512],
        [128, 512, 512],
        [512, 512, 512],
        [1024, 1024, 256],
        [784, 512, 128],
        [4096, 256, 64],
        [2048, 2048, 128],
        [4096, 1024, 256],
    ] {
        for (name, text) in [("relu", relu(m, n)), ("residual", residual(m, n)), ("update", update(m, n))] {
            let product = MatMul::contiguous(DType::F32, &[], [m, n, k]);
            measure(&format!("{name} of {m} x {n} x {k}"), &product.into(), &text);
        }
    }
    for (size, taps, [from, to]) in [(28, 3, [16, 32]), (28, 5, [1, 16]), (14, 3, [32, 32]), (56, 1, [64, 256])] {
        let conv = Conv2d {
            dtype: DType::F32,
            batch: 32,
            height: size,
            width: size,
            in_channels: from,
            kernel_height: taps,
            kernel_width: taps,
            out_channels: to,
            stride: [1, 1],
            padding: [[taps / 2; 2]; 2],
            dilation: [1, 1],
            groups: 1,
            pass: ConvPass::Forward,
        };
        for (name, text) in [("relu", relu(32 * size * size, to)), ("residual", residual(32 * size * size, to))] {
            measure(&format!("{name} of conv {size} px {taps} taps {from}->{to}"), &conv.clone().into(), &text);
        }
    }
}
