//! Pinned entries and locked caches: the calls they run, the calls they refuse, and the changes they survive.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use retape::{
    Check, CheckMode, Error, Form, OnDifference, Pinned, Reader, Static, Tensor, Tree, Writer, accelerate,
    value_and_grad,
};

fn ones(shape: &[usize]) -> Tensor {
    Tensor::ones(shape.to_vec())
}

fn numbers(x: &Tensor) -> Vec<f32> {
    x.to_vec().unwrap()
}

#[derive(Clone, Debug, Tree)]
struct Params {
    w: Tensor,
    b: Tensor,
}

#[test]
fn a_pinned_entry_gives_the_bits_of_a_call() {
    let step = accelerate(|p: &Params, x: &Tensor| {
        let loss = (x.matmul(&p.w) + &p.b).tanh().sum(..);
        let grad: Params = loss.grad(p);
        (loss, grad)
    });
    let params = Params { w: Tensor::from([[0.1_f32], [0.7]]), b: Tensor::from([0.3_f32]) };
    let x = Tensor::from([[1.0_f32, 2.0], [3.0, -4.0], [0.5, 0.0]]);
    let pinned = step.pin(&params, &x).unwrap();
    assert_eq!((step.stats().misses, step.stats().hits), (1, 0));
    assert_eq!(*pinned.signature(), step.signature(&params, &x));
    for _ in 0..3 {
        let (expected, found) = (step.call(&params, &x).unwrap(), pinned.call(&params, &x).unwrap());
        assert_eq!(numbers(&found.0), numbers(&expected.0));
        assert_eq!(numbers(&found.1.w), numbers(&expected.1.w));
        assert_eq!(numbers(&found.1.b), numbers(&expected.1.b));
    }
    // Calls of the handle are no lookups.
    assert_eq!((step.stats().misses, step.stats().hits), (1, 3));
}

#[test]
fn results_of_a_pinned_entry_are_their_own() {
    let pinned = accelerate(|x: &Tensor| x * 2.0).pin(ones(&[3])).unwrap();
    let first = pinned.call(ones(&[3])).unwrap();
    let second = pinned.call(Tensor::zeros([3])).unwrap();
    assert_eq!((numbers(&first), numbers(&second)), (vec![2.0; 3], vec![0.0; 3]));
}

#[track_caller]
fn refused<R: std::fmt::Debug>(result: retape::Result<R>, parts: &[&str]) {
    let Err(Error::Cache(message)) = &result else { panic!("{result:?}") };
    for part in parts {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn other_signatures_are_refused_with_what_differs() {
    let entered = AtomicUsize::new(0);
    let f = accelerate(|xs: &Vec<Tensor>, p: &BTreeMap<String, Tensor>, twice: &bool, rate: &Static<f32>| {
        entered.fetch_add(1, SeqCst);
        let sum = xs.iter().fold(p["k"].clone(), |sum, x| sum + x);
        if *twice { sum * rate.0 * 2.0 } else { sum * rate.0 }
    });
    let xs = vec![ones(&[2, 3]), ones(&[2, 3])];
    let p = BTreeMap::from([("k".to_owned(), ones(&[3]))]);
    let pinned = f.pin(&xs, &p, true, Static(0.5)).unwrap();
    assert_eq!(numbers(&pinned.call(&xs, &p, true, Static(0.5)).unwrap()), [3.0; 6]);

    let shape = vec![ones(&[2, 3]), ones(&[2, 4])];
    refused(pinned.call(&shape, &p, true, Static(0.5)), &["argument 0[1] axis 1: 3 -> 4", "tests/engine/pinned.rs:"]);
    let dtype = vec![ones(&[2, 3]), ones(&[2, 3]).cast(retape::DType::F64)];
    refused(pinned.call(&dtype, &p, true, Static(0.5)), &["argument 0[1] dtype: f32 -> f64"]);
    refused(pinned.call(xs[..1].to_vec(), &p, true, Static(0.5)), &["argument 0 structure: length 2 -> length 1"]);
    let key = BTreeMap::from([("k2".to_owned(), ones(&[3]))]);
    refused(pinned.call(&xs, &key, true, Static(0.5)), &["argument 1"]);
    refused(pinned.call(&xs, &p, false, Static(0.5)), &["argument 2 value: true -> false"]);
    refused(pinned.call(&xs, &p, true, Static(0.25)), &["argument 3 value: 0.5 -> 0.25"]);
    // A refusal neither traces nor spoils anything.
    assert_eq!(entered.load(SeqCst), 1);
    assert_eq!(numbers(&pinned.call(&xs, &p, true, Static(0.5)).unwrap()), [3.0; 6]);
}

/// A tree that says less of itself than its words do.
#[derive(Clone)]
struct Terse(u64);

impl Tree for Terse {
    fn write<'t>(&'t self, to: &mut Writer<'t>) {
        to.word(self.0);
    }

    fn read(from: &mut Reader<'_>) -> retape::Result<Self> {
        from.word().map(Terse)
    }
}

#[test]
fn a_difference_that_nobody_describes_is_refused_all_the_same() {
    let pinned = accelerate(|x: &Tensor, n: &Terse| x * n.0 as f32).pin(ones(&[1]), Terse(2)).unwrap();
    assert_eq!(numbers(&pinned.call(ones(&[1]), Terse(2)).unwrap()), [2.0]);
    refused(pinned.call(ones(&[1]), Terse(3)), &["its own signature"]);
}

#[test]
fn poisoned_and_traced_arguments_are_errors() {
    let double = accelerate(|x: &Tensor| x + x);
    let pinned = double.pin(ones(&[2])).unwrap();
    let poisoned = ones(&[2]).matmul(&ones(&[3]));
    assert!(matches!(pinned.call(&poisoned), Err(Error::Type { op: "matmul", .. })));
    assert!(matches!(double.pin(&poisoned), Err(Error::Type { op: "matmul", .. })));

    let outer = accelerate(|x: &Tensor| match pinned.call(x) {
        Ok(y) => y,
        Err(error) => {
            assert!(error.to_string().contains("inside a trace"), "{error}");
            x * 3.0
        }
    });
    assert_eq!(numbers(&outer.call(ones(&[2])).unwrap()), [3.0; 2]);
    let outer = accelerate(|x: &Tensor| {
        assert!(double.pin(x).unwrap_err().to_string().contains("inside a trace"));
        double.call(x).unwrap()
    });
    assert_eq!(numbers(&outer.call(ones(&[2])).unwrap()), [2.0; 2]);
}

#[test]
fn a_traced_tensor_that_outlived_its_trace_is_said_to_be_one() {
    let double = accelerate(|x: &Tensor| x + x);
    let pinned = double.pin(ones(&[2])).unwrap();
    let kept = std::cell::RefCell::new(None);
    accelerate(|x: &Tensor| {
        *kept.borrow_mut() = Some(x.clone());
        x.clone()
    })
    .call(ones(&[2]))
    .unwrap();
    let kept = kept.into_inner().unwrap();
    for error in [pinned.call(&kept).unwrap_err(), double.pin(&kept).unwrap_err()] {
        let Error::Escaped { message, at, .. } = error else { panic!("{error}") };
        assert!(message.contains("after its trace had ended") && at.file() == "tests/engine/pinned.rs", "{message}");
    }
}

#[test]
fn a_handle_made_while_the_function_traps_has_the_trap() {
    let f = accelerate(|x: &Tensor| x.log().sum(..));
    let (good, bad) = (|| ones(&[2]), || Tensor::from([1.0_f32, -1.0]));
    let plain = f.pin(good()).unwrap();
    f.configure(|options| options.trap_nonfinite = true);
    let trapped = f.pin(good()).unwrap();
    assert_eq!(trapped.signature().to_string(), "f32[2]; trap for non-finite values");
    assert_eq!((f.stats().entries.len(), f.stats().misses), (2, 2));
    assert_eq!(numbers(&trapped.call(good()).unwrap()), [0.0]);
    // It is the entry of the function's own calls.
    f.call(good()).unwrap();
    assert_eq!((f.stats().hits, f.stats().misses), (1, 2));
    for is_on in [true, false] {
        f.configure(|options| options.trap_nonfinite = is_on);
        let called = line!() + 1;
        let error = trapped.call(bad()).unwrap_err();
        let Error::NonFinite(found) = error else { panic!("{error}") };
        assert_eq!((found.op, found.first, found.called_at.line()), ("log", 1, called));
        assert!(found.group.contains("reduce_sum"), "{found}");
        assert!(numbers(&plain.call(bad()).unwrap())[0].is_nan(), "a handle without a trap stays without");
    }
    assert_eq!(f.stats().checks.trapped, 2);
    refused(
        trapped.call(ones(&[3])),
        &["argument 0 axis 0: 2 -> 3", "trap for non-finite values", "tests/engine/pinned.rs:"],
    );
    assert!(matches!(trapped.call(ones(&[2]).matmul(&ones(&[3]))), Err(Error::Type { op: "matmul", .. })));
}

#[test]
fn a_quarantine_stops_handles_with_a_trap_too() {
    let scale = AtomicUsize::new(2);
    let f = accelerate(|x: &Tensor| x * scale.load(SeqCst) as f32);
    f.configure(|options| options.trap_nonfinite = true);
    let pinned = f.pin(ones(&[2])).unwrap();
    f.configure(|options| options.check = (Check { on_difference: OnDifference::FallBack, ..Check::default() }).into());
    scale.store(3, SeqCst);
    assert_eq!(numbers(&f.call(ones(&[2])).unwrap()), [3.0; 2]);
    refused(f.pin(ones(&[2])), &["quarantine"]);
    refused(pinned.call(ones(&[2])), &["quarantine"]);
    f.clear_cache();
    refused(pinned.call(ones(&[2])), &["quarantine"]);
}

#[test]
fn a_pinned_entry_is_not_evicted_until_its_last_handle_goes() {
    let double = accelerate(|x: &Tensor| x + x);
    double.configure(|options| options.capacity = 2);
    let pinned = double.pin(ones(&[1])).unwrap();
    let again = double.pin(ones(&[1])).unwrap();
    assert!(pinned.is_in_cache() && again.is_in_cache());
    let is_there = || double.text(&double.signature(ones(&[1])), Form::Graph).is_ok();
    for n in 2..6 {
        double.call(ones(&[n])).unwrap();
    }
    assert!(is_there());
    drop(pinned);
    for n in 2..6 {
        double.call(ones(&[n])).unwrap();
    }
    assert!(is_there(), "another handle holds it");
    assert_eq!(double.stats().entries.iter().filter(|entry| entry.is_pinned).count(), 1);
    drop(again);
    for n in 2..6 {
        double.call(ones(&[n])).unwrap();
    }
    assert!(!is_there());
}

#[test]
fn a_handle_survives_clearing_and_the_function() {
    let double = accelerate(|x: &Tensor| x + x);
    let pinned = double.pin(ones(&[1])).unwrap();
    double.clear_cache();
    assert_eq!(double.stats().entries.len(), 0);
    assert!(!pinned.is_in_cache());
    assert_eq!(numbers(&pinned.call(7.0_f32).map_err(|e| e.to_string()).unwrap_or(ones(&[1]))), [1.0]);
    assert_eq!(numbers(&pinned.call(ones(&[1])).unwrap()), [2.0]);
    // The function makes its own entry again, and the two do not disturb each other.
    double.call(ones(&[1])).unwrap();
    assert_eq!((double.stats().misses, double.stats().entries.len()), (2, 1));
    assert!(!pinned.is_in_cache(), "that entry is another one");
    let anew = double.pin(ones(&[1])).unwrap();
    assert!(anew.is_in_cache());
    drop(double);
    assert!(!anew.is_in_cache());
    assert_eq!(numbers(&pinned.call(ones(&[1])).unwrap()), [2.0]);
}

#[test]
fn what_has_no_room_in_the_cache_is_pinned_outside_it() {
    let double = accelerate(|x: &Tensor| x + x);
    double.configure(|options| options.capacity = 1);
    let first = double.pin(ones(&[1])).unwrap();
    let second = double.pin(ones(&[2])).unwrap();
    assert!(first.is_in_cache() && !second.is_in_cache());
    assert_eq!(numbers(&second.call(ones(&[2])).unwrap()), [2.0; 2]);
    assert_eq!(double.stats().entries.len(), 1);
}

#[test]
fn a_handle_is_called_from_many_threads_at_once() {
    fn shared<T: Send + Sync + 'static>(_: &T) {}
    let pinned: Pinned<(Tensor, Tensor), Tensor> =
        accelerate(|x: &Tensor, y: &Tensor| x.matmul(y)).pin(ones(&[4, 4]), ones(&[4, 4])).unwrap();
    shared(&pinned);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let pinned = &pinned;
            scope.spawn(move || {
                let x = Tensor::full([4, 4], thread as f32);
                for _ in 0..200 {
                    assert_eq!(numbers(&pinned.call(&x, ones(&[4, 4])).unwrap()), [4.0 * thread as f32; 16]);
                }
            });
        }
    });
}

#[test]
fn what_is_in_quarantine_is_neither_pinned_nor_run() {
    let scale = AtomicUsize::new(2);
    let f = accelerate(|x: &Tensor| x * scale.load(SeqCst) as f32);
    let (before, other) = (f.pin(ones(&[2])).unwrap(), f.pin(ones(&[3])).unwrap());
    f.clear_cache();
    let pinned = f.pin(ones(&[2])).unwrap();
    f.configure(|options| options.check = (Check { on_difference: OnDifference::FallBack, ..Check::default() }).into());
    scale.store(3, SeqCst);
    assert_eq!(numbers(&f.call(ones(&[2])).unwrap()), [3.0; 2]);
    f.configure(|options| options.check = CheckMode::Never);
    refused(f.pin(ones(&[2])), &["f32[2]", "quarantine", "tests/engine/pinned.rs:"]);
    refused(pinned.call(ones(&[2])), &["f32[2]", "quarantine", "tests/engine/pinned.rs:"]);
    refused(before.call(ones(&[2])), &["quarantine"]);
    // Other signatures are not concerned.
    assert_eq!(numbers(&other.call(ones(&[3])).unwrap()), [2.0; 3]);
    // Clearing lifts it, but not from the very entry that was found wrong.
    f.clear_cache();
    refused(pinned.call(ones(&[2])), &["quarantine"]);
    assert_eq!(numbers(&before.call(ones(&[2])).unwrap()), [2.0; 2]);
    assert_eq!(numbers(&f.pin(ones(&[2])).unwrap().call(ones(&[2])).unwrap()), [3.0; 2]);
}

#[test]
fn a_difference_in_a_gradient_stops_handles_too() {
    let scale = AtomicUsize::new(2);
    let f = accelerate(|x: &Tensor| x * scale.load(SeqCst) as f32);
    let pinned = f.pin(ones(&[2])).unwrap();
    f.configure(|options| options.check = (Check { on_difference: OnDifference::FallBack, ..Check::default() }).into());
    scale.store(3, SeqCst);
    let (_, gradient) = value_and_grad(|x: &Tensor| f.call(x).unwrap().sum(..), &ones(&[2])).unwrap();
    assert_eq!(numbers(&gradient), [3.0; 2]);
    f.clear_cache();
    refused(pinned.call(ones(&[2])), &["quarantine"]);
}

#[test]
fn a_disabled_function_has_handles_that_run() {
    let double = accelerate(|x: &Tensor| x + x);
    double.configure(|options| options.enabled = false);
    let pinned = double.pin(ones(&[2])).unwrap();
    assert_eq!((double.stats().misses, numbers(&pinned.call(ones(&[2])).unwrap())), (1, vec![2.0; 2]));
}

#[test]
fn a_locked_cache_enters_no_closure() {
    let entered = AtomicUsize::new(0);
    let double = accelerate(|x: &Tensor| {
        entered.fetch_add(1, SeqCst);
        x + x
    });
    assert!(!double.options().locked);
    double.configure(|options| options.locked = true);
    refused(double.call(ones(&[2])), &["locked", "first_call", "tests/engine/pinned.rs:"]);
    refused(double.pin(ones(&[2])), &["locked"]);
    double.configure(|options| options.locked = false);
    double.call(ones(&[2])).unwrap();
    double.configure(|options| options.locked = true);
    assert!(double.options().locked);
    double.call(ones(&[2])).unwrap();
    double.pin(ones(&[2])).unwrap().call(ones(&[2])).unwrap();
    refused(double.call(ones(&[2, 2])), &["locked", "new_shape", "argument 0 rank: 1 [2] -> 2 [2, 2]"]);
    assert_eq!(entered.load(SeqCst), 1);
    // The refusal is a miss like any other, in the counters and in the log.
    let last = double.explain().pop().unwrap();
    assert!(last.error.unwrap().contains("locked"));
    double.clear_cache();
    refused(double.call(ones(&[2])), &["locked", "cleared"]);
    // A call that looks nothing up is not locked.
    double.configure(|options| options.enabled = false);
    assert_eq!(numbers(&double.call(ones(&[2])).unwrap()), [2.0; 2]);
}
