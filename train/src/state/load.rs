//! Reading a tree.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use retape::{Tensor, Tree, tree};

use super::format::{Reading, type_text};
use super::save::Rename;
use super::shards::Index;
use crate::error::{Error, Result};
use crate::files::parent;
use crate::problem::Problem;

/// Reads a tree of the structure of `like`, with its static values, from a file of [`save`](super::save), or from
/// several with an index; [`Load`] has the options.
///
/// Each tensor goes to the device of the one in `like`. For `model.safetensors` that is not there,
/// `model.safetensors.index.json` is read.
///
/// # Errors
///
/// Fails with all differences at once ([`Problem`]) if tensors are missing or extra, or of another shape or dtype; also
/// if a file cannot be read or is no whole file of safetensors.
///
/// ```
/// use retape::nn::Dense;
/// use retape_train::state;
///
/// # let path = std::env::temp_dir().join(format!("retape-doc-load-{}.safetensors", std::process::id()));
/// state::save(&Dense::new(1, 2, 3), &path)?;
/// let wider = state::load(&Dense::new(1, 2, 4), &path);
/// let message = wider.unwrap_err().to_string();
/// assert!(message.contains("`weight` is f32[2, 3] instead of f32[2, 4]"), "{message}");
/// assert!(message.contains("`bias` is f32[3] instead of f32[4]"), "{message}");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn load<T: Tree>(like: &T, path: impl AsRef<Path>) -> Result<T> {
    Ok(Load::new().read(like, path)?.tree)
}

/// Makes of a tensor of a file the one for the tree, by its name there.
type Convert<'f> = Box<dyn Fn(&str, Tensor) -> Tensor + 'f>;

/// How a tree is read.
///
/// A file of another framework, with other names and another order of axes:
///
/// ```
/// use std::collections::BTreeMap;
///
/// use retape::nn::Dense;
/// use retape::{Tensor, random};
/// use retape_train::state::{self, Load};
///
/// # let path = std::env::temp_dir().join(format!("retape-doc-foreign-{}.safetensors", std::process::id()));
/// // As it came from there: weights are [outputs, inputs].
/// let foreign = BTreeMap::from([
///     ("model.fc.weight".to_owned(), Tensor::ones([3, 2])),
///     ("model.fc.bias".to_owned(), Tensor::zeros([3])),
/// ]);
/// state::Save::new().names(|name| name.replace('"', "")).write(&foreign, &path)?;
///
/// let loaded = Load::new()
///     .names(|name| format!("model.fc.{name}"))
///     .convert(|_, x| if x.rank() == 2 { x.transpose() } else { x })
///     .read(&Dense::new(1, 2, 3), &path)?;
/// assert_eq!(loaded.tree.weight.shape(), [2, 3]);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct Load<'f> {
    names: Option<Rename<'f>>,
    convert: Option<Convert<'f>>,
    is_partial: bool,
    casts: bool,
}

/// A tree that was read.
#[derive(Clone, Debug)]
pub struct Loaded<T> {
    /// The tree.
    pub tree: T,
    /// The names in the tree of the tensors that the file does not have; they are those of the tree that was given.
    pub missing: Vec<String>,
    /// The names in the file of the tensors that the tree does not have.
    pub extra: Vec<String>,
    /// The texts of the file that say something of the whole.
    pub metadata: BTreeMap<String, String>,
}

impl<'f> Load<'f> {
    /// Everything has to be there, with the names of the tree.
    pub fn new() -> Load<'f> {
        Load::default()
    }

    /// Says which name a tensor has in the file, by its name in the tree.
    #[must_use]
    pub fn names(self, name: impl Fn(&str) -> String + 'f) -> Load<'f> {
        Load { names: Some(Box::new(name)), ..self }
    }

    /// Makes of each tensor of the file the one for the tree, by the name in the tree; shapes and dtypes are compared
    /// afterwards.
    #[must_use]
    pub fn convert(self, convert: impl Fn(&str, Tensor) -> Tensor + 'f) -> Load<'f> {
        Load { convert: Some(Box::new(convert)), ..self }
    }

    /// Leaves tensors as they are that the file does not have, and leaves out those that the tree does not have.
    ///
    /// Those that both have must agree in shape and dtype all the same.
    #[must_use]
    pub fn partial(self) -> Load<'f> {
        Load { is_partial: true, ..self }
    }

    /// Casts each tensor to the dtype in the tree, such as `f16` weights to `f32`.
    #[must_use]
    pub fn cast(self) -> Load<'f> {
        Load { casts: true, ..self }
    }

    /// Reads a tree of the structure of `like`.
    ///
    /// # Errors
    ///
    /// As [`load`]; also if nothing at all of the file has a name of the tree.
    pub fn read<T: Tree>(&self, like: &T, path: impl AsRef<Path>) -> Result<Loaded<T>> {
        let path = path.as_ref();
        let mut files = Files::open(path)?;
        let mut seen = HashSet::new();
        let (mut problems, mut missing, mut tensors) = (vec![], vec![], vec![]);
        for (name, old) in tree::named(like) {
            let in_file = self.names.as_ref().map_or_else(|| name.clone(), |names| names(&name));
            let wanted = type_text(old.dtype(), old.shape());
            if !seen.insert(in_file.clone()) {
                problems.push(Problem::Twice { name: in_file });
            } else if !files.has(&in_file) {
                problems.push(Problem::Missing { name: in_file, wanted });
                missing.push(name);
            } else {
                match self.tensor(&mut files, &name, &in_file, old)? {
                    Ok(tensor) => {
                        tensors.push(tensor);
                        continue;
                    }
                    Err(found) => problems.push(Problem::Type { name: in_file, wanted, found }),
                }
            }
            tensors.push(old.clone());
        }
        let extra: Vec<String> = files.names().into_iter().filter(|name| !seen.contains(name)).collect();
        if self.is_partial && (missing.len() < tensors.len() || tensors.is_empty()) {
            problems.retain(|problem| !matches!(problem, Problem::Missing { .. }));
        } else {
            let found = |name: &String| Problem::Extra { name: name.clone(), found: files.type_text(name) };
            problems.extend(extra.iter().map(found));
        }
        if !problems.is_empty() {
            return Err(Error::State { path: path.to_owned(), problems });
        }
        let mut tensors = tensors.into_iter();
        let tree = tree::try_map(like, |old| Ok::<_, Error>(tensors.next().unwrap_or_else(|| old.clone())))?;
        Ok(Loaded { tree, missing, extra, metadata: files.metadata() })
    }

    /// The tensor for the tree, or the type of one that does not fit.
    fn tensor(&self, files: &mut Files, name: &str, in_file: &str, old: &Tensor) -> Result<Result<Tensor, String>> {
        let Some(mut tensor) = files.tensor(in_file)? else { return Ok(Err(files.type_text(in_file))) };
        if let Some(convert) = &self.convert {
            tensor = convert(name, tensor);
        }
        if self.casts {
            tensor = tensor.cast(old.dtype());
        }
        if let Some(error) = tensor.error() {
            return Err(error.clone().into());
        }
        if (tensor.dtype(), tensor.shape()) != (old.dtype(), old.shape()) {
            return Ok(Err(type_text(tensor.dtype(), tensor.shape())));
        }
        let tensor = if old.is_traced() { tensor } else { tensor.to(old.device()) };
        tensor.error().cloned().map_or(Ok(Ok(tensor)), |error| Err(error.into()))
    }
}

/// The files of a state, each opened when it is needed.
struct Files {
    /// The file of each tensor.
    places: BTreeMap<String, String>,
    open: Vec<(String, Reading)>,
}

impl Files {
    fn open(path: &Path) -> Result<Files> {
        let index = Index::path_of(path);
        let is_index = Index::is_at(path);
        let folder = parent(path).to_owned();
        if is_index || (!path.exists() && index.exists()) {
            let index_path = if is_index { path } else { &index };
            return Files::of_index(Index::read(index_path)?, index_path, folder);
        }
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let reading = Reading::open(path)?;
        let places = reading.names().into_iter().map(|name| (name, file.clone())).collect();
        Ok(Files { places, open: vec![(file, reading)] })
    }

    /// Opens all files of an index, and compares their tensors with it.
    fn of_index(index: Index, path: &Path, folder: PathBuf) -> Result<Files> {
        let mut open = vec![];
        for file in index.files() {
            let reading = Reading::open(&folder.join(file))?;
            let there: BTreeSet<String> = reading.names().into_iter().collect();
            let named = index.weight_map.iter().filter(|(_, place)| *place == file);
            if let Some((name, _)) = named.clone().find(|(name, _)| !there.contains(*name)) {
                return Err(Error::format(path, format!("says that `{name}` is in {file}, where it is not")));
            }
            if let Some(name) = there.iter().find(|name| index.weight_map.get(*name).is_none_or(|place| place != file))
            {
                return Err(Error::format(path, format!("does not say that `{name}` is in {file}")));
            }
            open.push((file.to_owned(), reading));
        }
        Ok(Files { places: index.weight_map, open })
    }

    fn has(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    fn names(&self) -> Vec<String> {
        self.places.keys().cloned().collect()
    }

    fn reading(&self, name: &str) -> Option<&Reading> {
        let place = self.places.get(name)?;
        self.open.iter().find(|(file, _)| file == place).map(|(_, reading)| reading)
    }

    fn type_text(&self, name: &str) -> String {
        self.reading(name).map_or_else(String::new, |reading| reading.type_text(name))
    }

    fn tensor(&mut self, name: &str) -> Result<Option<Tensor>> {
        let Some(place) = self.places.get(name) else { return Ok(None) };
        let open = self.open.iter_mut().find(|(file, _)| file == place);
        open.map_or(Ok(None), |(_, reading)| reading.tensor(name))
    }

    fn metadata(&self) -> BTreeMap<String, String> {
        self.open.iter().flat_map(|(_, reading)| reading.metadata()).collect()
    }
}
