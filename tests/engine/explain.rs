//! The reasons of misses, the advice that they give, and the policies for them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;

use retape::{
    Accelerated, AdviceKind, Aspect, DType, Error, Function, Miss, MissReason, OnRetrace, RetracePolicy, Static,
    Tensor, Tree, accelerate, assert_no_retrace,
};

fn ones(shape: &[usize]) -> Tensor {
    Tensor::ones(shape.to_vec())
}

fn last<F: Function<A, R>, A, R: Tree>(f: &Accelerated<F, A, R>) -> Miss {
    f.explain().pop().unwrap()
}

fn differences(miss: &Miss) -> Vec<String> {
    miss.differences.iter().map(ToString::to_string).collect()
}

#[derive(Clone, Tree)]
struct Layer {
    weights: Vec<Tensor>,
    bias: Option<Tensor>,
    act: Activation,
}

#[derive(Clone, Tree)]
enum Activation {
    Relu,
    Leaky(Static<f32>),
}

fn layer(n: usize, act: Activation) -> Layer {
    Layer { weights: vec![ones(&[2, 2]); n], bias: None, act }
}

/// The result of an accelerated function that looks at all leaves.
fn apply(layer: &Layer, x: &Tensor) -> Tensor {
    let sum = layer.weights.iter().fold(x.clone(), |x, w| x.matmul(w));
    let sum = match &layer.bias {
        Some(bias) => sum + bias,
        None => sum,
    };
    match &layer.act {
        Activation::Relu => sum.relu(),
        Activation::Leaky(slope) => sum.maximum(&sum * slope.0),
    }
}

#[test]
fn each_kind_of_miss_is_told_apart() {
    let f = accelerate(apply);
    let x = ones(&[3, 2]);
    let call = |layer: Layer, x: &Tensor| {
        f.call(&layer, x).unwrap();
        let miss = last(&f);
        (miss.reason, differences(&miss))
    };
    let relu = || layer(1, Activation::Relu);
    assert_eq!(call(relu(), &x), (MissReason::FirstCall, vec![]));
    assert_eq!(call(relu(), &ones(&[5, 2])), (MissReason::NewShape, vec!["argument 1 axis 0: 3 -> 5".into()]));
    assert_eq!(
        call(layer(2, Activation::Relu), &x),
        (
            MissReason::NewStructure,
            vec![
                "argument 0.weights structure: length 1 -> length 2".into(),
                "argument 0.weights[1] structure: nothing -> f32[2, 2]".into(),
            ]
        )
    );
    let (reason, found) = call(layer(1, Activation::Leaky(Static(0.5))), &x);
    assert_eq!(reason, MissReason::NewStructure);
    assert_eq!(
        found,
        ["argument 0.act structure: Relu -> Leaky", "argument 0.act[0] structure: nothing -> 0.5"].map(String::from)
    );
    assert_eq!(
        call(layer(1, Activation::Leaky(Static(0.25))), &x),
        (MissReason::NewStatic, vec!["argument 0.act[0] value: 0.5 -> 0.25".into()])
    );
    let (reason, found) = call(Layer { bias: Some(ones(&[2])), ..relu() }, &x);
    assert_eq!(reason, MissReason::NewStructure);
    assert_eq!(
        found,
        ["argument 0.bias structure: None -> Some", "argument 0.bias structure: nothing -> f32[2]"].map(String::from)
    );
    assert_eq!(f.explain().len() as u64, f.stats().misses);
}

#[test]
fn dtypes_ranks_and_static_values_are_named() {
    let f = accelerate(|x: &Tensor, axis: &usize, name: &String| {
        let _ = name;
        x.sum(*axis as isize)
    });
    f.call(ones(&[2, 3]), 0, "a".to_owned()).unwrap();
    f.call(Tensor::zeros_of(DType::F64, [2, 3]), 0, "a".to_owned()).unwrap();
    let miss = last(&f);
    assert_eq!((miss.reason, &*differences(&miss)[0]), (MissReason::NewDtype, "argument 0 dtype: f32 -> f64"));
    assert_eq!(miss.differences[0].aspect, Aspect::Dtype);
    f.call(ones(&[2, 3, 4]), 0, "a".to_owned()).unwrap();
    let miss = last(&f);
    assert_eq!(miss.reason, MissReason::NewShape);
    assert_eq!(differences(&miss), ["argument 0 rank: 2 [2, 3] -> 3 [2, 3, 4]"]);
    f.call(ones(&[2, 3]), 1, "a".to_owned()).unwrap();
    assert_eq!((last(&f).reason, &*differences(&last(&f))[0]), (MissReason::NewStatic, "argument 1 value: 0 -> 1"));
    f.call(ones(&[2, 3]), 1, "b".to_owned()).unwrap();
    assert_eq!(differences(&last(&f)), [r#"argument 2 value: "a" -> "b""#]);
}

#[test]
fn a_miss_is_compared_with_the_nearest_signature() {
    let f = accelerate(|xs: &BTreeMap<String, Tensor>| xs.values().fold(Tensor::from(0.0_f32), |s, x| s + x.sum(..)));
    let map = |a: usize, b: usize| BTreeMap::from([("a".to_owned(), ones(&[a])), ("b".to_owned(), ones(&[b]))]);
    for (a, b) in [(1, 1), (7, 7), (2, 2)] {
        f.call(map(a, b)).unwrap();
    }
    f.call(map(7, 8)).unwrap();
    let miss = last(&f);
    assert_eq!(differences(&miss), [r#"argument 0["b"] axis 0: 7 -> 8"#]);
    assert_eq!(miss.nearest.unwrap().to_string(), r#"length 2, "a", f32[7], "b", f32[7]"#);
    f.call(BTreeMap::from([("a".to_owned(), ones(&[7]))])).unwrap();
    let miss = last(&f);
    assert_eq!(miss.reason, MissReason::NewStructure);
    assert!(differences(&miss).contains(&r#"argument 0["b"] structure: f32[8] -> nothing"#.to_owned()), "{miss}");
}

#[test]
fn evicted_and_cleared_entries_are_remembered() {
    let f = accelerate(|x: &Tensor| -x);
    f.configure(|options| options.capacity = 1);
    for n in [1, 2, 1] {
        f.call(ones(&[n])).unwrap();
    }
    assert_eq!(last(&f).reason, MissReason::Evicted);
    f.clear_cache();
    f.call(ones(&[1])).unwrap();
    assert_eq!(last(&f).reason, MissReason::Cleared);
    f.call(ones(&[9])).unwrap();
    assert_eq!(last(&f).reason, MissReason::NewShape);
}

#[test]
fn a_miss_tells_its_line_its_cost_and_its_failure() {
    let f = accelerate(|x: &Tensor| x.matmul(x)).named("square");
    f.call(ones(&[2, 2])).unwrap();
    let line = line!() - 1;
    let miss = last(&f);
    assert_eq!((miss.at.file(), miss.at.line(), miss.number, miss.hits), (file!(), line, 1, 0));
    assert!(miss.times.total() > std::time::Duration::ZERO && miss.wall >= miss.times.trace, "{miss:?}");
    assert_eq!(miss.error, None);
    f.call(ones(&[2, 2])).unwrap();
    f.call(ones(&[2, 3])).unwrap_err();
    let miss = last(&f);
    assert_eq!((miss.number, miss.hits, miss.times.total()), (2, 1, std::time::Duration::ZERO));
    assert!(miss.error.as_ref().unwrap().contains("matmul"), "{miss}");
    let expected = format!("miss 2 of `square` at {}:", file!());
    assert!(miss.to_string().starts_with(&expected), "{miss}");
    assert_eq!(f.stats().entries.len(), 1);
}

#[test]
fn the_log_is_bounded() {
    let f = accelerate(|x: &Tensor| x.sum(..));
    for n in 1..=300 {
        f.call(ones(&[n])).unwrap();
    }
    let misses = f.explain();
    assert_eq!((misses.len(), misses[0].number, misses[255].number), (256, 45, 300));
}

/// The kinds of advice given.
fn kinds<F: Function<A, R>, A, R: Tree>(f: &Accelerated<F, A, R>) -> Vec<AdviceKind> {
    f.advice().iter().map(|advice| advice.kind).collect()
}

#[test]
fn many_shapes_give_one_line_of_advice() {
    let f = accelerate(|x: &Tensor, y: &Tensor| x.sum(..) + y.sum(..));
    for n in 1..8 {
        f.call(ones(&[2]), ones(&[4, n])).unwrap();
    }
    assert_eq!(kinds(&f), []);
    for n in 8..40 {
        f.call(ones(&[2]), ones(&[4, n])).unwrap();
    }
    let advice = f.advice();
    assert_eq!((advice.len(), advice[0].kind), (1, AdviceKind::ManyShapes));
    assert!(advice[0].message.starts_with("argument 1 axis 1 took 39 values"), "{}", advice[0]);
    assert!(!advice[0].message.contains('\n'));
    assert!(f.stats().to_string().contains(&advice[0].message));
}

#[test]
fn changing_static_values_give_advice() {
    let f = accelerate(|x: &Tensor, rate: &Static<f32>, step: &u32| x * rate.0 + f64::from(*step) as f32);
    for n in 0..3_u8 {
        f.call(ones(&[2]), Static(1.0 / f32::from(n + 1)), 0).unwrap();
    }
    assert_eq!(kinds(&f), []);
    f.call(ones(&[2]), Static(7.0), 0).unwrap();
    assert_eq!(kinds(&f), [AdviceKind::ChangingFloat]);
    assert!(f.advice()[0].message.contains("argument 1 is a static float that took 4 values"), "{}", f.advice()[0]);
    for step in 1..4 {
        f.call(ones(&[2]), Static(7.0), step).unwrap();
    }
    assert_eq!(kinds(&f), [AdviceKind::ChangingFloat, AdviceKind::ChangingStatic]);
}

#[test]
fn a_capacity_below_the_working_set_gives_advice() {
    let f = accelerate(|x: &Tensor| x.sum(..));
    f.configure(|options| options.capacity = 2);
    for n in [1, 2, 3].repeat(2) {
        f.call(ones(&[n])).unwrap();
    }
    assert_eq!(kinds(&f), []);
    for n in [1, 2, 3] {
        f.call(ones(&[n])).unwrap();
    }
    assert_eq!(kinds(&f), [AdviceKind::SmallCapacity]);
    assert!(f.advice()[0].message.contains("2 entries fit of 2"), "{}", f.advice()[0]);
}

#[test]
fn a_function_made_anew_for_each_call_gives_advice() {
    let mut given = vec![];
    for _ in 0..5 {
        let f = accelerate(|x: &Tensor| x * 3.0_f32);
        f.call(ones(&[3])).unwrap();
        given.push(kinds(&f));
    }
    let recreated = || vec![AdviceKind::RecreatedFunction];
    assert_eq!(given, [vec![], vec![], vec![], recreated(), recreated()]);
}

#[test]
fn functions_that_are_kept_or_used_give_no_advice() {
    let make = || accelerate(|x: &Tensor| x * 5.0_f32);
    let models: Vec<_> = (0..6).map(|_| make()).collect();
    for model in &models {
        model.call(ones(&[3])).unwrap();
    }
    for _ in 0..6 {
        let f = accelerate(|x: &Tensor| x * 7.0_f32);
        (0..50).for_each(|_| drop(f.call(ones(&[3])).unwrap()));
        assert_eq!(kinds(&f), []);
    }
    assert!(models.iter().all(|model| kinds(model).is_empty()));
    let f = accelerate(|x: &Tensor| x.sum(..));
    for n in 1..12 {
        (0..30).for_each(|_| drop(f.call(ones(&[n])).unwrap()));
    }
    assert_eq!(kinds(&f), [], "one call in thirty misses");
}

#[test]
fn changing_structures_and_clears_give_advice() {
    let f = accelerate(|xs: &Vec<Tensor>| xs.iter().fold(Tensor::from(0.0_f32), |sum, x| sum + x.sum(..)));
    (1..10).for_each(|n| drop(f.call(vec![ones(&[2]); n]).unwrap()));
    assert_eq!(kinds(&f), [AdviceKind::ManyStructures]);
    assert!(f.advice()[0].message.contains("the structure of argument 0 took 9 values"), "{}", f.advice()[0]);
    let f = accelerate(|x: &Tensor| x.sum(..));
    for _ in 0..5 {
        f.call(ones(&[2])).unwrap();
        f.clear_cache();
    }
    assert_eq!(kinds(&f), [AdviceKind::RepeatedClears]);
}

#[test]
fn a_policy_refuses_traces_after_its_limits() {
    let n_traces = AtomicUsize::new(0);
    let f = accelerate(|x: &Tensor| {
        n_traces.fetch_add(1, SeqCst);
        x + x
    });
    f.configure(|options| options.stale_check = false);
    f.configure(|options| options.retrace = OnRetrace::Error.into());
    f.call(ones(&[2])).unwrap();
    let Error::Cache(message) = f.call(ones(&[3])).unwrap_err() else { panic!("another error") };
    assert!(message.contains("new_shape, argument 0 axis 0: 2 -> 3") && message.contains(file!()), "{message}");
    assert_eq!((n_traces.load(SeqCst), f.stats().misses, f.stats().entries.len()), (1, 2, 1));
    f.call(ones(&[2])).unwrap();

    f.configure(|options| options.retrace = RetracePolicy::from(OnRetrace::Error).after_misses(3));
    f.call(ones(&[4])).unwrap();
    f.call(ones(&[5])).unwrap_err();

    f.configure(|options| options.retrace = RetracePolicy::from(OnRetrace::Error).after_calls(100));
    f.call(ones(&[5])).unwrap();
    for _ in 0..100 {
        f.call(ones(&[5])).unwrap();
    }
    f.call(ones(&[6])).unwrap_err();
    f.configure(|options| options.retrace = OnRetrace::Allow.into());
    f.call(ones(&[6])).unwrap();
    assert_eq!(n_traces.load(SeqCst), 4);
}

#[test]
fn first_misses_of_several_threads_are_told_apart() {
    for _ in 0..50 {
        let f = accelerate(|x: &Tensor| x + x);
        f.configure(|options| options.retrace = OnRetrace::Error.into());
        let start = Barrier::new(2);
        let is_refused = |n: usize| {
            start.wait();
            f.call(ones(&[n])).is_err()
        };
        let refused = thread::scope(|scope| {
            let other = scope.spawn(|| is_refused(2));
            u8::from(is_refused(3)) + u8::from(other.join().unwrap())
        });
        assert_eq!((refused, f.stats().entries.len()), (1, 1));
    }
}

#[test]
fn values_that_look_alike_are_told_apart_by_their_bits() {
    let f = accelerate(|x: &Tensor, y: &Static<f32>| x * y.0);
    f.call(ones(&[2]), Static(f32::NAN)).unwrap();
    f.call(ones(&[2]), Static(-f32::NAN)).unwrap();
    let miss = last(&f);
    assert_eq!(miss.reason, MissReason::NewStatic);
    assert_eq!(differences(&miss), ["word 2 of the arguments value: 0x7fc00000 -> 0xffc00000"]);
}

#[test]
fn a_call_that_waits_for_itself_is_on_record() {
    type Call = Box<dyn Fn(&Tensor) -> retape::Result<Tensor> + Send + Sync>;
    static F: OnceLock<Call> = OnceLock::new();
    let inner: Arc<OnceLock<Error>> = Arc::default();
    let kept = Arc::clone(&inner);
    let f = Arc::new(accelerate(move |x: &Tensor| {
        if let Some(f) = F.get() {
            // Concrete arguments of the signature that is being traced.
            kept.get_or_init(|| f(&ones(&[2])).unwrap_err());
        }
        x + x
    }));
    let itself = Arc::clone(&f);
    assert!(F.set(Box::new(move |x| itself.call(x))).is_ok());
    f.call(ones(&[2])).unwrap();
    assert!(inner.get().unwrap().to_string().contains("called itself"));
    let misses = f.explain();
    assert_eq!((misses.len() as u64, f.stats().misses), (2, 2));
    assert!(misses.iter().any(|miss| miss.error.as_ref().is_some_and(|error| error.contains("called itself"))));
}

#[test]
fn a_steady_state_can_be_asserted() {
    let f = accelerate(|x: &Tensor| x + x);
    f.call(ones(&[2])).unwrap();
    let y = assert_no_retrace!(f, f.call(ones(&[2])).unwrap());
    assert_eq!(y.to_vec::<f32>().unwrap(), [2.0, 2.0]);
    let failed = catch_unwind(AssertUnwindSafe(|| assert_no_retrace!(f, { f.call(ones(&[3])).unwrap() })));
    let message = *failed.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("expected no retrace, found 1") && message.contains("axis 0: 2 -> 3"), "{message}");
}

#[test]
fn the_time_of_the_last_use_is_known() {
    let f = accelerate(|x: &Tensor| x + x);
    for n in [2, 3] {
        f.call(ones(&[n])).unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(80));
    f.call(ones(&[2])).unwrap();
    let entries = f.stats().entries;
    assert!(entries[1].last_use >= entries[0].last_use + std::time::Duration::from_millis(40), "{entries:?}");
}

#[test]
fn latencies_are_measured() {
    let f = accelerate(|x: &Tensor| x + x);
    for n in [2, 3] {
        for _ in 0..200 {
            f.call(ones(&[n])).unwrap();
        }
    }
    let stats = f.stats();
    assert_eq!(stats.miss_latency.n_timed, 2);
    // 64 calls in a row, of which one missed, 8 after the other miss, and one in 64 of the other 327.
    assert!((70..=80).contains(&stats.hit_latency.n_timed), "{}", stats.hit_latency);
    for latency in [stats.hit_latency, stats.miss_latency] {
        let ordered = [latency.min, latency.p50, latency.p90, latency.p99, latency.max];
        assert!(ordered.is_sorted() && !latency.min.is_zero(), "{latency}");
    }
}
