//! Many small images on one sheet.

use std::panic::Location;
use std::path::Path;

use image::{Rgb, RgbImage};
use plotters::prelude::DrawingBackend;
use retape::{Caller, DType, Tensor};

use super::canvas::{Canvas, Draw, EDGE, INK};
use super::lettering::Type;
use super::{PIXELS, encoded, write};
use crate::metrics::numbers::{numbers, refuse, type_of};
use crate::{Error, Result};

/// How large an image is shown at least, in units, by whole pixels for each of its own.
const LEAST: f64 = 56.0;

/// The room between cells, and for captions.
const GAP: f64 = 10.0;
const CAPTION: f64 = 18.0;

/// Images in rows, with captions: a look at a data set, or at what a model gets wrong.
///
/// Images are shown by whole pixels, small ones enlarged.
///
/// ```
/// use retape::Tensor;
/// use retape_train::plot::ContactSheet;
///
/// let images = Tensor::full([6, 8, 8, 3], 0.5_f32); // a batch of 8 x 8 in colour
/// let sheet = ContactSheet::new("The first batch", 3)?.batch(&images, ["cat", "dog", "cat"])?;
/// assert!(sheet.png()?.starts_with(b"\x89PNG"));
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ContactSheet {
    title: String,
    columns: usize,
    images: Vec<(RgbImage, String)>,
}

impl ContactSheet {
    /// No images yet, under a title, to be laid out in rows of `columns`.
    ///
    /// # Errors
    ///
    /// Fails if there are no columns.
    #[track_caller]
    pub fn new(title: &str, columns: usize) -> Result<ContactSheet> {
        if columns == 0 {
            return Err(Error::argument("contact sheet: there are no columns"));
        }
        Ok(ContactSheet { title: title.to_owned(), columns, images: vec![] })
    }

    /// Adds an image: `[height, width]` or `[height, width, 1]` is grey, `[height, width, 3]` red, green and blue.
    ///
    /// Floats are from 0, black, to 1, white, and numbers beyond are cut; `u8` from 0 to 255; `bool` is black or white.
    ///
    /// # Errors
    ///
    /// Fails if the tensor has another form or dtype, no pixels, is poisoned or being traced.
    #[track_caller]
    pub fn image(mut self, image: &Tensor, caption: &str) -> Result<ContactSheet> {
        let at = Location::caller();
        if let Some(error) = image.error() {
            return Err(error.clone().into());
        }
        let (shape, bytes) = (image.shape().to_vec(), bytes(image, at)?);
        self.images.push((pixels(image, &shape, &bytes, at)?, caption.to_owned()));
        Ok(self)
    }

    /// Adds a batch of images, whose first axis counts them, with captions for the first of them or for all.
    ///
    /// # Errors
    ///
    /// As [`image`](ContactSheet::image).
    #[track_caller]
    pub fn batch<S: AsRef<str>>(
        mut self,
        images: &Tensor,
        captions: impl IntoIterator<Item = S>,
    ) -> Result<ContactSheet> {
        let at = Location::caller();
        if let Some(error) = images.error() {
            return Err(error.clone().into());
        }
        let bytes = bytes(images, at)?;
        let mut captions = captions.into_iter();
        let shape = images.shape().get(1..).unwrap_or_default();
        let size = shape.iter().product::<usize>().max(1);
        for image in bytes.chunks(size) {
            let caption = captions.next().map_or(String::new(), |caption| caption.as_ref().to_owned());
            self.images.push((pixels(images, shape, image, at)?, caption));
        }
        Ok(self)
    }

    /// The sheet as the bytes of a PNG file.
    ///
    /// # Errors
    ///
    /// Fails if the sheet cannot be drawn: a defect of this library.
    pub fn png(&self) -> Result<Vec<u8>> {
        let paper = Paper { sheet: self, cell: self.cell() };
        let mut picture = super::pixels(&paper)?;
        for (n, (image, _)) in self.images.iter().enumerate() {
            let (zoom, (x, y)) = (self.zoom(), paper.place(n));
            let (left, top) = ((x * PIXELS as f64) as u32, (y * PIXELS as f64) as u32);
            for (column, row, pixel) in image.enumerate_pixels() {
                for k in 0..zoom * zoom {
                    let (x, y) = (left + column * zoom + k % zoom, top + row * zoom + k / zoom);
                    picture.put_pixel(x, y, *pixel);
                }
            }
        }
        encoded(&picture)
    }

    /// Writes the sheet to a PNG file, and makes the folders it is to be in.
    ///
    /// # Errors
    ///
    /// Fails if the system refuses.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        write(path.as_ref(), &self.png()?)
    }

    /// The extents of the largest image.
    fn largest(&self) -> (u32, u32) {
        let sizes = self.images.iter().map(|(image, _)| image.dimensions());
        sizes.fold((1, 1), |(width, height), size| (width.max(size.0), height.max(size.1)))
    }

    /// Pixels of the sheet for each of an image, along each axis.
    fn zoom(&self) -> u32 {
        let (width, height) = self.largest();
        (LEAST * PIXELS as f64 / f64::from(width.max(height))).ceil().max(1.0) as u32
    }

    /// The room for an image, in units.
    fn cell(&self) -> (f64, f64) {
        let (width, height) = self.largest();
        let units = |pixels: u32| (f64::from(pixels * self.zoom()) / PIXELS as f64).ceil();
        (units(width), units(height))
    }
}

/// Bytes from 0, black, to 255, white.
#[track_caller]
fn bytes(image: &Tensor, at: Caller) -> Result<Vec<u8>> {
    let scale = match image.dtype() {
        DType::U8 => 1.0,
        DType::F32 | DType::F64 | DType::F16 | DType::Bf16 | DType::Bool => 255.0,
        DType::I32 | DType::I64 | DType::U32 => {
            let what = format!("images are floats, u8 or bool, not {}", type_of(image));
            return Err(refuse("contact sheet", &what, at));
        }
    };
    // A cast cuts what is beyond, and makes NaN black.
    Ok(numbers(image)?.into_iter().map(|value| (scale * value).round() as u8).collect())
}

fn pixels(whole: &Tensor, shape: &[usize], bytes: &[u8], at: Caller) -> Result<RgbImage> {
    let size = |extent: usize| u32::try_from(extent).ok().filter(|extent| (1..=8192).contains(extent));
    let parts = match *shape {
        [height, width] => size(height).zip(size(width)).map(|size| (size, 1)),
        [height, width, channels @ (1 | 3)] => size(height).zip(size(width)).map(|size| (size, channels)),
        _ => None,
    };
    let Some(((height, width), channels)) = parts else {
        let what = format!("{} holds no images [height, width], with 1 or 3 channels or without", type_of(whole));
        return Err(refuse("contact sheet", &what, at));
    };
    Ok(RgbImage::from_fn(width, height, |x, y| {
        let first = (y as usize * width as usize + x as usize) * channels;
        let pixel = &bytes[first..first + channels];
        Rgb([pixel[0], pixel[channels / 2], pixel[channels - 1]])
    }))
}

/// All of a sheet except its images, which are put on it by whole pixels.
struct Paper<'a> {
    sheet: &'a ContactSheet,
    cell: (f64, f64),
}

impl Paper<'_> {
    fn caption_height(&self) -> f64 {
        if self.sheet.images.iter().any(|(_, caption)| !caption.is_empty()) { CAPTION } else { 0.0 }
    }

    /// The left upper corner of an image.
    fn place(&self, n: usize) -> (f64, f64) {
        let (row, column) = ((n / self.sheet.columns) as f64, (n % self.sheet.columns) as f64);
        let height = self.cell.1 + self.caption_height() + GAP;
        (EDGE + column * (self.cell.0 + GAP), 52.0 + row * height)
    }
}

impl Draw for Paper<'_> {
    fn size(&self) -> (u32, u32) {
        let n = self.sheet.images.len();
        let (x, _) = self.place(self.sheet.columns.min(n.max(1)) - 1);
        let (_, y) = self.place(n.max(1) - 1);
        let width = x + self.cell.0 + EDGE;
        (width.max(240.0) as u32, (y + self.cell.1 + self.caption_height() + EDGE) as u32)
    }

    fn title(&self) -> String {
        self.sheet.title.clone()
    }

    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<'_, DB>) -> Result<()> {
        canvas.clear()?;
        canvas.heading(&self.sheet.title, "")?;
        let type_ = Type::new(11.0, INK);
        for (n, (_, caption)) in self.sheet.images.iter().enumerate() {
            let (x, y) = self.place(n);
            let text = type_.fitted(caption, self.cell.0 + 4.0);
            canvas.text(&text, (x, y + self.cell.1 + CAPTION / 2.0 + 1.0), type_)?;
        }
        Ok(())
    }
}
