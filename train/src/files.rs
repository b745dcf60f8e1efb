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
/// A crash at any moment leaves the file that was there before, or the new one.
pub(crate) fn write_whole(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let folder = parent(path);
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

/// A temporary file with the permissions of any other new file, which on Unix the user's mask says.
#[cfg(unix)]
fn temporary_in(folder: &Path) -> io::Result<NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;
    tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o666)).tempfile_in(folder)
}

#[cfg(not(unix))]
fn temporary_in(folder: &Path) -> io::Result<NamedTempFile> {
    NamedTempFile::new_in(folder)
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
