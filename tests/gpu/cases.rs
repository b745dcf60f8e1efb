//! The reference cases of `tests/engine/reference` on the GPU, within the bounds that hold for the processor.

use retape::{DType, Error};

use crate::check::{CASES, Check, F64_BOUND, FAMILIES};
use crate::compare::{all_bits, bits};
use crate::device::{gpu, reversed};

fn run(families: impl Fn(&str) -> bool) -> usize {
    let (mut failures, mut n_run, mut worst) = (vec![], 0, [0.0_f64; 2]);
    for (_, f32_bound, ops) in FAMILIES.iter().filter(|(name, ..)| families(name)) {
        for case in CASES.iter().filter(|case| ops.contains(&&*case.op)) {
            let bounds = [(DType::F64, [F64_BOUND; 2]), (DType::F32, f32_bound.of(case))];
            for (way, (dtype, bounds)) in bounds.into_iter().enumerate() {
                let check = Check { case, dtype, bounds, device: gpu() };
                // The call that hits has everything in reversed order.
                let in_reverse = |again: &dyn Fn() -> _| {
                    reversed(|| {
                        let results: Result<crate::check::Results, Error> = again();
                        results.inspect(|(values, gradients)| {
                            values.iter().chain(gradients).for_each(|tensor| drop(bits(tensor)));
                        })
                    })
                };
                let (eager, again) = (check.eager(), in_reverse(&|| check.eager()));
                if let (Ok(one), Ok(other)) = (&eager, &again) {
                    assert_eq!(all_bits(one), all_bits(other), "{} {dtype}: the order changes bits", case.name);
                }
                for (mode, results) in [("eager", eager), ("accelerated", check.accelerated(in_reverse))] {
                    match results.map_err(|e| e.to_string()).and_then(|results| check.compare(&results)) {
                        Ok(error) => worst[way] = worst[way].max(error),
                        Err(message) => failures.push(format!("{} {dtype} {mode}: {message}", case.name)),
                    }
                }
            }
            n_run += 1;
        }
    }
    println!("{n_run} cases, largest errors {:.1e} (f64) {:.1e} (f32)", worst[0], worst[1]);
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    n_run
}

const FIRST: [&str; 6] = ["elementwise", "transcendental", "special", "activations", "arithmetic", "comparisons"];

#[test]
fn formulas_are_within_the_bounds_of_the_processor() {
    assert!(run(|family| FIRST.contains(&family)) > 0);
}

#[test]
fn everything_else_is_within_the_bounds_of_the_processor() {
    let n_first = CASES.iter().filter(|case| FIRST.iter().any(|family| has(family, &case.op))).count();
    assert_eq!(run(|family| !FIRST.contains(&family)) + n_first, 272);
}

fn has(family: &str, op: &str) -> bool {
    FAMILIES.iter().any(|(name, _, ops)| *name == family && ops.contains(&op))
}
