//! Joins of formulas, whose parts one kernel stores where they belong, against the same ops one by one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use retape::{DType, Form, Tensor, accelerate, concat, stack, trace};

/// Numbers without a pattern, some of them equal.
fn numbers(shape: &[usize], seed: usize) -> Tensor {
    let n: usize = shape.iter().product();
    let number = |i: usize| ((i * 7919 + seed * 104_729) % 1013) as f32 / 100.0 - 5.0;
    Tensor::from((0..n).map(number).collect::<Vec<_>>()).reshape(shape)
}

/// Compares the bits of an accelerated function with those of the same ops one by one; returns whether a step of its plan
/// copies parts.
fn copies(name: &str, x: &[Tensor], f: impl Fn(&Vec<Tensor>) -> Vec<Tensor> + Copy + Send + Sync + 'static) -> bool {
    let x = x.to_vec();
    let (found, expected) = (accelerate(f).call(&x).unwrap(), f(&x));
    for (n, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!((found.shape(), found.dtype()), (expected.shape(), expected.dtype()), "{name}");
        let bits =
            |x: &Tensor| x.cast(DType::F64).to_vec::<f64>().unwrap().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(found), bits(expected), "{name}, result {n}");
    }
    let plan = trace(f, &x).unwrap().optimized().unwrap().planned().unwrap();
    plan.contains("join{")
}

/// Both parts of a rotation, `[.., width]` each.
fn rotated(x: &[Tensor]) -> [Tensor; 2] {
    [&x[0] * &x[2] - &x[1], &x[1] * &x[2] + &x[0]]
}

#[test]
fn parts_of_every_width_lie_where_they_belong() {
    for shape in
        [&[7, 1][..], &[7, 2], &[6, 3], &[5, 4], &[9, 5], &[3, 16], &[40, 33], &[2, 5, 8], &[1, 12], &[3, 4, 1]]
    {
        let x: Vec<Tensor> = (0..3).map(|seed| numbers(shape, seed)).collect();
        let (last, width) = (shape.len() - 1, shape[shape.len() - 1]);
        let n_lines: usize = shape[..shape.len() - 1].iter().product();
        for dtype in [DType::F32, DType::F64, DType::I32, DType::U8] {
            let x: Vec<Tensor> = x.iter().map(|x| x.cast(dtype)).collect();
            let name = format!("{dtype}{shape:?}");
            let is_copied = copies(&name, &x, move |x| {
                let [a, b] = rotated(x);
                vec![concat(&[&a, &b], last)]
            });
            // Rows of two or three elements are copied, except for a single one.
            assert_eq!(is_copied, n_lines > 1 && [2, 3].contains(&width), "{name}");
            copies(&format!("stacked {name}"), &x, move |x| {
                let [a, b] = rotated(x);
                vec![stack(&[&b, &a, &(&a + &b)], last + 1)]
            });
        }
    }
}

#[test]
fn parts_that_others_need_are_copied() {
    let x: Vec<Tensor> = (0..3).map(|seed| numbers(&[12, 20], seed)).collect();
    assert!(copies("an output", &x, |x| {
        let [a, b] = rotated(x);
        vec![concat(&[&a, &b], 1), b]
    }));
    assert!(copies("the argument of a product", &x, |x| {
        let [a, b] = rotated(x);
        let all = concat(&[&a, &b], 1);
        vec![a.matmul(&x[0].t()), all.exp()]
    }));
    assert!(copies("two joins", &x, |x| {
        let [a, b] = rotated(x);
        vec![concat(&[&a, &b], 1), concat(&[&b, &a], 1)]
    }));
    assert!(copies("an argument", &x, |x| vec![concat(&[&rotated(x)[0], &x[1]], 1)]));
    assert!(copies("one part twice", &x, |x| {
        let [a, b] = rotated(x);
        vec![concat(&[&a, &b, &a], 1)]
    }));
    assert!(copies("the first rows of larger values", &x, |x| {
        let [a, b] = rotated(x);
        vec![concat(&[&a.slice_axis(0, ..8), &b.slice_axis(0, ..8)], 1), a, b]
    }));
    copies("the first of two rows", &x, |x| {
        let [a, b] = rotated(x).map(|x| x.slice_axis(0, ..2));
        vec![concat(&[&a.slice_axis(0, ..1), &b.slice_axis(0, ..1)], 0), a, b]
    });
    // A kernel that sums keeps its order of additions.
    copies("a sum", &x, |x| {
        let [a, b] = rotated(x);
        let all = concat(&[&a, &b], 1);
        vec![a.sum(0), all.sum(0), b.sum(1)]
    });
}

/// An argument that is given away would be written over by the join, but its parts would take as much memory.
#[test]
fn parts_of_a_result_take_no_memory() {
    let step = accelerate(|x: &Tensor| {
        let [a, b] = x.chunk_array(1);
        concat(&[&(&a * 0.5 - &b), &(&b * 0.5 + &a)], 1)
    });
    let x = numbers(&[128, 64], 0);
    step.call(&x).unwrap();
    let plan = step.text(&step.signature(&x), Form::Plan).unwrap();
    assert!(plan.contains("arena 0 bytes"), "{plan}");
}

#[test]
fn a_joined_value_is_a_part_of_another_one() {
    let x: Vec<Tensor> = (0..3).map(|seed| numbers(&[6, 8], seed)).collect();
    let is_copied = copies("rows of joins", &x, |x| {
        let rows: Vec<Tensor> = (0..3)
            .map(|n| {
                let [a, b] = rotated(&[&x[0] + n as f32, x[1].clone(), x[2].clone()]);
                concat(&[&a, &b], 1)
            })
            .collect();
        vec![concat(&rows.iter().collect::<Vec<_>>(), 0).tanh()]
    });
    assert!(!is_copied);
    copies("joins of joins", &x, |x| {
        let [a, b] = rotated(x);
        let all = concat(&[&a, &b], 1);
        vec![concat(&[&all.exp(), &-&all], 1).t()]
    });
}

/// The cotangents of parts, by the chain rule.
#[test]
fn gradients_of_parts_are_stored_in_theirs() {
    let x = numbers(&[10, 24], 0);
    let gradient = accelerate(|x: &Tensor| {
        let [a, b, c] = x.chunk_array(-1);
        (a.sigmoid() * b.tanh() + c.square()).sum(..).grad(x)
    });
    let found = gradient.call(&x).unwrap().to_vec::<f32>().unwrap();
    let plan = gradient.text(&gradient.signature(&x), Form::Plan).unwrap();
    assert!(!plan.contains("join{"), "{plan}");
    let x = x.to_vec::<f32>().unwrap();
    for (row, line) in found.chunks(24).zip(x.chunks(24)) {
        for i in 0..8 {
            let [a, b, c] = [0, 8, 16].map(|part| f64::from(line[part + i]));
            let s = 1.0 / (1.0 + (-a).exp());
            let expected = [s * (1.0 - s) * b.tanh(), s * (1.0 - b.tanh().powi(2)), 2.0 * c];
            for (part, expected) in expected.into_iter().enumerate() {
                let found = f64::from(row[8 * part + i]);
                assert!((found - expected).abs() <= 1e-6 * expected.abs().max(1.0), "{found}, expected {expected}");
            }
        }
    }
}

#[test]
fn many_elements_that_take_turns_are_no_copies() {
    for (n_parts, len, dtype, is_copied) in [
        (2, 300, DType::F32, false),
        (3, 5000, DType::I32, false),
        (16, 256, DType::F32, false),
        // More parts than are turned together, few lines, and elements that are no words.
        (17, 256, DType::F32, true),
        (2, 255, DType::F32, true),
        (2, 300, DType::F64, true),
        (2, 300, DType::U8, true),
    ] {
        let x: Vec<Tensor> = (0..n_parts).map(|seed| numbers(&[len], seed).cast(dtype)).collect();
        let name = format!("{n_parts} parts of {len} {dtype}");
        let found = copies(&name, &x, |x| vec![stack(&x.iter().collect::<Vec<_>>(), 1)]);
        assert_eq!(found, is_copied, "{name}");
        // One argument may be several parts, and be read elsewhere.
        copies(&format!("twice {name}"), &x, |x| vec![stack(&[&x[0], &x[1], &x[0]], 1), &x[0] + &x[1]]);
    }
}
