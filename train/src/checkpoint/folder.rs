//! The folder that checkpoints are in: which there are, and which are kept.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::manifest::Manifest;
use crate::error::{Error, Result};
use crate::files::{parent, sync_folder};
use crate::progress::Goal;

/// The beginning of names of folders that are being written.
pub(super) const WRITING: &str = ".writing-";

/// The beginning of names of folders that are being removed.
const REMOVING: &str = ".removing-";

/// A checkpoint on the disk; later ones are greater.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Saved {
    /// How often the training had gone back before it, to an older checkpoint or to its start: from then on steps come
    /// again, and the newest checkpoint is not that of the most steps.
    pub number: u64,
    /// How many steps were done.
    pub step: u64,
    /// Its folder.
    pub path: PathBuf,
}

impl Saved {
    /// Reads what the checkpoint says of itself.
    ///
    /// # Errors
    ///
    /// Fails if the manifest cannot be read, or is of a newer format.
    pub fn manifest(&self) -> Result<Manifest> {
        Manifest::read(&self.path)
    }

    /// Whether it was removed after it was listed. One that cannot be asked for was not.
    pub(super) fn is_removed(&self) -> bool {
        matches!(self.path.try_exists(), Ok(false))
    }

    /// `step-0000000120`, or `step-0000000120-1`.
    fn parse(path: PathBuf) -> Option<Saved> {
        let (step, number) = {
            let name = path.file_name()?.to_str()?.strip_prefix("step-")?;
            let (step, number) = name.split_once('-').unwrap_or((name, "0"));
            let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            if !is_number(step) || !is_number(number) {
                return None;
            }
            (step.parse().ok()?, number.parse().ok()?)
        };
        Some(Saved { number, step, path })
    }

    /// The one to be written next, which comes after all that are there.
    pub(super) fn next(folder: &Path, step: u64) -> Result<Saved> {
        let newest = list(folder)?.pop();
        let number = newest.map_or(0, |newest| newest.number.saturating_add(u64::from(step <= newest.step)));
        let name = if number == 0 { format!("step-{step:010}") } else { format!("step-{step:010}-{number}") };
        Ok(Saved { number, step, path: folder.join(name) })
    }
}

/// The checkpoints in a folder, the oldest first.
pub(super) fn list(folder: &Path) -> Result<Vec<Saved>> {
    let mut found = vec![];
    for entry in fs::read_dir(folder).map_err(Error::io(folder))? {
        let entry = entry.map_err(Error::io(folder))?;
        // Asked of the entry: at its path there may be nothing any more, and a reader has to hear of that.
        let is_folder =
            entry.file_type().is_ok_and(|found| found.is_dir() || (found.is_symlink() && entry.path().is_dir()));
        found.extend(Saved::parse(entry.path()).filter(|_| is_folder));
    }
    found.sort();
    Ok(found)
}

/// Which checkpoints are kept.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Keep {
    pub(super) last: usize,
    pub(super) best: Option<Best>,
}

/// Keeps the checkpoints that are best by a metric.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Best {
    pub(super) n: usize,
    pub(super) metric: String,
    pub(super) goal: Goal,
}

impl Best {
    /// The checkpoints that have the metric, the best first, of equal ones the older.
    pub(super) fn ranked(&self, all: &[Saved]) -> Vec<(f64, Saved)> {
        let value = |saved: &Saved| saved.manifest().ok()?.metrics.get(&self.metric).copied();
        let with_value =
            |saved: &Saved| value(saved).filter(|value| !value.is_nan()).map(|value| (value, saved.clone()));
        let mut ranked: Vec<(f64, Saved)> = all.iter().filter_map(with_value).collect();
        ranked.sort_by(|(a, _), (b, _)| match self.goal {
            Goal::Lowest => a.total_cmp(b),
            Goal::Highest => b.total_cmp(a),
        });
        ranked
    }
}

impl Keep {
    /// Removes all but the last and the best.
    pub(super) fn apply(&self, folder: &Path) -> Result<()> {
        let all = list(folder)?;
        let mut kept: HashSet<PathBuf> = all.iter().rev().take(self.last).map(|saved| saved.path.clone()).collect();
        if let Some(best) = &self.best {
            kept.extend(best.ranked(&all).into_iter().take(best.n).map(|(_, saved)| saved.path));
            // A manifest that cannot be read now may be that of the best.
            let is_unknown = |saved: &&Saved| match saved.manifest() {
                Err(Error::Io { source, .. }) => source.kind() != io::ErrorKind::NotFound,
                Err(Error::Version { .. }) => true,
                _ => false,
            };
            kept.extend(all.iter().filter(is_unknown).map(|saved| saved.path.clone()));
        }
        all.iter().filter(|saved| !kept.contains(&saved.path)).try_for_each(|saved| remove(&saved.path))
    }
}

/// Removes a checkpoint: first its name, so that there is never one with half of its files.
fn remove(path: &Path) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let removing = path.with_file_name(format!("{REMOVING}{name}"));
    if removing.exists() {
        fs::remove_dir_all(&removing).map_err(Error::io(&removing))?;
    }
    fs::rename(path, &removing).map_err(Error::io(path))?;
    sync_folder(parent(path))?;
    fs::remove_dir_all(&removing).map_err(Error::io(&removing))
}

/// Removes what a process that ended in the middle has left.
pub(super) fn tidy(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(Error::io(folder))? {
        let path = entry.map_err(Error::io(folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(WRITING) || name.starts_with(REMOVING) {
            fs::remove_dir_all(&path).map_err(Error::io(&path))?;
        }
    }
    Ok(())
}
