//! A log with one JSON object per step.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::record::{Event, Record, Sink};
use crate::{Error, Result};

/// A log with a [`Record`] per line.
///
/// Each line is given to the system as a whole at once, so that a run that is killed keeps the lines it wrote. A file
/// that is there already is added to. If its last line was cut off, as by a full disk, the next one starts on a line of
/// its own.
///
/// ```
/// use retape_train::monitor::{JsonLines, Monitor, read_json_lines};
///
/// # let path = std::env::temp_dir().join(format!("retape-doc-{}.jsonl", std::process::id()));
/// let mut monitor = Monitor::new("run").json_lines(&path)?;
/// monitor.step(1, 0, &[("loss", 0.5)]);
/// monitor.step(2, 0, &[("loss", 0.25)]);
/// let records = read_json_lines(&path)?;
/// assert_eq!(records[1].scalars, [("loss".to_owned(), 0.25)]);
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Debug)]
pub struct JsonLines {
    path: PathBuf,
    file: File,
}

impl JsonLines {
    /// Opens the file at `path`, or makes it and the folders it is to be in.
    ///
    /// # Errors
    ///
    /// Fails if the system refuses.
    pub fn open(path: impl AsRef<Path>) -> Result<JsonLines> {
        let path = path.as_ref().to_owned();
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(Error::io(folder))?;
        }
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(&path).map_err(Error::io(&path))?;
        if !ends_a_line(&mut file).map_err(Error::io(&path))? {
            file.write_all(b"\n").map_err(Error::io(&path))?;
        }
        Ok(JsonLines { path, file })
    }
}

fn ends_a_line(file: &mut File) -> std::io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(true);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

impl Sink for JsonLines {
    fn take(&mut self, event: &Event<'_>) -> Result<()> {
        let Event::Record(record) = event else { return Ok(()) };
        let mut line = serde_json::to_string(record).map_err(|error| Error::format(&self.path, error.to_string()))?;
        line.push('\n');
        self.file.write_all(line.as_bytes()).map_err(Error::io(&self.path))
    }
}

/// The records that a log of [`JsonLines`] has now; lines that are no record, such as one that was cut off, are left out.
///
/// # Errors
///
/// Fails if the file cannot be read.
pub fn read_json_lines(path: impl AsRef<Path>) -> Result<Vec<Record>> {
    let path = path.as_ref();
    let file = File::open(path).map_err(Error::io(path))?;
    // Up to where the file ends now: a run that writes faster than this reads would keep it here for ever.
    let len = file.metadata().map_err(Error::io(path))?.len();
    let mut records = vec![];
    for line in BufReader::new(file.take(len)).split(b'\n') {
        records.extend(serde_json::from_slice::<Record>(&line.map_err(Error::io(path))?).ok());
    }
    Ok(records)
}
