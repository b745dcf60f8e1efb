//! What a cached entry is valid for.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::tree::{Leaf, Writer};

/// Everything that a trace depends on: structure, dtypes, shapes, devices and static values of the arguments. Compared
/// in full; a hash only finds candidates. No mode of the process changes results, so there is none to note.
#[derive(Clone, Debug)]
pub struct Signature {
    words: SmallVec<[u64; 64]>,
    /// The arguments for people, if an observer is to read of them. It follows from the words and the types of the
    /// arguments, so comparisons leave it out.
    text: Option<Arc<str>>,
}

impl Signature {
    /// Takes the signature of what was written.
    pub(crate) fn take(leaves: &mut Writer<'_>) -> Signature {
        let text = leaves.paths.is_some().then(|| text(leaves).into());
        Signature { words: std::mem::take(&mut leaves.words), text }
    }

    /// The arguments as text such as `f32[2, 3], 1`, if paths were noted when they were written.
    pub(crate) fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// The hash that finds candidates.
    pub(crate) fn hash(&self) -> retape_runtime::Hash32 {
        retape_runtime::hash_words(&self.words)
    }

    /// The words of the arguments.
    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }
}

/// The leaves in order: dtypes and shapes of tensors; static values and the lengths of collections as numbers.
fn text(leaves: &Writer<'_>) -> String {
    let noted = leaves.paths.as_ref().map_or(&[][..], |paths| &paths.leaves);
    let ends = noted.iter().skip(1).map(|leaf| leaf.first_word).chain([leaves.words.len()]);
    let mut tensors = leaves.tensors.iter();
    let text = |(leaf, end): (&Leaf, usize)| match leaf.is_tensor {
        true => tensors.next().and_then(|tensor| tensor.ty()).map(ToString::to_string).unwrap_or_default(),
        false => {
            let words = leaves.words.get(leaf.first_word..end).unwrap_or_default();
            words.iter().map(ToString::to_string).collect::<Vec<_>>().join(":")
        }
    };
    noted.iter().zip(ends).map(text).collect::<Vec<_>>().join(", ")
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

/// The first bytes of the hash: enough to tell entries apart in a log.
impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hash()[..6].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
