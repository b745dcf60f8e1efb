//! A profile in the trace event format, as Perfetto and Chrome's viewer read it.
//!
//! Calls are complete events of the category `call`; inside them lie their stages (`stage`) and launches (`group`).

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use retape::{GroupTime, Profile, ProfiledCall, ProfiledSpan, Signature};
use serde_json::{Value, json};

/// The trace events of a profile; the [front page](crate#traces) has an example.
pub trait TraceEvents {
    /// The calls with their stages and groups in the trace event format, which Perfetto and Chrome's viewer open.
    fn to_trace_events(&self) -> String;

    /// Writes the trace events to a file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    fn write_trace_events(&self, path: impl AsRef<Path>) -> io::Result<()> {
        std::fs::write(path, self.to_trace_events())
    }
}

impl TraceEvents for Profile {
    fn to_trace_events(&self) -> String {
        let lines = lines(&self.groups);
        let mut events = vec![named("process_name", 0, &format!("retape: {}", self.function))];
        events.extend(self.threads.iter().map(|thread| named("thread_name", thread.number, &thread.name)));
        for call in &self.calls {
            events.push(call_event(call));
            events.extend(call.spans.iter().map(|span| span_event(call, span, &lines)));
        }
        let other = json!({ "function": self.function, "forgotten calls": self.n_forgotten });
        json!({ "displayTimeUnit": "ns", "otherData": other, "traceEvents": events }).to_string()
    }
}

/// The source lines of launches, by their entry and their first and last step.
type Lines<'p> = HashMap<(&'p Signature, usize, usize), &'p [String]>;

fn lines(groups: &[GroupTime]) -> Lines<'_> {
    groups.iter().map(|group| ((&group.signature, group.steps.start, group.steps.end), &group.lines[..])).collect()
}

fn named(metadata: &str, thread: u64, name: &str) -> Value {
    json!({ "name": metadata, "ph": "M", "pid": 1, "tid": thread, "args": { "name": name } })
}

/// Microseconds, to the nanosecond.
fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

fn event(name: &str, category: &str, thread: u64, (start, time): (Duration, Duration), args: Value) -> Value {
    json!({
        "name": name,
        "cat": category,
        "ph": "X",
        "ts": micros(start),
        "dur": micros(time),
        "pid": 1,
        "tid": thread,
        "args": args,
    })
}

fn call_event(call: &ProfiledCall) -> Value {
    let args = json!({
        "arguments": call.signature.as_ref().map(ToString::to_string),
        "entry": call.signature.as_ref().map(Signature::id),
        "arena_bytes": call.arena_bytes,
    });
    event(call.kind.name(), "call", call.thread, (call.start, call.time), args)
}

fn span_event(call: &ProfiledCall, span: &ProfiledSpan, lines: &Lines<'_>) -> Value {
    let times = (span.start, span.time);
    let Some(steps) = &span.steps else {
        return event(&span.name, "stage", call.thread, times, json!({}));
    };
    let key = call.signature.as_ref().map(|signature| (signature, steps.start, steps.end));
    let args = json!({
        "steps": format!("{} to {}", steps.start, steps.end - 1),
        "lines": key.and_then(|key| lines.get(&key)),
        "arena_bytes": call.arena_bytes,
    });
    event(&span.name, "group", call.thread, times, args)
}
