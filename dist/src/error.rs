//! Errors between workers.

use std::fmt;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a world could not be made, or could not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The library of MPI is missing, or does not belong to the launcher, or the environment is not understood.
    Launch(String),
    /// An argument that no worker could be given.
    Argument(String),
    /// The workers are in different calls, one of them failed, or did not come in time. The world is not used any more:
    /// all later calls fail with this first error.
    Broken(String),
    /// The workers hold different values of what must be equal. All of them have this error, and the world goes on.
    Disagreement(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Launch(message)
            | Error::Argument(message)
            | Error::Broken(message)
            | Error::Disagreement(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {}
