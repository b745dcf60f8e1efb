//! Layers, losses and optimisers against plain loops in `f64`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use retape::nn::{self, BatchNorm, BatchNormState, Conv2d, ConvTranspose2d, Dense, Embedding, Init, LayerNorm, Mask};
use retape::ops::{ConvOptions, Padding, einsum};
use retape::optim::{Adam, AdamState, Sgd, clip_by_global_norm};
use retape::random::Key;
use retape::{DType, Result, Tensor, Tree, accelerate, map, tree, value_and_grad, zip_map};

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
    let (y, state) = BatchNorm::new(2).apply(&x, &BatchNormState::new(2));
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
            let (y, state) = BatchNorm::new(2).apply(x, &BatchNormState::new(2));
            y.sum(..) * 0.0 + state.mean.sum(..)
        },
        &x,
    )?;
    close(&gradient, &[0.0; 4], 0.0);
    Ok(())
}

/// Epsilon and momentum are those of the layer, static, and kept by its gradient and by `map`.
#[test]
fn normalisations_have_their_own_constants() -> Result<()> {
    let x = Tensor::from([[1.0_f64, 10.0], [3.0, 30.0]]);
    let double = |norm: BatchNorm| map(&norm, |x| x.cast(DType::F64));
    let state = map(&BatchNormState::new(2), |x| x.cast(DType::F64));
    let step = accelerate(|norm: &BatchNorm, state: &BatchNormState, x: &Tensor| {
        let (y, state) = norm.apply(x, state);
        let gradient = (&y * x).sum(..).grad(norm);
        (y, state, gradient)
    });
    for (epsilon, momentum) in [(0.25, 0.5), (1.0, 0.99)] {
        let norm = double(BatchNorm::new(2).epsilon(epsilon).momentum(momentum));
        let (y, state, gradient) = step.call(&norm, &state, &x)?;
        // The variances of the columns are 1 and 100.
        let [a, b] = [1.0 / (1.0 + epsilon).sqrt(), 10.0 / (100.0 + epsilon).sqrt()];
        close(&y, &[-a, -b, a, b], 1e-14);
        close(&state.mean, &[2.0 * (1.0 - momentum), 20.0 * (1.0 - momentum)], 1e-13);
        close(&state.variance, &[1.0, momentum + 100.0 * (1.0 - momentum)], 1e-13);
        assert_eq!((gradient.epsilon, gradient.momentum), (epsilon, momentum));
        let inferred = (3.0 - 2.0 * (1.0 - momentum)) / (1.0 + epsilon).sqrt();
        close(&norm.infer(&x, &state).at((1, 0)), &[inferred], 1e-14);
        let layer = LayerNorm { scale: norm.scale, offset: norm.offset, epsilon };
        let [a, b] = [4.5, 13.5].map(|half: f64| half / (half * half + epsilon).sqrt());
        close(&layer.apply(&x), &[-a, a, -b, b], 1e-14);
    }
    assert_eq!(step.stats().misses, 2, "constants are part of the signature");
    let refused = nn::batch_norm(&Tensor::from(1.0_f32), &x, &x, 1e-5).0;
    let message = refused.error().unwrap().to_string();
    assert!(message.contains("batch_norm") && message.contains("f32[]") && message.contains(file!()), "{message}");
    Ok(())
}

/// Weights of variance `gain / n` give outputs of variance `gain` times the mean square of the inputs, if `n` counts the
/// inputs that an output is a sum of.
#[test]
fn transposed_convolutions_keep_the_variance() -> Result<()> {
    let cases = [([4, 4], [2, 2], 16, 8), ([3, 3], [1, 1], 16, 8), ([3, 2], [3, 2], 32, 16), ([6, 6], [3, 2], 8, 24)];
    for (seed, (window, stride, channels, out)) in (1..).zip(cases) {
        let layer = ConvTranspose2d::new(seed, window, stride, channels, out);
        assert_eq!(layer.weight.shape(), [window[0], window[1], out, channels]);
        let x = Init::he_normal().gain(1.0).tensor_with([1.0, 1.0], 100 + seed, [4, 24, 24, channels]);
        let options = ConvOptions { stride, ..ConvOptions::same() };
        let y = layer.apply(&x, options);
        assert_eq!(y.shape(), [4, 24 * stride[0], 24 * stride[1], out]);
        // At the edges there are fewer inputs.
        let [rows, columns] = [1, 2].map(|axis| 8..y.dim(axis) - 8);
        let inner = y.at((.., rows, columns)).square().mean(..).item::<f32>()?;
        assert!((inner / 2.0 - 1.0).abs() < 0.12, "{window:?} by {stride:?}: {inner}");
    }
    Ok(())
}

#[test]
fn biases_may_be_left_out() -> Result<()> {
    let x = Init::he_normal().tensor(1, [2, 5, 5, 3]);
    let conv = Conv2d::new(2, [3, 3], 3, 4);
    let shifted = Conv2d { bias: Some(Tensor::full([4], 0.5_f32)), ..conv.clone() };
    let step = accelerate(|conv: &Conv2d, x: &Tensor| {
        let y = conv.apply(x, ConvOptions::default().padding(1));
        let gradient = y.square().sum(..).grad(conv);
        (y, gradient)
    });
    let (plain, gradient) = step.call(conv.without_bias(), &x)?;
    assert!(gradient.bias.is_none());
    let (y, gradient) = step.call(&shifted, &x)?;
    assert_eq!(gradient.bias.as_ref().map(Tensor::shape), Some(&[4][..]));
    assert!(tree::same_bits(&y, &(plain + 0.5))?);
    let up = ConvTranspose2d::new(3, [2, 2], [2, 2], 3, 4);
    let options = ConvOptions::default().stride(2);
    let both = [up.clone().without_bias().apply(&x, options), up.apply(&x, options)];
    assert!(tree::same_bits(&both[0], &both[1])?, "the bias is zero");
    assert_eq!(tree::n_parameters(&up), 2 * 2 * 3 * 4 + 4);
    Ok(())
}

#[test]
fn padding_is_written_short() -> Result<()> {
    let x = Init::he_normal().tensor(1, [1, 6, 7, 2]);
    let same = |a: Tensor, b: Tensor| tree::same_bits(&a, &b);
    let w = Init::he_normal().tensor(2, [3, 3, 2, 4]);
    let conv = |padding: Padding| x.conv2d(&w, ConvOptions::default().padding(padding));
    let zeros = |low: usize, side: usize| x.pad(&[0, low, side, 0], &[0, low, side, 0], 0.0);
    let valid = |x: Tensor| x.conv2d(&w, ConvOptions::default());
    assert!(same(conv(1.into()), valid(zeros(1, 1)))?);
    assert!(same(conv([2, 1].into()), valid(zeros(2, 1)))?);
    assert!(same(conv([[1, 1], [2, 2]].into()), valid(zeros(1, 2)))?);
    assert!(same(x.max_pool2d([3, 3], [2, 2], 1), x.max_pool2d([3, 3], [2, 2], Padding::Explicit([[1; 2]; 2])))?);
    assert!(same(x.avg_pool2d([3, 3], [1, 2], [0, 1]), x.avg_pool2d([3, 3], [1, 2], [[0, 0], [1, 1]]))?);
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

/// Attention by way of scores in memory.
fn attention_by_scores(x: &[Tensor; 3], scale: f64, mask: Mask) -> Tensor {
    let scores = einsum("bqhd,bkhd->bhqk", &[&x[0], &x[1]]) * scale;
    let [queries, keys] = [2, 3].map(|axis| scores.dim(axis));
    let places = |n: usize| (0..n as i64).collect::<Tensor>();
    let is_past = places(keys).reshape([1, keys]).le(places(queries).reshape([queries, 1]));
    let scores = if mask == Mask::Causal { is_past.select(&scores, f64::NEG_INFINITY) } else { scores };
    einsum("bhqk,bkhe->bqhe", &[&scores.softmax(-1), &x[2]])
}

#[test]
fn attention_of_many_queries_is_the_formula() -> Result<()> {
    for mask in [Mask::None, Mask::Causal] {
        // Scores of the first lie in memory.
        for (queries, keys) in [(8, 30), (10, 3), (40, 150), (150, 40)] {
            let draw = |stream: u64, n: usize, features: usize| {
                retape::random::normal(&Key::new(stream), [2, n, 2, features], DType::F64)
            };
            let x = [draw(1, queries, 5), draw(2, keys, 5), draw(3, keys, 4)];
            let loss = |attention: fn(&[Tensor; 3], f64, Mask) -> Tensor| {
                accelerate(move |x: &[Tensor; 3]| {
                    let y = attention(x, 0.3, mask);
                    let gradient = y.square().sum(..).grad(x);
                    let norm: Tensor = gradient.iter().map(|g| g.square().sum(..)).sum();
                    (y, gradient, norm.grad(x))
                })
            };
            let one_pass = loss(|[q, k, v], scale, mask| nn::attention(q, k, v, scale, mask));
            let (y, first, second) = one_pass.call(&x)?;
            let (expected, expected_first, expected_second) = loss(attention_by_scores).call(&x)?;
            close(&y, &expected.to_vec::<f64>()?, 1e-12);
            for (found, expected) in first.iter().chain(&second).zip(expected_first.iter().chain(&expected_second)) {
                let bound = 1e-12 * expected.abs().max(..).item::<f64>()?.max(1.0);
                close(found, &expected.to_vec::<f64>()?, bound);
            }
        }
    }
    Ok(())
}

#[test]
fn hidden_values_count_as_zero_times_what_they_are() -> Result<()> {
    let x = Tensor::ones([1, 40, 1, 2]);
    let mut values = vec![1.0_f32; 80];
    values[79] = f32::INFINITY;
    let v = Tensor::from_vec(values, [1, 40, 1, 2])?;
    for attention in [
        |x: &[Tensor; 3]| nn::attention(&x[0], &x[1], &x[2], 1.0, Mask::Causal),
        |x: &[Tensor; 3]| attention_by_scores(x, 1.0, Mask::Causal),
    ] {
        let y = attention(&[x.clone(), x.clone(), v.clone()]).to_vec::<f32>()?;
        assert!(y.iter().step_by(2).all(|y| (y - 1.0).abs() < 1e-6), "{y:?}");
        assert!(y[1..79].iter().step_by(2).all(|y| y.is_nan()) && y[79] == f32::INFINITY, "{y:?}");
    }
    // Of no key there is no mean.
    let none = Tensor::zeros([1, 0, 1, 2]);
    let mean = accelerate(|x: &Tensor, none: &Tensor| nn::attention(x, none, none, 1.0, Mask::None));
    mean.configure(|options| options.trap_nonfinite = true);
    close(&mean.call(&x, &none)?, &[0.0; 80], 0.0);
    Ok(())
}

#[test]
fn means_of_large_values_do_not_overflow() -> Result<()> {
    let (q, k) = (Tensor::zeros([1, 40, 1, 2]), Tensor::zeros([1, 700, 1, 2]));
    let v = Tensor::full([1, 700, 1, 3], 3e38_f32);
    let y = nn::attention(&q, &k, &v, 1.0, Mask::None).to_vec::<f32>()?;
    assert!(y.iter().all(|y| (y / 3e38 - 1.0).abs() < 1e-5), "{y:?}");
    Ok(())
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
