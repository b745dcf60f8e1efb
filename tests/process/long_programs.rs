//! Long programs are ready in time about proportional to their length, whatever their ops are joined by, and calls of
//! them run in such a time.
//!
//! A coarse guard: at ten times as many ops each stage may take thirty times as long, and one whose time is quadratic
//! takes up to a hundred. Only ratios are looked at, of the fastest of a few tries that take turns. Counts of work, which
//! are exact, stand beside the stages (`plan/fuse.rs`), and `benches/long_programs.rs` has the times.

use std::time::{Duration, Instant};

use retape::{CompileTimes, Tensor, accelerate, concat, stack};

use crate::alone;

/// Ops of the shorter program.
const N_OPS: usize = if cfg!(debug_assertions) { 400 } else { 2000 };

/// How many times as many ops the longer program has.
const LONGER: usize = 10;

/// The most times as long that a stage may take for it.
const MOST: u32 = 3 * LONGER as u32;

/// How often both programs are tried at most, until the fastest of them are in proportion: another program may take the
/// processor now and then.
const MOST_TRIES: usize = 6;

/// The results of a program of about so many ops over a vector and a matrix.
type Program = fn(usize, &Tensor, &Tensor) -> Vec<Tensor>;

/// A stage and how to read its time.
type Stage = (&'static str, fn(&CompileTimes) -> Duration);

const STAGES: [Stage; 4] = [
    ("trace", |times| times.trace),
    ("optimise", |times| times.optimise),
    ("plan", |times| times.plan),
    ("compile", |times| times.compile),
];

/// The time of each stage for a program, and that of the fastest of some further calls.
fn times(program: Program, n_ops: usize) -> [Duration; STAGES.len() + 1] {
    let (x, w) = (Tensor::full([8], 0.1), Tensor::full([8, 8], 0.05));
    let f = accelerate(move |x: &Tensor, w: &Tensor| program(n_ops, x, w));
    f.call(&x, &w).unwrap();
    let hit = |_| {
        let start = Instant::now();
        f.call(&x, &w).unwrap();
        start.elapsed()
    };
    let hit = (0..5).map(hit).min().unwrap();
    let of_entry = f.stats().entries[0].times;
    let mut times = [hit; STAGES.len() + 1];
    times.iter_mut().zip(STAGES).for_each(|(time, (_, of))| *time = of(&of_entry));
    times
}

fn assert_near_linear(program: Program) {
    let _alone = alone();
    let mut fastest = [[Duration::MAX; STAGES.len() + 1]; 2];
    let is_in_proportion = |(few, many): (&Duration, &Duration)| *many < *few * MOST;
    for _ in 0..MOST_TRIES {
        for (fastest, n_ops) in fastest.iter_mut().zip([N_OPS, LONGER * N_OPS]) {
            let times = times(program, n_ops);
            fastest.iter_mut().zip(times).for_each(|(fastest, time)| *fastest = time.min(*fastest));
        }
        let [few, many] = &fastest;
        if few.iter().zip(many).all(is_in_proportion) {
            return;
        }
    }
    let [few, many] = fastest;
    let names = STAGES.map(|(name, _)| name).into_iter().chain(["call"]);
    for (name, times) in names.zip(few.iter().zip(&many)) {
        assert!(
            is_in_proportion(times),
            "{name}: {:?} for {N_OPS} ops, {:?} for {LONGER} times as many",
            times.0,
            times.1
        );
    }
}

/// A result with its gradient for one of the arguments.
fn with_gradient(result: &Tensor, of: &Tensor) -> Vec<Tensor> {
    let loss = result.square().sum(..);
    let gradient = loss.grad(of);
    vec![loss, gradient]
}

fn products(n_ops: usize, x: &Tensor, w: &Tensor) -> Tensor {
    (0..n_ops / 2).fold(x.clone(), |h, _| w.matmul(&h).tanh())
}

fn parts(n: usize, x: &Tensor) -> Vec<Tensor> {
    (0..n).map(|n| x * (n as f32 + 0.5)).collect()
}

/// The gradient, for a matrix of `n` rows, of a loss to which each of its parts adds.
fn gradient_of_parts(n: usize, x: &Tensor, parts: impl Fn(&Tensor) -> Vec<Tensor>) -> Vec<Tensor> {
    let whole = Tensor::full([n, 1], 0.5) * x;
    let loss: Tensor = parts(&whole).iter().map(|part| part.square().sum(..)).sum();
    vec![loss.grad(&whole)]
}

#[test]
fn pointwise_chains() {
    assert_near_linear(|n_ops, x, _| with_gradient(&(0..n_ops / 2).fold(x.clone(), |h, _| (h * x).tanh()), x));
}

#[test]
fn chains_of_products() {
    assert_near_linear(|n_ops, x, w| with_gradient(&products(n_ops, x, w), w));
}

#[test]
fn chains_of_products_of_matrices() {
    assert_near_linear(|n_ops, _, w| with_gradient(&products(n_ops, w, w), w));
}

/// Of matrices whose transpositions are copies where formulas read them.
#[test]
fn chains_of_transposed_matrices() {
    assert_near_linear(|n_ops, _, w| {
        let first = Tensor::full([256, 256], 0.5) * w.sum(..);
        with_gradient(&(0..n_ops / 8).fold(first, |h, _| h.t().sin() + &h), w)
    });
}

#[test]
fn chains_of_sums() {
    assert_near_linear(|n_ops, x, w| {
        with_gradient(&(0..n_ops / 4).fold(x.clone(), |h, _| (w * h).sum(0) * 0.1 + x), w)
    });
}

#[test]
fn many_chains_side_by_side() {
    assert_near_linear(|n_ops, x, w| {
        let chains = (0..n_ops / 20).map(|n| products(20, &(x * (n as f32 + 1.5)), w));
        with_gradient(&chains.sum(), w)
    });
}

#[test]
fn long_chains_side_by_side() {
    assert_near_linear(|n_ops, x, w| {
        let chains = (0..10).map(|n| products(n_ops / 10, &(x * (n as f32 + 1.5)), w));
        with_gradient(&chains.sum(), w)
    });
}

#[test]
fn terms_of_a_sum() {
    assert_near_linear(|n_ops, _, w| {
        with_gradient(&(0..n_ops / 5).map(|n| (w * (n as f32 + 1.5)).tanh().sum(..)).sum(), w)
    });
}

#[test]
fn parts_of_a_join() {
    assert_near_linear(|n_ops, x, _| with_gradient(&concat(&parts(n_ops / 2, x).iter().collect::<Vec<_>>(), 0), x));
}

#[test]
fn steps_of_a_stack() {
    assert_near_linear(|n_ops, x, w| {
        let mut steps = vec![x.clone()];
        (0..n_ops / 3).for_each(|n| steps.push(w.matmul(&steps[n]).tanh()));
        with_gradient(&stack(&steps.iter().collect::<Vec<_>>(), 0), w)
    });
}

#[test]
fn parts_of_one_value() {
    assert_near_linear(|n_ops, x, _| gradient_of_parts(n_ops / 4, x, |whole| whole.chunk(0, whole.dim(0))));
}

#[test]
fn rows_of_one_value() {
    assert_near_linear(|n_ops, x, _| {
        gradient_of_parts(n_ops / 4, x, |whole| (0..whole.dim(0)).map(|at| whole.index_axis(0, at)).collect())
    });
}

#[test]
fn overlapping_parts_of_one_value() {
    assert_near_linear(|n_ops, x, _| {
        gradient_of_parts(n_ops / 4, x, |whole| {
            (0..whole.dim(0) - 6).map(|at| whole.slice_axis(0, at..at + 7)).collect()
        })
    });
}

#[test]
fn many_results() {
    assert_near_linear(|n_ops, x, _| parts(n_ops, x));
}

/// The fastest of some calls that write so many results over their arguments.
fn time_in_place(n: usize) -> Duration {
    let halve = accelerate(|xs: &Vec<Tensor>| xs.iter().map(|x| x * 0.5).collect::<Vec<_>>());
    // Results of 1 KiB and more are written over arguments.
    let mut xs = halve.call(vec![Tensor::ones([256]); n]).unwrap();
    let mut call = |_| {
        let given = std::mem::take(&mut xs);
        let start = Instant::now();
        xs = halve.call(given).unwrap();
        start.elapsed()
    };
    (0..5).map(&mut call).min().unwrap()
}

#[test]
fn many_results_over_arguments() {
    let _alone = alone();
    let [mut few, mut many] = [Duration::MAX; 2];
    for _ in 0..MOST_TRIES {
        few = few.min(time_in_place(N_OPS / 8));
        many = many.min(time_in_place(LONGER * N_OPS / 8));
        if many < few * MOST {
            return;
        }
    }
    panic!("{few:?} for {} results, {many:?} for {LONGER} times as many", N_OPS / 8);
}
