//! The outside of an artefact: the library and the function that wrote it, and a payload with its checksum.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `retape` and two control characters, so that a conversion of line ends shows |
//! | 4 | the version of the format |
//! | 4 | the length of the header |
//! | | the header: six texts, each a length of 8 bytes and UTF-8 |
//! | 8 | the length of the payload |
//! | | the payload |
//! | 32 | blake3 of everything before |
//!
//! Guarantees that a length is trusted only as far as bytes follow: memory grows with what is read.

use std::io::Read;

use super::bytes::{Decoder, Encoder};
use crate::error::ArtefactError;

type Result<T> = std::result::Result<T, ArtefactError>;

const MAGIC: [u8; 8] = *b"retape\r\n";

/// Raised whenever the layout of this file or of the payload changes.
const FORMAT: u32 = 5;

/// Names of types can be long, but not that long.
const MAX_HEADER: u64 = 1 << 20;

/// No artefact is larger, captured tensors included.
const MAX_PAYLOAD: u64 = 1 << 40;

/// For whom and by whom an artefact was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The version of this library.
    pub(crate) version: String,
    /// The target and the features of the processor.
    pub(crate) machine: String,
    /// The names of the types of the function, of its arguments and of its result.
    pub(crate) function: String,
    pub(crate) arguments: String,
    pub(crate) result: String,
    /// The line of the program that accelerated the function.
    pub(crate) place: String,
}

impl Header {
    fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::default();
        let Header { version, machine, function, arguments, result, place } = self;
        [version, machine, function, arguments, result, place].into_iter().for_each(|text| to.text(text));
        to.bytes
    }

    fn decode(bytes: &[u8]) -> Result<Header> {
        let mut from = Decoder::new(bytes);
        let mut text = || from.text().map(str::to_owned);
        let header = Header {
            version: text()?,
            machine: text()?,
            function: text()?,
            arguments: text()?,
            result: text()?,
            place: text()?,
        };
        match from.is_done() {
            true => Ok(header),
            false => Err(crate::artefact::bytes::malformed("the header goes on after its end")),
        }
    }

    /// Refuses what another version or for another function wrote; another machine is no reason.
    fn check(&self, own: &Header) -> Result<()> {
        if self.version != own.version {
            return Err(ArtefactError::OtherVersion { found: self.version.clone(), own: own.version.clone() });
        }
        let parts = [
            ("argument", &self.arguments, &own.arguments),
            ("result", &self.result, &own.result),
            ("function", &self.function, &own.function),
        ];
        if let Some((part, found, own)) = parts.into_iter().find(|(_, found, own)| found != own) {
            return Err(ArtefactError::OtherFunction { part, found: found.clone(), own: own.clone() });
        }
        // Functions of one type are told apart by where they were made.
        match self.place == own.place {
            true => Ok(()),
            false => Err(ArtefactError::OtherPlace { found: self.place.clone(), own: own.place.clone() }),
        }
    }
}

/// The bytes of an artefact whose payload `write` writes.
pub(crate) fn seal(header: &Header, write: impl FnOnce(&mut Encoder)) -> Result<Vec<u8>> {
    let header = header.encode();
    let header_len = u32::try_from(header.len()).ok().filter(|&len| u64::from(len) <= MAX_HEADER);
    let header_len = header_len.ok_or_else(|| oversized("header", header.len() as u64, MAX_HEADER))?;
    let mut to = Encoder::default();
    to.bytes.extend(MAGIC);
    to.u32(FORMAT);
    to.u32(header_len);
    to.bytes.extend(header);
    let len_at = to.bytes.len();
    to.u64(0);
    write(&mut to);
    let payload_len = (to.bytes.len() - len_at - 8) as u64;
    if payload_len > MAX_PAYLOAD {
        return Err(oversized("payload", payload_len, MAX_PAYLOAD));
    }
    to.bytes[len_at..len_at + 8].copy_from_slice(&payload_len.to_le_bytes());
    let checksum = blake3::hash(&to.bytes);
    to.bytes.extend(checksum.as_bytes());
    Ok(to.bytes)
}

fn oversized(part: &'static str, len: u64, most: u64) -> ArtefactError {
    ArtefactError::Oversized { part, len, most }
}

/// Reads an artefact for the function of `own`: its header and payload. Reads no byte beyond its end.
pub(crate) fn open(from: impl Read, own: &Header) -> Result<(Header, Vec<u8>)> {
    let mut from = HashingReader { from, hasher: blake3::Hasher::new() };
    if from.take::<8>("first bytes")? != MAGIC {
        return Err(ArtefactError::NotAnArtefact);
    }
    let found = u32::from_le_bytes(from.take("first bytes")?);
    if found != FORMAT {
        return Err(ArtefactError::OtherFormat { found, own: FORMAT });
    }
    let len = u32::from_le_bytes(from.take("header")?);
    let header = Header::decode(&from.block("header", len.into(), MAX_HEADER)?)?;
    header.check(own)?;
    let len = u64::from_le_bytes(from.take("payload")?);
    let payload = from.block("payload", len, MAX_PAYLOAD)?;
    let checksum = from.hasher.finalize();
    match checksum == blake3::Hash::from_bytes(from.take("checksum")?) {
        true => Ok((header, payload)),
        false => Err(ArtefactError::Corrupt),
    }
}

/// A stream whose bytes are hashed as they are read.
struct HashingReader<R> {
    from: R,
    hasher: blake3::Hasher,
}

impl<R: Read> HashingReader<R> {
    fn take<const N: usize>(&mut self, part: &'static str) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => ArtefactError::Truncated { part },
            _ => ArtefactError::io(&e, None),
        })?;
        self.hasher.update(&bytes);
        Ok(bytes)
    }

    fn block(&mut self, part: &'static str, len: u64, most: u64) -> Result<Vec<u8>> {
        if len > most {
            return Err(oversized(part, len, most));
        }
        let mut bytes = vec![];
        // Makes room as bytes come, whatever the length says.
        let read = self.from.by_ref().take(len).read_to_end(&mut bytes).map_err(|e| ArtefactError::io(&e, None))?;
        if read as u64 != len {
            return Err(ArtefactError::Truncated { part });
        }
        self.hasher.update(&bytes);
        Ok(bytes)
    }
}
