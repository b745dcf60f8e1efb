//! Paths of pointwise ops from one stored value to another one, which those who use it may walk again.
//!
//! Centred elements are such a value, and standardised ones, and a cotangent times a vector of weights: who reads the array
//! that they are made of, and the few elements that are repeated, reads as many bytes as are stored otherwise, and nobody
//! writes them. Compilers call it rematerialisation.

use crate::types::ValueId;

/// A value of at most so much work on the elements of one stored value, beside few others that are repeated, is computed
/// again for each user, which reads that one in the place of the value; the value is not even written then.
const MAX_PATH_WORK: u32 = 3;

/// The path of pointwise ops from stored values to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RootPath {
    /// From none.
    Constant,
    /// From few elements, each of which is repeated, by so much work for each of the result.
    Repeated { work: u32 },
    /// From one value, element by element, by so much work in units of an addition.
    From { source: ValueId, work: u32, start: PathStart },
    /// From others, or from several.
    Tangled,
}

/// With which values a path begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PathStart {
    /// A result of the library, whose epilogue may compute the path.
    Library,
    /// Another root.
    Root,
    /// A parameter, a root that is reshaped, or one of them beside few elements that are repeated.
    Other,
}

impl RootPath {
    pub(super) fn joined(self, other: RootPath) -> RootPath {
        match (self, other) {
            (RootPath::Constant, path) | (path, RootPath::Constant) => path,
            (RootPath::Repeated { .. }, RootPath::From { start: PathStart::Library, .. })
            | (RootPath::From { start: PathStart::Library, .. }, RootPath::Repeated { .. }) => RootPath::Tangled,
            (RootPath::Repeated { work: more }, RootPath::From { source, work, .. })
            | (RootPath::From { source, work, .. }, RootPath::Repeated { work: more }) => {
                RootPath::From { source, work: work.saturating_add(more), start: PathStart::Other }
            }
            (RootPath::Repeated { work }, RootPath::Repeated { work: more }) => {
                RootPath::Repeated { work: work.saturating_add(more) }
            }
            (RootPath::From { source, work, start }, RootPath::From { source: of_other, work: more, start: other })
                if source == of_other =>
            {
                RootPath::From { source, work: work.saturating_add(more), start: start.max(other) }
            }
            _ => RootPath::Tangled,
        }
    }

    pub(super) fn longer(self, own: u32) -> RootPath {
        match self {
            RootPath::From { source, work, start } => RootPath::From { source, work: work.saturating_add(own), start },
            RootPath::Repeated { work } => RootPath::Repeated { work: work.saturating_add(own) },
            RootPath::Constant | RootPath::Tangled => self,
        }
    }

    /// Whether users compute the value. Of values that are not a root or a result of the library, they do so if no user
    /// moves its elements.
    pub(super) fn is_short(self, moves: bool) -> bool {
        matches!(self, RootPath::From { work, start, .. }
            if work <= MAX_PATH_WORK && (!moves || start != PathStart::Other))
    }
}
