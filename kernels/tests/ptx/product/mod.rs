//! Matrix products and convolutions as PTX, executed by the interpreter: against their references, in both orders of
//! blocks and warps, with and without what is fused behind them.

#![allow(clippy::unwrap_used, reason = "a test that unwraps an error has found one")]

mod conv;
mod epilogue;
mod machine;
mod matmul;

use retape_kernels::library::{Conv2d, Library, MatMul};
use retape_kernels::ptx::{Launches, Target, lower};
use retape_kernels::{Step, Work};
use retape_runtime::{Buffer, DType, Scalar, bf16, f16};

/// The targets that code is made for.
const TARGETS: [Target; 4] = [target(75, false), target(80, false), target(90, false), target(90, true)];

/// The dtypes of products.
const DTYPES: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::Bf16];

const fn target(sm: u32, fast: bool) -> Target {
    Target { fast, ..Target::new(sm) }
}

/// A small generator of test data (xorshift); seeded, so that a failure repeats.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[(self.next() >> 33) as usize % from.len()]
    }

    /// Values in -1..1.
    fn bytes(&mut self, dtype: DType, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..len {
            let x = (self.next() >> 40) as f64 / f64::from(1 << 23) - 1.0;
            bytes.extend(&Scalar::from_f64(x, dtype).bits.to_le_bytes()[..dtype.size()]);
        }
        bytes
    }
}

/// The floats in a buffer.
fn values(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let bits = |part: &[u8]| part.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
    let value = |part| Scalar { dtype, bits: bits(part) }.to_f64();
    bytes.chunks(dtype.size()).map(value).collect()
}

/// The launches of a library kernel.
fn launches(library: &Library, target: Target) -> Launches {
    let step = Step { work: Work::library(library.clone()), operands: Default::default(), label: String::new() };
    lower(&step, target).unwrap()
}

/// The result of the reference, with the operands and the result in double precision.
fn reference(library: &Library, inputs: &[Vec<u8>]) -> Vec<f64> {
    let double: Library = match library.clone() {
        Library::MatMul(op) => MatMul { dtype: DType::F64, ..op }.into(),
        Library::Conv2d(op) => Conv2d { dtype: DType::F64, ..op }.into(),
        other => other,
    };
    let widened = |(bytes, (dtype, _)): (&Vec<u8>, (DType, usize))| Buffer::copy_of(&values(dtype, bytes)).unwrap();
    let inputs: Vec<Buffer> = inputs.iter().zip(library.inputs()).map(widened).collect();
    let mut output = Buffer::copy_of(&vec![0.5; library.outputs()[0].1]).unwrap();
    double.reference(&inputs.iter().map(Buffer::bytes).collect::<Vec<_>>(), &mut [output.bytes_mut()]);
    output.to_vec().unwrap()
}

/// Compares the launches with the reference, for sums of `terms` products; both orders must give the same bits.
fn check(library: impl Into<Library>, target: Target, terms: usize, random: &mut Random) {
    let library = library.into();
    let inputs: Vec<Vec<u8>> = library.inputs().iter().map(|(dtype, len)| random.bytes(*dtype, *len)).collect();
    check_on(&library, target, terms, &inputs);
}

/// As [`check`], on these inputs.
fn check_on(library: &Library, target: Target, terms: usize, inputs: &[Vec<u8>]) {
    let (dtype, len) = library.outputs()[0];
    let found = machine::both(&launches(library, target), inputs, &[len * dtype.size()]);
    // Terms are below 1, partial sums below `terms`; errors of a chain grow with its length at most.
    let single = f64::from(f32::EPSILON);
    let (each, last_place) = match dtype {
        DType::F64 => (f64::EPSILON, f64::EPSILON),
        DType::F16 => (single, f64::from(f16::EPSILON)),
        DType::Bf16 => (single, f64::from(bf16::EPSILON)),
        // Tensor cores see 11 bits of each factor.
        _ if target.fast => (2.0_f64.powi(-10), single),
        _ => (single, single),
    };
    let bound = each * (terms as f64).max(1.0) * 2.0;
    for (at, (x, y)) in values(dtype, &found[0]).iter().zip(reference(library, inputs)).enumerate() {
        let is_equal = *x == y || (x.is_nan() && y.is_nan());
        let right = is_equal || (x - y).abs() <= bound + y.abs() * last_place;
        assert!(right, "{library} for sm_{}: element {at} is {x}, not {y}", target.sm);
    }
}
