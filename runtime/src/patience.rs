//! How long a thread waits for a value whose producer does not seem to get on.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Unless the environment says otherwise.
const DEFAULT: Duration = Duration::from_secs(5);

/// In nanoseconds; `UNKNOWN` before the first question.
static PATIENCE: AtomicU64 = AtomicU64::new(UNKNOWN);
const UNKNOWN: u64 = u64::MAX;

/// How long a call waits for an entry that another thread makes, while that thread is in the traced closure and records
/// nothing.
///
/// After that it traces the closure itself: the closure may wait for this very call. At first the value of the
/// environment variable `RETAPE_PATIENCE`, in seconds, else 5 seconds. A thread that compiles is waited for however long
/// it takes.
///
/// ```
/// use std::time::Duration;
///
/// retape_runtime::set_patience(Duration::from_secs(60));
/// assert_eq!(retape_runtime::patience(), Duration::from_secs(60));
/// ```
pub fn patience() -> Duration {
    match PATIENCE.load(Relaxed) {
        UNKNOWN => {
            set_patience(from_text(std::env::var("RETAPE_PATIENCE").ok().as_deref()));
            patience()
        }
        nanos => Duration::from_nanos(nanos),
    }
}

/// Sets [`patience`] for the process, for calls that wait already, too.
pub fn set_patience(patience: Duration) {
    PATIENCE.store(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX).min(UNKNOWN - 1), Relaxed);
}

fn from_text(text: Option<&str>) -> Duration {
    let seconds = text.and_then(|text| text.trim().parse().ok());
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_gives_seconds() {
        assert_eq!(from_text(Some(" 0.25 ")), Duration::from_millis(250));
        assert_eq!(from_text(Some("600")), Duration::from_secs(600));
        for text in [None, Some(""), Some("-1"), Some("inf"), Some("soon")] {
            assert_eq!(from_text(text), DEFAULT, "{text:?}");
        }
    }
}
