//! Permutations of axes that exchange the rows and columns of matrices: a library kernel copies them by tiles, also for
//! formulas that would take a column of more cache lines than caches hold.

use retape::{DType, Form, Result, Tensor, accelerate, einsum};

/// The result of a permutation, element by element.
fn permuted(x: &[f64], shape: &[usize], axes: &[usize]) -> Vec<f64> {
    let strides: Vec<usize> = (0..shape.len()).map(|axis| shape[axis + 1..].iter().product()).collect();
    let place = |mut at: usize| {
        let digits = axes.iter().rev().map(|&axis| {
            let digit = at % shape[axis];
            at /= shape[axis];
            digit * strides[axis]
        });
        digits.sum::<usize>()
    };
    (0..x.len()).map(|at| x[place(at)]).collect()
}

/// Each case with whether it is matrices, after axes that stay together are one.
#[test]
fn exchanged_axes_are_matrices_where_they_can_be() -> Result<()> {
    let cases: [(&[usize], &[usize], bool); 15] = [
        (&[100, 90], &[1, 0], true),
        (&[3, 40, 50], &[0, 2, 1], true),
        // Channels last to channels first, and back.
        (&[4, 9, 11, 16], &[0, 3, 1, 2], true),
        (&[4, 16, 9, 11], &[0, 2, 3, 1], true),
        (&[8, 9, 80], &[2, 0, 1], true),
        // Rows of several matrices that take turns, and of such for a batch.
        (&[16, 17, 18], &[2, 1, 0], true),
        (&[3, 16, 5, 18], &[0, 3, 2, 1], true),
        // Rows of matrices along two axes that take turns, and matrices along two axes that follow each other.
        (&[10, 5, 6, 18], &[3, 2, 1, 0], true),
        (&[10, 3, 8, 20], &[3, 1, 0, 2], true),
        (&[5, 7, 12, 10], &[1, 0, 3, 2], true),
        (&[9, 8, 6, 10], &[2, 0, 3, 1], true),
        // The last axis stays, more axes move, a matrix is narrow, and few elements.
        (&[20, 30, 16], &[1, 0, 2], false),
        (&[10, 5, 6, 7], &[3, 2, 1, 0], false),
        (&[3000, 3], &[1, 0], false),
        (&[20, 20], &[1, 0], false),
    ];
    for dtype in [DType::F64, DType::F32, DType::I64] {
        for (shape, axes, is_matrices) in cases {
            let n = shape.iter().product::<usize>();
            let numbers: Vec<f64> = (0..n).map(|n| n as f64).collect();
            let x = numbers.iter().copied().collect::<Tensor>().reshape(shape).cast(dtype);
            let permute = accelerate(move |x: &Tensor| x.permute(axes));
            let y = permute.call(&x)?;
            assert_eq!(y.cast(DType::F64).to_vec::<f64>()?, permuted(&numbers, shape, axes), "{shape:?} by {axes:?}");
            let plan = permute.text(&permute.signature(&x), Form::Plan)?;
            assert_eq!(plan.contains("transpose{"), is_matrices, "{shape:?} by {axes:?}: {plan}");
        }
    }
    Ok(())
}

/// The numbers of a dtype for a test, in `shape`.
fn numbers(dtype: DType, shape: &[usize]) -> Tensor {
    let n = shape.iter().product::<usize>();
    let numbers: Tensor = (0..n).map(|n| ((n * 7919) % 1009) as f32 / 128.0 - 4.0).collect();
    numbers.reshape(shape).cast(dtype)
}

/// How many steps of the library exchange axes, after the results were found to have the bits that op by op computes.
fn n_transposes(f: fn(&Tensor) -> Vec<Tensor>, x: &Tensor, case: &str) -> Result<usize> {
    let accelerated = accelerate(f);
    for (fused, op_by_op) in accelerated.call(x)?.iter().zip(f(x)) {
        assert_eq!((fused.shape(), fused.dtype()), (op_by_op.shape(), op_by_op.dtype()), "{case}");
        assert_eq!(fused.to_le_bytes()?, op_by_op.to_le_bytes()?, "{case}");
    }
    let plan = accelerated.text(&accelerated.signature(x), Form::Plan)?;
    Ok(plan.matches("transpose{").count())
}

/// Of 256 columns, which lie in few sets of a cache, a copy is read; of 200 the lines stay there.
#[test]
fn formulas_read_copies_of_far_columns() -> Result<()> {
    type Case = (&'static str, fn(&Tensor) -> Vec<Tensor>, usize);
    let cases: [Case; 22] = [
        ("read by a formula", |x| vec![-x.t()], 1),
        ("read with its own", |x| vec![x + x.t()], 1),
        ("read by two formulas", |x| vec![-x.t(), (x.t() + x).sum(..)], 0),
        ("read by two groups", |x| vec![x.t() + x, (x.t() * x).cumsum(0)], 1),
        ("of a formula", |x| vec![(x * x - x).t()], 1),
        ("of a formula, read by one", |x| vec![(x * x - x).t() + x], 1),
        ("beside another result", |x| vec![x.t(), -x], 1),
        ("of a formula, beside another result", |x| vec![(x * x).t(), x.t() - x], 2),
        ("of a formula with a row", |x| vec![(x + x.slice_axis(0, 0..1)).t()], 1),
        ("of a formula with a column", |x| vec![(x + x.slice_axis(1, 0..1)).t()], 1),
        ("twice", |x| vec![(-x.t()).t()], 0),
        ("of a transposed formula", |x| vec![(x.t() + x).t()], 0),
        ("summed", |x| vec![(x.t() * x).sum(0)], 0),
        ("a part of it", |x| vec![-x.t().slice_axis(0, 1..200)], 1),
        ("a part of it, and all", |x| vec![-x.t().slice_axis(0, 1..200), x.t() + x], 1),
        ("of a part", |x| vec![-x.slice_axis(1, 3..200).t()], 1),
        ("of a part by steps", |x| vec![-x.reshape([128, 2, 256]).index_axis(1, 1).t()], 1),
        ("repeated", |x| vec![x.t().reshape([1, 256, 256]) + x.reshape([256, 1, 256])], 1),
        ("in one axis", |x| vec![-x.t().reshape([256 * 256])], 1),
        ("of a sum", |x| vec![-(x.reshape([2, 128, 256]).sum(0) + x.slice_axis(0, 0..128)).t()], 1),
        (
            "behind a reshape",
            |x| {
                let turned = x.reshape([16, 16, 256]).permute([1, 0, 2]).reshape([256, 256]);
                vec![(turned + x).t().reshape([256, 16, 16]) + x.reshape([256, 16, 16])]
            },
            0,
        ),
        ("of one matrix for a batch", |x| vec![x.t() + x.reshape([1, 256, 256])], 1),
    ];
    for dtype in [DType::F32, DType::F64, DType::I64] {
        for (case, f, expected) in cases {
            let found = n_transposes(f, &numbers(dtype, &[256, 256]), case)?;
            assert_eq!(found, expected, "{case} of {dtype}");
        }
    }
    Ok(())
}

/// Each case with a shape whose columns are few or near, and one whose columns are far.
#[test]
fn copies_are_of_far_columns_alone() -> Result<()> {
    type Case = (DType, [&'static [usize]; 2], fn(&Tensor) -> Vec<Tensor>);
    let cases: [Case; 9] = [
        (DType::F32, [&[200, 200], &[512, 512]], |x| vec![-x.t()]),
        (DType::F64, [&[200, 200], &[256, 128]], |x| vec![-x.t()]),
        (DType::Bool, [&[200, 200], &[512, 512]], |x| vec![!x.t()]),
        (DType::Bf16, [&[200, 200], &[256, 512]], |x| vec![x.t().cast(DType::F32)]),
        (DType::F32, [&[200, 200], &[512, 512]], |x| vec![x.t().cast(DType::F16)]),
        // Few elements; an odd length of rows; a column of more pages than a processor knows.
        (DType::F32, [&[100, 128], &[300, 256]], |x| vec![-x.t()]),
        (DType::I32, [&[3, 40, 200], &[3, 256, 256]], |x| vec![-x.permute([0, 2, 1])]),
        (DType::F32, [&[2, 12, 12, 64], &[2, 32, 32, 64]], |x| vec![x.permute([0, 3, 1, 2]).relu()]),
        (DType::U8, [&[1000, 1000], &[1600, 4096]], |x| vec![x.t().cast(DType::F32)]),
    ];
    for (dtype, shapes, f) in cases {
        for (shape, expected) in shapes.into_iter().zip([0, 1]) {
            let found = n_transposes(f, &numbers(dtype, shape), &format!("{dtype}{shape:?}"))?;
            assert_eq!(found, expected, "{dtype}{shape:?}");
        }
    }
    // Of no elements, in front of a step that needs memory.
    let empty: fn(&Tensor) -> Vec<Tensor> = |x| {
        let empty = x.slice_axis(0, 0..0).permute([0, 2, 1]);
        vec![empty.cumsum(0), empty, x.cumsum(0)]
    };
    assert_eq!(n_transposes(empty, &numbers(DType::F32, &[10, 64, 64]), "empty")?, 0);
    // Axes of extent 1 are in no order.
    let flipped: fn(&Tensor) -> Vec<Tensor> = |x| vec![-x.permute([3, 0, 2, 1])];
    assert_eq!(n_transposes(flipped, &numbers(DType::F32, &[1, 256, 1, 256]), "extents of 1")?, 1);
    Ok(())
}

/// A sum adds in the same order, whether what it adds is read through a transposition beside it or not.
#[test]
fn copies_do_not_reach_sums() -> Result<()> {
    let x = numbers(DType::F32, &[256, 256]);
    let loss = |x: &Tensor| (x.t() * x.exp()).square().sum(..);
    let forward = accelerate(loss);
    let both = accelerate(move |x: &Tensor| {
        let loss = loss(x);
        let gradient = loss.grad(x);
        (loss, gradient)
    });
    let (value, gradient) = both.call(&x)?;
    assert_eq!(forward.call(&x)?.to_le_bytes()?, value.to_le_bytes()?);
    assert!(!forward.text(&forward.signature(&x), Form::Plan)?.contains("transpose{"));
    let numbers = x.to_vec::<f32>()?;
    let at = |row: usize, column: usize| f64::from(numbers[256 * row + column]);
    let gradient = gradient.to_vec::<f32>()?;
    for (row, column) in [(0, 0), (1, 200), (255, 3), (100, 101)] {
        // Of x(i, j): once beside its own exponential, and once transposed.
        let (own, other) = (at(row, column), at(column, row));
        let expected = 2.0 * other * other * (2.0 * own).exp() + 2.0 * own * (2.0 * other).exp();
        let found = f64::from(gradient[256 * row + column]);
        assert!((found - expected).abs() <= 1e-5 * expected.abs().max(1.0), "{found} and not {expected}");
    }
    Ok(())
}

/// The gradient of a weight that is used transposed is one product, in the order of the weight's own elements.
#[test]
fn gradients_of_transposed_weights_are_not_copied() -> Result<()> {
    let shapes: [[&[usize]; 2]; 2] = [[&[32, 70], &[50, 70]], [&[3, 32, 70], &[3, 50, 70]]];
    for [x, w] in shapes.map(|shapes| shapes.map(|shape| numbers(DType::F32, shape))) {
        let loss = |x: &Tensor, w: &Tensor| x.matmul(&w.swap_axes(-1, -2)).square().sum(..);
        let gradient = accelerate(move |x: &Tensor, w: &Tensor| loss(x, w).grad(w));
        let made = gradient.call(&x, &w)?;
        let plan = gradient.text(&gradient.signature(&x, &w), Form::Plan)?;
        assert_eq!((plan.matches("matmul{").count(), plan.contains("transpose{")), (2, false), "{plan}");
        let products =
            accelerate(|x: &Tensor, w: &Tensor| (x.matmul(&w.swap_axes(-1, -2)) * 2.0).swap_axes(-1, -2).matmul(x));
        assert_eq!(made.to_vec::<f32>()?, products.call(&x, &w)?.to_vec::<f32>()?);
    }
    Ok(())
}

/// Products whose rows would lie together in a result of permuted axes are computed the other way round, so that no
/// permutation exchanges rows and columns: in gradients of what is used permuted, and in `einsum`. The bits are the same.
#[test]
fn products_have_the_columns_that_lie_together() -> Result<()> {
    let [q, k] = [[2, 24, 3, 33], [2, 41, 3, 33]].map(|shape| numbers(DType::F32, &shape));
    let permuted = |x: &Tensor, perm: [usize; 4]| x.permute(perm);
    let scores = move |q: &Tensor, k: &Tensor| permuted(q, [0, 2, 1, 3]).matmul(&permuted(k, [0, 2, 3, 1]));
    let gradient = accelerate(move |q: &Tensor, k: &Tensor| scores(q, k).square().sum(..).grad(k));
    let made = gradient.call(&q, &k)?;
    let plan = gradient.text(&gradient.signature(&q, &k), Form::Plan)?;
    assert!(plan.contains("m=41,n=33,k=24") && !plan.contains("m=33,n=41"), "{plan}");
    let directly = accelerate(move |q: &Tensor, k: &Tensor| {
        let ct = scores(q, k) * 2.0;
        permuted(&permuted(q, [0, 2, 3, 1]).matmul(&ct), [0, 3, 1, 2])
    });
    assert_eq!(made.to_vec::<f32>()?, directly.call(&q, &k)?.to_vec::<f32>()?);

    let (a, b) = (numbers(DType::F32, &[20, 30]), numbers(DType::F32, &[30, 50]));
    let turned = accelerate(|a: &Tensor, b: &Tensor| einsum("ij,jk->ki", &[a, b]));
    let made = turned.call(&a, &b)?;
    let plan = turned.text(&turned.signature(&a, &b), Form::Plan)?;
    assert!(plan.contains("m=50,n=20,k=30") && plan.matches("kernel").count() == 0, "{plan}");
    assert_eq!(made.to_vec::<f32>()?, a.matmul(&b).t().to_vec::<f32>()?);
    Ok(())
}
