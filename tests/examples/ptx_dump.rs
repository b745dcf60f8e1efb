//! Makes the kernels of real graphs for a GPU of compute capability `SM` (75, 80, 90), without a GPU and without
//! running them: `RETAPE_PTX_DUMP=FOLDER ptx_dump SM` leaves their texts in the folder, for an assembler.
//!
//! The graphs are every op on its samples with their gradients, all workloads that are timed on processors and, at full
//! size, on GPUs (`tests/examples/gpu_bench`), and products of other sizes, in both modes of arithmetic, and sums that
//! need not be deterministic. `tests/ptxas.sh` assembles them. Shapes are constants of the texts, so that another size is another kernel.

#![allow(clippy::print_stdout, reason = "an example talks to its user")]

#[path = "../../examples/workloads/formula.rs"]
mod formula;
#[allow(dead_code, reason = "a module of another program, of which not everything is used")]
#[path = "gpu_bench/workloads.rs"]
mod measured;
#[allow(dead_code, reason = "a module of another program, of which not everything is used")]
#[path = "../../examples/workloads/models.rs"]
mod models;
#[allow(dead_code, reason = "a module of another program, of which not everything is used")]
#[path = "../../examples/digits/network.rs"]
mod network;
#[allow(dead_code, clippy::unwrap_used, reason = "a module of the tests, of which only the graphs are used")]
#[path = "../engine/ops/sample.rs"]
mod sample;

use retape::ops::Op;
use retape::{DType, Device, Graph, MathMode, Result, Tensor, accelerate};

use measured::Scale;

/// The memory of the device, none of which is really there.
const MEMORY: u64 = 141 << 30;

/// The workloads that are measured on GPUs.
const MEASURED: [&str; 15] = [
    "negate",
    "elementwise",
    "elementwise_fast",
    "launch_10",
    "matmul_f32_1024",
    "matmul_f32_4096",
    "matmul_f32_8192",
    "matmul_tf32_1024",
    "matmul_tf32_4096",
    "matmul_tf32_8192",
    "matmul_bf16_1024",
    "matmul_bf16_4096",
    "matmul_bf16_8192",
    "transformer_f32",
    "transformer_bf16",
];

type AnyError = Box<dyn std::error::Error>;

fn main() -> Result<(), AnyError> {
    let sm: u32 = std::env::args().nth(1).ok_or("which compute capability? 75, 80 or 90")?.parse()?;
    let driver = retape_cuda_sim::driver::install();
    driver.set_capability(0, sm);
    driver.set_dry(true);
    driver.set_memory(0, MEMORY);
    // Samples of `debug_print` print.
    retape::set_debug_sink(|_| ());
    let gpu = Device::cuda(0)?;
    let n_ops = ops(gpu)?;
    let n_workloads = workloads(gpu)? + measured(gpu)?;
    nondeterministic(gpu)?;
    let n_kernels = driver.counters().modules;
    println!("sm_{sm}: {n_ops} graphs of ops, {n_workloads} of workloads, {n_kernels} kernels");
    Ok(())
}

/// Every op on its samples, and its gradient; returns how many graphs that is.
fn ops(gpu: Device) -> Result<usize> {
    let mut n = 0;
    for case in Op::samples() {
        let there: Vec<Tensor> = sample::arguments(&case).iter().map(|argument| argument.to(gpu)).collect();
        let mut run = |graph: &Graph, arguments: &[Tensor]| {
            n += 1;
            graph.apply(arguments).map(drop)
        };
        let types = sample::types(&case);
        run(&sample::graph(&case.op, &types), &there)?;
        if let Some(case) = sample::Case::new(case) {
            let arguments: Vec<Tensor> = there.iter().cloned().chain([case.ct.to(gpu)]).collect();
            run(&sample::gradient_graph(&case.sample.op, &types), &arguments)?;
        }
    }
    Ok(n)
}

/// One step of each workload; returns how many these are.
fn workloads(gpu: Device) -> Result<usize> {
    let names = ["digits_train", "digits_predict", "mlp", "elementwise", "elementwise_ns", "tiny", "transformer"];
    let mut all: Vec<_> = names.iter().filter_map(|name| models::make(name, gpu)).collect();
    all.push(models::digits_train(5, gpu));
    let kinds = [(DType::F32, MathMode::Strict), (DType::F32, MathMode::Fast), (DType::Bf16, MathMode::Strict)];
    for (dtype, mode) in kinds {
        all.extend([96, 1000].map(|n| models::matmul(n, dtype, mode, gpu)));
    }
    for width in [256, 1024] {
        let size = models::Size { width, heads: width / 64, products: DType::Bf16 };
        all.push(models::transformer([4, 256], size, gpu));
    }
    for work in &mut all {
        work.step()?;
    }
    fast(gpu)?;
    Ok(all.len() + 1)
}

/// One step of each workload that is measured on GPUs, at full size; returns how many these are.
fn measured(gpu: Device) -> Result<usize, AnyError> {
    for name in MEASURED {
        measured::make(name, Scale::Full, gpu)?.step()?;
    }
    Ok(MEASURED.len())
}

/// Kernels that are others with the switch of determinism off.
fn nondeterministic(gpu: Device) -> Result<()> {
    let previous = retape::set_deterministic(false);
    let sums = accelerate(|x: &Tensor, ids: &Tensor, along: &Tensor, cts: &Tensor| {
        (x.scatter_add(0, ids, cts), x.scatter_add_along(0, along, cts))
    });
    for dtype in [DType::F32, DType::F64] {
        for index_dtype in [DType::I32, DType::I64, DType::U32] {
            let [x, cts] = [10, 900].map(|rows| Tensor::zeros_of(dtype, [rows, 48]).to(gpu));
            let along = Tensor::zeros_of(index_dtype, [900, 48]).to(gpu);
            sums.call(&x, along.at((.., 0)), &along, &cts)?;
        }
    }
    retape::set_deterministic(previous);
    Ok(())
}

/// A graph of every function that has a fast form.
fn fast(gpu: Device) -> Result<()> {
    let f = accelerate(|x: &Tensor, y: &Tensor| {
        let z = (x.exp() + x.exp2() + x.sin() + x.cos() + x.tanh() + x.sigmoid()) / y;
        let z = z + y.log() + y.log2() + y.sqrt() + x.softmax(-1) + x.gelu_tanh();
        let loss = z.square().mean(..);
        let (dx, dy): (Tensor, Tensor) = loss.grad(&(x.clone(), y.clone()));
        (loss, dx, dy)
    });
    f.configure(|options| options.math = MathMode::Fast);
    let x = Tensor::ones([33, 130]).to(gpu);
    f.call(&x, &x).map(drop)
}
