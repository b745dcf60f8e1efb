//! Reflection, translation and cropping: pixels move, none is interpolated.

use retape::data::Random;

use super::pipeline::Augment;
use super::window::{Border, window};
use crate::data::image::{Image, PixelValue, Pixels};
use crate::error::{Error, Result};

/// Reflects an image, left to right or top to bottom, with probability one half or as asked.
///
/// ```
/// use retape::data::Random;
/// use retape_train::data::augment::{Augment, Reflection};
/// use retape_train::data::{Image, Pixels};
///
/// let image = Image::from_u8(vec![1, 2, 3], [1, 3, 1])?;
/// let always = Reflection::horizontal().probability(1.0)?;
/// let reflected = always.apply(image, &mut Random::new(1, 2, 3))?;
/// assert_eq!(reflected.pixels(), &Pixels::U8(vec![3, 2, 1]));
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reflection {
    is_horizontal: bool,
    probability: f64,
}

impl Reflection {
    /// Swaps left and right.
    pub fn horizontal() -> Reflection {
        Reflection { is_horizontal: true, probability: 0.5 }
    }

    /// Swaps top and bottom.
    pub fn vertical() -> Reflection {
        Reflection { is_horizontal: false, probability: 0.5 }
    }

    /// Sets the probability of a reflection.
    ///
    /// # Errors
    ///
    /// Fails if it is not in `[0, 1]`.
    #[track_caller]
    pub fn probability(self, probability: f64) -> Result<Reflection> {
        if !(0.0..=1.0).contains(&probability) {
            return Err(Error::argument(format!("{probability} is no probability of a reflection")));
        }
        Ok(Reflection { probability, ..self })
    }
}

impl Augment for Reflection {
    fn name(&self) -> &str {
        if self.is_horizontal { "horizontal reflection" } else { "vertical reflection" }
    }

    fn apply(&self, image: Image, random: &mut Random) -> Result<Image> {
        if random.unit() >= self.probability {
            return Ok(image);
        }
        let shape = image.shape();
        let pixels = match image.into_pixels() {
            Pixels::U8(values) => Pixels::U8(reflected(values, shape, self.is_horizontal)),
            Pixels::F32(values) => Pixels::F32(reflected(values, shape, self.is_horizontal)),
        };
        Ok(Image::filled(pixels, shape))
    }
}

fn reflected<T: PixelValue>(mut values: Vec<T>, [height, width, channels]: [usize; 3], is_horizontal: bool) -> Vec<T> {
    let row_len = width * channels;
    if is_horizontal {
        for row in values.chunks_exact_mut(row_len) {
            // Backwards as a whole, pixels swap places and so do the channels of each.
            row.reverse();
            row.chunks_exact_mut(channels).for_each(<[T]>::reverse);
        }
    } else {
        let (upper, lower) = values.split_at_mut(height / 2 * row_len);
        for (row, opposite) in upper.chunks_exact_mut(row_len).zip(lower.rchunks_exact_mut(row_len)) {
            row.swap_with_slice(opposite);
        }
    }
    values
}

/// Moves an image by a whole number of rows and columns, uniform and independent in a range about zero.
///
/// ```
/// use retape::data::Random;
/// use retape_train::data::Image;
/// use retape_train::data::augment::{Augment, Border, Translation};
///
/// // At most 2 rows and 5 columns; what comes in is grey.
/// let translation = Translation::within(2, 5).border(Border::Constant(0.5));
/// let image = Image::from_u8(vec![7; 28 * 28], [28, 28, 1])?;
/// assert_eq!(translation.apply(image, &mut Random::new(1, 2, 3))?.shape(), [28, 28, 1]);
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Translation {
    rows: u32,
    columns: u32,
    border: Border,
}

impl Translation {
    /// Moves by `-rows..=rows` rows and `-columns..=columns` columns, each number as likely as any other; black comes in.
    pub fn within(rows: u32, columns: u32) -> Translation {
        Translation { rows, columns, border: Border::Constant(0.0) }
    }

    /// Says what comes in from beyond the borders.
    pub fn border(self, border: Border) -> Translation {
        Translation { border, ..self }
    }
}

impl Augment for Translation {
    fn name(&self) -> &str {
        "translation"
    }

    fn apply(&self, image: Image, random: &mut Random) -> Result<Image> {
        let mut offset = |most: u32| random.below(2 * most as usize + 1) as isize - most as isize;
        let at = (offset(self.rows), offset(self.columns));
        Ok(window(&image, at, [image.height(), image.width()], self.border))
    }
}

/// Cuts out a part of fixed size at a random place, after padding if asked; every place is equally likely.
///
/// `RandomCrop::new(32, 32).padding(4, Border::Reflect)` is the translation by -4 to 4 pixels that networks for CIFAR-10
/// are usually trained with.
///
/// ```
/// use retape::data::Random;
/// use retape_train::data::Image;
/// use retape_train::data::augment::{Augment, RandomCrop};
///
/// let image = Image::from_u8(vec![7; 40 * 60], [40, 60, 1])?;
/// assert_eq!(RandomCrop::new(32, 48).apply(image, &mut Random::new(1, 2, 3))?.shape(), [32, 48, 1]);
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomCrop {
    size: [usize; 2],
    padding: u32,
    border: Border,
}

impl RandomCrop {
    /// Cuts out `height` rows and `width` columns.
    pub fn new(height: usize, width: usize) -> RandomCrop {
        RandomCrop { size: [height, width], padding: 0, border: Border::Constant(0.0) }
    }

    /// Adds `pixels` rows and columns on each side before the cut.
    pub fn padding(self, pixels: u32, border: Border) -> RandomCrop {
        RandomCrop { padding: pixels, border, ..self }
    }
}

impl Augment for RandomCrop {
    fn name(&self) -> &str {
        "random crop"
    }

    fn apply(&self, image: Image, random: &mut Random) -> Result<Image> {
        let padding = self.padding as usize;
        let mut start = |extent: usize, wanted: usize| {
            let spare = (extent + 2 * padding).checked_sub(wanted).filter(|_| wanted > 0)?;
            Some(random.below(spare + 1) as isize - padding as isize)
        };
        let (top, left) = (start(image.height(), self.size[0]), start(image.width(), self.size[1]));
        let Some(at) = top.zip(left) else {
            return Err(does_not_fit(&image, self.size, padding));
        };
        Ok(window(&image, at, self.size, self.border))
    }
}

/// Cuts out the middle; half a row or column goes up and left.
///
/// ```
/// use retape::data::Random;
/// use retape_train::data::augment::{Augment, CentreCrop};
/// use retape_train::data::{Image, Pixels};
///
/// let image = Image::from_u8(vec![1, 2, 3, 4, 5], [1, 5, 1])?;
/// let middle = CentreCrop::new(1, 2).apply(image, &mut Random::new(0, 0, 0))?;
/// assert_eq!(middle.pixels(), &Pixels::U8(vec![2, 3]));
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CentreCrop {
    size: [usize; 2],
}

impl CentreCrop {
    /// Cuts out `height` rows and `width` columns.
    pub fn new(height: usize, width: usize) -> CentreCrop {
        CentreCrop { size: [height, width] }
    }
}

impl Augment for CentreCrop {
    fn name(&self) -> &str {
        "centre crop"
    }

    fn apply(&self, image: Image, _: &mut Random) -> Result<Image> {
        let start = |extent: usize, wanted: usize| {
            let spare = extent.checked_sub(wanted).filter(|_| wanted > 0)?;
            Some((spare / 2) as isize)
        };
        let (top, left) = (start(image.height(), self.size[0]), start(image.width(), self.size[1]));
        let Some(at) = top.zip(left) else {
            return Err(does_not_fit(&image, self.size, 0));
        };
        Ok(window(&image, at, self.size, Border::Edge))
    }
}

fn does_not_fit(image: &Image, [height, width]: [usize; 2], padding: usize) -> Error {
    let padded = if padding == 0 { String::new() } else { format!(" padded by {padding} on each side") };
    Error::example(format!(
        "a crop of {height}x{width} does not fit an image of {}x{}{padded}",
        image.height(),
        image.width()
    ))
}
