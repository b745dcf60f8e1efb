//! Hashes of keys.
//!
//! Guarantees that [`hash_words`] is the same on every machine and in every process; [`hash_value`] holds within one.
//! Keys of words are kept and compared: their hash finds candidates and decides nothing. A value hashed as a whole is not
//! kept, and all 32 bytes of its blake3 hash stand for it.

use std::hash::{Hash, Hasher};

/// A blake3 hash.
pub type Hash32 = [u8; 32];

/// The hash of a key written as words.
pub fn hash_words(words: &[u64]) -> Hash32 {
    let mut hasher = blake3::Hasher::new();
    let mut block = [0; 1024];
    for chunk in words.chunks(block.len() / 8) {
        for (bytes, word) in block.chunks_exact_mut(8).zip(chunk) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        hasher.update(&block[..8 * chunk.len()]);
    }
    *hasher.finalize().as_bytes()
}

/// The hash of what a value is made of.
pub fn hash_value(value: &impl Hash) -> Hash32 {
    let mut pieces = Pieces(vec![]);
    value.hash(&mut pieces);
    *blake3::hash(&pieces.0).as_bytes()
}

/// Collects what is hashed: blake3 takes many small pieces slowly.
struct Pieces(Vec<u8>);

impl Hasher for Pieces {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Nothing: the pieces are what is asked for.
    fn finish(&self) -> u64 {
        0
    }
}

/// Takes eight bytes of a hash for the whole: they are as good as any.
#[derive(Default)]
pub(crate) struct FirstBytes(u64);

impl Hasher for FirstBytes {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk::<8>() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    /// The length that an array writes before its bytes carries nothing.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}
