//! The cost of a hit beside its kernels, by the number of tensors that go in and come out; and what a second thread
//! adds.
//!
//! `sum`: one small sum of the first of `n` tensors, so that arguments are all that grows. `step`: each of `n` tensors
//! of eight elements becomes another, so results grow as well. `handles`: the same without work, every tensor is
//! handed through. `pinned`: `sum` through a pinned entry. `kernels`: the machine code of `sum` and `step` on bytes that
//! exist already, and nothing else.
//!
//! After criterion's figures come two tables of differences and ratios, medians over rounds that alternate what they
//! compare, so that a busy machine disturbs both sides alike. (`cargo bench -p retape-benches --bench overhead -- none` prints only them.)

#![allow(clippy::print_stdout, reason = "the tables are what it is for")]

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group};
use retape::{Accelerated, Tensor, accelerate, trace};
use retape_kernels::Executable;
use retape_runtime::{Buffer, CachePadded};

const SIZES: [usize; 4] = [1, 10, 50, 300];

/// The goal for the cost of a hit beyond its kernels, in nanoseconds, for each of `SIZES`.
const GOALS: [f64; 4] = [200.0, 500.0, 1500.0, 8000.0];

/// The goal for the cost of a pinned call beyond its kernels, in nanoseconds, with one leaf.
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

/// The callers during a window of time.
#[derive(Clone, Copy, PartialEq)]
enum Turn {
    Nobody,
    First,
    Second,
    Both,
    /// Both, each a function of its own.
    Apart,
    Over,
}

/// Two threads that live as long as the measurement, so that only what calls cost is measured and not what threads do.
struct Pair {
    turn: Mutex<Turn>,
    n_calls: [CachePadded<AtomicU64>; 2],
    window: Duration,
}

impl Pair {
    fn turn(&self) -> Turn {
        *self.turn.lock().expect("nobody panics with the turn")
    }

    /// Calls whenever it is this thread's turn.
    fn work<F, R>(&self, thread: usize, functions: &[Accelerated<F, (Leaves,), R>; 2], tensors: &Leaves)
    where
        F: retape::Function<(Leaves,), R>,
        R: retape::Tree,
    {
        let n_calls = 5_000 / (tensors.len() + 9);
        loop {
            let function = match (self.turn(), thread) {
                (Turn::Over, _) => return,
                (Turn::First, 0) | (Turn::Second, 1) | (Turn::Both, _) => &functions[0],
                (Turn::Apart, _) => &functions[thread],
                _ => {
                    thread::sleep(Duration::from_micros(200));
                    continue;
                }
            };
            (0..n_calls).for_each(|_| drop(black_box(function.call(tensors))));
            self.n_calls[thread].fetch_add(n_calls as u64, Relaxed);
        }
    }

    /// Calls per second of both threads together in a window of this turn.
    fn rate(&self, turn: Turn) -> f64 {
        *self.turn.lock().expect("nobody panics with the turn") = turn;
        // Sleepers wake up, and calls of the turn before end.
        thread::sleep(Duration::from_millis(2));
        let count = || self.n_calls.iter().map(|n| n.load(Relaxed)).sum::<u64>();
        let (start, before) = (Instant::now(), count());
        thread::sleep(self.window);
        (count() - before) as f64 / start.elapsed().as_secs_f64()
    }
}

/// Prints how much two threads get done beside one.
///
/// `apart` is the ratio of two threads with a function each, which is all that a machine allows.
fn print_scaling(n_rounds: usize, millis: u64) {
    println!("\nhits of one signature per second, medians of {n_rounds} alternating rounds");
    print!("{:>8} {:>6} {:>10} {:>11}", "", "leaves", "one thread", "two threads");
    println!(" {:>6} {:>6} {:>5}", "ratio", "apart", "goal");
    let window = Duration::from_millis(millis);
    for n in SIZES {
        print_rates("sum", &[accelerate(sum), accelerate(sum)], n, n_rounds, window);
        print_rates("step", &[accelerate(step), accelerate(step)], n, n_rounds, window);
    }
}

fn print_rates<F, R>(
    name: &str,
    functions: &[Accelerated<F, (Leaves,), R>; 2],
    n: usize,
    n_rounds: usize,
    window: Duration,
) where
    F: retape::Function<(Leaves,), R> + Sync,
    R: retape::Tree,
{
    // The threads share their arguments, as those of a server share weights.
    let tensors = &leaves(n);
    let pair = &Pair { turn: Mutex::new(Turn::Nobody), n_calls: Default::default(), window };
    let (mut ones, mut twos, mut ratios, mut apart) = (vec![], vec![], vec![], vec![]);
    thread::scope(|scope| {
        (0..2).for_each(|thread| drop(scope.spawn(move || pair.work(thread, functions, tensors))));
        for _ in 0..n_rounds {
            let [first, two, second, own] =
                [Turn::First, Turn::Both, Turn::Second, Turn::Apart].map(|turn| pair.rate(turn));
            let one = (first + second) / 2.0;
            ones.push(one);
            twos.push(two);
            ratios.push(two / one);
            apart.push(own / one);
        }
        pair.rate(Turn::Over);
    });
    let [one, two, ratio, apart] = [ones, twos, ratios, apart].map(median);
    println!("{name:>8} {n:>6} {one:>10.0} {two:>11.0} {ratio:>6.2} {apart:>6.2} {:>5}", 1.8);
}

criterion_group!(benches, hits, kernels);

fn main() {
    benches();
    let is_test = std::env::args().any(|arg| arg == "--test");
    let (n_rounds, millis) = if is_test { (1, 1) } else { (31, 20) };
    print_overheads(n_rounds);
    print_scaling(n_rounds, millis);
    Criterion::default().configure_from_args().final_summary();
}
