//! A training kit for [`retape`]: the code that every training needs around its step.
//!
//! A plain loop comes first: every piece works alone in a `for` loop of your own, none owns the model, and a model
//! implements nothing beyond [`retape::Tree`].

#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod data;
mod error;
mod execution;
mod files;
mod guarded;
mod json;
mod lock;
pub mod metrics;
pub mod monitor;
pub mod optimise;
pub mod plot;
mod problem;
pub mod progress;
pub mod state;
pub mod sweep;

pub use error::{Error, Result};
pub use execution::{DeviceTable, Execution};

/// The page of the guide, whose programs run as tests.
#[cfg(all(doctest, feature = "web"))]
#[doc = include_str!("../../docs/train.md")]
mod guide {}
