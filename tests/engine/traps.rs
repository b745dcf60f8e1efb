//! Mistakes that other tracers make silently: here each is an error that names the line, or simply right, or said on
//! the first page and shown by a test. One line per trap, with the test that holds it:
//!
//! - a branch on a traced value: `tests/engine/traps.rs: a_branch_on_a_traced_value_is_an_error`
//! - a loop whose count depends on a value: `tests/engine/traps.rs: a_loop_count_cannot_come_from_a_value`
//! - a value read inside the closure: `tests/engine/traps.rs: reading_a_value_inside_is_an_error_even_if_ignored`
//! - random numbers frozen into the trace: `tests/engine/traps.rs: random_numbers_follow_their_key`
//! - random numbers of a host generator: `tests/engine/traps.rs: a_host_generator_is_frozen_as_documented`
//! - a mean over a data-dependent selection: `tests/engine/traps.rs: a_mean_over_a_selection_follows_the_mask`
//! - a captured tensor changed between calls:
//!   `tests/engine/cache.rs: a_captured_tensor_is_a_listed_input_and_keeps_its_value`
//! - a captured scalar changed between calls: `tests/engine/traps.rs: a_captured_scalar_keeps_its_value_as_documented`
//! - a changed capture that nobody notices: `tests/engine/traps.rs: what_changed_behind_the_closure_is_found_by_checks`
//! - a changed number that nobody looks for: `tests/engine/stale.rs: a_number_that_changes_is_found_by_the_next_hit`
//! - a closure that waits for a call of its function:
//!   `tests/process/patience.rs: a_closure_that_always_joins_a_call_of_itself_is_an_error`
//! - side effects skipped on hits: `tests/engine/traps.rs: side_effects_happen_while_tracing_only_as_documented`
//! - printing skipped on hits: `tests/engine/debug_print.rs: every_call_prints_and_the_value_is_handed_on`
//! - a traced tensor kept beyond its trace: `tests/engine/traps.rs: a_traced_tensor_that_is_kept_is_an_error`
//! - a re-created closure compiled again: `tests/process/code_memory.rs: re_created_closures_share_code`
//! - a re-created closure traced again: `tests/engine/traps.rs: re_created_closures_are_told`
//! - results overwritten by the next call: `tests/engine/traps.rs: results_of_many_calls_keep_their_values`
//! - results that alias arguments: `tests/engine/cache.rs: results_never_share_memory`
//! - two threads with one signature tracing twice: `tests/engine/cache.rs: threads_that_need_one_trace_wait_for_it`
//! - a partial last batch tracing every epoch: `tests/engine/traps.rs: a_partial_last_batch_makes_two_entries`
//! - a number that changes tracing every call: `tests/engine/cache.rs: numbers_are_inputs`
//! - thousands of shapes filling memory: `tests/process/code_memory.rs: many_shapes_stay_within_bounds`
//! - a cache cleared while other threads call: `tests/engine/traps.rs: clearing_and_resizing_while_threads_call`

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};

use retape::data::{MiniBatches, Partial};
use retape::random::{self, Key};
use retape::{AdviceKind, BisectCause, Check, DType, Error, MissReason, OnDifference, Tensor, accelerate};

/// The message of a failed call, which names a line of this file.
#[track_caller]
fn message<R>(result: retape::Result<R>, line: u32) -> String {
    let Err(error) = result else { panic!("the call goes well") };
    let message = error.to_string();
    assert!(message.contains(&format!("traps.rs:{line}:")), "{message}");
    message
}

fn floats(x: &Tensor) -> Vec<f32> {
    x.to_vec().unwrap()
}

/// The list above names tests that there are.
#[test]
fn every_trap_has_its_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
    let own = read("tests/engine/traps.rs");
    let head: Vec<&str> = own.lines().take_while(|line| line.starts_with("//!")).collect();
    let named: Vec<&str> = head.iter().flat_map(|line| line.split('`').skip(1).step_by(2)).collect();
    assert_eq!(named.len(), head.iter().filter(|line| line.starts_with("//! - ")).count());
    for name in named {
        let (file, function) = name.split_once(": ").unwrap();
        assert!(read(file).contains(&format!("fn {function}(")), "{file} has no {function}");
    }
}

#[test]
fn a_branch_on_a_traced_value_is_an_error() {
    let at = line!() + 2;
    let f = accelerate(|x: &Tensor| {
        let positive = x.sum(..).gt(0.0_f32).item::<bool>().unwrap();
        if positive { x.clone() } else { -x }
    });
    // The panic of the closure is only a consequence.
    let message = message(f.call(Tensor::ones([2])), at);
    assert!(message.starts_with("item: the tensor is being traced and has no value yet; use `select`"), "{message}");
    assert_eq!(f.stats().entries.len(), 0, "nothing wrong is kept");

    let right = accelerate(|x: &Tensor| x.sum(..).gt(0.0_f32).select(x, -x));
    for (x, expected) in [([1.0_f32, 2.0], [1.0, 2.0]), ([-1.0, -2.0], [1.0, 2.0])] {
        assert_eq!(floats(&right.call(Tensor::from(x)).unwrap()), expected);
    }
    assert_eq!(right.stats().misses, 1, "both branches are in one trace");
}

#[test]
fn a_loop_count_cannot_come_from_a_value() {
    let at = line!() + 2;
    let f = accelerate(|x: &Tensor, n: &Tensor| {
        let n = n.item::<i64>().unwrap_or(3); // no value, so no count: not even this default
        (0..n).fold(x.clone(), |x, _| x * 2.0_f32)
    });
    let message = message(f.call(Tensor::ones([1]), Tensor::from(5_i64)), at);
    assert!(message.contains("pass a static argument to steer the trace"), "{message}");

    let right = accelerate(|x: &Tensor, n: &usize| (0..*n).fold(x.clone(), |x, _| x * 2.0_f32));
    for (n, expected) in [(2, 4.0), (3, 8.0), (2, 4.0)] {
        assert_eq!(floats(&right.call(Tensor::ones([1]), n).unwrap()), [expected]);
    }
    assert_eq!((right.stats().hits, right.stats().misses), (1, 2), "each count is a trace of its own");
}

#[test]
fn reading_a_value_inside_is_an_error_even_if_ignored() {
    let at = line!() + 2;
    let f = accelerate(|x: &Tensor| {
        let sum: f32 = x.to_vec::<f32>().unwrap_or_default().iter().sum();
        x / sum
    });
    let message = message(f.call(Tensor::ones([2])), at);
    assert!(message.starts_with("to_vec: "), "{message}");
    assert!(message.contains("or return the tensor and read it outside"), "{message}");
    // Shapes and dtypes are known while tracing, and are part of the signature.
    let mean = accelerate(|x: &Tensor| x.sum(..) / x.n_elements() as f32);
    for n in [2, 5] {
        assert_eq!(mean.call(Tensor::full([n], 3.0_f32)).unwrap().item::<f32>().unwrap(), 3.0);
    }
}

#[test]
fn random_numbers_follow_their_key() {
    let draw = accelerate(|key: &Key| random::normal(key, [8], DType::F32));
    let numbers = |key: &Key| floats(&draw.call(key).unwrap());
    let (first, second) = (Key::new(1), Key::new(2));
    let ones = numbers(&first);
    assert_ne!(ones, numbers(&second), "another key draws anew, on a hit too");
    assert_eq!(ones, numbers(&first), "the same key draws the same");
    assert_eq!((draw.stats().hits, draw.stats().misses), (2, 1));

    // A key that goes in and comes out, so that no call repeats another.
    let step = accelerate(|key: &Key| {
        let [now, next] = key.split();
        (random::uniform(&now, [4], DType::F32), next)
    });
    let (mut key, mut drawn) = (Key::new(3), vec![]);
    for _ in 0..5 {
        let (numbers, next) = step.call(&key).unwrap();
        let numbers = floats(&numbers);
        assert!(!drawn.contains(&numbers));
        drawn.push(numbers);
        key = next;
    }
    assert_eq!((step.stats().hits, step.stats().misses), (4, 1));
}

#[test]
fn a_host_generator_is_frozen_as_documented() {
    // A key that is captured is a constant, and listed with the line that used it.
    let key = Key::new(7);
    let at = line!() + 1;
    let captured = accelerate(|x: &Tensor| x + random::uniform(&key, [2], DType::F32));
    let x = Tensor::zeros([2]);
    assert_eq!(floats(&captured.call(&x).unwrap()), floats(&captured.call(&x).unwrap()));
    let captures = &captured.stats().entries[0].captures;
    assert_eq!(captures.len(), 1);
    assert!(captures[0].contains(&format!("traps.rs:{at}:")), "{}", captures[0]);

    // A number of the host is part of the trace, and drawn when tracing.
    let host = Mutex::new(retape::data::Random::new(1, 2, 3));
    let noisy = accelerate(|x: &Tensor| x + host.lock().unwrap().unit());
    let x = Tensor::from([0.0_f64]);
    let read = |y: Tensor| y.item::<f64>().unwrap();
    let first = read(noisy.call(&x).unwrap());
    assert_eq!(first, read(noisy.call(&x).unwrap()));
    noisy.clear_cache();
    assert_ne!(first, read(noisy.call(&x).unwrap()));
    // The un-accelerated path runs the closure, and draws, every time.
    noisy.configure(|options| options.enabled = false);
    assert_ne!(read(noisy.call(&x).unwrap()), read(noisy.call(&x).unwrap()));
}

#[test]
fn a_mean_over_a_selection_follows_the_mask() {
    let f = accelerate(|x: &Tensor, threshold: &Tensor| {
        let chosen = x.gt(threshold);
        let count = chosen.cast(DType::F32).sum(..);
        let mean = chosen.select(x, 0.0_f32).sum(..) / &count;
        let slope: Tensor = mean.grad(x);
        (mean, count, slope)
    });
    let x = Tensor::from([1.0_f32, 2.0, 3.0, 6.0]);
    let cases = [
        (1.5_f32, 11.0_f32 / 3.0, 3.0, [0.0, 1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0]),
        (2.5, 4.5, 2.0, [0.0, 0.0, 0.5, 0.5]),
        (0.0, 3.0, 4.0, [0.25; 4]),
    ];
    for (threshold, mean, count, slope) in cases {
        let (found, n, gradient) = f.call(&x, threshold).unwrap();
        assert_eq!((found.item::<f32>().unwrap(), n.item::<f32>().unwrap()), (mean, count));
        assert_eq!(floats(&gradient), slope);
    }
    assert_eq!((f.stats().hits, f.stats().misses), (2, 1));
}

#[test]
fn a_captured_scalar_keeps_its_value_as_documented() {
    let rate = AtomicU32::new(2.0_f32.to_bits());
    let f = accelerate(|x: &Tensor| x * f32::from_bits(rate.load(SeqCst)));
    let x = Tensor::ones([2]);
    assert_eq!(floats(&f.call(&x).unwrap()), [2.0; 2]);
    rate.store(3.0_f32.to_bits(), SeqCst);
    assert_eq!(floats(&f.call(&x).unwrap()), [2.0; 2], "a hit does not enter the closure");
    f.clear_cache();
    assert_eq!(floats(&f.call(&x).unwrap()), [3.0; 2], "a trace does");

    // As an argument it is an input.
    let right = accelerate(|x: &Tensor, rate: &Tensor| x * rate);
    for rate in [2.0_f32, 3.0] {
        assert_eq!(floats(&right.call(&x, rate).unwrap()), [rate; 2]);
    }
    assert_eq!(right.stats().misses, 1);
}

/// A scalar, a tensor, a branch on the world outside, and a random number of the host.
#[test]
fn what_changed_behind_the_closure_is_found_by_checks() {
    let check = Check { on_difference: OnDifference::Err, ..Check::default() };
    let x = Tensor::from([1.0_f32, 2.0]);

    let rate = AtomicU32::new(2.0_f32.to_bits());
    let at = line!() + 1;
    let scaled = accelerate(|x: &Tensor| x * f32::from_bits(rate.load(SeqCst)));
    scaled.configure(|options| options.check = check.into());
    assert_eq!(floats(&scaled.call(&x).unwrap()), [2.0, 4.0]);
    rate.store(3.0_f32.to_bits(), SeqCst);
    let Err(Error::Check(found)) = scaled.call(&x) else { panic!("the old rate is used") };
    assert_eq!((&*found.got, &*found.expected), ("2.0", "3.0"));
    let cause = scaled.bisect(&x).unwrap().cause;
    assert!(matches!(cause, BisectCause::TraceChanged { at: Some(line), .. } if line.line() == at), "{cause}");

    let weights = Mutex::new(Tensor::from([1.0_f32, 1.0]));
    let at = line!() + 1;
    let weighted = accelerate(|x: &Tensor| (x * &*weights.lock().unwrap()).sum(..));
    weighted.configure(|options| options.check = check.into());
    weighted.call(&x).unwrap();
    *weights.lock().unwrap() = Tensor::from([1.0_f32, 5.0]);
    assert!(matches!(weighted.call(&x), Err(Error::Check(_))));
    let cause = weighted.bisect(&x).unwrap().cause;
    let BisectCause::CaptureChanged { at: line, element, .. } = cause else { panic!("{cause}") };
    assert_eq!((line.line(), element), (at, Some(1)));

    let is_on = AtomicBool::new(false);
    let switched = accelerate(|x: &Tensor| if is_on.load(SeqCst) { x.exp() } else { x.square() });
    switched.configure(|options| options.check = check.into());
    switched.call(&x).unwrap();
    is_on.store(true, SeqCst);
    assert!(matches!(switched.call(&x), Err(Error::Check(_))));

    let host = Mutex::new(retape::data::Random::new(4, 5, 6));
    let noisy = accelerate(|x: &Tensor| x + host.lock().unwrap().unit() as f32);
    noisy.configure(|options| options.check = check.into());
    // Already the first call: the closure draws once for the trace and once for the comparison.
    assert!(matches!(noisy.call(&x), Err(Error::Check(_))));
}

#[test]
fn side_effects_happen_while_tracing_only_as_documented() {
    let entered = AtomicUsize::new(0);
    let f = accelerate(|x: &Tensor| {
        entered.fetch_add(1, SeqCst);
        x + x
    });
    // Once for the trace, and now and then to see whether it still holds.
    for _ in 0..5 {
        f.call(Tensor::ones([2])).unwrap();
    }
    let looked = f.stats().checks.stale_checks as usize;
    assert_eq!(entered.load(SeqCst), 1 + looked);
    assert!(looked < 5);
    f.configure(|options| options.stale_check = false);
    for _ in 0..5 {
        f.call(Tensor::ones([2])).unwrap();
    }
    assert_eq!(entered.load(SeqCst), 1 + looked);
    f.configure(|options| options.enabled = false);
    for _ in 0..5 {
        f.call(Tensor::ones([2])).unwrap();
    }
    assert_eq!(entered.load(SeqCst), 6 + looked);
}

#[test]
fn a_traced_tensor_that_is_kept_is_an_error() {
    let kept = Mutex::new(None);
    let f = accelerate(|x: &Tensor| {
        let y = x * 2.0_f32;
        *kept.lock().unwrap() = Some(y.clone());
        y
    });
    let x = Tensor::ones([2]);
    f.call(&x).unwrap();
    let kept = kept.lock().unwrap().take().unwrap();
    let at = line!() + 1;
    assert!(message((&kept + 1.0_f32).to_vec::<f32>(), at).contains("its trace had ended"));
    let at = line!() + 1;
    assert!(message(kept.to_vec::<f32>(), at).contains("its trace had ended"));
    let called = f.call(&kept).and_then(|y| y.to_vec::<f32>());
    assert!(matches!(called, Err(Error::Escaped { .. })), "{called:?}");
}

/// Each function has a cache of its own, so each traces; the cost is a trace, and advice tells of it.
#[test]
fn re_created_closures_are_told() {
    let at = line!() + 1;
    let make = || accelerate(|x: &Tensor| x.sum(..));
    let all: Vec<_> = (0..6)
        .map(|_| {
            let f = make();
            f.call(Tensor::ones([5])).unwrap();
            f.advice()
        })
        .collect();
    assert_eq!(all[0], []);
    let last = &all[5][0];
    assert_eq!((all[5].len(), last.kind), (1, AdviceKind::RecreatedFunction));
    assert!(last.message.contains("6 functions were accelerated at"), "{last}");
    assert!(last.message.contains(&format!("traps.rs:{at}:")), "{last}");
    assert!(last.message.contains("accelerate once, outside the loop"), "{last}");
}

#[test]
fn results_of_many_calls_keep_their_values() {
    let f = accelerate(|x: &Tensor| {
        let y = x.square();
        (y.sum(..), y, x.clone())
    });
    let call = |k: usize| f.call(Tensor::full([100], k as f32)).unwrap();
    let held: Vec<_> = (0..100).map(call).collect();
    for (k, (sum, squares, same)) in held.iter().enumerate() {
        let k = k as f32;
        assert_eq!(sum.item::<f32>().unwrap(), 100.0 * k * k);
        assert_eq!((floats(squares), floats(same)), (vec![k * k; 100], vec![k; 100]));
    }
    assert_eq!(f.stats().misses, 1);
}

#[test]
fn a_partial_last_batch_makes_two_entries() {
    let f = accelerate(|x: &Tensor| x.mean(..));
    let batches = MiniBatches::new(10, 4).unwrap().shuffled(1).partial(Partial::Keep);
    for epoch in 0..5 {
        for batch in batches.epoch(epoch).iter() {
            f.call(Tensor::ones([batch.len(), 3])).unwrap();
        }
    }
    let stats = f.stats();
    assert_eq!((stats.entries.len(), stats.misses, stats.hits), (2, 2, 13));
    let second = &f.explain()[1];
    assert_eq!(
        (second.reason, second.differences[0].to_string()),
        (MissReason::NewShape, "argument 0 axis 0: 4 -> 2".into())
    );
    assert_eq!(f.advice(), [], "two shapes are no mistake");

    // Without it there is one.
    f.clear_cache();
    for batch in batches.partial(Partial::Discard).epoch(5).iter() {
        f.call(Tensor::ones([batch.len(), 3])).unwrap();
    }
    assert_eq!(f.stats().entries.len(), 1);
}

/// Calls from four threads, while a fifth clears the cache and changes its capacity.
#[test]
fn clearing_and_resizing_while_threads_call() {
    const CALLS: usize = 200;
    let captured = Tensor::from(3.0_f32);
    let f = accelerate(|x: &Tensor| (x * &captured).sum(..));
    let call = &|k: usize| {
        let (n, value) = (1 + k % 5, (k % 7) as f32);
        let sum = f.call(Tensor::full([n], value)).unwrap();
        assert_eq!(sum.item::<f32>().unwrap(), 3.0 * value * n as f32);
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clearing = scope.spawn(|| {
            let mut n = 0;
            while !done.load(SeqCst) {
                f.configure(|options| options.capacity = 1 + n % 3);
                f.clear_cache();
                n += 1;
                std::thread::yield_now();
            }
            n
        });
        let calling: Vec<_> =
            (0..4).map(|thread| scope.spawn(move || (0..CALLS).for_each(|k| call(k + thread)))).collect();
        for thread in calling {
            thread.join().unwrap();
        }
        done.store(true, SeqCst);
        assert!(clearing.join().unwrap() > 0);
    });
    let stats = f.stats();
    assert_eq!(stats.hits + stats.misses, 4 * CALLS as u64, "every call is one hit or one miss");
    assert!(stats.entries.len() <= 3);
}
