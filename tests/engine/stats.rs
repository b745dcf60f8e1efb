//! Statistics as text: the table for people, and the text that Prometheus reads.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};

use retape::{Stats, Tensor, accelerate};
use retape_report::prometheus;

/// A name that must be escaped.
const NAME: &str = "a \"quoted\\name\", {of} many signs";

fn stats() -> Stats {
    let f = accelerate(|x: &Tensor, name: &String| if name.is_empty() { x.sum(..) } else { x.mean(..) }).named(NAME);
    for (rows, name) in [(4, ""), (4, ""), (4, NAME), (9, ""), (4, "")] {
        f.call(Tensor::ones([rows, 3]), name.to_owned()).unwrap();
    }
    f.stats()
}

#[test]
fn the_table_has_a_row_per_entry_and_its_columns_are_aligned() {
    let text = stats().to_string();
    assert!(text.starts_with(&format!("function   {NAME}\nhit rate ")), "{text}");
    let lines: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(lines[0], "hit rate   40.0000 % (2 hits, 3 misses, 0 waits)");
    assert_eq!(lines[1], "entries    3 of 50 (0 pinned, 0 evictions, 0 clears)");
    let head = lines.iter().position(|line| line.contains("last use")).unwrap();
    assert_eq!(lines.len(), head + 4, "{text}");
    assert!(lines[head + 1].contains(" (f32[4, 3], \"\")"), "{text}");
    // Numbers end where the name of their column ends.
    let end = lines[head].find("calls").unwrap() + "calls".len();
    let calls: Vec<&str> = lines[head + 1..].iter().map(|line| line[..end].rsplit(' ').next().unwrap()).collect();
    assert_eq!(calls, ["3", "1", "1"], "{text}");
}

/// Entries, not pins, and only those that are in the cache.
#[test]
fn pinned_entries_are_counted() {
    let double = accelerate(|x: &Tensor| x * 2.0).named("double");
    let small = || Tensor::ones([2]);
    double.call(Tensor::ones([3])).unwrap();
    let numbers = || {
        let stats = double.stats();
        let marked = stats.entries.iter().filter(|entry| entry.is_pinned).count();
        assert!(stats.to_string().contains(&format!(" of 50 ({marked} pinned, ")), "{stats}");
        let gauge = format!("retape_cache_pinned_entries{{function=\"double\"}} {marked}\n");
        let text = prometheus(&[&stats]);
        assert!(text.contains(&gauge), "{text}");
        (stats.pinned, marked)
    };
    assert_eq!(numbers(), (0, 0));
    let pins = [double.pin(small()).unwrap(), double.pin(small()).unwrap()];
    assert_eq!(numbers(), (1, 1));
    let other = double.pin(Tensor::ones([3])).unwrap();
    assert_eq!(numbers(), (2, 2));
    drop(pins);
    assert_eq!(numbers(), (1, 1));
    double.clear_cache();
    assert_eq!(numbers(), (0, 0));
    drop(other);
}

/// A sample: the metric, its labels and its value.
type Sample = (String, BTreeMap<String, String>, f64);

/// Reads a sample by the grammar of the text format.
fn sample(line: &str) -> Sample {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == ':')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
    };
    let (name, mut rest) = line.split_once('{').unwrap();
    assert!(is_name(name), "{line}");
    let mut labels = BTreeMap::new();
    while !rest.starts_with('}') {
        let (label, after) = rest.split_once("=\"").unwrap();
        assert!(is_name(label) && !label.starts_with("__"), "{line}");
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().unwrap() {
                (_, '\\') => value.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    c => panic!("\\{c} in {line}"),
                }),
                (at, '"') => break at,
                (_, c) => value.push(c),
            }
        };
        assert_eq!(labels.insert(label.to_owned(), value), None, "{line}");
        rest = &after[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    let value = rest[1..].strip_prefix(' ').unwrap();
    (name.to_owned(), labels, value.parse().unwrap())
}

/// Checks a text line by line, and gives its samples.
fn samples(text: &str) -> Vec<Sample> {
    assert!(text.ends_with('\n'));
    let (mut families, mut samples) = (BTreeSet::new(), vec![]);
    let mut current = (String::new(), String::new());
    let mut seen = BTreeSet::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').unwrap();
            assert!(!text.is_empty() && families.insert(name.to_owned()), "{name} is described twice");
            let kind = lines.next().unwrap().strip_prefix(&format!("# TYPE {name} ")).unwrap();
            assert!(["counter", "gauge", "summary"].contains(&kind), "{kind}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            current = (name.to_owned(), kind.to_owned());
            continue;
        }
        let (name, labels, value) = sample(line);
        let (family, kind) = (&current.0, current.1.as_str());
        let parts = [format!("{family}_sum"), format!("{family}_count")];
        let is_part = kind == "summary" && (parts.contains(&name) || labels.contains_key("quantile"));
        assert!(name == *family && kind != "summary" || is_part, "{line} under {family}");
        assert!(seen.insert(format!("{name} {labels:?}")), "{line} is there twice");
        assert!(kind != "counter" || value >= 0.0, "{line}");
        samples.push((name, labels, value));
    }
    samples
}

#[test]
fn prometheus_text_follows_the_grammar_and_says_the_same() {
    let stats = stats();
    let samples = samples(&prometheus(&[&stats, &stats]));
    let again = format!("{NAME} #2");
    let of = |metric: &str, function: &str| -> Vec<f64> {
        let matches = |(name, labels, _): &&Sample| name == metric && labels["function"] == function;
        samples.iter().filter(matches).map(|(_, _, value)| *value).collect()
    };
    for function in [NAME, &again] {
        assert_eq!(of("retape_cache_hits_total", function), [2.0]);
        assert_eq!(of("retape_cache_misses_total", function), [3.0]);
        assert_eq!(of("retape_cache_hit_ratio", function), [0.4]);
        assert_eq!(of("retape_cache_entries", function), [3.0]);
        assert_eq!(of("retape_cache_bytes", function), [stats.bytes() as f64]);
        assert_eq!(of("retape_cache_entry_calls_total", function), [3.0, 1.0, 1.0]);
        assert_eq!(of("retape_cache_miss_latency_seconds_count", function), [3.0]);
        assert!(of("retape_cache_miss_latency_seconds", function).iter().all(|time| (1e-6..60.0).contains(time)));
        assert_eq!(of("retape_cache_host_budget_bytes", function), [0.0_f64; 0]);
    }
    let texts: BTreeSet<&str> = samples.iter().filter_map(|(_, labels, _)| Some(&**labels.get("arguments")?)).collect();
    let expected: BTreeSet<String> = stats.entries.iter().map(|entry| entry.signature.to_string()).collect();
    assert_eq!(texts, expected.iter().map(String::as_str).collect());
    assert_eq!(samples.len(), self::samples(&prometheus(&[&stats])).len() * 2);
}
