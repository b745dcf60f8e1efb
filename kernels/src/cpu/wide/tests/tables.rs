//! Elements of small parameters, and ends of rows of short elements.

use super::*;

/// Checks a kernel's code of every level, also where buffers begin or end at pages that nothing may touch.
#[cfg(unix)]
fn check_all(kernel: &Kernel, seed: u64, name: &str) {
    let inputs = random_inputs(kernel, seed);
    let schedule = schedule(kernel);
    assert_eq!(check(kernel, &inputs, name), 2 * levels().len() * schedule.nests.len(), "{name}");
    let (made, _) = run_functions(kernel, &schedule, &narrow_functions(&schedule), &inputs, 1, false);
    compare(kernel, &made, &expected(kernel, &inputs), 0.0, name);
    check_guarded(kernel, &inputs, &made, name);
}

/// The elements of a parameter of `len` at positions of a dtype, most of which are beyond its ends.
fn chosen(len: usize, dtype: DType, of_positions: DType) -> Kernel {
    const POINTS: usize = 75;
    let k = KernelBuilder::new();
    let (positions, table) = (k.param(of_positions, POINTS, false), k.param(dtype, len, false));
    k.axis(POINTS, false);
    let here = Affine::new(0, &[1]);
    let at = k.load(positions, here.clone()).cast(DType::I64);
    k.store(k.param(dtype, POINTS, true), here, k.load_at(table, at));
    prepared(&k.finish())
}

#[test]
#[cfg(unix)]
fn elements_of_small_tables_are_those_of_cranelift() {
    for len in [1, 2, 3, 5, 7, 8, 9, 15, 16, 17] {
        for dtype in [DType::F32, DType::U32, DType::F64, DType::F16] {
            for of_positions in [DType::I64, DType::I32, DType::U32] {
                let name = format!("{len} of {dtype} at {of_positions}");
                check_all(&chosen(len, dtype, of_positions), len as u64, &name);
            }
        }
    }
}

/// Rows of an element for each coordinate, modulo a number: positions that are computed from coordinates.
#[test]
#[cfg(unix)]
fn tables_that_rows_share_are_read_at_remainders() {
    for len in [2_usize, 3, 5, 7, 8, 11, 16] {
        let k = KernelBuilder::new();
        let n = 40 * len;
        let (all, table) = (k.param(DType::F32, n, false), k.param(DType::F32, len, false));
        let axis = k.axis(n, true);
        let x = k.load(all, Affine::new(0, &[1])) * k.load_at(table, k.index(axis) % len as i64);
        k.store(k.param(DType::F32, n, true), Affine::new(0, &[1]), x);
        k.store(k.param(DType::F32, 1, true), Affine::new(0, &[0]), x.reduce(ReductionOp::Max));
        check_all(&prepared(&k.finish()), len as u64, &format!("tables of {len}"));
    }
}

#[test]
#[cfg(unix)]
fn ends_of_rows_of_short_elements_touch_nothing_else() {
    for len in (4..=17).chain([23, 33]) {
        for dtype in [DType::Bool, DType::U8, DType::F16, DType::Bf16] {
            let k = KernelBuilder::new();
            let (rows, shared) = (k.param(dtype, 6 * len, false), k.param(dtype, len, false));
            k.axis(6, false);
            k.axis(len, false);
            let here = Affine::new(0, &[len as i64, 1]);
            let loaded = [k.load(rows, here.clone()), k.load(shared, Affine::new(0, &[0, 1]))];
            let [x, y] = if dtype.is_half() { loaded.map(|x| x.cast(DType::F32)) } else { loaded };
            k.store(k.param(DType::Bool, 6 * len, true), here.clone(), x.eq(y));
            let both = if dtype == DType::Bool { x & y } else { x.max(y).cast(dtype) };
            k.store(k.param(dtype, 6 * len, true), here, both);
            check_all(&prepared(&k.finish()), len as u64, &format!("rows of {len} of {dtype}"));
        }
    }
}
