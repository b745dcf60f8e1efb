//! Loop nests of all shapes against the evaluator.

use retape_kernels::ir::random::{random_kernel, random_kernel_with_calls};

use crate::machine::check_within;
use crate::samples::samples;
use crate::{TARGETS, lowered, step};

#[test]
fn every_sample_has_code() {
    for sample in samples() {
        for target in TARGETS {
            let launches = lowered(&step(&sample.kernel), target);
            assert!(!launches.launches.is_empty(), "{}", sample.name);
        }
    }
}

#[test]
fn random_kernels() {
    let n = std::env::var("RETAPE_PTX_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    for seed in 0..n {
        let target = TARGETS[seed as usize % 3];
        check_within(&random_kernel(seed), target, seed, 1e-3);
        check_within(&random_kernel_with_calls(seed), target, seed, 1e-3);
    }
}
