//! Products of views: an operand that is a part, a repetition or a turn of a tensor is read where it lies, and gives
//! what its copy gives.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use retape::{Tensor, accelerate};

/// The views of an operand of 4 by 6 that are 3 by 3 matrices or stacks of them.
fn views() -> [fn(&Tensor) -> Tensor; 8] {
    [
        |x| x.slice(&[0, 0], &[3, 3], &[1, 1]),
        |x| x.slice(&[1, 2], &[4, 5], &[1, 1]),
        |x| x.slice(&[0, 0], &[3, 6], &[1, 2]),
        |x| x.slice(&[0, 0], &[3, 3], &[1, 1]).transpose(),
        |x| x.slice(&[1, 0], &[4, 3], &[1, 1]).flip(0),
        |x| x.slice(&[2, 1], &[3, 4], &[1, 1]).broadcast_to([3, 3]),
        |x| x.slice(&[0, 0], &[3, 6], &[1, 1]).reshape([3, 2, 3]).permute([1, 0, 2]),
        |x| x.slice(&[0, 0], &[1, 6], &[1, 1]).reshape([2, 1, 3]).broadcast_to([2, 3, 3]),
    ]
}

#[test]
fn products_of_views() {
    let numbers =
        |from: i64| Tensor::from_vec((from..from + 24).map(|n| n as f64).collect::<Vec<_>>(), [4, 6]).unwrap();
    let (x, y) = (numbers(1), numbers(-7));
    for (i, a) in views().into_iter().enumerate() {
        for (j, b) in views().into_iter().enumerate() {
            // Concrete tensors are dense: these are copies.
            let expected = a(&x).matmul(&b(&y));
            let product = accelerate(|x: &Tensor, y: &Tensor| a(x).matmul(&b(y))).call(&x, &y).unwrap();
            assert_eq!(product.shape(), expected.shape(), "views {i} and {j}");
            assert_eq!(product.to_vec::<f64>().unwrap(), expected.to_vec::<f64>().unwrap(), "views {i} and {j}");
        }
    }
}
