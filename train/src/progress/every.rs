//! How often something is done.

use super::Position;

/// How often something is done in a training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Every {
    /// Each time so many more steps are done.
    Steps(u64),
    /// Each time so many more epochs are done.
    Epochs(u64),
}

impl Every {
    /// Whether it is due at a position; after every 0 steps or epochs is never.
    ///
    /// ```
    /// use retape_train::progress::{Every, Position};
    ///
    /// assert!(Every::Steps(50).is_due(Position { step: 100, epoch: 1, batch: 20 }));
    /// assert!(Every::Epochs(1).is_due(Position { step: 80, epoch: 1, batch: 0 }));
    /// assert!(!Every::Epochs(2).is_due(Position { step: 80, epoch: 1, batch: 0 }));
    /// ```
    pub fn is_due(self, after: Position) -> bool {
        let is_multiple = |n: u64, of: u64| n > 0 && of > 0 && n.is_multiple_of(of);
        match self {
            Every::Steps(n) => is_multiple(after.step, n),
            Every::Epochs(n) => after.batch == 0 && is_multiple(after.epoch, n),
        }
    }
}
