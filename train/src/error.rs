//! The errors: of files, their contents, arguments, and the engine.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::panic::Location;
use std::path::{Path, PathBuf};

use retape::Caller;
use retape::data::DataError;

use crate::problem::Problem;

/// The result of anything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder could not be read or written.
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The contents of a file are not what they have to be.
    Format {
        /// The file.
        path: PathBuf,
        /// The fault, in words.
        what: String,
    },
    /// A file was written by a newer version of this crate.
    Version {
        /// The file.
        path: PathBuf,
        /// Which version it is of, and which can be read.
        message: String,
    },
    /// A file of a state does not fit the tree that it is to be read into.
    State {
        /// The file, or the index of several.
        path: PathBuf,
        /// All differences.
        problems: Vec<Problem>,
    },
    /// An argument makes no sense.
    Argument {
        /// The fault, in words.
        message: String,
        /// The caller's line. None where no call of the program's is at fault: an example that was read does not fit an
        /// augmentation or its batch, or a text does not say what it has to.
        at: Option<Caller>,
    },
    /// The engine refused.
    Engine(retape::Error),
    /// A page could not be served.
    Network {
        /// Where it was to be.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// A picture could not be drawn or written as text.
    Drawing(String),
    /// An example of a data set could not be loaded or augmented.
    Example {
        /// The index of the example in its data set.
        index: usize,
        /// The error.
        source: Box<Error>,
    },
    /// Code that the caller handed over panicked.
    Panicked {
        /// The code that panicked, in words.
        what: String,
        /// The message of the panic.
        message: String,
    },
    /// An error of the caller's own, from a data set or an augmentation.
    Custom(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Wraps an error of the caller's own, or a message.
    ///
    /// ```
    /// let error = retape_train::Error::custom("sensor 3 is switched off");
    /// assert_eq!(error.to_string(), "sensor 3 is switched off");
    /// ```
    pub fn custom(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Custom(error.into())
    }

    /// The error of an operation on a file or folder.
    pub(crate) fn io(path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Error {
        let path = path.as_ref().to_owned();
        move |source| Error::Io { path, source }
    }

    /// The error of a file whose contents are wrong.
    pub(crate) fn format(path: impl AsRef<Path>, what: impl Into<String>) -> Error {
        Error::Format { path: path.as_ref().to_owned(), what: what.into() }
    }

    /// The error of an argument, given where the function that is tracked was called.
    #[track_caller]
    pub(crate) fn argument(message: impl Into<String>) -> Error {
        Error::argument_at(message, Some(Location::caller()))
    }

    /// The error of an example that does not fit, which a thread of a loader may meet: no line of the program is at fault.
    pub(crate) fn example(message: impl Into<String>) -> Error {
        Error::argument_at(message, None)
    }

    /// The error of an argument that was given at a line, or at none.
    pub(crate) fn argument_at(message: impl Into<String>, at: Option<Caller>) -> Error {
        Error::Argument { message: message.into(), at }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Error::Format { path, what } | Error::Version { path, message: what } => {
                write!(f, "{}: {what}", path.display())
            }
            Error::Network { address, source } if source.kind() == io::ErrorKind::AddrInUse => {
                write!(f, "{address}: the port is in use; give another one, or 0 for any that is free")
            }
            Error::Network { address, source } => write!(f, "{address}: {source}"),
            Error::State { path, problems } => {
                let places = if problems.len() == 1 { "place" } else { "places" };
                write!(f, "{} does not fit the tree in {} {places}:", path.display(), problems.len())?;
                problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
            Error::Argument { message, at: Some(at) } => write!(f, "{message} (at {at})"),
            Error::Drawing(what) | Error::Argument { message: what, at: None } => f.write_str(what),
            Error::Engine(error) => fmt::Display::fmt(error, f),
            Error::Example { index, source } => write!(f, "example {index}: {source}"),
            Error::Panicked { what, message } => write!(f, "{what} panicked: {message}"),
            Error::Custom(error) => fmt::Display::fmt(error, f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } | Error::Network { source, .. } => Some(source),
            Error::Engine(error) => Some(error),
            Error::Example { source, .. } => Some(source),
            Error::Custom(error) => error.source(),
            Error::Format { .. }
            | Error::Version { .. }
            | Error::State { .. }
            | Error::Drawing(_)
            | Error::Argument { .. }
            | Error::Panicked { .. } => None,
        }
    }
}

impl From<retape::Error> for Error {
    fn from(error: retape::Error) -> Error {
        Error::Engine(error)
    }
}

impl From<DataError> for Error {
    #[track_caller]
    fn from(error: DataError) -> Error {
        match error {
            DataError::Argument { reason } => Error::argument(reason),
            other => Error::custom(other),
        }
    }
}
