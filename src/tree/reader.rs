//! Rebuilding a tree.

use super::writer::POISONED;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Hands out the words and tensors that a [`Writer`](super::Writer) collected.
#[derive(Debug)]
pub struct Reader<'s> {
    words: &'s [u64],
    tensors: std::slice::Iter<'s, Tensor>,
}

impl<'s> Reader<'s> {
    /// A reader over words and the tensors that belong to them.
    pub(crate) fn new(words: &'s [u64], tensors: &'s [Tensor]) -> Reader<'s> {
        Reader { words, tensors: tensors.iter() }
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
        let len = self.word()? as usize;
        let n_words = len.div_ceil(8);
        if n_words > self.words.len() {
            return Err(ended());
        }
        let (text, rest) = self.words.split_at(n_words);
        self.words = rest;
        let mut bytes: Vec<u8> = text.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(len);
        String::from_utf8(bytes).map_err(|_| Error::Tree("static text is not UTF-8".into()))
    }

    /// The next tensor leaf.
    ///
    /// # Errors
    ///
    /// Fails at the end of the stream.
    pub fn tensor(&mut self) -> Result<Tensor> {
        let head = self.word()?;
        let rank = if head == POISONED { 0 } else { (head >> 8) as usize };
        if rank > self.words.len() {
            return Err(ended());
        }
        self.words = &self.words[rank..];
        self.tensors.next().cloned().ok_or_else(ended)
    }

    /// Whether everything has been read.
    pub(crate) fn is_done(&self) -> bool {
        self.words.is_empty() && self.tensors.len() == 0
    }
}

fn ended() -> Error {
    Error::Tree("the stream of leaves ends too early".into())
}
