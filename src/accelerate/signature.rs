//! What a cached entry is valid for.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use retape_kernels::Modes;
use retape_runtime::{DType, Device, Hash32, Shape};
use smallvec::SmallVec;

use super::summary::{ArgumentText, type_names};
use crate::code::Target;
use crate::tree::{Field, Leaf, LeafKind, Words, Writer, path_text};

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
    /// The signature of the arguments that were written as `words`.
    pub(crate) fn new(words: Words, description: Description) -> Signature {
        Signature::kept(words.into_kept(), description)
    }

    fn kept(words: SmallVec<[u64; 64]>, description: Description) -> Signature {
        Signature { words, description: Arc::new(description) }
    }

    /// The signature of arguments in some modes.
    pub(crate) fn in_modes(modes: CallModes, mut words: Words, description: Description) -> Signature {
        modes.write(|word| words.push(word));
        Signature::new(words, Description { modes: modes.texts(), ..description })
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

    /// What its code is compiled for: the device of the arguments, in the modes.
    pub(crate) fn target(&self) -> Target {
        let CallModes { is_fast, traps: trap, is_nondeterministic } = self.modes();
        let device = self.devices().find(|&device| device != Device::Cpu).unwrap_or_default();
        // The processor has one code for both.
        let nondeterministic = is_nondeterministic && device != Device::Cpu;
        Target { device, is_fast, modes: Modes { trap, nondeterministic, ..Modes::default() } }
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
pub(crate) struct LeafText {
    /// Such as `argument 0.weights[2]`.
    pub(crate) path: String,
    pub(crate) value: LeafValue,
}

/// What a signature says of a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeafValue {
    Tensor { dtype: DType, shape: Shape, device: Device },
    Static { text: String, type_name: &'static str },
    Structure { text: String },
}

impl Description {
    /// Describes arguments of the types `Args`, a tuple, that were written with paths.
    pub(crate) fn of<Args>(leaves: &Writer<'_>) -> Description {
        let noted = leaves.paths.as_ref().map_or(&[][..], |paths| &paths.leaves);
        let mut rest = 0;
        let argument = |(n, type_name): (usize, String)| {
            let start = rest;
            rest += noted[start..].iter().take_while(|leaf| leaf.path.first() == Some(&Field::Index(n))).count();
            ArgumentText { type_name, leaves: start..rest }
        };
        let arguments = type_names(std::any::type_name::<Args>()).into_iter().enumerate().map(argument).collect();
        Description { arguments, ..Description::with_paths(leaves, argument_path) }
    }

    /// The path of tensor `n`.
    pub(crate) fn tensor_path(&self, n: usize) -> Option<String> {
        let is_tensor = |leaf: &&LeafText| matches!(leaf.value, LeafValue::Tensor { .. });
        self.leaves.iter().filter(is_tensor).nth(n).map(|leaf| leaf.path.clone())
    }

    /// Describes a result; empty if it was written without paths.
    pub(crate) fn of_result(leaves: &Writer<'_>) -> Description {
        Description::with_paths(leaves, |path| path_text("result", path))
    }

    fn with_paths(leaves: &Writer<'_>, path: impl Fn(&[Field]) -> String) -> Description {
        let noted = leaves.paths.as_ref().map_or(&[][..], |paths| &paths.leaves);
        let mut tensors = leaves.tensors.iter();
        let value = |leaf: &Leaf| match leaf.kind {
            LeafKind::Tensor => match tensors.next().and_then(|tensor| Some((tensor.ty()?, tensor.device()))) {
                Some((ty, device)) => LeafValue::Tensor { dtype: ty.dtype, shape: ty.shape.clone(), device },
                None => LeafValue::Structure { text: "a poisoned tensor".to_owned() },
            },
            LeafKind::Static { type_name } => LeafValue::Static { text: leaf.text.clone(), type_name },
            LeafKind::Structure => LeafValue::Structure { text: leaf.text.clone() },
        };
        let values: Vec<LeafValue> = noted.iter().map(value).collect();
        let leaf = |(leaf, value): (&Leaf, LeafValue)| LeafText { path: path(&leaf.path), value };
        Description { leaves: noted.iter().zip(values).map(leaf).collect(), ..Description::default() }
    }
}

/// A path whose first step says which argument it is.
fn argument_path(path: &[Field]) -> String {
    match path {
        [Field::Index(index), rest @ ..] => path_text(&format!("argument {index}"), rest),
        _ => path_text("", path),
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
