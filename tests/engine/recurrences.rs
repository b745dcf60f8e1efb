//! Linear recurrences beside loops, with their gradients, op by op and compiled.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use retape::{DType, Tensor, accelerate, vjp};

/// States of each line, and the gradients of their weighted sum, by loops.
fn by_loops([outer, len, inner]: [usize; 3], terms: &[f64], coefficients: &[f64], weights: &[f64]) -> [Vec<f64>; 3] {
    let mut states = terms.to_vec();
    let (mut of_terms, mut of_coefficients) = (weights.to_vec(), vec![0.0; terms.len()]);
    for line in 0..outer * inner {
        let at = |i: usize| (line / inner * len + i) * inner + line % inner;
        for i in 1..len {
            states[at(i)] += coefficients[at(i)] * states[at(i - 1)];
        }
        for i in (1..len).rev() {
            of_terms[at(i - 1)] += coefficients[at(i)] * of_terms[at(i)];
            of_coefficients[at(i)] = of_terms[at(i)] * states[at(i - 1)];
        }
    }
    [states, of_terms, of_coefficients]
}

fn ramp(shape: &[usize], seed: usize) -> Tensor {
    let value = |i: usize| ((i * 7919 + seed * 104_729) % 1009) as f64 / 504.5 - 1.0;
    Tensor::from((0..shape.iter().product()).map(value).collect::<Vec<f64>>().as_slice()).reshape(shape)
}

fn values(x: &Tensor) -> Vec<f64> {
    x.to_vec().unwrap()
}

#[test]
fn states_and_gradients_are_those_of_loops() {
    for shape in [[1, 1, 1], [1, 5000, 1], [30, 4, 1], [7, 3, 1], [3, 40, 5], [2, 17, 300], [1, 2, 33]] {
        let [terms, coefficients, weights] = [1, 2, 3].map(|seed| ramp(&shape, seed));
        let expected = by_loops(shape, &values(&terms), &values(&coefficients), &values(&weights));
        let states = |(b, a): &(Tensor, Tensor)| b.linear_recurrence(a, 1);
        let compiled = accelerate(|b: &Tensor, a: &Tensor, w: &Tensor| {
            let y = b.linear_recurrence(a, -2);
            let [of_b, of_a] = (&y * w).sum(..).grad(&[b.clone(), a.clone()]);
            (y, of_b, of_a)
        });
        let (y, (of_b, of_a)) = vjp(states, &(terms.clone(), coefficients.clone()), &weights).unwrap();
        let whole = compiled.call(&terms, &coefficients, &weights).unwrap();
        for found in [[&y, &of_b, &of_a], [&whole.0, &whole.1, &whole.2]] {
            for (found, expected) in found.into_iter().zip(&expected) {
                let close = |(x, y): (&f64, &f64)| (x - y).abs() <= 1e-12 * y.abs().max(1.0);
                assert!(values(found).iter().zip(expected).all(close), "{shape:?}");
            }
        }
    }
}

#[test]
fn numbers_and_rows_are_coefficients_for_all() {
    let ones = Tensor::ones([2, 3]);
    assert_eq!(ones.linear_recurrence(0.5, 1).to_vec::<f32>().unwrap(), [1.0, 1.5, 1.75, 1.0, 1.5, 1.75]);
    let row = Tensor::from([0.0_f32, 1.0, 2.0]);
    assert_eq!(ones.linear_recurrence(row, 0).to_vec::<f32>().unwrap(), [1.0, 1.0, 1.0, 1.0, 2.0, 3.0]);
    let whole = Tensor::from([1_i32, 2, i32::MAX]).linear_recurrence(3, -1);
    assert_eq!((whole.dtype(), whole.to_vec::<i32>().unwrap()), (DType::I32, vec![1, 5, i32::MAX.wrapping_add(15)]));
}

/// Products of coefficients overflow where no state does.
#[test]
fn states_beside_products_that_overflow_are_right() {
    let terms = Tensor::zeros([4000]);
    assert_eq!(terms.linear_recurrence(1e30_f32, 0).to_vec::<f32>().unwrap(), vec![0.0; 4000]);
}

/// The coefficient of the first state is not read, so nothing of an infinite cotangent reaches it.
#[test]
fn unread_coefficients_have_no_gradient() {
    let [ones, twos] = [1.0, 2.0].map(|x| Tensor::from([x, x, x]));
    let states = |(b, a): &(Tensor, Tensor)| b.linear_recurrence(a, 0);
    let weights = Tensor::from([f64::INFINITY, 1.0, 1.0]);
    let (_, (of_terms, of_coefficients)) = vjp(states, &(ones, twos), &weights).unwrap();
    assert_eq!(values(&of_terms), [f64::INFINITY, 3.0, 1.0]);
    assert_eq!(values(&of_coefficients), [0.0, 3.0, 3.0]);
}
