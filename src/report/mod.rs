//! The report on an accelerated function: one page that contains all it shows.
//!
//! The page is data, as JSON, and a script that draws it (`page/`). Text enters the page in two ways only: as JSON
//! without `<`, `>` and `&`, and from there as text nodes; so no name, label or path can become markup. A policy in the
//! page's head forbids it to load anything.

mod entry;
mod json;
mod trace_events;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use retape_runtime::{Device, Gpu};

use self::json::Json;
use crate::accelerate::{Accelerated, Entry, Subject};
use crate::call::GradientStats;
use crate::compile::CompileTimes;
use crate::observe::explain::Miss;
use crate::observe::history::Milestone;
use crate::observe::latency::Latency;
use crate::observe::profile::LaunchTotal;
use crate::observe::stats::{EntryStats, Stats};
use crate::signature::Signature;

/// The graphs of so many entries are in the page, those used last.
const MAX_DRAWN: usize = 24;

impl<F, Args, R> Accelerated<F, Args, R> {
    /// Writes a page on the cache to a file: headline numbers, entries with their graphs, memory and times, the log of
    /// misses, advice. The page contains all it shows and loads nothing; any browser opens it.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    ///
    /// ```
    /// use retape::{accelerate, Tensor};
    ///
    /// let norm = accelerate(|x: &Tensor| x.square().sum(..).sqrt());
    /// norm.configure(|options| options.profiling = true);
    /// norm.call(Tensor::ones([4]))?;
    /// # let file = std::env::temp_dir().join(format!("retape-report-{}.html", std::process::id()));
    /// norm.report_html(&file).unwrap(); // open it in a browser
    /// # std::fs::remove_file(file).unwrap();
    /// # Ok::<(), retape::Error>(())
    /// ```
    pub fn report_html(&self, path: impl AsRef<Path>) -> std::io::Result<()> {
        std::fs::write(path, html(&self.core().subject()))
    }
}

/// The page.
fn html(subject: &Subject) -> String {
    let script = [
        include_str!("page/dom.js"),
        include_str!("page/tables.js"),
        include_str!("page/layout.js"),
        include_str!("page/facts.js"),
        include_str!("page/graph.js"),
        include_str!("page/charts.js"),
        include_str!("page/misses.js"),
        include_str!("page/entries.js"),
        include_str!("page/page.js"),
    ];
    let mut page = String::new();
    for line in include_str!("page/page.html").lines() {
        match line {
            "@style@" => page.push_str(include_str!("page/page.css")),
            "@script@" => page.push_str(&format!("\"use strict\";\n{{\n{}}}\n", script.concat())),
            "@data@" => page.push_str(&format!("{}\n", data(subject))),
            _ => page.extend([line, "\n"]),
        }
    }
    page
}

fn data(subject: &Subject) -> Json {
    let stats = &subject.stats;
    let written = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let entries = stats.entries.iter().zip(&subject.entries).zip(&subject.times).enumerate();
    let entry = |(n, ((stats, entry), times)): (usize, ((&EntryStats, &Arc<Entry>), &Option<_>))| {
        entry_data(n, stats, entry, times.as_ref())
    };
    let forgotten = stats.misses.saturating_sub(subject.misses.len() as u64);
    Json::Map(vec![
        ("title", stats.name.as_str().into()),
        ("made_at", Json::text(subject.made_at)),
        ("version", env!("CARGO_PKG_VERSION").into()),
        ("machine", machine(subject)),
        ("written", written.into()),
        ("age", subject.age.into()),
        ("stats", stats_data(stats)),
        ("advice", Json::list(stats.advice.iter().map(ToString::to_string))),
        ("misses", Json::List(subject.misses.iter().map(|miss| miss_data(miss, subject.age)).collect())),
        ("forgotten", forgotten.into()),
        ("history", Json::List(subject.history.iter().map(milestone).collect())),
        ("entries", Json::List(entries.map(entry).collect())),
    ])
}

fn milestone(at: &Milestone) -> Json {
    Json::list([at.misses, at.hits])
}

/// Where calls run: the processor, and the GPUs that entries have code for.
fn machine(subject: &Subject) -> Json {
    let ordinal = |entry: &Arc<Entry>| match entry.code().device() {
        Device::Cuda(ordinal) => Some(ordinal),
        _ => None,
    };
    let ordinals: BTreeSet<u32> = subject.entries.iter().filter_map(ordinal).collect();
    // Without its driver a GPU is still known by its number.
    let name = |n: u32| {
        let model = Gpu::open(n).map(|gpu| format!(" {}", gpu.name())).unwrap_or_default();
        format!("{}{model}", Device::Cuda(n))
    };
    Json::Map(vec![
        ("processor", retape_runtime::processor_model().into()),
        ("architecture", std::env::consts::ARCH.into()),
        ("system", std::env::consts::OS.into()),
        ("threads", retape_runtime::n_threads().into()),
        ("instruction_set", retape_kernels::library::instruction_set().into()),
        ("gpus", Json::list(ordinals.into_iter().map(name))),
    ])
}

/// The arguments in short, one by one, then the modes.
fn summary(signature: &Signature) -> Json {
    let description = signature.description();
    Json::Map(vec![
        ("arguments", Json::list(description.summaries())),
        ("modes", Json::list(description.modes.iter().copied())),
    ])
}

fn stats_data(stats: &Stats) -> Json {
    let latency = |latency: &Latency| {
        Json::Map(vec![
            ("n", latency.n_timed.into()),
            ("min", latency.min.into()),
            ("p50", latency.p50.into()),
            ("p90", latency.p90.into()),
            ("p99", latency.p99.into()),
            ("max", latency.max.into()),
        ])
    };
    Json::Map(vec![
        ("hits", stats.hits.into()),
        ("misses", stats.misses.into()),
        ("waits", stats.waits.into()),
        ("evictions", stats.evictions.into()),
        ("rejected", stats.rejected.into()),
        ("clears", stats.clears.into()),
        ("capacity", stats.capacity.into()),
        ("n_entries", stats.entries.len().into()),
        ("hit_rate", stats.hit_rate().into()),
        ("bytes", stats.bytes().into()),
        ("device_bytes", stats.device_bytes().into()),
        ("pinned", stats.pinned.into()),
        ("checked", stats.checks.checked.into()),
        ("differing", stats.checks.differing.into()),
        ("quarantines", stats.checks.quarantines.into()),
        ("quarantined_calls", stats.checks.quarantined_calls.into()),
        ("trapped", stats.checks.trapped.into()),
        ("stale_checks", stats.checks.stale_checks.into()),
        ("stale", stats.checks.stale.into()),
        ("byte_budget", stats.budget.host.into()),
        ("device_byte_budget", stats.budget.device.into()),
        ("backward_hits", stats.backward_hits.into()),
        ("backward_misses", stats.backward_misses.into()),
        ("hit_latency", latency(&stats.hit_latency)),
        ("miss_latency", latency(&stats.miss_latency)),
    ])
}

fn times_data(times: &CompileTimes) -> Json {
    Json::Map(vec![
        ("trace", times.trace.into()),
        ("optimise", times.optimise.into()),
        ("plan", times.plan.into()),
        ("compile", times.compile.into()),
    ])
}

fn entry_data(n: usize, stats: &EntryStats, entry: &Entry, times: Option<&(u64, Vec<LaunchTotal>)>) -> Json {
    let leaves = entry.signature.description().leaves.iter();
    let leaf = |leaf: &crate::signature::LeafText| {
        Json::Map(vec![("path", leaf.path.as_str().into()), ("text", Json::text(&leaf.value))])
    };
    let names = leaves.clone().filter(|leaf| leaf.value.is_tensor()).map(|leaf| leaf.path.as_str());
    let detail = (n < MAX_DRAWN).then(|| {
        let (calls, launches) = times.map_or((0, None), |(calls, launches)| (*calls, Some(&launches[..])));
        entry::detail(entry, calls, launches)
    });
    let notes = stats.is_pinned.then_some("pinned");
    Json::Map(vec![
        ("id", n.into()),
        ("signature", entry.signature.id().into()),
        ("summary", summary(&stats.signature)),
        ("arguments", Json::text(&stats.signature)),
        ("leaves", Json::List(leaves.clone().map(leaf).collect())),
        ("names", Json::list(names)),
        ("notes", Json::list(notes)),
        ("calls", stats.calls.into()),
        ("idle", stats.last_use.into()),
        ("bytes", stats.bytes.into()),
        ("device_bytes", stats.device_bytes.into()),
        ("arena_bytes", stats.arena_bytes.into()),
        ("arena_unshared_bytes", stats.arena_unshared_bytes.into()),
        ("n_steps", stats.n_steps.into()),
        ("captures", Json::list(stats.captures.iter().map(String::as_str))),
        ("times", times_data(&stats.times)),
        ("gradients", Json::List(stats.gradients.iter().map(gradient_data).collect())),
        ("detail", detail.into()),
    ])
}

fn gradient_data(stats: &GradientStats) -> Json {
    Json::Map(vec![
        ("arguments", Json::list(stats.arguments.iter().copied())),
        ("calls", stats.calls.into()),
        ("is_compiled", stats.is_compiled.into()),
        ("residuals", stats.residuals.into()),
        ("residual_bytes", stats.residual_bytes.into()),
        ("bytes", stats.bytes.into()),
        ("times", times_data(&stats.times)),
    ])
}

fn miss_data(miss: &Miss, age: Duration) -> Json {
    let change = |difference: &crate::observe::explain::Difference| {
        Json::Map(vec![
            ("path", difference.path.as_str().into()),
            ("field", Json::text(difference.aspect)),
            ("old", difference.old.as_str().into()),
            ("new", difference.new.as_str().into()),
        ])
    };
    Json::Map(vec![
        ("number", miss.number.into()),
        ("age", age.saturating_sub(miss.since_start).into()),
        ("reason", miss.reason.name().into()),
        ("entry", miss.signature.id().into()),
        ("summary", summary(&miss.signature)),
        ("arguments", Json::text(&miss.signature)),
        ("changes", Json::List(miss.differences.iter().map(change).collect())),
        ("at", Json::text(miss.at)),
        ("times", times_data(&miss.times)),
        ("wall", miss.wall.into()),
        ("hits", miss.hits.into()),
        ("error", miss.error.as_deref().into()),
    ])
}
