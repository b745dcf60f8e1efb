//! The mistakes of a module or of a running kernel, and their places.

use std::error::Error;
use std::fmt;

/// Text that is not PTX, or not the PTX that this interpreter knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, counted from one.
    pub line: u32,
    /// The mistake.
    pub what: String,
}

impl ParseError {
    pub(crate) fn new(line: u32, what: impl Into<String>) -> ParseError {
        ParseError { line, what: what.into() }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl Error for ParseError {}

/// The mistake of a kernel while it ran, or the reason why it could not be launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kernel's name.
    pub kernel: String,
    /// The line of the instruction in the module's text, counted from one; 0 for a launch that never began.
    pub line: u32,
    /// The instruction as written; empty for a launch that never began.
    pub text: String,
    /// The mistake, with block, warp and lane where they matter.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return write!(f, "{}: {}", self.kernel, self.what);
        }
        write!(f, "{}:{}: {} in `{}`", self.kernel, self.line, self.what, self.text)
    }
}

impl Error for Fault {}

/// The stop of a warp: the message of the fault to be, without its place. Boxed, since it is almost never made.
pub(crate) type Stop = Box<String>;

/// The error of an instruction.
pub(crate) fn stop<T>(what: impl Into<String>) -> Result<T, Stop> {
    Err(Box::new(what.into()))
}
