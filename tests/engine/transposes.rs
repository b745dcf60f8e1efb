//! Permutations of axes that exchange the rows and columns of matrices: a library kernel copies them by tiles.

use retape::{DType, Form, Result, Tensor, accelerate};

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
    let cases: [(&[usize], &[usize], bool); 9] = [
        (&[100, 90], &[1, 0], true),
        (&[3, 40, 50], &[0, 2, 1], true),
        // Channels last to channels first, and back.
        (&[4, 9, 11, 16], &[0, 3, 1, 2], true),
        (&[4, 16, 9, 11], &[0, 2, 3, 1], true),
        (&[8, 9, 80], &[2, 0, 1], true),
        // The last axis stays, three axes move, a matrix is narrow, and few elements.
        (&[20, 30, 16], &[1, 0, 2], false),
        (&[16, 17, 18], &[2, 1, 0], false),
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
