//! Check mode, quarantine and bisection of functions whose closures have changed since they were traced.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crate::printed;
use retape::ops::{Op, Sample, SampleArg};
use retape::{
    Accelerated, BisectCause, Check, CheckMode, CheckWhen, Error, Graph, OnDifference, Static, Tensor, Tolerance, Tree,
    accelerate,
};

#[derive(Clone, Tree)]
struct Outcome {
    loss: Tensor,
    gradient: Tensor,
    steps: usize,
    order: Tensor,
}

/// The state outside that a closure sees.
#[derive(Clone)]
struct World {
    weights: Arc<Mutex<Tensor>>,
    scale: Arc<Mutex<f32>>,
    steps: Arc<AtomicUsize>,
    n_entered: Arc<AtomicUsize>,
}

impl World {
    fn new() -> World {
        World {
            weights: Arc::new(Mutex::new(Tensor::from([1.0_f32, 2.0, 3.0]))),
            scale: Arc::new(Mutex::new(2.0)),
            steps: Arc::new(AtomicUsize::new(7)),
            n_entered: Arc::default(),
        }
    }
}

/// The line of the product with the captured tensor.
const PRODUCT: u32 = line!() + 8;

fn train(world: World) -> Accelerated<impl Fn(&Tensor) -> Outcome, (Tensor,), Outcome> {
    accelerate(move |x: &Tensor| {
        world.n_entered.fetch_add(1, Relaxed);
        let weights = world.weights.lock().unwrap().clone();
        let scale = *world.scale.lock().unwrap();
        let shifted = (x + 1.0).tanh();
        let loss = (shifted * &weights * scale).square().mean(..);
        let gradient = loss.grad(x);
        let order = gradient.argmax(0);
        Outcome { loss, gradient, steps: world.steps.load(Relaxed), order }
    })
}

fn x() -> Tensor {
    Tensor::from([0.5_f32, -0.25, 0.125])
}

fn check(when: CheckWhen, on_difference: OnDifference) -> Check {
    Check { when, on_difference, ..Check::default() }
}

#[test]
fn modes_are_what_was_set() {
    let step = train(World::new());
    assert_eq!(step.options().check, CheckMode::Never);
    assert_eq!(step.options().tolerance, Tolerance { absolute: 1e-6, relative: 1e-4, ulps: 0 });
    let mode = Check { tolerance: Tolerance::EXACT, ..check(CheckWhen::OneIn(3), OnDifference::Err) };
    step.configure(|options| options.check = mode.into());
    assert_eq!(step.options().check, CheckMode::Check(mode));
    assert_eq!(step.options().tolerance, Tolerance::EXACT);
    step.configure(|options| options.tolerance = 1e-3.into());
    assert_eq!(step.options().check, CheckMode::Check(Check { tolerance: Tolerance::from(1e-3), ..mode }));
    step.configure(|options| options.check = CheckMode::Never);
    assert_eq!((step.options().check, step.options().tolerance), (CheckMode::Never, Tolerance::from(1e-3)));
}

#[test]
fn an_unchanged_function_passes_every_check_even_exactly() {
    let world = World::new();
    let step = train(world.clone());
    step.configure(|options| {
        options.check = (Check { tolerance: Tolerance::EXACT, ..check(CheckWhen::Every, OnDifference::Err) }).into()
    });
    for n in 0..5 {
        step.call(x() * n as f32).unwrap();
    }
    let stats = step.stats();
    assert_eq!((stats.hits, stats.misses), (4, 1));
    assert_eq!((stats.checks.checked, stats.checks.differing), (5, 0));
    assert_eq!(world.n_entered.load(Relaxed), 6);
    assert!(step.differences().is_empty());
    assert_eq!(step.bisect(x()).unwrap().cause, BisectCause::None);
}

#[test]
fn nan_equals_nan() {
    let log = accelerate(|x: &Tensor| x.log());
    log.configure(|options| options.check = check(CheckWhen::Every, OnDifference::Err).into());
    let y = log.call(Tensor::from([-1.0_f32, 1.0])).unwrap();
    assert!(y.to_vec::<f32>().unwrap()[0].is_nan());
}

#[test]
fn a_changed_capture_is_an_error_that_names_the_leaf() {
    let world = World::new();
    let step = train(world.clone());
    step.configure(|options| options.check = check(CheckWhen::Every, OnDifference::Err).into());
    step.call(x()).unwrap();
    *world.weights.lock().unwrap() = Tensor::from([1.0_f32, 2.0, 4.0]);
    let line = line!() + 1;
    let error = step.call(x()).err().unwrap();
    let Error::Check(deviation) = &error else { panic!("{error}") };
    assert_eq!((deviation.path.as_str(), deviation.n_tensors), ("result.loss", 2));
    assert_eq!((deviation.at.file(), deviation.at.line()), ("tests/engine/check.rs", line));
    let gap = deviation.gap.as_ref().unwrap();
    assert_eq!((gap.n_elements, gap.n_differing), (1, 1));
    assert!(gap.largest_absolute > 1.0 && gap.largest_relative > 0.1, "{gap}");
    assert!(error.to_string().contains(&deviation.expected) && error.to_string().contains(&deviation.got), "{error}");
    assert_eq!(step.stats().checks.differing, 1);
}

#[test]
fn a_warning_is_on_record_and_the_call_returns_what_the_code_computed() {
    let world = World::new();
    let step = train(world.clone());
    let before = step.call(x()).unwrap();
    step.configure(|options| options.check = check(CheckWhen::Every, OnDifference::Warn).into());
    *world.scale.lock().unwrap() = 3.0;
    let after = step.call(x()).unwrap();
    assert_eq!(before.loss.item::<f32>().unwrap(), after.loss.item::<f32>().unwrap());
    let differences = step.differences();
    assert_eq!(differences.len(), 1);
    assert_eq!(differences[0].path, "result.loss");
    for _ in 0..100 {
        step.call(x()).unwrap();
    }
    assert_eq!((step.differences().len(), step.stats().checks.differing), (64, 101));
}

#[test]
fn a_static_value_of_the_result_that_changed_is_a_difference() {
    let world = World::new();
    let step = train(world.clone());
    step.configure(|options| options.check = check(CheckWhen::Every, OnDifference::Err).into());
    step.call(x()).unwrap();
    world.steps.store(8, Relaxed);
    let Err(Error::Check(deviation)) = step.call(x()) else { panic!() };
    assert_eq!(deviation.path, "result.steps");
    assert_eq!((deviation.expected.as_str(), deviation.got.as_str()), ("8", "7"));
    assert!(deviation.gap.is_none());
}

#[test]
fn integers_are_compared_exactly() {
    let add = Arc::new(Mutex::new(1_i64));
    let seen = Arc::clone(&add);
    let count = accelerate(move |x: &Tensor| x + &Tensor::from([*seen.lock().unwrap()]));
    count.configure(|options| {
        options.check = (Check { tolerance: Tolerance::from(1e9), ..check(CheckWhen::Every, OnDifference::Err) }).into()
    });
    count.call(Tensor::from([1_i64, 2])).unwrap();
    *add.lock().unwrap() = 2;
    assert!(matches!(count.call(Tensor::from([1_i64, 2])), Err(Error::Check { .. })));
}

#[test]
fn a_quarantined_signature_is_served_by_the_closure_until_the_cache_is_cleared() {
    let world = World::new();
    let step = train(world.clone());
    step.call(x()).unwrap();
    step.configure(|options| options.check = check(CheckWhen::Every, OnDifference::FallBack).into());
    let fresh = |scale: f32| {
        let world = World::new();
        *world.scale.lock().unwrap() = scale;
        train(world).call(x()).unwrap().loss.item::<f32>().unwrap()
    };
    *world.scale.lock().unwrap() = 3.0;
    // The checked call itself is served by the closure already.
    assert_eq!(step.call(x()).unwrap().loss.item::<f32>().unwrap(), fresh(3.0));
    // So are later ones, whatever the mode, and even if the entry is gone.
    step.configure(|options| options.check = CheckMode::Never);
    *world.scale.lock().unwrap() = 4.0;
    assert_eq!(step.call(x()).unwrap().loss.item::<f32>().unwrap(), fresh(4.0));
    step.configure(|options| options.capacity = 1);
    *world.weights.lock().unwrap() = Tensor::from([1.0_f32, 2.0]);
    step.call(Tensor::from([1.0_f32, 2.0])).unwrap();
    *world.weights.lock().unwrap() = Tensor::from([1.0_f32, 2.0, 3.0]);
    assert_eq!(step.call(x()).unwrap().loss.item::<f32>().unwrap(), fresh(4.0));
    let stats = step.stats();
    assert_eq!((stats.checks.quarantines, stats.checks.quarantined_calls), (1, 2));
    assert_eq!((stats.hits, stats.misses), (1, 2));
    // Other signatures are not concerned, and clearing the cache lifts it.
    step.clear_cache();
    step.call(x()).unwrap();
    step.call(x()).unwrap();
    let stats = step.stats();
    assert_eq!((stats.checks.quarantined_calls, stats.hits, stats.misses), (2, 2, 3));
}

#[test]
fn a_closure_that_fails_now_is_a_difference() {
    let world = World::new();
    let step = train(world.clone());
    step.call(x()).unwrap();
    *world.weights.lock().unwrap() = Tensor::from([1.0_f32, 2.0]);
    step.configure(|options| options.check = check(CheckWhen::Every, OnDifference::Warn).into());
    step.call(x()).unwrap();
    let found = &step.differences()[0];
    assert!(found.expected.contains("the error `") && found.expected.contains("tests/engine/check.rs"), "{found}");
    step.configure(|options| options.check = check(CheckWhen::Every, OnDifference::Err).into());
    assert!(matches!(step.call(x()), Err(Error::Check { .. })));
    // The closure's result is an error from now on.
    step.configure(|options| options.check = check(CheckWhen::Every, OnDifference::FallBack).into());
    for _ in 0..2 {
        assert!(matches!(step.call(x()), Err(Error::Type { .. })));
    }
    assert_eq!((step.stats().checks.quarantines, step.stats().checks.quarantined_calls), (1, 1));
}

#[test]
fn a_quarantine_begins_once_and_for_all_threads() {
    let world = World::new();
    let step = train(world.clone());
    step.call(x()).unwrap();
    *world.scale.lock().unwrap() = 3.0;
    step.configure(|options| options.check = check(CheckWhen::Every, OnDifference::FallBack).into());
    let expected = {
        let world = World::new();
        *world.scale.lock().unwrap() = 3.0;
        train(world).call(x()).unwrap().loss.item::<f32>().unwrap()
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    assert_eq!(step.call(x()).unwrap().loss.item::<f32>().unwrap(), expected);
                }
            });
        }
    });
    let checks = step.stats().checks;
    // Calls that had begun before are checked too; nobody gets what the code computed.
    assert_eq!(
        (checks.quarantines, checks.checked, checks.checked + checks.quarantined_calls),
        (1, checks.differing, 100)
    );
    std::thread::scope(|scope| {
        for n in 0..4 {
            let step = &step;
            scope.spawn(move || {
                for m in 0..25 {
                    if (n + m) % 10 == 0 {
                        step.clear_cache();
                    }
                    assert_eq!(step.call(x()).unwrap().loss.item::<f32>().unwrap(), expected);
                }
            });
        }
    });
}

#[test]
fn one_in_n_is_exact_over_threads() {
    let step = train(World::new());
    step.call(x()).unwrap();
    step.configure(|options| options.check = check(CheckWhen::OneIn(4), OnDifference::Err).into());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..25).for_each(|_| drop(step.call(x()).unwrap())));
        }
    });
    assert_eq!(step.stats().checks.checked, 25);
}

#[test]
fn the_first_k_calls_of_each_entry_are_checked() {
    let double = accelerate(|x: &Tensor| x + x);
    double.configure(|options| options.check = check(CheckWhen::First(3), OnDifference::Err).into());
    std::thread::scope(|scope| {
        for n in 0..4 {
            let double = &double;
            scope.spawn(move || (0..10).for_each(|_| drop(double.call(Tensor::ones([n % 2 + 1])).unwrap())));
        }
    });
    assert_eq!(double.stats().checks.checked, 6);
}

#[test]
fn the_first_calls_are_those_after_the_mode_was_set() {
    let double = accelerate(|x: &Tensor| x + x);
    let call = |n: usize| (0..n).for_each(|_| drop(double.call(Tensor::ones([2])).unwrap()));
    call(4);
    for n in 1..4 {
        double.configure(|options| options.check = check(CheckWhen::First(2), OnDifference::Err).into());
        call(3);
        // The tolerance is no mode.
        double.configure(|options| options.tolerance = 1e-3.into());
        call(3);
        assert_eq!(double.stats().checks.checked, 2 * n);
        double.configure(|options| options.check = CheckMode::Never);
        call(1);
    }
    for n in 1..4 {
        double.configure(|options| options.check = check(CheckWhen::OneIn(5), OnDifference::Err).into());
        call(3);
        assert_eq!(double.stats().checks.checked, 6 + n, "the first is checked");
        // A mode that stays begins nothing anew.
        double.configure(|options| options.check = check(CheckWhen::OneIn(5), OnDifference::Err).into());
        call(2);
        assert_eq!(double.stats().checks.checked, 6 + n);
        double.configure(|options| options.check = CheckMode::Never);
    }
}

#[test]
fn what_a_checked_call_prints_is_not_printed_twice() {
    // The effect is part of the compiled code; the un-accelerated run that it is compared with leaves it out.
    printed::listen();
    let mut lines = 0;
    let mut printed = || {
        lines += printed::taken("checked ").len();
        lines
    };
    let add = accelerate(|x: &Tensor| x.debug_print("checked x") + 1.0);
    add.configure(|options| options.check = check(CheckWhen::Every, OnDifference::Err).into());
    add.configure(|options| options.trap_nonfinite = true);
    for n in 1..4 {
        assert_eq!(add.call(Tensor::from([1.0_f32])).unwrap().to_vec::<f32>().unwrap(), [2.0]);
        assert_eq!((printed(), add.stats().checks.checked), (n, n as u64));
    }
    // The search for the op that made it is silent, too.
    let log = accelerate(|x: &Tensor| x.debug_print("checked x").log());
    log.configure(|options| options.trap_nonfinite = true);
    assert!(matches!(log.call(Tensor::from([-1.0_f32])), Err(Error::NonFinite { .. })));
    assert_eq!(printed(), 4);
    // And so is bisection, which runs the plan itself, whether it traps or not, and finds what comes after.
    assert_eq!(add.bisect(Tensor::from([1.0_f32])).unwrap().cause, BisectCause::None);
    add.configure(|options| options.trap_nonfinite = false);
    assert_eq!(add.bisect(Tensor::from([1.0_f32])).unwrap().cause, BisectCause::None);
    assert_eq!(printed(), 4);
}

#[test]
fn bisect_finds_a_changed_capture() {
    let world = World::new();
    let step = train(world.clone());
    step.call(x()).unwrap();
    *world.weights.lock().unwrap() = Tensor::from([1.0_f32, 2.5, 3.0]);
    let found = step.bisect(x()).unwrap();
    let BisectCause::CaptureChanged { at, element, .. } = &found.cause else { panic!("{found}") };
    assert_eq!((at.file(), at.line(), *element), ("tests/engine/check.rs", PRODUCT, Some(1)));
    let value = found.value.as_ref().unwrap();
    assert_eq!(value.op, "parameter");
    let group = found.group.as_ref().unwrap();
    assert!(group.label.contains("reduce_sum"), "{found}");
    let gap = found.gap.as_ref().unwrap();
    assert_eq!((gap.n_differing, gap.first), (1, 1));
    assert_eq!((gap.samples[0].expected.to_f64(), gap.samples[0].got.to_f64()), (2.5, 2.0));
    assert!(found.to_string().contains("has changed since the trace, first at element 1"), "{found}");
    // Nothing was counted and nothing cached.
    assert_eq!((step.stats().hits, step.stats().misses), (0, 1));
}

#[test]
fn bisect_finds_a_capture_of_another_shape() {
    let world = World::new();
    let step = train(world.clone());
    step.call(x()).unwrap();
    *world.weights.lock().unwrap() = Tensor::from([2.5_f32]);
    let found = step.bisect(x()).unwrap();
    let BisectCause::CaptureChanged { recorded, now, element, .. } = &found.cause else { panic!("{found}") };
    assert_eq!((recorded.to_string(), now.to_string(), *element), ("f32[3]".into(), "f32[1]".into(), None));
}

#[test]
fn bisect_finds_a_changed_scalar() {
    let world = World::new();
    let step = train(world.clone());
    step.call(x()).unwrap();
    *world.scale.lock().unwrap() = 2.25;
    let found = step.bisect(x()).unwrap();
    let BisectCause::TraceChanged { at, recorded, now, .. } = &found.cause else { panic!("{found}") };
    assert_eq!(at.unwrap().line(), PRODUCT);
    assert!(recorded.contains("splat") && recorded.contains("2.0") && now.contains("2.25"), "{found}");
    assert_eq!(found.value.as_ref().unwrap().op, "splat");
    assert!(found.group.is_some(), "{found}");
    assert_eq!(found.gap.unwrap().largest_absolute, 0.25);
}

#[test]
fn bisect_finds_another_branch() {
    let negate = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&negate);
    let branch = accelerate(move |x: &Tensor| if seen.load(Relaxed) == 0 { x.exp() } else { x.sin() + 1.0 });
    branch.call(x()).unwrap();
    negate.store(1, Relaxed);
    let found = branch.bisect(x()).unwrap();
    let BisectCause::TraceChanged { recorded, now, .. } = &found.cause else { panic!("{found}") };
    assert!(recorded.contains("exp") && now.contains("sin"), "{found}");
    assert_eq!(found.value.unwrap().op, "exp");
}

#[test]
fn bisect_finds_another_result_of_the_same_ops() {
    let swap = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&swap);
    let pair = accelerate(move |x: &Tensor| {
        let (a, b) = (x.exp(), x.sin());
        if seen.load(Relaxed) == 0 { (a, b) } else { (b, a) }
    });
    pair.call(x()).unwrap();
    swap.store(1, Relaxed);
    let found = pair.bisect(x()).unwrap();
    assert!(matches!(found.cause, BisectCause::TraceChanged { .. }), "{found}");
}

#[test]
fn bisect_finds_a_returned_constant_that_changed() {
    let world = World::new();
    let seen = world.clone();
    let pair = accelerate(move |x: &Tensor| (x.exp(), seen.weights.lock().unwrap().clone()));
    pair.configure(|options| options.check = check(CheckWhen::Every, OnDifference::Err).into());
    pair.call(x()).unwrap();
    *world.weights.lock().unwrap() = Tensor::from([1.0_f32, 2.0, -3.0]);
    let Err(Error::Check(deviation)) = pair.call(x()) else { panic!() };
    assert_eq!((deviation.path.as_str(), deviation.n_tensors), ("result[1]", 1));
    let found = pair.bisect(x()).unwrap();
    assert!(matches!(found.cause, BisectCause::TraceChanged { .. }), "{found}");
    assert_eq!(found.gap.unwrap().first, 2);
}

#[test]
fn bisect_finds_another_result_of_no_op_at_all() {
    let flag = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&flag);
    let either = accelerate(move |x: &Tensor, y: &Tensor| if seen.load(Relaxed) == 0 { x.clone() } else { y.clone() });
    let y = Tensor::from([0.5_f32, 1.0, 0.125]);
    either.configure(|options| options.check = check(CheckWhen::Every, OnDifference::Err).into());
    either.call(x(), &y).unwrap();
    assert_eq!(either.bisect(x(), &y).unwrap().cause, BisectCause::None);
    flag.store(1, Relaxed);
    assert!(matches!(either.call(x(), &y), Err(Error::Check { .. })));
    let found = either.bisect(x(), &y).unwrap();
    let BisectCause::TraceChanged { at: None, recorded, now, .. } = &found.cause else { panic!("{found}") };
    assert_eq!((recorded.as_str(), now.as_str()), ("result = %0", "result = %1"));
    let gap = found.gap.unwrap();
    assert_eq!((gap.n_differing, gap.first), (1, 1));
}

#[test]
fn bisect_finds_a_static_value_of_the_result_that_changed() {
    let world = World::new();
    let step = train(world.clone());
    step.configure(|options| options.check = check(CheckWhen::Every, OnDifference::Err).into());
    step.call(x()).unwrap();
    let mut file = vec![];
    step.save_to(&mut file).unwrap();
    world.steps.store(8, Relaxed);
    assert!(matches!(step.call(x()), Err(Error::Check { .. })));
    let found = step.bisect(x()).unwrap();
    let BisectCause::TraceChanged { recorded, now, .. } = &found.cause else { panic!("{found}") };
    assert_eq!((recorded.as_str(), now.as_str()), ("result.steps value: 7", "result.steps value: 8"));
    assert!(found.value.is_none() && found.group.is_none() && found.gap.is_none(), "{found}");
    // An entry that was loaded does not say what its result was called.
    let loaded = train(world.clone());
    loaded.load_from(&file[..]).unwrap();
    let found = loaded.bisect(x()).unwrap();
    let BisectCause::TraceChanged { now, .. } = &found.cause else { panic!("{found}") };
    assert!(now.contains('8'), "{found}");
    world.steps.store(7, Relaxed);
    assert_eq!(loaded.bisect(x()).unwrap().cause, BisectCause::None);
}

#[test]
fn bisect_finds_a_returned_constant_of_another_shape() {
    let world = World::new();
    let seen = world.clone();
    let pair = accelerate(move |x: &Tensor| (x.exp(), seen.weights.lock().unwrap().clone()));
    pair.configure(|options| options.check = check(CheckWhen::Every, OnDifference::Err).into());
    pair.call(x()).unwrap();
    for now in [Tensor::from([1.0_f32, 2.0]), Tensor::from([[1.0_f32, 2.0, 3.0]]), Tensor::from([1_i32, 2, 3])] {
        *world.weights.lock().unwrap() = now;
        assert!(matches!(pair.call(x()), Err(Error::Check { .. })));
        let found = pair.bisect(x()).unwrap();
        let BisectCause::TraceChanged { recorded, now, .. } = &found.cause else { panic!("{found}") };
        assert!(recorded != now && now.contains("result[1]"), "{found}");
    }
}

#[test]
fn bisect_works_before_the_first_call_and_reports_ill_typed_arguments() {
    let add = accelerate(|x: &Tensor, y: &Tensor, twice: &Static<bool>| if twice.0 { x + y + y } else { x + y });
    assert_eq!(add.bisect(x(), x(), Static(true)).unwrap().cause, BisectCause::None);
    assert!(add.bisect(x(), Tensor::ones([2]), Static(true)).is_err());
    assert_eq!((add.stats().misses, add.stats().entries.len()), (0, 0));
}

/// A function that applies the op of a sample, and arguments for it.
fn applied(sample: &Sample) -> Option<(Graph, Vec<Tensor>)> {
    let types: Vec<_> = sample.args.iter().map(|arg| &arg.ty).collect();
    let params: Vec<String> = types.iter().enumerate().map(|(n, ty)| format!("%{n}: {ty}")).collect();
    let names: Vec<String> = (0..types.len()).map(|n| format!("%{n}")).collect();
    let (n, ty) = (types.len(), sample.op.infer(&types).ok()?);
    let (op, attributes) = (sample.op.name(), sample.op.attributes());
    let text = format!(
        "graph ({}) {{\n%{n} = {op} {} {{{attributes}}} : {ty}\nreturn %{n}\n}}",
        params.join(", "),
        names.join(", ")
    );
    let tensor = |arg: &SampleArg| {
        let (low, high, len) = (arg.range.start, arg.range.end, arg.ty.n_elements());
        let value = |i: usize| low + (high - low) * ((i * 7919 % len.max(1)) as f64 + 0.5) / len as f64;
        let values: Vec<f64> = (0..len).map(value).collect();
        Tensor::from_vec(values, [len]).unwrap().cast(arg.ty.dtype).reshape(arg.ty.shape.to_vec())
    };
    Some((text.parse().ok()?, sample.args.iter().map(tensor).collect()))
}

#[test]
fn no_op_differs_from_the_un_accelerated_path() {
    let mut n_samples = 0;
    for sample in Op::samples().iter().filter(|sample| !sample.op.has_effect()) {
        let Some((graph, args)) = applied(sample) else { continue };
        let op = accelerate(|args: &Vec<Tensor>| {
            let results = graph.apply(args).unwrap();
            results.iter().map(|y| if y.dtype().is_float() { y * 3.0 + y } else { y.clone() }).collect::<Vec<_>>()
        });
        op.configure(|options| options.check = check(CheckWhen::Every, OnDifference::Err).into());
        op.call(&args).unwrap_or_else(|e| panic!("{e}\n{graph}"));
        if n_samples % 8 == 0 {
            let found = op.bisect(&args).unwrap();
            assert_eq!(found.cause, BisectCause::None, "{found}\n{graph}");
        }
        n_samples += 1;
    }
    assert!(n_samples > 150, "only {n_samples} samples");
}
