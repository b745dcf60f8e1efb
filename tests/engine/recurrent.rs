//! Recurrent layers against plain loops in `f64`, and their gradients against difference quotients.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use retape::nn::{Gru, Init, Lstm};
use retape::{DType, Error, Result, Tensor, Tree, accelerate, map, tree, value_and_grad};

const BATCH: usize = 2;
const STEPS: usize = 4;
const IN: usize = 3;
const N: usize = 5;

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// A tensor of `f64` without a pattern.
fn tensor(shape: &[usize], seed: u64) -> Tensor {
    Init::glorot_normal().gain(4.0).dtype(DType::F64).tensor_with([4.0, 4.0], seed, shape)
}

fn values(x: &Tensor) -> Vec<f64> {
    x.to_vec().unwrap()
}

/// Row `row` of a matrix with `columns` columns.
fn row(matrix: &[f64], row: usize, columns: usize) -> &[f64] {
    &matrix[row * columns..(row + 1) * columns]
}

/// `x w` for a vector and a matrix of `columns` columns.
fn product(x: &[f64], w: &[f64], columns: usize) -> Vec<f64> {
    (0..columns).map(|j| x.iter().enumerate().map(|(i, x)| x * w[i * columns + j]).sum()).collect()
}

fn lstm() -> Lstm {
    Lstm { input_weight: tensor(&[IN, 4 * N], 1), hidden_weight: tensor(&[N, 4 * N], 2), bias: tensor(&[4 * N], 3) }
}

fn gru() -> Gru {
    Gru {
        input_weight: tensor(&[IN, 3 * N], 4),
        hidden_weight: tensor(&[N, 3 * N], 5),
        bias: tensor(&[3 * N], 6),
        candidate_bias: tensor(&[N], 7),
    }
}

/// Outputs of all steps, and the last output and cell, of one sequence.
fn lstm_loop(model: &Lstm, x: &[f64], mut h: Vec<f64>, mut c: Vec<f64>) -> [Vec<f64>; 3] {
    let [w, u, b] = [&model.input_weight, &model.hidden_weight, &model.bias].map(values);
    let mut outputs = vec![];
    for time in 0..x.len() / IN {
        let (from_x, from_h) = (product(row(x, time, IN), &w, 4 * N), product(&h, &u, 4 * N));
        let gate = |kind: usize, n: usize| from_x[kind * N + n] + from_h[kind * N + n] + b[kind * N + n];
        for (n, c) in c.iter_mut().enumerate() {
            *c = sigmoid(gate(1, n)) * *c + sigmoid(gate(0, n)) * gate(2, n).tanh();
        }
        h = (0..N).map(|n| sigmoid(gate(3, n)) * c[n].tanh()).collect();
        outputs.extend(&h);
    }
    [outputs, h, c]
}

/// As PyTorch's documentation of `torch.nn.GRU` has it: outputs of all steps and the last one, of one sequence.
fn gru_loop(model: &Gru, x: &[f64], mut h: Vec<f64>) -> [Vec<f64>; 2] {
    let [w, u, b, bh] = [&model.input_weight, &model.hidden_weight, &model.bias, &model.candidate_bias].map(values);
    let mut outputs = vec![];
    for time in 0..x.len() / IN {
        let (from_x, from_h) = (product(row(x, time, IN), &w, 3 * N), product(&h, &u, 3 * N));
        h = (0..N)
            .map(|n| {
                let r = sigmoid(from_x[n] + b[n] + from_h[n]);
                let z = sigmoid(from_x[N + n] + b[N + n] + from_h[N + n]);
                let candidate = (from_x[2 * N + n] + b[2 * N + n] + r * (from_h[2 * N + n] + bh[n])).tanh();
                (1.0 - z) * candidate + z * h[n]
            })
            .collect();
        outputs.extend(&h);
    }
    [outputs, h]
}

fn close(found: &Tensor, expected: &[f64]) {
    let found = values(found);
    assert_eq!(found.len(), expected.len());
    assert!(found.iter().zip(expected).all(|(x, y)| (x - y).abs() < 1e-13), "{found:?}, expected {expected:?}");
}

#[test]
fn a_long_short_term_memory_is_its_loop() -> Result<()> {
    let (model, x) = (lstm(), tensor(&[BATCH, STEPS, IN], 8));
    let initial = (tensor(&[BATCH, N], 9), tensor(&[BATCH, N], 10));
    let traced =
        accelerate(|model: &Lstm, x: &Tensor, initial: &Option<(Tensor, Tensor)>| model.apply(x, initial.as_ref()));
    for initial in [Some(initial), None] {
        let eager = match &initial {
            Some(initial) => model.apply(&x, initial),
            None => model.apply(&x, None),
        };
        for (outputs, (h, c)) in [eager, traced.call(&model, &x, &initial)?] {
            assert_eq!(
                (outputs.shape(), h.shape(), c.shape()),
                (&[BATCH, STEPS, N][..], &[BATCH, N][..], &[BATCH, N][..])
            );
            for b in 0..BATCH {
                let start = initial.as_ref().map(|(h, c)| (values(&h.at(b)), values(&c.at(b))));
                let (h0, c0) = start.unwrap_or_else(|| (vec![0.0; N], vec![0.0; N]));
                let [all, last, cell] = lstm_loop(&model, &values(&x.at(b)), h0, c0);
                close(&outputs.at(b), &all);
                close(&h.at(b), &last);
                close(&c.at(b), &cell);
            }
        }
    }
    assert!(traced.stats().entries.iter().all(|entry| entry.captures.is_empty()), "zeros are constants");
    Ok(())
}

#[test]
fn a_gated_recurrent_unit_is_its_loop() -> Result<()> {
    let (model, x, initial) = (gru(), tensor(&[BATCH, STEPS, IN], 8), tensor(&[BATCH, N], 9));
    let traced = accelerate(|model: &Gru, x: &Tensor, initial: &Option<Tensor>| model.apply(x, initial.as_ref()));
    for initial in [Some(initial), None] {
        for (outputs, h) in [model.apply(&x, initial.as_ref()), traced.call(&model, &x, &initial)?] {
            assert_eq!((outputs.shape(), h.shape()), (&[BATCH, STEPS, N][..], &[BATCH, N][..]));
            for b in 0..BATCH {
                let h0 = initial.as_ref().map_or_else(|| vec![0.0; N], |h| values(&h.at(b)));
                let [all, last] = gru_loop(&model, &values(&x.at(b)), h0);
                close(&outputs.at(b), &all);
                close(&h.at(b), &last);
            }
        }
    }
    Ok(())
}

/// The derivative along a direction through all parameters is a difference quotient.
fn differentiated<T: Tree + Clone>(model: &T, loss: impl Fn(&T) -> Tensor) -> Result<()> {
    let (vector, unravel) = tree::ravel(model);
    let direction = tensor(vector.shape(), 77);
    let (_, gradient) = value_and_grad(&loss, model)?;
    let slope = (tree::ravel(&gradient).0 * &direction).sum(..).item::<f64>()?;
    let at = |t: f64| loss(&unravel.apply(&(&vector + &direction * t))).item::<f64>();
    let h = 1e-5;
    let quotient = (at(h)? - at(-h)?) / (2.0 * h);
    assert!((slope - quotient).abs() < 1e-8 * (1.0 + slope.abs()), "{slope} and {quotient}");
    Ok(())
}

#[test]
fn gradients_go_through_all_steps() -> Result<()> {
    let (x, weights) = (tensor(&[BATCH, STEPS, IN], 8), tensor(&[BATCH, STEPS, N], 9));
    differentiated(&lstm(), |model: &Lstm| {
        let (outputs, (h, c)) = model.apply(&x, None);
        (outputs * &weights).sum(..) + (h * c).sum(..)
    })?;
    differentiated(&gru(), |model: &Gru| {
        let (outputs, h) = model.apply(&x, None);
        (outputs * &weights).sum(..) + h.square().sum(..)
    })?;
    // Also with respect to the input and the initial state.
    let model = gru();
    differentiated(&(x, tensor(&[BATCH, N], 3)), |(x, h): &(Tensor, Tensor)| model.apply(x, h).0.square().sum(..))
}

#[test]
fn sequences_of_no_step_and_other_shapes() -> Result<()> {
    let none = Tensor::zeros_of(DType::F64, [BATCH, 0, IN]);
    let (outputs, (h, c)) = lstm().apply(&none, None);
    assert_eq!((outputs.shape(), values(&h), values(&c)), (&[BATCH, 0, N][..], vec![0.0; 2 * N], vec![0.0; 2 * N]));
    let initial = tensor(&[BATCH, N], 1);
    let (outputs, h) = accelerate(|x: &Tensor, h: &Tensor| gru().apply(x, h)).call(&none, &initial)?;
    assert_eq!((outputs.shape(), values(&h)), (&[BATCH, 0, N][..], values(&initial)));

    let flat = Tensor::zeros_of(DType::F64, [BATCH, IN]);
    let (outputs, (h, c)) = lstm().apply(&flat, None);
    let (others, last) = gru().apply(&flat, None);
    for (poisoned, name) in
        [(outputs, "Lstm::apply"), (h, "Lstm::apply"), (c, "Lstm::apply"), (others, "Gru::apply"), (last, "Gru::apply")]
    {
        let Some(Error::Type { op, message, at, .. }) = poisoned.error() else { panic!("{poisoned}") };
        assert_eq!((*op, at.file()), (name, file!()));
        assert!(message.contains("f64[2, 3] must be [batch, time, features]"), "{message}");
    }
    let wide = Tensor::zeros_of(DType::F64, [BATCH, STEPS, IN + 1]);
    let message = gru().apply(&wide, None).0.error().unwrap().to_string();
    assert!(message.contains("Gru::apply") && message.contains(file!()), "{message}");
    assert!(message.contains("has 4 features, but the input weight f64[3, 15] is [in, out] and takes 3"), "{message}");
    let output = Tensor::zeros_of(DType::F64, [BATCH, N + 1]);
    let message = gru().apply(&tensor(&[BATCH, STEPS, IN], 1), &output).0.error().unwrap().to_string();
    assert!(message.contains("the output") && message.contains("the hidden weight"), "{message}");
    // Values of another dtype are refused, and the zeros take the dtype of the weights.
    let single = map(&lstm(), |x| x.cast(DType::F32));
    let (outputs, _) = single.apply(&Tensor::zeros([BATCH, STEPS, IN]), None);
    assert!(outputs.error().is_none() && outputs.dtype() == DType::F32, "{outputs}");
    Ok(())
}
