//! Flattening a tree.

use smallvec::SmallVec;

use super::{StaticLeaf, Tree};
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
    pub(crate) words: SmallVec<[u64; 64]>,
    pub(crate) tensors: SmallVec<[&'t Tensor; 16]>,
    /// Where each run of words came from; recorded only when a miss is to be explained.
    pub(crate) paths: Option<Paths>,
}

/// For each word the path of its leaf.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    current: Vec<Field>,
    /// The leaves in order.
    pub(crate) leaves: Vec<Leaf>,
}

/// A leaf: where it is, and where its words begin.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) path: Vec<Field>,
    pub(crate) first_word: usize,
    pub(crate) is_tensor: bool,
}

/// A path as text, such as `weights[2]`; the tree itself is `value`.
pub(crate) fn path_text(path: &[Field]) -> String {
    let mut text = String::new();
    for field in path {
        match field {
            Field::Named(name) if text.is_empty() => text.push_str(name),
            Field::Named(name) => text.extend([".", name]),
            Field::Index(index) => text.push_str(&format!("[{index}]")),
            Field::Key(key) => text.push_str(&format!("[{key:?}]")),
        }
    }
    if text.is_empty() { "value".to_owned() } else { text }
}

impl<'t> Writer<'t> {
    /// A writer that also notes the path of each leaf.
    pub(crate) fn with_paths() -> Writer<'t> {
        Writer { paths: Some(Paths::default()), ..Writer::default() }
    }

    /// The path of each tensor, as text such as `weights[2]`; empty if paths were not noted.
    pub(crate) fn tensor_paths(&self) -> Vec<String> {
        let leaves = self.paths.iter().flat_map(|paths| &paths.leaves);
        leaves.filter(|leaf| leaf.is_tensor).map(|leaf| path_text(&leaf.path)).collect()
    }

    /// Writes a word of structure or of a static value.
    #[inline]
    pub fn word(&mut self, word: u64) {
        self.words.push(word);
    }

    /// Writes a static leaf of text.
    pub fn text(&mut self, text: &str) {
        self.fixed(text.len() as u64);
        for chunk in text.as_bytes().chunks(8) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(bytes));
        }
    }

    /// Writes a tensor leaf.
    #[inline]
    pub fn tensor(&mut self, tensor: &'t Tensor) {
        self.note_leaf(true);
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

    /// Writes a static leaf of one word.
    #[inline]
    pub fn fixed(&mut self, word: u64) {
        self.note_leaf(false);
        self.words.push(word);
    }

    /// Writes a part of a tree.
    #[inline]
    pub fn field<T: Tree>(&mut self, field: Field, part: &'t T) {
        self.field_named_by(|| field, part);
    }

    /// Writes a part that is a static leaf.
    #[inline]
    pub fn static_field<T: StaticLeaf>(&mut self, field: Field, part: &T) {
        self.step(|| field, |to| part.write_static(to));
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
    fn note_leaf(&mut self, is_tensor: bool) {
        let first_word = self.words.len();
        if let Some(paths) = &mut self.paths {
            paths.leaves.push(Leaf { path: paths.current.clone(), first_word, is_tensor });
        }
    }
}
