//! States on disk, checkpoints, the loop and its parts, sweeps and devices of the training kit, from outside.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on fails; a child talks to its parent"
)]

mod caller;
mod checkpoint;
mod example;
mod execution;
mod frozen;
mod guide;
mod hostile;
mod layers;
mod optimise;
mod resume;
mod state;
mod steps;
mod sweep;

use std::path::{Path, PathBuf};

/// A folder of a test's own, empty at first and gone at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("retape-train-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }

    /// The names of what is in it, in order.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
