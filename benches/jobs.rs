//! Single jobs with their gradients, in the shapes that networks have: a line of JSON for each.
//!
//! `cargo bench -p retape-benches --bench jobs -- NAME ...` takes some of them, and `benches/peers/jobs.sh` measures JAX and
//! PyTorch at the same.

#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::time::{Duration, Instant};

use retape::nn::{self, Mask};
use retape::ops::{ConvOptions, Triangular};
use retape::{Result, Tensor, accelerate, concat, einsum};

/// Samples of a job at least, and the time that they take at least.
const SAMPLES: usize = 15;
const TIME: Duration = Duration::from_millis(250);

/// A loss, as a function of tensors of these shapes.
struct Job {
    name: &'static str,
    shapes: &'static [&'static [usize]],
    loss: fn(&[Tensor]) -> Tensor,
}

const fn job(name: &'static str, shapes: &'static [&'static [usize]], loss: fn(&[Tensor]) -> Tensor) -> Job {
    Job { name, shapes, loss }
}

/// The mean of the squares.
fn energy(x: &Tensor) -> Tensor {
    x.square().mean(..)
}

fn conv(x: &[Tensor], options: ConvOptions) -> Tensor {
    energy(&x[0].conv2d(&x[1], options))
}

fn same(x: &[Tensor]) -> Tensor {
    conv(x, ConvOptions::same())
}

fn same_by_2(x: &[Tensor]) -> Tensor {
    conv(x, ConvOptions::same().stride(2))
}

/// Labels, or entries of a table: `factor` times 0, 1, 2 and so on, modulo `n`.
fn numbers(len: i64, factor: i64, n: i64) -> Tensor {
    (0..len).map(|i| i * factor % n).collect()
}

fn recurrent(x: &[Tensor]) -> Tensor {
    let start = Tensor::zeros([16, 64]);
    energy(&(0..32).fold(start, |h, step| (x[0].at(step).matmul(&x[1]) + h.matmul(&x[2]) * 0.1).tanh()))
}

/// Ten steps of diffusion on a square whose edges are zero.
fn diffusion(x: &[Tensor]) -> Tensor {
    let inside =
        |u: &Tensor, row: usize, column: usize| u.slice_axis(0, row..row + 510).slice_axis(1, column..column + 510);
    let step = |u: Tensor| {
        let center = inside(&u, 1, 1);
        let around = inside(&u, 0, 1) + inside(&u, 2, 1) + inside(&u, 1, 0) + inside(&u, 1, 2);
        (&center + (around - &center * 4.0) * 0.1).pad(&[1, 1], &[1, 1], 0.0_f32)
    };
    energy(&(0..10).fold(x[0].clone(), |u, _| step(u)))
}

/// The negative logarithm of a Gaussian process's likelihood, up to constants.
fn likelihood(x: &[Tensor]) -> Tensor {
    let noise: Tensor = (0..300 * 300).map(|i| if i % 301 == 0 { 10.0_f32 } else { 0.0 }).collect();
    let factor = (x[0].matmul(&x[0].t()) * 0.01 + noise.reshape([300, 300])).cholesky();
    let solved = factor.solve_triangular(&x[1], Triangular::LOWER);
    solved.square().sum(..) + factor.diagonal(0).log().sum(..)
}

fn feed_forward(x: &[Tensor]) -> Tensor {
    energy(&x[0].matmul(&x[1]).gelu_tanh().matmul(&x[2]))
}

fn attention(x: &[Tensor], mask: Mask) -> Tensor {
    energy(&nn::attention(&x[0], &x[1], &x[2], 0.125, mask))
}

const JOBS: &[Job] = &[
    job("conv3x3_64_56", &[&[8, 56, 56, 64], &[3, 3, 64, 64]], same),
    job("conv3x3_128_28", &[&[8, 28, 28, 128], &[3, 3, 128, 128]], same),
    job("conv3x3_256_14", &[&[8, 14, 14, 256], &[3, 3, 256, 256]], same),
    job("conv3x3_512_7", &[&[8, 7, 7, 512], &[3, 3, 512, 512]], same),
    job("conv3x3_512_7_one", &[&[1, 7, 7, 512], &[3, 3, 512, 512]], same),
    job("conv3x3_by2_256_512", &[&[8, 14, 14, 256], &[3, 3, 256, 512]], same_by_2),
    job("conv1x1_256_64", &[&[8, 28, 28, 256], &[1, 1, 256, 64]], same),
    job("conv1x1_64_256", &[&[8, 28, 28, 64], &[1, 1, 64, 256]], same),
    job("conv7x7_by2_3_64", &[&[4, 112, 112, 3], &[7, 7, 3, 64]], same_by_2),
    job("conv5x5_6_16", &[&[64, 28, 28, 6], &[5, 5, 6, 16]], same),
    job("conv9x9_32_32", &[&[4, 32, 32, 32], &[9, 9, 32, 32]], same),
    job("conv3x3_12_20", &[&[16, 32, 32, 12], &[3, 3, 12, 20]], same),
    job("conv_groups8_64", &[&[8, 28, 28, 64], &[3, 3, 8, 64]], |x| conv(x, ConvOptions::same().groups(8))),
    job("conv_depthwise_96", &[&[8, 28, 28, 96], &[3, 3, 1, 96]], |x| conv(x, ConvOptions::same().groups(96))),
    job("conv_line_5_32_64", &[&[16, 1, 512, 32], &[1, 5, 32, 64]], same),
    job("max_pool3x3_by2", &[&[8, 56, 56, 64]], |x| energy(&x[0].max_pool2d([3, 3], [2, 2], [[1, 1], [1, 1]]))),
    job("batch_norm", &[&[32, 28, 28, 64], &[64], &[64]], |x| energy(&nn::batch_norm(&x[0], &x[1], &x[2], 1e-5).0)),
    job("layer_norm", &[&[512, 768], &[768], &[768]], |x| energy(&nn::layer_norm(&x[0], &x[1], &x[2], 1e-5))),
    job("softmax", &[&[1024, 1024]], |x| energy(&x[0].softmax(-1))),
    job("softmax_columns", &[&[1024, 512]], |x| energy(&x[0].softmax(0))),
    job("log_softmax_slice", &[&[256, 10_000]], |x| -x[0].log_softmax(-1).slice_axis(1, 3..4).mean(..)),
    job("log_softmax_slice_64", &[&[4096, 64]], |x| -x[0].log_softmax(-1).slice_axis(1, 3..4).mean(..)),
    job("cross_entropy", &[&[1024, 1000]], |x| nn::softmax_cross_entropy_labels(&x[0], &numbers(1024, 7, 1000))),
    job("embedding", &[&[10_000, 64]], |x| energy(&nn::embedding(&x[0], &numbers(4096, 37, 10_000)))),
    job("take_along", &[&[512, 1024]], |x| {
        energy(&x[0].take_along(&numbers(512 * 64, 37, 1024).reshape([512, 64]), 1))
    }),
    job("feed_forward", &[&[256, 512], &[512, 2048], &[2048, 512]], feed_forward),
    job("perceptron_one", &[&[1, 256], &[256, 256], &[256, 256], &[256, 10]], |x| {
        energy(&x[0].matmul(&x[1]).tanh().matmul(&x[2]).tanh().matmul(&x[3]))
    }),
    job("batched_64", &[&[64, 64, 64], &[64, 64, 64]], |x| energy(&x[0].matmul(&x[1]))),
    job("batched_vector", &[&[256, 64, 64], &[256, 64]], |x| energy(&einsum("bij,bj->bi", &[&x[0], &x[1]]))),
    job("matrix_vector", &[&[4096, 1024], &[1024]], |x| energy(&x[0].matmul(&x[1]))),
    job("tall", &[&[20_000, 32], &[32, 32]], |x| energy(&x[0].matmul(&x[1]).relu())),
    job("distances", &[&[256, 16], &[256, 16]], |x| {
        (x[0].unsqueeze(1) - x[1].unsqueeze(0)).square().sum(-1).sqrt().mean(..)
    }),
    job("attention_512_causal", &[&[2, 512, 8, 64], &[2, 512, 8, 64], &[2, 512, 8, 64]], |x| {
        attention(x, Mask::Causal)
    }),
    job("attention_2048", &[&[1, 2048, 4, 64], &[1, 2048, 4, 64], &[1, 2048, 4, 64]], |x| attention(x, Mask::None)),
    job("recurrent", &[&[32, 16, 32], &[32, 64], &[64, 64]], recurrent),
    job("diffusion", &[&[512, 512]], diffusion),
    job("likelihood", &[&[300, 300], &[300, 1]], likelihood),
    job("cumsum", &[&[512, 1024]], |x| energy(&x[0].cumsum(1))),
    job("sort", &[&[256, 1024]], |x| energy(&x[0].sort(1))),
    job("permute", &[&[64, 64, 128]], |x| energy(&x[0].permute([0, 2, 1])) + x[0].permute([1, 0, 2]).tanh().sum(..)),
    job("concat", &[&[512, 100], &[512, 28], &[512, 128]], |x| energy(&concat(&[&x[0], &x[1], &x[2]], 1).tanh())),
    job("sines", &[&[512, 1024]], |x| energy(&(x[0].sin() * x[0].cos()))),
];

/// Element `i` of the input number `seed`.
fn element(i: usize, seed: usize) -> f32 {
    (((i * 7919 + seed * 104_729) % 10_007) as f32 / 10_007.0 - 0.5) * 2.0
}

fn input(shape: &[usize], seed: usize) -> Tensor {
    (0..shape.iter().product()).map(|i| element(i, seed)).collect::<Tensor>().reshape(shape)
}

fn main() -> Result<()> {
    let (options, names): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|arg| arg.starts_with('-'));
    // Once, to see that they run.
    let (samples, time) =
        if options.iter().any(|option| option == "--test") { (1, Duration::ZERO) } else { (SAMPLES, TIME) };
    for Job { name, shapes, loss } in JOBS.iter().filter(|job| names.is_empty() || names.iter().any(|n| n == job.name))
    {
        let inputs: Vec<Tensor> = shapes.iter().enumerate().map(|(n, shape)| input(shape, n)).collect();
        let step = accelerate(move |inputs: &Vec<Tensor>| {
            let loss = loss(inputs);
            let gradient = loss.grad(inputs);
            (loss, gradient)
        });
        let start = Instant::now();
        let (loss, _) = step.call(&inputs)?;
        let (first, loss) = (start.elapsed(), loss.item::<f32>()?);
        let (mut times, start) = (vec![], Instant::now());
        while times.len() < samples || start.elapsed() < time {
            let start = Instant::now();
            let results = step.call(&inputs)?;
            times.push(start.elapsed());
            drop(results);
        }
        times.sort();
        let [first, median] = [first, times[times.len() / 2]].map(|time| time.as_secs_f64() * 1e6);
        println!(r#"{{"job": "{name}", "us": {median:.1}, "first_us": {first:.0}, "loss": {loss:e}}}"#);
    }
    Ok(())
}
