//! Events: what happens in the cache of an accelerated function, for logs, tests and profilers.
//!
//! Where nobody observes, no event is made: see [`Accelerated::observed_by`](crate::Accelerated::observed_by).

use std::fmt;

/// What happened in the cache of an accelerated function; it displays as one line, such as `miss (f32[4])`.
///
/// `arguments` are the leaves of the arguments in order: dtypes and shapes of tensors; static values, and the lengths
/// of collections, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A call found its entry, or got the one that another thread made.
    #[non_exhaustive]
    Hit {
        /// The leaves of the call.
        arguments: &'a str,
    },
    /// A call found no entry and makes it now.
    #[non_exhaustive]
    Miss {
        /// The leaves of the call.
        arguments: &'a str,
    },
    /// A call waits for another thread that makes its entry.
    #[non_exhaustive]
    Wait {
        /// The leaves of the call.
        arguments: &'a str,
    },
    /// An entry was dropped to keep the capacity.
    #[non_exhaustive]
    Evict {
        /// The leaves that it was for.
        arguments: &'a str,
    },
    /// All entries were dropped.
    Clear,
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Hit { arguments } => write!(f, "hit  ({arguments})"),
            Event::Miss { arguments } => write!(f, "miss ({arguments})"),
            Event::Wait { arguments } => write!(f, "wait ({arguments})"),
            Event::Evict { arguments } => write!(f, "evict ({arguments})"),
            Event::Clear => f.write_str("clear"),
        }
    }
}

/// Who wants to know: implemented for closures.
pub trait Observer: Send + Sync {
    /// Called after each event, on the thread where it happened, with no lock held.
    fn observe(&self, event: &Event<'_>);
}

impl<F: Fn(&Event<'_>) + Send + Sync> Observer for F {
    fn observe(&self, event: &Event<'_>) {
        self(event);
    }
}
