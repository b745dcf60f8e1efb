//! The cost of a hit, by the number of tensors that go in and come out.
//!
//! `sum`: one small sum of the first of `n` tensors, so that arguments are all that grows. `step`: each of `n` tensors
//! of eight elements becomes another, so results grow as well. `handles`: the same without work, every tensor is
//! handed through.

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use retape::{Tensor, accelerate};

const SIZES: [usize; 4] = [1, 10, 50, 300];

fn leaves(n: usize) -> Vec<Tensor> {
    (0..n).map(|i| Tensor::full([8], i as f32)).collect()
}

fn hits(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hit");
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    for n in SIZES {
        let tensors = leaves(n);
        let sum = accelerate(|leaves: &Vec<Tensor>| leaves[0].sum(..));
        group.bench_with_input(BenchmarkId::new("sum", n), &tensors, |b, x| b.iter(|| sum.call(x)));
        let step = accelerate(|leaves: &Vec<Tensor>| leaves.iter().map(|x| x * 0.5).collect::<Vec<_>>());
        group.bench_with_input(BenchmarkId::new("step", n), &tensors, |b, x| b.iter(|| step.call(x)));
        let handles = accelerate(|leaves: &Vec<Tensor>| leaves.clone());
        group.bench_with_input(BenchmarkId::new("handles", n), &tensors, |b, x| b.iter(|| handles.call(x)));
        for function_misses in [sum.stats().misses, step.stats().misses, handles.stats().misses] {
            assert!(function_misses <= 1, "one signature, {function_misses} misses");
        }
    }
    group.finish();
}

criterion_group!(benches, hits);
criterion_main!(benches);
