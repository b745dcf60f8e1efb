//! Reading checkpoints, also while a training writes others beside them.

use std::path::PathBuf;

use retape::Tree;

#[cfg(doc)]
use super::Checkpoints;
use super::folder::{self, Best, Saved};
use super::manifest::Manifest;
use super::writer::STATE;
use crate::error::{Error, Result};
use crate::progress::Goal;
use crate::state;

/// The checkpoints in a folder, to be read; made by [`Checkpoints::read`].
///
/// ```
/// use retape::Tensor;
/// use retape_train::checkpoint::{Checkpoint, Checkpoints};
/// use retape_train::progress::{Goal, Position};
///
/// # let folder = std::env::temp_dir().join(format!("retape-doc-reader-{}", std::process::id()));
/// let weights = Tensor::ones([3]);
/// let mut training = Checkpoints::open(&folder)?;
/// training.save(Checkpoint::at(Position { step: 7, ..Position::default() }).metric("loss", 0.5), &weights)?;
/// training.wait()?;
///
/// // Elsewhere, while the training goes on.
/// let saved = Checkpoints::read(&folder)?;
/// let best = saved.best("loss", Goal::Lowest, &weights)?.expect("one has the metric");
/// assert_eq!((saved.list()?.len(), best.manifest.position.step), (1, 7));
/// # drop(training);
/// # std::fs::remove_dir_all(&folder).map_err(retape_train::Error::custom)?;
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Reader {
    pub(super) folder: PathBuf,
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

impl Reader {
    /// The checkpoints that are there, in the order in which they were written: the oldest first.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be read.
    pub fn list(&self) -> Result<Vec<Saved>> {
        let mut before = folder::list(&self.folder)?;
        loop {
            // A system lists a folder entry by entry: it may pass the place of a new one before that is there, and come to
            // the old one when that is gone.
            let now = folder::list(&self.folder)?;
            if now == before {
                return Ok(now);
            }
            before = now;
        }
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
        self.settled(|all| {
            let mut passed_over = vec![];
            for saved in all.iter().rev() {
                match restore(saved, like) {
                    Ok(restored) => return Ok(Some(Restored { passed_over, ..restored })),
                    Err(error @ (Error::Io { .. } | Error::Format { .. })) if !saved.is_removed() => {
                        passed_over.push(error);
                    }
                    Err(other) => return Err(other),
                }
            }
            passed_over.into_iter().next().map_or(Ok(None), Err)
        })
    }

    /// Reads the best checkpoint by a metric; nothing if none has it.
    ///
    /// # Errors
    ///
    /// Fails if the checkpoint is damaged, does not fit the tree or is of a newer format.
    pub fn best<T: Tree>(&self, metric: impl Into<String>, goal: Goal, like: &T) -> Result<Option<Restored<T>>> {
        self.best_by(&Best { n: 1, metric: metric.into(), goal }, like)
    }

    pub(super) fn best_by<T: Tree>(&self, best: &Best, like: &T) -> Result<Option<Restored<T>>> {
        self.settled(|all| {
            let ranked = best.ranked(all);
            if let Some(removed) = all.iter().find(|saved| saved.is_removed()) {
                // It may have been the best, and the one that is better now is not among these.
                return Err(Error::format(&removed.path, "was removed while it was read"));
            }
            ranked.first().map(|(_, saved)| restore(saved, like)).transpose()
        })
    }

    /// Reads the checkpoint after `step` steps; the newest one, if there are several.
    ///
    /// # Errors
    ///
    /// Fails if there is none, or it is damaged, does not fit the tree or is of a newer format.
    pub fn at<T: Tree>(&self, step: u64, like: &T) -> Result<Restored<T>> {
        self.settled(|all| match all.iter().rev().find(|saved| saved.step == step) {
            Some(saved) => restore(saved, like),
            None => {
                let steps: Vec<String> = all.iter().map(|saved| saved.step.to_string()).collect();
                let there = if steps.is_empty() { "none".to_owned() } else { steps.join(", ") };
                Err(Error::format(&self.folder, format!("has no checkpoint of step {step}; there are {there}")))
            }
        })
    }

    /// Reads from the list of checkpoints; once more, from a new list, if it failed and a training has removed one of them.
    fn settled<R>(&self, read: impl Fn(&[Saved]) -> Result<R>) -> Result<R> {
        loop {
            let all = self.list()?;
            let outcome = read(&all);
            if outcome.is_ok() || !all.iter().any(Saved::is_removed) {
                return outcome;
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
