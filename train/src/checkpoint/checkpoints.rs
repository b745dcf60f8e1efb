//! The checkpoints of a run.

use std::fs::{File, TryLockError};
use std::path::Path;

use retape::Tree;

use super::folder::{self, Best, Keep, Saved};
use super::manifest::Checkpoint;
use super::reader::{Reader, Restored};
use super::writer::{WriteJob, Writer};
use crate::error::{Error, Result};
use crate::files::create_folder;
use crate::progress::Goal;
use crate::state;

/// The checkpoints of a run, in one folder.
///
/// The [module's page](super) has an example. By default the last three are kept.
///
/// When this is dropped it waits for what is being written, but nobody hears of an error then: [`wait`](Checkpoints::wait)
/// tells of it.
pub struct Checkpoints {
    reader: Reader,
    keep: Keep,
    writer: Writer,
    /// Held as long as this is there: two runs in one folder would remove each other's checkpoints.
    _lock: File,
}

impl Checkpoints {
    /// Opens a folder of checkpoints to write to, and makes it if it is not there; [`read`](Checkpoints::read) only reads.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be made or read, or another run has it open.
    pub fn open(folder: impl AsRef<Path>) -> Result<Checkpoints> {
        let folder = folder.as_ref().to_owned();
        create_folder(&folder)?;
        let path = folder.join(".lock");
        let lock = File::options().create(true).append(true).open(&path).map_err(Error::io(&path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::format(&folder, "is in use by another run; give each run a folder of its own"));
            }
            Err(TryLockError::Error(error)) => return Err(Error::io(&path)(error)),
        }
        folder::tidy(&folder)?;
        let writer = Writer::start(folder.clone())?;
        Ok(Checkpoints { reader: Reader { folder }, keep: Keep { last: 3, best: None }, writer, _lock: lock })
    }

    /// The checkpoints in a folder, to be read only: nothing is made or changed there, and a training may have it open.
    ///
    /// # Errors
    ///
    /// Fails if the folder is not there or cannot be read.
    pub fn read(folder: impl AsRef<Path>) -> Result<Reader> {
        let reader = Reader { folder: folder.as_ref().to_owned() };
        reader.list()?;
        Ok(reader)
    }

    /// Keeps the last `n` that were written, at least one; older ones are removed once a newer one is complete.
    ///
    /// A training that goes back, to an older checkpoint or to its start, writes newer ones than those of more steps that
    /// are there; these go in their turn.
    #[must_use]
    pub fn keep_last(mut self, n: usize) -> Checkpoints {
        self.keep.last = n.max(1);
        self
    }

    /// Keeps also the `n` best by a metric; a checkpoint without it, or with NaN, is none of them.
    #[must_use]
    pub fn keep_best(mut self, n: usize, metric: impl Into<String>, goal: Goal) -> Checkpoints {
        self.keep.best = Some(Best { n, metric: metric.into(), goal });
        self
    }

    /// Writes a checkpoint, while the training goes on; it waits if two others are not written yet.
    ///
    /// Until it is written it holds the tensors of the tree, which the next step then does not write over.
    ///
    /// # Errors
    ///
    /// Fails at once if a tensor is poisoned or being traced. The error of writing comes with a later call, or with
    /// [`wait`](Checkpoints::wait).
    #[track_caller]
    pub fn save<T: Tree>(&mut self, checkpoint: Checkpoint, tree: &T) -> Result<()> {
        let tensors = state::tensors_of(tree)?;
        self.writer.give(WriteJob { manifest: checkpoint.manifest, tensors, keep: self.keep.clone() })
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    ///
    /// Fails with the first error of writing since the last one was told.
    pub fn wait(&mut self) -> Result<()> {
        self.writer.wait()
    }

    /// The checkpoints that are there, in the order in which they were written: the oldest first.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be read.
    pub fn list(&self) -> Result<Vec<Saved>> {
        self.reader.list()
    }

    /// Reads the checkpoint that was written last, as [`Reader::latest`].
    ///
    /// # Errors
    ///
    /// As [`Reader::latest`].
    pub fn latest<T: Tree>(&self, like: &T) -> Result<Option<Restored<T>>> {
        self.reader.latest(like)
    }

    /// Reads the best checkpoint by the metric of [`keep_best`](Checkpoints::keep_best); nothing if none has it.
    ///
    /// # Errors
    ///
    /// Fails if no metric was said, or as [`Reader::best`].
    #[track_caller]
    pub fn best<T: Tree>(&self, like: &T) -> Result<Option<Restored<T>>> {
        match &self.keep.best {
            Some(best) => self.reader.best_by(best, like),
            None => Err(Error::argument("the best by which metric? `keep_best` says so")),
        }
    }

    /// Reads the checkpoint after `step` steps, as [`Reader::at`].
    ///
    /// # Errors
    ///
    /// As [`Reader::at`].
    pub fn at<T: Tree>(&self, step: u64, like: &T) -> Result<Restored<T>> {
        self.reader.at(step, like)
    }
}
