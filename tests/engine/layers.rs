//! Layers, losses and optimisers against plain loops in `f64`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use retape::nn::{self, BatchNorm, BatchNormState, Dense, Embedding};
use retape::optim::{Adam, AdamState, Sgd, clip_by_global_norm};
use retape::random::Key;
use retape::{DType, Result, Tensor, Tree, accelerate, map, value_and_grad, zip_map};

fn close(actual: &Tensor, expected: &[f64], bound: f64) {
    let actual = actual.cast(DType::F64).to_vec::<f64>().unwrap();
    assert_eq!(actual.len(), expected.len());
    for (x, y) in actual.iter().zip(expected) {
        assert!((x - y).abs() <= bound, "{actual:?}, expected {expected:?}");
    }
}

#[test]
fn adam_follows_its_paper() -> Result<()> {
    let (rate, beta1, beta2, epsilon, decay) = (0.05, 0.9, 0.99, 1e-8, 0.1);
    let adam = Adam::new().betas(beta1, beta2).weight_decay(decay);
    let mut p = (Tensor::from([0.5_f64, -1.5]), Tensor::from([2.0_f64]));
    let mut state = adam.init(&p);
    // The gradient of sum(p^2) is 2 p.
    let (mut x, mut m, mut v) = ([0.5_f64, -1.5, 2.0], [0.0; 3], [0.0; 3]);
    let step = accelerate(|p: &(Tensor, Tensor), state: &AdamState<(Tensor, Tensor)>, rate: &Tensor| {
        let gradients = (p.0.square().sum(..) + p.1.square().sum(..)).grad(p);
        adam.update(p, &gradients, state, rate)
    });
    for t in 1..=6 {
        (p, state) = step.call(&p, &state, Tensor::from(rate))?;
        for i in 0..3 {
            let g = 2.0 * x[i];
            m[i] = beta1 * m[i] + (1.0 - beta1) * g;
            v[i] = beta2 * v[i] + (1.0 - beta2) * g * g;
            let towards = m[i] / (1.0 - beta1.powi(t)) / ((v[i] / (1.0 - beta2.powi(t))).sqrt() + epsilon);
            x[i] -= rate * (towards + decay * x[i]);
        }
        close(&p.0, &x[..2], 1e-12);
        close(&p.1, &x[2..], 1e-12);
        assert_eq!(state.step.item::<i64>()?, i64::from(t));
    }
    assert_eq!((step.stats().misses, step.stats().hits), (1, 5));
    Ok(())
}

#[test]
fn gradient_descent_has_momentum() -> Result<()> {
    for nesterov in [false, true] {
        let sgd = Sgd::new().momentum(0.9);
        let sgd = if nesterov { sgd.nesterov() } else { sgd };
        let (mut p, mut x, mut v) = (Tensor::from([1.0_f64]), 1.0_f64, 0.0_f64);
        let mut state = sgd.init(&p);
        for _ in 0..5 {
            (p, state) = sgd.update(&p, &(&p * 2.0), &state, 0.1);
            let g = 2.0 * x;
            v = 0.9 * v + g;
            x -= 0.1 * if nesterov { g + 0.9 * v } else { v };
            close(&p, &[x], 1e-14);
        }
    }
    Ok(())
}

#[test]
fn gradients_are_clipped_together() {
    let gradients = (Tensor::from([3.0_f64, 0.0]), Tensor::from([4.0_f32]));
    let clipped = clip_by_global_norm(&map(&gradients, |x| x.cast(DType::F64)), 10.0);
    close(&clipped.0, &[3.0, 0.0], 0.0);
    let clipped = clip_by_global_norm(&map(&gradients, |x| x.cast(DType::F64)), 1.0);
    close(&clipped.0, &[0.6, 0.0], 1e-15);
    close(&clipped.1, &[0.8], 1e-15);
}

#[test]
fn trees_that_do_not_match_are_an_error() {
    let (a, b) = (vec![Tensor::zeros([2])], vec![Tensor::zeros([2]); 2]);
    let sum = zip_map([&a, &b], |[x, y]| x + y);
    assert!(sum[0].error().is_some());
}

#[test]
fn running_statistics_move_towards_the_batch() -> Result<()> {
    let x = Tensor::from([[1.0_f32, 10.0], [3.0, 30.0]]);
    let (y, state) = BatchNorm::new(2).apply(&x, &BatchNormState::new(2), 0.9);
    close(&state.mean, &[0.2, 2.0], 1e-6);
    close(&state.variance, &[1.0, 10.9], 1e-5);
    close(&y, &[-1.0, -1.0, 1.0, 1.0], 1e-4);
    let inferred = BatchNorm::new(2).infer(&x, &state);
    let expected = |x: f64, mean: f64, variance: f64| (x - mean) / (variance + 1e-5).sqrt();
    let all = [expected(1.0, 0.2, 1.0), expected(10.0, 2.0, 10.9), expected(3.0, 0.2, 1.0), expected(30.0, 2.0, 10.9)];
    close(&inferred, &all, 1e-5);
    // The statistics are no way for a gradient.
    let (_, gradient) = value_and_grad(
        |x: &Tensor| {
            let (y, state) = BatchNorm::new(2).apply(x, &BatchNormState::new(2), 0.9);
            y.sum(..) * 0.0 + state.mean.sum(..)
        },
        &x,
    )?;
    close(&gradient, &[0.0; 4], 0.0);
    Ok(())
}

#[test]
fn dropout_keeps_the_mean_and_is_the_same_for_one_key() -> Result<()> {
    let x = Tensor::ones([10_000]);
    let kept = nn::dropout(&x, &Key::new(3), 0.25, true);
    assert!((kept.mean(..).item::<f32>()? - 1.0).abs() < 0.02);
    let (_, gradient) = value_and_grad(|x: &Tensor| nn::dropout(x, &Key::new(3), 0.25, true).sum(..), &x)?;
    assert_eq!(gradient.to_vec::<f32>()?, kept.to_vec::<f32>()?);
    assert_ne!(nn::dropout(&x, &Key::new(4), 0.25, true).to_vec::<f32>()?, kept.to_vec::<f32>()?);
    close(&nn::dropout(&x, &Key::new(3), 1.0, true).sum(..), &[0.0], 0.0);
    Ok(())
}

#[test]
fn embedding_gradients_add_up_over_repeated_ids() -> Result<()> {
    let layer = Embedding::new(1, 4, 2);
    let ids = Tensor::from([[2_i64, 0], [2, 2]]);
    let (_, gradient) = value_and_grad(|layer: &Embedding| layer.apply(&ids).sum(..), &layer)?;
    close(&gradient.table, &[1.0, 1.0, 0.0, 0.0, 3.0, 3.0, 0.0, 0.0], 0.0);
    Ok(())
}

#[test]
fn labels_and_one_hot_rows_have_the_same_loss() -> Result<()> {
    let logits = Tensor::from([[0.5_f64, -1.0, 2.0], [0.1, 0.2, 0.3]]);
    let by_labels = nn::softmax_cross_entropy_labels(&logits, &Tensor::from([2_i32, 0]));
    let rows = Tensor::from([[0.0_f64, 0.0, 1.0], [1.0, 0.0, 0.0]]);
    let expected = nn::softmax_cross_entropy(&logits, &rows).item::<f64>()?;
    let of_row = |row: [f64; 3], label: usize| row.iter().map(|x| x.exp()).sum::<f64>().ln() - row[label];
    let plain = (of_row([0.5, -1.0, 2.0], 2) + of_row([0.1, 0.2, 0.3], 0)) / 2.0;
    close(&by_labels, &[expected], 1e-15);
    close(&by_labels, &[plain], 1e-14);
    close(&nn::mse(&logits, &rows), &[(0.25 + 1.0 + 1.0 + 0.81 + 0.04 + 0.09) / 6.0], 1e-15);
    Ok(())
}

#[test]
fn attention_without_a_mask_of_equal_scores_is_the_mean() {
    let q = Tensor::zeros([1, 2, 1, 3]);
    let v = Tensor::from([[[[1.0_f32]], [[3.0]]]]);
    close(&nn::attention(&q, &q, &v, 1.0, nn::Mask::None), &[2.0, 2.0], 1e-6);
    close(&nn::attention(&q, &q, &v, 1.0, nn::Mask::Causal), &[1.0, 2.0], 1e-6);
}

/// Two dense layers, to be fitted.
#[derive(Clone, Tree)]
struct Network {
    hidden: Dense,
    out: Dense,
}

#[test]
fn a_network_learns_exclusive_or() -> Result<()> {
    let x = Tensor::from([[0.0_f32, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]);
    let y = Tensor::from([0_i64, 1, 1, 0]);
    let adam = Adam::new();
    let step = accelerate(|network: &Network, state: &AdamState<Network>, x: &Tensor, y: &Tensor| {
        let logits = network.out.apply(&network.hidden.apply(x).tanh());
        let loss = nn::softmax_cross_entropy_labels(&logits, y);
        let gradients = loss.grad(network);
        let (network, state) = adam.update(network, &gradients, state, 0.05);
        (loss, network, state)
    });
    let mut network = Network { hidden: Dense::new(1, 2, 8), out: Dense::new(2, 8, 2) };
    let mut state = adam.init(&network);
    let mut loss = Tensor::ones([]);
    for _ in 0..200 {
        (loss, network, state) = step.call(&network, &state, &x, &y)?;
    }
    assert!(loss.item::<f32>()? < 0.02, "{loss}");
    assert_eq!(step.stats().misses, 1);
    Ok(())
}
