//! Accelerated functions inside gradients that are evaluated at once: forward and backward as code of their own.
//!
//! A [`Routine`] is a graph that is called as compiled code. Its gradient is another routine, which computes everything
//! from the arguments and the cotangents; so gradients have gradients. If a call and its gradient are run together,
//! they share work: the *forward* code also returns residuals, and the *backward* code begins with these. Which values
//! are residuals is a minimum cut (`partition.rs`). Code is made when it is first needed.

mod calls;
mod code;
mod cut;
mod partition;
mod routine;
mod site;
#[cfg(test)]
mod tests;

pub(crate) use self::calls::Calls;
pub use self::routine::GradientStats;
pub(crate) use self::routine::{Common, Pull, Routine};
pub(crate) use self::site::{CallSite, CompareCall};
