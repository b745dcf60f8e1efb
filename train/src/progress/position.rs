//! Where a training is.

use serde::{Deserialize, Serialize};

/// Where a training is: the step to be done next, and the batch of the data for it.
///
/// It is all that a checkpoint has to keep of the data, since the batches of an epoch follow from seed and epoch.
///
/// ```
/// use retape_train::progress::Position;
///
/// let position = Position { step: 9, epoch: 0, batch: 9 };
/// assert_eq!(position.after(10), Position { step: 10, epoch: 1, batch: 0 });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    /// The number of steps that are done.
    pub step: u64,
    /// The number of epochs that are done.
    pub epoch: u64,
    /// The number of batches of the current epoch that are done.
    pub batch: usize,
}

impl Position {
    /// The position one step further, in epochs of `n_batches` batches.
    #[must_use]
    pub fn after(self, n_batches: usize) -> Position {
        let (step, batch) = (self.step + 1, self.batch + 1);
        if batch < n_batches {
            Position { step, batch, ..self }
        } else {
            Position { step, epoch: self.epoch + 1, batch: 0 }
        }
    }

    /// Whether an epoch begins here.
    pub fn begins_epoch(self) -> bool {
        self.batch == 0
    }
}
