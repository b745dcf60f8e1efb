//! Why calls missed: each miss as data, with what differed from the nearest signature that was known.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use retape_runtime::{Hash32, Shape};

use super::history::{History, Milestone};
use crate::compile::CompileTimes;
use crate::error::Caller;
use crate::signature::{Description, LeafText, LeafValue, Signature};

/// How many misses are remembered, the last ones.
const MAX_MISSES: usize = 256;
/// How many signatures a miss is compared with, the last ones that were made.
const MAX_NEIGHBOURS: usize = 64;
/// How many signatures are known to have been there before.
const MAX_SEEN: usize = 4096;
/// How many differences of one miss are kept.
const MAX_DIFFERENCES: usize = 32;

/// Why a call found no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum MissReason {
    /// The function had never been traced.
    FirstCall,
    /// A collection has another length, an enum another variant, an option came or went.
    NewStructure,
    /// A mode that changes the code was switched: the trap for non-finite values, the math mode, or for the whole
    /// process [`set_deterministic`](crate::set_deterministic).
    ModeChanged,
    /// A tensor has another dtype.
    NewDtype,
    /// A tensor lies on another device.
    NewDevice,
    /// A tensor has another shape.
    NewShape,
    /// A static value changed.
    NewStatic,
    /// There was an entry, but it had to make room, or was too large to be kept.
    Evicted,
    /// There was an entry before the cache was cleared.
    Cleared,
}

impl MissReason {
    /// The reason as a word, such as `new_shape`.
    pub const fn name(self) -> &'static str {
        match self {
            MissReason::FirstCall => "first_call",
            MissReason::NewStructure => "new_structure",
            MissReason::ModeChanged => "mode_changed",
            MissReason::NewDtype => "new_dtype",
            MissReason::NewDevice => "new_device",
            MissReason::NewShape => "new_shape",
            MissReason::NewStatic => "new_static",
            MissReason::Evicted => "evicted",
            MissReason::Cleared => "cleared",
        }
    }
}

/// The aspect of a leaf that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Aspect {
    /// Its length, its variant, or that it is there at all.
    Structure,
    /// The modes of the function.
    Mode,
    /// The dtype of a tensor.
    Dtype,
    /// The device of a tensor.
    Device,
    /// The number of axes of a tensor.
    Rank,
    /// The extent of this axis of a tensor.
    Axis(usize),
    /// A static value.
    Value,
}

impl Aspect {
    fn reason(self) -> MissReason {
        match self {
            Aspect::Structure => MissReason::NewStructure,
            Aspect::Mode => MissReason::ModeChanged,
            Aspect::Dtype => MissReason::NewDtype,
            Aspect::Device => MissReason::NewDevice,
            Aspect::Rank | Aspect::Axis(_) => MissReason::NewShape,
            Aspect::Value => MissReason::NewStatic,
        }
    }
}

impl fmt::Display for Aspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Aspect::Structure => f.write_str("structure"),
            Aspect::Mode => f.write_str("mode"),
            Aspect::Dtype => f.write_str("dtype"),
            Aspect::Device => f.write_str("device"),
            Aspect::Rank => f.write_str("rank"),
            Aspect::Axis(axis) => write!(f, "axis {axis}"),
            Aspect::Value => f.write_str("value"),
        }
    }
}

/// One difference between a signature and the nearest one that was known.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Difference {
    /// The leaf, such as `argument 0.weights[2]`.
    pub path: String,
    /// The aspect that differs.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serialise::text"))]
    pub aspect: Aspect,
    /// The text of this aspect in the known signature.
    pub old: String,
    /// The text of this aspect in the call.
    pub new: String,
    /// The Rust type of a static value; empty for everything else.
    pub type_name: &'static str,
}

/// Such as `argument 1 axis 0: 32 -> 8`.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {} -> {}", self.path, self.aspect, self.old, self.new)
    }
}

/// A call that found no entry.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Miss {
    /// The function's name.
    pub function: Arc<str>,
    /// Which miss of the function it was, from 1.
    pub number: u64,
    /// Why.
    pub reason: MissReason,
    /// The signature of the call.
    pub signature: Signature,
    /// The known signature with the fewest differences, the latest of several.
    pub nearest: Option<Signature>,
    /// How the call differs from it, at most 32 of them, the weightiest first.
    pub differences: Vec<Difference>,
    /// The line of the call.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serialise::text"))]
    pub at: Caller,
    /// The time that tracing and compiling took; zero where it failed or was refused.
    pub times: CompileTimes,
    /// The time from the call to its entry, or to its failure.
    #[cfg_attr(feature = "serde", serde(rename = "wall_seconds", serialize_with = "crate::serialise::seconds"))]
    pub wall: Duration,
    /// The time since the function was accelerated.
    #[cfg_attr(feature = "serde", serde(rename = "since_start_seconds", serialize_with = "crate::serialise::seconds"))]
    pub since_start: Duration,
    /// The hits of the function until then.
    pub hits: u64,
    /// Why no entry was made, if none was.
    pub error: Option<String>,
}

/// Such as ``miss 2 of `step` at src/train.rs:31:20: new_shape, argument 1 axis 0: 32 -> 8 (12.1 ms)``.
impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "miss {} of `{}` at {}: {}", self.number, self.function, self.at, self.reason.name())?;
        for difference in self.differences.iter().take(3) {
            write!(f, ", {difference}")?;
        }
        if self.differences.len() > 3 {
            write!(f, " and {} more", self.differences.len() - 3)?;
        }
        if self.differences.is_empty() {
            write!(f, ", ({})", self.signature.summary())?;
        }
        match &self.error {
            Some(error) => write!(f, ", failed: {error}"),
            None => write!(f, " ({:.1?})", self.wall),
        }
    }
}

/// Why a signature is not there: the reason, and the nearest that was.
#[derive(Clone, Debug)]
pub(crate) struct Explanation {
    pub(crate) reason: MissReason,
    pub(crate) nearest: Option<Signature>,
    pub(crate) differences: Vec<Difference>,
    /// Which of the function's misses it is, from 1, in the order in which they began.
    pub(crate) ordinal: u64,
}

/// The weightiest differences, for a message.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.name())?;
        self.differences.iter().take(4).try_for_each(|difference| write!(f, ", {difference}"))
    }
}

/// The misses that a function remembers.
#[derive(Debug, Default)]
pub(crate) struct MissLog {
    misses: VecDeque<Miss>,
    n_misses: u64,
    history: History,
    n_begun: u64,
    /// The number of clears when an entry was made for a signature; the oldest are forgotten.
    seen: HashMap<Hash32, u64>,
    order: VecDeque<Hash32>,
    neighbours: VecDeque<Signature>,
}

impl MissLog {
    /// Why `signature`, for which an entry is to be made now, is not in the cache that was cleared `n_clears` times.
    pub(crate) fn explain(&mut self, signature: &Signature, n_clears: u64) -> Explanation {
        let candidates = self.neighbours.iter().rev().map(|known| (known, known.differences(signature)));
        let nearest = candidates.min_by_key(|(_, differences)| differences.len());
        let (nearest, differences) = match nearest {
            Some((known, mut differences)) => {
                differences.sort_by_key(|difference| difference.aspect);
                differences.truncate(MAX_DIFFERENCES);
                (Some(known.clone()), differences)
            }
            None => (None, vec![]),
        };
        let reason = match (self.seen.get(&signature.hash()), differences.first()) {
            (Some(&at), _) if at == n_clears => MissReason::Evicted,
            (Some(_), _) => MissReason::Cleared,
            (None, Some(difference)) => difference.aspect.reason(),
            (None, None) => MissReason::FirstCall,
        };
        self.n_begun += 1;
        Explanation { reason, nearest, differences, ordinal: self.n_begun }
    }

    /// Notes that an entry was made.
    pub(crate) fn add_signature(&mut self, signature: &Signature, n_clears: u64) {
        let hash = signature.hash();
        if self.seen.insert(hash, n_clears).is_none() {
            self.order.push_back(hash);
        }
        if self.order.len() > MAX_SEEN {
            self.order.pop_front().map(|oldest| self.seen.remove(&oldest));
        }
        self.neighbours.retain(|known| known != signature);
        self.neighbours.push_back(signature.clone());
        if self.neighbours.len() > MAX_NEIGHBOURS {
            self.neighbours.pop_front();
        }
    }

    /// Notes a miss, and gives it its number.
    pub(crate) fn add_miss(&mut self, mut miss: Miss) -> Miss {
        self.n_misses += 1;
        miss.number = self.n_misses;
        self.history.add(miss.number, miss.hits);
        if self.misses.len() == MAX_MISSES {
            self.misses.pop_front();
        }
        self.misses.push_back(miss.clone());
        miss
    }

    /// How the counts of misses and hits grew.
    pub(crate) fn history(&self) -> &[Milestone] {
        self.history.points()
    }

    /// The last misses, the oldest first.
    pub(crate) fn misses(&self) -> Vec<Miss> {
        self.misses.iter().cloned().collect()
    }
}

impl Signature {
    /// The differences of a call with signature `new` from this one.
    pub(crate) fn differences(&self, new: &Signature) -> Vec<Difference> {
        let found = self.description().differences(new.description());
        if found.is_empty() { self.first_word_difference(new).into_iter().collect() } else { found }
    }

    /// The first word that differs, for leaves that look alike, such as two kinds of NaN.
    fn first_word_difference(&self, new: &Signature) -> Option<Difference> {
        let word = |words: &[u64], n: usize| words.get(n).map_or("nothing".to_owned(), |word| format!("{word:#x}"));
        let (old, new) = (self.words(), new.words());
        let n = (0..old.len().max(new.len())).find(|&n| old.get(n) != new.get(n))?;
        Some(difference(&format!("word {n} of the arguments"), Aspect::Value, word(old, n), word(new, n)))
    }
}

impl Description {
    pub(crate) fn differences(&self, new: &Description) -> Vec<Difference> {
        let mut found = vec![];
        if self.modes != new.modes {
            let text = |modes: &[&str]| if modes.is_empty() { "usual".into() } else { modes.join(", ") };
            found.push(difference("the function", Aspect::Mode, text(&self.modes), text(&new.modes)));
        }
        let same_paths = self.leaves.len() == new.leaves.len()
            && self.leaves.iter().zip(&new.leaves).all(|(old, new)| old.path == new.path);
        if same_paths {
            self.leaves.iter().zip(&new.leaves).for_each(|(old, new)| old.differences(new, &mut found));
            return found;
        }
        let mut before: HashMap<(&str, bool), VecDeque<&LeafText>> = HashMap::new();
        for leaf in &self.leaves {
            before.entry(leaf.key()).or_default().push_back(leaf);
        }
        for leaf in &new.leaves {
            match before.get_mut(&leaf.key()).and_then(VecDeque::pop_front) {
                Some(old) => old.differences(leaf, &mut found),
                None => found.push(difference(&leaf.path, Aspect::Structure, "nothing".into(), leaf.value.to_string())),
            }
        }
        for leaf in &self.leaves {
            if before.get(&leaf.key()).is_some_and(|left| left.iter().any(|other| std::ptr::eq(*other, leaf))) {
                found.push(difference(&leaf.path, Aspect::Structure, leaf.value.to_string(), "nothing".into()));
            }
        }
        found
    }
}

fn difference(path: &str, aspect: Aspect, old: String, new: String) -> Difference {
    Difference { path: path.to_owned(), aspect, old, new, type_name: "" }
}

impl LeafText {
    /// Leaves with equal keys are the same part of two arguments, in order if there are several: options, enums and
    /// keys of maps share the path of what they belong to.
    fn key(&self) -> (&str, bool) {
        (&self.path, matches!(self.value, LeafValue::Structure { .. }))
    }

    fn differences(&self, new: &LeafText, found: &mut Vec<Difference>) {
        let mut add = |aspect, old: String, new: String, type_name| {
            found.push(Difference { type_name, ..difference(&self.path, aspect, old, new) });
        };
        match (&self.value, &new.value) {
            (old, new) if old == new => {}
            (
                LeafValue::Tensor { dtype, shape, device },
                LeafValue::Tensor { dtype: new_dtype, shape: new_shape, device: new_device },
            ) => {
                if dtype != new_dtype {
                    add(Aspect::Dtype, dtype.to_string(), new_dtype.to_string(), "");
                }
                if device != new_device {
                    add(Aspect::Device, device.to_string(), new_device.to_string(), "");
                }
                shape_differences(shape, new_shape, |aspect, old, new| add(aspect, old, new, ""));
            }
            (LeafValue::Static { text: old, .. }, LeafValue::Static { text: new, type_name }) => {
                add(Aspect::Value, old.clone(), new.clone(), type_name);
            }
            (old, new) => add(Aspect::Structure, old.to_string(), new.to_string(), ""),
        }
    }
}

fn shape_differences(old: &Shape, new: &Shape, mut add: impl FnMut(Aspect, String, String)) {
    if old.rank() != new.rank() {
        return add(Aspect::Rank, format!("{} {old}", old.rank()), format!("{} {new}", new.rank()));
    }
    for (axis, (old, new)) in old.iter().zip(new.iter()).enumerate() {
        if old != new {
            add(Aspect::Axis(axis), old.to_string(), new.to_string());
        }
    }
}

impl Difference {
    /// Whether a static float changed.
    pub(crate) fn is_float(&self) -> bool {
        self.aspect == Aspect::Value && ["f32", "f64", "f16", "bf16"].contains(&self.type_name)
    }
}
