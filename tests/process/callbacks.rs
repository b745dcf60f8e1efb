//! Code of the program that is called back and panics: the call fails with that, and all goes on afterwards.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use retape::{
    Accelerated, Check, CheckWhen, Error, Graph, OnDifference, Reader, Result, Static, StaticLeaf, Tensor, Writer,
    accelerate, map, trace, value_and_grad, vjp,
};
use tracing::field::{Field as TracingField, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::alone;

/// Runs something that must not unwind, whatever it calls back.
fn calm<T>(what: &dyn Debug, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| panic!("{what:?} unwinds"))
}

fn is_panicked<T>(what: &str, result: Result<T>, message: &str) {
    match result.map(|_| ()) {
        Err(Error::Panicked(panic)) => assert!(panic.message.contains(message), "{what}: {panic}"),
        other => panic!("{what}: {other:?}"),
    }
}

/// As a result, which is what it is for those who read it.
fn result(tensor: Tensor) -> Result<Tensor> {
    tensor.error().map_or(Ok(tensor.clone()), |error| Err(error.clone()))
}

static LINES: AtomicUsize = AtomicUsize::new(0);
static IS_FULL: AtomicBool = AtomicBool::new(false);

/// A sink that panics while it is full, and counts lines while it is not.
fn sink() {
    LINES.store(0, Relaxed);
    IS_FULL.store(true, Relaxed);
    retape::set_debug_sink(|_| {
        assert!(!IS_FULL.load(Relaxed), "the sink is full");
        LINES.fetch_add(1, Relaxed);
    });
}

/// Every way in which something prints, by name.
fn ways() -> Vec<(&'static str, Box<dyn Fn() -> Result<Tensor>>)> {
    type Printing = Accelerated<fn(&Tensor) -> Tensor, (Tensor,), Tensor>;
    fn printing() -> Printing {
        accelerate((|x: &Tensor| (x * 2.0).debug_print("doubled").exp()) as fn(&Tensor) -> Tensor)
    }
    let x = || Tensor::from([1.0_f32, 2.0]);
    let loss = |x: &Tensor| x.square().debug_print("squares").sum(..);
    let mut ways: Vec<(&'static str, Box<dyn Fn() -> Result<Tensor>>)> = vec![];
    let mut add = |name, way: Box<dyn Fn() -> Result<Tensor>>| ways.push((name, way));
    add("a tensor", Box::new(move || result(x().debug_print("x"))));
    add("ops", Box::new(move || result((x() + 1.0).debug_print("x") * 2.0)));
    add("a miss", Box::new(move || printing().call(x())));
    let hits = printing();
    add("a hit", Box::new(move || hits.call(x())));
    let given = accelerate(|x: &Tensor| (x + 1.0).debug_print("given"));
    add("a call by value", Box::new(move || given.call(Tensor::ones([1 << 16]))));
    let disabled = printing();
    disabled.configure(|options| options.enabled = false);
    add("a disabled function", Box::new(move || disabled.call(x())));
    let profiled = printing();
    profiled.configure(|options| options.profiling = true);
    add("a profiled call", Box::new(move || profiled.call(x())));
    let checked = printing();
    checked.configure(|options| {
        options.check = (Check { when: CheckWhen::Every, on_difference: OnDifference::Err, ..Check::default() }).into()
    });
    add("a checked call", Box::new(move || checked.call(x())));
    let inner = printing();
    let outer = accelerate(move |x: &Tensor| inner.call(x).unwrap() + 1.0);
    add("a function inside another", Box::new(move || outer.call(x())));
    let traced = accelerate(move |x: &Tensor| value_and_grad(loss, x).unwrap().1);
    add("a gradient inside a function", Box::new(move || traced.call(x())));
    add("a gradient", Box::new(move || Ok(value_and_grad(loss, &x())?.1)));
    add("a product with a Jacobian", Box::new(move || Ok(vjp(loss, &x(), &Tensor::from(1.0_f32))?.1)));
    let kept = printing();
    add(
        "a function inside a gradient",
        Box::new(move || Ok(value_and_grad(|x| kept.call(x).unwrap().sum(..), &x())?.1)),
    );
    let function = printing();
    IS_FULL.store(false, Relaxed);
    let pinned = function.pin(x()).unwrap();
    add("a pinned entry", Box::new(move || pinned.call(x())));
    let graph: Graph = trace(|x: &Tensor| (x * 2.0).debug_print("graph").exp(), &x()).unwrap();
    let again = graph.clone();
    add("a graph, applied", Box::new(move || Ok(graph.apply(&[x()])?.remove(0))));
    add("a graph, evaluated", Box::new(move || Ok(again.evaluate(&[x()])?.remove(0))));
    ways
}

#[test]
fn a_sink_that_panics_fails_what_prints() {
    let _alone = alone();
    sink();
    for (name, way) in ways() {
        for _ in 0..3 {
            IS_FULL.store(true, Relaxed);
            is_panicked(name, calm(&name, &way), "the sink is full");
            IS_FULL.store(false, Relaxed);
            let before = LINES.load(Relaxed);
            let after = calm(&name, &way).unwrap_or_else(|e| panic!("{name} goes on with {e}"));
            after.to_vec::<f32>().unwrap();
            assert!(LINES.load(Relaxed) > before, "{name} prints");
        }
    }
    retape::reset_debug_sink();
}

#[test]
fn a_sink_that_panics_on_many_threads_leaves_the_function_whole() {
    let _alone = alone();
    sink();
    let function = accelerate(|x: &Tensor| (x + 1.0).debug_print("x").matmul(x).sum(..));
    let x = Tensor::ones([64, 64]);
    for round in 0..4 {
        IS_FULL.store(round % 2 == 0, Relaxed);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let result = calm(&round, || function.call(&x));
                        match round % 2 {
                            0 => is_panicked("a call", result, "the sink is full"),
                            _ => assert_eq!(result.unwrap().item::<f32>().unwrap(), 64.0 * 64.0 * 64.0 * 2.0),
                        }
                    }
                });
            }
        });
    }
    // The entry was made, whatever its first run came to.
    let stats = function.stats();
    assert_eq!((stats.hits, stats.misses, stats.entries.len()), (4 * 4 * 20 - 1, 1, 1));
    retape::reset_debug_sink();
}

/// Panics over what is called so.
struct Fragile(&'static str);

/// The names of all that was heard.
static HEARD: Mutex<Vec<&'static str>> = Mutex::new(vec![]);

impl Fragile {
    fn hear(&self, name: &'static str) {
        HEARD.lock().unwrap_or_else(PoisonError::into_inner).push(name);
        assert!(self.0 != name, "no more of {name}");
    }
}

struct Quiet;

impl Visit for Quiet {
    fn record_debug(&mut self, _: &TracingField, value: &dyn Debug) {
        let _ = format!("{value:?}");
    }
}

impl Subscriber for Fragile {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "retape"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.hear(span.metadata().name());
        span.record(&mut Quiet);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Quiet);
        self.hear(event.metadata().name());
    }

    fn enter(&self, _: &Id) {
        self.hear("enter");
    }

    fn exit(&self, _: &Id) {
        self.hear("exit");
    }
}

/// Calls that make all there is to hear, each with what it must come to.
fn noisy(n: usize) -> Result<()> {
    let x = Tensor::ones([n, 3]);
    let function = accelerate(|x: &Tensor| x.sin().sum(..) * 2.0);
    function.configure(|options| options.capacity = 1);
    let mut first = Ok(());
    let mut note = |result: Result<()>| {
        if first.is_ok() {
            first = result;
        }
    };
    for _ in 0..2 {
        note(function.call(&x).map(|_| ()));
        note(function.call(x.t()).map(|_| ()));
    }
    note(function.pin(&x).map(|_| ()));
    note(function.bisect(&x).map(|_| ()));
    note(value_and_grad(|x: &Tensor| function.call(x).unwrap() * 3.0, &x).map(|_| ()));
    let logarithm = accelerate(|x: &Tensor| x.log());
    logarithm.configure(|options| options.trap_nonfinite = true);
    match logarithm.call(&(&x - 2.0)) {
        Err(Error::NonFinite(_)) => {}
        other => note(other.map(|_| ())),
    }
    note(result((&x + n as f64).cos().cumsum(0)).map(|_| ()));
    first
}

#[test]
fn listeners_that_panic_fail_what_they_listen_to() {
    // A subscriber that is gone still has calls look for listeners, and such calls leave given memory alone.
    if !crate::is_own_process("callbacks::listeners_that_panic_fail_what_they_listen_to") {
        return;
    }
    tracing::subscriber::with_default(Fragile("nothing"), || noisy(11).unwrap());
    let mut names = std::mem::take(&mut *HEARD.lock().unwrap_or_else(PoisonError::into_inner));
    names.sort_unstable();
    names.dedup();
    assert!(names.len() >= 7 && names.contains(&"retape::miss"), "{names:?}");
    for (n, name) in names.into_iter().enumerate() {
        tracing::subscriber::with_default(Fragile(name), || {
            let came = calm(&name, || noisy(20 + n));
            // A span ends while what ended it is already known; all else fails the call.
            is_panicked(name, came, &format!("no more of {name}"));
        });
        noisy(20 + n).unwrap();
    }
}

/// A call inside a gradient that a listener makes panic ends the gradient, even if the closure drops the call's error.
#[test]
fn a_panic_inside_a_gradient_is_its_error() {
    if !crate::is_own_process("callbacks::a_panic_inside_a_gradient_is_its_error") {
        return;
    }
    let inner = accelerate(|x: &Tensor| x.exp());
    let loss = |x: &Tensor| {
        drop(inner.call(x));
        x.square().sum(..)
    };
    tracing::subscriber::with_default(Fragile("retape::miss"), || {
        let came = calm(&"a gradient", || value_and_grad(loss, &Tensor::ones([3])));
        is_panicked("a gradient", came.map(|(value, _)| value), "no more of retape::miss");
    });
    value_and_grad(loss, &Tensor::ones([3])).unwrap();
}

/// A signature whose code is wrong stays in quarantine, though the listener that is told of it panics.
#[test]
fn a_listener_that_panics_over_a_difference_prevents_no_quarantine() {
    if !crate::is_own_process("callbacks::a_listener_that_panics_over_a_difference_prevents_no_quarantine") {
        return;
    }
    let factor = AtomicUsize::new(2);
    let f = accelerate(|x: &Tensor| x * factor.load(Relaxed) as f32);
    f.configure(|options| options.stale_check = false);
    f.configure(|options| options.check = (Check { on_difference: OnDifference::FallBack, ..Check::default() }).into());
    let one = Tensor::ones([1]);
    let value = |y: Result<Tensor>| y.unwrap().to_vec::<f32>().unwrap();
    assert_eq!(value(f.call(&one)), [2.0]);
    factor.store(3, Relaxed);
    tracing::subscriber::with_default(Fragile("retape::difference"), || {
        is_panicked("a call", calm(&"a call", || f.call(&one)), "no more of retape::difference");
    });
    assert_eq!((value(f.call(&one)), f.stats().checks.quarantined_calls), (vec![3.0], 1));
}

/// When a leaf panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum When {
    Never,
    Write,
    Read,
    Text,
    Drop,
}

static NOW: Mutex<When> = Mutex::new(When::Never);

fn now(when: When) {
    let is_now = *NOW.lock().unwrap_or_else(PoisonError::into_inner) == when;
    assert!(!is_now, "a leaf panics: {when:?}");
}

/// A part of an argument and of a result that panics on command.
#[derive(Clone)]
struct Leaf(u32);

impl StaticLeaf for Leaf {
    fn write_static(&self, to: &mut Writer<'_>) {
        now(When::Write);
        to.value(self.0.into(), "Leaf", || {
            now(When::Text);
            self.0.to_string()
        });
    }

    fn read_static(from: &mut Reader<'_>) -> Result<Leaf> {
        now(When::Read);
        Ok(Leaf(from.word()? as u32))
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            now(When::Drop);
        }
    }
}

#[test]
fn types_that_panic_fail_the_calls_that_they_are_in() {
    let _alone = alone();
    let set = |when| *NOW.lock().unwrap_or_else(PoisonError::into_inner) = when;
    let function = accelerate(|x: &Tensor, leaf: &Static<Leaf>| (x * f64::from(leaf.0.0), Static(Leaf(leaf.0.0 + 1))));
    let x = Tensor::from([1.0_f32, 2.0]);
    let (known, new) = (Static(Leaf(3)), Static(Leaf(4)));
    let works = |function: &dyn Fn(&Static<Leaf>) -> Result<(Tensor, Static<Leaf>)>, leaf: &Static<Leaf>| {
        let (y, next) = function(leaf).unwrap();
        assert_eq!((y.to_vec::<f32>().unwrap()[1], next.0.0), (2.0 * leaf.0.0 as f32, leaf.0.0 + 1));
    };
    let call = |leaf: &Static<Leaf>| function.call(&x, leaf);
    works(&call, &known);
    for when in [When::Write, When::Read, When::Text, When::Drop] {
        // A hit says nothing about its arguments, and drops none that it was lent.
        let hits = [!matches!(when, When::Text | When::Drop), true];
        for (leaf, fails) in [&known, &new].into_iter().zip(hits) {
            set(when);
            let result = calm(&when, || call(leaf));
            let pinned = calm(&when, || function.pin(&x, leaf).map(|_| ()));
            set(When::Never);
            if fails {
                is_panicked(&format!("{when:?}"), result.map(|_| ()), "a leaf panics");
            } else {
                result.unwrap();
            }
            if when == When::Write {
                is_panicked("a pin", pinned, "a leaf panics");
            }
            if when == When::Drop {
                let given = leaf.clone();
                set(when);
                let result = calm(&when, || function.call(&x, given));
                set(When::Never);
                is_panicked("a leaf by value", result.map(|_| ()), "a leaf panics");
            }
            works(&call, leaf);
            works(&|leaf| function.pin(&x, leaf)?.call(&x, leaf), leaf);
        }
        function.clear_cache();
        works(&call, &known);
    }
    // Inside a trace, the panic is the result of the trace.
    let outer = accelerate(|x: &Tensor| function.call(x, Static(Leaf(5))).map_or_else(|_| x.clone(), |(y, _)| y));
    set(When::Read);
    is_panicked("a function inside another", calm(&"outer", || outer.call(&x)), "a leaf panics");
    set(When::Never);
    assert_eq!(outer.call(&x).unwrap().to_vec::<f32>().unwrap(), [5.0, 10.0]);
    assert_eq!(map(&(x, Static(Leaf(1))), |x| x + 1.0).0.to_vec::<f32>().unwrap(), [2.0, 3.0]);
}

#[test]
fn payloads_that_panic_when_they_are_dropped_are_kept() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a payload was dropped");
        }
    }
    let _alone = alone();
    let function = accelerate(|x: &Tensor| -> Tensor {
        if x.rank() == 1 {
            std::panic::panic_any(Bomb);
        }
        x + 1.0
    });
    is_panicked("a closure", calm(&"a closure", || function.call(Tensor::ones([2]))), "no message");
    retape::set_debug_sink(|_| std::panic::panic_any(Arc::new(Bomb)));
    is_panicked("a sink", calm(&"a sink", || result(Tensor::ones([2]).debug_print("x"))), "no message");
    retape::reset_debug_sink();
    assert_eq!(function.call(Tensor::ones([1, 1])).unwrap().to_vec::<f32>().unwrap(), [2.0]);
}
