//! Lines that `debug_print` says in this process, shared by tests.

use std::sync::{Mutex, Once, PoisonError};

/// All lines of this process, for the sink belongs to it; tests tell theirs by their labels.
static LINES: Mutex<Vec<String>> = Mutex::new(vec![]);

/// Has the lines of this process kept from now on.
pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        retape::set_debug_sink(|line| LINES.lock().unwrap_or_else(PoisonError::into_inner).push(line.into()))
    });
}

/// Takes the lines whose labels begin with `name`, without that.
pub(crate) fn taken(name: &str) -> Vec<String> {
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let (own, others) = lines.drain(..).partition(|line| line.starts_with(name));
    *lines = others;
    let own: Vec<String> = own;
    own.into_iter().map(|line| line[name.len()..].trim_start().to_owned()).collect()
}
