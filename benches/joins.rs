//! The time of joins and of gradients of slices against the number of parts: per part it should stay the same.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::time::{Duration, Instant};

use retape::{Result, Tensor, accelerate, stack};

/// The shape of a part.
const PART: [usize; 2] = [32, 512];

/// How often all columns of a row take turns.
const ROUNDS: usize = 15;

fn main() -> Result<()> {
    println!("{:>6} {:>12} {:>12} {:>12} {:>22}", "parts", "relu", "stack", "gradient", "stack, gradient / relu");
    for n in [4, 32, 128, 512, 2048] {
        let parts: Vec<Tensor> = (0..n).map(|n| Tensor::full(PART, n as f32)).collect();
        let whole = Tensor::ones([PART[0], n, PART[1]]);
        let relu = accelerate(Tensor::relu);
        let joined = accelerate(|parts: &Vec<Tensor>| stack(&parts.iter().collect::<Vec<_>>(), 1));
        // Each slice has a cotangent of its own.
        let gradient =
            accelerate(move |x: &Tensor| (0..n).map(|at| x.index_axis(1, at).square().sum(..)).sum::<Tensor>().grad(x));
        let mut times = [const { vec![] }; 3];
        for round in 0..=ROUNDS {
            let starts = [
                timed(|| relu.call(&whole).map(drop))?,
                timed(|| joined.call(&parts).map(drop))?,
                timed(|| gradient.call(&whole).map(drop))?,
            ];
            // The first round compiles.
            if round > 0 {
                times.iter_mut().zip(starts).for_each(|(times, time)| times.push(time));
            }
        }
        let [relu, joined, gradient] = times.map(median);
        let ratio = |time: Duration| time.as_secs_f64() / relu.as_secs_f64();
        println!(
            "{n:>6} {relu:>12.2?} {joined:>12.2?} {gradient:>12.2?} {:>11.2} {:>10.2}",
            ratio(joined),
            ratio(gradient)
        );
    }
    Ok(())
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
