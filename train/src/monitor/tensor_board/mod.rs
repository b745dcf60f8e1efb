//! Event files for TensorBoard.

mod frame;
mod proto;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{io, process};

use prost::Message;

use self::proto::{SummaryMessage, ValueMessage, What};
use super::record::{CacheReport, Event, Phase, Record, Sink, now};
use crate::{Error, Result};

/// A folder that TensorBoard reads: `tensorboard --logdir FOLDER`.
///
/// Training and validation are two runs, in folders `training` and `validation`, so that scalars of one name are curves
/// in one chart. Info fields are texts of the run `training`, and caches scalars named `cache/NAME/hit_rate` and
/// `cache/NAME/misses`. TensorBoard keeps scalars as `f32`. A file is never added to: a run that goes on writes new ones.
///
/// ```
/// use retape_train::monitor::Monitor;
///
/// # let folder = std::env::temp_dir().join(format!("retape-doc-board-{}", std::process::id()));
/// let mut monitor = Monitor::new("run").tensor_board(&folder)?;
/// monitor.step(1, 0, &[("loss", 0.5)]);
/// monitor.validation(1, 0, &[("loss", 0.75)]);
/// assert!(folder.join("training").is_dir() && folder.join("validation").is_dir());
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Debug)]
pub struct TensorBoard {
    folder: PathBuf,
    training: Option<EventFile>,
    validation: Option<EventFile>,
}

impl TensorBoard {
    /// Makes the folder if it is not there. Files are made when there is something to write.
    ///
    /// # Errors
    ///
    /// Fails if the system refuses.
    pub fn open(folder: impl AsRef<Path>) -> Result<TensorBoard> {
        let folder = folder.as_ref().to_owned();
        fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        Ok(TensorBoard { folder, training: None, validation: None })
    }

    fn write(&mut self, phase: Phase, time: f64, step: u64, values: Vec<ValueMessage>) -> Result<()> {
        let file = match phase {
            Phase::Training => &mut self.training,
            Phase::Validation => &mut self.validation,
        };
        if file.is_none() {
            *file = Some(EventFile::create(&self.folder.join(phase.name()))?);
        }
        let step = i64::try_from(step).unwrap_or(i64::MAX);
        let event =
            proto::EventMessage { wall_time: time, step, what: Some(What::Summary(SummaryMessage { value: values })) };
        file.as_mut().map_or(Ok(()), |file| file.write(&event))
    }

    fn record(&mut self, record: &Record) -> Result<()> {
        let values = record.scalars.iter().map(|(name, value)| ValueMessage::scalar(name, *value)).collect();
        self.write(record.phase, record.time, record.step, values)
    }

    fn cache(&mut self, cache: &CacheReport) -> Result<()> {
        let name = |what: &str| format!("cache/{}/{what}", cache.name);
        let values = vec![
            ValueMessage::scalar(&name("hit_rate"), cache.hit_rate),
            ValueMessage::scalar(&name("misses"), cache.misses as f64),
        ];
        self.write(Phase::Training, now(), cache.step, values)
    }
}

impl Sink for TensorBoard {
    fn take(&mut self, event: &Event<'_>) -> Result<()> {
        match event {
            Event::Record(record) => self.record(record),
            Event::Cache(cache) => self.cache(cache),
            Event::Info { name, value } => self.write(Phase::Training, now(), 0, vec![ValueMessage::text(name, value)]),
            Event::Note(_) | Event::Steps(_) | Event::Finish => Ok(()),
        }
    }
}

/// One file of framed events.
#[derive(Debug)]
struct EventFile {
    path: PathBuf,
    file: File,
}

impl EventFile {
    /// A new file in a folder, with the event that such files begin with.
    fn create(folder: &Path) -> Result<EventFile> {
        // The files of a process that starts several in one second.
        static N_FILES: AtomicU64 = AtomicU64::new(0);
        fs::create_dir_all(folder).map_err(Error::io(folder))?;
        let (path, file) = loop {
            let (seconds, n) = (now() as u64, N_FILES.fetch_add(1, Ordering::Relaxed));
            // TensorBoard reads the files of a run in the order of their names.
            let path = folder.join(format!("events.out.tfevents.{seconds:010}.retape.{}.{n:06}", process::id()));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => break (path, file),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io(path)(error)),
            }
        };
        let mut created = EventFile { path, file };
        let version = What::FileVersion("brain.Event:2".to_owned());
        created.write(&proto::EventMessage { wall_time: now(), step: 0, what: Some(version) })?;
        Ok(created)
    }

    fn write(&mut self, event: &proto::EventMessage) -> Result<()> {
        self.file.write_all(&frame::framed(&event.encode_to_vec())).map_err(Error::io(&self.path))
    }
}
