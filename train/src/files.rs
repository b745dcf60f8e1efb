//! Files and folders that are whole or not there, also after a crash.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use tempfile::NamedTempFile;

use crate::error::{Error, Result};

/// The folder that a path is in.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The path with more at the end of its last part.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Writes a file beside its place, flushes it to the disk, and only then gives it its name.
///
/// A crash at any moment leaves the file that was there before, or the new one. Besides it may leave a temporary file, which
/// is never read and is removed when a file is written to that folder next.
pub(crate) fn write_whole(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let folder = parent(path);
    remove_left_over(folder);
    let mut file = temporary_in(folder).map_err(Error::io(folder))?;
    let mut to = BufWriter::with_capacity(1 << 20, file.as_file_mut());
    write(&mut to)?;
    to.flush().map_err(Error::io(path))?;
    drop(to);
    file.as_file().sync_all().map_err(Error::io(path))?;
    file.persist(path).map_err(|error| Error::io(path)(error.error))?;
    sync_folder(folder)
}

/// Writes a value as JSON that people can read.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Error::format(path, error.to_string()))?;
    write_whole(path, |to| writeln!(to, "{text}").map_err(Error::io(path)))
}

/// The beginning and the end of the names of files that are being written.
const WRITING: [&str; 2] = [".retape-", ".tmp"];

/// A temporary file, locked as long as it is written, so that it can be told from that of a process which was killed.
fn temporary_in(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(WRITING[0]).suffix(WRITING[1]);
    // Those of any other new file, which the user's mask says.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    loop {
        let file = builder.tempfile_in(folder)?;
        // On a file system without locks nobody takes it for left over either.
        let _ = file.as_file().lock();
        // Before it was locked, another process may have done so.
        if file.path().exists() {
            return Ok(file);
        }
    }
}

/// Removes temporary files of processes that were killed while they wrote to the folder.
///
/// They only take up room, so that a failure to remove one is no error of the caller's.
fn remove_left_over(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let is_ours = name.to_str().is_some_and(|name| name.starts_with(WRITING[0]) && name.ends_with(WRITING[1]));
        // Locked until it is gone.
        if is_ours
            && let Ok(file) = File::options().append(true).open(&path)
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Makes a folder and those that it is in, and flushes their names to the disk.
pub(crate) fn create_folder(folder: &Path) -> Result<()> {
    let is_missing = |part: &&Path| !part.as_os_str().is_empty() && !part.exists();
    let missing: Vec<&Path> = folder.ancestors().take_while(is_missing).collect();
    fs::create_dir_all(folder).map_err(Error::io(folder))?;
    missing.into_iter().try_for_each(|part| sync_folder(parent(part)))
}

/// Flushes the names in a folder to the disk.
pub(crate) fn sync_folder(folder: &Path) -> Result<()> {
    // Elsewhere a folder cannot be opened as a file.
    if cfg!(unix) {
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(Error::io(folder))?;
    }
    Ok(())
}

/// Whether a text is the name of a file in a folder, and leads nowhere else.
pub(crate) fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', ':', '\0'])
}

/// Reads a file of JSON of at most `most` bytes.
pub(crate) fn read_json<T: serde::de::DeserializeOwned>(path: &Path, most: u64) -> Result<T> {
    let n_bytes = fs::metadata(path).map_err(Error::io(path))?.len();
    if n_bytes > most {
        return Err(Error::format(path, format!("{n_bytes} bytes are more than such a file has ({most})")));
    }
    let text = fs::read(path).map_err(Error::io(path))?;
    serde_json::from_slice(&text)
        .map_err(|error| Error::format(path, format!("is not the JSON that it has to be: {error}")))
}
