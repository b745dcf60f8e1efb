//! The cost of a miss by stage, for fifty updates of a tiny recurrence with its gradient, for 200 Runge-Kutta steps whose
//! times are numbers in the trace, and for the training step of the digit example.
//!
//! Every sample clears the cache first. Nothing else holds the machine code then, so it is all made again.

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use retape::{CompileTimes, Stats, Tensor, accelerate};

#[allow(dead_code, unreachable_pub, reason = "a module of another program, of which only the training step is used")]
#[path = "../examples/digits/network.rs"]
mod network;

use network::Training;

/// A stage and how to read its time.
type Stage = (&'static str, fn(&CompileTimes) -> Duration);

const STAGES: [Stage; 5] = [
    ("trace", |times| times.trace),
    ("optimise", |times| times.optimise),
    ("plan", |times| times.plan),
    ("compile", |times| times.compile),
    ("total", CompileTimes::total),
];

/// Measures each stage of the miss that `miss` causes.
fn stages(criterion: &mut Criterion, name: &str, mut miss: impl FnMut() -> Stats) {
    let mut group = criterion.benchmark_group(name);
    group.sample_size(10).warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_secs(1));
    for (stage, time) in STAGES {
        group.bench_function(stage, |b| {
            b.iter_custom(|n| (0..n).map(|_| time(&miss().entries[0].times)).sum());
        });
    }
    group.finish();
}

fn tiny(criterion: &mut Criterion) {
    let step = accelerate(|params: &(Tensor, Tensor), h: &Tensor| {
        let (w, b) = params;
        let mut h = h.clone();
        for _ in 0..50 {
            h = &h + 0.01 * (w.matmul(&h) + b).tanh();
        }
        let loss = h.square().sum(..);
        let gradient = loss.grad(params);
        (loss, gradient)
    });
    let (params, h) = ((Tensor::ones([8, 8]), Tensor::ones([8])), Tensor::ones([8]));
    stages(criterion, "miss/tiny", || {
        step.clear_cache();
        step.call(&params, &h).expect("the step is well-typed");
        step.stats()
    });
}

fn runge_kutta(criterion: &mut Criterion) {
    let rate = |y: &Tensor, k: &Tensor, time: f64| (y * k).sin() * 0.7 - y * (0.3 + 0.1 * time) + (0.1 * time).sin();
    let solve = accelerate(move |k: &Tensor, start: &Tensor| {
        let (mut y, step) = (start.clone(), 0.01);
        for n in 0..200 {
            let time = f64::from(n) * step;
            let k1 = rate(&y, k, time);
            let k2 = rate(&(&y + &k1 * (step / 2.0)), k, time + step / 2.0);
            let k3 = rate(&(&y + &k2 * (step / 2.0)), k, time + step / 2.0);
            let k4 = rate(&(&y + &k3 * step), k, time + step);
            y = y + (k1 + k2 * 2.0 + k3 * 2.0 + k4) * (step / 6.0);
        }
        let loss = y.square().sum(..);
        let gradient = loss.grad(k);
        (loss, gradient)
    });
    let (k, start) = (Tensor::ones([8]), Tensor::ones([8]));
    stages(criterion, "miss/runge_kutta", || {
        solve.clear_cache();
        solve.call(&k, &start).expect("the steps are well-typed");
        solve.stats()
    });
}

fn digits(criterion: &mut Criterion) {
    let step = accelerate(|t: &Training, x: &Tensor, digits: &Tensor, angles: &Tensor, rate: &Tensor| {
        t.step(x, digits, angles, rate)
    });
    let training = Training::new(1);
    let (x, digits, angles) = (Tensor::ones([32, 28, 28, 1]), Tensor::ones([32, 10]), Tensor::ones([32, 1]));
    stages(criterion, "miss/digits", || {
        step.clear_cache();
        step.call(&training, &x, &digits, &angles, 1e-3_f32).expect("the step is well-typed");
        step.stats()
    });
}

criterion_group!(benches, tiny, runge_kutta, digits);
criterion_main!(benches);
