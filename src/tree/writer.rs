//! Flattening a tree.

use super::{StaticLeaf, TensorList, Tree, Words};
use crate::error::Result;
use crate::tensor::Tensor;

/// The word of a poisoned tensor; no dtype has this number.
pub(super) const POISONED: u64 = 0xff;

/// A step from a tree to a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// A field of a struct or variant.
    Named(&'static str),
    /// An element of a tuple, array or vector.
    Index(usize),
    /// An entry of a map.
    Key(String),
}

/// Collects the words and tensors of trees.
#[derive(Debug, Default)]
pub struct Writer<'t> {
    pub(crate) words: Words,
    pub(crate) tensors: TensorList<'t>,
    /// Where the leaves are; noted only if someone is to read of them.
    pub(crate) paths: Option<Paths>,
}

/// The leaves with their paths.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    current: Vec<Field>,
    /// The leaves in order.
    pub(crate) leaves: Vec<Leaf>,
}

/// The kind of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeafKind {
    Tensor,
    /// A static value of this Rust type, as far as that is known.
    Static {
        type_name: &'static str,
    },
    /// A length, the variant of an enum, or whether there is something.
    Structure,
}

/// A leaf: its path, its kind and its text.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) path: Vec<Field>,
    pub(crate) kind: LeafKind,
    /// The value or the structure for people; empty for a tensor.
    pub(crate) text: String,
}

/// A path from a root as text, such as `argument 0.weights[2]`, or `weights[2]` from a root without a name.
pub(crate) fn path_text(root: &str, path: &[Field]) -> String {
    let mut text = root.to_owned();
    for field in path {
        match field {
            Field::Named(name) if text.is_empty() => text.push_str(name),
            Field::Named(name) => text.extend([".", name]),
            Field::Index(index) => text.push_str(&format!("[{index}]")),
            Field::Key(key) => text.push_str(&format!("[{key:?}]")),
        }
    }
    text
}

/// A path as the name of what it leads to, such as `blocks.3.weight`; the tree itself is `value`.
fn name(path: &[Field]) -> String {
    let step = |field: &Field| match field {
        Field::Named(name) => (*name).to_owned(),
        Field::Index(index) => index.to_string(),
        Field::Key(key) if key.is_empty() || key.contains(['.', '"']) => format!("\"{key}\""),
        Field::Key(key) => key.clone(),
    };
    if path.is_empty() { "value".to_owned() } else { path.iter().map(step).collect::<Vec<_>>().join(".") }
}

impl<'t> Writer<'t> {
    /// The words and tensors of a tree.
    pub(crate) fn of<T: Tree>(tree: &'t T) -> Writer<'t> {
        let mut leaves = Writer::default();
        tree.write(&mut leaves);
        leaves
    }

    /// The words and tensors of a tree, with the path of each leaf.
    pub(crate) fn of_named<T: Tree>(tree: &'t T) -> Writer<'t> {
        let mut leaves = Writer::with_paths();
        tree.write(&mut leaves);
        leaves
    }

    /// A writer that also notes the path of each leaf.
    pub(crate) fn with_paths() -> Writer<'t> {
        Writer { paths: Some(Paths::default()), ..Writer::default() }
    }

    /// The path of each tensor from a root, as text such as `weights[2]`; empty if paths were not noted.
    pub(crate) fn tensor_paths(&self, root: &str) -> Vec<String> {
        self.tensor_texts(|path| path_text(root, path))
    }

    /// The name of each tensor, such as `weights.2`; empty if paths were not noted.
    pub(crate) fn tensor_names(&self) -> Vec<String> {
        self.tensor_texts(name)
    }

    fn tensor_texts(&self, text: impl Fn(&[Field]) -> String) -> Vec<String> {
        let leaves = self.paths.iter().flat_map(|paths| &paths.leaves);
        leaves.filter(|leaf| leaf.kind == LeafKind::Tensor).map(|leaf| text(&leaf.path)).collect()
    }

    /// Writes a word of structure or of a static value.
    #[inline]
    pub fn word(&mut self, word: u64) {
        self.words.push(word);
    }

    /// Writes a static leaf of text.
    pub fn text(&mut self, text: &str) {
        self.value(text.len() as u64, "String", || format!("{text:?}"));
        for chunk in text.as_bytes().chunks(8) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(bytes));
        }
    }

    /// Writes a tensor leaf.
    #[inline]
    pub fn tensor(&mut self, tensor: &'t Tensor) {
        self.note_leaf(LeafKind::Tensor, String::new);
        match tensor.ty() {
            Some(ty) => {
                let device = u64::from(tensor.device().code());
                self.words.push(ty.dtype as u64 | (ty.rank() as u64) << 8 | device << 32);
                self.words.extend(ty.shape.iter().map(|&extent| extent as u64));
            }
            None => self.words.push(POISONED),
        }
        self.tensors.push(tensor);
    }

    /// Writes a static leaf of one word, which explanations of misses show as a number.
    #[inline]
    pub fn fixed(&mut self, word: u64) {
        self.value(word, "", || word.to_string());
    }

    /// Writes a static leaf of one word, or the first of several, with its Rust type and, if a miss is to be explained,
    /// its value as text.
    #[inline]
    pub fn value(&mut self, word: u64, type_name: &'static str, text: impl FnOnce() -> String) {
        self.note_leaf(LeafKind::Static { type_name }, text);
        self.words.push(word);
    }

    /// Writes a word of structure that steers how the rest is read: a length, or which variant of an enum it is.
    #[inline]
    pub fn structure(&mut self, word: u64, text: impl FnOnce() -> String) {
        self.note_leaf(LeafKind::Structure, text);
        self.words.push(word);
    }

    /// Writes a part of a tree.
    #[inline]
    pub fn field<T: Tree>(&mut self, field: Field, part: &'t T) {
        self.field_named_by(|| field, part);
    }

    /// Refuses poisoned tensors: the first one's error.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        self.tensors.iter().find_map(|tensor| tensor.error()).map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Writes a part that is a static leaf.
    #[inline]
    pub fn static_field<T: StaticLeaf>(&mut self, field: Field, part: &T) {
        self.step(|| field, |to| part.write_static(to));
    }

    /// Writes a part by a function, as derived code does.
    #[doc(hidden)]
    #[inline]
    pub fn part(&mut self, field: Field, write: impl FnOnce(&mut Self)) {
        self.step(|| field, write);
    }

    /// Writes a part whose field is made only if paths are noted.
    #[inline]
    pub(super) fn field_named_by<T: Tree>(&mut self, field: impl FnOnce() -> Field, part: &'t T) {
        self.step(field, |to| part.write(to));
    }

    #[inline]
    fn step(&mut self, field: impl FnOnce() -> Field, write: impl FnOnce(&mut Self)) {
        if let Some(paths) = &mut self.paths {
            paths.current.push(field());
        }
        write(self);
        if let Some(paths) = &mut self.paths {
            paths.current.pop();
        }
    }

    /// Writes something, and a word that says nothing if it has no words itself.
    #[inline]
    pub(super) fn at_least_one_word(&mut self, write: impl FnOnce(&mut Self)) {
        let before = self.words.len();
        write(self);
        if self.words.len() == before {
            self.words.push(0);
        }
    }

    #[inline]
    fn note_leaf(&mut self, kind: LeafKind, text: impl FnOnce() -> String) {
        if let Some(paths) = &mut self.paths {
            paths.leaves.push(Leaf { path: paths.current.clone(), kind, text: text() });
        }
    }
}
