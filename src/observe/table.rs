//! Statistics and profiles for people: a few lines on the cache, and tables of its entries and of their groups.

use std::fmt;
use std::time::Duration;

use retape_runtime::ByteCount;

use super::latency::Latency;
use super::profile::{CallKind, GroupTime, Profile};
use super::stats::{EntryStats, Stats};
use crate::call::GradientStats;

/// Arguments longer than this are cut.
const MAX_ARGUMENTS: usize = 48;

/// Columns of text; the first is aligned left, the others right.
struct Table<const N: usize>(Vec<[String; N]>);

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| self.0.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; N] = std::array::from_fn(width);
        for row in &self.0 {
            write!(f, "\n{:<width$}", row[0], width = widths[0])?;
            for (text, width) in row.iter().zip(widths).skip(1) {
                write!(f, "  {text:>width$}")?;
            }
        }
        Ok(())
    }
}

/// The first of many arguments, and how many more there are.
fn shortened(arguments: &[String]) -> String {
    let len = |n: usize| arguments[..n].join(", ").chars().count();
    if len(arguments.len()) <= MAX_ARGUMENTS {
        return arguments.join(", ");
    }
    match (1..arguments.len()).rfind(|&n| len(n) <= MAX_ARGUMENTS - 12) {
        Some(n) => format!("{}, and {} more", arguments[..n].join(", "), arguments.len() - n),
        None => arguments.join(", ").chars().take(MAX_ARGUMENTS - 2).chain("..".chars()).collect(),
    }
}

/// Bytes with a unit.
fn bytes(n: usize) -> String {
    ByteCount(n).to_string()
}

fn idle(time: Duration) -> String {
    match time.as_secs() {
        0 => "now".to_owned(),
        n @ 1..60 => format!("{n} s ago"),
        n @ 60..3600 => format!("{} min ago", n / 60),
        n => format!("{} h ago", n / 3600),
    }
}

fn entry_row(entry: &EntryStats) -> [String; 8] {
    let (signature, description) = (&entry.signature, entry.signature.description());
    let modes: String = description.modes.iter().map(|mode| format!("; {mode}")).collect();
    let mark = if entry.is_pinned { " (pinned)" } else { "" };
    [
        // The name tells apart what looks alike in short.
        format!("  {} ({}{modes}){mark}", signature.id(), shortened(&description.summaries())),
        entry.calls.to_string(),
        idle(entry.last_use),
        match entry.device_bytes {
            0 => bytes(entry.bytes),
            on_device => format!("{} + {} on GPU", bytes(entry.bytes), bytes(on_device)),
        },
        format!("{} of {}", bytes(entry.arena_bytes), bytes(entry.arena_unshared_bytes)),
        entry.n_steps.to_string(),
        entry.captures.len().to_string(),
        format!("{:.1?}", entry.times.total()),
    ]
}

fn gradient_row(gradient: &GradientStats) -> [String; 8] {
    [
        format!("    backward by {:?}", gradient.arguments),
        gradient.calls.to_string(),
        String::new(),
        bytes(gradient.bytes),
        format!("{} kept", bytes(gradient.residual_bytes)),
        String::new(),
        gradient.residuals.to_string(),
        format!("{:.1?}", gradient.times.total()),
    ]
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "function   {}", self.name)?;
        let percent = 100.0 * self.hit_rate();
        writeln!(f, "hit rate   {percent:.4} % ({} hits, {} misses, {} waits)", self.hits, self.misses, self.waits)?;
        let (held, capacity, pinned) = (self.entries.len(), self.capacity, self.pinned);
        let (evictions, clears, rejected) = (self.evictions, self.clears, self.rejected);
        write!(f, "entries    {held} of {capacity} ({pinned} pinned, {evictions} evictions, {clears} clears")?;
        writeln!(f, "{})", if rejected > 0 { format!(", {rejected} not kept") } else { String::new() })?;
        match self.budget.host {
            Some(budget) => writeln!(f, "memory     {} of {}", bytes(self.bytes()), bytes(budget))?,
            None => writeln!(f, "memory     {}", bytes(self.bytes()))?,
        }
        match (self.device_bytes(), self.budget.device) {
            (0, None) => {}
            (used, Some(budget)) => writeln!(f, "on GPUs    {} of {}", bytes(used), bytes(budget))?,
            (used, None) => writeln!(f, "on GPUs    {}", bytes(used))?,
        }
        if self.backward_hits + self.backward_misses > 0 {
            writeln!(f, "backward   {} hits, {} misses", self.backward_hits, self.backward_misses)?;
        }
        let checks = &self.checks;
        if checks.checked > 0 {
            let quarantine = format!("{} in quarantine for {} calls", checks.quarantines, checks.quarantined_calls);
            writeln!(f, "checks     {} calls, {} differed, {quarantine}", checks.checked, checks.differing)?;
        }
        if checks.stale > 0 {
            writeln!(f, "stale      {} of {} looks at the closure", checks.stale, checks.stale_checks)?;
        }
        if checks.trapped > 0 {
            writeln!(f, "trapped    {} calls", checks.trapped)?;
        }
        let latency = |latency: &Latency| match latency.n_timed {
            0 => "none timed".to_owned(),
            _ => latency.to_string(),
        };
        write!(f, "hits       {}\nmisses     {}", latency(&self.hit_latency), latency(&self.miss_latency))?;
        if !self.entries.is_empty() {
            let names = ["  entry", "calls", "last use", "bytes", "arena", "groups", "captures", "made in"];
            let mut rows = vec![names.map(str::to_owned)];
            for entry in &self.entries {
                rows.push(entry_row(entry));
                let compiled = entry.gradients.iter().filter(|gradient| gradient.is_compiled);
                rows.extend(compiled.map(gradient_row));
            }
            write!(f, "{}", Table(rows))?;
        }
        self.advice.iter().try_for_each(|advice| write!(f, "\nadvice     {advice}"))
    }
}

/// An entry, with the sums over its groups.
fn runs_row(groups: &[GroupTime]) -> [String; 11] {
    let signature = &groups[0].signature;
    let name = format!("  {} ({})", signature.id(), shortened(&signature.description().summaries()));
    let seconds = |group: &GroupTime| group.mean().as_secs_f64();
    let floors: Vec<f64> = groups.iter().filter_map(|group| Some(group.of_limit? * seconds(group))).collect();
    let mean = groups.iter().map(GroupTime::mean).sum::<Duration>();
    let times = RunTimes {
        count: groups[0].count,
        total: groups.iter().map(|group| group.total).sum(),
        mean,
        share: groups.iter().map(|group| group.share).sum(),
        flops: groups.iter().map(|group| group.flops).fold(0, u64::saturating_add),
        bytes: groups.iter().map(|group| group.bytes).fold(0, u64::saturating_add),
        of_limit: (!floors.is_empty() && !mean.is_zero()).then(|| floors.iter().sum::<f64>() / mean.as_secs_f64()),
    };
    times.row(name, String::new())
}

fn group_row(group: &GroupTime) -> [String; 11] {
    let GroupTime { count, total, share, flops, bytes, of_limit, .. } = *group;
    let times = RunTimes { count, total, mean: group.mean(), share, flops, bytes, of_limit };
    times.row(format!("    {}", shortened(&[group.label.to_string()])), shortened(&group.results))
}

const PROFILE_COLUMNS: [&str; 11] =
    ["  group", "stores", "count", "total", "mean", "share", "flops", "bytes", "GFLOP/s", "GB/s", "of limit"];

/// The numbers of a row of a profile.
struct RunTimes {
    count: u64,
    total: Duration,
    mean: Duration,
    share: f64,
    flops: u64,
    bytes: u64,
    of_limit: Option<f64>,
}

impl RunTimes {
    fn row(&self, name: String, results: String) -> [String; 11] {
        let [total, mean] = [self.total, self.mean].map(|time| format!("{time:.1?}"));
        let per_second = |n: u64| match self.mean.as_secs_f64() {
            seconds if seconds > 0.0 && n > 0 => format!("{:.1}", n as f64 / seconds * 1e-9),
            _ => String::new(),
        };
        let (flops, rates) = (count(self.flops), [self.flops, self.bytes].map(per_second));
        let [flop_rate, byte_rate] = rates;
        let traffic = bytes(usize::try_from(self.bytes).unwrap_or(usize::MAX));
        let of_limit = self.of_limit.map_or_else(String::new, |part| format!("{:.0} %", 100.0 * part));
        let share = format!("{:.1} %", 100.0 * self.share);
        [name, results, self.count.to_string(), total, mean, share, flops, traffic, flop_rate, byte_rate, of_limit]
    }
}

/// A number with a prefix for thousands, such as `1.5 M`.
fn count(n: u64) -> String {
    const PREFIXES: [(f64, &str); 4] = [(1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")];
    let found = PREFIXES.into_iter().find(|(unit, _)| n as f64 >= *unit);
    found.map_or_else(|| n.to_string(), |(unit, prefix)| format!("{:.1}{prefix}", n as f64 / unit))
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds =
            [CallKind::Hit, CallKind::Miss, CallKind::Wait, CallKind::Unaccelerated, CallKind::Failed].map(|kind| {
                let n = self.calls.iter().filter(|call| call.kind == kind).count();
                (n > 0).then(|| format!("{n} {}", kind.name()))
            });
        write!(f, "calls      {}", self.calls.len())?;
        let kinds: Vec<String> = kinds.into_iter().flatten().collect();
        if !kinds.is_empty() {
            write!(f, " ({})", kinds.join(", "))?;
        }
        if self.n_forgotten > 0 {
            write!(f, ", and {} before", self.n_forgotten)?;
        }
        if !self.groups.is_empty() {
            let mut rows = vec![PROFILE_COLUMNS.map(str::to_owned)];
            for groups in self.groups.chunk_by(|one, next| one.signature == next.signature) {
                rows.push(runs_row(groups));
                rows.extend(groups.iter().map(group_row));
            }
            write!(f, "{}", Table(rows))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_arguments_end_between_arguments() {
        let list = |texts: &[&str]| shortened(&texts.iter().map(|text| text.to_string()).collect::<Vec<_>>());
        assert_eq!(list(&["f32[2, 3]", "true"]), "f32[2, 3], true");
        assert_eq!(list(&["f32[12, 13]"; 9]), "f32[12, 13], f32[12, 13], and 7 more");
        assert_eq!(list(&["\"a, (b\"", &["f32[12, 13]"; 9].join("µ")]), "\"a, (b\", and 1 more");
        assert_eq!(list(&[&"x".repeat(100)]).chars().count(), MAX_ARGUMENTS);
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [["a", "12", "x"], ["longer µ", "3", "yyy"]].map(|row| row.map(str::to_owned));
        assert_eq!(Table(rows.to_vec()).to_string(), "\na         12    x\nlonger µ   3  yyy");
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!([0, 1023, 1024, 5 << 20].map(bytes), ["0 B", "1023 B", "1.0 KiB", "5.0 MiB"]);
    }
}
