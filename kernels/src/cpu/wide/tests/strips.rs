//! Sums of columns, row by row.

use super::*;
use crate::cpu::wide::strip::{rows_side_by_side, strips};

/// Over `[items, rows, columns]`: a formula of each element, its row and its column, which is stored; and of each column
/// its sum with what only the column has, the largest element as another dtype, and whether one is positive. Without
/// anything of a row, several are computed side by side.
fn columns_of_rows([items, rows, columns]: [usize; 3], dtype: DType, n_reductions: usize, has_rows: bool) -> Kernel {
    let k = KernelBuilder::new();
    let len = items * rows * columns;
    let x = k.param(dtype, len, false);
    let [of_row, of_column, scale] = [items * rows, columns, columns].map(|len| k.param(DType::F32, len, false));
    for (extent, reduced) in [(items, false), (rows, true), (columns, false)] {
        k.axis(extent, reduced);
    }
    let [rows, columns] = [rows, columns].map(|n| n as i64);
    let at = Affine::new(0, &[rows * columns, columns, 1]);
    let value = halved(k.load(x, at.clone()));
    k.store(k.param(dtype, len, true), at, value);
    let element = value.cast(DType::F32);
    let element = if has_rows { element * k.load(of_row, Affine::new(0, &[rows, 1, 0])) } else { element };
    let element = element + k.load(of_column, Affine::new(0, &[0, 0, 1]));
    let per_column = |reduced: Value<'_>| {
        let to = k.param(reduced.dtype(), items * columns as usize, true);
        k.store(to, Affine::new(0, &[columns, 0, 1]), reduced);
    };
    per_column(element.reduce(ReductionOp::Sum) * k.load(scale, Affine::new(0, &[0, 0, 1])));
    if n_reductions > 1 {
        per_column(element.cast(DType::F64).reduce(ReductionOp::Max));
    }
    if n_reductions > 2 {
        per_column(element.gt(k.constant(0.0_f32.into())).reduce(ReductionOp::Any));
    }
    k.finish()
}

#[test]
fn columns_row_by_row_have_the_bits_of_cranelift() {
    let sizes = [[1, 8, 300], [1, 9, 129], [2, 11, 144], [3, 8, 257], [1, 8, 1023], [1, 40, 2100], [2, 65, 1040]];
    let kinds = [(1, true), (2, true), (3, true), (1, false), (2, false), (3, false)];
    let (mut n_strips, mut n_wide) = (0, 0);
    for (n, size) in sizes.into_iter().enumerate() {
        for dtype in [DType::F32, DType::F64, DType::I32, DType::U8, DType::F16, DType::Bool] {
            for (n_reductions, has_rows) in kinds {
                let kernel = columns_of_rows(size, dtype, n_reductions, has_rows);
                assert_eq!(kernel.verify(), Ok(()));
                let nests = schedule(&kernel).nests;
                for form in levels().iter().flat_map(|level| nests.iter().filter_map(|nest| strips(nest, *level))) {
                    n_strips += 1;
                    assert_eq!(rows_side_by_side(&form) == 1, has_rows, "{}", form.kernel);
                }
                let name = format!("{size:?} of {dtype}, {n_reductions} reductions, rows: {has_rows}");
                n_wide += check(&kernel, &random_inputs(&kernel, n as u64), &name);
            }
        }
    }
    assert!(n_strips > 120 * levels().len() && n_wide > 240 * levels().len(), "{n_strips} of {n_wide}");
}

#[test]
#[cfg(unix)]
fn columns_row_by_row_stay_within_their_buffers() {
    let mut n_strips = 0;
    for columns in 17..32 {
        for (dtype, has_rows) in [DType::F32, DType::F64, DType::F16, DType::Bool].map(|dtype| (dtype, columns % 2 > 0))
        {
            let kernel = columns_of_rows([1, 9, columns], dtype, 3, has_rows);
            let inputs = random_inputs(&kernel, columns as u64);
            let schedule = schedule(&kernel);
            let (expected, _) = run_functions(&kernel, &schedule, &narrow_functions(&schedule), &inputs, 1, false);
            for level in levels() {
                let name = format!("{columns} columns of {dtype} at {level:?}");
                n_strips += schedule.nests.iter().filter(|nest| strips(nest, level).is_some()).count();
                let (functions, _) = functions(&schedule, level, u32::MAX, &name);
                for (at_end, over) in [(true, false), (false, false), (true, true)] {
                    let made = run_guarded(&kernel, &schedule, &functions, &inputs, at_end, over);
                    compare(&kernel, &made, &expected, 0.0, &format!("{name}, over an input: {over}"));
                }
            }
        }
    }
    assert!(n_strips > 20 * levels().len(), "{n_strips}");
}

/// A sum of columns and nothing else: of rows side by side, of all of them, and of what is left.
#[test]
fn plain_sums_of_columns_have_the_bits_of_cranelift() {
    let mut n_strips = 0;
    for (n, (dtype, op)) in
        [(DType::F32, ReductionOp::Sum), (DType::F64, ReductionOp::Max), (DType::I32, ReductionOp::Sum)]
            .iter()
            .enumerate()
    {
        for [rows, columns] in [[8, 600], [15, 600], [16, 300], [23, 129], [70, 1030]] {
            let k = KernelBuilder::new();
            let (x, to) = (k.param(*dtype, rows * columns, false), k.param(*dtype, columns, true));
            k.axis(rows, true);
            k.axis(columns, false);
            let value = k.load(x, Affine::new(0, &[columns as i64, 1]));
            k.store(to, Affine::new(0, &[0, 1]), value.reduce(*op));
            let kernel = k.finish();
            let nests = schedule(&kernel).nests;
            for form in levels().into_iter().filter_map(|level| strips(&nests[0], level)) {
                assert_eq!(rows_side_by_side(&form), 8, "{rows} by {columns} of {dtype}");
                n_strips += 1;
            }
            let n_wide = check(&kernel, &random_inputs(&kernel, n as u64), &format!("{rows} by {columns} of {dtype}"));
            assert!(n_wide >= levels().len(), "{rows} by {columns} of {dtype}");
        }
    }
    assert!(n_strips >= 5 * levels().len(), "{n_strips}");
}

/// Distances along axes that vectors do not lie along may be those of large arrays.
#[test]
fn large_arrays_have_wide_code() {
    const PITCH: usize = 1 << 24;
    let k = KernelBuilder::new();
    let (x, to) = (k.param(DType::F32, 4 * PITCH, false), k.param(DType::F32, 4 * 100, true));
    k.axis(4, false);
    k.axis(100, false);
    k.store(to, Affine::new(0, &[100, 1]), -k.load(x, Affine::new(0, &[PITCH as i64, 1])));
    let schedule = schedule(&k.finish());
    for level in levels() {
        assert_eq!(functions(&schedule, level, u32::MAX, "rows far apart").1, 1, "{level:?}");
    }
}
