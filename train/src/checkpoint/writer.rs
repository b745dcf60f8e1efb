//! A thread that writes checkpoints while the training goes on.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use retape::Tensor;

use super::folder::{Keep, Saved, WRITING};
use super::manifest::{FileInfo, MANIFEST, Manifest};
use crate::error::{Error, Result};
use crate::files::{sync_folder, write_json};
use crate::guarded::guarded;
use crate::state::Save;

/// The name of the file with the tensors.
pub(super) const STATE: &str = "state.safetensors";

/// A checkpoint to be written.
pub(super) struct WriteJob {
    pub(super) manifest: Manifest,
    pub(super) tensors: Vec<(String, Tensor)>,
    pub(super) keep: Keep,
}

/// The thread, and how to talk to it.
pub(super) struct Writer {
    jobs: Option<SyncSender<WriteJob>>,
    results: Receiver<Result<()>>,
    /// The number of jobs whose results have not been taken.
    n_open: usize,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(folder: PathBuf) -> Result<Writer> {
        // A job waits while another is written, and no more: each holds the tensors of a step.
        let (jobs, to_do) = sync_channel::<WriteJob>(1);
        let (done, results) = sync_channel(usize::from(u16::MAX));
        let work = move || {
            while let Ok(job) = to_do.recv() {
                let step = job.manifest.position.step;
                let what = || format!("writing the checkpoint of step {step}");
                if done.send(guarded(what, || write(&folder, job))).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("checkpoints".to_owned()).spawn(work);
        let thread = thread.map_err(|error| Error::custom(format!("no thread to write checkpoints: {error}")))?;
        Ok(Writer { jobs: Some(jobs), results, n_open: 0, thread: Some(thread) })
    }

    /// Hands over a job; gives the error of an earlier one, after which this one is handed over all the same.
    pub(super) fn give(&mut self, job: WriteJob) -> Result<()> {
        let mut outcome = Ok(());
        // Before the job is given, so that its own result always comes with a later call.
        while let Ok(result) = self.results.try_recv() {
            self.n_open -= 1;
            outcome = outcome.and(result);
        }
        let given = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        self.n_open += usize::from(given);
        let ended = || Err(Error::custom("the thread that writes checkpoints has ended"));
        outcome.and_then(|()| if given { Ok(()) } else { ended() })
    }

    /// Waits for all jobs; gives the first error.
    pub(super) fn wait(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        while self.n_open > 0 {
            let ended = || Err(Error::custom("the thread that writes checkpoints has ended"));
            match self.results.recv() {
                Ok(result) => {
                    self.n_open -= 1;
                    outcome = outcome.and(result);
                }
                Err(_) => {
                    self.n_open = 0;
                    outcome = outcome.and(ended());
                }
            }
        }
        outcome
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Without a sender the thread ends, after what was given to it.
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn write(folder: &Path, WriteJob { mut manifest, tensors, keep }: WriteJob) -> Result<()> {
    let place = Saved::next(folder, manifest.position.step)?;
    let name = place.path.file_name().unwrap_or_default().to_string_lossy();
    let writing = folder.join(format!("{WRITING}{name}"));
    let written = (|| {
        fs::create_dir(&writing).map_err(Error::io(&writing))?;
        let (blake3, bytes) = Save::new().write_tensors(&tensors, &writing.join(STATE))?;
        manifest.files = BTreeMap::from([(STATE.to_owned(), FileInfo { bytes, blake3 })]);
        write_json(&writing.join(MANIFEST), &manifest)?;
        sync_folder(&writing)?;
        fs::rename(&writing, &place.path).map_err(Error::io(&place.path))?;
        sync_folder(folder)
    })();
    if written.is_err() {
        // As on a full disk; room is wanted, and a failure to make it is less than the error at hand.
        let _ = fs::remove_dir_all(&writing);
        return written;
    }
    keep.apply(folder)
}
