//! A profile in the trace event format, as Perfetto and Chrome's viewer read it.
//!
//! Calls are complete events of the category `call`; inside them lie their stages (`stage`) and launches (`group`).

use std::path::Path;
use std::time::Duration;

use super::json::Json;
use crate::observe::profile::{Profile, ProfiledCall, ProfiledSpan};

impl Profile {
    /// The calls with their stages and groups in the trace event format, which Perfetto and Chrome's viewer open.
    pub fn to_json(&self) -> String {
        trace_events(self)
    }

    /// Writes [`to_json`](Profile::to_json) to a file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> std::io::Result<()> {
        std::fs::write(path, self.to_json())
    }
}

/// The file's text.
fn trace_events(profile: &Profile) -> String {
    let mut events = vec![named("process_name", 0, &format!("retape: {}", profile.function))];
    events.extend(profile.threads().iter().map(|(thread, name)| named("thread_name", *thread, name)));
    for call in &profile.calls {
        events.push(call_event(profile, call));
        events.extend(call.spans.iter().map(|span| span_event(profile, call, span)));
    }
    let other = Json::Map(vec![
        ("function", profile.function.as_str().into()),
        ("forgotten calls", profile.n_forgotten.into()),
    ]);
    let file =
        Json::Map(vec![("displayTimeUnit", "ns".into()), ("otherData", other), ("traceEvents", Json::List(events))]);
    file.to_string()
}

fn named(what: &str, thread: u64, name: &str) -> Json {
    Json::Map(vec![
        ("name", what.into()),
        ("ph", "M".into()),
        ("pid", 1_u32.into()),
        ("tid", thread.into()),
        ("args", Json::Map(vec![("name", name.into())])),
    ])
}

/// Microseconds, to the nanosecond.
fn micros(time: Duration) -> Json {
    Json::Number(time.as_nanos() as f64 / 1e3)
}

fn event(name: &str, category: &str, thread: u64, (start, time): (Duration, Duration), args: Json) -> Json {
    Json::Map(vec![
        ("name", name.into()),
        ("cat", category.into()),
        ("ph", "X".into()),
        ("ts", micros(start)),
        ("dur", micros(time)),
        ("pid", 1_u32.into()),
        ("tid", thread.into()),
        ("args", args),
    ])
}

fn call_event(profile: &Profile, call: &ProfiledCall) -> Json {
    let arena = call.signature.as_ref().and_then(|signature| profile.runs(signature)).map(|runs| runs.arena_bytes);
    let args = Json::Map(vec![
        ("arguments", call.signature.as_ref().map(ToString::to_string).into()),
        ("entry", call.signature.as_ref().map(|signature| signature.id()).into()),
        ("arena_bytes", arena.into()),
    ]);
    event(call.kind.name(), "call", call.thread, (call.start, call.time), args)
}

fn span_event(profile: &Profile, call: &ProfiledCall, span: &ProfiledSpan) -> Json {
    let Some(steps) = &span.steps else {
        return event(&span.name, "stage", call.thread, (span.start, span.time), Json::Map(vec![]));
    };
    let runs = call.signature.as_ref().and_then(|signature| profile.runs(signature));
    let launch = runs.and_then(|runs| runs.launches.iter().find(|launch| launch.steps == *steps));
    let lines = launch.map(|launch| Json::list(launch.lines.iter().map(String::as_str)));
    let args = Json::Map(vec![
        ("steps", Json::text(format_args!("{} to {}", steps.start, steps.end - 1))),
        ("lines", lines.into()),
        ("arena_bytes", runs.map(|runs| runs.arena_bytes).into()),
    ]);
    event(&span.name, "group", call.thread, (span.start, span.time), args)
}
