//! The cost of nests: bytes of memory and instructions, counted.

use retape_kernels::ir::Kernel;
use retape_kernels::ir::random::random_inputs;
use retape_kernels::ptx::Target;

use super::machine::counts;
use super::samples::{bias, columns, rows, square, transpose};
use super::{kernel, step};

/// The bytes of the operands that are read and of those that are written.
fn bytes(kernel: &Kernel) -> [u64; 2] {
    [false, true].map(|written| {
        let params = kernel.params.iter().filter(|p| p.written == written);
        params.map(|p| (p.len * p.dtype.size()) as u64).sum()
    })
}

#[test]
fn every_element_is_loaded_once_and_few_instructions_are_needed() {
    // Bytes beyond those of the operands in percent, and instructions of a thread for each 16 bytes.
    let cases = [
        ("square", square(1 << 18, "f32"), 0, 24.0),
        ("square of bytes", square(1 << 18, "u8"), 0, 230.0),
        ("square, odd", square((1 << 18) + 3, "f32"), 1, 26.0),
        ("bias", bias(256, 1024), 100, 30.0),
        ("transpose", transpose(512, 512, "f32"), 0, 130.0),
        ("rows", rows(2048, 1024, "f32", "sum"), 0, 50.0),
        ("all", rows(1, 1 << 19, "f32", "sum"), 3, 26.0),
        ("columns", columns(2048, 256, "f32", "sum"), 5, 26.0),
    ];
    for (name, text, more, instructions) in cases {
        let kernel = kernel(&text);
        let counts = counts(&step(&kernel), &kernel, &random_inputs(&kernel, 1), Target::new(80));
        let [read, written] = bytes(&kernel);
        assert!(counts.global_loaded >= read && counts.global_stored >= written, "{name}: {counts:?}");
        assert!(counts.global_loaded * 100 <= read * (100 + more), "{name} loads {} of {read}", counts.global_loaded);
        let spent = counts.instructions as f64 / (read as f64 / 16.0);
        assert!(spent <= instructions, "{name}: {spent} instructions for 16 bytes");
    }
}
