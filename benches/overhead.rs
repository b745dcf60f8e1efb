//! The cost of a hit beside its kernels, by the number of tensors that go in and come out; and what a second thread
//! adds.
//!
//! `sum`: one small sum of the first of `n` tensors, so that arguments are all that grows. `step`: each of `n` tensors
//! of eight elements becomes another, so results grow as well. `handles`: the same without work, every tensor is
//! handed through. `pinned`: `sum` through a pinned entry. `kernels`: the machine code of `sum` and `step` on bytes that
//! exist already, and nothing else.
//!
//! After criterion's figures come two tables of differences and ratios, medians over rounds that alternate what they
//! compare, so that a busy machine disturbs both sides alike. (`cargo bench --bench overhead -- none` prints only them.)

#![allow(clippy::print_stdout, reason = "the tables are what it is for")]

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group};
use retape::{Accelerated, Tensor, accelerate, trace};
use retape_kernels::Executable;
use retape_runtime::Buffer;

const SIZES: [usize; 4] = [1, 10, 50, 300];

/// What a hit may cost more than its kernels, in nanoseconds, for each of `SIZES`.
const GOALS: [f64; 4] = [200.0, 500.0, 1500.0, 8000.0];

/// What a call of a pinned entry may cost more than its kernels, in nanoseconds, with one leaf.
const PINNED_GOAL: f64 = 100.0;

type Leaves = Vec<Tensor>;

fn leaves(n: usize) -> Leaves {
    (0..n).map(|i| Tensor::full([8], i as f32)).collect()
}

fn sum(leaves: &Leaves) -> Tensor {
    leaves[0].sum(..)
}

fn step(leaves: &Leaves) -> Leaves {
    leaves.iter().map(|x| x * 0.5).collect()
}

/// Kernels with the bytes they work on.
struct Kernels {
    executable: Executable,
    inputs: Vec<Buffer>,
    outputs: Vec<Buffer>,
}

impl Kernels {
    /// Those of a function of `n` tensors of eight elements.
    fn of<R: retape::Tree>(f: impl Fn(&Leaves) -> R, n: usize) -> Kernels {
        let graph = trace(f, &leaves(n)).and_then(|graph| graph.optimized()).expect("the function is well-typed");
        let executable = graph.executable().expect("the machine is supported");
        let inputs = (0..n).map(|i| Buffer::copy_of(&[i as f32; 8]).expect("there is memory")).collect();
        let buffers = |ty: &retape_kernels::BufferType| Buffer::alloc(ty.bytes()).expect("there is memory");
        let outputs = executable.plan().outputs.iter().map(buffers).collect();
        Kernels { executable, inputs, outputs }
    }

    fn run(&mut self) {
        let inputs: smallvec::SmallVec<[&Buffer; 512]> = self.inputs.iter().collect();
        let outputs = std::mem::take(&mut self.outputs);
        self.outputs = self.executable.run_into(&inputs, outputs).expect("the buffers fit");
    }
}

fn hits(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hit");
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    for n in SIZES {
        let tensors = leaves(n);
        let (sum, step) = (accelerate(sum), accelerate(step));
        group.bench_with_input(BenchmarkId::new("sum", n), &tensors, |b, x| b.iter(|| sum.call(x)));
        group.bench_with_input(BenchmarkId::new("step", n), &tensors, |b, x| b.iter(|| step.call(x)));
        let handles = accelerate(|leaves: &Leaves| leaves.clone());
        group.bench_with_input(BenchmarkId::new("handles", n), &tensors, |b, x| b.iter(|| handles.call(x)));
        for misses in [sum.stats().misses, step.stats().misses, handles.stats().misses] {
            assert!(misses <= 1, "one signature, {misses} misses");
        }
    }
    group.finish();
}

fn kernels(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("kernels");
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    for n in SIZES {
        let mut of_sum = Kernels::of(sum, n);
        group.bench_function(BenchmarkId::new("sum", n), |b| b.iter(|| of_sum.run()));
        let mut of_step = Kernels::of(step, n);
        group.bench_function(BenchmarkId::new("step", n), |b| b.iter(|| of_step.run()));
    }
    group.finish();
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Nanoseconds per call of `f`.
fn nanos(n_calls: usize, mut f: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..n_calls).for_each(|_| f());
    start.elapsed().as_nanos() as f64 / n_calls as f64
}

/// Prints what a hit costs more than its kernels.
fn print_overheads(n_rounds: usize) {
    println!("\nnanoseconds of a hit beyond its kernels, medians of {n_rounds} alternating rounds");
    println!("{:>8} {:>6} {:>9} {:>9} {:>9} {:>7}", "", "leaves", "hit", "kernels", "beyond", "goal");
    for (n, goal) in SIZES.into_iter().zip(GOALS) {
        let (of_sum, of_step) = (accelerate(sum), accelerate(step));
        print_overhead("sum", n, Some(goal), n_rounds, |x| drop(black_box(of_sum.call(x))), Kernels::of(sum, n));
        print_overhead("step", n, Some(goal), n_rounds, |x| drop(black_box(of_step.call(x))), Kernels::of(step, n));
        let goal = (n == 1).then_some(PINNED_GOAL);
        let pinned = of_sum.pin(leaves(n)).expect("the function is well-typed");
        print_overhead("pinned", n, goal, n_rounds, |x| drop(black_box(pinned.call(x))), Kernels::of(sum, n));
    }
}

fn print_overhead(
    name: &str,
    n: usize,
    goal: Option<f64>,
    n_rounds: usize,
    call: impl Fn(&Leaves),
    mut kernels: Kernels,
) {
    let tensors = leaves(n);
    let n_calls = 20_000 / (n + 9);
    let (mut hits, mut bare, mut beyond) = (vec![], vec![], vec![]);
    for _ in 0..n_rounds {
        let hit = nanos(n_calls, || call(&tensors));
        let kernel = nanos(n_calls, || kernels.run());
        hits.push(hit);
        bare.push(kernel);
        beyond.push(hit - kernel);
    }
    let (hit, kernel, beyond) = (median(hits), median(bare), median(beyond));
    let goal = goal.map_or_else(String::new, |goal| format!("{goal:.0}"));
    println!("{name:>8} {n:>6} {hit:>9.0} {kernel:>9.0} {beyond:>9.0} {goal:>7}");
}

/// How long this thread has been running on a processor, where the system tells.
fn running_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// What calls cost while others call as well.
struct Rate {
    /// Calls per second of all threads together.
    per_second: f64,
    /// Seconds of processor time per call.
    running: f64,
}

/// The rate at which `n_threads` threads call `functions` together, each its own as far as there are so many.
fn rate<F, R>(functions: &[Accelerated<F, (Leaves,), R>], n_leaves: usize, n_threads: usize, n_calls: usize) -> Rate
where
    F: retape::Function<(Leaves,), R> + Sync,
    R: retape::Tree,
{
    let together = &Barrier::new(n_threads);
    // The threads share their arguments, as those of a server share weights.
    let tensors = &leaves(n_leaves);
    let times: Vec<(Duration, Duration)> = thread::scope(|scope| {
        let call = |function: &Accelerated<F, (Leaves,), R>| {
            (0..20).for_each(|_| drop(function.call(tensors)));
            together.wait();
            let (start, running) = (Instant::now(), running_time());
            (0..n_calls).for_each(|_| drop(black_box(function.call(tensors))));
            let wall = start.elapsed();
            (wall, running_time().zip(running).map_or(wall, |(end, start)| end - start))
        };
        let own = functions.iter().cycle().take(n_threads);
        let threads: Vec<_> = own.map(|function| scope.spawn(move || call(function))).collect();
        threads.into_iter().map(|thread| thread.join().expect("calls do not panic")).collect()
    });
    let longest = times.iter().map(|(wall, _)| *wall).max().unwrap_or_default();
    let running: Duration = times.iter().map(|(_, running)| *running).sum();
    let n_calls = (n_threads * n_calls) as f64;
    Rate { per_second: n_calls / longest.as_secs_f64(), running: running.as_secs_f64() / n_calls }
}

/// Prints how much two threads get done beside one.
///
/// `running` is the ratio by the time that the threads were running, which the clock would show on a machine with
/// nothing else to do; `apart` is the ratio of two threads with a function each, which is all that a machine allows.
fn print_scaling(n_rounds: usize, millis: usize) {
    println!("\nhits of one signature per second, medians of {n_rounds} alternating rounds");
    print!("{:>8} {:>6} {:>10} {:>11}", "", "leaves", "one thread", "two threads");
    println!(" {:>6} {:>7} {:>6} {:>5}", "ratio", "running", "apart", "goal");
    for n in SIZES {
        print_rates("sum", [accelerate(sum), accelerate(sum)], n, n_rounds, millis);
        print_rates("step", [accelerate(step), accelerate(step)], n, n_rounds, millis);
    }
}

fn print_rates<F, R>(name: &str, functions: [Accelerated<F, (Leaves,), R>; 2], n: usize, n_rounds: usize, millis: usize)
where
    F: retape::Function<(Leaves,), R> + Sync,
    R: retape::Tree,
{
    let n_calls = millis * 10_000 / (n + 9);
    let (mut ones, mut twos, mut ratios, mut running, mut apart) = (vec![], vec![], vec![], vec![], vec![]);
    for _ in 0..n_rounds {
        let one = rate(&functions[..1], n, 1, n_calls);
        let two = rate(&functions[..1], n, 2, n_calls);
        ones.push(one.per_second);
        twos.push(two.per_second);
        ratios.push(two.per_second / one.per_second);
        running.push(2.0 * one.running / two.running);
        apart.push(rate(&functions, n, 2, n_calls).per_second / one.per_second);
    }
    let [one, two, ratio, running, apart] = [ones, twos, ratios, running, apart].map(median);
    print!("{name:>8} {n:>6} {one:>10.0} {two:>11.0}");
    println!(" {ratio:>6.2} {running:>7.2} {apart:>6.2} {:>5}", 1.8);
}

criterion_group!(benches, hits, kernels);

fn main() {
    benches();
    let is_test = std::env::args().any(|arg| arg == "--test");
    let (n_rounds, millis) = if is_test { (1, 1) } else { (31, 50) };
    print_overheads(n_rounds);
    print_scaling(n_rounds, millis);
    Criterion::default().configure_from_args().final_summary();
}
