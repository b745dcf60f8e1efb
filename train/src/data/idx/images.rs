//! Images and labels of IDX files as a data set.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::file::{IdxValues, read_idx};
use crate::data::dataset::{Dataset, Labelled, check_index};
use crate::data::image::Image;
use crate::error::{Error, Result};

/// Images and labels of two IDX files, plain or compressed by gzip, held in main memory.
///
/// Examples are an image of shape `[height, width, 1]`, or `[height, width, channels]` for files of four axes, with byte
/// pixels, and its label.
///
/// ```no_run
/// use retape_train::data::{Dataset, IdxImages};
///
/// let train = IdxImages::train("mnist")?;
/// let (image, label) = train.get(0)?;
/// assert_eq!(image.shape(), [28, 28, 1]);
/// println!("{} images, the first of a {label}", train.len());
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdxImages {
    pixels: Arc<[u8]>,
    labels: Arc<[u8]>,
    shape: [usize; 3],
}

impl IdxImages {
    /// The training images of MNIST, or of a data set in its form such as Fashion-MNIST: `train-images-idx3-ubyte` and
    /// `train-labels-idx1-ubyte` in `folder`, also with a dot before `idx`, and with `.gz` at the end.
    ///
    /// # Errors
    ///
    /// Fails if one of them is missing, and as [`open`](IdxImages::open).
    pub fn train(folder: impl AsRef<Path>) -> Result<IdxImages> {
        IdxImages::part(folder.as_ref(), "train")
    }

    /// The test images: `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`, with names as those of
    /// [`train`](IdxImages::train).
    ///
    /// # Errors
    ///
    /// As [`train`](IdxImages::train).
    pub fn test(folder: impl AsRef<Path>) -> Result<IdxImages> {
        IdxImages::part(folder.as_ref(), "t10k")
    }

    fn part(folder: &Path, part: &str) -> Result<IdxImages> {
        let images = find(folder, &format!("{part}-images"), "idx3-ubyte")?;
        IdxImages::open(images, find(folder, &format!("{part}-labels"), "idx1-ubyte")?)
    }

    /// Reads a file of images, bytes of shape `[n, height, width]` or `[n, height, width, channels]`, and one of labels,
    /// bytes of shape `[n]`.
    ///
    /// # Errors
    ///
    /// Fails with the path if a file cannot be read, is no IDX from its first byte to its last, or has other axes or
    /// values; also if there are no pixels, or more or fewer labels than images.
    pub fn open(images: impl AsRef<Path>, labels: impl AsRef<Path>) -> Result<IdxImages> {
        let (images, labels) = (images.as_ref(), labels.as_ref());
        let array = read_idx(images)?;
        let (n, shape, pixels) = match (array.extents.as_slice(), array.values) {
            (&[n, height, width], IdxValues::U8(pixels)) => (n, [height, width, 1], pixels),
            (&[n, height, width, channels], IdxValues::U8(pixels)) => (n, [height, width, channels], pixels),
            (extents, _) => {
                let what = format!("holds {extents:?}, not bytes of shape [count, height, width]");
                return Err(Error::format(images, what));
            }
        };
        if pixels.is_empty() {
            return Err(Error::format(images, format!("holds no pixels: {:?}", array.extents)));
        }
        let array = read_idx(labels)?;
        match (array.extents.as_slice(), array.values) {
            (&[n_labels], IdxValues::U8(_)) if n_labels != n => {
                Err(Error::format(labels, format!("holds {n_labels} labels for {n} images in {}", images.display())))
            }
            (&[_], IdxValues::U8(labels)) => Ok(IdxImages { pixels: pixels.into(), labels: labels.into(), shape }),
            (extents, _) => Err(Error::format(labels, format!("holds {extents:?}, not bytes of shape [count]"))),
        }
    }
}

/// The first file in `folder` with one of the names in use.
fn find(folder: &Path, stem: &str, kind: &str) -> Result<PathBuf> {
    let names = ["-", "."].map(|joint| format!("{stem}{joint}{kind}"));
    let paths = names.iter().flat_map(|name| ["", ".gz"].map(|end| folder.join(format!("{name}{end}"))));
    paths.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        let what = format!("found no {} or {}, nor either with .gz", names[0], names[1]);
        Error::io(folder)(io::Error::new(io::ErrorKind::NotFound, what))
    })
}

impl Dataset for IdxImages {
    type Item = (Image, i32);

    fn len(&self) -> usize {
        self.labels.len()
    }

    fn get(&self, index: usize) -> Result<(Image, i32)> {
        check_index(index, self.labels.len())?;
        let n_pixels: usize = self.shape.iter().product();
        let pixels = self.pixels[index * n_pixels..][..n_pixels].to_vec();
        Ok((Image::from_u8(pixels, self.shape)?, i32::from(self.labels[index])))
    }
}

impl Labelled for IdxImages {
    fn label(&self, index: usize) -> Result<i32> {
        check_index(index, self.labels.len())?;
        Ok(i32::from(self.labels[index]))
    }
}
