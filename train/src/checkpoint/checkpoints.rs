//! The checkpoints of a run.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use retape::Tree;

use super::folder::{self, Best, Keep, Saved};
use super::manifest::{Checkpoint, Manifest};
use super::writer::{Job, STATE, Writer};
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
    folder: PathBuf,
    keep: Keep,
    writer: Writer,
    /// Held as long as this is there: two runs in one folder would remove each other's checkpoints.
    _lock: File,
}

/// A training as a checkpoint has it.
#[derive(Debug)]
pub struct Restored<T> {
    /// The tensors, with the static values of the tree that was given.
    pub tree: T,
    /// Everything else: the position, the metrics, the values.
    pub manifest: Manifest,
    /// The folder.
    pub path: PathBuf,
    /// Why newer checkpoints were passed over: files that were damaged after they were written.
    pub passed_over: Vec<Error>,
}

impl Checkpoints {
    /// Opens a folder of checkpoints, and makes it if it is not there.
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
        Ok(Checkpoints { folder, keep: Keep { last: 3, best: None }, writer, _lock: lock })
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
        self.writer.give(Job { manifest: checkpoint.manifest, tensors, keep: self.keep.clone() })
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
        folder::list(&self.folder)
    }

    /// Reads the checkpoint that was written last, of those that are whole, into a tree of the structure of `like`; nothing
    /// if there is none.
    ///
    /// Files that were damaged are passed over, and said to be ([`Restored::passed_over`]): since a training resumes
    /// exactly, one that goes on from an older checkpoint comes to the same end.
    ///
    /// # Errors
    ///
    /// Fails if the newest whole one does not fit the tree or is of a newer format, or if all are damaged.
    pub fn latest<T: Tree>(&self, like: &T) -> Result<Option<Restored<T>>> {
        let mut passed_over = vec![];
        for saved in self.list()?.into_iter().rev() {
            match restore(&saved, like) {
                Ok(restored) => return Ok(Some(Restored { passed_over, ..restored })),
                Err(error @ (Error::Io { .. } | Error::Format { .. })) => passed_over.push(error),
                Err(other) => return Err(other),
            }
        }
        passed_over.into_iter().next().map_or(Ok(None), Err)
    }

    /// Reads the best checkpoint by the metric of [`keep_best`](Checkpoints::keep_best); nothing if none has it.
    ///
    /// # Errors
    ///
    /// Fails if no metric was said, or the checkpoint is damaged, does not fit the tree or is of a newer format.
    #[track_caller]
    pub fn best<T: Tree>(&self, like: &T) -> Result<Option<Restored<T>>> {
        let Some(best) = &self.keep.best else {
            return Err(Error::argument("the best by which metric? `keep_best` says so"));
        };
        let ranked = best.ranked(&self.list()?);
        ranked.first().map(|(_, saved)| restore(saved, like)).transpose()
    }

    /// Reads the checkpoint after `step` steps; the newest one, if there are several.
    ///
    /// # Errors
    ///
    /// Fails if there is none, or it is damaged, does not fit the tree or is of a newer format.
    pub fn at<T: Tree>(&self, step: u64, like: &T) -> Result<Restored<T>> {
        let all = self.list()?;
        match all.iter().rev().find(|saved| saved.step == step) {
            Some(saved) => restore(saved, like),
            None => {
                let steps: Vec<String> = all.iter().map(|saved| saved.step.to_string()).collect();
                let there = if steps.is_empty() { "none".to_owned() } else { steps.join(", ") };
                Err(Error::format(&self.folder, format!("has no checkpoint of step {step}; there are {there}")))
            }
        }
    }
}

fn restore<T: Tree>(saved: &Saved, like: &T) -> Result<Restored<T>> {
    let manifest = saved.manifest()?;
    if manifest.position.step != saved.step {
        let what = format!("says it is of step {}, not {}", manifest.position.step, saved.step);
        return Err(Error::format(&saved.path, what));
    }
    manifest.verify(&saved.path)?;
    if !manifest.files.contains_key(STATE) {
        return Err(Error::format(&saved.path, format!("says nothing of {STATE}")));
    }
    let tree = state::load(like, saved.path.join(STATE))?;
    Ok(Restored { tree, manifest, path: saved.path.clone(), passed_over: vec![] })
}
