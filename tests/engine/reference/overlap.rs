//! Gradients of maxima over windows that overlap, in `f32`, against plain loops in `f64`.

use retape::ops::Padding;
use retape::{DType, Tensor, accelerate, vjp};

use super::pooling::{U, n_overlapping, sum_bound};

/// The gradient of a maximum over windows of one image of one channel, in plain loops.
fn gradient(x: &[f64], ct: &[f64], [height, width]: [usize; 2], window: usize, stride: usize) -> Vec<f64> {
    let [rows, columns] = [height, width].map(|extent| (extent - window) / stride + 1);
    let mut sums = vec![0.0; x.len()];
    for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
        let at = |n: usize| (row * stride + n / window) * width + column * stride + n % window;
        let chosen = (1..window * window).fold(0, |best, n| if x[at(n)] > x[at(best)] { n } else { best });
        sums[at(chosen)] += ct[row * columns + column];
    }
    sums
}

/// Numbers from a formula: those of an image, of which no two are equal, have few bits; cotangents have many.
fn numbers(n: usize, step: u64, modulus: u64, scale: f64) -> Vec<f64> {
    (0..n as u64).map(|i| ((i + 1) * step % modulus) as f64 * scale).collect()
}

#[test]
fn gradients_of_overlapping_windows_are_within_the_bound_of_their_sums() {
    let mut furthest = 0.0_f64;
    for (window, stride) in [(2, 1), (3, 1), (3, 2), (4, 1), (5, 1), (5, 2), (7, 1), (7, 3)] {
        for [height, width] in [[7, 9], [12, 8], [21, 20]] {
            let x = numbers(height * width, 7919, 1013, 0.25);
            let [rows, columns] = [height, width].map(|extent| (extent - window) / stride + 1);
            let ct = numbers(rows * columns, 104_729, 99_991, 1.0 / 99_991.0);
            let expected = gradient(&x, &ct, [height, width], window, stride);
            let single = |x: &[f64], shape: [usize; 4]| Tensor::from_vec(x, shape).unwrap().cast(DType::F32);
            let (x, ct) = (single(&x, [1, height, width, 1]), single(&ct, [1, rows, columns, 1]));
            let pool = |x: &Tensor| x.max_pool2d([window; 2], [stride; 2], Padding::Valid);
            let at_once = vjp(pool, &x, &ct).unwrap().1;
            let compiled = accelerate(|x: &Tensor, ct: &Tensor| vjp(pool, x, ct).unwrap().1);
            // The k largest windows that overlap have cotangents below 1.
            let bound = sum_bound(n_overlapping([window; 2], [stride; 2]), 1, 1.0);
            for found in [at_once, compiled.call(&x, &ct).unwrap()] {
                for (found, expected) in found.to_vec::<f32>().unwrap().into_iter().zip(&expected) {
                    let error = (f64::from(found) - expected).abs();
                    assert!(error <= bound, "{window} by {stride}: {found} is off {expected} by {error:e}");
                    furthest = furthest.max(error / expected.abs().max(1.0));
                }
            }
        }
    }
    // One constant bound for all windows would have to be larger than this.
    assert!(furthest > 2e-7, "{furthest:e}");
}

#[test]
fn one_number_is_rounded_once() {
    assert_eq!(n_overlapping([2, 2], [2, 2]), 1);
    assert_eq!(n_overlapping([3, 3], [2, 1]), 6);
    assert!((sum_bound(1, 1, 1.0) / U - 1.0).abs() < 1e-3);
    // Two numbers, and one sum of both.
    assert!((sum_bound(2, 1, 1.0) / U - 4.0).abs() < 1e-3);
}
