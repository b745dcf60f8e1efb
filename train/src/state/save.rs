//! Writing a tree.

use std::collections::{BTreeMap, HashSet};
use std::panic::Location;
use std::path::Path;

use blake3::Hasher;
use retape::{Tensor, Tree, tree};

use super::format;
use super::shards::{Index, divide};
use crate::error::{Error, Result};
use crate::files::{parent, sync_folder, write_json};
use crate::problem::Problem;

/// Writes the tensors of a tree as one file of safetensors; [`Save`] has the options.
///
/// The file is written beside its place, flushed to the disk and renamed: a crash leaves the old file or the new one. Its
/// name until then is `.retape-` and more; such a file that a crash leaves goes when the folder is written to next.
/// Static values are no part of it; they come from the tree that [`load`](super::load) is given.
///
/// # Errors
///
/// Fails if a tensor is poisoned or being traced, the name ends in `.json` as that of an index, or the file cannot be
/// written.
///
/// ```
/// use retape::nn::Dense;
/// use retape_train::state;
///
/// # let path = std::env::temp_dir().join(format!("retape-doc-save-{}.safetensors", std::process::id()));
/// state::save(&Dense::new(1, 2, 3), &path)?;
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn save<T: Tree>(tree: &T, path: impl AsRef<Path>) -> Result<()> {
    Save::new().write(tree, path)
}

/// Makes of a name in a tree the one in a file.
pub(super) type Rename<'f> = Box<dyn Fn(&str) -> String + 'f>;

/// How a tree is written.
///
/// ```
/// use retape::nn::Dense;
/// use retape_train::state::{self, Save};
///
/// # let folder = std::env::temp_dir().join(format!("retape-doc-shards-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("model.safetensors");
/// let layers = vec![Dense::new(1, 64, 64), Dense::new(2, 64, 64)];
/// Save::new().metadata("author", "me").shard_bytes(20_000).write(&layers, &path)?;
/// assert!(!path.exists(), "two shards and an index are there in its place");
/// let again = state::load(&layers, &path)?;
/// # assert!(retape::tree::same_bits(&again, &layers)?);
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct Save<'f> {
    names: Option<Rename<'f>>,
    metadata: BTreeMap<String, String>,
    shard_bytes: Option<u64>,
}

impl<'f> Save<'f> {
    /// One file, with the names of the tree.
    pub fn new() -> Save<'f> {
        Save::default()
    }

    /// Gives each tensor the name in the file that `name` makes of its name in the tree.
    #[must_use]
    pub fn names(self, name: impl Fn(&str) -> String + 'f) -> Save<'f> {
        Save { names: Some(Box::new(name)), ..self }
    }

    /// Adds a text that says something of the whole file.
    #[must_use]
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Save<'f> {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// Divides a state of more than `n` bytes into several files with an index.
    ///
    /// For `model.safetensors` they are called `model-<hash>-00001-of-00003.safetensors` and so on, and the index
    /// `model.safetensors.index.json`. The hash is that of the contents, so that no file of an earlier state is written
    /// over before the index names the new ones.
    #[must_use]
    pub fn shard_bytes(self, n: u64) -> Save<'f> {
        Save { shard_bytes: Some(n), ..self }
    }

    /// Writes a tree in the place of the state that is there, if there is one.
    ///
    /// # Errors
    ///
    /// As [`save`]; also if two tensors get the same name in the file.
    #[track_caller]
    pub fn write<T: Tree>(&self, tree: &T, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if Index::is_at(path) {
            let message = "is read as the index of several files; let the name end in .safetensors";
            return Err(Error::argument(format!("{}: a name in .json {message}", path.display())));
        }
        self.write_tensors(&tensors_of(tree)?, path).map(|_| ())
    }

    /// Writes tensors with their names in the tree; gives the hash and length of the file if it is one.
    pub(crate) fn write_tensors(&self, tensors: &[(String, Tensor)], path: &Path) -> Result<(String, u64)> {
        let named: Vec<(String, Tensor)> = match &self.names {
            Some(names) => tensors.iter().map(|(name, tensor)| (names(name), tensor.clone())).collect(),
            None => tensors.to_vec(),
        };
        let mut seen = HashSet::new();
        let twice = named.iter().filter(|(name, _)| !seen.insert(name));
        let problems: Vec<Problem> = twice.map(|(name, _)| Problem::Twice { name: name.clone() }).collect();
        if !problems.is_empty() {
            return Err(Error::State { path: path.to_owned(), problems });
        }
        let index_path = Index::path_of(path);
        let before = if index_path.exists() { Index::read(&index_path).unwrap_or_default() } else { Index::default() };
        let parts = divide(&named, self.shard_bytes.unwrap_or(u64::MAX));
        if let [part] = parts[..] {
            let written = format::write(path, part, &self.metadata)?;
            // The file comes before an index when both are there; that of an earlier state has no use any more.
            let _ = std::fs::remove_file(&index_path);
            Index::default().remove_others(&before, path);
            return Ok(written);
        }
        let index = self.write_shards(&parts, path)?;
        write_json(&index_path, &index)?;
        if path.exists() {
            std::fs::remove_file(path).map_err(Error::io(path))?;
            // Otherwise a crash could bring it back, and it comes before the index.
            sync_folder(parent(path))?;
        }
        index.remove_others(&before, path);
        Ok(Default::default())
    }

    fn write_shards(&self, parts: &[&[(String, Tensor)]], path: &Path) -> Result<Index> {
        let mut hasher = Hasher::new();
        let mut n_bytes = 0;
        for (name, tensor) in parts.iter().copied().flatten() {
            let bytes = tensor.to_le_bytes()?;
            hasher.update(format!("{name} {}{:?}", tensor.dtype(), tensor.shape()).as_bytes()).update(&bytes);
            n_bytes += bytes.len() as u64;
        }
        let hash = &hasher.finalize().to_hex()[..16];
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let mut index = Index::default();
        index.metadata.insert("total_size".to_owned(), n_bytes.into());
        for (number, part) in parts.iter().enumerate() {
            let file = format!("{stem}-{hash}-{:05}-of-{:05}.safetensors", number + 1, parts.len());
            format::write(&parent(path).join(&file), part, &self.metadata)?;
            index.weight_map.extend(part.iter().map(|(name, _)| (name.clone(), file.clone())));
        }
        Ok(index)
    }
}

/// The tensors of a tree with their names, all of which have elements.
#[track_caller]
pub(crate) fn tensors_of<T: Tree>(tree: &T) -> Result<Vec<(String, Tensor)>> {
    let at = Location::caller();
    let whole = |(name, tensor): (String, &Tensor)| match tensor.error() {
        Some(error) => Err(error.clone().into()),
        None if tensor.is_traced() => {
            Err(Error::argument_at(format!("`{name}` is being traced and has no elements to write"), Some(at)))
        }
        None => Ok((name, tensor.clone())),
    };
    tree::named(tree).into_iter().map(whole).collect()
}
