//! The files below a folder, class by class.
//!
//! Links are followed, and no folder is entered twice, so that links in a circle end in an error. Names are never
//! turned into text. Every file left out is listed.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The names that files of images end in, in small letters.
const EXTENSIONS: [&str; 3] = ["jpg", "jpeg", "png"];

/// A walk over folders.
#[derive(Default)]
pub(super) struct Scan {
    /// Folders entered, by their place in the file system, with the path by which they were reached.
    entered: HashMap<PathBuf, PathBuf>,
    /// Paths that are no images.
    pub(super) ignored: Vec<PathBuf>,
}

impl Scan {
    /// The subfolders of `root`, by name.
    pub(super) fn classes(&mut self, root: &Path) -> Result<Vec<OsString>> {
        if !fs::metadata(root).map_err(Error::io(root))?.is_dir() {
            return Err(Error::format(root, "is no folder"));
        }
        self.enter(root)?;
        let mut names = vec![];
        for (name, path, metadata) in entries(root)? {
            if metadata.is_dir() && !is_hidden(&name) { names.push(name) } else { self.ignored.push(path) }
        }
        Ok(names)
    }

    /// The images in a folder and the folders below it, by path.
    pub(super) fn images(&mut self, folder: &Path) -> Result<Vec<PathBuf>> {
        let (mut images, mut folders) = (vec![], vec![folder.to_owned()]);
        while let Some(folder) = folders.pop() {
            self.enter(&folder)?;
            for (name, path, metadata) in entries(&folder)? {
                match () {
                    () if is_hidden(&name) => self.ignored.push(path),
                    () if metadata.is_dir() => folders.push(path),
                    () if !is_image(&path) => self.ignored.push(path),
                    () if metadata.is_file() => images.push(path),
                    () => return Err(Error::format(path, "is neither a file nor a folder")),
                }
            }
        }
        images.sort();
        Ok(images)
    }

    fn enter(&mut self, folder: &Path) -> Result<()> {
        let place = folder.canonicalize().map_err(Error::io(folder))?;
        match self.entered.insert(place, folder.to_owned()) {
            None => Ok(()),
            Some(before) => {
                Err(Error::format(folder, format!("is the same folder as {}, by a link", before.display())))
            }
        }
    }
}

/// The entries of a folder, by name, with what links lead to.
fn entries(folder: &Path) -> Result<Vec<(OsString, PathBuf, Metadata)>> {
    let mut entries = vec![];
    for entry in fs::read_dir(folder).map_err(Error::io(folder))? {
        let entry = entry.map_err(Error::io(folder))?;
        let path = entry.path();
        let name = entry.file_name();
        // A hidden file is left out anyway, whether or not its link leads anywhere.
        let metadata = if is_hidden(&name) { entry.metadata() } else { fs::metadata(&path) };
        entries.push((name, path.clone(), metadata.map_err(Error::io(path))?));
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(entries)
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

fn is_image(path: &Path) -> bool {
    let extension = path.extension().map(OsStr::to_ascii_lowercase);
    extension.is_some_and(|extension| EXTENSIONS.iter().any(|known| extension == *known))
}
