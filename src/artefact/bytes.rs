//! Numbers, texts and lists as bytes: little-endian, lengths first.
//!
//! Guarantees that reading allocates nothing for a length before that many bytes are found to be there.

use crate::error::ArtefactError;

type Result<T> = std::result::Result<T, ArtefactError>;

/// Collects bytes.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    pub(crate) bytes: Vec<u8>,
}

impl Encoder {
    pub(crate) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes.extend(value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes.extend(value.to_le_bytes());
    }

    /// A length or position.
    pub(crate) fn count(&mut self, count: usize) {
        self.u64(count as u64);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.bytes.extend(bytes);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn words(&mut self, words: &[u64]) {
        self.count(words.len());
        words.iter().for_each(|&word| self.u64(word));
    }

    pub(crate) fn list<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Encoder, &T)) {
        self.count(items.len());
        items.iter().for_each(|item| write(self, item));
    }
}

/// Hands bytes out.
#[derive(Debug)]
pub(crate) struct Decoder<'b> {
    bytes: &'b [u8],
}

impl<'b> Decoder<'b> {
    pub(crate) fn new(bytes: &'b [u8]) -> Decoder<'b> {
        Decoder { bytes }
    }

    /// Whether everything has been read.
    pub(crate) fn is_done(&self) -> bool {
        self.bytes.is_empty()
    }

    fn take(&mut self, len: usize) -> Result<&'b [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or_else(ends)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| ends())
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A position in a list.
    pub(crate) fn position(&mut self) -> Result<usize> {
        usize::try_from(self.u64()?).map_err(|_| malformed("a position is larger than memory"))
    }

    /// The length of a list of which each item takes at least `item` bytes.
    fn count(&mut self, item: usize) -> Result<usize> {
        let count = self.u64()?;
        let most = self.bytes.len() / item;
        usize::try_from(count).ok().filter(|&count| count <= most).ok_or_else(|| {
            malformed(format!("a list of {count} items cannot be in the {} bytes left", self.bytes.len()))
        })
    }

    pub(crate) fn bytes(&mut self) -> Result<&'b [u8]> {
        let len = self.count(1)?;
        self.take(len)
    }

    pub(crate) fn text(&mut self) -> Result<&'b str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| malformed("a text is not UTF-8"))
    }

    pub(crate) fn words(&mut self) -> Result<Vec<u64>> {
        let count = self.count(8)?;
        let bytes = self.take(8 * count)?;
        Ok(bytes
            .chunks_exact(8)
            .map(|word| word.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)))
            .collect())
    }

    /// A list whose items take at least one byte each.
    pub(crate) fn list<T>(&mut self, mut read: impl FnMut(&mut Decoder<'b>) -> Result<T>) -> Result<Vec<T>> {
        let count = self.count(1)?;
        // An item may be larger in memory than in the file: room for more is made as items are found to be there.
        let mut items = Vec::with_capacity(count.min(64));
        for _ in 0..count {
            items.push(read(self)?);
        }
        Ok(items)
    }
}

fn ends() -> ArtefactError {
    malformed("the contents end too early")
}

pub(crate) fn malformed(message: impl Into<String>) -> ArtefactError {
    ArtefactError::Malformed { message: message.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let mut to = Encoder::default();
        to.u8(7);
        to.text("naïve");
        to.words(&[1, u64::MAX]);
        to.list(&["a", ""], |to, text| to.text(text));
        let mut from = Decoder::new(&to.bytes);
        assert_eq!(from.u8().unwrap(), 7);
        assert_eq!(from.text().unwrap(), "naïve");
        assert_eq!(from.words().unwrap(), [1, u64::MAX]);
        assert_eq!(from.list(Decoder::text).unwrap(), ["a", ""]);
        assert!(from.is_done());
    }

    #[test]
    fn a_length_beyond_the_end_is_refused_before_anything_is_made() {
        for count in [3, 1 << 40, u64::MAX] {
            let mut to = Encoder::default();
            to.u64(count);
            to.u8(0);
            assert!(Decoder::new(&to.bytes).bytes().is_err());
            assert!(Decoder::new(&to.bytes).words().is_err());
            assert!(Decoder::new(&to.bytes).list(Decoder::u8).is_err());
        }
    }
}
