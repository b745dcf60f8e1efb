//! Measures the error of every `f32` function over all 2^32 arguments: `ulp [stride] [function ...]`.
//!
//! The reference is double precision: the platform's or `libm`'s, and for the derivatives of `lgamma` the `f64`
//! formula. A stride above 1 samples.

#![allow(clippy::print_stdout, reason = "printing a table is its purpose")]

use retape_kernels::ir::{Affine, Func1, Inst, KernelBuilder, eval_inst};
use retape_kernels::{BufferType, Executable, Operand, Place, Plan, Result, Step, Work};
use retape_runtime::{Buffer, DType, Scalar};

/// How many arguments are looked at together.
const BLOCK: usize = 4096;

/// The value in double precision, by the evaluator of kernels, whose functions share nothing with the formulas.
fn reference(func: Func1, x: f64) -> f64 {
    eval_inst(&Inst::Call1(func, x.into())).map_or(f64::NAN, Scalar::to_f64)
}

/// The distance of `y` from `exact` in units of the last place of an `f32` near `exact`.
fn ulps(y: f32, exact: f64) -> f64 {
    if y.is_nan() || exact.is_nan() {
        return if y.is_nan() && exact.is_nan() { 0.0 } else { f64::INFINITY };
    }
    // Infinity is the next number after the largest one.
    let top = 2f64.powi(128);
    let (y, exact) = (f64::from(y).clamp(-top, top), exact.clamp(-top, top));
    let exponent = ((exact.to_bits() >> 52 & 0x7FF) as i32 - 1023).clamp(-126, 127);
    (y - exact).abs() / 2f64.powi(exponent - 23)
}

/// Machine code that applies a function to `BLOCK` elements.
fn compiled(func: Func1) -> Result<Executable> {
    let builder = KernelBuilder::new();
    let here = Affine::new(0, &[1]);
    let (x, y) = (builder.param(DType::F32, BLOCK, false), builder.param(DType::F32, BLOCK, true));
    builder.axis(BLOCK, false);
    builder.store(y, here.clone(), builder.load(x, here).call1(func));
    let operand = |place| Operand { place, dtype: DType::F32, len: BLOCK };
    let operands = [operand(Place::Input(0)), operand(Place::Output(0))].into_iter().collect();
    let ty = BufferType { dtype: DType::F32, len: BLOCK };
    let steps = vec![Step { work: Work::Kernel(builder.finish()), operands, label: func.name().into() }];
    Executable::compile(Plan { inputs: vec![ty], outputs: vec![ty], steps, ..Plan::default() })
}

/// The largest error over a share of the bit patterns, and where it is.
fn worst(func: Func1, code: &Executable, share: std::ops::Range<u64>, stride: u64) -> Result<(f64, f32)> {
    let (mut worst, mut at) = (0.0, 0.0);
    let mut start = share.start;
    while start < share.end {
        let bits = (0..BLOCK as u64).map(|i| start + i * stride).take_while(|&b| b < share.end);
        let mut x: Vec<f32> = bits.map(|b| f32::from_bits(b as u32)).collect();
        x.resize(BLOCK, 0.0);
        let y = code.run(&[&Buffer::copy_of(&x)?])?;
        for (&x, &y) in x.iter().zip(y[0].as_slice::<f32>()) {
            let error = ulps(y, reference(func, x.into()));
            if error > worst {
                (worst, at) = (error, x);
            }
        }
        start += BLOCK as u64 * stride;
    }
    Ok((worst, at))
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let stride = args.first().and_then(|a| a.parse().ok()).unwrap_or(1);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let share = (1 << 32) / threads;
    for &func in Func1::ALL {
        if args.len() > 1 && !args[1..].iter().any(|a| a == func.name()) {
            continue;
        }
        let code = &compiled(func)?;
        let parts: Vec<(f64, f32)> = std::thread::scope(|scope| {
            let runs: Vec<_> = (0..threads)
                .map(|t| {
                    let end = if t + 1 == threads { 1 << 32 } else { (t + 1) * share };
                    scope.spawn(move || worst(func, code, t * share..end, stride))
                })
                .collect();
            runs.into_iter().filter_map(|run| run.join().ok()).collect::<Result<_>>()
        })?;
        let worst = parts.into_iter().fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a });
        println!("{:10} {:10.3} ulp at {:e} ({:08x})", func.name(), worst.0, worst.1, worst.1.to_bits());
    }
    Ok(())
}
