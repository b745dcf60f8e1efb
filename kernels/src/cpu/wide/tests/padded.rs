//! Rows with padding around them.

use retape_runtime::Scalar;

use super::*;
use crate::ir::Func1;

/// Three rows of `columns` elements with padding before and behind each, and sums of them all, of each row, of each column,
/// or none; and of one row whose start is not computed.
fn padded_rows([low, columns, high]: [usize; 3], dtype: DType) -> Vec<Kernel> {
    const ROWS: usize = 3;
    let kinds = [[true, true], [false, true], [true, false], [false, false]].map(|reduced| (ROWS, reduced));
    let one = [[true, true], [false, false]].map(|reduced| (1, reduced));
    let kernel = |(n_rows, [reduces_rows, reduces_columns]): (usize, [bool; 2])| {
        let k = KernelBuilder::new();
        let (from, width) = (k.param(dtype, n_rows * columns, false), low + columns + high);
        let (row, column) = (k.axis(n_rows, reduces_rows), k.axis(width, reduces_columns));
        let place = k.index(column) - low as i64;
        let is_inside = place.ge(0_i64) & (k.constant((columns as i64).into()).gt(place));
        let at = k.index(row) * columns as i64 + place.max(0_i64).min(columns as i64 - 1);
        let other = Scalar::from_f64(if low == 1 { 3.0 } else { 0.0 }, dtype);
        let value = is_inside.select(k.load_at(from, at), k.constant(other));
        let (value, dtype) = if dtype.size() < 4 { (value.cast(DType::F32), DType::F32) } else { (value, dtype) };
        k.store(k.param(dtype, n_rows * width, true), Affine::new(0, &[width as i64, 1]), value);
        if reduces_rows || reduces_columns {
            let stride = |reduced, stride| if reduced { 0 } else { stride };
            let to = k.param(dtype, if reduces_rows { width } else { n_rows }, true);
            let at = Affine::new(0, &[stride(reduces_rows, 1), stride(reduces_columns, 1)]);
            k.store(to, at, value.reduce(ReductionOp::Sum));
        }
        prepared(&k.finish())
    };
    kinds.into_iter().chain(one).map(kernel).collect()
}

/// Elements are read as vectors where a select asks for them, and nothing beside them.
#[test]
#[cfg(unix)]
fn rows_with_padding_are_read_as_vectors() {
    for extents in [[1, 3, 1], [0, 5, 2], [2, 5, 0], [1, 16, 1], [3, 17, 1], [0, 31, 1], [1, 32, 0], [2, 64, 20]] {
        for dtype in [DType::F32, DType::F64, DType::I32, DType::I64, DType::Bf16, DType::U8, DType::Bool] {
            for (kind, kernel) in padded_rows(extents, dtype).into_iter().enumerate() {
                let (inputs, schedule) = (random_inputs(&kernel, kind as u64), schedule(&kernel));
                let name = format!("kind {kind} of {extents:?} of {dtype}");
                let rows = |nest| Positions::of(&LoopForm::of_nest(nest), true).padded_rows.iter().flatten().count();
                assert_eq!(schedule.nests.iter().map(rows).sum::<usize>(), 1, "{name}\n{kernel}");
                assert_eq!(check(&kernel, &inputs, &name), 2 * levels().len() * schedule.nests.len(), "{name}");
                let run =
                    |functions: &[Arc<Function>]| run_functions(&kernel, &schedule, functions, &inputs, 1, false).0;
                let made = run(&narrow_functions(&schedule));
                compare(&kernel, &made, &expected(&kernel, &inputs), 1e-5, &name);
                check_guarded(&kernel, &inputs, &made, &name);
            }
        }
    }
}

/// The number of rows with padding that a kernel's nests read.
fn n_padded(kernel: &Kernel) -> usize {
    let rows = |nest| Positions::of(&LoopForm::of_nest(nest), true).padded_rows.iter().flatten().count();
    schedule(kernel).nests.iter().map(rows).sum()
}

/// The sums of three rows of elements between the columns 5 and 24, each from 5 elements before its own start on: the first
/// row starts before its parameter, and only the columns that are read lie within it.
#[test]
#[cfg(unix)]
fn a_row_that_starts_before_its_parameter_reads_element_by_element() {
    let k = KernelBuilder::new();
    let from = k.param(DType::F32, 60, false);
    let (row, column) = (k.axis(3, false), k.axis(40, true));
    let place = k.index(column);
    let is_inside = place.ge(5_i64) & k.constant(24_i64.into()).ge(place);
    let at = k.index(row) * 20_i64 - 5_i64 + place.max(5_i64).min(24_i64);
    let value = is_inside.select(k.load_at(from, at), k.constant(0.0_f32.into()));
    k.store(k.param(DType::F32, 3, true), Affine::new(0, &[1, 0]), value.reduce(ReductionOp::Sum));
    let kernel = prepared(&k.finish());
    let inputs = random_inputs(&kernel, 2);
    assert_eq!(check(&kernel, &inputs, "a row before"), 2 * levels().len());
    let schedule = schedule(&kernel);
    let (made, _) = run_functions(&kernel, &schedule, &narrow_functions(&schedule), &inputs, 1, false);
    compare(&kernel, &made, &expected(&kernel, &inputs), 1e-5, "a row before");
    check_guarded(&kernel, &inputs, &made, "a row before");
}

/// A select that code branches around takes its operands as they are.
#[test]
fn a_row_with_padding_beside_a_long_formula_has_wide_code() {
    let k = KernelBuilder::new();
    let [from, other] = [(20, 3), (40, 3)].map(|(columns, rows)| k.param(DType::F32, columns * rows, false));
    let (row, column) = (k.axis(3, false), k.axis(40, true));
    let place = k.index(column);
    let at = k.index(row) * 20_i64 + place.min(19_i64);
    let formula = (0..4).fold(k.load(other, Affine::new(0, &[40, 1])), |x, _| x.call1(Func1::Sin));
    let value = k.constant(20_i64.into()).gt(place).select(k.load_at(from, at), formula);
    k.store(k.param(DType::F32, 3, true), Affine::new(0, &[1, 0]), value.reduce(ReductionOp::Sum));
    let kernel = prepared(&k.finish());
    check(&kernel, &random_inputs(&kernel, 3), "a formula");
    let schedule = schedule(&kernel);
    for level in levels() {
        assert_eq!(functions(&schedule, level, u32::MAX, "a formula").1, schedule.nests.len());
    }
}

/// A condition that holds beside the row, or says nothing of it, is none of a row with padding.
#[test]
fn a_condition_that_says_too_little_reads_element_by_element() {
    for (least, most, expected) in [(0, 19, 1), (1, 18, 1), (-1, 19, 0), (0, 20, 0)] {
        let k = KernelBuilder::new();
        let from = k.param(DType::F32, 60, false);
        let (row, column) = (k.axis(3, false), k.axis(40, true));
        let place = k.index(column) - 5_i64;
        let is_inside = place.ge(least) & k.constant(most.into()).ge(place);
        let at = k.index(row) * 20_i64 + place.max(0_i64).min(19_i64);
        let value = is_inside.select(k.load_at(from, at), k.constant(0.0_f32.into()));
        k.store(k.param(DType::F32, 3, true), Affine::new(0, &[1, 0]), value.reduce(ReductionOp::Sum));
        let kernel = prepared(&k.finish());
        assert_eq!(n_padded(&kernel), expected, "from {least} to {most}");
        check(&kernel, &random_inputs(&kernel, 1), &format!("from {least} to {most}"));
    }
}
