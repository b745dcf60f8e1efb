//! Products of views: an operand that is a part, a repetition or a turn of a tensor is read where it lies, and gives
//! what its copy gives.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use retape::{Tensor, accelerate};

/// The views of an operand of `n + 1` by `2 n` that are `n` by `n` matrices or stacks of them.
fn views() -> [fn(&Tensor, usize) -> Tensor; 8] {
    [
        |x, n| x.slice(&[0, 0], &[n, n], &[1, 1]),
        |x, n| x.slice(&[1, 2], &[n + 1, n + 2], &[1, 1]),
        |x, n| x.slice(&[0, 0], &[n, 2 * n], &[1, 2]),
        |x, n| x.slice(&[0, 0], &[n, n], &[1, 1]).transpose(),
        |x, n| x.slice(&[1, 0], &[n + 1, n], &[1, 1]).flip(0),
        |x, n| x.slice(&[2, 1], &[3, n + 1], &[1, 1]).broadcast_to([n, n]),
        |x, n| x.slice(&[0, 0], &[n, 2 * n], &[1, 1]).reshape([n, 2, n]).permute([1, 0, 2]),
        |x, n| x.slice(&[0, 0], &[1, 2 * n], &[1, 1]).reshape([2, 1, n]).broadcast_to([2, n, n]),
    ]
}

/// Of 3 steps a kernel computes the product along with others, of 20 the library.
#[test]
fn products_of_views() {
    for n in [3, 20] {
        let numbers = |from: i64| {
            let values: Vec<f64> = (from..from + (2 * n * (n + 1)) as i64).map(|x| x as f64).collect();
            Tensor::from_vec(values, [n + 1, 2 * n]).unwrap()
        };
        let (x, y) = (numbers(1), numbers(-7));
        for (i, a) in views().into_iter().enumerate() {
            for (j, b) in views().into_iter().enumerate() {
                // Concrete tensors are dense: these are copies.
                let expected = a(&x, n).matmul(&b(&y, n));
                let product = accelerate(|x: &Tensor, y: &Tensor| a(x, n).matmul(&b(y, n))).call(&x, &y).unwrap();
                assert_eq!(product.shape(), expected.shape(), "views {i} and {j} of {n}");
                let [product, expected] = [product, expected].map(|x| x.to_vec::<f64>().unwrap());
                assert_eq!(product, expected, "views {i} and {j} of {n}");
            }
        }
    }
}
