//! Generated code against the evaluator.

use retape_runtime::{DType, Element};

use super::{Unit, compile};
use crate::ir::random::{random_inputs, random_kernel};
use crate::ir::{Kernel, evaluate, parse};
use crate::schedule::{Schedule, Source, schedule};

/// Runs a schedule; every nest is called for `parts` ranges of its items.
fn run(kernel: &Kernel, schedule: &Schedule, inputs: &[Vec<u8>], parts: u64) -> Vec<Vec<u8>> {
    let units: Vec<Unit<'_>> = schedule.nests.iter().map(|nest| Unit { nests: vec![nest] }).collect();
    let functions = compile(&units).unwrap();
    let mut outputs = fresh_outputs(kernel);
    let mut scratch = vec![0u8; schedule.scratch];
    let mut inputs = inputs.to_vec();
    let mut pointers: Vec<*mut u8> = Vec::new();
    let (mut reads, mut writes) = (inputs.iter_mut(), outputs.iter_mut());
    for param in &kernel.params {
        let buffer = if param.written { writes.next() } else { reads.next() };
        pointers.push(buffer.unwrap().as_mut_ptr());
    }
    for (nest, function) in schedule.nests.iter().zip(&functions) {
        let table: Vec<*mut u8> = nest
            .sources
            .iter()
            .map(|source| match *source {
                Source::Param(p) => pointers[p],
                Source::Scratch(at) => scratch[at..].as_mut_ptr(),
            })
            .collect();
        for part in 0..parts {
            let (begin, end) = (nest.items * part / parts, nest.items * (part + 1) / parts);
            if begin < end {
                // SAFETY: the kernel is verified and its buffers have the lengths of its parameters.
                unsafe { function.call(table.as_ptr(), begin, end) };
            }
        }
    }
    outputs
}

fn fresh_outputs(kernel: &Kernel) -> Vec<Vec<u8>> {
    kernel.params.iter().filter(|p| p.written).map(|p| vec![0u8; p.len * p.dtype.size()]).collect()
}

fn expected(kernel: &Kernel, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut outputs = fresh_outputs(kernel);
    let reads: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    evaluate(kernel, &reads, &mut outputs.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    outputs
}

/// The distance of two elements relative to their size; 0 if both are NaN or equal.
fn distance(dtype: DType, x: &[u8], y: &[u8]) -> f64 {
    let of = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        retape_runtime::Scalar { dtype, bits: u64::from_le_bytes(word) }
    };
    let (x, y) = (of(x), of(y));
    if x.to_i64().is_some() {
        return if x == y { 0.0 } else { f64::INFINITY };
    }
    let (x, y) = (x.to_f64(), y.to_f64());
    if x == y || (x.is_nan() && y.is_nan()) { 0.0 } else { (x - y).abs() / x.abs().max(y.abs()).max(1.0) }
}

fn check(kernel: &Kernel, inputs: &[Vec<u8>], tolerance: f64, name: &str) {
    let schedule = schedule(kernel);
    let outputs = run(kernel, &schedule, inputs, 1);
    for parts in [2, 3, 7] {
        assert_eq!(run(kernel, &schedule, inputs, parts), outputs, "{name} in {parts} parts\n{kernel}");
    }
    let expected = expected(kernel, inputs);
    let written = kernel.params.iter().filter(|p| p.written);
    for ((param, output), expected) in written.zip(&outputs).zip(&expected) {
        let size = param.dtype.size();
        for (at, (x, y)) in output.chunks(size).zip(expected.chunks(size)).enumerate() {
            let off = distance(param.dtype, x, y);
            assert!(off <= tolerance, "{name}: element {at} is {x:?}, not {y:?}\n{kernel}\n{:?}", schedule.nests);
        }
    }
}

fn bytes<T: Element>(values: impl IntoIterator<Item = f64>) -> Vec<u8> {
    values
        .into_iter()
        .flat_map(|x| T::from_f64(x).to_scalar().bits.to_le_bytes()[..T::DTYPE.size()].to_vec())
        .collect()
}

#[test]
fn random_kernels_agree_with_the_evaluator() {
    for seed in 0..400 {
        let kernel = random_kernel(seed);
        let inputs = random_inputs(&kernel, seed);
        check(&kernel, &inputs, 1e-5, &format!("seed {seed}"));
    }
}
