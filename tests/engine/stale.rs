//! Closures that depend on something which is no argument: hits find it, and it is told; honest closures raise no alarm.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::heard::Listener;
use crate::printed;
use retape::nn::{self, BatchNorm, BatchNormState, Conv2d, LayerNorm, Lstm, Mask};
use retape::ops::ConvOptions;
use retape::random::{self, Key};
use retape::{
    Accelerated, Advice, AdviceKind, Check, DType, Function, OnDifference, OnRetrace, Static, Tensor, Tree, accelerate,
    value_and_grad,
};
use retape_report::prometheus;

fn floats(x: &Tensor) -> Vec<f32> {
    x.to_vec().unwrap()
}

fn ones() -> Tensor {
    Tensor::ones([2])
}

fn stale<F: Function<Args, R>, Args, R: Tree>(f: &Accelerated<F, Args, R>) -> Vec<Advice> {
    f.advice().into_iter().filter(|advice| advice.kind == AdviceKind::StaleTrace).collect()
}

/// The one piece of advice, which names a line of this file.
#[track_caller]
fn told<F: Function<Args, R>, Args, R: Tree>(f: &Accelerated<F, Args, R>, line: u32) -> String {
    let found = stale(f);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].subject.contains(&format!("stale.rs:{line}:")), "{:?}", found[0]);
    assert!(found[0].message.contains("depends on something that is no argument"), "{}", found[0]);
    found[0].message.clone()
}

/// A closure that reads what may change; `line` is that of its op.
struct Case {
    rate: AtomicU32,
    is_on: AtomicBool,
    weights: Mutex<Tensor>,
    n: AtomicUsize,
}

impl Case {
    fn new() -> Case {
        let weights = Mutex::new(Tensor::from([1.0_f32, 2.0]));
        Case { rate: AtomicU32::new(0.5_f32.to_bits()), is_on: AtomicBool::new(false), weights, n: AtomicUsize::new(2) }
    }

    fn rate(&self) -> f32 {
        f32::from_bits(self.rate.load(SeqCst))
    }
}

#[test]
fn a_number_that_changes_is_found_by_the_next_hit() {
    let case = Case::new();
    let at = line!() + 1;
    let f = accelerate(|x: &Tensor| (x * case.rate()).exp()).named("f");
    let first = floats(&f.call(ones()).unwrap());
    case.rate.store(0.25_f32.to_bits(), SeqCst);
    // The hit returns what the entry computes.
    assert_eq!(floats(&f.call(ones()).unwrap()), first);
    let message = told(&f, at);
    assert!(message.starts_with(&format!("constant 0.5 became 0.25 at {}:{at}:", file!())), "{message}");
    assert!(message.contains("calls with (f32[2]) go on") && message.contains("make it an argument"), "{message}");
    let stats = f.stats();
    assert_eq!((stats.hits, stats.misses, stats.checks.stale_checks, stats.checks.stale), (1, 1, 1, 1));
    assert_eq!(stats.advice.len(), 1);
    assert!(stats.to_string().contains("stale      1 of 1"), "{stats}");
    let metrics = prometheus(&[&stats]);
    assert!(metrics.contains("retape_cache_stale_total{function=\"f\"} 1"), "{}", metrics);
    // Of an entry that was found stale, no more hits enter the closure.
    for _ in 0..70 {
        assert_eq!(floats(&f.call(ones()).unwrap()), first);
    }
    assert_eq!(f.stats().checks.stale_checks, 1);
    f.clear_cache();
    assert_ne!(floats(&f.call(ones()).unwrap()), first, "a new entry is made with the number of now");
}

/// Another op goes on with the old number, or had the new one before.
#[test]
fn a_number_that_others_share_is_found() {
    for (plus, by) in [(0.5_f32, 4.0_f32), (4.0, 4.0)] {
        let case = Case::new();
        let f = accelerate(|x: &Tensor| x * case.rate() + plus);
        f.call(ones()).unwrap();
        case.rate.store(by.to_bits(), SeqCst);
        f.call(ones()).unwrap();
        let message = told(&f, line!() - 4);
        assert!(message.starts_with("constant 0.5 became 4.0 at "), "{message}");
    }
}

#[test]
fn captured_tensors_that_are_replaced_are_found() {
    let case = Case::new();
    let at = line!() + 1;
    let f = accelerate(|x: &Tensor| x * &*case.weights.lock().unwrap());
    for _ in 0..2 {
        assert_eq!(floats(&f.call(ones()).unwrap()), [1.0, 2.0]);
        // Another tensor with the same elements is none that matters.
        *case.weights.lock().unwrap() = Tensor::from([1.0_f32, 2.0]);
    }
    assert_eq!((stale(&f), f.stats().checks.stale_checks), (vec![], 1));
    *case.weights.lock().unwrap() = Tensor::from([1.0_f32, 5.0]);
    assert_eq!(floats(&f.call(ones()).unwrap()), [1.0, 2.0]);
    let message = told(&f, at);
    assert!(message.contains("has other elements, 5.0 at 1 was 2.0"), "{message}");

    // A view of the same bytes, made anew on each trace, is the same; one of another shape or dtype is not.
    let weights = Mutex::new(Tensor::from([[1.0_f32, 2.0]]));
    let at = line!() + 1;
    let viewed = accelerate(|x: &Tensor| (x * &weights.lock().unwrap().reshape([2])).sum(..));
    (0..4).for_each(|_| drop(viewed.call(ones()).unwrap()));
    assert!(viewed.stats().checks.stale_checks > 0 && stale(&viewed).is_empty());
    *weights.lock().unwrap() = Tensor::from([[1.0_f64, 2.0]]);
    (0..4).for_each(|_| drop(viewed.call(ones()).unwrap()));
    // The op does not fit any more, and what does not work twice is nobody's affair.
    assert_eq!((stale(&viewed), at > 0), (vec![], true));
}

/// Each tensor is compared with all that the entry has, and none of these comparisons may go on beyond a difference.
#[test]
fn many_tensors_that_are_replaced_are_found_in_no_time() {
    const N: usize = 100;
    let made = |first: f32| (0..N).map(|n| Tensor::full([1 << 17], first + n as f32)).collect::<Vec<_>>();
    let weights = RefCell::new(made(0.0));
    let f = accelerate(|x: &Tensor| weights.borrow().iter().map(|w| (w * x).sum(..)).sum::<Tensor>());
    f.call(1.0_f32).unwrap();
    *weights.borrow_mut() = made(N as f32);
    let start = Instant::now();
    f.call(1.0_f32).unwrap();
    assert_eq!((stale(&f).len(), f.stats().checks.stale_checks), (1, 1));
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[test]
fn branches_and_loops_on_the_world_outside_are_found() {
    let case = Case::new();
    let at = line!() + 1;
    let branch = accelerate(|x: &Tensor| if case.is_on.load(SeqCst) { x.exp() } else { x.square() });
    let at_loop = line!() + 1;
    let unrolled = accelerate(|x: &Tensor| (0..case.n.load(SeqCst)).fold(x.clone(), |y, _| y.sin()));
    let attribute = accelerate(|x: &Tensor| x.slice(&[0], &[case.n.load(SeqCst)], &[1]));
    let x = Tensor::ones([4]);
    for _ in 0..2 {
        branch.call(&x).unwrap();
        unrolled.call(&x).unwrap();
        attribute.call(&x).unwrap();
    }
    assert!(stale(&branch).is_empty() && stale(&unrolled).is_empty() && stale(&attribute).is_empty());
    case.is_on.store(true, SeqCst);
    case.n.store(3, SeqCst);
    (0..4).for_each(|_| drop((branch.call(&x), unrolled.call(&x), attribute.call(&x))));
    assert!(told(&branch, at).starts_with("`mul` became `exp` at "), "{:?}", stale(&branch));
    let message = told(&unrolled, at_loop);
    assert!(message.contains("`%3 = sin %2 : f32[4]` is recorded, too, by now at "), "{message}");
    let message = told(&attribute, at_loop + 1);
    assert!(message.contains("slice") && message.contains("became"), "{message}");
}

#[test]
fn other_results_of_the_same_ops_are_found() {
    let case = Case::new();
    let which = accelerate(|x: &Tensor| {
        let both = [x.exp(), x.square()];
        both[usize::from(case.is_on.load(SeqCst))].clone()
    });
    let fixed = accelerate(|x: &Tensor| (x.clone(), Static(case.rate()), case.weights.lock().unwrap().clone()));
    let (_, number, weights) = fixed.call(ones()).unwrap();
    assert_eq!((number.0, floats(&weights)), (0.5, vec![1.0, 2.0]));
    which.call(ones()).unwrap();
    case.is_on.store(true, SeqCst);
    case.rate.store(2.0_f32.to_bits(), SeqCst);
    assert_eq!(fixed.call(ones()).unwrap().1.0, 0.5);
    which.call(ones()).unwrap();
    let found = stale(&fixed);
    assert!(found[0].message.starts_with("result[1] value: 0.5 -> 2"), "{found:?}");
    assert!(stale(&which)[0].message.starts_with("`exp` became `mul`"), "{:?}", stale(&which));

    let fixed = accelerate(|x: &Tensor| (x.clone(), case.weights.lock().unwrap().clone()));
    fixed.call(ones()).unwrap();
    *case.weights.lock().unwrap() = Tensor::from([1.0_f32, 3.0]);
    fixed.call(ones()).unwrap();
    assert!(
        stale(&fixed)[0].message.starts_with("result[1] has other elements, 3.0 at 1 was 2.0"),
        "{:?}",
        stale(&fixed)
    );
}

/// Everything here is done anew on each trace, and says the same.
#[test]
fn honest_closures_raise_no_alarm() {
    let weights = Tensor::from([1.0_f32, 2.0]);
    let captured_key = Key::new(4);
    let made_inside = accelerate(|x: &Tensor| {
        let scale = (Tensor::from([0.5_f32, f32::NAN]) + &weights) * 3.0_f32;
        x * scale * weights.reshape([2]) + f32::NAN
    });
    let random = accelerate(|x: &Tensor, key: &Key| {
        let noise = random::normal(key, [2], DType::F32) + random::uniform(&captured_key, [2], DType::F32);
        nn::dropout(&(x + noise), key, 0.5, true)
    });
    let keyed = accelerate(|x: &Tensor, mode: &String, n: &usize| {
        let y = (0..*n).fold(x.clone(), |y, _| y * 2.0_f32);
        let loss = if mode == "mean" { y.mean(..) } else { y.sum(..) };
        (loss.grad(x), loss)
    });
    // In another order on each trace; an unused op now and then.
    let turn = AtomicUsize::new(0);
    let named = [("a", Tensor::from([1.0_f32, 2.0])), ("b", Tensor::from([3.0_f32, 4.0])), ("c", Tensor::ones([2]))];
    let shuffled = accelerate(|x: &Tensor| {
        let n = turn.fetch_add(1, SeqCst);
        let weights: HashMap<&str, &Tensor> = named.iter().map(|(name, weight)| (*name, weight)).collect();
        let results: BTreeMap<String, Tensor> =
            weights.iter().map(|(name, w)| ((*name).into(), (x * *w).exp())).collect();
        let mut pair = [&results["a"], &results["b"]];
        pair.rotate_left(n % 2);
        if n.is_multiple_of(3) {
            let _unused = x.tanh();
        }
        (pair[0] + pair[1], results)
    });
    for n in 0..20_u32 {
        made_inside.call(ones()).unwrap();
        random.call(ones(), Key::new(u64::from(n))).unwrap();
        keyed.call(ones() * n as f32, "mean".to_owned(), 3).unwrap();
        shuffled.call(ones()).unwrap();
    }
    let checks = [made_inside.stats(), random.stats(), keyed.stats(), shuffled.stats()];
    for stats in &checks {
        assert!(stats.checks.stale_checks >= 1 && stats.checks.stale == 0 && stats.advice.is_empty(), "{stats}");
    }
}

#[test]
fn a_sum_in_another_order_is_another_computation() {
    let turn = AtomicUsize::new(0);
    let f = accelerate(|x: &Tensor| {
        let mut parts = [x.exp(), x.sin(), x.cos()];
        parts.rotate_left(turn.fetch_add(1, SeqCst));
        parts.iter().fold(Tensor::zeros([2]), |sum, part| sum + part)
    });
    (0..2).for_each(|_| drop(f.call(ones()).unwrap()));
    assert_eq!(stale(&f).len(), 1);
}

#[test]
fn layers_raise_no_alarm() {
    let (conv, norm, lstm) = (Conv2d::new(1, [3, 3], 2, 3), BatchNorm::new(3), Lstm::new(3, 4, 4));
    let layer_norm = LayerNorm::new(4);
    let heads = |x: &Tensor| x.reshape([1, 5, 2, 2]);
    let layers = accelerate(|x: &Tensor, state: &BatchNormState, h: &Tensor, c: &Tensor, key: &Key| {
        let (y, state) = norm.apply(&conv.apply(x, ConvOptions::default()), state);
        let (h, c) = lstm.step(&layer_norm.apply(h), (h, c));
        let a = nn::attention(&heads(&h), &heads(&h), &heads(&c), 0.5, Mask::Causal);
        (nn::dropout(&y, key, 0.3, true).relu(), state, a, h, c)
    });
    let mut state = BatchNormState::new(3);
    let (mut h, mut c) = (Tensor::ones([5, 4]), Tensor::zeros([5, 4]));
    for n in 0..5 {
        (_, state, _, h, c) = layers.call(Tensor::ones([2, 5, 5, 2]), state, h, c, Key::new(n)).unwrap();
    }
    assert!(layers.stats().checks.stale_checks > 0 && layers.advice().is_empty(), "{}", layers.stats());
}

#[test]
fn no_hit_looks_where_it_is_switched_off_or_locked() {
    let (case, entered) = (Case::new(), AtomicUsize::new(0));
    let f = accelerate(|x: &Tensor| {
        entered.fetch_add(1, SeqCst);
        x * case.rate()
    });
    assert!(f.options().stale_check);
    f.configure(|options| options.stale_check = false);
    let calls = |n: usize| (0..n).for_each(|_| drop(f.call(ones()).unwrap()));
    calls(70);
    assert_eq!((entered.load(SeqCst), f.options().stale_check), (1, false));
    f.configure(|options| options.stale_check = true);
    f.configure(|options| options.locked = true);
    calls(70);
    let pinned = f.pin(ones()).unwrap();
    (0..70).for_each(|_| drop(pinned.call(ones()).unwrap()));
    assert_eq!(entered.load(SeqCst), 1);
    f.configure(|options| options.locked = false);
    let mut file = vec![];
    f.save_to(&mut file).unwrap();
    assert_eq!(f.stats().checks.stale_checks, 0);

    // Where retraces are errors, looking is none.
    f.configure(|options| options.retrace = OnRetrace::Error.into());
    let g = accelerate(|x: &Tensor| x * case.rate());
    g.configure(|options| options.retrace = OnRetrace::Error.into());
    g.call(ones()).unwrap();
    g.call(ones()).unwrap();
    assert_eq!((g.stats().misses, g.stats().checks.stale_checks), (1, 1));
}

/// An artefact's captured tensors are the other process's, and the closure of this one need not have them.
#[test]
fn entries_of_artefacts_are_not_looked_at() {
    let entered = AtomicUsize::new(0);
    let make = |weights: Tensor| {
        let entered = &entered;
        accelerate(move |x: &Tensor| {
            entered.fetch_add(1, SeqCst);
            x * &weights
        })
    };
    let (trained, served) = (make(Tensor::from([3.0_f32, 4.0])), make(ones()));
    trained.call(ones()).unwrap();
    let mut file = vec![];
    trained.save_to(&mut file).unwrap();
    served.load_from(&file[..]).unwrap();
    (0..70).for_each(|_| assert_eq!(floats(&served.call(ones()).unwrap()), [3.0, 4.0]));
    assert_eq!((entered.load(SeqCst), served.stats().checks.stale_checks), (1, 0));
}

#[test]
fn calls_that_give_arguments_away_look_as_well() {
    let case = Case::new();
    // Large enough for results to take their memory.
    let step = accelerate(|w: &Tensor, g: &Tensor| w - g * case.rate());
    let (mut w, g) = (Tensor::zeros([20_000]), Tensor::ones([20_000]));
    w = step.call(w, &g).unwrap();
    case.rate.store(8.0_f32.to_bits(), SeqCst);
    for n in 2..6 {
        w = step.call(w, &g).unwrap();
        assert_eq!(w.mean(..).item::<f32>().unwrap(), -0.5 * n as f32);
    }
    assert_eq!((stale(&step).len(), step.stats().hits), (1, 4));
}

#[test]
fn a_closure_that_fails_the_second_time_fails_no_call() {
    for panics in [false, true] {
        let entered = AtomicUsize::new(0);
        let f = accelerate(|x: &Tensor| match (entered.fetch_add(1, SeqCst), panics) {
            (0, _) => x + 1.0_f32,
            (_, false) => x + Tensor::ones([3]),
            (_, true) => panic!("entered again"),
        });
        (0..70).for_each(|_| assert_eq!(floats(&f.call(ones()).unwrap()), [2.0, 2.0]));
        // Once: it is not tried again and again.
        assert_eq!((entered.load(SeqCst), stale(&f)), (2, vec![]));
        assert_eq!((f.stats().hits, f.stats().misses), (69, 1));
    }
}

/// A result whose tree does not read back or write itself twice.
#[test]
fn a_tree_that_panics_the_second_time_fails_no_call() {
    static WRITTEN: AtomicUsize = AtomicUsize::new(0);

    struct Once(Tensor);

    impl Tree for Once {
        fn write<'t>(&'t self, to: &mut retape::Writer<'t>) {
            assert!(WRITTEN.fetch_add(1, SeqCst) == 0, "written again");
            self.0.write(to);
        }

        fn read(from: &mut retape::Reader<'_>) -> retape::Result<Once> {
            Ok(Once(Tensor::read(from)?))
        }
    }

    let f = accelerate(|x: &Tensor| Once(x + 1.0_f32));
    (0..9).for_each(|_| assert_eq!(floats(&f.call(ones()).unwrap().0), [2.0, 2.0]));
    assert_eq!((WRITTEN.load(SeqCst), f.stats().checks.stale_checks), (2, 1));
}

#[test]
fn what_a_closure_prints_and_calls_leaves_no_second_mark() {
    printed::listen();
    let label = "stale:";
    let scale = Tensor::from([2.0_f32]);
    let inner = accelerate(|x: &Tensor| x + 1.0_f32);
    inner.configure(|options| options.profiling = true);
    let (listener, _listening) = Listener::here();
    let f = accelerate(|x: &Tensor| {
        tracing::info!(target: "retape", name = "user", "the closure is entered");
        let scale = inner.call(scale.debug_print(&format!("{label} concrete"))).unwrap();
        x.debug_print(&format!("{label} traced")) * scale
    });
    (0..5).for_each(|_| assert_eq!(floats(&f.call(ones()).unwrap()), [3.0, 3.0]));
    assert!(f.stats().checks.stale_checks > 1, "{}", f.stats());
    // The concrete tensor prints while tracing, the traced one on each call.
    let lines = printed::taken(label);
    let n = |name: &str| lines.iter().filter(|line| line.starts_with(name)).count();
    assert_eq!((n("concrete"), n("traced")), (1, 5), "{lines:?}");
    let heard = listener.heard();
    assert_eq!(heard.iter().filter(|heard| heard.fields.get("name").is_some_and(|name| name == "user")).count(), 1);
    let stats = inner.stats();
    assert_eq!((stats.hits, stats.misses, stats.hit_latency.n_timed, inner.profile().calls.len()), (0, 1, 0, 1));

    // A comparison of check mode and a bisection print no more than the call does, either.
    f.configure(|options| options.check = (Check { on_difference: OnDifference::Err, ..Check::default() }).into());
    f.call(ones()).unwrap();
    f.bisect(ones()).unwrap();
    assert_eq!(printed::taken(label), ["traced: f32[2] [1.0, 1.0]"]);
    assert_eq!((inner.stats().hits, inner.stats().misses), (0, 1));
}

#[test]
fn calls_inside_gradients_look_as_well() {
    let case = Case::new();
    let f = accelerate(|x: &Tensor| (x * case.rate()).sum(..));
    let slope = || value_and_grad(|x: &Tensor| f.call(x).unwrap(), &ones()).unwrap().1;
    assert_eq!(floats(&slope()), [0.5, 0.5]);
    case.rate.store(4.0_f32.to_bits(), SeqCst);
    assert_eq!(floats(&slope()), [0.5, 0.5]);
    assert_eq!(stale(&f).len(), 1);
    assert_eq!((f.stats().hits, f.stats().misses), (1, 1));
}

#[test]
fn watched_calls_look_as_well_and_say_so_in_the_profile() {
    let case = Case::new();
    let (listener, _listening) = Listener::here();
    let f = accelerate(|x: &Tensor| x * case.rate());
    f.configure(|options| options.profiling = true);
    f.configure(|options| options.trap_nonfinite = true);
    f.call(ones()).unwrap();
    case.rate.store(4.0_f32.to_bits(), SeqCst);
    assert_eq!(floats(&f.call(ones()).unwrap()), [0.5, 0.5]);
    let profile = f.profile();
    let names: Vec<&str> = profile.calls[1].spans.iter().map(|span| &*span.name).collect();
    assert!(names.contains(&"stale check"), "{names:?}");
    let advice: Vec<_> = listener.heard().into_iter().filter(|heard| heard.name == "retape::advice").collect();
    assert_eq!(advice.len(), 1);
    assert_eq!(advice[0].fields["kind"], "stale_trace");
    assert!(advice[0].fields["subject"].contains("stale.rs"), "{advice:?}");
}

#[test]
fn many_threads_look_and_one_tells() {
    let case = Arc::new(Case::new());
    let own = Arc::clone(&case);
    let f = accelerate(move |x: &Tensor| x * own.rate());
    f.call(ones()).unwrap();
    std::thread::scope(|scope| {
        for n in 0..8_u32 {
            let (f, case) = (&f, &case);
            scope.spawn(move || {
                for k in 0..200_u32 {
                    case.rate.store(((n * 1000 + k) as f32).to_bits(), SeqCst);
                    assert_eq!(floats(&f.call(ones()).unwrap()), [0.5, 0.5]);
                }
            });
        }
    });
    let stats = f.stats();
    assert_eq!((stats.hits, stats.misses, stats.checks.stale, stale(&f).len()), (1600, 1, 1, 1));
}
