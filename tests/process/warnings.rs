//! Warnings on standard error: each mistake is told once where nobody listens for events, and not at all where somebody
//! does or where they are switched off. Each case runs in a process of its own, whose standard error is read.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::cell::Cell;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use retape::{Check, OnDifference, OnRetrace, Tensor, accelerate, set_warnings};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The case that a child process runs.
const CASE: &str = "RETAPE_TEST_WARNING";

/// A listener to the target of the library, down to a level.
struct Ears(Level);

static HEARD: AtomicUsize = AtomicUsize::new(0);

impl Subscriber for Ears {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "retape" && *metadata.level() <= self.0
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        HEARD.fetch_add(usize::from(*event.metadata().level() == Level::WARN), SeqCst);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn ones(n: usize) -> Tensor {
    Tensor::ones([n])
}

const NUMBER: u32 = line!() + 6;

/// The rate changes behind the closure's back, in two functions of one line.
fn a_number() {
    let rate = Cell::new(0.1_f32);
    for _ in 0..2 {
        let scaled = accelerate(|x: &Tensor| x * rate.get());
        rate.set(0.1);
        scaled.call(ones(2)).unwrap();
        rate.set(0.2);
        (0..10).for_each(|_| assert_eq!(scaled.call(ones(2)).unwrap().to_vec::<f32>().unwrap(), [0.1, 0.1]));
        assert_eq!(scaled.advice().len(), usize::from(scaled.options().stale_check));
    }
}

/// Two signatures differ from the un-accelerated path, several times each.
fn failed_checks(consequence: OnDifference) {
    let rate = Cell::new(1.0_f32);
    let scaled = accelerate(|x: &Tensor| x * rate.get());
    scaled.configure(|options| options.stale_check = false);
    scaled.configure(|options| options.check = (Check { on_difference: consequence, ..Check::default() }).into());
    for n in [2, 3] {
        scaled.call(ones(n)).unwrap();
    }
    rate.set(2.0);
    for n in [2, 3, 2, 3] {
        scaled.call(ones(n)).unwrap();
    }
}

/// Two numbers change behind the closure's back, each found by hits of another signature.
fn two_numbers() {
    let (by, plus) = (Cell::new(1.0_f32), Cell::new(5.0_f32));
    let line = accelerate(|x: &Tensor| {
        let product = x * by.get();
        product + plus.get()
    });
    let call = |n: usize| (0..5).for_each(|_| drop(line.call(ones(n)).unwrap()));
    [2, 3].into_iter().for_each(|n| drop(line.call(ones(n)).unwrap()));
    by.set(2.0);
    call(2);
    by.set(1.0);
    plus.set(3.0);
    call(3);
    assert_eq!(line.advice().len(), 2);
}

/// An axis that takes ten extents; a new trace after the first is one too many.
fn many_shapes() {
    let sum = accelerate(|x: &Tensor| x.sum(..));
    sum.configure(|options| options.retrace = OnRetrace::Warn.into());
    (1..=10).for_each(|n| drop(sum.call(ones(n)).unwrap()));
}

/// Long after the first hits.
fn a_late_number() {
    let rate = Cell::new(0.1_f32);
    let scaled = accelerate(|x: &Tensor| x * rate.get());
    let (x, start) = (ones(2), std::time::Instant::now());
    (0..5000).for_each(|_| drop(scaled.call(&x).unwrap()));
    rate.set(0.2);
    while scaled.advice().is_empty() {
        (0..64).for_each(|_| drop(scaled.call(&x).unwrap()));
        assert!(start.elapsed().as_secs() < 60, "nobody looks any more: {}", scaled.stats());
    }
}

/// Runs in a child process only.
#[test]
fn a_case_in_a_process_of_its_own() {
    let Ok(case) = std::env::var(CASE) else { return };
    match &*case {
        "number" => a_number(),
        "late" => a_late_number(),
        "heard" | "other target" => {
            let level = if case == "heard" { Level::WARN } else { Level::ERROR };
            tracing::subscriber::set_global_default(Ears(level)).unwrap();
            a_number();
            many_shapes();
            failed_checks(OnDifference::Warn);
            assert_eq!(HEARD.load(SeqCst) > 0, case == "heard");
        }
        "off" => {
            set_warnings(false);
            a_number();
            many_shapes();
        }
        "checks" => failed_checks(OnDifference::Warn),
        "fall back" => failed_checks(OnDifference::FallBack),
        "shapes" => many_shapes(),
        "two numbers" => two_numbers(),
        other => panic!("there is no case {other}"),
    }
}

fn child(case: &str, variables: &[(&str, &str)]) -> Command {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "warnings::a_case_in_a_process_of_its_own", "--nocapture"]);
    child.env(CASE, case).envs(variables.iter().copied()).stdout(Stdio::null());
    child
}

/// The warnings that a case writes.
fn warnings(case: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let output = child(case, variables).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{case}: {text}");
    let lines = text.lines().filter_map(|line| line.strip_prefix("retape: warning: "));
    lines.map(|line| line.replace('\\', "/")).collect()
}

#[test]
fn a_number_that_changes_is_told_once() {
    for case in ["number", "late"] {
        let lines = warnings(case, &[]);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("constant 0.1 became 0.2 at tests/process/warnings.rs:"), "{lines:?}");
        assert!(lines[0].contains("[the function accelerated at tests/process/warnings.rs:"), "{lines:?}");
        assert!(case == "late" || lines[0].contains(&format!("warnings.rs:{NUMBER}:46: ")), "{lines:?}");
    }
}

#[test]
fn each_number_that_changes_is_told() {
    let lines = warnings("two numbers", &[]);
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (line, change) in lines.iter().zip(["constant 1.0 became 2.0 at ", "constant 5.0 became 3.0 at "]) {
        assert!(line.starts_with(change), "{line}");
    }
}

#[test]
fn failed_checks_are_told_once_for_each_signature() {
    let lines = warnings("checks", &[]);
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (line, arguments) in lines.iter().zip(["(f32[2])", "(f32[3])"]) {
        assert!(line.contains("1.0 instead of 2.0") && line.contains(arguments), "{line}");
    }
    let lines = warnings("fall back", &[]);
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line.contains("served un-accelerated from now on")).count(), 2);
}

#[test]
fn advice_and_unexpected_traces_are_told() {
    let lines = warnings("shapes", &[]);
    let n = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
    assert_eq!((n("a new trace: "), n("axis 0 took 8 values"), lines.len()), (9, 1, 10), "{lines:?}");
}

#[test]
fn who_listens_is_told_and_others_may_switch_warnings_off() {
    assert_eq!(warnings("heard", &[]), [""; 0]);
    // Somebody listens, and not for warnings.
    assert!(warnings("other target", &[]).len() > 10);
    assert_eq!(warnings("off", &[]), [""; 0]);
    assert_eq!(warnings("number", &[("RETAPE_WARN", "0")]), [""; 0]);
    assert_eq!(warnings("number", &[("RETAPE_STALE_CHECK", "0")]), [""; 0]);
}

#[test]
fn profiles_are_printed_if_the_environment_asks_for_them() {
    let text = |variables: &[(&str, &str)]| {
        let output = child("shapes", variables).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let profiled = text(&[("RETAPE_LOG", "profile")]);
    assert!(!text(&[]).contains("of limit"));
    let lines: Vec<_> = profiled.lines().map(|line| line.replace('\\', "/")).collect();
    let calls = lines.iter().position(|line| line.starts_with("calls ")).unwrap();
    assert!(lines[calls - 1].contains("warnings.rs:"), "{profiled}");
    assert!(lines[calls].contains("miss") && lines[calls + 1].contains("of limit"), "{profiled}");
}

/// Lines that cannot be written are left out; `eprintln!` would panic.
#[test]
fn a_closed_standard_error_stops_nobody() {
    for variables in [&[][..], &[("RETAPE_LOG", "trace,opt,plan")]] {
        let mut child = child("number", variables).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stderr.take());
        assert!(child.wait().unwrap().success(), "with {variables:?}");
    }
}
