//! A state in several files with an index, as model hubs have them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use retape::Tensor;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::files::{is_plain_name, parent, read_json, with_suffix};

/// The largest index that is read, in bytes.
const MAX_INDEX: u64 = 100_000_000;

/// Says which tensor is in which file.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Index {
    #[serde(default)]
    pub(super) metadata: BTreeMap<String, serde_json::Value>,
    /// The file of each tensor, by name.
    pub(super) weight_map: BTreeMap<String, String>,
}

impl Index {
    /// The index that belongs to `model.safetensors`.
    pub(super) fn path_of(path: &Path) -> PathBuf {
        with_suffix(path, ".index.json")
    }

    /// Whether a path is read as that of an index.
    pub(super) fn is_at(path: &Path) -> bool {
        path.extension().is_some_and(|extension| extension == "json")
    }

    /// Reads an index whose files all lie beside it.
    pub(super) fn read(path: &Path) -> Result<Index> {
        let index: Index = read_json(path, MAX_INDEX)?;
        if let Some(file) = index.files().into_iter().find(|file| !is_plain_name(file)) {
            return Err(Error::format(path, format!("names the file {file:?}, which is not beside it")));
        }
        Ok(index)
    }

    pub(super) fn files(&self) -> BTreeSet<&str> {
        self.weight_map.values().map(String::as_str).collect()
    }

    /// Removes shards of an earlier state in the same place; they are no part of anything any more.
    ///
    /// An index may name any file beside it, so that only those go that are called like shards of this state.
    pub(super) fn remove_others(&self, before: &Index, path: &Path) {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let is_shard = |file: &str| {
            let rest = file.strip_prefix(&*stem).and_then(|rest| rest.strip_suffix(".safetensors"));
            rest.is_some_and(|rest| rest.starts_with('-'))
        };
        for file in before.files().difference(&self.files()).filter(|file| is_shard(file)) {
            // It only takes up room if it stays.
            let _ = std::fs::remove_file(parent(path).join(file));
        }
    }
}

/// Divides tensors, in order, so that no part has more than `most` bytes unless one tensor alone has.
pub(super) fn divide(tensors: &[(String, Tensor)], most: u64) -> Vec<&[(String, Tensor)]> {
    let size = |(_, tensor): &(String, Tensor)| (tensor.n_elements() * tensor.dtype().size()) as u64;
    let mut parts = vec![];
    let (mut start, mut n_bytes) = (0, 0);
    for (index, tensor) in tensors.iter().enumerate() {
        if index > start && n_bytes + size(tensor) > most {
            parts.push(&tensors[start..index]);
            (start, n_bytes) = (index, 0);
        }
        n_bytes += size(tensor);
    }
    parts.push(&tensors[start..]);
    parts
}
