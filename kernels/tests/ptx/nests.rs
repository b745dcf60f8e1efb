//! Loop nests.

use retape_kernels::ir::random::{random_kernel, random_kernel_with_calls};

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
fn random_kernels_have_code() {
    for seed in 0..200 {
        for kernel in [random_kernel(seed), random_kernel_with_calls(seed)] {
            lowered(&step(&kernel), TARGETS[seed as usize % 3]);
        }
    }
}
