//! Warnings for a program that listens to no events: one line each on standard error.
//!
//! A warning is an event of the crate `tracing` first of all (`observe/events.rs`). Where nobody listens for that, it
//! would be lost, and a program that computes with an old number looks like one that is right. Each line is written once
//! for each function, as the line that accelerated it, and what it is about.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex};

use retape_kernels::library::is_muted;
use retape_runtime::{Hash32, lock};

use crate::error::Caller;
use crate::identity::Identity;
use crate::settings::{Settings, write_line};

/// The most lines that are written: signatures may be ever new.
const MAX_LINES: usize = 1000;

/// A function, and what a line about it says: a kind of warning, and what that is about.
type WarningSubject = (Caller, &'static str, Hash32);

static WRITTEN: LazyLock<Mutex<HashSet<WarningSubject>>> = LazyLock::new(Mutex::default);

static SWITCH: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

/// Whether warnings that no subscriber of the crate `tracing` listens for are written to standard error.
///
/// They are unless this is called with `false`, or the environment has `RETAPE_WARN=0`. Each line is written once for
/// each function and what it is about; the events are emitted in any case.
///
/// ```
/// retape::set_warnings(false);
/// ```
pub fn set_warnings(is_on: bool) {
    SWITCH.store(if is_on { ON } else { OFF }, Relaxed);
}

fn are_on() -> bool {
    if SWITCH.load(Relaxed) == UNKNOWN {
        set_warnings(Settings::get().warn);
    }
    SWITCH.load(Relaxed) == ON
}

/// Writes a warning about the function that was accelerated at a line, unless it has been written before.
#[cold]
pub(crate) fn write(function: &Identity, kind: &'static str, subject: Hash32, message: &dyn std::fmt::Display) {
    // Work that is done again has said what there is to say.
    if !are_on() || is_muted() {
        return;
    }
    let is_new = {
        let mut written = lock(&WRITTEN);
        written.len() < MAX_LINES && written.insert((function.made_at(), kind, subject))
    };
    if is_new {
        write_line(&format!("retape: warning: {message} [{}]", function.full()));
    }
}
