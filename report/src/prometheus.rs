//! Statistics in the text format that Prometheus reads.

use std::collections::HashSet;
use std::fmt::Write as _;

use retape::{EntryStats, Latency, Stats};

/// The statistics of several functions as one text; the [front page](crate#metrics) has an example.
///
/// Every metric begins with `retape_cache_` and has the label `function`, the name of the function; those of entries
/// also have the label `entry`, the short name of the signature, which `retape_cache_entry_info` maps to the arguments.
/// Times are in seconds, sizes in bytes. A text may hold each sample only once, so of functions with one name the second
/// is labelled `name #2`, and so on.
pub fn prometheus(functions: &[&Stats]) -> String {
    let functions = &labelled(functions)[..];
    let mut text = String::new();
    for metric in METRICS {
        family(&mut text, metric.name, metric.help, metric.kind);
        for (name, stats) in functions {
            if let Some(value) = (metric.value)(stats) {
                sample(&mut text, metric.name, &[("function", name)], value);
            }
        }
    }
    latencies(&mut text, "hit_latency_seconds", "How long hits took, a sample of them.", functions, |s| s.hit_latency);
    latencies(&mut text, "miss_latency_seconds", "How long misses took.", functions, |s| s.miss_latency);
    for metric in ENTRY_METRICS {
        family(&mut text, metric.name, metric.help, metric.kind);
        for (name, stats) in functions {
            for entry in &stats.entries {
                if let Some(value) = (metric.value)(entry) {
                    sample(&mut text, metric.name, &[("function", name), ("entry", &entry.signature.id())], value);
                }
            }
        }
    }
    family(&mut text, "entry_info", "The arguments of an entry, as a label; always 1.", "gauge");
    for (name, stats) in functions {
        for entry in &stats.entries {
            let (id, arguments) = (entry.signature.id(), entry.signature.to_string());
            sample(&mut text, "entry_info", &[("function", name), ("entry", &id), ("arguments", &arguments)], 1.0);
        }
    }
    text
}

/// Statistics of a function with its label.
type Labelled<'s> = (String, &'s Stats);

/// Each function with a label of its own.
fn labelled<'s>(functions: &[&'s Stats]) -> Vec<Labelled<'s>> {
    let mut taken = HashSet::new();
    let mut label = |name: &str| {
        let numbered = (2..).map(|n| format!("{name} #{n}"));
        let mut free = std::iter::once(name.to_owned()).chain(numbered).filter(|label| !taken.contains(label));
        let label = free.next().expect("there are more numbers than functions");
        drop(free);
        taken.insert(label.clone());
        label
    };
    functions.iter().map(|stats| (label(&stats.name), *stats)).collect()
}

/// A number of a cache or of an entry; none where it has none.
struct Metric<T> {
    name: &'static str,
    help: &'static str,
    kind: &'static str,
    value: fn(&T) -> Option<f64>,
}

const fn counter<T>(name: &'static str, help: &'static str, value: fn(&T) -> Option<f64>) -> Metric<T> {
    Metric { name, help, kind: "counter", value }
}

const fn gauge<T>(name: &'static str, help: &'static str, value: fn(&T) -> Option<f64>) -> Metric<T> {
    Metric { name, help, kind: "gauge", value }
}

const METRICS: &[Metric<Stats>] = &[
    counter("hits_total", "Calls that found an entry.", |s| Some(s.hits as f64)),
    counter("misses_total", "Calls that traced.", |s| Some(s.misses as f64)),
    counter("waits_total", "Calls that waited for the trace of another thread.", |s| Some(s.waits as f64)),
    counter("evictions_total", "Entries dropped to make room.", |s| Some(s.evictions as f64)),
    counter("clears_total", "Times the cache was cleared.", |s| Some(s.clears as f64)),
    counter("rejected_total", "Traces that were not kept.", |s| Some(s.rejected as f64)),
    counter("backward_hits_total", "Runs of backward code that was there.", |s| Some(s.backward_hits as f64)),
    counter("backward_misses_total", "Runs of backward code that compiled it.", |s| Some(s.backward_misses as f64)),
    counter("checked_calls_total", "Calls compared with the un-accelerated path.", |s| Some(s.checks.checked as f64)),
    counter("differing_calls_total", "Checked calls that differed.", |s| Some(s.checks.differing as f64)),
    counter("quarantines_total", "Signatures put in quarantine.", |s| Some(s.checks.quarantines as f64)),
    counter("quarantined_calls_total", "Calls served un-accelerated because of a quarantine.", |s| {
        Some(s.checks.quarantined_calls as f64)
    }),
    counter("trapped_calls_total", "Calls that failed by the trap for non-finite values.", |s| {
        Some(s.checks.trapped as f64)
    }),
    counter("stale_checks_total", "Hits that entered the closure to look for changes.", |s| {
        Some(s.checks.stale_checks as f64)
    }),
    counter("stale_total", "Entries whose closure was found to record something else.", |s| {
        Some(s.checks.stale as f64)
    }),
    gauge("hit_ratio", "Hits over calls.", |s| Some(s.hit_rate())),
    gauge("entries", "Entries in the cache.", |s| Some(s.entries.len() as f64)),
    gauge("pinned_entries", "Entries that are never evicted.", |s| Some(s.pinned as f64)),
    gauge("capacity_entries", "Entries that the cache may hold.", |s| Some(s.capacity as f64)),
    gauge("bytes", "Bytes of all entries in main memory.", |s| Some(s.bytes() as f64)),
    gauge("device_bytes", "Bytes of all entries on GPUs.", |s| Some(s.device_bytes() as f64)),
    gauge("host_budget_bytes", "Bytes that all entries may use; absent without a budget.", |s| {
        s.budget.host.map(|bytes| bytes as f64)
    }),
    gauge("device_budget_bytes", "Bytes of devices that all entries may use; absent without a budget.", |s| {
        s.budget.device.map(|bytes| bytes as f64)
    }),
];

const ENTRY_METRICS: &[Metric<EntryStats>] = &[
    counter("entry_calls_total", "Calls that an entry served.", |e| Some(e.calls as f64)),
    gauge("entry_bytes", "Bytes of an entry in main memory.", |e| Some(e.bytes as f64)),
    gauge("entry_device_bytes", "Bytes of an entry on a GPU.", |e| Some(e.device_bytes as f64)),
    gauge("entry_arena_bytes", "Bytes of an entry's arena.", |e| Some(e.arena_bytes as f64)),
    gauge("entry_idle_seconds", "How long ago an entry was last used.", |e| Some(e.last_use.as_secs_f64())),
    gauge("entry_made_seconds", "What tracing and compiling an entry took.", |e| Some(e.times.total().as_secs_f64())),
];

fn latencies(text: &mut String, name: &str, help: &str, functions: &[Labelled<'_>], of: fn(&Stats) -> Latency) {
    family(text, name, help, "summary");
    for (function, stats) in functions {
        let latency = of(stats);
        for (quantile, time) in [("0.5", latency.p50), ("0.9", latency.p90), ("0.99", latency.p99)] {
            // Without any call a quantile is not a number, as Prometheus has it.
            let value = if latency.n_timed == 0 { f64::NAN } else { time.as_secs_f64() };
            sample(text, name, &[("function", function), ("quantile", quantile)], value);
        }
        sample(text, &format!("{name}_sum"), &[("function", function)], latency.total.as_secs_f64());
        sample(text, &format!("{name}_count"), &[("function", function)], latency.n_timed as f64);
    }
}

fn family(text: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(text, "# HELP retape_cache_{name} {help}\n# TYPE retape_cache_{name} {kind}");
}

fn sample(text: &mut String, name: &str, labels: &[(&str, &str)], value: f64) {
    let _ = write!(text, "retape_cache_{name}{{");
    for (n, (label, value)) in labels.iter().enumerate() {
        let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(text, "{}{label}=\"{escaped}\"", if n > 0 { "," } else { "" });
    }
    let _ = writeln!(text, "}} {value}");
}
