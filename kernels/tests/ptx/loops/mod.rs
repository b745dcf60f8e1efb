//! Tests of the PTX that kernels become.

#![allow(clippy::unwrap_used, reason = "a test that unwraps an error has found one")]

mod fast;
mod golden;
mod insts;
mod machine;
mod nests;
mod samples;
mod shapes;
mod traffic;

use retape_kernels::ir::{Kernel, parse};
use retape_kernels::ptx::{Launches, Target, lower};
use retape_kernels::{Operand, Place, Step, Work};

/// The targets that code is made for.
const TARGETS: [Target; 3] = [Target::new(75), Target::new(80), Target::new(90)];

/// The kernel that a text describes.
fn kernel(text: &str) -> Kernel {
    let kernel = parse(text).unwrap_or_else(|e| panic!("{e} in\n{text}"));
    kernel.verify().unwrap_or_else(|e| panic!("{e} in\n{text}"));
    kernel
}

/// A step that runs a kernel on buffers of its own.
fn step(kernel: &Kernel) -> Step {
    let mut counts = [0; 2];
    let operands = kernel.params.iter().map(|p| {
        let count = &mut counts[usize::from(p.written)];
        *count += 1;
        let place = if p.written { Place::Output(*count - 1) } else { Place::Input(*count - 1) };
        Operand { place, dtype: p.dtype, len: p.len }
    });
    Step { operands: operands.collect(), work: Work::Kernel(kernel.clone()), label: "test".into() }
}

/// The launches of a step.
fn lowered(step: &Step, target: Target) -> Launches {
    lower(step, target).unwrap()
}
