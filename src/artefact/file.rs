//! Files that are replaced as a whole.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::bytes::malformed;
use crate::error::ArtefactError;

/// Puts `bytes` where `path` says: a reader of the file sees the old one or the new one.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), ArtefactError> {
    let failed = |e: io::Error| ArtefactError::io(&e, Some(path));
    let beside = beside(path).map_err(failed)?;
    let written = write(&beside, bytes).and_then(|()| fs::rename(&beside, path));
    written.map_err(|e| {
        // The remains of a failed write are of no use; the error of the write is the one to report, whether they can be
        // removed or not.
        let _ = fs::remove_file(&beside);
        failed(e)
    })
}

/// A name in the same folder that no other save has.
fn beside(path: &Path) -> io::Result<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}-{}.part", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    Ok(path.with_file_name(beside))
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(bytes)?;
    // On the disk before it takes the name, so that a crash leaves no half of a file under it.
    file.sync_all()
}

/// A file for reading.
pub(crate) fn open(path: &Path) -> Result<BufReader<File>, ArtefactError> {
    File::open(path).map(BufReader::new).map_err(|e| ArtefactError::io(&e, Some(path)))
}

/// Refuses a file that goes on after what was read.
pub(crate) fn check_end(mut file: BufReader<File>) -> Result<(), ArtefactError> {
    match file.fill_buf() {
        Ok([]) => Ok(()),
        Ok(_) => Err(malformed("the file goes on after the artefact")),
        Err(e) => Err(ArtefactError::io(&e, None)),
    }
}
