//! Names of functions: all that speaks of a function calls it by its name.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::heard::Listener;
use retape::{Check, Form, OnDifference, OnRetrace, Tensor, accelerate, value_and_grad};
use retape_report::{TraceEvents, prometheus};

fn ones(n: usize) -> Tensor {
    Tensor::ones([n])
}

fn halve(x: &Tensor) -> Tensor {
    x * 0.5
}

#[test]
fn without_a_name_a_function_has_its_own_and_a_closure_its_line() {
    let (declared, closure) = (accelerate(halve), accelerate(|x: &Tensor| x + x));
    let line = line!() - 1;
    assert_eq!(&*declared.name(), "halve");
    assert!(closure.name().starts_with(&format!("{}:{line}:", file!())), "{}", closure.name());
    assert_eq!(closure.stats().name, &*closure.name());
    let boxed: Box<dyn Fn(&Tensor) -> Tensor> = Box::new(halve);
    assert!(accelerate(boxed).name().starts_with(file!()));
    assert_eq!(&*accelerate(halve).named("one").named("two").name(), "two");
}

#[test]
fn everything_that_is_seen_has_the_name() {
    let (listener, _listening) = Listener::here();
    let f = accelerate(|x: &Tensor| x.square().sum(..)).named("energy");
    f.configure(|options| options.profiling = true);
    f.configure(|options| options.capacity = 1);
    for n in [2, 3, 3] {
        f.call(ones(n)).unwrap();
    }
    f.clear_cache();
    let heard = listener.heard();
    let events: Vec<_> = heard.iter().filter(|event| !event.is_span).collect();
    assert!(events.len() >= 5 && events.iter().all(|event| event.fields["function"] == "energy"), "{events:?}");
    assert!(events.iter().all(|event| event.fields["made_at"].starts_with(file!())));
    assert!(f.stats().to_string().starts_with("function   energy\n"));
    assert!(f.explain()[1].to_string().starts_with(&format!("miss 2 of `energy` at {}:", file!())));
    let profile = f.profile();
    assert_eq!(profile.function, "energy");
    let file: serde_json::Value = serde_json::from_str(&profile.to_trace_events()).unwrap();
    assert_eq!(file["traceEvents"][0]["args"]["name"], "retape: energy");
    assert_eq!(file["otherData"]["function"], "energy");
    let data = serde_json::to_value(f.stats()).unwrap();
    assert_eq!(data["name"], "energy");
    assert_eq!(serde_json::to_value(f.explain()).unwrap()[0]["function"], "energy");
}

#[test]
fn metrics_of_functions_with_one_name_stay_apart() {
    let make = || accelerate(|x: &Tensor| x + x);
    let all = [make().named("step"), make().named("step"), make().named("step #2"), make().named("step")];
    for (n, f) in (1..).zip(&all) {
        (1..=n).for_each(|n| drop(f.call(ones(n)).unwrap()));
    }
    let stats: Vec<_> = all.iter().map(|f| f.stats()).collect();
    let text = prometheus(&stats.iter().collect::<Vec<_>>());
    let misses: Vec<&str> = text.lines().filter(|line| line.starts_with("retape_cache_misses_total")).collect();
    let expected = [("step", 1), ("step #2", 2), ("step #2 #2", 3), ("step #3", 4)];
    let expected = expected.map(|(name, n)| format!("retape_cache_misses_total{{function=\"{name}\"}} {n}"));
    assert_eq!(misses, expected);
}

#[test]
fn errors_say_which_function() {
    let f = accelerate(|x: &Tensor| x.square().sum(..)).named("energy");
    let error = |result: retape::Result<Tensor>| result.unwrap_err().to_string();
    f.call(ones(2)).unwrap();
    let pinned = f.pin(ones(2)).unwrap();
    assert!(error(pinned.call(ones(3))).contains("a pinned entry of `energy` takes"));
    f.configure(|options| options.retrace = OnRetrace::Error.into());
    assert!(error(f.call(ones(3))).contains("a new trace of `energy` is refused"));
    f.configure(|options| options.locked = true);
    assert!(error(f.call(ones(4))).contains("the locked cache of `energy` makes no entry"));
    let gradient = value_and_grad(|x: &Tensor| f.call(x).unwrap(), &ones(2));
    assert!(gradient.unwrap_err().to_string().contains("the locked cache of `energy` makes no code"));
    assert!(f.text(&f.signature(ones(9)), Form::Graph).unwrap_err().to_string().contains("`energy` has no entry"));

    let log = accelerate(|x: &Tensor| (x - 2.0_f32).log()).named("log_shifted");
    log.configure(|options| options.trap_nonfinite = true);
    assert!(error(log.call(ones(3))).contains("(in `log_shifted`, called at "));
}

#[test]
fn differences_and_quarantines_say_which_function() {
    let factor = AtomicU32::new(2);
    let scaled = accelerate(|x: &Tensor| x * factor.load(SeqCst) as f32).named("scaled");
    scaled.configure(|options| {
        options.check = (Check { on_difference: OnDifference::FallBack, ..Check::default() }).into()
    });
    scaled.call(ones(3)).unwrap();
    factor.store(3, SeqCst);
    scaled.call(ones(3)).unwrap();
    let found = &scaled.differences()[0];
    assert_eq!(&*found.function, "scaled");
    assert!(found.to_string().starts_with("result of an accelerated call of `scaled` differs"), "{found}");
    let refused = scaled.pin(ones(3)).unwrap_err().to_string();
    assert!(refused.contains("the entry of `scaled` for (f32[3]) is in quarantine"), "{refused}");
}
