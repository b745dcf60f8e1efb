//! The steps of a loop form.

/// A step in a place of a loop form. One that depends on the vector axis is made for each group of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoopStep {
    /// Makes the value of an instruction.
    Make(usize),
    /// Makes the values of a cold region's selects, behind a branch around the region's steps.
    Branch(usize),
    /// Writes the value of a store.
    Store(usize),
}
