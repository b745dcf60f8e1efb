//! Kernels that no loop nest expresses well.

use std::fmt;

use retape_runtime::DType;

/// A precompiled kernel with its shapes.
#[derive(Clone, Debug, PartialEq)]
pub enum Library {}

impl Library {
    /// The dtypes and lengths of what it reads.
    pub fn inputs(&self) -> Vec<(DType, usize)> {
        match *self {}
    }

    /// The dtypes and lengths of what it writes.
    pub fn outputs(&self) -> Vec<(DType, usize)> {
        match *self {}
    }

    /// Runs it.
    pub fn run(&self, _: &[&[u8]], _: &mut [&mut [u8]]) {
        match *self {}
    }

    /// Runs the slow twin.
    pub fn reference(&self, _: &[&[u8]], _: &mut [&mut [u8]]) {
        match *self {}
    }
}

impl fmt::Display for Library {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}
