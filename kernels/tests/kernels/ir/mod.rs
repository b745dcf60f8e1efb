//! Tests of the kernel IR: text, verifier, evaluator, rewrites.

#![allow(clippy::unwrap_used, reason = "a test that unwraps an error has found one")]

mod build;
mod eval;
mod simplify;
mod text;
mod verify;

use retape_kernels::ir::{Kernel, evaluate, parse};
use retape_runtime::{DType, Element, Scalar};

/// The kernel that a text describes.
fn kernel(text: &str) -> Kernel {
    parse(text).unwrap_or_else(|e| panic!("{e} in\n{text}"))
}

/// The bytes of values.
fn bytes<T: Element>(values: &[T]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_scalar().bits.to_le_bytes().into_iter().take(T::DTYPE.size())).collect()
}

/// Runs a kernel; its outputs start as zeros.
fn run(kernel: &Kernel, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let written = kernel.params.iter().filter(|p| p.written);
    let mut outputs: Vec<Vec<u8>> = written.map(|p| vec![0; p.len * p.dtype.size()]).collect();
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    evaluate(kernel, &inputs, &mut outputs.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    outputs
}

/// The values in a buffer.
fn scalars(bytes: &[u8], dtype: DType) -> Vec<Scalar> {
    let element = |b: &[u8]| {
        let mut bits = [0; 8];
        bits[..b.len()].copy_from_slice(b);
        Scalar { dtype, bits: u64::from_le_bytes(bits) }
    };
    bytes.chunks(dtype.size()).map(element).collect()
}

/// Whether two values are the same bits or both NaN.
fn same(x: Scalar, y: Scalar) -> bool {
    x == y || (x.dtype == y.dtype && x.to_f64().is_nan() && y.to_f64().is_nan())
}
