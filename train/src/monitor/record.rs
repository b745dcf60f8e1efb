//! A step of a training, and the other events that a monitor tells its sinks.

use std::time::{SystemTime, UNIX_EPOCH};

use retape::{Miss, Stats};
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Result;
use crate::json::Number;

/// Which data the scalars of a record are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The data that is trained on.
    Training,
    /// The data that is only looked at.
    Validation,
}

impl Phase {
    /// The phase as a word: `training` or `validation`.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Training => "training",
            Phase::Validation => "validation",
        }
    }
}

/// The scalars of one step.
///
/// As JSON it is an object with the names of its fields, the scalars an object in their order. JSON has no NaN and no
/// infinities: they are the texts `"NaN"`, `"inf"` and `"-inf"`.
///
/// ```
/// use retape_train::monitor::{Phase, Record};
///
/// let line = r#"{"time":1.5,"phase":"training","step":3,"epoch":0,"scalars":{"loss":0.25,"norm":"NaN"}}"#;
/// let record: Record = serde_json::from_str(line)?;
/// assert_eq!((record.phase, record.step), (Phase::Training, 3));
/// assert_eq!(record.scalars[0], ("loss".to_owned(), 0.25));
/// assert_eq!(serde_json::to_string(&record)?, line);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// When it was, in seconds since the start of 1970.
    pub time: f64,
    /// Which data it is about.
    pub phase: Phase,
    /// The steps that the training has done.
    pub step: u64,
    /// The epoch that the step belongs to.
    pub epoch: u64,
    /// The number of the worker that tells of it, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<usize>,
    /// Names and values; no name twice.
    #[serde(with = "scalars")]
    pub scalars: Vec<(String, f64)>,
}

impl Record {
    /// A record of this moment; of equal names the last counts.
    pub(super) fn now(phase: Phase, step: u64, epoch: u64, rank: Option<usize>, given: &[(&str, f64)]) -> Record {
        let mut scalars: Vec<(String, f64)> = Vec::with_capacity(given.len());
        for &(name, value) in given {
            match scalars.iter_mut().find(|(known, _)| known == name) {
                Some((_, known)) => *known = value,
                None => scalars.push((name.to_owned(), value)),
            }
        }
        Record { time: now(), phase, step, epoch, rank, scalars }
    }
}

/// Seconds since the start of 1970, to the millisecond.
pub(super) fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as f64 / 1000.0
}

/// Scalars as an object that keeps their order.
mod scalars {
    use super::*;

    pub(super) fn serialize<S: Serializer>(
        scalars: &[(String, f64)],
        serializer: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(scalars.len()))?;
        for (name, value) in scalars {
            map.serialize_entry(name, &Number(*value))?;
        }
        map.end()
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> std::result::Result<Vec<(String, f64)>, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Vec<(String, f64)>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of numbers")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Self::Value, A::Error> {
                let mut scalars = vec![];
                while let Some((name, Number(value))) = map.next_entry()? {
                    scalars.push((name, value));
                }
                Ok(scalars)
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// The cache of an accelerated function at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CacheReport {
    /// The name that the function was given.
    pub name: String,
    /// The steps that the training has done.
    pub step: u64,
    /// Calls that found an entry.
    pub hits: u64,
    /// Calls that traced.
    pub misses: u64,
    /// Hits over calls, in `[0, 1]`.
    pub hit_rate: f64,
    /// The number of entries.
    pub entries: u64,
    /// Advice on the function, if the misses show a mistake.
    pub advice: Vec<String>,
    /// The last misses, the oldest first.
    pub last_misses: Vec<MissReport>,
}

/// Why a call found no entry.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MissReport {
    /// Which miss of the function it was, from 1.
    pub number: u64,
    /// The reason as a word, such as `new_shape`.
    pub reason: String,
    /// The differences from the nearest call that was known.
    pub differences: Vec<String>,
    /// The line of the call.
    pub at: String,
    /// The time from the call to its entry.
    pub seconds: f64,
}

/// How many of the last misses a report has.
const MAX_MISSES: usize = 50;

impl CacheReport {
    pub(super) fn new(name: &str, step: u64, stats: &Stats, misses: &[Miss]) -> CacheReport {
        let report = |miss: &Miss| MissReport {
            number: miss.number,
            reason: miss.reason.name().to_owned(),
            differences: miss.differences.iter().take(4).map(ToString::to_string).collect(),
            at: miss.at.to_string(),
            seconds: miss.wall.as_secs_f64(),
        };
        CacheReport {
            name: name.to_owned(),
            step,
            hits: stats.hits,
            misses: stats.misses,
            hit_rate: stats.hit_rate(),
            entries: stats.entries.len() as u64,
            advice: stats.advice.iter().map(ToString::to_string).collect(),
            last_misses: misses[misses.len().saturating_sub(MAX_MISSES)..].iter().map(report).collect(),
        }
    }
}

/// An event that a monitor tells its sinks.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The scalars of a step.
    Record(&'a Record),
    /// A field that says something of the whole run.
    Info {
        /// Its name.
        name: &'a str,
        /// Its value, which takes the place of an earlier one.
        value: &'a str,
    },
    /// The cache of an accelerated function.
    Cache(&'a CacheReport),
    /// Something that happened.
    Note(&'a str),
    /// The number of steps that the training will have done at its end.
    Steps(u64),
    /// The end of the run.
    Finish,
}

/// Takes in what happens in a training.
///
/// ```
/// use retape_train::Result;
/// use retape_train::monitor::{Event, Monitor, Sink};
///
/// /// Writes a dot for every step.
/// struct Dots;
///
/// impl Sink for Dots {
///     fn take(&mut self, event: &Event<'_>) -> Result<()> {
///         if let Event::Record(_) = event {
///             eprint!(".");
///         }
///         Ok(())
///     }
/// }
///
/// let mut monitor = Monitor::new("dots").sink("dots", Dots);
/// monitor.step(1, 0, &[("loss", 0.5)]);
/// # monitor.finish()?;
/// # Ok::<(), retape_train::Error>(())
/// ```
pub trait Sink: Send {
    /// Takes in one event.
    ///
    /// # Errors
    ///
    /// After an error the monitor gives the sink nothing more.
    fn take(&mut self, event: &Event<'_>) -> Result<()>;
}
