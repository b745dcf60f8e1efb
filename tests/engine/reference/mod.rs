//! Ops and their vector-Jacobian products against results that another system computed in `f64`.
//!
//! Each case of `ops.json` runs four times: in `f64` and, with inputs rounded, in `f32`; op by op and accelerated.
//! In `f64` a result may be off by 1e-10 of `max(1, |expected|)` (1.6e-14 was measured), in `f32` by the bound of its
//! family, which is derived for pooling, and else about twice what was measured, the rounding of the inputs included;
//! the widest, 5.6e-6 for a convolution that sums 144 products, is what adding them one by one in `f32` costs (6.3e-6).
//! Integers and truth values must be equal. A call that hits must repeat the bits of the call that traced.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a panic fails the test; measured errors are printed")]

mod check;
mod file;
mod handlers;
mod overlap;
mod pooling;

use std::collections::BTreeSet;

use check::{CASES, Check, F64_BOUND, FAMILIES};
use handlers::apply;
use retape::{DType, Device};

/// A test per family.
macro_rules! tests {
    ($($family:ident)*) => {
        $(
            #[test]
            fn $family() {
                run_family(stringify!($family));
            }
        )*

        #[test]
        fn every_family_has_a_test() {
            assert!([$(stringify!($family)),*].into_iter().eq(FAMILIES.iter().map(|(name, ..)| *name)));
        }
    };
}

tests! {
    elementwise transcendental special activations arithmetic comparisons folds scans softmax
    sorting movement indexing matmul linear_algebra convolution pooling networks
}

#[test]
fn every_case_belongs_to_one_family() {
    assert_eq!(CASES.len(), 272);
    let run: Vec<&str> = FAMILIES.iter().flat_map(|(_, _, ops)| *ops).copied().collect();
    let of_table: BTreeSet<&str> = run.iter().copied().collect();
    assert_eq!(run.len(), of_table.len(), "an op is in two families");
    let of_file: BTreeSet<&str> = CASES.iter().map(|case| &*case.op).collect();
    assert_eq!(of_table, of_file);
    let n_run: usize =
        FAMILIES.iter().map(|(_, _, ops)| CASES.iter().filter(|case| ops.contains(&&*case.op)).count()).sum();
    assert_eq!(n_run, 272);
}

#[test]
fn every_op_has_a_handler() {
    let known = |case: &&file::Case| apply(&case.op, &case.attrs, &case.inputs).is_none();
    let unknown: BTreeSet<&str> = CASES.iter().filter(known).map(|case| &*case.op).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert!(apply("no such op", &CASES[0].attrs, &CASES[0].inputs).is_none());
}

fn run_family(name: &str) {
    let (_, f32_bound, ops) = FAMILIES.iter().find(|(family, ..)| *family == name).unwrap();
    let mut failures = vec![];
    let (mut n_run, mut worst) = (0, [0.0_f64; 2]);
    for case in CASES.iter().filter(|case| ops.contains(&&*case.op)) {
        for (way, dtype) in [DType::F64, DType::F32].into_iter().enumerate() {
            let bounds = if dtype == DType::F64 { [F64_BOUND; 2] } else { f32_bound.of(case) };
            let check = Check { case, dtype, bounds, device: Device::Cpu };
            for (mode, results) in [("eager", check.eager()), ("accelerated", check.accelerated(|again| again()))] {
                match results.map_err(|e| e.to_string()).and_then(|results| check.compare(&results)) {
                    Ok(error) => worst[way] = worst[way].max(error),
                    Err(message) => failures.push(format!("{} {dtype} {mode}: {message}", case.name)),
                }
            }
        }
        n_run += 1;
    }
    println!("{n_run} cases, largest errors {:.1e} (f64) {:.1e} (f32)", worst[0], worst[1]);
    assert!(n_run >= ops.len());
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
