//! The happenings in a cache, as events of the crate `tracing`.
//!
//! All have the target `retape` and the fields `function`, the function's name, and `made_at`, the line that accelerated
//! it; `docs/events.md` lists names, levels and fields. Where nobody listens for hits, a call loads one word to know it.
//! A warning that nobody listens for is written to standard error.

use std::fmt;

use retape_runtime::{Hash32, in_user_code};
use tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};
use tracing::{Level, event, event_enabled};

use super::advice::Advice;
use super::explain::{Explanation, Miss};
use crate::compile::CompileTimes;
use crate::error::{Caller, Deviation, NonFinite};
use crate::identity::Identity;
use crate::signature::Signature;
use crate::warnings;

/// The events of one function.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    /// The function that they are about.
    pub(crate) function: Identity,
}

/// Whether somebody may listen for hits.
#[inline]
pub(crate) fn is_hit_enabled() -> bool {
    STATIC_MAX_LEVEL >= Level::TRACE && LevelFilter::current() >= Level::TRACE
}

/// Whether somebody listens for warnings on this thread.
fn are_warnings_heard() -> bool {
    event_enabled!(target: "retape", Level::WARN)
}

fn micros(time: std::time::Duration) -> f64 {
    1e6 * time.as_secs_f64()
}

/// An event of a function. Nothing is evaluated unless somebody listens.
macro_rules! tell {
    ($events:ident, $name:literal, $level:ident, $($fields:tt)*) => {
        event!(
            name: $name, target: "retape", Level::$level,
            function = %$events.function.name(), made_at = %$events.function.made_at(), $($fields)*
        )
    };
}

impl Events {
    pub(crate) fn hit(&self, signature: &Signature, at: Caller) {
        tell!(self, "retape::hit", TRACE, entry = signature.id(), arguments = %signature, %at, "hit");
    }

    pub(crate) fn wait(&self, signature: &Signature) {
        tell!(
            self, "retape::wait", DEBUG,
            entry = signature.id(), arguments = %signature, "waits for the trace of another thread"
        );
    }

    pub(crate) fn evict(&self, signature: &Signature) {
        tell!(self, "retape::evict", DEBUG, entry = signature.id(), arguments = %signature, "an entry made room");
    }

    pub(crate) fn clear(&self) {
        tell!(self, "retape::clear", DEBUG, "the cache is cleared");
    }

    /// Told while threads wait for the entry, so listeners are code that may not end.
    pub(crate) fn miss(&self, miss: &Miss) {
        let first = miss.differences.first();
        let CompileTimes { trace, optimise, plan, compile } = miss.times;
        in_user_code(|| {
            tell!(
                self, "retape::miss", DEBUG,
                entry = miss.signature.id(), arguments = %miss.signature, at = %miss.at,
                number = miss.number, reason = miss.reason.name(),
                path = first.map(|first| &*first.path), aspect = first.map(|first| tracing::field::display(first.aspect)),
                old = first.map(|first| &*first.old), new = first.map(|first| &*first.new),
                trace_us = micros(trace), optimise_us = micros(optimise), plan_us = micros(plan),
                compile_us = micros(compile), wall_us = micros(miss.wall), error = miss.error, "{miss}"
            );
        });
    }

    pub(crate) fn retrace(&self, why: &Explanation, signature: &Signature, at: Caller) {
        let reason = why.reason.name();
        let event = || tell!(self, "retape::retrace", WARN, %at, reason, "a new trace: {why}");
        self.warn("retrace", signature.hash(), &format_args!("a new trace: {why} (at {at})"), event);
    }

    pub(crate) fn advice(&self, advice: &Advice) {
        let (kind, subject) = (advice.kind.name(), &*advice.subject);
        let told = *blake3::hash(subject.as_bytes()).as_bytes();
        self.warn(kind, told, advice, || tell!(self, "retape::advice", WARN, kind, subject, "{advice}"));
    }

    pub(crate) fn difference(&self, found: &Deviation) {
        let at = found.at;
        let event = || tell!(self, "retape::difference", WARN, %at, path = &*found.path, "{found}");
        self.warn("difference", found.signature.hash(), found, event);
    }

    pub(crate) fn quarantine(&self, signature: &Signature, at: Caller) {
        let event = || {
            tell!(
                self, "retape::quarantine", WARN,
                entry = signature.id(), arguments = %signature, %at,
                "calls with these arguments are served un-accelerated from now on"
            );
        };
        let message =
            format_args!("calls with the arguments ({signature}) are served un-accelerated from now on (at {at})");
        self.warn("quarantine", signature.hash(), &message, event);
    }

    pub(crate) fn take_over(&self, signature: &Signature) {
        let event = || {
            tell!(self, "retape::take_over", WARN, entry = signature.id(), arguments = %signature, "{TAKE_OVER}");
        };
        let message = format_args!("{TAKE_OVER}; the arguments are ({signature})");
        self.warn("take_over", signature.hash(), &message, event);
    }

    /// A call that says so itself: it fails.
    pub(crate) fn nonfinite(&self, found: &NonFinite, at: Caller) {
        let op = found.op;
        tell!(self, "retape::nonfinite", WARN, %at, op, "{found}");
    }

    /// Emits an event to listeners, or else writes a line, once for each kind and what it is about.
    fn warn(&self, kind: &'static str, subject: Hash32, message: &dyn fmt::Display, tell: impl FnOnce()) {
        in_user_code(|| {
            if are_warnings_heard() {
                tell();
            } else {
                warnings::write(&self.function, kind, subject, message);
            }
        });
    }
}

/// The message of [`Events::take_over`].
const TAKE_OVER: &str = "a call traces what another thread has begun to trace: that one is in the closure and records \
                         nothing, and may wait for this call";
