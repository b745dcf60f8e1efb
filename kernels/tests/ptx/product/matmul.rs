//! Matrix products.

use retape_kernels::library::{MatMul, MatrixLayout};
use retape_runtime::DType;

use super::{DTYPES, Random, TARGETS, check, launches, target};

/// The same product of operands that lie in memory in different ways.
fn layouts(dtype: DType, [m, n, k]: [usize; 3]) -> Vec<MatMul> {
    let plain = MatMul::contiguous(dtype, &[], [m, n, k]);
    let turned = |batch: &[usize], rows: usize, cols: usize| MatrixLayout::contiguous(batch, cols, rows).transposed();
    let mut a = MatMul::contiguous(dtype, &[2], [m, n, k]);
    a.a = turned(&[2], m, k);
    let b = MatMul { b: turned(&[], k, n), ..plain.clone() };
    let mut both = MatMul { b: turned(&[2], k, n), ..a.clone() };
    // The second operand is one matrix for both products.
    both.b.batch_strides[0] = 0;
    let mut odd = plain.clone();
    (odd.a.offset, odd.a.row_stride) = (3, k + 1);
    (odd.b.row_stride, odd.b.col_stride) = (2, 2 * k + 1);
    let mut broadcast = MatMul::contiguous(dtype, &[2, 2], [m, n, k]);
    (broadcast.a.batch_strides[0], broadcast.b.batch_strides[1]) = (0, 0);
    vec![plain, a, b, both, odd, broadcast]
}

#[test]
fn any_shape_and_layout_on_any_target() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let shapes = [[1, 1, 1], [33, 17, 40], [64, 64, 32], [9, 40, 7], [16, 130, 70], [140, 3, 9], [40, 24, 600]];
    for (round, shape) in shapes.into_iter().enumerate() {
        for (d, dtype) in DTYPES.into_iter().enumerate() {
            for (l, op) in layouts(dtype, shape).into_iter().enumerate() {
                check(op, TARGETS[(round + d + l) % TARGETS.len()], shape[2], &mut random);
            }
        }
    }
}

#[test]
fn large_tiles() {
    let mut random = Random(7);
    // Enough blocks for the largest tiles, and sums of a few steps with an end that is no whole one.
    for (dtype, sm, fast) in [(DType::F32, 80, false), (DType::Bf16, 80, false), (DType::F32, 80, true)] {
        let k = if dtype == DType::F32 { 20 } else { 40 };
        let library = MatMul::contiguous(dtype, &[5], [517, 640, k]).into();
        let launches = launches(&library, target(sm, fast));
        assert!(launches.launches[0].module.name.ends_with("128x128"), "{}", launches.launches[0].module.name);
        check(library, target(sm, fast), k, &mut random);
    }
    let library = MatMul::contiguous(DType::Bf16, &[25], [512, 512, 24]).into();
    let launches = launches(&library, target(80, false));
    assert!(launches.launches[0].module.name.ends_with("128x256"), "{}", launches.launches[0].module.name);
    check(library, target(80, false), 24, &mut random);
}

#[test]
fn random_shapes() {
    let mut random = Random(99);
    let extents = [1, 2, 3, 4, 5, 8, 11, 16, 17, 24, 32, 33, 48, 50, 64, 65, 97];
    for round in 0..60 {
        let shape = [0; 3].map(|_| random.pick(&extents));
        let layouts = layouts(DTYPES[round % 4], shape);
        let op = layouts[round % layouts.len()].clone();
        check(op, random.pick(&TARGETS), shape[2], &mut random);
    }
}

#[test]
fn long_sums_are_cut() {
    let mut random = Random(3);
    for dtype in DTYPES {
        for shape in [[7, 9, 2100], [1, 1, 3000], [2, 40, 1025]] {
            let op = MatMul::contiguous(dtype, &[], shape);
            assert_eq!(launches(&op.clone().into(), target(80, false)).launches.len(), 2, "{op:?}");
            check(op, target(80, false), shape[2], &mut random);
        }
    }
}

#[test]
fn empty_sums_are_zero_and_empty_results_are_not_computed() {
    let mut random = Random(4);
    check(MatMul::contiguous(DType::F32, &[2], [3, 5, 0]), target(80, false), 0, &mut random);
    check(MatMul::contiguous(DType::Bf16, &[], [3, 5, 0]), target(75, false), 0, &mut random);
    for op in [[0, 5, 4], [3, 0, 4], [0, 0, 0]].map(|shape| MatMul::contiguous(DType::F32, &[], shape)) {
        assert!(launches(&op.into(), target(80, false)).launches.is_empty());
    }
    assert!(launches(&MatMul::contiguous(DType::F32, &[0], [3, 5, 4]).into(), target(80, false)).launches.is_empty());
}

#[test]
fn nan_and_infinity_propagate_through_zeros() {
    for (dtype, target) in
        [(DType::F32, target(80, false)), (DType::F32, target(80, true)), (DType::F16, target(75, false))]
    {
        let (m, n, k) = (20, 24, 40);
        let library = MatMul::contiguous(dtype, &[], [m, n, k]).into();
        let encode = |values: Vec<f64>| -> Vec<u8> {
            let bits = |x: f64| retape_runtime::Scalar::from_f64(x, dtype).bits.to_le_bytes();
            values.into_iter().flat_map(|x| bits(x)[..dtype.size()].to_vec()).collect()
        };
        let (mut a, mut b) = (vec![0.0; m * k], vec![1.0; k * n]);
        a[k] = f64::NAN;
        b[1] = f64::INFINITY;
        let len = m * n * dtype.size();
        let found = super::machine::both(&launches(&library, target), &[encode(a), encode(b)], &[len]);
        let found = super::values(dtype, &found[0]);
        assert_eq!(found[0], 0.0);
        assert!(found[1].is_nan(), "0 * inf");
        assert!(found[n..2 * n].iter().all(|x| x.is_nan()), "the row of the NaN");
    }
}
