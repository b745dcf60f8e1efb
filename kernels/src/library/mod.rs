//! Scaffold.
#![allow(missing_docs, reason = "scaffold")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Library {
    None,
}
