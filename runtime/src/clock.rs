//! A clock that is cheap enough to read on every call: a few nanoseconds, for a resolution of some milliseconds.
//!
//! Guarantees that it never runs backwards. Where the system has no such clock, the usual one serves.

use std::time::Duration;

/// The time since some fixed moment of this process, to some milliseconds.
#[inline]
pub fn coarse_now() -> Duration {
    now()
}

#[cfg(all(target_os = "linux", not(miri)))]
#[inline]
fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn now() -> Duration {
    use std::sync::LazyLock;
    use std::time::Instant;

    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_forward_as_other_clocks_do() {
        let (start, other) = (coarse_now(), std::time::Instant::now());
        std::thread::sleep(Duration::from_millis(60));
        let (passed, expected) = (coarse_now() - start, other.elapsed());
        assert!(passed > Duration::from_millis(30) && passed < expected + Duration::from_millis(30), "{passed:?}");
    }
}
