//! Advice: patterns in the misses of a function and in what it records that mean a mistake, and what it finds changed
//! behind its back; each told once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{LazyLock, Mutex};

use retape_runtime::{Hash32, lock};

use super::explain::{Aspect, Difference, Miss, MissReason};
use crate::error::Caller;
use crate::graph::Graph;
use crate::types::TensorType;

/// How many values an axis takes before that is worth a word.
const MANY_EXTENTS: usize = 8;
/// How many values a static leaf takes before that is worth a word.
const MANY_VALUES: usize = 4;
/// How many entries are made again after an eviction before that is worth a word.
const MANY_EVICTED: u64 = 4;
/// How many entries are made again after a clear before that is worth a word.
const MANY_CLEARED: u64 = 4;
/// Only where at least one in so many calls misses is there anything to advise.
const CALLS_PER_MISS: u64 = 10;
/// How many functions one line makes for the same signature before that is worth a word.
const MANY_FUNCTIONS: u64 = 4;
/// How many values of a leaf are told apart, and how many leaves that change.
const MAX_VALUES: usize = 4096;

/// The kind of pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum AdviceKind {
    /// One axis of an argument took many extents.
    ManyShapes,
    /// A collection took many lengths, an enum many variants, or a tensor many ranks.
    ManyStructures,
    /// A static float took many values.
    ChangingFloat,
    /// Another static value took many values.
    ChangingStatic,
    /// One line of the program accelerates the same closure again and again.
    RecreatedFunction,
    /// Entries had to make room and were needed again.
    SmallCapacity,
    /// The cache is cleared again and again, and its entries are needed again.
    RepeatedClears,
    /// The closure no longer records what the entry computes: it depends on something that is no argument.
    StaleTrace,
    /// A convolution has a filter that looks like one in the order of another library.
    FilterOrder,
}

impl AdviceKind {
    /// The kind as a word, such as `many_shapes`.
    pub const fn name(self) -> &'static str {
        match self {
            AdviceKind::ManyShapes => "many_shapes",
            AdviceKind::ManyStructures => "many_structures",
            AdviceKind::ChangingFloat => "changing_float",
            AdviceKind::ChangingStatic => "changing_static",
            AdviceKind::RecreatedFunction => "recreated_function",
            AdviceKind::SmallCapacity => "small_capacity",
            AdviceKind::RepeatedClears => "repeated_clears",
            AdviceKind::StaleTrace => "stale_trace",
            AdviceKind::FilterOrder => "filter_order",
        }
    }
}

/// A mistake that the calls of a function show, and its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Advice {
    /// The pattern.
    pub kind: AdviceKind,
    /// The leaf with what of it changes, or the line, that it is about.
    pub subject: String,
    /// One line: the finding, and the remedy.
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
    n_cleared: u64,
    given: BTreeMap<(AdviceKind, String), Advice>,
    /// The hash of the first signature that missed.
    first: Option<Hash32>,
}

impl Detector {
    /// Takes a miss into account; returns advice that it is the first to justify.
    pub(crate) fn add_miss(&mut self, miss: &Miss, made_at: Caller, occupancy: usize, capacity: usize) -> Vec<Advice> {
        let mut found: Vec<Advice> = miss.differences.iter().filter_map(|d| self.changing(d)).collect();
        match miss.reason {
            MissReason::Evicted => {
                self.n_evicted += 1;
                found.extend(self.small_capacity(occupancy, capacity));
            }
            MissReason::Cleared => {
                self.n_cleared += 1;
                found.extend(self.repeated_clears());
            }
            _ => {}
        }
        if CALLS_PER_MISS * miss.number < miss.hits + miss.number {
            found.clear();
        }
        let mut told = vec![];
        if miss.number == 1 {
            let hash = miss.signature.hash();
            self.first = Some(hash);
            if let Some((advice, is_new)) = recreated(hash, made_at) {
                self.add(&advice);
                told.extend(is_new.then_some(advice));
            }
        }
        told.extend(found.into_iter().filter(|advice| self.add(advice)));
        told
    }

    /// Takes a recorded graph into account; returns advice that it is the first to justify.
    pub(crate) fn add_graph(&mut self, graph: &Graph) -> Vec<Advice> {
        let odd = graph.nodes().iter().filter_map(|node| {
            let types: Vec<&TensorType> = node.args.iter().map(|&arg| graph.ty(arg)).collect();
            Some((node.op.doubt(&types)?, node.at))
        });
        let advice = odd.map(|(doubt, at)| {
            let subject = at.map_or_else(|| "a line that is not known".to_owned(), |at| at.to_string());
            Advice { kind: AdviceKind::FilterOrder, message: format!("at {subject}: {doubt}"), subject }
        });
        let advice: Vec<Advice> = advice.collect();
        advice.into_iter().filter(|advice| self.add(advice)).collect()
    }

    /// Puts advice on record, with the latest counts; returns whether it is new.
    pub(crate) fn add(&mut self, advice: &Advice) -> bool {
        self.given.insert((advice.kind, advice.subject.clone()), advice.clone()).is_none()
    }

    /// Takes note that the function, which was made at this line, is dropped after so many calls.
    pub(crate) fn end(&self, made_at: Caller, n_calls: u64) {
        if let Some(first) = self.first {
            let mut dropped = lock(&DROPPED);
            if dropped.len() >= MAX_VALUES {
                dropped.clear();
            }
            let of_line = dropped.entry((made_at, first)).or_default();
            of_line.functions += 1;
            of_line.calls += n_calls;
        }
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
            Aspect::Structure | Aspect::Rank if n >= MANY_EXTENTS => advice(
                AdviceKind::ManyStructures,
                format!(
                    "the {} of {path} took {n} values, each a trace of its own: pass a tensor of one shape, or fewer lengths",
                    difference.aspect
                ),
            ),
            _ => None,
        }
    }

    fn repeated_clears(&self) -> Option<Advice> {
        let n = self.n_cleared;
        (n >= MANY_CLEARED).then(|| Advice {
            kind: AdviceKind::RepeatedClears,
            subject: "clear_cache".to_owned(),
            message: format!("{n} entries were needed again after `clear_cache`: clear less often, or set a capacity"),
        })
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

/// Functions that were made at a line, first called with a signature, and dropped.
#[derive(Debug, Default)]
struct Dropped {
    functions: u64,
    calls: u64,
}

static DROPPED: LazyLock<Mutex<HashMap<(Caller, Hash32), Dropped>>> = LazyLock::new(Mutex::default);

/// Whether a function that was made at a line and is first called with a signature had predecessors that were dropped
/// after a few calls; and whether that is told for the first time.
fn recreated(signature: Hash32, made_at: Caller) -> Option<(Advice, bool)> {
    let dropped = lock(&DROPPED);
    let Dropped { functions, calls } = dropped.get(&(made_at, signature))?;
    let n = functions + 1;
    (n >= MANY_FUNCTIONS && *calls < CALLS_PER_MISS * *functions).then(|| {
        let message = format!(
            "{n} functions were accelerated at {made_at} and called with the same signature, so each traced it anew: \
             accelerate once, outside the loop"
        );
        let advice = Advice { kind: AdviceKind::RecreatedFunction, subject: made_at.to_string(), message };
        (advice, n == MANY_FUNCTIONS)
    })
}
