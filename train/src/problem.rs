//! Reasons why a file does not fit a tree.

use std::fmt;

/// A reason why a file does not fit a tree; an error lists all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The tree has a tensor that the file does not have.
    Missing {
        /// The name in the file.
        name: String,
        /// The dtype and shape in the tree.
        wanted: String,
    },
    /// The file has a tensor that the tree does not have.
    Extra {
        /// The name in the file.
        name: String,
        /// The dtype and shape in the file.
        found: String,
    },
    /// The tensor has another dtype or shape in the file than in the tree.
    Type {
        /// The name in the file.
        name: String,
        /// The dtype and shape in the tree.
        wanted: String,
        /// The dtype and shape in the file, as they are after conversions.
        found: String,
    },
    /// Two tensors of the tree are given the same name.
    Twice {
        /// The name in the file.
        name: String,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Missing { name, wanted } => write!(f, "`{name}` is missing: {wanted}"),
            Problem::Extra { name, found } => write!(f, "`{name}` is not in the tree: {found}"),
            Problem::Type { name, wanted, found } => write!(f, "`{name}` is {found} instead of {wanted}"),
            Problem::Twice { name } => write!(f, "`{name}` is the name of two tensors of the tree"),
        }
    }
}
