//! Long programs are ready in time about proportional to their length, whatever their ops are joined by.
//!
//! A coarse guard: ten times as many ops may take thirty times as long, and a stage that takes time quadratic in them
//! takes up to a hundred. Counts of work, which are exact, stand beside the stages (`plan/fuse.rs`).

use std::time::Duration;

use retape::{Tensor, accelerate, concat, stack};

use crate::alone;

/// Ops of the shorter program.
const N_OPS: usize = if cfg!(debug_assertions) { 400 } else { 2000 };

/// The loss of a program of about so many ops over a vector and a matrix.
type Program = fn(usize, &Tensor, &Tensor) -> Tensor;

/// The time until a program with its gradient is compiled.
fn compile_time(program: Program, n_ops: usize) -> Duration {
    let (x, w) = (Tensor::full([8], 0.1), Tensor::full([8, 8], 0.05));
    let f = accelerate(move |x: &Tensor, w: &Tensor| {
        let loss = program(n_ops, x, w);
        let gradient = loss.grad_or_zero(&(x.clone(), w.clone()));
        (loss, gradient)
    });
    f.call(&x, &w).unwrap();
    f.stats().entries[0].times.total()
}

fn assert_near_linear(program: Program) {
    let _alone = alone();
    // The fastest of several, which take turns: another program may take the processor now and then.
    let [mut few, mut many] = [Duration::MAX; 2];
    for _ in 0..3 {
        few = few.min(compile_time(program, N_OPS));
        many = many.min(compile_time(program, 10 * N_OPS));
        if many < few * 30 {
            return;
        }
    }
    panic!("{few:?} for {N_OPS} ops, {many:?} for ten times as many");
}

fn products(n_ops: usize, x: &Tensor, w: &Tensor) -> Tensor {
    (0..n_ops / 2).fold(x.clone(), |h, _| w.matmul(&h).tanh()).sum(..)
}

#[test]
fn chains_of_products() {
    assert_near_linear(products);
}

#[test]
fn chains_of_sums() {
    assert_near_linear(|n_ops, x, w| (0..n_ops / 4).fold(x.clone(), |h, _| (w * h).sum(0) * 0.1 + x).sum(..));
}

#[test]
fn chains_side_by_side() {
    assert_near_linear(|n_ops, x, w| (0..n_ops / 20).map(|n| products(20, &(x * (n as f32 + 1.5)), w)).sum::<Tensor>());
}

#[test]
fn terms_of_a_sum() {
    assert_near_linear(|n_ops, _, w| (0..n_ops / 5).map(|n| (w * (n as f32 + 1.5)).tanh().sum(..)).sum::<Tensor>());
}

#[test]
fn parts_of_a_join() {
    assert_near_linear(|n_ops, x, _| {
        let parts: Vec<Tensor> = (0..n_ops / 2).map(|n| x * (n as f32 + 0.5)).collect();
        concat(&parts.iter().collect::<Vec<_>>(), 0).square().sum(..)
    });
}

#[test]
fn steps_of_a_stack() {
    assert_near_linear(|n_ops, x, w| {
        let mut steps = vec![x.clone()];
        (0..n_ops / 3).for_each(|n| steps.push(w.matmul(&steps[n]).tanh()));
        stack(&steps.iter().collect::<Vec<_>>(), 0).square().sum(..)
    });
}
