//! The errors of data sets.

use std::fmt;

/// The reason why data could not be made or cut into batches.
#[derive(Debug)]
#[non_exhaustive]
pub enum DataError {
    /// An argument does not fit the data.
    Argument {
        /// The reason, with the argument.
        reason: String,
    },
}

impl DataError {
    pub(super) fn argument(reason: impl Into<String>) -> DataError {
        DataError::Argument { reason: reason.into() }
    }
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataError::Argument { reason } => f.write_str(reason),
        }
    }
}

impl std::error::Error for DataError {}
