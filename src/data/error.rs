//! What can be wrong with a data set.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The reason why data could not be loaded or cut into batches.
#[derive(Debug)]
#[non_exhaustive]
pub enum DataError {
    /// A file could not be opened, read or decompressed.
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file does not hold what it should.
    Format {
        /// The file, or in words what stands for it.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// An argument does not fit the data.
    Argument {
        /// What is wrong with it.
        reason: String,
    },
}

impl DataError {
    pub(super) fn io(path: &Path, source: io::Error) -> DataError {
        DataError::Io { path: path.to_owned(), source }
    }

    pub(super) fn format(path: &Path, reason: impl Into<String>) -> DataError {
        DataError::Format { path: path.to_owned(), reason: reason.into() }
    }

    pub(super) fn argument(reason: impl Into<String>) -> DataError {
        DataError::Argument { reason: reason.into() }
    }
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataError::Io { path, source } => write!(f, "cannot read {}: {source}", path.display()),
            DataError::Format { path, reason } => write!(f, "{}: {reason}", path.display()),
            DataError::Argument { reason } => f.write_str(reason),
        }
    }
}

impl std::error::Error for DataError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            DataError::Io { source, .. } => Some(source),
            DataError::Format { .. } | DataError::Argument { .. } => None,
        }
    }
}
