//! Scatter-add where the order of additions is left open: atomic operations in every order of blocks and warps.

use retape_cuda_sim::Order;
use retape_kernels::library::{Library, ScatterAdd};
use retape_kernels::ptx::{self, Launches, Target};
use retape_kernels::{Step, Work};
use retape_runtime::{DType, Element, Scalar};

use super::data::{self, Draw};
use super::{ARCHITECTURES, cases, expected, is_close, machine};

/// The launches of a kernel on a device, the order of additions left open or not.
fn launches(scatter: &ScatterAdd, sm: u32, nondeterministic: bool) -> Launches {
    let work = Work::library(scatter.clone());
    let step = Step { work, operands: Default::default(), label: String::new() };
    ptx::lower(&step, Target { nondeterministic, ..Target::new(sm) }).unwrap()
}

fn has_atomics(launches: &Launches) -> bool {
    launches.launches.iter().any(|launch| launch.module.text().contains("red.global.add"))
}

/// The result in an order of blocks and warps.
fn result(scatter: &ScatterAdd, launches: &Launches, inputs: &[Vec<u8>], order: Order) -> Vec<Scalar> {
    let bytes = scatter.dtype.size() * scatter.outer * scatter.len * scatter.inner;
    let found = machine::run(launches, inputs, &[bytes], order).unwrap_or_else(|fault| panic!("{scatter:?}: {fault}"));
    data::scalars(scatter.dtype, &found[0])
}

/// Where no sum is rounded, the order cannot be seen: every result is that of the naive twin.
#[test]
fn exact_sums_are_those_of_the_twin() {
    let mut draw = Draw::new(20);
    let mut n_atomic = 0;
    for kernel in cases::scatter_add(&mut draw) {
        let Library::ScatterAdd(scatter) = &kernel else { panic!("{kernel}") };
        for sm in ARCHITECTURES {
            let launches = launches(scatter, sm, true);
            // Few indices are read by each thread, and integers are sorted as ever.
            if !has_atomics(&launches) {
                let plain = self::launches(scatter, sm, false);
                let texts = |launches: &Launches| launches.launches.iter().map(|l| l.module.text()).collect::<Vec<_>>();
                assert_eq!(texts(&launches), texts(&plain), "{kernel} on sm_{sm}");
                continue;
            }
            n_atomic += 1;
            let inputs = data::inputs(&kernel, &mut draw);
            let twin = data::scalars(scatter.dtype, &expected(&kernel, &inputs)[0]);
            for order in Order::ALL {
                let found = result(scatter, &launches, &inputs, order);
                for (at, (found, expected)) in found.into_iter().zip(&twin).enumerate() {
                    let is_equal = is_close(found, *expected, 0.0);
                    assert!(is_equal, "{kernel} on sm_{sm}, {order:?}: {found:?} at {at}, not {expected:?}");
                }
            }
        }
    }
    assert!(n_atomic > 10, "{n_atomic}");
}

/// Many numbers of many magnitudes for three places.
fn rounded(dtype: DType) -> (ScatterAdd, Vec<f64>, Vec<Vec<u8>>) {
    let (n_indices, [along, from_zeros]) = (700, [false; 2]);
    let scatter =
        ScatterAdd { dtype, index_dtype: DType::I32, outer: 1, len: 3, inner: 1, n_indices, along, from_zeros };
    let mut draw = Draw::new(21);
    let update = |draw: &mut Draw| (draw.below(2000) as f64 - 999.5) * 0.37 * 10_f64.powi(draw.below(7) as i32 - 3);
    let updates: Vec<f64> = (0..n_indices).map(|_| update(&mut draw)).collect();
    let element = |x: f64| if dtype == DType::F32 { (x as f32).to_scalar() } else { x.to_scalar() };
    let indices = (0..n_indices).map(|k| ((k * k % 7 % 3) as i32).to_scalar());
    let inputs = vec![
        data::to_bytes([0.5, -0.25, 8.0].into_iter().map(element)),
        data::to_bytes(indices),
        data::to_bytes(updates.iter().map(|x| element(*x))),
    ];
    (scatter, updates, inputs)
}

#[test]
fn the_order_of_blocks_shows_in_the_bits_of_atomic_sums_alone() {
    for (dtype, epsilon) in [(DType::F32, f64::from(f32::EPSILON)), (DType::F64, f64::EPSILON)] {
        let (scatter, updates, inputs) = rounded(dtype);
        let twin = data::scalars(dtype, &expected(&scatter.clone().into(), &inputs)[0]);
        // A sum of n numbers, in any order, is off by n roundings of the sum of their sizes at most.
        let bound = updates.len() as f64 * epsilon * updates.iter().map(|x| x.abs()).sum::<f64>();
        for sm in ARCHITECTURES {
            let sorted = launches(&scatter, sm, false);
            assert!(!has_atomics(&sorted));
            for order in Order::ALL {
                assert_eq!(result(&scatter, &sorted, &inputs, order), twin, "{dtype} on sm_{sm}, {order:?}");
            }
            let atomic = launches(&scatter, sm, true);
            assert!(has_atomics(&atomic) && atomic.scratch == 0);
            let results = Order::ALL.map(|order| result(&scatter, &atomic, &inputs, order));
            assert_ne!(results[0], results[3], "{dtype} on sm_{sm}: forward and reversed");
            for (found, expected) in results.iter().flatten().zip(twin.iter().cycle()) {
                let error = (found.to_f64() - expected.to_f64()).abs();
                assert!(error <= bound, "{dtype} on sm_{sm}: {found:?} and {expected:?}");
            }
        }
    }
}

/// The hardware adds no subnormal `f32` in global memory; elements that nothing is added to keep their bits.
#[test]
fn subnormal_sums_of_f32_become_zero() {
    for dtype in [DType::F32, DType::F64] {
        let small = Scalar { dtype, bits: 3 };
        let (len, n_indices, [along, from_zeros]) = (2, 40, [false; 2]);
        let scatter =
            ScatterAdd { dtype, index_dtype: DType::U32, outer: 1, len, inner: 1, n_indices, along, from_zeros };
        let inputs = vec![
            data::to_bytes([small; 2].into_iter()),
            data::to_bytes((0..n_indices).map(|_| 1_u32.to_scalar())),
            data::to_bytes((0..n_indices).map(|_| small)),
        ];
        let found = result(&scatter, &launches(&scatter, 75, true), &inputs, Order::FORWARD);
        let sum = if dtype == DType::F32 { 0 } else { 3 * 41 };
        assert_eq!(found.iter().map(|scalar| scalar.bits).collect::<Vec<_>>(), [3, sum]);
    }
}
