//! Training as a whole: the digit network learns the same accelerated and not, its calls hit the cache, and the
//! workloads of `examples/workloads` have the losses that other programs have after the same steps.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a panic fails the test; measured errors are printed")]

use crate::network::{Params, State, Training};
use retape::data::{Digits, one_hot};
use retape::{Tensor, accelerate, value_and_grad, vjp, zip_map};

const BATCH: usize = 8;
const STEPS: usize = 6;

/// How far the first losses may be apart, in proportion; each step doubles it.
const BOUND: f64 = 1e-6;

/// Batches of images, one-hot digits and angles.
fn batches() -> Vec<(Tensor, Tensor, Tensor)> {
    let set = Digits::generate(1, STEPS * BATCH).unwrap();
    let batch = |k: usize| {
        let (from, to) = (k * BATCH, (k + 1) * BATCH);
        let images = &set.images[from * Digits::PIXELS..to * Digits::PIXELS];
        let digits = one_hot(&set.labels[from..to], Digits::CLASSES).unwrap();
        (
            Tensor::from_vec(images, [BATCH, Digits::SIDE, Digits::SIDE, 1]).unwrap(),
            Tensor::from_vec(digits, [BATCH, Digits::CLASSES]).unwrap(),
            Tensor::from_vec(&set.angles[from..to], [BATCH, 1]).unwrap(),
        )
    };
    (0..STEPS).map(batch).collect()
}

/// The gradient is taken outside: convolutions, batch normalisation, several results.
#[test]
fn the_forward_pass_alone_accelerated_has_the_same_gradient() {
    let forward = accelerate(|params: &Params, state: &State, x: &Tensor| params.train(state, x));
    let Training { params, state, .. } = Training::new(7);
    let (x, digits, angles) = batches().remove(0);
    let loss = |params: &Params| {
        let (logits, found, _) = forward.call(params, &state, &x).unwrap();
        retape::nn::softmax_cross_entropy(&logits, &digits) + 0.1 * retape::nn::half_mse(&found, &angles)
    };
    forward.configure(|options| options.enabled = false);
    let (plain_loss, plain) = value_and_grad(loss, &params).unwrap();
    forward.configure(|options| options.enabled = true);
    let (fast_loss, fast) = value_and_grad(loss, &params).unwrap();
    let losses = [plain_loss, fast_loss].map(|loss| f64::from(loss.item::<f32>().unwrap()));
    assert!((losses[0] - losses[1]).abs() <= BOUND * losses[0], "{losses:?}");
    let mut worst = 0.0_f64;
    zip_map([&plain, &fast], |[plain, fast]| {
        let scale = plain.abs().max(..).item::<f32>().unwrap();
        let apart = (plain - fast).abs().max(..).item::<f32>().unwrap() / scale;
        // The gradients of what a normalisation takes away again are rounding errors.
        worst = if scale > 1e-5 { worst.max(f64::from(apart)) } else { worst };
        plain.clone()
    });
    let stats = forward.stats();
    println!("gradients are {worst:e} apart\n{stats}");
    assert!(worst < 1e-4, "{worst}");
    assert!(stats.entries[0].gradients[0].residuals > 4, "convolutions are not repeated");
    let plain = forward.call(&params, &state, &x).unwrap().0.to_vec::<f32>().unwrap();
    let (beside, _) = vjp(|params: &Params| forward.call(params, &state, &x).unwrap().0, &params, &digits).unwrap();
    assert_eq!(beside.to_vec::<f32>().unwrap(), plain);
}

#[test]
fn the_digit_network_learns_the_same_accelerated_and_not() {
    let step = accelerate(|t: &Training, x: &Tensor, digits: &Tensor, angles: &Tensor, rate: &Tensor| {
        t.step(x, digits, angles, rate)
    });
    let batches = batches();
    let train = || {
        let mut training = Training::new(7);
        let mut losses = vec![];
        for (x, digits, angles) in &batches {
            let loss;
            (loss, training) = step.call(&training, x, digits, angles, 1e-3_f32).unwrap();
            losses.push(f64::from(loss.item::<f32>().unwrap()));
        }
        (losses, training)
    };

    step.configure(|options| options.enabled = false);
    let (plain, _) = train();
    assert_eq!((step.stats().hits, step.stats().misses), (0, 0), "un-accelerated calls do not count");
    step.configure(|options| options.enabled = true);
    let (fast, training) = train();
    let stats = step.stats();
    assert_eq!((stats.hits, stats.misses, stats.entries.len()), (STEPS as u64 - 1, 1, 1));
    assert_eq!(stats.entries[0].calls, STEPS as u64);

    // Fused sums may be ordered in another way, and each step multiplies what the steps before were apart.
    for (k, (plain, fast)) in plain.iter().zip(&fast).enumerate() {
        let apart = (plain - fast).abs() / plain.abs();
        println!("step {k}: {plain} {fast} {apart:e}");
        let bound = BOUND * 2.0_f64.powi(k as i32);
        assert!(apart <= bound, "step {k}: {plain}, accelerated {fast}: {apart} apart, bound {bound}");
    }
    assert_ne!(fast[0], fast[1]);
    predictions(&training, &batches);

    step.configure(|options| options.enabled = true);
    let (again, _) = train();
    assert_eq!(again, fast, "training repeats in every bit");
    assert_eq!((step.stats().hits, step.stats().misses), (2 * STEPS as u64 - 1, 1));
}

/// Two shapes of batches: two misses, hits from then on.
fn predictions(training: &Training, batches: &[(Tensor, Tensor, Tensor)]) {
    let predict = accelerate(|params: &Params, state: &State, x: &Tensor| params.predict(state, x));
    let call = |x: &Tensor| {
        let (digits, angles) = predict.call(&training.params, &training.state, x).unwrap();
        [digits.to_vec::<f32>().unwrap(), angles.to_vec::<f32>().unwrap()].concat()
    };
    let whole = &batches[0].0;
    let part = whole.slice_axis(0, 0..3);
    for x in [whole, &part, &batches[1].0, &part, whole] {
        let found = call(x);
        assert_eq!(found.len(), 11 * x.dim(0));
        let sums = found[..10 * x.dim(0)].chunks(10).map(|row| row.iter().sum::<f32>());
        sums.for_each(|sum| assert!((sum - 1.0).abs() < 1e-5, "probabilities sum to {sum}"));
    }
    let stats = predict.stats();
    assert_eq!((stats.hits, stats.misses, stats.entries.len()), (3, 2, 2));
    let fast = call(&part);
    predict.configure(|options| options.enabled = false);
    for (fast, plain) in fast.iter().zip(call(&part)) {
        assert!((fast - plain).abs() <= 1e-5 * plain.abs().max(1.0), "{plain}, accelerated {fast}");
    }
    assert_eq!((predict.stats().hits, predict.stats().misses), (4, 2));
}

/// The loss after the first step and five more, in other programs. Where the kernels that are compiled ahead are not
/// optimised, the later ones take long.
const LOSSES: [(&str, f64); 11] = [
    ("tiny", 2.40886),
    ("mlp", 2.13206),
    ("dispatch50", 151.876),
    ("matmul512", 56.7822),
    ("digits_train", 0.129524),
    ("digits_predict", 4.81734),
    ("elementwise", -0.104315),
    ("transformer", 0.773965),
    ("resnet", 1.64833),
    ("autoencoder", 107.485),
    ("lstm", 0.019135),
];

#[test]
fn workloads_have_the_losses_of_other_programs() {
    let (listener, _listening) = crate::heard::Listener::here();
    let n = if cfg!(debug_assertions) { 4 } else { LOSSES.len() };
    for (name, expected) in &LOSSES[..n] {
        let mut work = crate::models::make(name, retape::Device::Cpu).unwrap();
        work.step().unwrap();
        for _ in 0..5 {
            work.update().unwrap();
            work.step().unwrap();
        }
        let loss = work.loss().unwrap();
        println!("{name}: {loss}, expected {expected}");
        assert!((loss - expected).abs() <= 1e-3 * expected.abs(), "{name}: {loss}, expected {expected}");
    }
    let advice: Vec<_> = listener.heard().into_iter().filter(|heard| heard.name == "retape::advice").collect();
    assert!(advice.is_empty(), "nothing is wrong with these programs: {advice:?}");
}
