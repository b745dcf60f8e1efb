//! Events through `tracing`: each happens when the page on events says so, with the fields that it lists.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Barrier, OnceLock};
use std::time::Duration;

use crate::heard::{Heard, Listener};
use retape::{Boxed, Check, OnDifference, OnRetrace, Tensor, accelerate, set_patience, value_and_grad};

const PAGE: &str = include_str!("../../docs/events.md");

/// Level and fields of each event in the table of the page.
fn documented() -> BTreeMap<&'static str, (&'static str, BTreeSet<&'static str>)> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| `retape::"));
    let code = |cell: &'static str| cell.split('`').skip(1).step_by(2);
    let row = |line: &'static str| {
        let cells: Vec<&str> = line.split('|').collect();
        let fields = code(cells[3]).chain(["function", "made_at", "message"]).collect();
        (code(cells[1]).next().unwrap(), (code(cells[2]).next().unwrap(), fields))
    };
    rows.map(row).collect()
}

/// Checks what was heard against the page, and gives the events of a name.
fn named(heard: &[Heard], name: &str) -> Vec<Heard> {
    let documented = documented();
    for event in heard.iter().filter(|event| !event.is_span) {
        let (level, fields) = documented.get(event.name).unwrap_or_else(|| panic!("{} is not on the page", event.name));
        assert_eq!(event.level.as_str(), *level, "{}", event.name);
        let optional = ["path", "aspect", "old", "new", "error"];
        for field in fields {
            let is_there = event.fields.contains_key(field);
            assert!(is_there || optional.contains(field), "{event:?} lacks {field}");
        }
        let unknown: Vec<_> = event.fields.keys().filter(|field| !fields.contains(*field)).collect();
        assert!(unknown.is_empty(), "{unknown:?} of {} are not on the page", event.name);
        assert!(event.fields["made_at"].starts_with("tests/engine/events.rs:"), "{event:?}");
        let name = &event.fields["function"];
        assert!(*name == event.fields["made_at"] || name == "add", "{event:?}");
    }
    heard.iter().filter(|event| event.name == name && !event.is_span).cloned().collect()
}

fn ones(n: usize) -> Tensor {
    Tensor::ones([n])
}

#[test]
fn the_life_of_entries_is_told() {
    let (listener, _listening) = Listener::here();
    // A graph of no other test, since one that is held elsewhere is neither planned nor compiled.
    let f = accelerate(|x: &Tensor, y: &Tensor| x * 0.734 + y).named("add");
    f.configure(|options| options.capacity = 2);
    for n in [2, 2, 3, 4] {
        f.call(ones(n), ones(n)).unwrap();
    }
    f.call(ones(2), ones(3)).unwrap_err();
    f.clear_cache();
    let heard = listener.heard();
    let (hits, misses) = (named(&heard, "retape::hit"), named(&heard, "retape::miss"));
    assert_eq!((hits.len(), misses.len()), (1, 4));
    assert_eq!((named(&heard, "retape::evict").len(), named(&heard, "retape::clear").len()), (1, 1));
    assert_eq!(hits[0].fields["arguments"], "f32[2], f32[2]");
    assert!(hits.iter().chain(&misses).all(|event| event.fields["function"] == "add"), "{heard:?}");
    assert_eq!(hits[0].fields["entry"], f.explain()[0].signature.id());
    let second = &misses[1].fields;
    let difference = ["reason", "path", "aspect", "old", "new"].map(|field| &*second[field]);
    assert_eq!(difference, ["new_shape", "argument 0", "axis 0", "2", "3"]);
    let time = |field: &str| second[field].parse::<f64>().unwrap();
    let stages: f64 = ["trace_us", "optimise_us", "plan_us", "compile_us"].map(time).iter().sum();
    assert!(stages > 0.0 && stages <= time("wall_us"), "{second:?}");
    assert!(misses[3].fields["error"].contains("add"), "{:?}", misses[3]);
    assert!(!misses[1].fields.contains_key("error") && !misses[0].fields.contains_key("path"));
    let spans = heard.iter().filter(|heard| heard.is_span && heard.name == "retape::stage");
    let stages: Vec<&str> = spans.map(|span| &*span.fields["stage"]).collect();
    assert_eq!(stages[..4], ["trace", "optimise", "plan", "compile"]);
}

#[test]
fn hits_inside_gradients_are_told() {
    let (listener, _listening) = Listener::here();
    let f = accelerate(|x: &Tensor| x.square().sum(..));
    for _ in 0..3 {
        retape::value_and_grad(|x: &Tensor| f.call(x).unwrap(), &ones(3)).unwrap();
    }
    let heard = listener.heard();
    assert_eq!((named(&heard, "retape::miss").len(), named(&heard, "retape::hit").len()), (1, 2));
}

#[test]
fn waits_are_told_where_they_happen() {
    let listener = Listener::default();
    let slow = accelerate(|x: &Tensor| {
        std::thread::sleep(Duration::from_millis(100));
        x + x
    });
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let _listening = tracing::subscriber::set_default(listener.clone());
                barrier.wait();
                slow.call(ones(3)).unwrap();
            });
        }
    });
    let heard = listener.heard();
    let n = |name| named(&heard, name).len() as u64;
    assert_eq!((n("retape::miss"), n("retape::hit"), n("retape::wait")), (1, 1, slow.stats().waits));
}

#[test]
fn warnings_say_what_is_wrong() {
    let (listener, _listening) = Listener::here();
    let sum = accelerate(|x: &Tensor| x.sum(..));
    sum.configure(|options| options.retrace = OnRetrace::Warn.into());
    (1..12).for_each(|n| drop(sum.call(ones(n)).unwrap()));
    let heard = listener.heard();
    assert_eq!(named(&heard, "retape::retrace").len(), 10);
    let advice = named(&heard, "retape::advice");
    assert_eq!(advice.len(), 1, "{advice:?}");
    assert_eq!((&*advice[0].fields["kind"], &*advice[0].fields["subject"]), ("many_shapes", "argument 0 axis 0"));

    let factor = AtomicU32::new(2);
    let scaled = accelerate(|x: &Tensor| x * factor.load(SeqCst) as f32);
    scaled.configure(|options| {
        options.check = (Check { on_difference: OnDifference::FallBack, ..Check::default() }).into()
    });
    scaled.call(ones(3)).unwrap();
    factor.store(3, SeqCst);
    scaled.call(ones(3)).unwrap();
    let heard = listener.heard();
    assert_eq!((named(&heard, "retape::difference").len(), named(&heard, "retape::quarantine").len()), (1, 1));

    let log = accelerate(|x: &Tensor| (x - 2.0_f32).log());
    log.configure(|options| options.trap_nonfinite = true);
    log.call(ones(3)).unwrap_err();
    let found = named(&listener.heard(), "retape::nonfinite");
    assert_eq!((found.len(), &*found[0].fields["op"]), (1, "log"));
}

/// In a process of its own, since patience belongs to the process.
#[test]
fn a_call_that_takes_over_is_told() {
    const CHILD: &str = "RETAPE_TEST_TAKE_OVER";
    if std::env::var_os(CHILD).is_none() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output =
            child.args(["--exact", "events::a_call_that_takes_over_is_told"]).env(CHILD, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        return assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }
    set_patience(Duration::from_millis(10));
    static F: OnceLock<Boxed<(Tensor,), Tensor>> = OnceLock::new();
    static ENTERED: AtomicU32 = AtomicU32::new(0);
    let listening_call = || {
        let (listener, _listening) = Listener::here();
        F.get().unwrap().call(ones(1)).unwrap();
        let heard = listener.heard();
        [named(&heard, "retape::wait").len(), named(&heard, "retape::take_over").len()]
    };
    // The first trace waits for a call that waits for it, and makes the entry after all.
    let f = F.get_or_init(|| {
        let body = move |x: &Tensor| {
            if ENTERED.fetch_add(1, SeqCst) == 0 {
                assert_eq!(std::thread::spawn(listening_call).join().unwrap(), [1, 1]);
            }
            x * 3.0
        };
        accelerate(body).boxed()
    });
    assert_eq!(f.call(ones(1)).unwrap().to_vec::<f32>().unwrap(), [3.0]);
}

#[test]
fn every_event_of_the_page_is_tested_here() {
    let tests = include_str!("events.rs");
    let documented = documented();
    assert_eq!(documented.len(), 11);
    for name in documented.keys() {
        assert!(tests.contains(&format!("\"{name}\"")), "{name}");
    }
}

#[test]
fn a_listener_may_ask_the_function_for_everything() {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let f = Arc::new(accelerate(|x: &Tensor| (x * 1.5_f32).sum(..)));
        let asked = Arc::clone(&f);
        let (listener, _guard) = Listener::reacting(move |_| {
            asked.configure(|options| options.retrace = OnRetrace::Warn.into());
            let _ = (asked.stats().to_string(), asked.advice(), asked.explain(), asked.options(), asked.differences());
            asked.configure(|options| options.capacity = 40);
        });
        f.configure(|options| options.retrace = OnRetrace::Warn.into());
        for n in 1..12 {
            f.call(Tensor::ones([n])).unwrap();
            value_and_grad(|x: &Tensor| f.call(x).unwrap(), &Tensor::ones([n])).unwrap();
        }
        let names: BTreeSet<&str> = listener.heard().iter().map(|heard| heard.name).collect();
        done.send(names).unwrap();
    });
    let names = is_done.recv_timeout(Duration::from_secs(60)).expect("a listener that asks must not wait for itself");
    for name in ["retape::miss", "retape::hit", "retape::retrace", "retape::advice", "retape::stage"] {
        assert!(names.contains(name), "{name} in {names:?}");
    }
}
