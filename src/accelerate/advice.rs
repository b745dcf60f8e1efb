//! Advice: patterns in the misses of a function that mean a mistake, each told once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{LazyLock, Mutex, PoisonError};

use retape_runtime::Hash32;

use super::explain::{Aspect, Difference, Miss, MissReason};
use crate::error::Caller;

/// How many values an axis takes before that is worth a word.
const MANY_EXTENTS: usize = 8;
/// How many values a static leaf takes before that is worth a word.
const MANY_VALUES: usize = 4;
/// How many entries are made again after an eviction before that is worth a word.
const MANY_EVICTED: u64 = 4;
/// How many functions one line makes for the same signature before that is worth a word.
const MANY_FUNCTIONS: u64 = 4;
/// How many values of a leaf are told apart, and how many leaves that change.
const MAX_VALUES: usize = 4096;

/// What the pattern is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum AdviceKind {
    /// One axis of an argument took many extents.
    ManyShapes,
    /// A static float took many values.
    ChangingFloat,
    /// Another static value took many values.
    ChangingStatic,
    /// One line of the program accelerates the same closure again and again.
    RecreatedFunction,
    /// Entries had to make room and were needed again.
    SmallCapacity,
}

impl AdviceKind {
    /// The kind as a word, such as `many_shapes`.
    pub const fn name(self) -> &'static str {
        match self {
            AdviceKind::ManyShapes => "many_shapes",
            AdviceKind::ChangingFloat => "changing_float",
            AdviceKind::ChangingStatic => "changing_static",
            AdviceKind::RecreatedFunction => "recreated_function",
            AdviceKind::SmallCapacity => "small_capacity",
        }
    }
}

/// A pattern in the misses of a function, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Advice {
    /// The pattern.
    pub kind: AdviceKind,
    /// The leaf with what of it changes, or the line, that it is about.
    pub subject: String,
    /// One line: what was seen, and what to do.
    pub message: String,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Watches misses for patterns.
#[derive(Debug, Default)]
pub(crate) struct Detector {
    /// The values that each changing part of the signature took.
    values: BTreeMap<(String, Aspect), BTreeSet<String>>,
    n_evicted: u64,
    given: BTreeMap<(AdviceKind, String), Advice>,
}

impl Detector {
    /// Takes a miss into account; returns advice that it is the first to justify.
    pub(crate) fn note(&mut self, miss: &Miss, made_at: Caller, occupancy: usize, capacity: usize) -> Vec<Advice> {
        let mut found: Vec<Advice> = miss.differences.iter().filter_map(|d| self.changing(d)).collect();
        if miss.reason == MissReason::Evicted {
            self.n_evicted += 1;
            found.extend(self.small_capacity(occupancy, capacity));
        }
        if miss.number == 1 {
            found.extend(recreated(miss.signature.hash(), made_at));
        }
        let mut first = vec![];
        for advice in found {
            let key = (advice.kind, advice.subject.clone());
            if self.given.insert(key, advice.clone()).is_none() {
                first.push(advice);
            }
        }
        first
    }

    /// All advice so far, with the latest counts.
    pub(crate) fn advice(&self) -> Vec<Advice> {
        self.given.values().cloned().collect()
    }

    fn changing(&mut self, difference: &Difference) -> Option<Advice> {
        let key = (difference.path.clone(), difference.aspect);
        if self.values.len() >= MAX_VALUES && !self.values.contains_key(&key) {
            // Paths hold the keys of maps, and so may be ever new.
            return None;
        }
        let values = self.values.entry(key).or_default();
        for value in [&difference.old, &difference.new] {
            if values.len() < MAX_VALUES {
                values.insert(value.clone());
            }
        }
        let (n, path) = (values.len(), &difference.path);
        let advice = |kind, message| Some(Advice { kind, subject: format!("{path} {}", difference.aspect), message });
        match difference.aspect {
            Aspect::Axis(axis) if n >= MANY_EXTENTS => advice(
                AdviceKind::ManyShapes,
                format!(
                    "{path} axis {axis} took {n} values, each a trace of its own: pad or bucket it, or drop the partial batch"
                ),
            ),
            Aspect::Value if n >= MANY_VALUES && difference.is_float() => advice(
                AdviceKind::ChangingFloat,
                format!("{path} is a static float that took {n} values, each a trace of its own: pass it as a tensor"),
            ),
            Aspect::Value if n >= MANY_VALUES => advice(
                AdviceKind::ChangingStatic,
                format!(
                    "{path} is a static value that took {n} values, each a trace of its own: pass it as a tensor if the trace need not know it"
                ),
            ),
            _ => None,
        }
    }

    fn small_capacity(&self, occupancy: usize, capacity: usize) -> Option<Advice> {
        let n = self.n_evicted;
        (n >= MANY_EVICTED).then(|| Advice {
            kind: AdviceKind::SmallCapacity,
            subject: "capacity".to_owned(),
            message: format!(
                "{n} entries that had made room were needed again: {occupancy} entries fit of {capacity}, which is below the \
                 working set; raise the capacity or the byte budget"
            ),
        })
    }
}

/// The first signature that functions made at a line were called with, and how many were.
static FIRST_CALLS: LazyLock<Mutex<HashMap<(Caller, Hash32), u64>>> = LazyLock::new(Mutex::default);

/// Counts a function that was made at a line and first called with a signature.
fn recreated(signature: Hash32, made_at: Caller) -> Option<Advice> {
    let mut first_calls = FIRST_CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    if first_calls.len() >= MAX_VALUES {
        first_calls.clear();
    }
    let n = first_calls.entry((made_at, signature)).or_default();
    *n += 1;
    (*n >= MANY_FUNCTIONS).then(|| Advice {
        kind: AdviceKind::RecreatedFunction,
        subject: made_at.to_string(),
        message: format!(
            "{n} functions were accelerated at {made_at} and called with the same signature, so each traced it anew: \
             accelerate once, outside the loop"
        ),
    })
}
