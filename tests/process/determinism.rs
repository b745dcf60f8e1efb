//! The switch of determinism is part of the signature, and on the processor it changes no bit.
//!
//! It belongs to the process, so each test has one of its own. Its effects on a GPU are tested in `tests/gpu`.

use retape::{
    Error, MathMode, MissReason, Tensor, accelerate, deterministic, set_deterministic, tree::same_bits, value_and_grad,
};
use retape_runtime::live_code_bytes;

use crate::is_own_process;

/// Updates of many magnitudes for few rows, and where they go.
fn updates() -> (Tensor, Tensor) {
    let indices: Vec<i64> = (0..400).map(|k| k * k % 7 % 3).collect();
    let updates: Vec<f32> = (0..400).map(|k| (k as f32).sin() * 10_f32.powi(k % 7 - 3)).collect();
    (Tensor::from_vec(indices, [400]).unwrap(), Tensor::from_vec(updates, [400]).unwrap())
}

fn scattered(x: &Tensor, indices: &Tensor, updates: &Tensor) -> Tensor {
    x.scatter_add(0, indices, updates)
}

#[test]
fn the_switch_returns_what_was_set_before() {
    if !is_own_process("determinism::the_switch_returns_what_was_set_before") {
        return;
    }
    assert!(deterministic(), "the default");
    let previous = set_deterministic(false);
    assert!(previous && !deterministic());
    assert!(!set_deterministic(false) && !deterministic());
    assert!(!set_deterministic(previous) && deterministic());
    assert!(set_deterministic(true) && deterministic());
    // It is that of every thread.
    std::thread::spawn(|| assert!(set_deterministic(false))).join().unwrap();
    assert!(!deterministic());
}

#[test]
fn a_change_is_a_miss_that_says_so() {
    if !is_own_process("determinism::a_change_is_a_miss_that_says_so") {
        return;
    }
    let f = accelerate(scattered);
    let (indices, updates) = updates();
    let x = Tensor::zeros([3]);
    let call = || f.call(&x, &indices, &updates).unwrap();
    let on = call();
    let code = live_code_bytes();
    let previous = set_deterministic(false);
    let off = call();
    assert!(same_bits(&on, &off).unwrap(), "the processor has one order");
    assert_eq!(live_code_bytes(), code, "and one code");
    assert!(same_bits(&on, &call()).unwrap());
    assert_eq!((f.stats().misses, f.stats().hits), (2, 1));
    let miss = &f.explain()[1];
    assert_eq!(miss.reason, MissReason::ModeChanged);
    let text = miss.to_string();
    assert!(text.contains("mode_changed, the function mode: usual -> nondeterministic algorithms"), "{text}");
    // Modes add up.
    f.configure(|options| options.math = MathMode::Fast);
    call();
    let text = f.explain()[2].to_string();
    assert!(text.contains("mode: nondeterministic algorithms -> fast math, nondeterministic algorithms"), "{text}");
    f.configure(|options| options.math = MathMode::Strict);
    // Each state finds its own entry again.
    for (is_on, hits) in [(true, 2), (false, 3), (previous, 4)] {
        set_deterministic(is_on);
        call();
        assert_eq!((f.stats().misses, f.stats().hits), (3, hits));
    }
    let texts: Vec<String> = f.stats().entries.iter().map(|entry| entry.signature.to_string()).collect();
    assert_eq!(texts.iter().filter(|text| text.ends_with("; nondeterministic algorithms")).count(), 2, "{texts:?}");
}

#[test]
fn a_locked_function_refuses_the_state_that_it_has_no_entry_for() {
    if !is_own_process("determinism::a_locked_function_refuses_the_state_that_it_has_no_entry_for") {
        return;
    }
    let f = accelerate(|x: &Tensor| x * 2.0);
    let x = Tensor::ones([3]);
    f.call(&x).unwrap();
    f.configure(|options| options.locked = true);
    set_deterministic(false);
    let Err(Error::Cache(text)) = f.call(&x) else { panic!("an entry was made") };
    assert!(text.contains("locked cache") && text.contains("mode: usual -> nondeterministic algorithms"), "{text}");
    set_deterministic(true);
    f.call(&x).unwrap();
}

#[test]
fn pinned_entries_stay_what_they_are() {
    if !is_own_process("determinism::pinned_entries_stay_what_they_are") {
        return;
    }
    let f = accelerate(|x: &Tensor| x * 2.0);
    let x = Tensor::ones([3]);
    let on = f.pin(&x).unwrap();
    set_deterministic(false);
    let off = f.pin(&x).unwrap();
    assert_eq!(f.stats().misses, 2);
    for is_on in [false, true] {
        set_deterministic(is_on);
        on.call(&x).unwrap();
        off.call(&x).unwrap();
    }
    assert_eq!(on.signature().to_string(), "f32[3]");
    assert_eq!(off.signature().to_string(), "f32[3]; nondeterministic algorithms");
    assert_eq!((f.stats().misses, f.stats().hits), (2, 0));
}

#[test]
fn artefacts_keep_the_state() {
    if !is_own_process("determinism::artefacts_keep_the_state") {
        return;
    }
    let (indices, updates) = updates();
    let x = Tensor::zeros([3]);
    let make = || accelerate(scattered);
    let first = make();
    set_deterministic(false);
    let expected = first.call(&x, &indices, &updates).unwrap();
    let mut bytes = vec![];
    assert_eq!(first.save_to(&mut bytes).unwrap().entries, 1);
    for (is_on, counts) in [(false, (1, 0)), (true, (0, 1))] {
        let second = make();
        assert_eq!(second.load_from(&bytes[..]).unwrap().entries, 1);
        let text = second.stats().entries[0].signature.to_string();
        assert!(text.ends_with("; nondeterministic algorithms"), "{text}");
        set_deterministic(is_on);
        let found = second.call(&x, &indices, &updates).unwrap();
        assert!(same_bits(&found, &expected).unwrap());
        assert_eq!((second.stats().hits, second.stats().misses), counts);
    }
}

#[test]
fn every_way_to_run_knows_the_state() {
    if !is_own_process("determinism::every_way_to_run_knows_the_state") {
        return;
    }
    let (indices, updates) = updates();
    let x = Tensor::zeros([3]);
    let f =
        accelerate(|x: &Tensor, indices: &Tensor, updates: &Tensor| scattered(x, indices, updates).square().sum(..));
    let all = || {
        let (value, gradient) =
            value_and_grad(|updates: &Tensor| f.call(&x, &indices, updates).unwrap(), &updates).unwrap();
        f.configure(|options| options.trap_nonfinite = true);
        let trapped = f.call(&x, &indices, &updates).unwrap();
        f.configure(|options| options.trap_nonfinite = false);
        f.configure(|options| options.profiling = true);
        let profiled = f.call(&x, &indices, &updates).unwrap();
        f.configure(|options| options.profiling = false);
        f.configure(|options| options.enabled = false);
        let plain = f.call(&x, &indices, &updates).unwrap();
        f.configure(|options| options.enabled = true);
        (value, gradient, trapped, profiled, plain, scattered(&x, &indices, &updates))
    };
    let on = all();
    // One entry for the call in the gradient and outside, and one with the trap.
    assert_eq!(f.stats().misses, 2);
    let code = live_code_bytes();
    set_deterministic(false);
    let off = all();
    assert_eq!(f.stats().misses, 4);
    assert!(same_bits(&on, &off).unwrap(), "{on:?} {off:?}");
    assert_eq!(live_code_bytes(), code, "all code is shared");
}

#[test]
fn threads_may_change_it_while_others_call() {
    if !is_own_process("determinism::threads_may_change_it_while_others_call") {
        return;
    }
    let (indices, updates) = updates();
    let x = Tensor::zeros([3]);
    let f = accelerate(scattered);
    let expected = f.call(&x, &indices, &updates).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (f, x, indices, updates, expected) = (&f, &x, &indices, &updates, &expected);
            scope.spawn(move || {
                for turn in 0..50 {
                    set_deterministic((thread + turn) % 2 == 0);
                    assert!(same_bits(&f.call(x, indices, updates).unwrap(), expected).unwrap());
                }
            });
        }
    });
    assert_eq!((f.stats().misses, f.stats().hits), (2, 199));
}
