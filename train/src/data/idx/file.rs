//! Reader of IDX files, plain or compressed by gzip.
//!
//! A header of two zero bytes, a type code, the number of axes and their extents, then the values, all big endian.
//! Never trusts a header: memory grows with the bytes that are there, not with those that are promised.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::error::{Error, Result};

/// The values of an IDX file.
#[derive(Clone, Debug, PartialEq)]
pub enum IdxValues {
    /// Type code 0x08.
    U8(Vec<u8>),
    /// Type code 0x09.
    I8(Vec<i8>),
    /// Type code 0x0B.
    I16(Vec<i16>),
    /// Type code 0x0C.
    I32(Vec<i32>),
    /// Type code 0x0D.
    F32(Vec<f32>),
    /// Type code 0x0E.
    F64(Vec<f64>),
}

impl IdxValues {
    /// Bytes per value of a type code, if there is such a type.
    fn width(code: u8) -> Option<usize> {
        match code {
            0x08 | 0x09 => Some(1),
            0x0B => Some(2),
            0x0C | 0x0D => Some(4),
            0x0E => Some(8),
            _ => None,
        }
    }

    /// Decodes a whole number of values; none for an unknown type code.
    fn decode(code: u8, bytes: Vec<u8>) -> Option<IdxValues> {
        fn values<T, const N: usize>(bytes: &[u8], decode: fn([u8; N]) -> T) -> Vec<T> {
            bytes.as_chunks::<N>().0.iter().map(|&chunk| decode(chunk)).collect()
        }
        Some(match code {
            0x08 => IdxValues::U8(bytes),
            0x09 => IdxValues::I8(values(&bytes, i8::from_be_bytes)),
            0x0B => IdxValues::I16(values(&bytes, i16::from_be_bytes)),
            0x0C => IdxValues::I32(values(&bytes, i32::from_be_bytes)),
            0x0D => IdxValues::F32(values(&bytes, f32::from_be_bytes)),
            0x0E => IdxValues::F64(values(&bytes, f64::from_be_bytes)),
            _ => return None,
        })
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        match self {
            IdxValues::U8(values) => values.len(),
            IdxValues::I8(values) => values.len(),
            IdxValues::I16(values) => values.len(),
            IdxValues::I32(values) => values.len(),
            IdxValues::F32(values) => values.len(),
            IdxValues::F64(values) => values.len(),
        }
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The contents of an IDX file: extents, outermost first, and as many values as they say.
#[derive(Clone, Debug, PartialEq)]
pub struct IdxArray {
    /// The extents, outermost axis first.
    pub extents: Vec<usize>,
    /// The values, row-major.
    pub values: IdxValues,
}

/// Reads the IDX file at `path`; whether it is compressed shows in its first bytes, not in its name.
///
/// # Errors
///
/// Fails with the path if the file cannot be read or decompressed, or is not IDX from its first to its last byte.
pub fn read_idx(path: impl AsRef<Path>) -> Result<IdxArray> {
    let path = path.as_ref();
    let mut file = BufReader::new(File::open(path).map_err(Error::io(path))?);
    let start = file.fill_buf().map_err(Error::io(path))?;
    let array = if start.starts_with(&[0x1F, 0x8B]) { parse(MultiGzDecoder::new(file)) } else { parse(file) };
    array.map_err(|error| error.at(path))
}

/// Reads IDX, plain or compressed, from memory.
///
/// ```
/// use retape_train::data::{IdxValues, parse_idx};
///
/// let array = parse_idx(&[0, 0, 0x08, 1, 0, 0, 0, 3, 5, 6, 7])?;
/// assert_eq!(array.extents, [3]);
/// assert_eq!(array.values, IdxValues::U8(vec![5, 6, 7]));
/// # Ok::<(), retape_train::Error>(())
/// ```
///
/// # Errors
///
/// Fails if the bytes cannot be decompressed, or are not IDX from the first to the last.
pub fn parse_idx(bytes: &[u8]) -> Result<IdxArray> {
    let array = if bytes.starts_with(&[0x1F, 0x8B]) { parse(MultiGzDecoder::new(bytes)) } else { parse(bytes) };
    array.map_err(|error| error.at(Path::new("bytes in memory")))
}

/// An error, before it is known where.
enum ParseError {
    Io(io::Error),
    Format(String),
}

impl ParseError {
    fn at(self, path: &Path) -> Error {
        match self {
            ParseError::Io(source) => Error::io(path)(source),
            ParseError::Format(what) => Error::format(path, what),
        }
    }
}

fn parse(mut reader: impl Read) -> Result<IdxArray, ParseError> {
    let [zero, zero_too, code, rank] = *read_up_to(&mut reader, 4)?.as_slice() else {
        return Err(ParseError::Format("ends within the magic number of IDX".into()));
    };
    let width = IdxValues::width(code).filter(|_| (zero, zero_too) == (0, 0)).ok_or_else(|| {
        ParseError::Format(format!(
            "starts with {zero:02x} {zero_too:02x} {code:02x} {rank:02x}, no magic number of IDX"
        ))
    })?;
    let header = read_up_to(&mut reader, 4 * usize::from(rank))?;
    if header.len() < 4 * usize::from(rank) {
        return Err(ParseError::Format(format!("ends within the extents of its {rank} axes")));
    }
    let (words, _) = header.as_chunks::<4>();
    let extents: Vec<usize> = words.iter().map(|&word| u32::from_be_bytes(word) as usize).collect();
    let n_bytes = byte_length(&extents, width)
        .ok_or_else(|| ParseError::Format(format!("claims more values than can exist: {extents:?}")))?;
    let bytes = read_up_to(&mut reader, n_bytes)?;
    if bytes.len() < n_bytes {
        let found = bytes.len();
        return Err(ParseError::Format(format!(
            "is cut off: {extents:?} need {n_bytes} bytes of values, {found} follow"
        )));
    }
    // Reading on also lets gzip check its sum over the whole.
    if !read_up_to(&mut reader, 1)?.is_empty() {
        return Err(ParseError::Format(format!("goes on after the {n_bytes} bytes of its values {extents:?}")));
    }
    let values =
        IdxValues::decode(code, bytes).ok_or_else(|| ParseError::Format(format!("has unknown type {code:#04x}")))?;
    Ok(IdxArray { extents, values })
}

/// Reads `limit` bytes, or fewer if there are no more; allocates as they come.
fn read_up_to(reader: &mut impl Read, limit: usize) -> Result<Vec<u8>, ParseError> {
    let mut bytes = Vec::new();
    reader.take(limit as u64).read_to_end(&mut bytes).map_err(ParseError::Io)?;
    Ok(bytes)
}

/// The bytes of an array, if memory could hold them.
fn byte_length(extents: &[usize], width: usize) -> Option<usize> {
    if extents.contains(&0) {
        return Some(0);
    }
    let n_bytes = extents.iter().try_fold(width, |n, &extent| n.checked_mul(extent))?;
    isize::try_from(n_bytes).is_ok().then_some(n_bytes)
}
