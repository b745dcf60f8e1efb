//! The training step of the digit example on a batch of 32, un-accelerated and accelerated.

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use retape::{Tensor, accelerate};

#[allow(dead_code, unreachable_pub, reason = "a module of another program, of which only the training step is used")]
#[path = "../examples/digits/network.rs"]
mod network;

use network::Training;

const BATCH: usize = 32;

fn training_step(criterion: &mut Criterion) {
    let step = accelerate(|t: &Training, x: &Tensor, digits: &Tensor, angles: &Tensor, rate: &Tensor| {
        t.step(x, digits, angles, rate)
    });
    let training = Training::new(1);
    let pixels: Vec<f32> = (0..BATCH * 28 * 28).map(|i| (i * 7919 % 256) as f32 / 255.0).collect();
    let x = Tensor::from_vec(pixels, [BATCH, 28, 28, 1]).expect("as many pixels as the shape has");
    let labels: Tensor = (0..BATCH as i64).map(|i| i % 10).collect();
    let (digits, angles) = (labels.one_hot(10), Tensor::zeros([BATCH, 1]));
    let mut group = criterion.benchmark_group("digits");
    group.sample_size(10).warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
    for (name, is_enabled) in [("un-accelerated", false), ("accelerated", true)] {
        step.configure(|options| options.enabled = is_enabled);
        group.bench_function(name, |b| {
            b.iter(|| step.call(&training, &x, &digits, &angles, 1e-3_f32).expect("the step is well-typed"));
        });
    }
    group.finish();
}

criterion_group!(benches, training_step);
criterion_main!(benches);
