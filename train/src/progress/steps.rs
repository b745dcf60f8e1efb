//! The steps of a training as an iterator.

use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::rc::Rc;
use std::time::{Duration, Instant};

use retape::Caller;

use super::step::{LoopSettings, LoopState, Step};
use super::{Every, Position, Stop};
use crate::data::{Batch, Batches, Collate, Dataset, Loader, Stacked};
use crate::error::{Error, Result};

/// Why a training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// All epochs are done.
    Epochs,
    /// The largest number of steps is done.
    Steps,
    /// The time is over.
    Time,
    /// Somebody asked for it: [`Stop`], Ctrl-C, the page of a monitor, or a patience that is exhausted.
    Stopped,
    /// It was a trial run.
    DryRun,
    /// A batch could not be made.
    Failed,
}

/// A moment of a training that hooks are called at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Moment {
    /// Before the first step of an epoch, or the first of a run that was resumed within one. Its first batches are already
    /// being loaded.
    EpochStart(Position),
    /// After the last step of an epoch.
    EpochEnd(Position),
    /// After the last step of all.
    End(Position, End),
}

type Hook<'l> = Box<dyn FnMut(Moment) + 'l>;

/// The steps of a training, one after another, to be walked through by a plain `for`.
///
/// It brings the batches and says when to validate and to save; the step itself, and everything that it changes, stays
/// in the loop. It ends after the given epochs, steps or time, or when a [`Stop`] is asked for: the step that is under
/// way is finished, and if there is [something to save](Loop::save), it is saved.
///
/// ```
/// use retape_train::data::{Loader, from_fn};
/// use retape_train::progress::{End, Every, Loop};
///
/// let loader = Loader::new(from_fn(10, |index| Ok(index as f32)), 4)?.shuffled(7);
/// let mut steps = Loop::new(&loader).epochs(4).validate(Every::Epochs(2)).save(Every::Steps(5));
/// let (mut n_validations, mut n_saved) = (0, 0);
/// for step in &mut steps {
///     let step = step?;
///     let _x = &step.batch.data; // a call of the accelerated step
///     n_validations += u64::from(step.validates());
///     n_saved += u64::from(step.saves());
/// }
/// // Both also after the last step of all.
/// assert_eq!((n_validations, n_saved), (2, 3));
/// assert_eq!(steps.end(), Some(End::Epochs));
/// # Ok::<(), retape_train::Error>(())
/// ```
pub struct Loop<'l, D: Dataset, C: Collate<D::Item> = Stacked> {
    loader: &'l Loader<D, C>,
    /// The line that made the loop.
    at: Caller,
    plan: LoopSettings,
    position: Position,
    batches: Option<Batches<D, C>>,
    /// The batch for the step after this one, where it had to be asked for to know whether this one ends the epoch.
    ahead: Option<Result<Batch<C::Batch>>>,
    /// The batch that all steps have, in a run that is to over-fit it.
    only: Option<Only<C::Batch>>,
    hooks: Vec<Hook<'l>>,
    shared: Rc<LoopState>,
    start: Option<Instant>,
    /// Whether a step was given after a stop, so that it can be saved.
    has_had_one_more: bool,
    end: Option<End>,
}

/// The first batch, and how to copy it for each step.
struct Only<B> {
    batch: Option<Batch<B>>,
    clone: fn(&Batch<B>) -> Batch<B>,
}

impl<'l, D: Dataset, C: Collate<D::Item>> Loop<'l, D, C> {
    /// All batches of the loader, epoch after epoch, without an end.
    #[track_caller]
    pub fn new(loader: &'l Loader<D, C>) -> Loop<'l, D, C> {
        let shared = LoopState {
            stop: RefCell::default(),
            is_ended: Cell::new(false),
            deadline: Cell::new(None),
            has_said_last: Cell::new(false),
        };
        Loop {
            loader,
            at: Location::caller(),
            plan: LoopSettings { epochs: None, steps: None, time: None, validate: None, save: None, is_dry: false },
            position: Position::default(),
            batches: None,
            ahead: None,
            only: None,
            hooks: vec![],
            shared: Rc::new(shared),
            start: None,
            has_had_one_more: false,
            end: None,
        }
    }

    /// Goes on from a position, as that of a checkpoint.
    #[must_use]
    pub fn resume(self, position: Position) -> Self {
        Loop { position, ..self }
    }

    /// Ends when so many epochs are done, those before the position of a resumed run among them.
    #[must_use]
    pub fn epochs(mut self, n: u64) -> Self {
        self.plan.epochs = Some(n);
        self
    }

    /// Ends when so many steps are done, those before the position of a resumed run among them.
    #[must_use]
    pub fn steps(mut self, n: u64) -> Self {
        self.plan.steps = Some(n);
        self
    }

    /// Ends after the first step that is done when this time has passed since the first of this run began.
    #[must_use]
    pub fn time(mut self, limit: Duration) -> Self {
        self.plan.time = Some(limit);
        self
    }

    /// Says how often [`Step::validates`].
    #[must_use]
    pub fn validate(mut self, every: Every) -> Self {
        self.plan.validate = Some(every);
        self
    }

    /// Says how often [`Step::saves`].
    #[must_use]
    pub fn save(mut self, every: Every) -> Self {
        self.plan.save = Some(every);
        self
    }

    /// Ends after the step under way when this stop is asked for.
    #[must_use]
    pub fn until(self, stop: &Stop) -> Self {
        self.shared.stop.replace(stop.clone());
        self
    }

    /// One step of everything: its validation has one batch ([`Step::batches_of`]), and it saves. Give it a folder of its
    /// own: a metric of one batch may be better than that of any whole validation.
    ///
    /// To be run before a long training, whose last line would otherwise be the first time that it is run.
    #[must_use]
    pub fn dry_run(mut self, is_dry: bool) -> Self {
        self.plan.is_dry = is_dry;
        self
    }

    /// Gives every step the first batch of the run, as a check that a network can learn: its loss must go to zero.
    #[must_use]
    pub fn overfit(mut self, overfits: bool) -> Self
    where
        C::Batch: Clone,
    {
        self.only = overfits.then_some(Only { batch: None, clone: Batch::clone });
        self
    }

    /// Adds a function that is called at moments of the training, after those that were added before.
    #[must_use]
    pub fn hook(mut self, hook: impl FnMut(Moment) + 'l) -> Self {
        self.hooks.push(Box::new(hook));
        self
    }

    /// The position of the step to be done next.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The number of steps at the end, if epochs or steps say so.
    pub fn n_steps(&self) -> Option<u64> {
        let of_epochs = self.plan.epochs.map(|epochs| {
            let rest = epochs.saturating_sub(self.position.epoch).saturating_mul(self.loader.n_batches() as u64);
            self.position.step + rest.saturating_sub(self.position.batch as u64)
        });
        of_epochs.into_iter().chain(self.plan.steps).min()
    }

    /// Why it ended, once it has.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    fn tell(&mut self, moment: Moment) {
        self.hooks.iter_mut().for_each(|hook| hook(moment));
    }

    /// Why there is no step at a position, if there is none for a reason that is known before.
    fn planned_end(&self, position: Position, is_first: bool) -> Option<End> {
        if self.plan.is_dry && !is_first {
            return Some(End::DryRun);
        }
        if self.plan.steps.is_some_and(|steps| position.step >= steps) {
            return Some(End::Steps);
        }
        self.plan.epochs.is_some_and(|epochs| position.epoch >= epochs).then_some(End::Epochs)
    }

    /// Why the step that was under way was the last.
    fn ended(&mut self) -> Option<End> {
        let is_first = self.start.is_none();
        if let Some(end) = self.planned_end(self.position, is_first) {
            return Some(end);
        }
        let end = self.shared.is_over()?;
        // The stop may have come after the step was asked whether it saves. Then one more is, but only one: not every
        // loop asks.
        let is_told = is_first || self.plan.save.is_none() || self.shared.has_said_last.get();
        let may_end = is_told || self.has_had_one_more;
        self.has_had_one_more = true;
        may_end.then_some(end)
    }
}

impl<D, C> Loop<'_, D, C>
where
    D: Dataset + 'static,
    D::Item: Send,
    C: Collate<D::Item> + 'static,
    C::Batch: Send,
{
    /// The next batch of this epoch; nothing if all that were left were skipped.
    fn batch(&mut self) -> Option<Result<Batch<C::Batch>>> {
        if let Some(Only { batch: Some(batch), clone }) = &self.only {
            return Some(Ok(clone(batch)));
        }
        let Position { epoch, batch, .. } = self.position;
        if self.loader.n_batches() == 0 {
            return Some(Err(Error::argument_at("there is no batch to learn from", Some(self.at))));
        }
        let batch = match self.ahead.take() {
            Some(batch) => batch,
            None => self.batches.get_or_insert_with(|| self.loader.epoch_from(epoch, batch)).next()?,
        };
        if let Ok(batch) = &batch {
            // Batches of which nothing was left are passed over.
            self.position.batch = batch.number;
            if let Some(only) = &mut self.only {
                only.batch = Some((only.clone)(batch));
            }
        }
        Some(batch)
    }

    /// The position behind that of a step. Its epoch is over too if all batches that it has left are skipped.
    fn after(&mut self) -> Position {
        let after = self.position.after(self.loader.n_batches());
        let batches = if after.batch == 0 { None } else { self.batches.as_mut() };
        if let Some(batches) = batches.filter(|_| self.loader.skips_broken() && self.only.is_none()) {
            self.ahead = batches.next();
            if self.ahead.is_none() {
                return Position { epoch: after.epoch + 1, batch: 0, ..after };
            }
        }
        after
    }

    /// The end, or the next batch, with the hooks of what lies between.
    fn advance(&mut self) -> std::result::Result<Result<Batch<C::Batch>>, End> {
        loop {
            let is_first = self.start.is_none();
            if !is_first && self.position.batch == 0 {
                self.tell(Moment::EpochEnd(self.position));
            }
            if let Some(end) = self.ended() {
                return Err(end);
            }
            if is_first {
                let start = Instant::now();
                self.start = Some(start);
                self.shared.deadline.set(self.plan.time.and_then(|limit| start.checked_add(limit)));
            }
            if is_first || self.position.batch == 0 {
                self.tell(Moment::EpochStart(self.position));
            }
            if let Some(batch) = self.batch() {
                return Ok(batch);
            }
            self.batches = None;
            self.position = Position { epoch: self.position.epoch + 1, batch: 0, ..self.position };
        }
    }

    fn finish(&mut self, end: End) {
        self.end = Some(end);
        self.batches = None;
        self.tell(Moment::End(self.position, end));
    }
}

impl<D, C> Iterator for Loop<'_, D, C>
where
    D: Dataset + 'static,
    D::Item: Send,
    C: Collate<D::Item> + 'static,
    C::Batch: Send,
{
    type Item = Result<Step<C::Batch>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.end.is_some() {
            return None;
        }
        let batch = match self.advance() {
            Ok(Ok(batch)) => batch,
            Ok(Err(error)) => {
                self.finish(End::Failed);
                return Some(Err(error));
            }
            Err(end) => {
                self.finish(end);
                return None;
            }
        };
        let position = self.position;
        let after = self.after();
        self.position = after;
        let is_last = self.planned_end(after, false).is_some();
        if after.batch == 0 {
            // The next epoch is loaded beside the last step of this one, and what comes between the two.
            let is_wanted = !is_last && self.only.is_none();
            self.batches = is_wanted.then(|| self.loader.epoch_from(after.epoch, 0));
        }
        Some(Ok(Step { batch, position, after, plan: self.plan.clone(), is_last, shared: self.shared.clone() }))
    }
}
