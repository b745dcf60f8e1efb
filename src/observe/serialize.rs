//! Statistics, misses and profiles as data for `serde`.
//!
//! Structs become maps with the names of their fields. Durations are seconds as numbers, and their names end in
//! `_seconds`; source lines, aspects and reasons are texts. Every field is named here, so that a new one does not
//! compile until it is.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use retape_runtime::Budget;
use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::advice::{Advice, AdviceKind};
use super::explain::{Difference, Miss, MissReason};
use super::latency::Latency;
use super::profile::{CallKind, GroupTime, Profile, ProfiledCall, ProfiledSpan};
use super::stats::{CheckCounts, EntryStats, Stats};
use crate::call::GradientStats;
use crate::compile::CompileTimes;
use crate::error::{Caller, Deviation, ElementPair, Gap, InputSummary, NonFinite};
use crate::signature::{LeafText, Signature};

fn seconds(time: &Duration) -> f64 {
    time.as_secs_f64()
}

fn text(value: &impl Display) -> String {
    value.to_string()
}

fn name(function: &Option<Arc<str>>) -> Option<&str> {
    function.as_deref()
}

fn line(at: &Option<Caller>) -> Option<String> {
    at.map(|at| at.to_string())
}

/// A struct as a map: `field`, or `field as "name" by function` where it is not written as it is. Fields after `and`
/// are worked out; those after `without` are left out.
macro_rules! record {
    (
        $type:ident { $($field:ident $(as $name:literal by $convert:expr)?),* $(,)? }
        $(and { $($extra:literal: $value:expr),* $(,)? })?
        $(without { $($left:ident),* })?
    ) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let $type { $($field,)* $($($left: _,)*)? } = self;
                let n = [$(stringify!($field),)* $($($extra,)*)?].len();
                let mut map = serializer.serialize_struct(stringify!($type), n)?;
                $(record!(@field map, $field $(, $name, $convert)?);)*
                $($(map.serialize_field($extra, &$value(self))?;)*)?
                map.end()
            }
        }
    };
    (@field $map:ident, $field:ident) => {
        $map.serialize_field(stringify!($field), $field)?
    };
    (@field $map:ident, $field:ident, $name:literal, $convert:expr) => {
        $map.serialize_field($name, &$convert($field))?
    };
}

record!(Stats {
    name,
    hits,
    misses,
    waits,
    evictions,
    clears,
    capacity,
    budget as "budget" by Bytes,
    pinned,
    rejected,
    entries,
    backward_hits,
    backward_misses,
    hit_latency,
    miss_latency,
    checks,
    advice,
} and { "hit_rate": Stats::hit_rate, "occupancy": Stats::occupancy, "bytes": Stats::bytes, "device_bytes": Stats::device_bytes });

record!(EntryStats {
    signature,
    calls,
    last_use as "last_use_seconds" by seconds,
    is_pinned,
    bytes,
    device_bytes,
    arena_bytes,
    arena_unshared_bytes,
    n_steps,
    captures,
    times,
    gradients,
});

record!(GradientStats { arguments, results, calls, is_compiled, residuals, residual_bytes, bytes, times });

record!(CompileTimes {
    trace as "trace_seconds" by seconds,
    optimise as "optimise_seconds" by seconds,
    plan as "plan_seconds" by seconds,
    compile as "compile_seconds" by seconds,
});

record!(Latency {
    n_timed,
    min as "min_seconds" by seconds,
    total as "total_seconds" by seconds,
    mean as "mean_seconds" by seconds,
    p50 as "p50_seconds" by seconds,
    p90 as "p90_seconds" by seconds,
    p99 as "p99_seconds" by seconds,
    max as "max_seconds" by seconds,
});

record!(CheckCounts { checked, differing, quarantines, quarantined_calls, trapped, stale_checks, stale });

record!(Advice { kind, subject, message });

record!(Miss {
    function as "function" by text,
    number,
    reason,
    signature,
    nearest,
    differences,
    at as "at" by text,
    times,
    wall as "wall_seconds" by seconds,
    since_start as "since_start_seconds" by seconds,
    hits,
    error,
});

record!(Difference { path, aspect as "aspect" by text, old, new, type_name });

record!(Deviation { function as "function" by text, signature, at as "at" by text, path, expected, got, gap, n_tensors });

record!(Gap { n_elements, n_differing, first, samples, largest_absolute, largest_relative, largest_ulps });

record!(ElementPair { position, expected as "expected" by text, got as "got" by text });

record!(NonFinite {
    function as "function" by name,
    op,
    node,
    at as "at" by line,
    group,
    n_elements,
    n_nan,
    n_infinite,
    first,
    value,
    inputs,
    called_at as "called_at" by text,
});

record!(InputSummary { ty as "type" by text, min, max, mean, n_nan, n_infinite, at_first });

record!(ProfiledCall {
    kind,
    signature,
    thread,
    start as "start_seconds" by seconds,
    time as "time_seconds" by seconds,
    spans,
});

record!(ProfiledSpan {
    name as "name" by text,
    steps,
    start as "start_seconds" by seconds,
    time as "time_seconds" by seconds,
});

record!(GroupTime {
    signature,
    label as "label" by text,
    steps,
    results,
    lines,
    count,
    total as "total_seconds" by seconds,
    min as "min_seconds" by seconds,
    max as "max_seconds" by seconds,
    share,
});

record!(LeafText { path, value as "value" by text });

impl Serialize for Profile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_struct("Profile", 4)?;
        map.serialize_field("function", &self.function)?;
        map.serialize_field("calls", &self.calls)?;
        map.serialize_field("n_forgotten", &self.n_forgotten)?;
        map.serialize_field("groups", &self.groups)?;
        map.end()
    }
}

/// The short name, the arguments in short and in full, and their leaves.
impl Serialize for Signature {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_struct("Signature", 4)?;
        map.serialize_field("id", &self.id())?;
        map.serialize_field("summary", &self.summary())?;
        map.serialize_field("arguments", &self.to_string())?;
        map.serialize_field("leaves", &self.description().leaves)?;
        map.end()
    }
}

struct Bytes<'b>(&'b Budget);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Budget { host, device } = self.0;
        let mut map = serializer.serialize_struct("Budget", 2)?;
        map.serialize_field("host", host)?;
        map.serialize_field("device", device)?;
        map.end()
    }
}

macro_rules! names {
    ($($type:ident),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }
    )*};
}

names!(MissReason, AdviceKind, CallKind);
