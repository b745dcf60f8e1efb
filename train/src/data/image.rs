//! Images in main memory: rows, columns and channels of bytes or floats, and their way into tensors.
//!
//! A byte `b` stands for the number `b / 255`, so both kinds of pixels have the range `[0, 1]`; floats may leave it.

use std::panic::Location;

use retape::{Caller, Tensor};

use crate::error::{Error, Result};

/// The pixels of an image, row-major: rows, then columns, then channels.
///
/// ```
/// use retape_train::data::{Image, Pixels};
///
/// match Image::from_u8(vec![3, 4], [2, 1, 1])?.into_pixels() {
///     Pixels::U8(bytes) => assert_eq!(bytes, [3, 4]),
///     Pixels::F32(_) => unreachable!("bytes stay bytes"),
/// }
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Pixels {
    /// Bytes, each standing for a 255th.
    U8(Vec<u8>),
    /// Floats, usually in `[0, 1]`.
    F32(Vec<f32>),
}

impl Pixels {
    /// The number of values.
    pub fn len(&self) -> usize {
        match self {
            Pixels::U8(values) => values.len(),
            Pixels::F32(values) => values.len(),
        }
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An image of `height` rows, `width` columns and `channels` values in each pixel; no extent is zero.
///
/// ```
/// use retape_train::data::Image;
///
/// let image = Image::from_u8(vec![0, 51, 102, 153, 204, 255], [1, 2, 3])?;
/// assert_eq!((image.height(), image.width(), image.channels()), (1, 2, 3));
/// assert_eq!(image.value(0, 1, 2), Some(1.0));
/// assert_eq!(image.to_tensor()?.shape(), [1, 2, 3]);
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    shape: [usize; 3],
    pixels: Pixels,
}

impl Image {
    /// The image of these bytes, of shape `[height, width, channels]`.
    ///
    /// # Errors
    ///
    /// Fails if an extent is zero or the number of bytes is not the product of the extents.
    #[track_caller]
    pub fn from_u8(values: Vec<u8>, shape: [usize; 3]) -> Result<Image> {
        Image::new(Pixels::U8(values), shape)
    }

    /// The image of these floats, of shape `[height, width, channels]`.
    ///
    /// # Errors
    ///
    /// Fails if an extent is zero or the number of floats is not the product of the extents.
    #[track_caller]
    pub fn from_f32(values: Vec<f32>, shape: [usize; 3]) -> Result<Image> {
        Image::new(Pixels::F32(values), shape)
    }

    /// The image of these pixels, of shape `[height, width, channels]`.
    ///
    /// # Errors
    ///
    /// Fails if an extent is zero or the number of values is not the product of the extents.
    #[track_caller]
    pub fn new(pixels: Pixels, shape: [usize; 3]) -> Result<Image> {
        let [height, width, channels] = shape;
        let n_values = height.checked_mul(width).and_then(|n| n.checked_mul(channels));
        if shape.contains(&0) || n_values != Some(pixels.len()) {
            let n = pixels.len();
            return Err(Error::argument(format!("{n} values are no image of shape [{height}, {width}, {channels}]")));
        }
        Ok(Image { shape, pixels })
    }

    /// The image of pixels that are known to fill the shape.
    pub(super) fn filled(pixels: Pixels, shape: [usize; 3]) -> Image {
        debug_assert_eq!(pixels.len(), shape.iter().product::<usize>());
        Image { shape, pixels }
    }

    /// The number of rows.
    pub fn height(&self) -> usize {
        self.shape[0]
    }

    /// The number of columns.
    pub fn width(&self) -> usize {
        self.shape[1]
    }

    /// The number of values in each pixel: 1 for grey, 3 for red, green and blue.
    pub fn channels(&self) -> usize {
        self.shape[2]
    }

    /// Height, width and channels.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// The pixels.
    pub fn pixels(&self) -> &Pixels {
        &self.pixels
    }

    /// The pixels, without a copy.
    pub fn into_pixels(self) -> Pixels {
        self.pixels
    }

    /// One value as a float, a byte divided by 255; none outside the image.
    pub fn value(&self, row: usize, column: usize, channel: usize) -> Option<f32> {
        let [height, width, channels] = self.shape;
        if row >= height || column >= width || channel >= channels {
            return None;
        }
        let at = (row * width + column) * channels + channel;
        Some(match &self.pixels {
            Pixels::U8(values) => f32::from(values[at]) / 255.0,
            Pixels::F32(values) => values[at],
        })
    }

    /// The image with float pixels: bytes divided by 255, floats as they are.
    ///
    /// ```
    /// use retape_train::data::{Image, Pixels};
    ///
    /// let image = Image::from_u8(vec![0, 255], [1, 2, 1])?.into_f32();
    /// assert_eq!(image.pixels(), &Pixels::F32(vec![0.0, 1.0]));
    /// # Ok::<(), retape_train::Error>(())
    /// ```
    pub fn into_f32(self) -> Image {
        let shape = self.shape;
        Image { shape, pixels: Pixels::F32(self.into_floats()) }
    }

    /// The image with byte pixels: floats times 255, rounded, halves up, and clamped to a byte; NaN becomes 0.
    ///
    /// ```
    /// use retape_train::data::{Image, Pixels};
    ///
    /// let image = Image::from_f32(vec![-0.5, 0.5, 2.0], [1, 3, 1])?.into_u8();
    /// assert_eq!(image.pixels(), &Pixels::U8(vec![0, 128, 255]));
    /// # Ok::<(), retape_train::Error>(())
    /// ```
    pub fn into_u8(self) -> Image {
        let pixels = match self.pixels {
            Pixels::F32(values) => values.iter().map(|&value| u8::rounded(255.0 * value)).collect(),
            Pixels::U8(values) => values,
        };
        Image { shape: self.shape, pixels: Pixels::U8(pixels) }
    }

    /// The pixels as floats.
    pub(super) fn into_floats(self) -> Vec<f32> {
        match self.pixels {
            Pixels::U8(values) => values.iter().map(|&byte| f32::from(byte) / 255.0).collect(),
            Pixels::F32(values) => values,
        }
    }

    /// Appends the pixels as floats.
    fn append_floats(&self, to: &mut Vec<f32>) {
        match &self.pixels {
            Pixels::U8(values) => to.extend(values.iter().map(|&byte| f32::from(byte) / 255.0)),
            Pixels::F32(values) => to.extend_from_slice(values),
        }
    }

    /// The image as an `f32` tensor of shape `[height, width, channels]`; bytes are divided by 255.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for it.
    pub fn to_tensor(&self) -> Result<Tensor> {
        let mut values = Vec::with_capacity(self.pixels.len());
        self.append_floats(&mut values);
        Ok(Tensor::from_vec(values, self.shape)?)
    }

    /// Images of one shape as an `f32` tensor of shape `[batch, height, width, channels]`; bytes are divided by 255.
    ///
    /// ```
    /// use retape_train::data::Image;
    ///
    /// let image = Image::from_f32(vec![0.25, 0.5], [1, 2, 1])?;
    /// let batch = Image::stack_f32(&[image.clone(), image.clone(), image])?;
    /// assert_eq!(batch.shape(), [3, 1, 2, 1]);
    /// # Ok::<(), retape_train::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if there are no images, or their shapes differ.
    #[track_caller]
    pub fn stack_f32(images: &[Image]) -> Result<Tensor> {
        Image::stack_at(images, Some(Location::caller()))
    }

    /// As [`stack_f32`](Image::stack_f32), at a line of the program or at none.
    pub(super) fn stack_at(images: &[Image], at: Option<Caller>) -> Result<Tensor> {
        let shape = Image::stacked_shape(images, at)?;
        let mut values = Vec::with_capacity(shape.iter().product());
        images.iter().for_each(|image| image.append_floats(&mut values));
        Ok(Tensor::from_vec(values, shape)?)
    }

    /// Byte images of one shape as a `u8` tensor of shape `[batch, height, width, channels]`.
    ///
    /// A quarter of the bytes to copy to a GPU; the model casts to `f32` and divides by 255.
    ///
    /// # Errors
    ///
    /// Fails if there are no images, their shapes differ, or one of them has float pixels.
    #[track_caller]
    pub fn stack_u8(images: &[Image]) -> Result<Tensor> {
        let shape = Image::stacked_shape(images, Some(Location::caller()))?;
        let mut values = Vec::with_capacity(shape.iter().product());
        for (place, image) in images.iter().enumerate() {
            let Pixels::U8(bytes) = &image.pixels else {
                return Err(Error::argument(format!("image {place} of the batch has float pixels, not bytes")));
            };
            values.extend_from_slice(bytes);
        }
        Ok(Tensor::from_vec(values, shape)?)
    }

    /// The shape of the batch of these images.
    fn stacked_shape(images: &[Image], at: Option<Caller>) -> Result<[usize; 4]> {
        let Some(first) = images.first() else {
            return Err(Error::argument_at("no images to stack", at));
        };
        if let Some(place) = images.iter().position(|image| image.shape != first.shape) {
            let other = images[place].shape;
            let first = first.shape;
            let message = format!(
                "images of one batch have one shape: image 0 is {first:?}, image {place} is {other:?}; resize or crop them"
            );
            return Err(Error::argument_at(message, at));
        }
        let [height, width, channels] = first.shape;
        Ok([images.len(), height, width, channels])
    }
}

/// A kind of pixel value, for the code that works on both.
///
/// Interpolation takes place in `f32`, on the scale of the kind: 0 to 255 for bytes.
pub(super) trait PixelValue: Copy + Default + Send {
    /// The value as a float, on its own scale.
    fn float(self) -> f32;

    /// The nearest value of the kind.
    fn rounded(value: f32) -> Self;

    /// The value that stands for a number in `[0, 1]`.
    fn of_unit(unit: f32) -> Self;
}

impl PixelValue for u8 {
    fn float(self) -> f32 {
        f32::from(self)
    }

    fn rounded(value: f32) -> u8 {
        // The conversion truncates and clamps, and takes NaN to zero.
        (value + 0.5) as u8
    }

    fn of_unit(unit: f32) -> u8 {
        u8::rounded(255.0 * unit)
    }
}

impl PixelValue for f32 {
    fn float(self) -> f32 {
        self
    }

    fn rounded(value: f32) -> f32 {
        value
    }

    fn of_unit(unit: f32) -> f32 {
        unit
    }
}
