//! A step of a training, and its requests to the loop.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

#[cfg(doc)]
use super::Loop;
use super::{End, Every, Position, Stop};
use crate::data::{Batch, Collate, Dataset, Loader};
use crate::error::Result;

/// The settings of a loop.
#[derive(Clone, Debug)]
pub(super) struct LoopSettings {
    pub(super) epochs: Option<u64>,
    pub(super) steps: Option<u64>,
    pub(super) time: Option<Duration>,
    pub(super) validate: Option<Every>,
    pub(super) save: Option<Every>,
    pub(super) is_dry: bool,
}

/// The things that a step and its loop tell each other.
pub(super) struct LoopState {
    pub(super) stop: RefCell<Stop>,
    /// Whether a step has asked for the end of this training.
    pub(super) is_ended: Cell<bool>,
    pub(super) deadline: Cell<Option<Instant>>,
    /// Whether a step has said, when it was asked if it saves, that it is the last.
    pub(super) has_said_last: Cell<bool>,
}

impl LoopState {
    pub(super) fn is_over(&self) -> Option<End> {
        if self.is_ended.get() || self.stop.borrow().is_requested() {
            return Some(End::Stopped);
        }
        self.deadline.get().is_some_and(|deadline| Instant::now() >= deadline).then_some(End::Time)
    }
}

/// A step to be done.
pub struct Step<B> {
    /// The batch for it.
    pub batch: Batch<B>,
    /// How many steps and epochs were done before it: the position of its batch.
    pub position: Position,
    /// The position behind it, which a checkpoint after it keeps.
    pub after: Position,
    pub(super) plan: LoopSettings,
    /// Whether it is the last whatever happens.
    pub(super) is_last: bool,
    pub(super) shared: Rc<LoopState>,
}

impl<B> fmt::Debug for Step<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step").field("position", &self.position).field("is_last", &self.is_last).finish_non_exhaustive()
    }
}

impl<B> Step<B> {
    /// Whether to validate after this step: it is due, or it is the last step.
    ///
    /// Nothing is, if no [`Loop::validate`] was asked for.
    pub fn validates(&self) -> bool {
        self.plan.validate.is_some_and(|every| every.is_due(self.after) || self.is_last)
    }

    /// Whether to save after this step: it is due, or it is the last step, also because of a [`Stop`] or the time.
    ///
    /// Ask behind the step itself. Once it has said yes because of a stop, no step follows; if it was not asked since the
    /// stop, one more does, so that nothing is lost.
    pub fn saves(&self) -> bool {
        let Some(every) = self.plan.save else { return false };
        let is_last = self.is_last || self.shared.is_over().is_some();
        if is_last {
            self.shared.has_said_last.set(true);
        }
        is_last || every.is_due(self.after)
    }

    /// Whether this step ends its epoch.
    pub fn ends_epoch(&self) -> bool {
        self.after.batch == 0
    }

    /// Asks for the end of the training after this step, as a patience that is exhausted does.
    ///
    /// Other trainings that share the [`Stop`] of this one go on.
    pub fn stop(&self) {
        self.shared.is_ended.set(true);
    }

    /// The batches of `loader`, such as all those of a validation; in a dry run the first alone.
    pub fn batches_of<D, C>(
        &self,
        loader: &Loader<D, C>,
    ) -> impl Iterator<Item = Result<Batch<C::Batch>>> + use<D, C, B>
    where
        D: Dataset + 'static,
        D::Item: Send,
        C: Collate<D::Item> + 'static,
        C::Batch: Send,
    {
        loader.epoch(0).take(if self.plan.is_dry { 1 } else { usize::MAX })
    }
}
