//! Single jobs and small networks, most with their gradients, in the shapes that networks have: a line of JSON for each.
//!
//! `cargo bench -p retape-benches --bench jobs -- NAME ...` takes some of them, and `benches/peers/jobs.sh` measures JAX and
//! PyTorch at the same.

#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod networks;
#[path = "../times.rs"]
mod times;

use std::time::{Duration, Instant};

use retape::nn::{self, Mask};
use retape::ops::{ConvOptions, Padding, Triangular};
use retape::{DType, Result, Tensor, accelerate, concat, einsum};
use times::times_of;

/// Samples of a job at least, and the time that they take at least.
const SAMPLES: usize = 15;
const TIME: Duration = Duration::from_millis(250);

/// A function of tensors of these shapes.
struct Job {
    name: &'static str,
    dtype: DType,
    shapes: &'static [&'static [usize]],
    function: fn(&[Tensor]) -> Tensor,
    /// Whether the function is a loss, whose gradient for all tensors is part of the job.
    has_gradient: bool,
}

/// A loss and its gradient.
const fn job(name: &'static str, shapes: &'static [&'static [usize]], loss: fn(&[Tensor]) -> Tensor) -> Job {
    Job { name, dtype: DType::F32, shapes, function: loss, has_gradient: true }
}

/// A result without a gradient.
const fn forward(name: &'static str, shapes: &'static [&'static [usize]], function: fn(&[Tensor]) -> Tensor) -> Job {
    Job { has_gradient: false, ..job(name, shapes, function) }
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

fn same_by_4_along(x: &[Tensor]) -> Tensor {
    conv(x, ConvOptions::same().stride(4))
}

fn product(x: &[Tensor]) -> Tensor {
    energy(&x[0].matmul(&x[1]))
}

/// Labels, or entries of a table: `factor` times 0, 1, 2 and so on, modulo `n`.
fn numbers(len: i64, factor: i64, n: i64) -> Tensor {
    (0..len).map(|i| i * factor % n).collect()
}

fn recurrent(x: &[Tensor]) -> Tensor {
    let start = Tensor::zeros([x[0].dim(1), x[2].dim(0)]);
    energy(&(0..x[0].dim(0)).fold(start, |h, step| (x[0].at(step).matmul(&x[1]) + h.matmul(&x[2]) * 0.1).tanh()))
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
    job("conv_depthwise7_120", &[&[4, 40, 40, 120], &[7, 7, 1, 120]], |x| conv(x, ConvOptions::same().groups(120))),
    job("conv_depthwise_1024", &[&[8, 14, 14, 1024], &[3, 3, 1, 1024]], |x| conv(x, ConvOptions::same().groups(1024))),
    job("conv_depthwise9_300", &[&[32, 3, 3, 300], &[9, 9, 1, 300]], |x| conv(x, ConvOptions::same().groups(300))),
    job("conv_channels_320", &[&[16, 13, 13, 320], &[1, 1, 1, 320]], |x| conv(x, ConvOptions::same().groups(320))),
    job("conv1x1_72_20", &[&[16, 32, 32, 72], &[1, 1, 72, 20]], same),
    job("conv1x1_24_144", &[&[16, 56, 56, 24], &[1, 1, 24, 144]], same),
    job("conv3x3_20_24", &[&[8, 56, 56, 20], &[3, 3, 20, 24]], same),
    job("batched_rows_6", &[&[64, 6, 300], &[64, 300, 20]], |x| energy(&x[0].matmul(&x[1]))),
    job("conv_line_5_32_64", &[&[16, 1, 512, 32], &[1, 5, 32, 64]], same),
    job("max_pool3x3_by2", &[&[8, 56, 56, 64]], |x| energy(&x[0].max_pool2d([3, 3], [2, 2], [[1, 1], [1, 1]]))),
    job("batch_norm", &[&[32, 28, 28, 64], &[64], &[64]], |x| energy(&nn::batch_norm(&x[0], &x[1], &x[2], 1e-5).0)),
    job("layer_norm", &[&[512, 768], &[768], &[768]], |x| energy(&nn::layer_norm(&x[0], &x[1], &x[2], 1e-5))),
    job("softmax", &[&[1024, 1024]], |x| energy(&x[0].softmax(-1))),
    job("softmax_columns", &[&[1024, 512]], |x| energy(&x[0].softmax(0))),
    job("softmax_3", &[&[300_000, 3]], |x| energy(&x[0].softmax(-1))),
    job("mean_of_2", &[&[300_000, 2]], |x| energy(&x[0].tanh().mean(-1).sin())),
    job("max_of_5", &[&[100_000, 5]], |x| energy(&x[0].max(-1))),
    job("centred_3", &[&[300_000, 3]], |x| {
        let y = x[0].tanh();
        energy(&(&y - y.mean(0)).sin())
    }),
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
    job("conv_dilated_64", &[&[8, 28, 28, 64], &[3, 3, 64, 64]], |x| conv(x, ConvOptions::same().dilation(2))),
    job("conv_groups32_128", &[&[8, 28, 28, 128], &[3, 3, 4, 128]], |x| conv(x, ConvOptions::same().groups(32))),
    job("conv3x3_by2_3_32", &[&[2, 224, 224, 3], &[3, 3, 3, 32]], same_by_2),
    job("conv_depthwise5x5_192", &[&[8, 14, 14, 192], &[5, 5, 1, 192]], |x| conv(x, ConvOptions::same().groups(192))),
    job("conv_depthwise_by2_96", &[&[8, 56, 56, 96], &[3, 3, 1, 96]], |x| {
        conv(x, ConvOptions::same().stride(2).groups(96))
    }),
    job("conv3x3_64_56_one", &[&[1, 56, 56, 64], &[3, 3, 64, 64]], same),
    job("conv16x16_by16_3_192", &[&[4, 224, 224, 3], &[16, 16, 3, 192]], |x| conv(x, ConvOptions::same().stride(16))),
    job("conv_line_80_by4", &[&[4, 1, 16_000, 1], &[1, 80, 1, 64]], same_by_4_along),
    job("conv_up_64_32", &[&[8, 28, 28, 64], &[4, 4, 32, 64]], |x| {
        energy(&x[0].conv_transpose2d(&x[1], ConvOptions::same().stride(2)))
    }),
    job("upsample", &[&[8, 28, 28, 64]], |x| {
        energy(&x[0].reshape([8, 28, 1, 28, 1, 64]).broadcast_to([8, 28, 2, 28, 2, 64]).reshape([8, 56, 56, 64]).tanh())
    }),
    job("avg_pool", &[&[8, 56, 56, 64]], |x| energy(&x[0].avg_pool2d([2, 2], [2, 2], Padding::Valid))),
    job("squeeze_excite", &[&[16, 28, 28, 64], &[64, 16], &[16, 64]], |x| {
        let gate = x[0].mean([1, 2]).matmul(&x[1]).relu().matmul(&x[2]).sigmoid();
        energy(&(&x[0] * gate.reshape([16, 1, 1, 64])))
    }),
    job("group_norm", &[&[16, 28, 28, 64]], |x| {
        let x = x[0].reshape([16, 28, 28, 8, 8]);
        let d = &x - x.mean_keep([1, 2, 4]);
        energy(&(&d * (d.square().mean_keep([1, 2, 4]) + 1e-5).rsqrt()).tanh())
    }),
    job("rms_norm", &[&[2048, 512], &[512]], |x| {
        energy(&(&x[0] * (x[0].square().mean_keep(-1) + 1e-6).rsqrt() * &x[1]).tanh())
    }),
    job("layer_norm_64", &[&[16_384, 64], &[64], &[64]], |x| energy(&nn::layer_norm(&x[0], &x[1], &x[2], 1e-5))),
    job("gated", &[&[256, 512], &[512, 1024], &[512, 1024], &[1024, 512]], |x| {
        energy(&(x[0].matmul(&x[1]).silu() * x[0].matmul(&x[2])).matmul(&x[3]))
    }),
    job("gelu_erf", &[&[512, 2048]], |x| energy(&x[0].gelu_erf())),
    job("softplus", &[&[512, 2048]], |x| energy(&(x[0].softplus() + x[0].sigmoid()))),
    job("power", &[&[512, 1024]], |x| energy(&(x[0].abs() + 0.1).pow(1.7))),
    job("huber", &[&[1024, 1024], &[1024, 1024]], |x| {
        let d = (&x[0] - &x[1]).abs();
        d.lt(0.5).select(d.square() * 0.5, &d * 0.5 - 0.125).mean(..)
    }),
    job("rotary", &[&[4, 256, 8, 64], &[256, 1, 32]], |x| {
        let ([a, b], [sin, cos]) = (x[0].chunk_array(-1), [x[1].sin(), x[1].cos()]);
        energy(&concat(&[&(&a * &cos - &b * &sin), &(&a * &sin + &b * &cos)], -1).tanh())
    }),
    job("attention_64", &[&[16, 64, 8, 32], &[16, 64, 8, 32], &[16, 64, 8, 32]], |x| attention(x, Mask::None)),
    job("attention_one_query", &[&[8, 1, 8, 64], &[8, 1024, 8, 64], &[8, 1024, 8, 64]], |x| attention(x, Mask::None)),
    job("matmul_odd", &[&[300, 700], &[700, 100]], product),
    job("matmul_1000", &[&[1000, 1000], &[1000, 1000]], product),
    job("matmul_deep", &[&[32, 50_000], &[50_000, 32]], product),
    job("batched_8", &[&[4096, 8, 8], &[4096, 8, 8]], product),
    job("batched_3", &[&[20_000, 3, 3], &[20_000, 3, 1]], product),
    job("outer", &[&[512, 64], &[512, 64]], |x| energy(&(x[0].unsqueeze(2) * x[1].unsqueeze(1)).tanh())),
    job("logistic", &[&[20_000, 100], &[100]], |x| {
        let z = x[0].matmul(&x[1]);
        (z.softplus() - &z * 0.3).mean(..)
    }),
    job("graph", &[&[2000, 64], &[64, 64]], |x| {
        let [from, to] = [numbers(10_000, 37, 2000), numbers(10_000, 911, 2000)];
        let messages = x[0].matmul(&x[1]).take(&from, 0);
        energy(&Tensor::zeros([2000, 64]).scatter_add(0, &to, &messages).tanh())
    }),
    job("mixture", &[&[2000, 16], &[32, 16]], |x| {
        let d = (x[0].unsqueeze(1) - x[1].unsqueeze(0)).square().sum(-1);
        (d * -0.5).logsumexp(-1).mean(..)
    }),
    job("cosine", &[&[512, 256], &[512, 256]], |x| {
        let unit = |x: &Tensor| x / x.square().sum_keep(-1).sqrt();
        energy(&unit(&x[0]).matmul(&unit(&x[1]).t()))
    }),
    job("variance_middle", &[&[64, 256, 64]], |x| {
        let d = &x[0] - x[0].mean_keep(1);
        d.square().mean(1).sqrt().sum(..)
    }),
    job("max_rows", &[&[2048, 512]], |x| energy(&x[0].max(-1))),
    job("max_columns", &[&[2048, 512]], |x| energy(&x[0].max(0))),
    job("top_k", &[&[256, 1024]], |x| energy(&x[0].top_k(16, -1).0)),
    job("vocabulary", &[&[256, 256], &[256, 8000]], |x| {
        nn::softmax_cross_entropy_labels(&x[0].matmul(&x[1]), &numbers(256, 31, 8000))
    }),
    job("large_table", &[&[100_000, 32]], |x| energy(&nn::embedding(&x[0], &numbers(512, 37, 100_000)))),
    job("mean_4m", &[&[4, 1024, 1024]], |x| energy(&x[0])),
    job("recurrent_256", &[&[16, 64, 256], &[256, 256], &[256, 256]], recurrent),
    job("masked_softmax", &[&[16, 8, 128, 128]], |x| {
        let mask = Tensor::ones([128, 128]).tril(0).gt(0.5);
        energy(&mask.select(&x[0], -1e30).softmax(-1))
    }),
    job("shifted", &[&[512, 1024]], |x| {
        energy(&(concat(&[&x[0].slice_axis(1, 1..1024), &x[0].slice_axis(1, 0..1)], 1) * &x[0]))
    }),
    job("flipped", &[&[512, 1024]], |x| energy(&(x[0].flip([0, 1]) * &x[0]))),
    job("spectrum", &[&[64, 512], &[512, 512], &[512, 512]], |x| {
        (x[0].matmul(&x[1]).square() + x[0].matmul(&x[2]).square() + 1e-6).log().mean(..)
    }),
    job("solve", &[&[128, 128], &[128, 64]], |x| {
        let noise: Tensor = (0..128 * 128).map(|i| if i % 129 == 0 { 10.0_f32 } else { 0.0 }).collect();
        let a = x[0].matmul(&x[0].t()) * 0.01 + noise.reshape([128, 128]);
        energy(&a.solve_positive_definite(&x[1]))
    }),
];

/// Element `i` of the input number `seed`.
fn element(i: usize, seed: usize) -> f32 {
    (((i * 7919 + seed * 104_729) % 10_007) as f32 / 10_007.0 - 0.5) * 2.0
}

fn input(shape: &[usize], seed: usize, scale: f32) -> Tensor {
    (0..shape.iter().product()).map(|i| element(i, seed) * scale).collect::<Tensor>().reshape(shape)
}

/// The inputs of a job; those of networks that follow the first are weights, which keep the variance of what they multiply.
fn inputs(job: &Job, is_network: bool) -> Vec<Tensor> {
    let input = |(n, shape): (usize, &&[usize])| {
        let fan_in: usize = shape[..shape.len() - 1].iter().product();
        let scale = if is_network && n > 0 { (3.0 / fan_in as f32).sqrt() } else { 1.0 };
        input(shape, n, scale).cast(job.dtype)
    };
    job.shapes.iter().enumerate().map(input).collect()
}

fn main() -> Result<()> {
    let (options, names): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|arg| arg.starts_with('-'));
    // Once, to see that they run.
    let (samples, time) =
        if options.iter().any(|option| option == "--test") { (1, Duration::ZERO) } else { (SAMPLES, TIME) };
    let is_taken = |(job, _): &(&Job, bool)| names.is_empty() || names.iter().any(|name| name == job.name);
    let networks = networks::JOBS.iter().map(|job| (job, true));
    for (job, is_network) in JOBS.iter().map(|job| (job, false)).chain(networks).filter(is_taken) {
        let inputs = inputs(job, is_network);
        let Job { name, function, has_gradient, .. } = job;
        let step = accelerate(move |inputs: &Vec<Tensor>| {
            let result = function(inputs);
            let gradient = has_gradient.then(|| result.grad(inputs));
            (result, gradient)
        });
        let start = Instant::now();
        let (result, _) = step.call(&inputs)?;
        let first = start.elapsed();
        let loss =
            if *has_gradient { result } else { energy(&result.cast(DType::F32)) }.cast(DType::F32).item::<f32>()?;
        let times = times_of(samples, time, || step.call(&inputs))?;
        let [first, median] = [first, times[times.len() / 2]].map(|time| time.as_secs_f64() * 1e6);
        println!(r#"{{"job": "{name}", "us": {median:.1}, "first_us": {first:.0}, "loss": {loss:e}}}"#);
    }
    Ok(())
}
