//! What a cached entry is valid for.

use std::fmt;

use smallvec::SmallVec;

/// Everything that a trace depends on: structure, dtypes, shapes, devices and static values of the arguments, and the
/// modes that change results. Compared in full; a hash only finds candidates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Signature {
    words: SmallVec<[u64; 64]>,
}

impl Signature {
    /// The signature of arguments written as these words.
    pub(crate) fn new(words: SmallVec<[u64; 64]>) -> Signature {
        Signature { words }
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

/// The first bytes of the hash: enough to tell entries apart in a log.
impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hash()[..6].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
