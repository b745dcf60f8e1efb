//! Seeing what a cache does: statistics, latencies, profiles, events, explanations of misses, advice.

pub(crate) mod advice;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod history;
pub mod inspection;
pub(crate) mod latency;
pub(crate) mod profile;
pub(crate) mod stats;
mod table;
pub(crate) mod text;

pub use self::advice::{Advice, AdviceKind};
pub use self::explain::{Aspect, Difference, Miss, MissReason};
pub use self::latency::Latency;
pub use self::profile::{CallKind, GroupTime, Profile, ProfiledCall, ProfiledSpan, ProfiledThread};
pub use self::stats::{CheckCounts, EntryStats, Stats};
pub use self::text::Form;
