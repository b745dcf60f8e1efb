//! Library kernels as PTX, executed and compared with their naive twins.
//!
//! Every launch runs twice, with blocks and warps in forward and in reversed order, and must give the same bits.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod atomics;
mod cases;
mod data;
mod machine;

use data::Draw;
use retape_cuda_sim::Order;
use retape_kernels::library::{CastHalf, Library, ScanKind};
use retape_kernels::{Step, Work, ptx};
use retape_runtime::{Buffer, DType, Scalar};

/// Devices of the oldest kind and of one whose instructions differ.
const ARCHITECTURES: [u32; 2] = [75, 90];

/// How far results may be from those of the naive twin, relative to the larger of 1 and their size.
fn tolerance(kernel: &Library) -> f64 {
    match kernel {
        // Another order of at most some thousand additions or multiplications.
        Library::Scan(scan) if matches!(scan.kind, ScanKind::Sum | ScanKind::Prod) => match scan.dtype {
            DType::F64 => 1e-12,
            // Computed in `f64`: the last bit, where the exact value is between two floats.
            DType::F32 => 1.2e-7,
            _ => 0.0,
        },
        Library::Recurrence(recurrence) => match recurrence.dtype {
            DType::F64 => 1e-12,
            DType::F32 => 1.2e-7,
            _ => 0.0,
        },
        _ => 0.0,
    }
}

/// The outputs that are expected: those of the naive twin, or of the CPU where the twin would take long.
fn expected(kernel: &Library, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let is_long = match kernel {
        Library::Scan(scan) => scan.len > 2000,
        Library::Sort(sort) => sort.len > 2000,
        _ => false,
    };
    // Both want aligned buffers.
    let buffers: Vec<Buffer> = inputs.iter().map(|bytes| Buffer::from_bytes(bytes).unwrap()).collect();
    let views: Vec<&[u8]> = buffers.iter().map(Buffer::bytes).collect();
    let blank = |(dtype, n): (DType, usize)| Buffer::from_bytes(&vec![0; dtype.size() * n]).unwrap();
    let mut outputs: Vec<Buffer> = kernel.outputs().into_iter().map(blank).collect();
    let mut views_mut: Vec<&mut [u8]> = outputs.iter_mut().map(Buffer::bytes_mut).collect();
    match is_long {
        true => kernel.run(&views, &mut views_mut),
        false => kernel.reference(&views, &mut views_mut),
    }
    outputs.iter().map(|buffer| buffer.bytes().to_vec()).collect()
}

fn is_close(a: Scalar, b: Scalar, tolerance: f64) -> bool {
    let (x, y) = (a.to_f64(), b.to_f64());
    a == b
        || (x.is_nan() && y.is_nan())
        || (tolerance > 0.0 && (x == y || (x - y).abs() <= tolerance * y.abs().max(1.0)))
}

/// Runs a kernel on drawn inputs and compares.
fn check(kernel: &Library, draw: &mut Draw) {
    check_on(kernel, &data::inputs(kernel, draw));
}

/// Runs a kernel on these inputs and compares.
fn check_on(kernel: &Library, inputs: &[Vec<u8>]) {
    let expected = expected(kernel, inputs);
    let step = Step { work: Work::library(kernel.clone()), operands: Default::default(), label: String::new() };
    for sm in ARCHITECTURES {
        let launches = ptx::lower(&step, ptx::Target::new(sm)).unwrap();
        let sizes: Vec<usize> = expected.iter().map(Vec::len).collect();
        let run = |order: Order| {
            machine::run(&launches, inputs, &sizes, order)
                .unwrap_or_else(|fault| panic!("{kernel} on sm_{sm}: {fault}"))
        };
        let (found, reversed) = (run(Order::FORWARD), run(Order::REVERSE));
        assert!(found == reversed, "{kernel} on sm_{sm}: the bits depend on the order of blocks and warps");
        for ((found, expected), (dtype, _)) in found.iter().zip(&expected).zip(kernel.outputs()) {
            let pairs = data::scalars(dtype, found).into_iter().zip(data::scalars(dtype, expected));
            for (at, (found, expected)) in pairs.enumerate() {
                let close = is_close(found, expected, tolerance(kernel));
                assert!(close, "{kernel} on sm_{sm}: element {at} is {found:?} but the twin has {expected:?}");
            }
        }
    }
}

fn check_all(seed: u64, kernels: impl FnOnce(&mut Draw) -> Vec<Library>) {
    let mut draw = Draw::new(seed);
    let kernels = kernels(&mut draw);
    assert!(!kernels.is_empty());
    for kernel in kernels {
        check(&kernel, &mut draw);
    }
}

#[test]
fn philox() {
    check_all(1, |_| cases::philox());
}

#[test]
fn cast_half() {
    check_all(2, |_| cases::cast_half());
}

/// Every 16th middle between neighbours with 16 bits, and the numbers beside it: there rounding twice goes wrong.
#[test]
fn casts_round_once() {
    for (to, infinity) in [(DType::F16, 0x7c00), (DType::Bf16, 0x7f80)] {
        let value = |bits: u64| Scalar { dtype: to, bits }.to_f64();
        let middles = (0..infinity - 1).step_by(16).map(|bits| (value(bits) + value(bits + 1)) / 2.0);
        let beside = middles.flat_map(|x| [x, x.next_down(), x.next_up()]).flat_map(|x| [x, -x]);
        let floats: Vec<Scalar> = beside.map(Scalar::from).collect();
        let beside = |x: &Scalar| [-1, 0, 1].map(|step| (x.to_f64() as i64).saturating_add(step).into());
        let integers: Vec<Scalar> = floats.iter().flat_map(beside).collect();
        for from in [DType::F64, DType::F32, DType::I64, DType::I32, DType::U32] {
            let numbers = if from.is_float() { &floats } else { &integers };
            let bytes = data::to_bytes(numbers.iter().map(|x| x.cast(from)));
            check_on(&CastHalf { from, to, len: numbers.len() }.into(), &[bytes]);
        }
    }
}

#[test]
fn arg_reduce() {
    check_all(3, |_| cases::arg_reduce());
}

#[test]
fn pool() {
    check_all(4, cases::pool);
}

#[test]
fn scan() {
    check_all(5, |_| cases::scan());
}

#[test]
fn recurrence() {
    check_all(12, |_| cases::recurrence());
}

#[test]
fn long_scan() {
    check_all(6, |_| cases::long_scan());
}

#[test]
fn sort() {
    check_all(7, |_| cases::sort());
}

#[test]
fn long_sort() {
    check_all(8, |_| cases::long_sort());
}

#[test]
fn scatter_add() {
    check_all(9, cases::scatter_add);
}

#[test]
fn cholesky() {
    check_all(10, |_| cases::cholesky());
}

#[test]
fn triangular_solve() {
    check_all(11, cases::triangular_solve);
}

#[test]
fn transpose() {
    check_all(12, |_| cases::transpose());
}

#[test]
fn join() {
    check_all(12, cases::join);
}
