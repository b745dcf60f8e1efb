//! Profiles: calls, stages and groups as data and as a trace that viewers open.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::time::Duration;

use retape::{CallKind, Profile, Tensor, accelerate};
use retape_report::TraceEvents;
use serde_json::Value;

/// An interval of a trace, in nanoseconds, with what it is.
#[derive(Clone, Debug)]
struct Span {
    name: String,
    category: String,
    thread: u64,
    start: u64,
    end: u64,
    args: Value,
}

/// The complete events of a trace file, which must be well-formed.
fn spans(json: &str) -> Vec<Span> {
    let file: Value = serde_json::from_str(json).unwrap();
    let mut spans = vec![];
    for event in file["traceEvents"].as_array().unwrap() {
        assert!(event["name"].is_string() && event["pid"].is_number() && event["tid"].is_number(), "{event}");
        if event["ph"] == "M" {
            assert!(event["args"]["name"].is_string(), "{event}");
            continue;
        }
        assert_eq!(event["ph"], "X");
        let nanos = |field: &str| (1e3 * event[field].as_f64().unwrap()).round() as u64;
        spans.push(Span {
            name: event["name"].as_str().unwrap().to_owned(),
            category: event["cat"].as_str().unwrap().to_owned(),
            thread: event["tid"].as_u64().unwrap(),
            start: nanos("ts"),
            end: nanos("ts") + nanos("dur"),
            args: event["args"].clone(),
        });
    }
    spans
}

/// Checks that calls of a thread follow each other or lie in each other, and that each stage and group lies in a call.
fn check_nesting(spans: &[Span]) {
    let mut threads: BTreeMap<u64, Vec<&Span>> = BTreeMap::new();
    spans.iter().for_each(|span| threads.entry(span.thread).or_default().push(span));
    for mut spans in threads.into_values() {
        // Outer spans first.
        spans.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end), span.category != "call"));
        let mut open: Vec<&Span> = vec![];
        for span in spans {
            while open.last().is_some_and(|outer| outer.end <= span.start && outer.end < span.end) {
                open.pop();
            }
            match open.last() {
                Some(outer) => assert!(span.end <= outer.end, "{span:?} leaves {outer:?}"),
                None => assert_eq!(span.category, "call", "{span:?} is in no call"),
            }
            if span.category == "group" {
                assert!(open.iter().all(|outer| outer.category != "group"), "{span:?} is in another group");
            }
            open.push(span);
        }
    }
}

#[test]
fn a_profile_shows_calls_stages_and_groups() {
    let step = accelerate(|w: &Tensor, x: &Tensor| {
        let loss = x.matmul(w).tanh().square().mean(..);
        let grad = loss.grad(w);
        (loss, w - grad * 0.1_f32)
    });
    step.configure(|options| options.stale_check = false);
    let call = |rows: usize| step.call(Tensor::full([16, 16], 0.1_f32), Tensor::ones([rows, 16])).unwrap();
    call(8);
    assert!(step.profile().calls.is_empty() && !step.options().profiling);
    step.configure(|options| options.profiling = true);
    for rows in [8, 8, 24, 8] {
        call(rows);
    }
    step.configure(|options| options.enabled = false);
    call(8);
    step.configure(|options| options.enabled = true);
    step.configure(|options| options.profiling = false);
    call(8);

    let profile = step.profile();
    let kinds: Vec<CallKind> = profile.calls.iter().map(|call| call.kind).collect();
    assert_eq!(kinds, [CallKind::Hit, CallKind::Hit, CallKind::Miss, CallKind::Hit, CallKind::Unaccelerated]);
    let miss = &profile.calls[2];
    let stages: Vec<&str> = miss.spans.iter().filter(|span| span.steps.is_none()).map(|span| &*span.name).collect();
    assert_eq!(stages, ["trace", "optimise", "plan", "compile"]);
    check_totals(&profile);

    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("profile.json");
    profile.write_trace_events(&file).unwrap();
    let spans = spans(&std::fs::read_to_string(file).unwrap());
    check_nesting(&spans);
    let n = |category: &str| spans.iter().filter(|span| span.category == category).count();
    let n_groups: usize = profile.calls.iter().flat_map(|call| &call.spans).filter(|span| span.steps.is_some()).count();
    assert_eq!((n("call"), n("stage"), n("group")), (5, 4, n_groups));
    let matmul = spans.iter().find(|span| span.category == "group" && span.name.contains("matmul")).unwrap();
    assert!(matmul.args["lines"][0].as_str().unwrap().starts_with("tests/engine/profile.rs:"), "{matmul:?}");
    assert!(matmul.args["arena_bytes"].as_f64().unwrap() > 0.0);
    assert_eq!(spans[0].args["arguments"], "f32[16, 16], f32[8, 16]");
}

/// Each line of the table is that of an entry or a group, in the order of the data.
#[test]
fn a_profile_is_a_table_as_text() {
    let step = accelerate(|w: &Tensor, x: &Tensor| {
        let loss = x.matmul(w).tanh().square().mean(..);
        (loss.clone(), loss.grad(w))
    });
    assert_eq!(step.profile().to_string(), "calls      0");
    step.configure(|options| options.profiling = true);
    for rows in [8, 24, 8] {
        step.call(Tensor::full([16, 16], 0.1_f32), Tensor::ones([rows, 16])).unwrap();
    }
    step.configure(|options| options.enabled = false);
    step.call(Tensor::zeros([1, 1]), Tensor::zeros([1, 1])).unwrap();
    step.configure(|options| options.enabled = true);
    step.call(Tensor::ones([2, 2]), Tensor::ones([3, 3])).unwrap_err();
    let profile = step.profile();
    let text = profile.to_string();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("calls      5 (1 hit, 2 miss, 1 unaccelerated, 1 failed)"));
    let columns = |line: &str| -> Vec<String> {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    let work = ["flops", "bytes", "GFLOP/s", "GB/s", "of limit"];
    let times = ["group", "stores", "count", "total", "mean", "share"];
    assert_eq!(columns(lines.next().unwrap()), [&times[..], &work].concat());
    let time = |time: Duration| format!("{time:.1?}");
    let mut entry = None;
    for group in &profile.groups {
        if entry != Some(&group.signature) {
            entry = Some(&group.signature);
            let line = columns(lines.next().unwrap());
            assert_eq!(line[0], format!("{} ({})", group.signature.id(), group.signature));
            assert_eq!(line[1], group.count.to_string());
        }
        let line = columns(lines.next().unwrap());
        let share = format!("{:.1} %", 100.0 * group.share);
        let mean =
            if group.count == 1 { group.total } else { (group.total - group.first).div_f64(group.count as f64 - 1.0) };
        let times = [time(group.total), time(mean)];
        assert_eq!(line[2..6], [group.count.to_string(), times[0].clone(), times[1].clone(), share], "{text}");
        let of_limit = group.of_limit.map_or("0 B".to_owned(), |part| format!("{:.0} %", 100.0 * part));
        assert_eq!(line.last(), Some(&of_limit), "{text}");
        assert!(group.label.starts_with(line[0].split([',', '.']).next().unwrap()), "{text}");
        assert!(!group.results.is_empty() && line[1].starts_with(&*group.results[0]), "{text}");
    }
    assert_eq!(lines.next(), None);
    assert!(text.contains("f32[8, 16]") && text.contains("f32[24, 16]") && text.contains("matmul"), "{text}");
    let widths: Vec<usize> = text.lines().skip(1).map(|line| line.chars().count()).collect();
    assert!(widths.iter().all(|width| *width == widths[0]), "columns are aligned: {text}");
}

/// Operations and bytes follow from shapes, and the part of the limit from these and the time.
#[test]
fn groups_know_their_operations_and_bytes() {
    let product = accelerate(|x: &Tensor, w: &Tensor| x.matmul(w));
    let formula = accelerate(|x: &Tensor| (x * 3.0 + 1.0).sqrt());
    let (x, w) = (Tensor::ones([64, 128]), Tensor::ones([128, 256]));
    product.configure(|options| options.profiling = true);
    formula.configure(|options| options.profiling = true);
    for _ in 0..3 {
        product.call(&x, &w).unwrap();
        formula.call(&x).unwrap();
    }
    let (product, formula) = (product.profile(), formula.profile());
    let (flops, elements) = (2 * 64 * 128 * 256, 64 * 128 + 128 * 256 + 64 * 256);
    assert_eq!((product.groups[0].flops, product.groups[0].bytes), (flops, 4 * elements));
    // A multiplication, an addition and a square root.
    assert_eq!((formula.groups[0].flops, formula.groups[0].bytes), (3 * 64 * 128, 2 * 4 * 64 * 128));
    let parts = [&product, &formula].map(|profile| profile.groups[0].of_limit.unwrap());
    assert!(parts.iter().all(|part| *part > 0.0), "{parts:?}");
    // The same limits hold for both: the parts are those of the work over the time, in whole nanoseconds.
    let seconds = |profile: &Profile| profile.groups[0].mean().as_secs_f64();
    let bandwidth = formula.groups[0].bytes as f64 / (parts[1] * seconds(&formula));
    let needs_no_more = product.groups[0].bytes as f64 / bandwidth <= parts[0] * seconds(&product) * 1.02;
    assert!(needs_no_more, "the longer of two times: {parts:?}");
    let text = product.to_string();
    assert!(text.contains("4.2 M") && text.contains("224.0 KiB"), "{text}");
}

/// The totals are the sums of the calls, and no more than these took.
fn check_totals(profile: &Profile) {
    for (at, group) in profile.groups.iter().enumerate() {
        // The parts of one step have the same name, and the order of the launches.
        let launch = profile.groups[..at].iter().filter(|other| other.signature == group.signature).count();
        let runs: Vec<Duration> = profile
            .calls
            .iter()
            .filter(|call| call.signature.as_ref() == Some(&group.signature))
            .filter_map(|call| call.spans.iter().filter(|span| span.steps.is_some()).nth(launch))
            .inspect(|span| assert_eq!((&span.steps, &span.name), (&Some(group.steps.clone()), &group.label)))
            .map(|span| span.time)
            .collect();
        assert_eq!(runs.len() as u64, group.count, "{group:?}");
        assert_eq!((runs.iter().sum::<Duration>(), runs[0]), (group.total, group.first));
        assert_eq!((runs.iter().min(), runs.iter().max()), (Some(&group.min), Some(&group.max)));
    }
    let mut shares: BTreeMap<String, f64> = BTreeMap::new();
    for group in &profile.groups {
        *shares.entry(group.signature.to_string()).or_default() += group.share;
        // Shares of an entry are as its means.
        let first = profile.groups.iter().find(|other| other.signature == group.signature).unwrap();
        let [seconds, of_first] = [group, first].map(|group| group.mean().as_secs_f64());
        assert!((group.share * of_first - first.share * seconds).abs() <= 2e-9, "{group:?} beside {first:?}");
    }
    assert!(shares.len() == 2 && shares.values().all(|share| *share > 0.0 && *share <= 1.0), "{shares:?}");
}

#[test]
fn calls_of_threads_and_calls_inside_traces_nest() {
    let inner = accelerate(|x: &Tensor| x.exp().sum(..));
    let outer = accelerate(|x: &Tensor| {
        // On a concrete tensor: a call of its own, while the outer one is traced.
        let scale = inner.call(Tensor::ones([5])).unwrap();
        x * scale
    });
    inner.configure(|options| options.profiling = true);
    outer.configure(|options| options.profiling = true);
    std::thread::scope(|scope| {
        for n in 1..4 {
            let outer = &outer;
            scope.spawn(move || (0..20).for_each(|_| drop(outer.call(Tensor::ones([n])).unwrap())));
        }
    });
    let profile = outer.profile();
    assert_eq!(profile.calls.len(), 60);
    let mut spans = spans(&profile.to_trace_events());
    check_nesting(&spans);
    let threads: std::collections::BTreeSet<u64> = spans.iter().map(|span| span.thread).collect();
    assert_eq!(threads.len(), 3);
    assert_eq!(inner.profile().calls.len(), 3);
    assert!(spans.iter().all(|span| !span.name.contains("exp")), "the inner call is noted in the outer function");
    spans.retain(|span| span.name == "miss");
    assert_eq!(spans.len(), 3);
}

#[test]
fn memory_is_bounded_and_totals_go_on() {
    let f = accelerate(|x: &Tensor| x + x);
    f.configure(|options| options.profiling = true);
    let x = Tensor::ones([2]);
    let n = 40_000;
    (0..n).for_each(|_| drop(f.call(&x).unwrap()));
    let profile = f.profile();
    let n_spans: usize = profile.calls.iter().map(|call| 1 + call.spans.len()).sum();
    assert!(n_spans <= 1 << 16, "{n_spans}");
    assert_eq!(profile.calls.len() as u64 + profile.n_forgotten, n);
    assert!(profile.n_forgotten > 0);
    assert_eq!(profile.groups[0].count, n);
    // From the beginning again.
    f.configure(|options| options.profiling = false);
    f.configure(|options| options.profiling = true);
    assert!(f.profile().calls.is_empty() && f.profile().groups.is_empty());
}

#[test]
fn a_failed_call_is_in_the_profile_too() {
    let f = accelerate(|x: &Tensor, y: &Tensor| x + y);
    f.configure(|options| options.profiling = true);
    f.call(Tensor::ones([2]), Tensor::ones([3])).unwrap_err();
    let kinds: Vec<CallKind> = f.profile().calls.iter().map(|call| call.kind).collect();
    assert_eq!(kinds, [CallKind::Failed]);
    check_nesting(&spans(&f.profile().to_trace_events()));
}
