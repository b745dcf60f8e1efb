//! The key of a cached entry, and the arguments of a call in words for people.

mod summary;

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use retape_runtime::{DType, Device, Hash32, Shape};
use smallvec::SmallVec;

pub(crate) use self::summary::{ArgumentText, type_names};

/// Everything that a trace depends on: structure, dtypes, shapes, devices and static values of the arguments, and the
/// modes of the function that change its code. Compared in full; a hash only finds candidates.
///
/// It displays as the leaves of the arguments in order, such as `f32[2, 3], true`.
#[derive(Clone, Debug)]
pub struct Signature {
    words: SmallVec<[u64; 64]>,
    /// The same for people. It follows from the words, so comparisons leave it out.
    description: Arc<Description>,
}

/// The modes of a function that change its code. In a signature each is a word after those of the arguments, which never
/// go on there, and a text for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallModes {
    /// Approximations of a GPU may stand for exact operations.
    pub(crate) is_fast: bool,
    /// The code notes NaN and infinities.
    pub(crate) traps: bool,
    /// A GPU may add in an order that differs between runs. This mode is that of the process.
    pub(crate) is_nondeterministic: bool,
}

const FAST: &str = "fast math";
const TRAP: &str = "trap for non-finite values";
const NONDETERMINISTIC: &str = "nondeterministic algorithms";

impl CallModes {
    /// Adds the words of the modes.
    #[inline]
    pub(crate) fn write(self, mut word: impl FnMut(u64)) {
        if self.is_fast {
            word(u64::from_le_bytes(*b"mod:fast"));
        }
        if self.traps {
            word(u64::from_le_bytes(*b"mod:trap"));
        }
        if self.is_nondeterministic {
            word(u64::from_le_bytes(*b"mod:ndet"));
        }
    }

    /// The modes for people.
    pub(crate) fn texts(self) -> Vec<&'static str> {
        [(self.is_fast, FAST), (self.traps, TRAP), (self.is_nondeterministic, NONDETERMINISTIC)]
            .into_iter()
            .filter(|(is_on, _)| *is_on)
            .map(|(_, text)| text)
            .collect()
    }
}

impl Signature {
    /// The signature of arguments that were written as `words`.
    pub(crate) fn new(words: SmallVec<[u64; 64]>, description: Description) -> Signature {
        Signature { words, description: Arc::new(description) }
    }

    /// The hash that finds candidates.
    pub(crate) fn hash(&self) -> Hash32 {
        retape_runtime::hash_words(&self.words)
    }

    /// The words of the arguments.
    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    /// The words without those of modes.
    pub(crate) fn argument_words(&self) -> &[u64] {
        &self.words[..self.words.len() - self.description.modes.len()]
    }

    /// The modes that its code is compiled in.
    pub(crate) fn modes(&self) -> CallModes {
        let is_on = |mode| self.description.modes.contains(&mode);
        CallModes { is_fast: is_on(FAST), traps: is_on(TRAP), is_nondeterministic: is_on(NONDETERMINISTIC) }
    }

    /// The devices of the tensors, in order.
    pub(crate) fn devices(&self) -> impl Iterator<Item = Device> {
        self.description.leaves.iter().filter_map(|leaf| match leaf.value {
            LeafValue::Tensor { device, .. } => Some(device),
            LeafValue::Static { .. } | LeafValue::Structure { .. } => None,
        })
    }

    /// The arguments for people.
    pub(crate) fn description(&self) -> &Description {
        &self.description
    }

    /// The first bytes of the hash in hexadecimal digits: a short name, enough to tell entries apart in a log.
    pub fn id(&self) -> String {
        self.hash()[..6].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The short name, the arguments in short and in full, and their leaves.
#[cfg(feature = "serde")]
impl serde::Serialize for Signature {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        struct Texts<'s> {
            id: String,
            summary: String,
            arguments: String,
            /// Each argument in short.
            summaries: Vec<String>,
            modes: &'s [&'static str],
            leaves: &'s [LeafText],
            /// The paths of the leaves that are tensors.
            tensors: Vec<&'s str>,
        }

        let description = self.description();
        let tensors = description.leaves.iter().filter(|leaf| leaf.value.is_tensor());
        let texts = Texts {
            id: self.id(),
            summary: self.summary(),
            arguments: self.to_string(),
            summaries: description.summaries(),
            modes: &description.modes,
            leaves: &description.leaves,
            tensors: tensors.map(|leaf| &*leaf.path).collect(),
        };
        texts.serialize(serializer)
    }
}

impl PartialEq for Signature {
    fn eq(&self, other: &Signature) -> bool {
        self.words == other.words
    }
}

impl Eq for Signature {}

impl Hash for Signature {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.words().hash(state);
    }
}

impl Borrow<[u64]> for Signature {
    fn borrow(&self) -> &[u64] {
        &self.words
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&*self.description, f)
    }
}

/// The leaves of arguments, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) leaves: Vec<LeafText>,
    /// The arguments that the leaves are parts of; empty for a result.
    pub(crate) arguments: Vec<ArgumentText>,
    /// The modes of the function that are on.
    pub(crate) modes: Vec<&'static str>,
}

/// A leaf of the arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub(crate) struct LeafText {
    /// Such as `argument 0.weights[2]`.
    pub(crate) path: String,
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serialise::text"))]
    pub(crate) value: LeafValue,
}

/// The description of a leaf in a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeafValue {
    Tensor { dtype: DType, shape: Shape, device: Device },
    Static { text: String, type_name: &'static str },
    Structure { text: String },
}

impl Description {
    /// The path of tensor `n`.
    pub(crate) fn tensor_path(&self, n: usize) -> Option<String> {
        let is_tensor = |leaf: &&LeafText| matches!(leaf.value, LeafValue::Tensor { .. });
        self.leaves.iter().filter(is_tensor).nth(n).map(|leaf| leaf.path.clone())
    }
}

impl LeafValue {
    pub(crate) fn is_tensor(&self) -> bool {
        matches!(self, LeafValue::Tensor { .. })
    }
}

impl fmt::Display for LeafValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LeafValue::Tensor { dtype, shape, device: Device::Cpu } => write!(f, "{dtype}{shape}"),
            LeafValue::Tensor { dtype, shape, device } => write!(f, "{dtype}{shape} on {device}"),
            LeafValue::Static { text, .. } | LeafValue::Structure { text } => f.write_str(text),
        }
    }
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, leaf) in self.leaves.iter().enumerate() {
            write!(f, "{}{}", if n > 0 { ", " } else { "" }, leaf.value)?;
        }
        self.modes.iter().try_for_each(|mode| write!(f, "; {mode}"))
    }
}
