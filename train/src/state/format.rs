//! One file in the format safetensors: <https://huggingface.co/docs/safetensors>.
//!
//! The crate `safetensors` knows the header. The tensors are written and read here one by one, so that a model is in
//! memory once and not twice, and so that an error of a tensor is one of the whole.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use blake3::Hasher;
use retape::{DType, Tensor};
use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use crate::error::{Error, Result};
use crate::files::write_whole;

/// The largest header that readers of the format take, in bytes.
const MAX_HEADER: u64 = 100_000_000;

/// The key of the header that is no tensor.
const METADATA: &str = "__metadata__";

/// The dtype and shape as text, such as `f32[3, 4]`.
pub(super) fn type_text(dtype: impl std::fmt::Display, shape: &[usize]) -> String {
    format!("{dtype}{shape:?}")
}

fn stored(dtype: DType) -> Dtype {
    match dtype {
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
        DType::F16 => Dtype::F16,
        DType::Bf16 => Dtype::BF16,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::U32 => Dtype::U32,
        DType::U8 => Dtype::U8,
        DType::Bool => Dtype::BOOL,
    }
}

fn held(dtype: Dtype) -> Option<DType> {
    DType::ALL.into_iter().find(|&held| stored(held) == dtype)
}

/// Hashes the bytes that are written, and counts them.
struct Hashed<W> {
    to: W,
    hasher: Hasher,
    n_bytes: u64,
}

impl<W: Write> Hashed<W> {
    fn new(to: W) -> Hashed<W> {
        Hashed { to, hasher: Hasher::new(), n_bytes: 0 }
    }

    /// The blake3 hash in hexadecimal digits, and the number of bytes.
    fn finish(&self) -> (String, u64) {
        (self.hasher.finalize().to_hex().to_string(), self.n_bytes)
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.to.write(bytes)?;
        self.hasher.update(&bytes[..n]);
        self.n_bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Writes tensors with their names; gives the hash and the length of the file.
pub(super) fn write(
    path: &Path,
    tensors: &[(String, Tensor)],
    metadata: &BTreeMap<String, String>,
) -> Result<(String, u64)> {
    let mut tensors: Vec<&(String, Tensor)> = tensors.iter().collect();
    // Wide elements first, so that each is aligned in the file.
    tensors
        .sort_by(|(a_name, a), (b_name, b)| b.dtype().size().cmp(&a.dtype().size()).then_with(|| a_name.cmp(b_name)));
    let header = header(path, &tensors, metadata)?;
    let mut summary = None;
    write_whole(path, |to| {
        let mut to = Hashed::new(to);
        let put = |to: &mut Hashed<&mut dyn Write>, bytes: &[u8]| to.write_all(bytes).map_err(Error::io(path));
        put(&mut to, &(header.len() as u64).to_le_bytes())?;
        put(&mut to, &header)?;
        for (_, tensor) in &tensors {
            put(&mut to, &tensor.to_le_bytes()?)?;
        }
        summary = Some(to.finish());
        Ok(())
    })?;
    Ok(summary.unwrap_or_default())
}

/// The header in bytes, a multiple of eight.
fn header(path: &Path, tensors: &[&(String, Tensor)], metadata: &BTreeMap<String, String>) -> Result<Vec<u8>> {
    let mut start = 0;
    let mut infos = vec![];
    for (name, tensor) in tensors {
        if name == METADATA {
            return Err(Error::format(path, format!("no tensor can be called `{METADATA}` there")));
        }
        let end = start + tensor.n_elements() * tensor.dtype().size();
        let info =
            TensorInfo { dtype: stored(tensor.dtype()), shape: tensor.shape().to_vec(), data_offsets: (start, end) };
        infos.push((name.clone(), info));
        start = end;
    }
    let metadata = (!metadata.is_empty()).then(|| metadata.clone().into_iter().collect());
    let refused = |error: &dyn std::fmt::Display| Error::format(path, format!("cannot be written: {error}"));
    let header = Metadata::new(metadata, infos).map_err(|error| refused(&error))?;
    // Through a map whose keys are in order: the same tree makes the same bytes.
    let header = serde_json::to_value(&header).map_err(|error| refused(&error))?;
    let mut bytes = serde_json::to_vec(&header).map_err(|error| refused(&error))?;
    bytes.resize(bytes.len().next_multiple_of(8), b' ');
    if bytes.len() as u64 > MAX_HEADER {
        return Err(refused(&format!("its header of {} bytes is longer than readers take", bytes.len())));
    }
    Ok(bytes)
}

/// A file whose header was read and found sound.
pub(super) struct Reading {
    path: PathBuf,
    file: File,
    header: Metadata,
    /// The first byte behind the header.
    start: u64,
}

impl Reading {
    pub(super) fn open(path: &Path) -> Result<Reading> {
        let mut file = File::open(path).map_err(Error::io(path))?;
        let n_bytes = file.metadata().map_err(Error::io(path))?.len();
        let broken = |what: String| Error::format(path, format!("is no whole file of safetensors: {what}"));
        if n_bytes < 8 {
            return Err(broken(format!("it has {n_bytes} bytes")));
        }
        let mut len = [0; 8];
        file.read_exact(&mut len).map_err(Error::io(path))?;
        let len = u64::from_le_bytes(len);
        if len > MAX_HEADER || len > n_bytes - 8 {
            return Err(broken(format!("a header of {len} bytes does not fit into {n_bytes}")));
        }
        let mut bytes = vec![0; len as usize];
        file.read_exact(&mut bytes).map_err(Error::io(path))?;
        let header: Metadata = serde_json::from_slice(&bytes).map_err(|error| broken(error.to_string()))?;
        let (start, wanted) = (8 + len, header.data_len() as u64);
        if n_bytes - start != wanted {
            return Err(broken(format!("its tensors have {wanted} bytes, but {} are there", n_bytes - start)));
        }
        Ok(Reading { path: path.to_owned(), file, header, start })
    }

    /// The names of the tensors, in the order of their bytes.
    pub(super) fn names(&self) -> Vec<String> {
        self.header.offset_keys()
    }

    /// The texts that say something of the whole file.
    pub(super) fn metadata(&self) -> BTreeMap<String, String> {
        self.header.metadata().iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// The dtype and shape of a tensor of the file as text.
    pub(super) fn type_text(&self, name: &str) -> String {
        self.header.info(name).map_or_else(String::new, |info| match held(info.dtype) {
            Some(dtype) => type_text(dtype, &info.shape),
            None => type_text(format!("{:?}", info.dtype).to_lowercase(), &info.shape),
        })
    }

    /// A tensor, in main memory; nothing if its dtype is none of ours.
    pub(super) fn tensor(&mut self, name: &str) -> Result<Option<Tensor>> {
        let Some(info) = self.header.info(name) else { return Ok(None) };
        let Some(dtype) = held(info.dtype) else { return Ok(None) };
        let (start, end) = info.data_offsets;
        let mut bytes = vec![0; end - start];
        self.file.seek(SeekFrom::Start(self.start + start as u64)).map_err(Error::io(&self.path))?;
        self.file.read_exact(&mut bytes).map_err(Error::io(&self.path))?;
        let tensor = Tensor::from_le_bytes(dtype, &info.shape[..], &bytes);
        Ok(Some(tensor.map_err(|error| Error::format(&self.path, format!("`{name}`: {error}")))?))
    }
}
