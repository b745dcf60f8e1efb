//! The time of each transcendental function over its whole range of arguments, in nanoseconds per element on one thread:
//! arguments that are much dearer than others are found here. A row ends with its dearest column over its median.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::time::Instant;

use retape_kernels::ir::{Affine, Func1, KernelBuilder};
use retape_kernels::{BufferType, Executable, Operand, Place, Plan, Result, Step, Work};
use retape_runtime::{Buffer, DType};

/// Elements of a run: few enough for one task and the nearest cache.
const N: usize = 4096;

/// How often all columns take turns.
const ROUNDS: usize = 25;

/// Arguments, from the first value to the second in equal steps.
const COLUMNS: [(&str, f32, f32); 14] = [
    ("0..1", 0.01, 1.0),
    ("1..10", 1.0, 10.0),
    ("10..80", 10.0, 80.0),
    ("1e30", 1e30, 2e30),
    ("inf", f32::INFINITY, f32::INFINITY),
    ("-1..0", -1.0, -0.01),
    ("-80", -80.0, -40.0),
    ("-100", -103.0, -90.0),
    ("-1e9", -2e9, -1e9),
    ("-inf", f32::NEG_INFINITY, f32::NEG_INFINITY),
    ("1e-30", 1e-30, 2e-30),
    ("1e-40", 1e-40, 2e-40),
    ("0", 0.0, 0.0),
    ("NaN", f32::NAN, f32::NAN),
];

fn main() -> Result<()> {
    print!("{:12}", "");
    COLUMNS.iter().for_each(|(name, ..)| print!("{name:>8}"));
    println!("{:>10}", "max/median");
    for &func in Func1::ALL {
        let code = compiled(func)?;
        let times = measured(&code)?;
        print!("{:12}", func.name());
        times.iter().for_each(|time| print!("{time:8.2}"));
        println!("{:10.1}", times.iter().copied().fold(0.0, f64::max) / median(times.to_vec()));
    }
    Ok(())
}

/// Machine code that applies a function to `N` elements.
fn compiled(func: Func1) -> Result<Executable> {
    let builder = KernelBuilder::new();
    let here = Affine::new(0, &[1]);
    let (x, y) = (builder.param(DType::F32, N, false), builder.param(DType::F32, N, true));
    builder.axis(N, false);
    builder.store(y, here.clone(), builder.load(x, here).call1(func));
    let operand = |place| Operand { place, dtype: DType::F32, len: N };
    let operands = [operand(Place::Input(0)), operand(Place::Output(0))].into_iter().collect();
    let ty = BufferType { dtype: DType::F32, len: N };
    let steps = vec![Step { work: Work::Kernel(builder.finish()), operands, label: func.name().into() }];
    Executable::compile(Plan { inputs: vec![ty], outputs: vec![ty], steps, ..Plan::default() })
}

/// The medians of the columns, which take turns.
fn measured(code: &Executable) -> Result<[f64; COLUMNS.len()]> {
    let step = |low: f32, high: f32| if low == high { 0.0 } else { (high - low) / N as f32 };
    let inputs = COLUMNS.map(|(_, low, high)| {
        let x: Vec<f32> = (0..N).map(|n| if low == high { low } else { low + n as f32 * step(low, high) }).collect();
        Buffer::copy_of(&x)
    });
    let mut times = [const { vec![] }; COLUMNS.len()];
    for _ in 0..ROUNDS {
        for (times, input) in times.iter_mut().zip(&inputs) {
            let input = input.as_ref().map_err(Clone::clone)?;
            let start = Instant::now();
            for _ in 0..8 {
                code.run(&[input])?;
            }
            times.push(start.elapsed().as_secs_f64() * 1e9 / (8 * N) as f64);
        }
    }
    Ok(times.map(median))
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
