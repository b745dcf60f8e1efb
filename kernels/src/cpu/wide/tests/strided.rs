//! Elements at equal distances: those of a store alone, and of stores that write neighbours together.

use super::*;
use crate::cpu::wide::strip::{rows_side_by_side, strips};
use crate::ir::evaluate;

/// Each element times numbers, of which `ways` are stored `pitch` elements apart, a row beside the other; with a long
/// formula.
fn rows_of(n: usize, pitch: i64, ways: &[i64], dtype: DType) -> Kernel {
    let k = KernelBuilder::new();
    let x = k.param(dtype, n, false);
    // Nothing lies behind the last element that is written.
    let last = ways.iter().max().unwrap();
    let y = k.param(dtype, (n as i64 - 1) as usize * pitch as usize + *last as usize + 1, true);
    k.axis(n, false);
    let x = k.load(x, Affine::new(0, &[1])).cast(DType::F32);
    for &way in ways {
        let value = (1..30).fold(x, |value, c| value * f64::from(c) + x * way as f64);
        k.store(y, Affine::new(way, &[pitch]), value.cast(dtype));
    }
    k.finish()
}

#[test]
fn stores_at_a_distance_have_the_bits_of_cranelift() {
    let words = [DType::F32, DType::I32, DType::F64, DType::F16, DType::U8];
    for (dtype, n) in words.into_iter().flat_map(|dtype| [5, 16, 33, 100].map(|n| (dtype, n))) {
        let alone = [(2, vec![0]), (3, vec![2, 0]), (40, vec![0, 1])];
        let together = (2..=16).map(|pitch| (pitch, (0..pitch).rev().collect::<Vec<i64>>()));
        for (pitch, ways) in alone.into_iter().chain(together) {
            let kernel = rows_of(n, pitch, &ways, dtype);
            let (inputs, name) = (random_inputs(&kernel, n as u64), format!("{ways:?} of {pitch} of {dtype}, {n}"));
            assert_eq!(check(&kernel, &inputs, &name), 2 * levels().len(), "{name}");
            #[cfg(unix)]
            {
                let schedule = schedule(&kernel);
                let (expected, _) = run_functions(&kernel, &schedule, &narrow_functions(&schedule), &inputs, 1, false);
                check_guarded(&kernel, &inputs, &expected, &name);
            }
        }
    }
}

/// Sums of the elements of rows of `pitch` with long formulas, of those columns that `ways` has, from `at` on, and products
/// of the first two.
fn sums_of_rows(n: usize, pitch: i64, at: i64, ways: &[i64], dtype: DType) -> Kernel {
    let k = KernelBuilder::new();
    // Nothing lies behind the last element that is read.
    let last = at + (n as i64 - 1) * pitch + ways.iter().max().unwrap();
    let x = k.param(dtype, last as usize + 1, false);
    let [y, z] = [(); 2].map(|()| k.param(dtype, n, true));
    k.axis(n, false);
    let elements: Vec<_> =
        ways.iter().map(|&way| k.load(x, Affine::new(at + way, &[pitch])).cast(DType::F32)).collect();
    let sum = elements.iter().enumerate().fold(elements[0] * 3.0, |sum, (c, &x)| sum * 0.5 + x * (c as f64 + 1.0));
    k.store(y, Affine::new(0, &[1]), sum.cast(dtype));
    k.store(z, Affine::new(0, &[1]), (elements[0] * elements[ways.len() - 1]).cast(dtype));
    k.finish()
}

#[test]
fn loads_at_a_distance_have_the_bits_of_cranelift() {
    let dtypes = [DType::F32, DType::I32, DType::F64];
    for (dtype, n) in dtypes.into_iter().flat_map(|dtype| [5, 16, 33, 100].map(|n| (dtype, n))) {
        for (pitch, at) in (2..=17).flat_map(|pitch| [0, 3].map(|at| (pitch, at))) {
            // All columns, and not the last one.
            for ways in [pitch, pitch - 1].map(|ways| (0..ways).rev().collect::<Vec<i64>>()) {
                let kernel = sums_of_rows(n, pitch, at, &ways, dtype);
                let (inputs, name) = (random_inputs(&kernel, n as u64), format!("{ways:?} of {pitch} of {dtype}, {n}"));
                assert_eq!(check(&kernel, &inputs, &name), 2 * levels().len(), "{name}");
                #[cfg(unix)]
                {
                    let schedule = schedule(&kernel);
                    let (expected, _) =
                        run_functions(&kernel, &schedule, &narrow_functions(&schedule), &inputs, 1, false);
                    check_guarded(&kernel, &inputs, &expected, &name);
                }
            }
        }
    }
}

/// Short rows of `pitch` elements that follow one another at these strides along a kept axis and a reduced one: for each kept
/// point the sum of their weighted sums, and the smallest of their second elements.
fn sums_of_short_rows([kept, reduced]: [usize; 2], pitch: i64, strides: [i64; 2]) -> Kernel {
    let k = KernelBuilder::new();
    let last = (kept as i64 - 1) * strides[0] + (reduced as i64 - 1) * strides[1] + pitch;
    let x = k.param(DType::F32, last as usize, false);
    let [y, z] = [(); 2].map(|()| k.param(DType::F32, kept, true));
    k.axis(kept, false);
    k.axis(reduced, true);
    let elements: Vec<_> = (0..pitch).map(|way| k.load(x, Affine::new(way, &strides))).collect();
    let of_row = elements.iter().enumerate().fold(elements[0], |sum, (c, &x)| sum * 0.5 + x * (c as f64 + 1.0));
    k.store(y, Affine::new(0, &[1, 0]), of_row.reduce(ReductionOp::Sum));
    k.store(z, Affine::new(0, &[1, 0]), elements[1].reduce(ReductionOp::Min));
    k.finish()
}

/// Rows side by side, each of which has short rows of its own, and rows along which vectors lie.
#[test]
fn sums_of_short_rows_have_the_bits_of_cranelift() {
    let (mut n_wide, mut n_side_by_side) = (0, 0);
    for pitch in 4..=9 {
        for [kept, reduced] in [[300, 20], [1030, 64], [40, 100], [3, 1000]] {
            for strides in [[pitch, pitch * kept as i64], [pitch * reduced as i64, pitch]] {
                let kernel = sums_of_short_rows([kept, reduced], pitch, strides);
                let (inputs, name) = (random_inputs(&kernel, 9), format!("{kept}, {reduced} of {pitch}, {strides:?}"));
                for (nest, level) in
                    schedule(&kernel).nests.iter().flat_map(|nest| levels().into_iter().map(move |level| (nest, level)))
                {
                    let form = strips(nest, level);
                    n_side_by_side += usize::from(form.is_some_and(|form| rows_side_by_side(&form) > 1));
                }
                n_wide += check(&kernel, &inputs, &name);
            }
        }
    }
    assert!(n_wide > 80 * levels().len() && n_side_by_side > 2 * levels().len(), "{n_wide}, {n_side_by_side}");
}

/// Rows of words that are written over those that are read.
#[test]
#[cfg(unix)]
fn short_rows_are_written_in_place() {
    for (n, ways) in [16, 33, 100].into_iter().flat_map(|n| (2..=17).map(move |ways| (n, ways))) {
        let k = KernelBuilder::new();
        let len = n * ways as usize;
        let [x, y] = [false, true].map(|written| k.param(DType::F32, len, written));
        k.axis(n, false);
        let elements: Vec<_> = (0..ways).map(|way| k.load(x, Affine::new(way, &[ways]))).collect();
        for (way, &element) in elements.iter().enumerate() {
            let value = (1..12).fold(element, |value, c| value * f64::from(c) + element);
            k.store(y, Affine::new(way as i64, &[ways]), value);
        }
        let kernel = k.finish();
        let (inputs, schedule) = (random_inputs(&kernel, ways as u64), schedule(&kernel));
        let (expected, _) = run_functions(&kernel, &schedule, &narrow_functions(&schedule), &inputs, 1, false);
        for level in levels() {
            let name = format!("{n} rows of {ways} at {level:?}");
            let (functions, n_wide) = functions(&schedule, level, u32::MAX, &name);
            let made = run_guarded(&kernel, &schedule, &functions, &inputs, true, true);
            compare(&kernel, &made, &expected, 0.0, &name);
            assert_eq!(n_wide, 1, "{name}");
        }
        let narrow = run_guarded(&kernel, &schedule, &narrow_functions(&schedule), &inputs, true, true);
        compare(&kernel, &narrow, &expected, 0.0, "in place by Cranelift");
        // Cranelift's own code against the definition.
        let mut results = [vec![0; 4 * len]];
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        evaluate(&kernel, &inputs, &mut results.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        compare(&kernel, &expected, &results, 1e-6, "Cranelift and the evaluator");
    }
}

/// Instructions that take a vector to memory, in the code of AVX-512.
fn n_vector_stores(kernel: &Kernel) -> usize {
    let schedule = schedule(kernel);
    let nest = &schedule.nests[0];
    let code = assembled(&[nest], &[LoopForm::of_nest(nest)], WideIsa::Avx512, u32::MAX).unwrap();
    let is_store =
        |inst: &Instruction| inst.code() == Code::EVEX_Vmovups_zmmm512_k1z_zmm && inst.memory_base() != Register::RSP;
    Decoder::with_ip(64, &code.bytes[..code.n_code], 0, DecoderOptions::NONE).iter().filter(is_store).count()
}

#[test]
fn stores_of_neighbours_are_whole_vectors() {
    assert!(n_vector_stores(&rows_of(64, 3, &[0, 1, 2], DType::F32)) >= 3);
    assert!(n_vector_stores(&rows_of(64, 5, &[4, 3, 2, 1, 0], DType::F32)) >= 5);
    assert_eq!(n_vector_stores(&rows_of(64, 3, &[0, 1], DType::F32)), 0, "one is missing");
    assert_eq!(n_vector_stores(&rows_of(64, 2, &[0, 1], DType::F64)), 0, "no words");
}

/// Results of a light kernel that lie far apart are left to code of four lanes.
#[test]
fn far_results_of_light_kernels_are_left_to_cranelift() {
    let n_wide = |n_steps: u32| {
        let k = KernelBuilder::new();
        let [x, y] = [(64, false), (64 * 40, true)].map(|(len, written)| k.param(DType::F32, len, written));
        k.axis(64, false);
        let x = k.load(x, Affine::new(0, &[1]));
        k.store(y, Affine::new(0, &[40]), (1..n_steps).fold(x, |value, c| value * f64::from(c) + x));
        let kernel = k.finish();
        check(&kernel, &random_inputs(&kernel, 3), "far results")
    };
    assert_eq!((n_wide(4), n_wide(40)), (0, 2 * levels().len()));
}
