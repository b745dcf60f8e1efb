//! Attention in one pass beside the same formula written with ops, by the number of positions; the two take turns.
//!
//! `cargo bench -p retape-benches --bench attention` prints a table: 4 heads of 64 features, without and with a causal
//! mask, the result alone and with its gradients. The medians count.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::time::{Duration, Instant};

use retape::nn::{self, Mask};
use retape::{Result, Tensor, accelerate, einsum};

/// Heads, and features of a head.
const HEADS: [usize; 2] = [4, 64];
const LENGTHS: [usize; 4] = [64, 256, 1024, 4096];
/// Samples of each function, and the least time of one.
const SAMPLES: usize = 9;
const LEAST: Duration = Duration::from_millis(5);

type Attend = fn([&Tensor; 3], Mask) -> Tensor;

fn scale() -> f64 {
    1.0 / (HEADS[1] as f64).sqrt()
}

fn in_one_pass([q, k, v]: [&Tensor; 3], mask: Mask) -> Tensor {
    nn::attention(q, k, v, scale(), mask)
}

fn by_ops([q, k, v]: [&Tensor; 3], mask: Mask) -> Tensor {
    let scores = einsum("bqhd,bkhd->bhqk", &[q, k]) * scale();
    let scores = match mask {
        Mask::None => scores,
        Mask::Causal => {
            let at: Tensor = (0..q.dim(1) as i64).collect();
            let n = q.dim(1);
            at.reshape([1, n]).le(at.reshape([n, 1])).select(&scores, f64::NEG_INFINITY)
        }
    };
    einsum("bhqk,bkhd->bqhd", &[&scores.softmax(-1), v])
}

/// The medians of both ways.
fn times(length: usize, mask: Mask, gradients: bool) -> Result<[Duration; 2]> {
    let [heads, features] = HEADS;
    let x = |shift: usize| -> Tensor {
        let n = length * heads * features;
        let values: Tensor = (0..n).map(|i| ((i * 31 + shift) % 251) as f32 / 251.0 - 0.5).collect();
        values.reshape([1, length, heads, features])
    };
    let inputs = [0, 100, 200].map(x);
    let functions = [in_one_pass as Attend, by_ops].map(|attend| {
        accelerate(move |q: &Tensor, k: &Tensor, v: &Tensor| {
            let y = attend([q, k, v], mask);
            if gradients { y.square().sum(..).grad(&[q, k, v].map(Tensor::clone).to_vec()) } else { vec![y] }
        })
    });
    let [q, k, v] = &inputs;
    let mut samples = [const { vec![] }; 2];
    for round in 0..=SAMPLES {
        for (function, samples) in functions.iter().zip(&mut samples) {
            let (start, mut n) = (Instant::now(), 0);
            while n == 0 || start.elapsed() < LEAST {
                function.call(q, k, v)?;
                n += 1;
            }
            // The first round compiles.
            if round > 0 {
                samples.push(start.elapsed() / n);
            }
        }
    }
    Ok(samples.map(|mut samples| {
        samples.sort();
        samples[SAMPLES / 2]
    }))
}

fn main() -> Result<()> {
    let is_test = std::env::args().any(|argument| argument == "--test");
    println!("{} threads; in one pass, by ops\n", retape::n_threads());
    println!("{:>9}  {:>22} {:>22} {:>22} {:>22}", "positions", "forward", "causal", "gradients", "gradients, causal");
    for &length in LENGTHS.iter().take(if is_test { 1 } else { LENGTHS.len() }) {
        print!("{length:>9} ");
        for (gradients, mask) in [(false, Mask::None), (false, Mask::Causal), (true, Mask::None), (true, Mask::Causal)]
        {
            let [one_pass, ops] = times(length, mask, gradients)?;
            print!(" {:>22}", format!("{one_pass:.2?}, {ops:.2?}"));
        }
        println!();
    }
    Ok(())
}
