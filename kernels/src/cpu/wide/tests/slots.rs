//! Places of values in the frame.

use retape_runtime::DType;

use super::super::WideIsa;
use super::super::function::emitted;
use super::super::walk::chains;
use super::{FEW, check, levels, random_inputs};
use crate::cpu::wide::encode::Assembled;
use crate::ir::{Affine, Kernel, KernelBuilder, Value};
use crate::schedule::{LoopForm, prepared, schedule};

const N: usize = 1000;

/// The code of the one nest of a kernel: none if there is none at all, and none in it if the frame has no room.
fn code(kernel: &Kernel, level: WideIsa, limit: u32, most_chains: usize) -> Option<Option<Assembled>> {
    let schedule = schedule(kernel);
    let nest = &schedule.nests[0];
    emitted(&[nest], &[LoopForm::of_nest(nest)], level, limit, most_chains)
}

/// A kernel that stores a formula of one element.
fn formula(of: impl for<'k> Fn(&'k KernelBuilder, Value<'k>) -> Value<'k>) -> Kernel {
    let k = KernelBuilder::new();
    k.axis(N, false);
    let at = Affine::new(0, &[1]);
    let x = k.load(k.param(DType::F32, N, false), at.clone());
    k.store(k.param(DType::F32, N, true), at, of(&k, x));
    k.finish()
}

/// A sum of products of so many multiples of a value, all of which live until the first product.
fn products<'k>(k: &'k KernelBuilder, x: Value<'k>, n_values: usize) -> Value<'k> {
    let values: Vec<Value<'_>> = (0..n_values).map(|n| x * k.constant((1.0 + n as f32).into())).collect();
    let product = |n: usize| values[n] * values[(n + n_values / 2) % n_values];
    (1..n_values).fold(product(0), |sum, n| sum + product(n))
}

/// Where a frame has no room for several vectors that take turns, one is written at a time.
#[test]
fn formulas_of_many_live_values_have_code() {
    let kernel = formula(|k, x| products(k, x, 130));
    let of = |most_chains| code(&kernel, WideIsa::Avx512, u32::MAX, most_chains);
    assert!(matches!(of(usize::MAX), Some(None)), "several vectors fit");
    assert!(matches!(of(1), Some(Some(_))), "one vector fits");
    // With few registers, not even one vector may fit.
    assert!(check(&kernel, &random_inputs(&kernel, 1), "many values") >= levels().len());
}

/// Twelve formulas one after the other, of which each needs more than 30 slots: a frame has 250 of them.
#[test]
fn slots_of_dead_values_serve_others() {
    let kernel = formula(|k, x| (0..12).fold(x, |x, _| products(k, x, 40) * k.constant(1e-6_f32.into())));
    for level in [WideIsa::Avx2, WideIsa::Avx512] {
        assert!(matches!(code(&kernel, level, FEW, 1), Some(Some(_))), "one vector at {level:?} fits");
    }
    assert_eq!(check(&kernel, &random_inputs(&kernel, 1), "formulas in turn"), 2 * levels().len());
}

/// Sines of large numbers are computed out of line, between values that lie in slots.
#[test]
fn code_out_of_line_finds_and_leaves_what_lies_in_slots() {
    let kernel = prepared(&formula(|k, x| {
        let large = x * k.constant(1e6_f32.into());
        (0..3).fold(x, |y, n| {
            let [a, b] = [y, large * k.constant((1.0 + n as f32).into())].map(|x| products(k, x, 12));
            a.sin() * b.sin() + y
        })
    }));
    let n_cold = LoopForm::of_nest(&schedule(&kernel).nests[0]).cold.all.len();
    assert!(n_cold >= 6, "{n_cold} parts out of line");
    assert_eq!(check(&kernel, &random_inputs(&kernel, 1), "sines between slots"), 2 * levels().len());
}

/// Selects of one condition whose sides are computed out of line leave more results than there are registers.
#[test]
fn results_of_one_branch_may_be_more_than_registers() {
    let kernel = formula(|k, x| {
        let is_large = x.gt(0.5);
        // The sides that are computed at every point stand before the selects.
        let small: Vec<Value<'_>> = (0..40).map(|n| x * x.like(n.into())).collect();
        let large: Vec<Value<'_>> = (0..40).map(|n| products(k, x * k.constant((1.5 + n as f32).into()), 8)).collect();
        let chosen: Vec<Value<'_>> = large.into_iter().zip(small).map(|(x, y)| is_large.select(x, y)).collect();
        (1..40).fold(chosen[0] * chosen[39], |sum, n| sum * 0.5 + chosen[n] * chosen[39 - n])
    });
    assert_eq!(LoopForm::of_nest(&schedule(&kernel).nests[0]).cold.all.len(), 1);
    assert_eq!(check(&kernel, &random_inputs(&kernel, 1), "selects of one condition"), 2 * levels().len());
}

/// Long formulas of which each instruction waits for the one before, and such as have many that wait for none.
#[test]
fn long_chains_take_turns() {
    let chain = formula(|k, x| (0..400).fold(x, |y, n| y * x + k.constant((n as f32).into())));
    let wide = formula(|k, x| products(k, x, 200));
    for level in [WideIsa::Avx2, WideIsa::Avx512] {
        let of = |kernel: &Kernel| chains(&LoopForm::of_nest(&schedule(kernel).nests[0]), level);
        assert_eq!([of(&chain), of(&wide)], [3, 1]);
    }
    for (kernel, name) in [(&chain, "a long chain"), (&wide, "a wide formula")] {
        assert!(check(kernel, &random_inputs(kernel, 1), name) >= levels().len());
    }
}

/// Parts out of line run one at a time, so that a frame has room for many.
#[test]
fn code_out_of_line_shares_slots() {
    let kernel = prepared(&formula(|_, x| (0..40).fold(x, |y, _| (y * 1.5).sin() + x)));
    assert_eq!(LoopForm::of_nest(&schedule(&kernel).nests[0]).cold.all.len(), 40);
    for level in [WideIsa::Avx2, WideIsa::Avx512] {
        assert!(matches!(code(&kernel, level, u32::MAX, usize::MAX), Some(Some(_))), "{level:?}");
    }
    assert!(check(&kernel, &random_inputs(&kernel, 1), "sines in turn") >= levels().len());
}
