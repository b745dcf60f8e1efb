//! Single operations of random shapes, and their gradients alone: a line of JSON for each pass.
//!
//! `ops.txt` lists them. `cargo bench -p retape-benches --bench ops -- WORD ...` takes lines that begin with these words,
//! and `benches/peers/ops.sh` measures JAX and PyTorch at the same.

#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

#[path = "../times.rs"]
mod times;

use std::time::Duration;

use retape::nn::{Gru, Lstm, Mask};
use retape::ops::Triangular;
use retape::{DType, Result, Tensor, accelerate, concat, einsum, nn, stack};
use times::times_of;

/// The list: an operation on each line, except for comments.
const OPS: &str = include_str!("ops.txt");

/// Samples of a pass at least, and the time that they take at least.
const SAMPLES: usize = 5;
const TIME: Duration = Duration::from_millis(50);

/// One in so many operations is run where benchmarks are tried only.
const TRIED: usize = 16;

/// An operation by its name, the shapes of its arguments, and its numbers.
///
/// An argument `300:5000` holds indices below 5,000, of shape `[300]`.
#[derive(Clone)]
struct Op {
    name: &'static str,
    arguments: Vec<(Vec<usize>, Option<usize>)>,
    numbers: Vec<usize>,
}

impl Op {
    fn parse(line: &'static str) -> Op {
        let (operands, numbers) = line.split_once(" / ").unwrap_or((line, ""));
        let mut words = operands.split(' ');
        let parsed = |text: &str| text.parse().expect("a number");
        Op {
            name: words.next().expect("a name"),
            arguments: words
                .map(|word| {
                    let (shape, bound) = word.split_once(':').map_or((word, None), |(s, b)| (s, Some(parsed(b))));
                    (shape.split('x').map(parsed).collect(), bound)
                })
                .collect(),
            numbers: numbers.split_whitespace().map(parsed).collect(),
        }
    }

    /// The arguments, and the places of those that have gradients.
    fn inputs(&self) -> (Vec<Tensor>, Vec<usize>) {
        let floats = (0..self.arguments.len()).filter(|&n| self.arguments[n].1.is_none()).collect();
        let inputs = self.arguments.iter().enumerate().map(|(seed, (shape, bound))| match bound {
            None => input(shape, seed),
            Some(bound) => (0..shape.iter().product())
                .map(|i: usize| (i * 7919 % bound) as i32)
                .collect::<Tensor>()
                .reshape(&shape[..]),
        });
        (inputs.collect(), floats)
    }

    fn result(&self, x: &[Tensor]) -> Tensor {
        let made = formula(self.name, x)
            .or_else(|| fold(self.name, &x[0], &self.numbers))
            .or_else(|| along_axis(self.name, x, &self.numbers))
            .or_else(|| layer(self.name, x, &self.numbers))
            .or_else(|| movement(self.name, x, &self.numbers))
            .or_else(|| product(self.name, x));
        made.unwrap_or_else(|| panic!("{}", self.name))
    }
}

fn formula(name: &str, x: &[Tensor]) -> Option<Tensor> {
    let first = &x[0];
    Some(match name {
        "add" => first + &x[1],
        "mul" => first * &x[1],
        "div" => first / (x[1].square() + 1.0_f32),
        "where" => x[0].gt(&x[1]).select(&x[0], &x[1] * 0.5_f32),
        "lerp" => &x[0] + (&x[1] - &x[0]) * &x[2],
        "tanh" => first.tanh(),
        "exp" => first.exp(),
        "log" => (first.abs() + 0.1_f32).log(),
        "sigmoid" => first.sigmoid(),
        "erf" => first.erf(),
        "sin" => (first * 10.0_f32).sin(),
        "pow" => (first.abs() + 0.1_f32).pow(1.7_f32),
        "rsqrt" => (first.square() + 0.1_f32).rsqrt(),
        "gelu" => first.gelu_tanh(),
        "silu" => first.silu(),
        "softplus" => first.softplus(),
        "elu" => first.elu(1.0),
        "clamp" => first.clamp(-0.5_f32, 0.5_f32),
        _ => return None,
    })
}

/// Along the axes that the numbers name.
fn fold(name: &str, x: &Tensor, axes: &[usize]) -> Option<Tensor> {
    Some(match name {
        "sum" => x.sum(axes),
        "mean" => x.mean(axes),
        "max" => x.max(axes),
        "min" => x.min(axes),
        "prod" => x.prod(axes),
        "var" => x.var(axes),
        "logsumexp" => x.logsumexp(axes),
        "l2" => x.square().sum(axes).sqrt(),
        "argmax" => x.argmax(axes[0]),
        "argmin" => x.argmin(axes[0]),
        "normalise" => (x - x.mean_keep(axes)) * (x.var_keep(axes) + 1e-5_f32).rsqrt(),
        "unit" => x * (x.square().sum_keep(axes) + 1e-5_f32).rsqrt(),
        _ => return None,
    })
}

fn along_axis(name: &str, x: &[Tensor], numbers: &[usize]) -> Option<Tensor> {
    let axis = *numbers.first()?;
    let first = &x[0];
    Some(match name {
        "softmax" => first.softmax(axis),
        "log_softmax" => first.log_softmax(axis),
        "cumsum" => first.cumsum(axis),
        "cumprod" => (first + 1.1_f32).cumprod(axis),
        "cummax" => first.cummax(axis),
        "sort" => first.sort(axis),
        "argsort" => first.argsort(axis),
        "top" => first.top_k(numbers[1], axis).0,
        "take" => first.take(&x[1], axis),
        "take_along" => first.take_along(&x[1], axis),
        _ => return None,
    })
}

fn layer(name: &str, x: &[Tensor], numbers: &[usize]) -> Option<Tensor> {
    let pool = || ([numbers[0]; 2], [numbers[1]; 2], [[numbers[2]; 2]; 2]);
    Some(match name {
        "max_pool" => x[0].max_pool2d(pool().0, pool().1, pool().2),
        "avg_pool" => x[0].avg_pool2d(pool().0, pool().1, pool().2),
        "layer_norm" => nn::layer_norm(&x[0], &x[1], &x[2], 1e-5),
        "batch_norm" => nn::batch_norm(&x[0], &x[1], &x[2], 1e-5).0,
        "rms_norm" => &x[0] * (x[0].square().mean_keep(-1) + 1e-6).rsqrt() * &x[1],
        "group_norm" => {
            let &[batch, high, wide, channels] = x[0].shape() else { panic!("an image") };
            let grouped = x[0].reshape([batch, high, wide, numbers[0], channels / numbers[0]]);
            let apart = &grouped - grouped.mean_keep([1, 2, 4]);
            let scaled = &apart * (apart.square().mean_keep([1, 2, 4]) + 1e-5_f32).rsqrt();
            scaled.reshape(x[0].shape()) * &x[1] + &x[2]
        }
        "attention" => {
            nn::attention(&x[0], &x[1], &x[2], 0.125, if numbers[0] == 1 { Mask::Causal } else { Mask::None })
        }
        "cross_entropy" => nn::softmax_cross_entropy_labels(&x[0], &x[1]),
        "lstm" => {
            let [input_weight, hidden_weight, bias] = [1, 2, 3].map(|n| &x[n] * 0.2_f32);
            Lstm { input_weight, hidden_weight, bias }.apply(&x[0], None).0
        }
        "gru" => {
            let [input_weight, hidden_weight, bias, candidate_bias] = [1, 2, 3, 4].map(|n| &x[n] * 0.2_f32);
            Gru { input_weight, hidden_weight, bias, candidate_bias }.apply(&x[0], None).0
        }
        _ => return None,
    })
}

fn movement(name: &str, x: &[Tensor], numbers: &[usize]) -> Option<Tensor> {
    let first = &x[0];
    let at_axis = |other: usize, number: usize| {
        let mut all = vec![other; first.rank()];
        all[numbers[0]] = number;
        all
    };
    let all: Vec<&Tensor> = x.iter().collect();
    Some(match name {
        "permute" => first.permute(numbers),
        "concat" => concat(&all, numbers[0]),
        "stack" => stack(&all, numbers[0]),
        "slice" => {
            let mut stop = first.shape().to_vec();
            stop[numbers[0]] = numbers[2];
            first.slice(&at_axis(0, numbers[1]), &stop, &at_axis(1, numbers[3]))
        }
        "pad" => first.pad(&at_axis(0, numbers[1]), &at_axis(0, numbers[2]), 0.0_f32),
        "flip" => first.flip(numbers[0]),
        "roll" => {
            let [axis, by] = [numbers[0], first.shape()[numbers[0]] - numbers[1]];
            concat(&[&first.slice_axis(axis, by..), &first.slice_axis(axis, ..by)], axis)
        }
        "tile" => first.tile(&at_axis(1, numbers[1])),
        "tril" => first.tril(0),
        "scatter_add" => Tensor::zeros_of(DType::F32, [numbers[0], first.shape()[1]]).scatter_add(0, &x[1], first),
        "one_hot" => first.one_hot(numbers[0]),
        "upsample" => {
            let &[batch, high, wide, channels] = first.shape() else { panic!("an image") };
            let spread = first.reshape([batch, high, 1, wide, 1, channels]);
            let n = numbers[0];
            spread.broadcast_to([batch, high, n, wide, n, channels]).reshape([batch, high * n, wide * n, channels])
        }
        _ => return None,
    })
}

fn product(name: &str, x: &[Tensor]) -> Option<Tensor> {
    let positive = |x: &Tensor| x.matmul(&x.swap_axes(-1, -2)) + Tensor::eye(x.shape()[x.rank() - 1]);
    Some(match name {
        "cholesky" => positive(&x[0]).cholesky(),
        "solve" => positive(&x[0]).solve_positive_definite(&x[1]),
        "triangular" => {
            let lower = x[0].tril(-1) * 0.1_f32 + Tensor::eye(x[0].shape()[x[0].rank() - 1]);
            lower.solve_triangular(&x[1], Triangular::LOWER)
        }
        "matmul" => x[0].matmul(&x[1]),
        _ if name.contains("->") => einsum(name, &x.iter().collect::<Vec<_>>()),
        _ => return None,
    })
}

/// The input number `seed`.
fn input(shape: &[usize], seed: usize) -> Tensor {
    let element = |i: usize| (((i * 7919 + seed * 104_729) % 10_007) as f32 / 10_007.0 - 0.5) * 2.0;
    (0..shape.iter().product()).map(element).collect::<Tensor>().reshape(shape)
}

/// Prints the time of a pass, and the sum of squares of its results, by which these are compared.
fn measure(
    name: &str,
    inputs: &Vec<Tensor>,
    (samples, time): (usize, Duration),
    pass: impl Fn(&[Tensor]) -> Vec<Tensor> + Send + Sync + 'static,
) -> Result<()> {
    let pass = accelerate(move |x: &Vec<Tensor>| pass(x));
    let mut energy = 0.0;
    for result in pass.call(inputs)? {
        energy += result.cast(DType::F64).square().sum(..).item::<f64>()?;
    }
    let times = times_of(samples, time, || pass.call(inputs))?;
    let us = times[times.len() / 4].as_secs_f64() * 1e6;
    println!(r#"{{"pass": "{name}", "us": {us:.2}, "energy": {energy:e}}}"#);
    Ok(())
}

fn main() -> Result<()> {
    let (options, words): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|arg| arg.starts_with('-'));
    let is_test = options.iter().any(|option| option == "--test");
    let (span, step_by) = if is_test { ((1, Duration::ZERO), TRIED) } else { ((SAMPLES, TIME), 1) };
    let is_taken = |line: &&str| {
        !line.starts_with('#') && words.iter().zip(line.split(' ')).all(|(word, of_line)| word == of_line)
    };
    for line in OPS.lines().filter(is_taken).step_by(step_by) {
        let op = Op::parse(line);
        let (mut inputs, floats) = op.inputs();
        let result = op.result(&inputs);
        let forward = op.clone();
        measure(&format!("{line} result"), &inputs, span, move |x| vec![forward.result(x)])?;
        if floats.is_empty() || result.dtype() != DType::F32 {
            continue;
        }
        inputs.push(input(result.shape(), inputs.len()));
        measure(&format!("{line} gradient"), &inputs, span, move |x| {
            let (cotangent, x) = x.split_last().expect("a cotangent");
            let operands: Vec<Tensor> = floats.iter().map(|&n| x[n].clone()).collect();
            (op.result(x) * cotangent).sum(..).grad(&operands)
        })?;
    }
    Ok(())
}
