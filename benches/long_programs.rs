//! The time of a miss by stage, and of a hit, against the length of a program: a program of ten times as many ops
//! should take about ten times as long. `-- NAME ...` picks programs by a part of their names.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::time::{Duration, Instant};

use retape::{Result, Tensor, accelerate, concat, stack};

/// Rounds, in which both lengths take turns; the fastest counts.
const ROUNDS: usize = 5;

/// The results of a program of about so many ops over a vector and a matrix.
type Program = fn(usize, &Tensor, &Tensor) -> Vec<Tensor>;

/// A name, the shorter and the longer program, and what they are.
type Row = (&'static str, [usize; 2], Program);

const LONG: [usize; 2] = [4_000, 40_000];
const PARTS: [usize; 2] = [512, 4096];

const ROWS: &[Row] = &[
    ("pointwise", LONG, |n, x, _| vec![pointwise(n, x)]),
    ("pointwise gradient", LONG, |n, x, _| gradient(&pointwise(n, x), x)),
    ("products", LONG, |n, x, w| vec![products(n, x, w)]),
    ("products gradient", LONG, |n, x, w| gradient(&products(n, x, w), w)),
    ("matrices", LONG, |n, _, w| vec![products(n, w, w)]),
    ("matrices gradient", LONG, |n, _, w| gradient(&products(n, w, w), w)),
    ("sums", LONG, |n, x, w| vec![sums(n, x, w)]),
    ("sums gradient", LONG, |n, x, w| gradient(&sums(n, x, w), w)),
    ("ten chains", LONG, |n, x, w| vec![chains(10, n / 10, x, w)]),
    ("ten chains gradient", LONG, |n, x, w| gradient(&chains(10, n / 10, x, w), w)),
    ("short chains", LONG, |n, x, w| vec![chains(n / 20, 20, x, w)]),
    ("short chains gradient", LONG, |n, x, w| gradient(&chains(n / 20, 20, x, w), w)),
    ("terms", LONG, |n, _, w| vec![terms(n, w)]),
    ("terms gradient", LONG, |n, _, w| gradient(&terms(n, w), w)),
    ("stacked steps", LONG, |n, x, w| vec![steps(n, x, w)]),
    ("stacked steps gradient", LONG, |n, x, w| gradient(&steps(n, x, w), w)),
    ("concat", PARTS, |n, x, _| vec![concat(&parts(n, x).iter().collect::<Vec<_>>(), 0)]),
    ("stack", PARTS, |n, x, _| vec![stack(&parts(n, x).iter().collect::<Vec<_>>(), 0)]),
    ("concat gradient", PARTS, |n, x, _| gradient(&concat(&parts(n, x).iter().collect::<Vec<_>>(), 0), x)),
    ("stack gradient", PARTS, |n, x, _| gradient(&stack(&parts(n, x).iter().collect::<Vec<_>>(), 0), x)),
    ("chunk gradient", PARTS, |n, x, _| {
        let whole = wide(n, x);
        sliced(&whole, whole.chunk(0, n))
    }),
    ("slice_axis gradient", PARTS, |n, x, _| {
        let whole = wide(n, x);
        sliced(&whole, (0..n).map(|at| whole.slice_axis(0, at..at + 1)))
    }),
    ("index_axis gradient", PARTS, |n, x, _| {
        let whole = wide(n, x);
        sliced(&whole, (0..n).map(|at| whole.index_axis(0, at)))
    }),
    ("overlapping gradient", PARTS, |n, x, _| {
        let whole = wide(n, x);
        sliced(&whole, (0..n - 7).map(|at| whole.slice_axis(0, at..at + 7)))
    }),
    ("results", [1_600, 16_000], |n, x, _| parts(n, x)),
    ("results of sums", [1_600, 16_000], |n, x, _| parts(n, x).iter().map(|part| part.sum(..)).collect()),
];

fn pointwise(n_ops: usize, x: &Tensor) -> Tensor {
    (0..n_ops / 2).fold(x.clone(), |h, _| (h * x).tanh()).sum(..)
}

fn products(n_ops: usize, x: &Tensor, w: &Tensor) -> Tensor {
    (0..n_ops / 2).fold(x.clone(), |h, _| w.matmul(&h).tanh()).sum(..)
}

fn sums(n_ops: usize, x: &Tensor, w: &Tensor) -> Tensor {
    (0..n_ops / 4).fold(x.clone(), |h, _| (w * h).sum(0) * 0.1 + x).sum(..)
}

fn chains(n_chains: usize, n_ops: usize, x: &Tensor, w: &Tensor) -> Tensor {
    (0..n_chains).map(|n| products(n_ops, &(x * (n as f32 + 1.5)), w)).sum()
}

fn terms(n_ops: usize, w: &Tensor) -> Tensor {
    (0..n_ops / 5).map(|n| (w * (n as f32 + 1.5)).tanh().sum(..)).sum()
}

fn steps(n_ops: usize, x: &Tensor, w: &Tensor) -> Tensor {
    let mut steps = vec![x.clone()];
    (0..n_ops / 3).for_each(|n| steps.push(w.matmul(&steps[n]).tanh()));
    stack(&steps.iter().collect::<Vec<_>>(), 0).square().sum(..)
}

fn parts(n: usize, x: &Tensor) -> Vec<Tensor> {
    (0..n).map(|n| x * (n as f32 + 0.5)).collect()
}

/// A matrix of so many rows.
fn wide(n: usize, x: &Tensor) -> Tensor {
    Tensor::full([n, 1], 0.5) * x
}

/// The gradient for the whole of a loss to which each part adds.
fn sliced(whole: &Tensor, parts: impl IntoIterator<Item = Tensor>) -> Vec<Tensor> {
    let loss: Tensor = parts.into_iter().map(|part| part.square().sum(..)).sum();
    gradient(&loss, whole)
}

fn gradient(result: &Tensor, of: &Tensor) -> Vec<Tensor> {
    let loss = if result.rank() > 0 { result.square().sum(..) } else { result.clone() };
    let gradient = loss.grad_or_zero(of);
    vec![loss, gradient]
}

/// Trace, optimise, plan, compile, all of the first call, and the fastest of some further calls.
fn times(program: Program, n_ops: usize) -> Result<[Duration; 6]> {
    let (x, w) = (Tensor::full([8], 0.1), Tensor::full([8, 8], 0.05));
    let f = accelerate(move |x: &Tensor, w: &Tensor| program(n_ops, x, w));
    let first = timed(|| f.call(&x, &w).map(drop))?;
    let mut hit = Duration::MAX;
    for _ in 0..3 {
        hit = hit.min(timed(|| f.call(&x, &w).map(drop))?);
    }
    let times = f.stats().entries[0].times;
    Ok([times.trace, times.optimise, times.plan, times.compile, first, hit])
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

fn main() -> Result<()> {
    let names: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with("--")).collect();
    // Once and short, to see that it runs.
    let (rounds, scale) = if std::env::args().any(|arg| arg == "--test") { (1, 10) } else { (ROUNDS, 1) };
    println!(
        "{:<24}{:>6} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "program", "", "trace", "optimise", "plan", "compile", "first call", "hit"
    );
    for (name, [few, many], program) in ROWS {
        if !names.is_empty() && !names.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        let mut fastest = [[Duration::MAX; 6]; 2];
        for _ in 0..rounds {
            for (fastest, n_ops) in fastest.iter_mut().zip([few / scale, many / scale]) {
                for (fastest, time) in fastest.iter_mut().zip(times(*program, n_ops)?) {
                    *fastest = (*fastest).min(time);
                }
            }
        }
        let [short, long] = fastest;
        let shown: String = long.iter().map(|time| format!(" {time:>10.2?}")).collect();
        let ratios: String = long
            .iter()
            .zip(short)
            .map(|(many, few)| format!(" {:>10.1}", many.as_secs_f64() / few.as_secs_f64()))
            .collect();
        println!("{name:<24}{:>6}{shown}\n{:<24}{:>6}{ratios}", many / scale, "", format!("/{}", few / scale));
    }
    Ok(())
}
