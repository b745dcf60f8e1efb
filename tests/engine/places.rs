//! Large values that an output is made from lie where the output will, unless an argument could be written over then.

use retape::{DType, Form, Tensor, accelerate, concat};

fn ramp(rows: usize, columns: usize) -> Tensor {
    let n = rows * columns;
    Tensor::from_vec((0..n).map(|i| ((i * 7919) % 1013) as f32 * 1e-2 - 5.0).collect::<Vec<_>>(), [rows, columns])
        .unwrap()
}

/// The bytes of the arena and the donations of a plan.
fn memory(plan: &str) -> (usize, &str) {
    let arena = plan.lines().find_map(|line| line.strip_prefix("  arena ")?.strip_suffix(" bytes")).unwrap();
    let donations = plan.lines().find(|line| line.starts_with("  donations ")).unwrap_or_default();
    (arena.parse().unwrap(), donations)
}

#[test]
fn exponentials_of_a_softmax_lie_where_it_will() {
    let softmax = accelerate(|x: &Tensor| x.softmax(-1));
    for (rows, columns) in [(64, 1000), (70, 300)] {
        let x = ramp(rows, columns);
        let expected = x.softmax(-1).to_vec::<f32>().unwrap();
        let is_close = |x: &[f32]| x.iter().zip(&expected).all(|(x, y)| (x - y).abs() <= 1e-6 * y.abs());
        let kept = softmax.call(&x).unwrap();
        let plan = softmax.text(&softmax.signature(&x), Form::Plan).unwrap();
        let (arena, donations) = memory(&plan);
        assert!(arena <= 2 * 4 * rows.next_multiple_of(16), "{plan}");
        assert_eq!(donations.trim(), "donations (output 0 over input 0)", "{plan}");
        let given = softmax.call(x).unwrap();
        let [kept, given] = [kept, given].map(|found| found.to_vec::<f32>().unwrap());
        assert!(kept == given && is_close(&kept), "{plan}");
    }
}

/// A parameter can be written over by the next one only if nothing else lies there before it is read.
#[test]
fn an_argument_that_is_read_later_can_still_be_given_away() {
    let step = accelerate(|x: &Tensor, w: &Tensor| {
        let y = (x - x.max(-1).unsqueeze(-1)).exp();
        let total = y.sum(-1).unsqueeze(-1);
        w - y / total
    });
    let (x, w) = (ramp(64, 1000), ramp(64, 1000));
    let expected = (&w - &x.softmax(-1)).to_vec::<f32>().unwrap();
    let kept = step.call(&x, &w).unwrap();
    let plan = step.text(&step.signature(&x, &w), Form::Plan).unwrap();
    assert!(memory(&plan).1.contains("output 0 over input 1"), "{plan}");
    let given = step.call(&x, w).unwrap();
    for found in [kept, given] {
        let found = found.to_vec::<f32>().unwrap();
        assert!(found.iter().zip(&expected).all(|(x, y)| (x - y).abs() < 1e-5), "{plan}");
    }
}

/// Places that a library step's accumulator takes, and outputs of another dtype of the same size, are not begun early.
#[test]
fn products_and_casts_keep_their_places() {
    let [x, y, w, v] = [(256, 64), (256, 48), (64, 512), (48, 512)].map(|(rows, columns)| ramp(rows, columns));
    let sum = accelerate(|x: &Tensor, y: &Tensor, w: &Tensor, v: &Tensor| x.matmul(w) + y.matmul(v));
    let expected = x.matmul(&w) + y.matmul(&v);
    let is_close = |found: Tensor, expected: Tensor| {
        let [found, expected] = [found, expected].map(|x| x.to_vec::<f64>().unwrap());
        found.iter().zip(&expected).all(|(x, y)| (x - y).abs() <= 1e-3 * y.abs().max(1.0))
    };
    let as_f64 = |x: &Tensor| x.cast(DType::F64);
    assert!(is_close(as_f64(&sum.call(&x, &y, &w, &v).unwrap()), as_f64(&expected)));

    let shared = accelerate(|x: &Tensor, y: &Tensor, w: &Tensor| {
        (x.matmul(w).square().sum(..) + y.matmul(&w.slice_axis(0, 0..48)).square().sum(..)).grad(w)
    });
    let gradient = (x.t().matmul(&x.matmul(&w)) * 2.0).to_vec::<f32>().unwrap();
    let found = shared.call(&x, &y, &w).unwrap().to_vec::<f32>().unwrap();
    // The rows that the second product does not see.
    assert!(found[48 * 512..].iter().zip(&gradient[48 * 512..]).all(|(x, y)| (x - y).abs() <= 1e-3 * y.abs().max(1.0)));

    let counts = accelerate(|x: &Tensor, y: &Tensor| (x + y).cumsum(1).cast(DType::F32) * 0.5);
    let (row, column) = (Tensor::ones([1, 512]).cast(DType::I32), Tensor::ones([256, 1]).cast(DType::I32));
    let found = counts.call(&row, &column).unwrap().to_vec::<f32>().unwrap();
    assert!(found.iter().enumerate().all(|(at, &x)| x == (at % 512 + 1) as f32));

    let order = accelerate(|x: &Tensor, y: &Tensor| x.matmul(y).argsort(1).cast(DType::F64) * 0.5);
    let expected = as_f64(&x.matmul(&w).argsort(1)) * 0.5;
    assert!(order.call(&x, &w).unwrap().to_vec::<f64>().unwrap() == expected.to_vec::<f64>().unwrap());
}

/// Parts of a joined value are computed where they belong in it, and no step copies them, however else they are read.
#[test]
fn parts_are_written_where_they_are_joined() {
    let [x, w] = [(64, 48), (48, 64)].map(|(rows, columns)| ramp(rows, columns));
    // The number of steps that copy parts.
    let run = |f: fn(&Tensor, &Tensor) -> Vec<Tensor>| {
        let compiled = accelerate(f);
        let bits = |found: Vec<Tensor>| found.iter().map(|x| x.to_vec::<f32>().unwrap()).collect::<Vec<_>>();
        assert!(bits(compiled.call(&x, &w).unwrap()) == bits(f(&x, &w)), "the same bits");
        let plan = compiled.text(&compiled.signature(&x, &w), Form::Plan).unwrap();
        (plan.lines().filter(|line| line.contains("    join{")).count(), plan)
    };
    // Parts are read before the join, between, by the last reader of the whole, and after it.
    let (copies, plan) = run(|x, w| {
        let (a, b) = (x.matmul(w), x.exp().matmul(w));
        let whole = concat(&[&a, &b], 0);
        let product = whole.matmul(&a.t());
        vec![product.sum(-1), (&whole * whole.sum(-1).unsqueeze(-1) + concat(&[&b, &a], 0)).sum(0), b.t().matmul(&a)]
    });
    assert_eq!(copies, 1, "each value is a part once\n{plan}");
    // A step that reads a part elsewhere may not write over the whole.
    let (copies, plan) = run(|x, w| {
        let (a, b) = (x.matmul(w), x.exp().matmul(w));
        let whole = concat(&[&a, &b], 0);
        let large = &whole * 0.5 + concat(&[&b.slice_axis(0, 1..), &a.slice_axis(0, ..), &b.slice_axis(0, ..1)], 0);
        vec![large.matmul(&w.t()), whole.matmul(&w.t())]
    });
    assert!(copies <= 1, "{plan}");
    // A part that is an argument or an output, twice in one join, or followed by one that vectors could not begin at.
    for f in [
        |x: &Tensor, w: &Tensor| vec![concat(&[&x.matmul(w), w], 0).matmul(&w.t())],
        |x: &Tensor, w: &Tensor| {
            let a = x.matmul(w);
            vec![concat(&[&a, &x.exp().matmul(w)], 0).matmul(&w.t()), a]
        },
        |x: &Tensor, w: &Tensor| {
            let a = x.matmul(w);
            vec![concat(&[&a, &a], 0).matmul(&w.t())]
        },
        |x: &Tensor, w: &Tensor| {
            let a = x.slice_axis(0, ..3).matmul(&w.slice_axis(1, ..5));
            vec![concat(&[&a, &a.exp().t().matmul(&a)], 0).matmul(&a.t())]
        },
    ] {
        assert_eq!(run(f).0, 1, "{}", run(f).1);
    }
    // Joins of joins, and empty parts.
    let (copies, plan) = run(|x, w| {
        let parts: Vec<Tensor> = (1..5).map(|n| x.matmul(&(w * n as f32))).collect();
        let [low, high] = [0, 2].map(|n| concat(&[&parts[n], &parts[n + 1], &parts[n].slice_axis(0, ..0)], 0));
        vec![concat(&[&low, &high], 0).matmul(&low.t()), high.matmul(&w.t())]
    });
    assert_eq!(copies, 1, "{plan}");
}

/// A join whose first part lies there while larger values come and go is copied, if the arena would grow for it.
#[test]
fn joined_parts_take_no_more_memory() {
    let x = ramp(64, 64) * 0.01;
    let f = |x: &Tensor| {
        let small = x.matmul(x);
        let huge = small.reshape([4096, 1]).matmul(&x.slice_axis(0, ..1));
        let sums = huge.reshape([512, 512]).matmul(&huge.slice_axis(0, ..512));
        concat(&[&small, &sums.matmul(x)], 0).matmul(x)
    };
    let compiled = accelerate(f);
    assert_eq!(compiled.call(&x).unwrap().to_vec::<f32>().unwrap(), f(&x).to_vec::<f32>().unwrap());
    let plan = compiled.text(&compiled.signature(&x), Form::Plan).unwrap();
    assert!(plan.contains("    join{"), "{plan}");
    let small_and_huge = 4 * (64 * 64 + 4096 * 64 + 512 * 64);
    assert!(memory(&plan).0 <= small_and_huge, "{plan}");
}

/// How many steps slice and how many join values of `x: f32[8, 8, 48]` and `w: f32[4, 1, 48]`, and the plan.
fn slices_and_joins(f: fn(&Tensor, &Tensor) -> Vec<Tensor>) -> ([usize; 2], String) {
    let (x, w) = (ramp(64, 48).reshape([8, 8, 48]), ramp(4, 48).reshape([4, 1, 48]));
    let compiled = accelerate(f);
    let bits = |found: Vec<Tensor>| found.iter().map(|x| x.to_vec::<f32>().unwrap()).collect::<Vec<_>>();
    assert!(bits(compiled.call(&x, &w).unwrap()) == bits(f(&x, &w)), "the same bits");
    let plan = compiled.text(&compiled.signature(&x, &w), Form::Plan).unwrap();
    let n = |name: &str| plan.lines().filter(|line| line.contains(name)).count();
    ([n(" slice: "), n("    join{")], plan)
}

/// A part of a larger value is copied from there by the join alone, wherever it lies in equal runs.
#[test]
fn parts_of_larger_values_are_copied_once() {
    for (f, steps) in [
        // A window that moves on, whose end is an argument.
        (
            (|x: &Tensor, w: &Tensor| vec![concat(&[&x.reshape([64, 48]).slice_axis(0, 4..), &w.reshape([4, 48])], 0)])
                as fn(&Tensor, &Tensor) -> Vec<Tensor>,
            [0, 1],
        ),
        // Rotations of an argument, and of a value that is read besides.
        (|x: &Tensor, _: &Tensor| vec![concat(&[&x.slice_axis(1, 3..), &x.slice_axis(1, ..3)], 1)], [0, 1]),
        (
            |x, _| {
                let y = x.exp() * x;
                let turned = |axis| concat(&[&y.slice_axis(axis, 5..), &y.slice_axis(axis, ..5)], axis);
                vec![&y + turned(1) + turned(2)]
            },
            [0, 2],
        ),
        // One row for all, a part of a reshaped value, and an empty one.
        (
            |x, w| {
                let rows = w.slice_axis(0, 1..2).broadcast_to([8, 1, 48]);
                let half = x.reshape([8, 2, 4, 48]).slice_axis(1, 1..).reshape([8, 4, 48]);
                vec![concat(&[&rows, &half, x, &x.slice_axis(1, 2..2)], 1)]
            },
            [0, 1],
        ),
        // Parts whose elements lie in no equal runs are stored first.
        (
            |x, _| {
                vec![concat(&[&x.slice_axis(0, 1..).slice_axis(1, ..7), &x.slice_axis(0, ..7).slice_axis(1, 1..)], 1)]
            },
            [0, 1],
        ),
        (|x, w| vec![concat(&[&x.slice_axis(0, ..4).slice_axis(2, ..9), &w.slice_axis(2, 39..)], 1)], [2, 1]),
        // One kernel stores these where they belong.
        (|x, _| vec![concat(&[&x.flip(1), &x.permute([1, 0, 2]), &x.flip(2)], 1)], [0, 0]),
    ] {
        let (found, plan) = slices_and_joins(f);
        assert_eq!(found, steps, "{plan}");
    }
}

/// Small parts of a value keep no memory of it, and are not what it is stored for.
#[test]
fn small_parts_keep_no_memory() {
    for f in [
        |x: &Tensor, _: &Tensor| {
            let y = x * 2.0;
            vec![concat(&[&y.slice_axis(1, ..1), &y.slice_axis(1, 3..4), &y.slice_axis(1, 7..)], 1)]
        },
        |x: &Tensor, w: &Tensor| {
            let mut y = x.reshape([64, 48]);
            let parts: Vec<Tensor> = (0..9)
                .map(|_| {
                    y = y.matmul(&w.reshape([4, 48]).t()).matmul(&(w.reshape([4, 48]) * 1e-3));
                    y.slice_axis(1, ..1)
                })
                .collect();
            vec![concat(&parts.iter().collect::<Vec<_>>(), 1)]
        },
    ] {
        let (_, plan) = slices_and_joins(f);
        assert!(memory(&plan).0 <= 3 * 4 * 64 * 48, "{plan}");
    }
}

/// Values without elements are joined along each axis.
#[test]
fn joins_may_be_empty() {
    for shape in [&[3, 0][..], &[2, 0, 3], &[2, 3, 0, 4], &[2, 0, 3, 5], &[0]] {
        let empty = Tensor::zeros(shape);
        for axis in 0..shape.len() {
            let twice = accelerate(move |x: &Tensor| concat(&[x, &x.slice_axis(axis, ..0), &(x * 2.0)], axis));
            let mut expected = shape.to_vec();
            expected[axis] *= 2;
            assert_eq!(twice.call(&empty).unwrap().shape(), expected);
        }
    }
}

/// Rotations are differentiated twice as products with a permutation are.
#[test]
fn rotations_are_differentiated_twice() {
    let x = ramp(64, 48).reshape([8, 8, 48]);
    let slope = |x: &Tensor, turned: &dyn Fn(&Tensor) -> Tensor| {
        let y = x.sin();
        (turned(&y) * &y).sum(..).grad(x).square().sum(..).grad(x)
    };
    let turns = ((Tensor::arange(48) + 7) % 48).one_hot(48).t();
    let joined = accelerate(|x: &Tensor| slope(x, &|y| concat(&[&y.slice_axis(2, 7..), &y.slice_axis(2, ..7)], 2)));
    let product = accelerate(|x: &Tensor, turns: &Tensor| slope(x, &|y| y.matmul(turns)));
    let [found, expected] =
        [joined.call(&x).unwrap(), product.call(&x, &turns).unwrap()].map(|x| x.to_vec::<f32>().unwrap());
    assert!(found.iter().zip(&expected).all(|(x, y)| (x - y).abs() <= 1e-5 * y.abs().max(1.0)));
}

/// Slices of a formula that do not overlap compute what they read, and slices that do read what was computed once.
#[test]
fn halves_of_a_formula_are_computed_where_they_are_used() {
    let x = ramp(64, 48);
    for (f, n_steps) in [
        (
            (|x: &Tensor| {
                let [a, b] = (x.sin() * x).chunk_array(1);
                a.exp() * b
            }) as fn(&Tensor) -> Tensor,
            1,
        ),
        (
            |x| {
                let y = x.sin() * x;
                concat(&[&y.slice_axis(1, 1..), &y.slice_axis(1, ..40)], 1).sum(0)
                    * y.slice_axis(0, 3..4).sum(0).sum(..)
            },
            4,
        ),
    ] {
        let compiled = accelerate(f);
        let [found, expected] = [compiled.call(&x).unwrap(), f(&x)].map(|x| x.to_vec::<f32>().unwrap());
        assert!(found == expected, "the same bits");
        let plan = compiled.text(&compiled.signature(&x), Form::Plan).unwrap();
        let steps = plan.lines().filter(|line| line.contains("    kernel (") || line.contains("    join{")).count();
        assert_eq!(steps, n_steps, "{plan}");
        assert_eq!(plan.matches("sin").count(), if n_steps == 1 { 2 } else { 1 }, "{plan}");
    }
}
