//! Rebuilding a tree.

use super::writer::POISONED;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Hands out the words and tensors that a [`Writer`](super::Writer) collected.
#[derive(Debug)]
pub struct Reader<'s> {
    words: &'s [u64],
    tensors: Tensors<'s>,
    depth: usize,
}

/// The tensors that are left: to be shared, or to be given away, which leaves their counts of owners alone.
#[derive(Debug)]
enum Tensors<'s> {
    Borrowed(std::slice::Iter<'s, Tensor>),
    Owned(std::vec::IntoIter<Tensor>),
}

/// How deep boxes and collections may be nested; each level takes stack.
const MAX_DEPTH: usize = 512;

impl<'s> Reader<'s> {
    /// A reader over words and the tensors that belong to them.
    pub(crate) fn new(words: &'s [u64], tensors: &'s [Tensor]) -> Reader<'s> {
        Reader { words, tensors: Tensors::Borrowed(tensors.iter()), depth: 0 }
    }

    /// A reader that gives the tensors away.
    pub(crate) fn giving(words: &'s [u64], tensors: Vec<Tensor>) -> Reader<'s> {
        Reader { words, tensors: Tensors::Owned(tensors.into_iter()), depth: 0 }
    }

    /// The next word.
    ///
    /// # Errors
    ///
    /// Fails at the end of the stream.
    pub fn word(&mut self) -> Result<u64> {
        let (&first, rest) = self.words.split_first().ok_or_else(ended)?;
        self.words = rest;
        Ok(first)
    }

    /// The next static text.
    ///
    /// # Errors
    ///
    /// Fails at the end of the stream, or if it is no text.
    pub fn text(&mut self) -> Result<String> {
        let len = self.word()?;
        let n_words = usize::try_from(len.div_ceil(8)).unwrap_or(usize::MAX);
        if n_words > self.words.len() {
            return Err(ended());
        }
        let (text, rest) = self.words.split_at(n_words);
        self.words = rest;
        let mut bytes: Vec<u8> = text.iter().flat_map(|word| word.to_le_bytes()).collect();
        if bytes.split_off(len as usize).iter().any(|&byte| byte != 0) {
            return Err(Error::Tree("static text is followed by more than padding".into()));
        }
        String::from_utf8(bytes).map_err(|_| Error::Tree("static text is not UTF-8".into()))
    }

    /// The next tensor leaf.
    ///
    /// # Errors
    ///
    /// Fails at the end of the stream.
    pub fn tensor(&mut self) -> Result<Tensor> {
        let head = self.word()?;
        // Dtype, rank and device share the word.
        let rank = if head == POISONED { 0 } else { (head as u32 >> 8) as usize };
        if rank > self.words.len() {
            return Err(ended());
        }
        self.words = &self.words[rank..];
        let next = match &mut self.tensors {
            Tensors::Borrowed(tensors) => tensors.next().cloned(),
            Tensors::Owned(tensors) => tensors.next(),
        };
        next.ok_or_else(ended)
    }

    /// The length of a collection of which each element takes at least one word.
    pub(super) fn length(&mut self) -> Result<usize> {
        let len = self.word()?;
        usize::try_from(len).ok().filter(|&len| len <= self.words.len()).ok_or_else(ended)
    }

    /// Reads what [`Writer::at_least_one_word`](super::Writer::at_least_one_word) wrote.
    pub(super) fn at_least_one_word<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = self.words.len();
        let value = read(self)?;
        if self.words.len() == before && self.word()? != 0 {
            return Err(Error::Tree("an empty element is not marked by a zero".into()));
        }
        Ok(value)
    }

    /// Reads the inside of a box or collection.
    pub(super) fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MAX_DEPTH {
            return Err(Error::Tree(format!("boxes and collections are nested more than {MAX_DEPTH} deep")));
        }
        self.depth += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    /// Whether everything has been read.
    #[cfg(test)]
    pub(crate) fn is_done(&self) -> bool {
        let n_tensors = match &self.tensors {
            Tensors::Borrowed(tensors) => tensors.len(),
            Tensors::Owned(tensors) => tensors.len(),
        };
        self.words.is_empty() && n_tensors == 0
    }
}

fn ended() -> Error {
    Error::Tree("the stream of leaves ends too early".into())
}
