//! Layers of published networks, forward and each gradient alone: a line of JSON for each pass.
//!
//! `layers.txt` lists them. `cargo bench -p retape-benches --bench layers -- WORD ...` takes lines that begin with these
//! words, and `benches/peers/layers.sh` measures JAX and PyTorch at the same.

#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

#[path = "../times.rs"]
mod times;

use std::time::Duration;

use retape::ops::ConvOptions;
use retape::{DType, Result, Tensor, accelerate};
use times::times_of;

/// The list: a layer on each line, except for comments.
const LAYERS: &str = include_str!("layers.txt");

/// Samples of a pass at least, and the time that they take at least.
const SAMPLES: usize = 5;
const TIME: Duration = Duration::from_millis(50);

/// One in so many layers is run where benchmarks are tried only.
const TRIED: usize = 24;

/// A function of some tensors, and their shapes.
type Pass = (&'static str, Vec<Vec<usize>>, Box<dyn Fn(&[Tensor]) -> Tensor + Send + Sync>);

/// The passes of a layer: the result, and each gradient of its product with a third tensor.
fn passes(line: &str) -> Vec<Pass> {
    let words: Vec<&str> = line.split(' ').collect();
    let numbers: Vec<usize> = words[1..].iter().filter_map(|word| word.parse().ok()).collect();
    if words[0] == "dense" {
        let [rows, features, results] = numbers[..] else { panic!("{line}") };
        let is_turned = words.last() == Some(&"turned");
        let weights = if is_turned { vec![results, features] } else { vec![features, results] };
        let product = move |x: &[Tensor]| x[0].matmul(&if is_turned { x[1].t() } else { x[1].clone() });
        return vec![("result", vec![vec![rows, features], weights], Box::new(product))];
    }
    let [batch, side, channels, results, taps, stride, padding, dilation, groups] = numbers[..] else {
        panic!("{line}")
    };
    let options = ConvOptions::default().stride(stride).padding([[padding; 2]; 2]).dilation(dilation).groups(groups);
    let outputs = (side + 2 * padding - dilation * (taps - 1) - 1) / stride + 1;
    let shapes = vec![
        vec![batch, side, side, channels],
        vec![taps, taps, channels / groups, results],
        vec![batch, outputs, outputs, results],
    ];
    let gradient = |operand: usize| move |x: &[Tensor]| (x[0].conv2d(&x[1], options) * &x[2]).sum(..).grad(&x[operand]);
    vec![
        ("result", shapes[..2].to_vec(), Box::new(move |x| x[0].conv2d(&x[1], options))),
        ("image", shapes.clone(), Box::new(gradient(0))),
        ("filter", shapes, Box::new(gradient(1))),
    ]
}

/// The input number `seed`.
fn input(shape: &[usize], seed: usize) -> Tensor {
    let element = |i: usize| (((i * 7919 + seed * 104_729) % 10_007) as f32 / 10_007.0 - 0.5) * 2.0;
    (0..shape.iter().product()).map(element).collect::<Tensor>().reshape(shape)
}

fn main() -> Result<()> {
    let (options, words): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|arg| arg.starts_with('-'));
    let is_test = options.iter().any(|option| option == "--test");
    let (samples, time, step_by) = if is_test { (1, Duration::ZERO, TRIED) } else { (SAMPLES, TIME, 1) };
    let is_taken = |line: &&str| {
        !line.starts_with('#') && words.iter().zip(line.split(' ')).all(|(word, of_line)| word == of_line)
    };
    for line in LAYERS.lines().filter(is_taken).step_by(step_by) {
        for (name, shapes, function) in passes(line) {
            let inputs: Vec<Tensor> = shapes.iter().enumerate().map(|(seed, shape)| input(shape, seed)).collect();
            let pass = accelerate(move |x: &Vec<Tensor>| function(x));
            // Sums of squares, by which results are compared.
            let energy = pass.call(&inputs)?.cast(DType::F64).square().sum(..).item::<f64>()?;
            let times = times_of(samples, time, || pass.call(&inputs))?;
            let us = times[times.len() / 4].as_secs_f64() * 1e6;
            println!(r#"{{"pass": "{line} {name}", "us": {us:.2}, "energy": {energy:e}}}"#);
        }
    }
    Ok(())
}
