//! Why an artefact was not written or not read.

use std::fmt;
use std::io;

/// Why an artefact was not written or not read; a load that fails changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArtefactError {
    /// The system refused to read or write.
    #[non_exhaustive]
    Io {
        /// Its kind of error.
        kind: io::ErrorKind,
        /// Its words, with the path if there is one.
        message: String,
    },
    /// The first bytes are not those of an artefact.
    NotAnArtefact,
    /// Written in another version of the format.
    #[non_exhaustive]
    OtherFormat {
        /// The version found.
        found: u32,
        /// The version that this library reads and writes.
        own: u32,
    },
    /// Written by another version of this library, in which ops may mean something else.
    #[non_exhaustive]
    OtherVersion {
        /// The version found.
        found: String,
        /// This version.
        own: String,
    },
    /// Written for another function.
    #[non_exhaustive]
    OtherFunction {
        /// The part that differs: `function`, `arguments` or `result`.
        part: &'static str,
        /// The type found.
        found: String,
        /// The type of the function that loads.
        own: String,
    },
    /// Written for a function that another line of the program accelerated: another function of the same type, or the
    /// same one before its source was edited.
    #[non_exhaustive]
    OtherPlace {
        /// The file, line and column found.
        found: String,
        /// Those of the function that loads.
        own: String,
    },
    /// The artefact ends before its end.
    #[non_exhaustive]
    Truncated {
        /// The part that is cut off.
        part: &'static str,
    },
    /// A length that no artefact has.
    #[non_exhaustive]
    Oversized {
        /// Of what.
        part: &'static str,
        /// The length found, in bytes.
        len: u64,
        /// The greatest length there is.
        most: u64,
    },
    /// The checksum does not fit: bytes were changed.
    Corrupt,
    /// The bytes are as they were written, but not as this library writes them.
    #[non_exhaustive]
    Malformed {
        /// The mistake, and the entry that has it.
        message: String,
    },
    /// An entry cannot be written as text that reads back, or none that a load would take.
    #[non_exhaustive]
    NoText {
        /// The entry, by its arguments.
        entry: String,
        /// The part that cannot be written.
        message: String,
    },
}

impl ArtefactError {
    /// The error of a file or stream.
    pub(crate) fn io(error: &io::Error, path: Option<&std::path::Path>) -> ArtefactError {
        let message = match path {
            Some(path) => format!("{}: {error}", path.display()),
            None => error.to_string(),
        };
        ArtefactError::Io { kind: error.kind(), message }
    }
}

impl fmt::Display for ArtefactError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArtefactError::Io { message, .. } => f.write_str(message),
            ArtefactError::NotAnArtefact => f.write_str("this is no artefact of an accelerated function"),
            ArtefactError::OtherFormat { found, own } => {
                write!(f, "the artefact has format {found}, this library reads format {own}; save it again")
            }
            ArtefactError::OtherVersion { found, own } => {
                write!(f, "the artefact was written by version {found}, this is version {own}; save it again")
            }
            ArtefactError::OtherFunction { part, found, own } => {
                write!(f, "the artefact belongs to another function: its {part} type is `{found}`, not `{own}`")
            }
            ArtefactError::OtherPlace { found, own } => write!(
                f,
                "the artefact belongs to the function accelerated at {found}, this one is accelerated at {own}: either it \
                 is another function, or the source has moved since, and then calls simply trace anew; save it again"
            ),
            ArtefactError::Truncated { part } => write!(f, "the artefact is cut off within its {part}"),
            ArtefactError::Oversized { part, len, most } => {
                write!(f, "the {part} of the artefact would have {len} bytes; there are never more than {most}")
            }
            ArtefactError::Corrupt => f.write_str("the artefact is corrupt: its checksum does not fit"),
            ArtefactError::Malformed { message } => write!(f, "the artefact is malformed: {message}"),
            ArtefactError::NoText { entry, message } => {
                write!(f, "the entry for ({entry}) cannot be saved: {message}")
            }
        }
    }
}

impl std::error::Error for ArtefactError {}
