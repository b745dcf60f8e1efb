//! Nests of shapes at which schedules change.

use retape_kernels::ir::random::random_inputs;
use retape_kernels::library::Sort;
use retape_kernels::ptx::{Target, lower};
use retape_kernels::{Error, Operand, Place, Step, Work};
use retape_runtime::DType;

use super::machine::{check_step, check_within, expected, outputs, same, scalars};
use super::samples::{adam, bias, channels, columns, gather, gelu_backward, mixed, rows, square, transpose};
use super::{TARGETS, kernel, lowered, step};

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
fn bodies_of_any_size() {
    check(&adam(1003), 0);
    check(&gelu_backward(2008), 1);
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
        for (kept, dtype, op) in [(1, "f32", "sum"), (3, "f64", "max"), (37, "i32", "sum"), (9, "u8", "min")] {
            check(&rows(kept, n, dtype, op), i);
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
        for (kept, dtype, op) in
            [(2, "f32", "sum"), (3, "f64", "max"), (36, "i32", "sum"), (64, "u8", "min"), (300, "f32", "prod")]
        {
            check(&columns(n, kept, dtype, op), i);
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
        assert!(lowered(&step(&kernel), Target::new(80)).launches.is_empty());
    }
    check(&rows(5, 0, "f32", "max"), 0);
}

#[test]
fn reduced_axes_without_reductions() {
    for extent in [0, 1, 5] {
        let text = format!(
            "kernel (p0: f32[6], p1: f32[6] out, p2: f32[{}] out) {{
                axes a0 = 6, a1 = {extent} reduced
                %0 = load p0[a0]
                %1 = neg %0
                store p1[a0], %0
                store p2[a1 * 6 + a0], %1
            }}",
            6 * extent
        );
        check(&text, extent);
    }
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
            let sm = Target::new([75, 80][distance % 2]);
            check_step(&shifted(text, distance), &kernel(text), sm, distance as u64, 1e-4);
        }
    }
}

/// Threads with nothing to do must not even load what others write.
#[test]
fn results_in_place_of_operands() {
    let squares = "kernel (p0: f32[1003], p1: f32[1003] out) {
        axes a0 = 17, a1 = 59
        %0 = load p0[a0 * 59 + a1]
        %1 = mul %0, %0
        store p1[a0 * 59 + a1], %1
    }";
    let sums = "kernel (p0: f32[1003], p1: f32[1003] out, p2: f32[17] out) {
        axes a0 = 17, a1 = 59 reduced
        %0 = load p0[a0 * 59 + a1]
        %1 = mul %0, %0
        %2 = reduce max %1
        store p1[a0 * 59 + a1], %1
        store p2[a0], %2
    }";
    let tiles = "kernel (p0: f32[2021], p1: f32[2021], p2: f32[2021] out) {
        axes a0 = 43, a1 = 47
        %0 = load p0[a1 * 43 + a0]
        %1 = load p1[a0 * 47 + a1]
        %2 = add %0, %1
        store p2[a0 * 47 + a1], %2
    }";
    let folded = |n: usize, at: &str| {
        format!(
            "kernel (p0: f32[{}], p1: f32[37], p2: f32[37] out) {{
                axes a0 = 37, a1 = {n} reduced
                %0 = load p0[{at}]
                %1 = reduce max %0
                %2 = load p1[a0]
                %3 = mul %2, %2
                %4 = sub %1, %3
                store p2[a0], %4
            }}",
            37 * n
        )
    };
    let (first, last) = ([0, 0, 1 << 20], [1 << 20, 0, 0]);
    let mut cases = vec![(squares.to_owned(), first), (sums.to_owned(), first), (tiles.to_owned(), last)];
    // The last is long enough for several vectors of a thread.
    let lines = [square(4099, "f32"), square(70_001, "i64"), square((1 << 20) + 3, "i64")];
    cases.extend(lines.map(|text| (text, first)));
    for n in [1, 3, 8, 40, 700] {
        cases.extend([folded(n, &format!("a0 * {n} + a1")), folded(n, "a1 * 37 + a0")].map(|text| (text, last)));
    }
    for (text, offsets) in cases {
        let kernel = kernel(&text);
        let operands = kernel.params.iter().zip(offsets).map(|(p, offset)| Operand {
            place: Place::Slot { offset },
            dtype: p.dtype,
            len: p.len,
        });
        let step = Step { operands: operands.collect(), work: Work::Kernel(kernel.clone()), label: "in place".into() };
        check_step(&step, &kernel, Target::new(80), 3, 0.0);
    }
}

/// A kernel over `[rows, columns]` that multiplies by the last element of its first parameter and adds a coordinate.
fn scaled(len: usize, axes: &str, input: &str, end: &str) -> String {
    format!(
        "kernel (p0: u8[{len}], p1: f32[40000], p2: f32[40000] out) {{
            axes {axes}
            %0 = load p0[{}]
            %1 = cast %0: f32
            %2 = load p1[{input}]
            %3 = index a1
            %4 = cast %3: f32
            %5 = fma %1, %2, %4
            {end}
        }}",
        len - 1
    )
}

#[test]
fn positions_beyond_32_bits() {
    let everywhere = |columns| format!("store p2[a0 * {columns} + a1], %5");
    let folded = "%6 = reduce max %5\nstore p2[a0], %6".to_owned();
    let cases = [
        ("a0 = 70, a1 = 66", "a0 * 66 + a1", everywhere(66)),
        ("a0 = 64, a1 = 40", "a1 * 64 + a0", everywhere(40)),
        ("a0 = 9, a1 = 4000 reduced", "a0 * 4000 + a1", folded.clone()),
        ("a0 = 8, a1 = 5000 reduced", "a1 * 8 + a0", folded),
    ];
    for (axes, input, end) in cases {
        let [small, huge] = [1, (1 << 31) + 3].map(|len| kernel(&scaled(len, axes, input, &end)));
        let inputs = random_inputs(&small, 5);
        for target in [Target::new(75), Target::new(90)] {
            let text = lowered(&step(&huge), target).launches[0].module.text();
            assert!(text.contains("mul.lo.s64") || text.contains("mad.lo.s64"), "{text}");
            let found = outputs(&step(&huge), &huge, &inputs, target);
            for (found, expected) in found.iter().zip(expected(&small, &inputs)) {
                let pairs = scalars(found, DType::F32).into_iter().zip(scalars(&expected, DType::F32));
                assert!(pairs.into_iter().all(|(found, expected)| same(found, expected)), "{huge}");
            }
        }
    }
}

/// A number of blocks that a launch cannot have is no launch of fewer, or of none.
#[test]
fn too_many_blocks_are_refused() {
    let many: usize = 1 << 32;
    for target in TARGETS {
        for text in [rows(many, 4096, "f32", "sum"), square(many << 11, "f64"), transpose(32 << 16, 32 << 16, "u8")] {
            match lower(&step(&kernel(&text)), target) {
                Err(Error::Unsupported(reason)) => {
                    assert!(reason.contains("more blocks than a launch has"), "{reason}")
                }
                other => panic!("{other:?}"),
            }
        }
    }
    // The most that there may be, and what needs none.
    let launches = lowered(&step(&kernel(&rows((1 << 31) - 1, 4096, "f32", "sum"))), TARGETS[0]);
    assert_eq!(launches.launches[0].grid, [(1 << 31) - 1, 1, 1]);
    assert!(lowered(&step(&kernel(&rows(0, 7, "f32", "sum"))), TARGETS[0]).launches.is_empty());
    assert_eq!(lowered(&step(&kernel(&rows(7, 0, "f32", "sum"))), TARGETS[0]).launches.len(), 1);
}

/// Positions along an axis have 32 bits where keys have.
#[test]
fn lines_too_long_to_count_are_not_sorted() {
    let sort = |dtype, len| {
        let sort = Sort { dtype, outer: 1, len, inner: 1, descending: false, kept: len };
        let step = Step { work: Work::library(sort), operands: Default::default(), label: String::new() };
        lower(&step, TARGETS[1])
    };
    assert!(matches!(sort(DType::F32, u32::MAX as usize), Err(Error::Unsupported(_))));
    assert!(sort(DType::F32, u32::MAX as usize - 1).is_ok());
    assert!(sort(DType::F64, 1 << 33).is_ok());
}
