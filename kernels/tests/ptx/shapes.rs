//! Nests of shapes at which schedules change.

use retape_kernels::ptx::Target;
use retape_kernels::{Operand, Place, Step, Work};

use crate::machine::{check_step, check_within};
use crate::samples::{bias, channels, columns, gather, mixed, rows, square, transpose};
use crate::{TARGETS, kernel, target};

/// Checks the kernel that a text describes on one of the targets.
fn check(text: &str, n: usize) {
    check_within(&kernel(text), TARGETS[n % TARGETS.len()], n as u64, 1e-4);
}

#[test]
fn pointwise_of_any_length() {
    for (i, n) in [1, 2, 3, 4, 5, 7, 8, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025, 4099].into_iter().enumerate() {
        for dtype in ["f32", "f64", "u8", "i64"] {
            check(&square(n, dtype), i);
        }
    }
}

#[test]
fn pointwise_with_several_vectors_of_a_thread() {
    check(&square((1 << 21) + 4097, "f32"), 0);
    check(&square((1 << 20) + 3, "i64"), 1);
}

#[test]
fn broadcast_rows() {
    for (i, (rows, columns)) in [(1, 1), (3, 5), (5, 3), (7, 8), (16, 64), (100, 36), (33, 129)].into_iter().enumerate()
    {
        check(&bias(rows, columns), i);
    }
}

#[test]
fn transposed() {
    let shapes = [(1, 7), (15, 15), (16, 16), (32, 32), (33, 31), (64, 100), (100, 17), (3, 200)];
    for (i, (rows, columns)) in shapes.into_iter().enumerate() {
        for dtype in ["f32", "bf16", "u8", "f64"] {
            check(&transpose(rows, columns, dtype), i);
        }
    }
}

#[test]
fn transposed_inside_a_batch() {
    // Adds a transposed image to one that lies as the result does; 16-bit truth values beside.
    let text = "kernel (p0: f32[6000], p1: f32[6000], p2: f32[6000] out, p3: bool[6000] out) {
        axes a0 = 3, a1 = 40, a2 = 50
        %0 = load p0[a0 * 2000 + a2 * 40 + a1]
        %1 = load p1[a0 * 2000 + a1 * 50 + a2]
        %2 = add %0, %1
        %3 = lt %0, %1
        store p2[a0 * 2000 + a1 * 50 + a2], %2
        store p3[a0 * 2000 + a1 * 50 + a2], %3
    }";
    check(text, 1);
}

#[test]
fn rows_of_any_length() {
    for (i, n) in [1, 2, 3, 5, 16, 31, 64, 100, 257, 1000, 1024, 1027, 5000].into_iter().enumerate() {
        for (kept, dtype, monoid) in [(1, "f32", "sum"), (3, "f64", "max"), (37, "i32", "sum"), (9, "u8", "min")] {
            check(&rows(kept, n, dtype, monoid), i);
        }
    }
}

#[test]
fn rows_in_parts() {
    for (i, (kept, n)) in [(1, 50_001), (2, 40_000), (5, 33_333), (1, 1 << 18)].into_iter().enumerate() {
        check(&rows(kept, n, "f32", "sum"), i);
        check(&rows(kept, n, "i64", "sum"), i);
    }
}

#[test]
fn columns_of_any_length() {
    for (i, n) in [1, 2, 3, 5, 8, 17, 64, 100, 300].into_iter().enumerate() {
        for (kept, dtype, monoid) in
            [(2, "f32", "sum"), (3, "f64", "max"), (36, "i32", "sum"), (64, "u8", "min"), (300, "f32", "prod")]
        {
            check(&columns(n, kept, dtype, monoid), i);
        }
    }
}

#[test]
fn columns_in_parts() {
    for (i, (n, kept)) in [(20_000, 3), (5000, 64), (3001, 33), (10_000, 4)].into_iter().enumerate() {
        check(&columns(n, kept, "f32", "sum"), i);
        check(&columns(n, kept, "i32", "max"), i);
    }
}

#[test]
fn statistics_of_channels() {
    for (i, (images, n, pixels)) in
        [(1, 1, 1), (2, 3, 4), (3, 5, 7), (4, 8, 64), (9, 2, 100), (8, 3, 3136)].into_iter().enumerate()
    {
        check(&channels(images, n, pixels), i);
    }
}

#[test]
fn truth_values_are_folded() {
    for (kept, n) in [(1, 100), (40, 3), (2, 5000), (70, 70)] {
        for (outer, inner) in [(format!("a0 * {n}"), "a1".to_owned()), ("a0".to_owned(), format!("a1 * {kept}"))] {
            let text = format!(
                "kernel (p0: f32[{len}], p1: bool[{kept}] out, p2: bool[{kept}] out, p3: bool[{len}] out, p4: f32[{kept}] out) {{
                    axes a0 = {kept}, a1 = {n} reduced
                    %0 = load p0[{outer} + {inner}]
                    %1 = const 3.5: f32
                    %2 = lt %0, %1
                    %3 = reduce all %2
                    %4 = reduce any %2
                    %5 = reduce min %0
                    store p1[a0], %3
                    store p2[a0], %4
                    store p3[{outer} + {inner}], %2
                    store p4[a0], %5
                }}",
                len = kept * n
            );
            check(&text, kept);
        }
    }
}

#[test]
fn many_reductions_share_memory_in_turns() {
    let count = 40;
    let mut text = String::from("kernel (p0: f64[12800]");
    (0..count).for_each(|i| text += &format!(", p{}: f64[64] out", i + 1));
    text += ") {\n  axes a0 = 64, a1 = 200 reduced\n  %0 = load p0[a1 * 64 + a0]\n";
    for i in 0..count {
        let (constant, scaled) = (3 * i + 1, 3 * i + 2);
        text += &format!("  %{constant} = const {i}.5: f64\n  %{scaled} = mul %0, %{constant}\n");
        text += &format!("  %{} = reduce {} %{scaled}\n", 3 * i + 3, ["sum", "max", "min"][i % 3]);
    }
    (0..count).for_each(|i| text += &format!("  store p{}[a0], %{}\n", i + 1, 3 * i + 3));
    check(&(text + "}"), 0);
}

#[test]
fn gathers_clamp() {
    check(&gather(10, 33, 12), 0);
    check(&gather(3, 5, 1), 1);
}

#[test]
fn precisions_mix() {
    for (i, (n, offset)) in [(64, 0), (1000, 8), (1000, 3), (777, 1)].into_iter().enumerate() {
        check(&mixed(n, offset), i);
    }
}

#[test]
fn nothing_to_do_is_no_launch() {
    for text in [square(0, "f32"), rows(0, 5, "f32", "sum"), transpose(0, 9, "f32")] {
        let kernel = kernel(&text);
        assert!(crate::lowered(&crate::step(&kernel), target(80)).launches.is_empty());
    }
    check(&rows(5, 0, "f32", "max"), 0);
}

/// A step whose operands lie in the arena, each at a distance from multiples of 256 bytes.
fn shifted(text: &str, distance: usize) -> Step {
    let kernel = kernel(text);
    let mut end = distance;
    let operands = kernel.params.iter().map(|p| {
        let offset = end.next_multiple_of(256) + distance.next_multiple_of(p.dtype.size());
        end = offset + p.len * p.dtype.size();
        Operand { place: Place::Slot { offset }, dtype: p.dtype, len: p.len }
    });
    Step { operands: operands.collect(), work: Work::Kernel(kernel.clone()), label: "shifted".into() }
}

#[test]
fn operands_at_any_address() {
    let texts = [
        square(1000, "f32"),
        square(1001, "u8"),
        mixed(512, 8),
        rows(6, 400, "f32", "sum"),
        columns(30, 64, "f64", "max"),
    ];
    for text in &texts {
        for distance in [0, 1, 2, 4, 8, 12, 16, 32, 100] {
            let sm = Target { sm: [75, 80][distance % 2], fast: false };
            check_step(&shifted(text, distance), &kernel(text), sm, distance as u64, 1e-4);
        }
    }
}
