//! Random programs with their gradients: a line of JSON for each.
//!
//! `programs.txt` lists them, and says how they are written. `cargo bench -p retape-benches --bench programs -- NUMBER ...`
//! runs these alone, and `benches/peers/programs.sh` measures JAX and PyTorch at the same.

#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

#[path = "../times.rs"]
mod times;

use std::time::Duration;

use retape::ops::ConvOptions;
use retape::{Result, Tensor, accelerate, concat, stack};
use times::times_of;

/// The list.
const PROGRAMS: &str = include_str!("programs.txt");

/// Samples of a program at least, and the time that they take at least.
const SAMPLES: usize = 7;
const TIME: Duration = Duration::from_millis(60);

/// One in so many programs is run where benchmarks are tried only.
const TRIED: usize = 15;

/// An operation, the values that it takes, and its numbers.
struct Operation {
    name: &'static str,
    arguments: Vec<usize>,
    numbers: Vec<usize>,
}

/// The shapes of inputs, the operations, and which values are results.
#[derive(Default)]
struct Program {
    inputs: Vec<Vec<usize>>,
    operations: Vec<Operation>,
    results: Vec<usize>,
}

impl Program {
    fn parse(lines: std::str::Lines<'static>) -> Program {
        let numbers = |words: &[&str]| words.iter().map(|word| word.parse().expect("a number")).collect();
        let mut program = Program::default();
        for line in lines {
            match line.split(' ').collect::<Vec<&'static str>>()[..] {
                ["in", ref shape @ ..] => program.inputs.push(numbers(shape)),
                ["op", name, n, ref rest @ ..] => {
                    let (arguments, rest) = rest.split_at(n.parse().expect("a number"));
                    program.operations.push(Operation { name, arguments: numbers(arguments), numbers: numbers(rest) });
                }
                ["out", ref results @ ..] => program.results = numbers(results),
                _ => panic!("{line}"),
            }
        }
        program
    }

    fn loss(&self, inputs: &[Tensor]) -> Tensor {
        let mut values = inputs.to_vec();
        for Operation { name, arguments, numbers } in &self.operations {
            let [x, y] = [arguments.first(), arguments.last()].map(|at| &values[*at.expect("an argument")]);
            let made = formula(name, x)
                .or_else(|| formula_of_two(name, x, y))
                .or_else(|| fold(name, x, numbers))
                .or_else(|| product(name, x, y, numbers))
                .or_else(|| movement(name, x, y, numbers));
            values.push(made.unwrap_or_else(|| panic!("{name}")));
        }
        let means = self.results.iter().map(|&result| values[result].square().mean(..));
        means.reduce(|sum, mean| sum + mean).expect("a result")
    }
}

fn formula(name: &str, x: &Tensor) -> Option<Tensor> {
    Some(match name {
        "tanh" => x.tanh(),
        "laplace" => (-x.abs()).exp(),
        "sigmoid" => x.sigmoid(),
        "relu" => x.relu(),
        "gelu" => x.gelu_tanh(),
        "sin" => x.sin(),
        "cos" => x.cos(),
        "root" => (x.square() + 1.0_f32).sqrt(),
        "log1p" => x.abs().log1p(),
        "square" => x * x * 0.5_f32,
        "lorentz" => (x.square() + 1.0_f32).reciprocal(),
        "softplus" => x.softplus(),
        "silu" => x.silu(),
        "neg" => -x,
        "scale" => x * 1.3_f32 + 0.2_f32,
        "abs" => x.abs(),
        "leaky" => x.leaky_relu(0.1),
        "elu" => x.elu(1.0),
        "erf" => x.erf(),
        "clamp" => x.clamp(-0.5_f32, 0.5_f32),
        _ => return None,
    })
}

fn formula_of_two(name: &str, x: &Tensor, y: &Tensor) -> Option<Tensor> {
    Some(match name {
        "add" => x + y,
        "sub" => x - y,
        "mul" => x * y,
        "over" => x / (y.square() + 1.0_f32),
        "max" => x.maximum(y),
        "min" => x.minimum(y),
        "choose" => x.gt(0.0_f32).select(x, y * 0.5_f32),
        _ => return None,
    })
}

/// Along as many axes as the first number says, which follow it; the last one says whether they are kept.
fn fold(name: &str, x: &Tensor, numbers: &[usize]) -> Option<Tensor> {
    let axes = || &numbers[1..=numbers[0]];
    let with_axes = |folded: Tensor| {
        let mut shape = x.shape().to_vec();
        axes().iter().for_each(|&axis| shape[axis] = 1);
        folded.reshape(shape)
    };
    let folded = match name {
        "sum" => x.sum(axes()),
        "mean" => x.mean(axes()),
        "largest" => x.max(axes()),
        "var" => x.var(axes()),
        "logsumexp" => x.logsumexp(axes()),
        "norm" => {
            let [mean, variance] = [x.mean(axes()), x.var(axes())].map(with_axes);
            return Some((x - mean) / (variance + 1e-5_f32).sqrt());
        }
        "softmax" => return Some(x.softmax(numbers[0])),
        "log_softmax" => return Some(x.log_softmax(numbers[0])),
        "cumsum" => return Some(x.cumsum(numbers[0])),
        _ => return None,
    };
    Some(if numbers.last() == Some(&1) { with_axes(folded) } else { folded })
}

fn product(name: &str, x: &Tensor, y: &Tensor, numbers: &[usize]) -> Option<Tensor> {
    let window = ([2, 2], [2, 2], [[0, 0], [0, 0]]);
    Some(match name {
        "matmul" => x.matmul(y),
        "matmul_turned" => x.matmul(&y.swap_axes(-1, -2)),
        "outer" => x.unsqueeze(2) * x.unsqueeze(1),
        "conv" => x.conv2d(y, ConvOptions::default().stride(numbers[1]).padding([[numbers[0] / 2; 2]; 2])),
        "maxpool" => x.max_pool2d(window.0, window.1, window.2),
        "avgpool" => x.avg_pool2d(window.0, window.1, window.2),
        _ => return None,
    })
}

fn movement(name: &str, x: &Tensor, y: &Tensor, numbers: &[usize]) -> Option<Tensor> {
    let at_axis = |other: usize, number: usize| {
        let mut all = vec![other; x.rank()];
        all[numbers[0]] = number;
        all
    };
    let extent = |axis: usize| x.shape()[axis];
    Some(match name {
        "permute" => x.permute(numbers),
        "reshape" => x.reshape(numbers),
        "slice" => {
            let mut stop = x.shape().to_vec();
            stop[numbers[0]] = numbers[2];
            x.slice(&at_axis(0, numbers[1]), &stop, &at_axis(1, numbers[3]))
        }
        "concat" => concat(&[x, y], numbers[0]),
        "stack" => stack(&[x, y], numbers[0]),
        "pad" => x.pad(&at_axis(0, numbers[1]), &at_axis(0, numbers[2]), 0.0_f32),
        "flip" => x.flip(numbers[0]),
        "roll" => {
            let [axis, by] = [numbers[0], extent(numbers[0]) - numbers[1]];
            concat(&[&x.slice_axis(axis, by..), &x.slice_axis(axis, ..by)], axis)
        }
        "take" => {
            let indices = (0..numbers[0]).map(|i| (i * 7919 % extent(0)) as i32).collect::<Tensor>();
            x.take(&indices, 0)
        }
        "tril" => x.tril(0),
        "index" => x.index_axis(numbers[0], numbers[1]),
        _ => return None,
    })
}

/// The input number `seed`.
fn input(shape: &[usize], seed: usize) -> Tensor {
    let scale = if seed == 0 { 2.0 } else { 0.5 };
    let element = |i: usize| (((i * 7919 + seed * 104_729) % 10_007) as f32 / 10_007.0 - 0.5) * scale;
    (0..shape.iter().product()).map(element).collect::<Tensor>().reshape(shape)
}

fn main() -> Result<()> {
    let (options, names): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|arg| arg.starts_with('-'));
    let is_test = options.iter().any(|option| option == "--test");
    let (samples, time, step_by) = if is_test { (1, Duration::ZERO, TRIED) } else { (SAMPLES, TIME, 1) };
    let is_taken = |name: &str| names.is_empty() || names.iter().any(|taken| taken == name);
    let programs = PROGRAMS.split("program ").skip(1).map(str::lines);
    let programs =
        programs.filter_map(|mut lines| lines.next().filter(|name| is_taken(name)).map(|name| (name, lines)));
    for (name, lines) in programs.step_by(step_by) {
        let program = Program::parse(lines);
        let inputs: Vec<Tensor> = program.inputs.iter().enumerate().map(|(seed, shape)| input(shape, seed)).collect();
        let step = accelerate(move |x: &Vec<Tensor>| {
            let loss = program.loss(x);
            let gradients = loss.grad(x);
            (loss, gradients)
        });
        let loss = step.call(&inputs)?.0.item::<f32>()?;
        let times = times_of(samples, time, || step.call(&inputs))?;
        let us = times[times.len() / 4].as_secs_f64() * 1e6;
        println!(r#"{{"program": "{name}", "us": {us:.2}, "energy": {loss:e}}}"#);
    }
    Ok(())
}
