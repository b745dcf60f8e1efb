//! CIFAR-10 in its binary form (Krizhevsky, "Learning multiple layers of features from tiny images", 2009).
//!
//! A file is a row of records of 3073 bytes: a label from 0 to 9, then 32x32 pixels, all of red, all of green, all of
//! blue, each row by row.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::dataset::{Dataset, Labelled, check_index};
use super::image::Image;
use crate::error::{Error, Result};

/// Pixels along each side.
const SIDE: usize = 32;

/// Pixels of one channel.
const PLANE: usize = SIDE * SIDE;

/// Bytes of a label and its image.
const RECORD: usize = 1 + 3 * PLANE;

/// Records of a file at most: those of the whole data set.
const MAX_RECORDS: usize = 60_000;

/// Photographs of 32x32 pixels in ten classes, held in main memory.
///
/// Examples are an image of shape `[32, 32, 3]` with byte pixels, and its label.
///
/// ```no_run
/// use retape_train::data::{Cifar10, Dataset};
///
/// let train = Cifar10::train("cifar-10-batches-bin")?;
/// let (image, label) = train.get(0)?;
/// assert_eq!(image.shape(), [32, 32, 3]);
/// println!("{} images, the first of a {}", train.len(), Cifar10::CLASSES[label as usize]);
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cifar10 {
    records: Arc<[u8]>,
}

impl Cifar10 {
    /// The names of the classes; label `i` is the name at `i`.
    pub const CLASSES: [&str; 10] =
        ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

    /// The training images: `data_batch_1.bin` to `data_batch_5.bin` in `folder`.
    ///
    /// # Errors
    ///
    /// As [`read`](Cifar10::read).
    pub fn train(folder: impl AsRef<Path>) -> Result<Cifar10> {
        Cifar10::read((1..=5).map(|number| folder.as_ref().join(format!("data_batch_{number}.bin"))))
    }

    /// The test images: `test_batch.bin` in `folder`.
    ///
    /// # Errors
    ///
    /// As [`read`](Cifar10::read).
    pub fn test(folder: impl AsRef<Path>) -> Result<Cifar10> {
        Cifar10::read([folder.as_ref().join("test_batch.bin")])
    }

    /// The images of files in this form, one after the other.
    ///
    /// # Errors
    ///
    /// Fails with the path if a file cannot be read, is empty, is no whole number of records or more than 60,000 of
    /// them, or holds a label above 9.
    pub fn read<P: AsRef<Path>>(files: impl IntoIterator<Item = P>) -> Result<Cifar10> {
        let mut records = vec![];
        for path in files {
            append(path.as_ref(), &mut records)?;
        }
        Ok(Cifar10 { records: records.into() })
    }

    fn record(&self, index: usize) -> Result<&[u8]> {
        check_index(index, self.len())?;
        Ok(&self.records[index * RECORD..][..RECORD])
    }
}

/// Appends the records of a file.
fn append(path: &Path, records: &mut Vec<u8>) -> Result<()> {
    if !fs::metadata(path).map_err(Error::io(path))?.is_file() {
        return Err(Error::format(path, "is no file"));
    }
    let start = records.len();
    let most = (MAX_RECORDS * RECORD) as u64;
    File::open(path).map_err(Error::io(path))?.take(most + 1).read_to_end(records).map_err(Error::io(path))?;
    let n_bytes = records.len() - start;
    if n_bytes == 0 {
        return Err(Error::format(path, "is empty"));
    }
    if n_bytes as u64 > most {
        return Err(Error::format(path, format!("has more than {most} bytes, {MAX_RECORDS} records of CIFAR-10")));
    }
    if !n_bytes.is_multiple_of(RECORD) {
        let what = format!("has {n_bytes} bytes, no whole number of records of {RECORD} bytes");
        return Err(Error::format(path, what));
    }
    let labels = records[start..].iter().step_by(RECORD);
    if let Some((record, label)) = labels.enumerate().find(|(_, label)| **label > 9) {
        return Err(Error::format(path, format!("has label {label} in record {record}; labels are 0 to 9")));
    }
    Ok(())
}

impl Dataset for Cifar10 {
    type Item = (Image, i32);

    fn len(&self) -> usize {
        self.records.len() / RECORD
    }

    fn get(&self, index: usize) -> Result<(Image, i32)> {
        let (label, planes) = self.record(index)?.split_at(1);
        let (red, rest) = planes.split_at(PLANE);
        let (green, blue) = rest.split_at(PLANE);
        let pixels = red.iter().zip(green).zip(blue).flat_map(|((&r, &g), &b)| [r, g, b]).collect();
        Ok((Image::from_u8(pixels, [SIDE, SIDE, 3])?, i32::from(label[0])))
    }
}

impl Labelled for Cifar10 {
    fn label(&self, index: usize) -> Result<i32> {
        Ok(i32::from(self.record(index)?[0]))
    }
}
