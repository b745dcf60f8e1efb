//! Rows of elements of other rows.

use retape_runtime::Scalar;

use super::*;
use crate::schedule::PermutedRows;

/// `n` rows of elements that lie so far behind the first element of other rows, which are `stride` elements apart, or of
/// constants; one of the stores has the double of its element if it is to be no permutation.
fn rows_of(n: usize, stride: i64, row: &[Option<i64>], computes: bool) -> Kernel {
    let k = KernelBuilder::new();
    // Nothing lies behind the last element that is read or written.
    let last = row.iter().flatten().max().unwrap();
    let x = k.param(DType::F32, (n as i64 - 1) as usize * stride as usize + *last as usize + 1, false);
    let ways = row.len();
    let y = k.param(DType::F32, n * ways, true);
    k.axis(n, false);
    for (way, element) in row.iter().enumerate() {
        let value = match element {
            Some(behind) => k.load(x, Affine::new(*behind, &[stride])),
            None => k.constant(Scalar::from_f64([0.0, -2.5][way % 2], DType::F32)),
        };
        let value = if computes && way == 1 { value + value } else { value };
        k.store(y, Affine::new(way as i64, &[ways as i64]), value);
    }
    k.finish()
}

/// Whether the only nest of a kernel writes permuted rows with vectors of a level.
fn is_permuted_at(level: WideIsa, kernel: &Kernel) -> bool {
    let schedule = schedule(kernel);
    let [nest] = &schedule.nests[..] else { return false };
    LoopForm::of_nest(nest).axis.is_some_and(|axis| PermutedRows::of(&nest.kernel, axis, level.lanes()).is_some())
}

fn is_permuted(kernel: &Kernel) -> bool {
    is_permuted_at(WideIsa::Avx512, kernel)
}

#[test]
fn rows_of_elements_of_other_rows_have_the_bits_of_cranelift() {
    let (some, none) = (|range: std::ops::Range<i64>| range.map(Some), [None]);
    let repeated = |len: i64, times: usize| (0..times).flat_map(move |_| (0..len).map(Some)).collect::<Vec<_>>();
    let cases: Vec<(&str, i64, Vec<Option<i64>>)> = vec![
        ("pairs that change places", 2, vec![Some(1), Some(0)]),
        ("a row of three, turned round", 3, (0..3).rev().map(Some).collect()),
        ("a row of twelve, turned round", 12, (0..12).rev().map(Some).collect()),
        ("two rows of three as three of two", 6, [0, 3, 1, 4, 2, 5].map(Some).to_vec()),
        ("constants before and behind", 5, none.into_iter().chain(some(0..5)).chain(none).collect()),
        ("the second half is a constant", 4, some(0..2).chain([None, None]).collect()),
        ("the middle of a row", 9, some(2..7).collect()),
        ("one element of a row, several times", 1, vec![Some(0); 7]),
        ("one of several, several times", 3, vec![Some(2); 11]),
        ("all, four times", 3, repeated(3, 4)),
        ("all of one, sixteen times", 1, repeated(1, 16)),
        ("the same", 7, some(0..7).collect()),
        ("rows that overlap", 1, some(0..4).collect()),
    ];
    let mut n_short = 0;
    for (name, stride, row) in &cases {
        n_short += usize::from(is_permuted_at(WideIsa::Avx2, &rows_of(100, *stride, row, false)));
        for n in [5, 16, 33, 100] {
            let (kernel, other) = (rows_of(n, *stride, row, false), rows_of(n, *stride, row, true));
            let inputs = random_inputs(&kernel, n as u64);
            assert!(n < 16 || is_permuted(&kernel) && !is_permuted(&other), "{name}, {n}");
            assert_eq!(check(&kernel, &inputs, name), 2 * levels().len(), "{name}, {n}");
            check(&other, &inputs, name);
            #[cfg(unix)]
            {
                let schedule = schedule(&kernel);
                let (expected, _) = run_functions(&kernel, &schedule, &narrow_functions(&schedule), &inputs, 1, false);
                check_guarded(&kernel, &inputs, &expected, name);
            }
        }
    }
    // Parts of two rows of twelve, turned round, do not lie in two short vectors.
    assert_eq!(n_short, cases.len() - 1);
}

/// Elements that do not lie in two vectors, or are written beside something else.
#[test]
fn other_rows_are_no_permutations() {
    assert!(!is_permuted(&rows_of(64, 16, &[Some(0), Some(9)], false)), "a few of many");
    assert!(!is_permuted(&rows_of(64, 40, &[Some(1), Some(0)], false)), "rows far apart");
    assert!(!is_permuted(&rows_of(64, 3, &[Some(0), Some(200)], false)), "elements far apart");
    let k = KernelBuilder::new();
    let x = k.param(DType::F32, 192, false);
    let [y, z] = [(); 2].map(|()| k.param(DType::F32, 192, true));
    k.axis(64, false);
    let elements = [0, 1, 2].map(|way| k.load(x, Affine::new(way, &[3])));
    for (to, way) in [y, z].into_iter().flat_map(|to| [0, 1, 2].map(|way| (to, way))) {
        k.store(to, Affine::new(way, &[3]), elements[2 - way as usize]);
    }
    assert!(!is_permuted(&k.finish()), "two results");
}

/// Several axes, of which the last one has whole vectors of rows and less: copies of rows with others between them.
#[test]
fn permuted_rows_of_several_axes_have_the_bits_of_cranelift() {
    for (rows, ways, is_kept) in
        [(7, 6, true), (20, 3, true), (28, 12, true), (37, 5, true), (6, 16, true), (7, 2, false)]
    {
        for outer in [[2, 1], [1, 2], [40, 5]] {
            let k = KernelBuilder::new();
            let row = rows * ways;
            let x = k.param(DType::I32, outer[0] * row, false);
            let y = k.param(DType::I32, outer[0] * outer[1] * row, true);
            outer.into_iter().chain([rows]).for_each(|extent| {
                k.axis(extent, false);
            });
            for way in 0..ways as i64 {
                let value = match way % 4 {
                    3 => k.constant(Scalar { dtype: DType::I32, bits: (-7_i32) as u32 as u64 }),
                    _ => k.load(x, Affine::new(ways as i64 - 1 - way, &[row as i64, 0, ways as i64])),
                };
                let strides = [(outer[1] * row) as i64, row as i64, ways as i64];
                k.store(y, Affine::new(way, &strides), value);
            }
            let kernel = k.finish();
            assert!(is_permuted(&kernel), "{kernel}");
            let least = PermutedRows::of(&kernel, 2, 16).unwrap().least;
            assert_eq!(least <= rows, is_kept, "{least} of {rows} rows of {ways}");
            let (inputs, name) = (random_inputs(&kernel, ways as u64), format!("{rows} rows of {ways} in {outer:?}"));
            check(&kernel, &inputs, &name);
            #[cfg(unix)]
            // Guarded memory is a page.
            if outer[0] * outer[1] <= 2 {
                let schedule = schedule(&kernel);
                let (expected, _) = run_functions(&kernel, &schedule, &narrow_functions(&schedule), &inputs, 1, false);
                check_guarded(&kernel, &inputs, &expected, &name);
            }
        }
    }
}

/// Rows over those that are read, element by element, some of which become constants.
#[test]
#[cfg(unix)]
fn permuted_rows_are_written_in_place() {
    for n in [16, 33, 100] {
        for ways in 2..=16 {
            let row: Vec<_> = (0..ways).map(|way| (way % 3 != 1).then_some(way)).collect();
            let mut kernel = rows_of(n, ways, &row, false);
            kernel.params[0].len = kernel.params[1].len;
            assert!(is_permuted(&kernel), "{ways}");
            let (inputs, schedule) = (random_inputs(&kernel, ways as u64), schedule(&kernel));
            let (expected, _) = run_functions(&kernel, &schedule, &narrow_functions(&schedule), &inputs, 1, false);
            for level in levels() {
                let name = format!("{n} rows of {ways} at {level:?}");
                let (functions, _) = functions(&schedule, level, u32::MAX, &name);
                let made = run_guarded(&kernel, &schedule, &functions, &inputs, true, true);
                compare(&kernel, &made, &expected, 0.0, &name);
            }
        }
    }
}
