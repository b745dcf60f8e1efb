//! Nanoseconds of the host per run of a plan on a GPU, by the number of its steps: what is queued, not what is done.

use std::sync::Arc;
use std::time::Instant;

use retape_kernels::ir::parse;
use retape_kernels::{BufferType, DeviceExecutable, Operand, Place, Plan, Step, Work};
use retape_runtime::{DType, DeviceBuffer, Gpu};

const RUNS: u32 = 2000;

/// Sums of two inputs, over and over.
fn plan(n_steps: usize) -> Option<Plan> {
    let ty = BufferType { dtype: DType::F32, len: 256 };
    let text = "kernel (p0: f32[256], p1: f32[256], p2: f32[256] out) {\n  axes a0 = 256\n%0 = load p0[a0]\n\
                %1 = load p1[a0]\n%2 = add %0, %1\nstore p2[a0], %2\n}\n";
    let kernel = parse(text).ok()?;
    let place = |n: usize| if n == n_steps { Place::Output(0) } else { Place::Slot { offset: 1024 * (n % 2) } };
    let operand = |place: Place| Operand { place, dtype: ty.dtype, len: ty.len };
    let step = |n: usize| Step {
        work: Work::Kernel(kernel.clone()),
        operands: [if n == 0 { Place::Input(0) } else { place(n) }, Place::Input(1), place(n + 1)]
            .map(operand)
            .into_iter()
            .collect(),
        label: "add".into(),
    };
    let steps = (0..n_steps).map(step).collect();
    Some(Plan { inputs: vec![ty; 2], outputs: vec![ty], arena_bytes: 2048, steps, ..Plan::default() })
}

fn measure(gpu: &Arc<Gpu>, n_steps: usize) -> Result<f64, Box<dyn std::error::Error>> {
    let plan = plan(n_steps).ok_or("no kernel")?;
    let executable = DeviceExecutable::compile(plan, Arc::clone(gpu), false)?;
    let inputs = [DeviceBuffer::from_bytes(gpu, &[0; 1024])?, DeviceBuffer::from_bytes(gpu, &[0; 1024])?];
    let mut best = f64::INFINITY;
    for _ in 0..10 {
        let start = Instant::now();
        for _ in 0..RUNS {
            executable.run(&[&inputs[0], &inputs[1]])?;
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(RUNS));
        gpu.sync()?;
    }
    Ok(best)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let gpu = Gpu::open(0)?;
    let mut text = format!("{} ({})\n", gpu.name(), gpu.device());
    for n_steps in [1, 2, 10, 100] {
        text += &format!("{n_steps:>4} steps  {:8.0} ns a run\n", measure(&gpu, n_steps)?);
    }
    std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes())?;
    Ok(())
}
