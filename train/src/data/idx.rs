//! Images and labels from IDX files, the format of MNIST and Fashion-MNIST.

use std::path::Path;
use std::sync::Arc;

use retape::data::{IdxValues, read_idx};

use super::dataset::{Dataset, Labelled, check_index};
use super::image::Image;
use crate::error::{Error, Result};

/// Images and labels of two IDX files, plain or compressed by gzip, held in main memory.
///
/// Examples are an image of shape `[height, width, 1]`, or `[height, width, channels]` for files of four axes, with byte
/// pixels, and its label.
///
/// ```no_run
/// use retape_train::data::{Dataset, IdxImages};
///
/// let train = IdxImages::open("mnist/train-images-idx3-ubyte.gz", "mnist/train-labels-idx1-ubyte.gz")?;
/// assert_eq!(train.get(0)?.0.shape(), [28, 28, 1]);
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdxImages {
    pixels: Arc<[u8]>,
    labels: Arc<[u8]>,
    shape: [usize; 3],
}

impl IdxImages {
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
