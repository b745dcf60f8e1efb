//! Noise: pixels that turn black or white, and values that are off by a little.

use retape::data::Random;

use super::normal::Normal;
use super::pipeline::Augment;
use crate::data::image::{Image, PixelValue, Pixels};
use crate::error::{Error, Result};

/// Sets a share of the pixels to black or white, as broken cells of a sensor do.
///
/// Each pixel draws one number `u` uniform in `[0, 1)`, row by row: with the fraction `f` and the share of white `w`, it
/// turns white in all channels if `u < f w`, black if `f w <= u < f`, and stays as it is otherwise. So a fraction of `f`
/// is changed on average, and half of that is white unless asked otherwise. White is 1, of bytes 255.
///
/// ```
/// use retape::data::Random;
/// use retape_train::data::augment::{Augment, SaltAndPepper};
/// use retape_train::data::{Image, Pixels};
///
/// let image = Image::from_u8(vec![128; 28 * 28], [28, 28, 1])?;
/// let noisy = SaltAndPepper::new(0.1)?.apply(image, &mut Random::new(1, 2, 3))?;
/// let Pixels::U8(bytes) = noisy.pixels() else { unreachable!("bytes stay bytes") };
/// assert!(bytes.iter().all(|byte| [0, 128, 255].contains(byte)));
/// assert!((40..120).contains(&bytes.iter().filter(|byte| **byte != 128).count())); // 78 on average
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SaltAndPepper {
    fraction: f64,
    white: f64,
}

impl SaltAndPepper {
    /// Changes each pixel with the probability `fraction`, to black as often as to white.
    ///
    /// # Errors
    ///
    /// Fails if `fraction` is not in `[0, 1]`.
    #[track_caller]
    pub fn new(fraction: f64) -> Result<SaltAndPepper> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(Error::argument(format!("{fraction} is no fraction of pixels to turn black or white")));
        }
        Ok(SaltAndPepper { fraction, white: 0.5 })
    }

    /// Sets the share of white among the changed pixels; the others turn black.
    ///
    /// # Errors
    ///
    /// Fails if `share` is not in `[0, 1]`.
    #[track_caller]
    pub fn white(self, share: f64) -> Result<SaltAndPepper> {
        if !(0.0..=1.0).contains(&share) {
            return Err(Error::argument(format!("{share} is no share of white among changed pixels")));
        }
        Ok(SaltAndPepper { white: share, ..self })
    }

    fn change<T: PixelValue>(self, values: &mut [T], channels: usize, random: &mut Random) {
        for pixel in values.chunks_exact_mut(channels) {
            let drawn = random.unit();
            if drawn < self.fraction {
                let is_white = drawn < self.fraction * self.white;
                pixel.fill(T::of_unit(if is_white { 1.0 } else { 0.0 }));
            }
        }
    }
}

impl Augment for SaltAndPepper {
    fn name(&self) -> &str {
        "salt and pepper"
    }

    fn apply(&self, image: Image, random: &mut Random) -> Result<Image> {
        let shape = image.shape();
        let mut pixels = image.into_pixels();
        match &mut pixels {
            Pixels::U8(values) => self.change(values, shape[2], random),
            Pixels::F32(values) => self.change(values, shape[2], random),
        }
        Ok(Image::filled(pixels, shape))
    }
}

/// Adds to each value, of every channel, a number of its own from a normal distribution of mean zero.
///
/// With pixels in `[0, 1]`, the result is `x + deviation z`, clamped to `[0, 1]`, where `z` has the standard normal
/// distribution. A byte is rounded, halves up.
///
/// ```
/// use retape::data::Random;
/// use retape_train::data::augment::{Augment, GaussianNoise, Normalisation};
/// use retape_train::data::{ExampleRandom, Image};
///
/// let image = Image::from_f32(vec![0.5; 8 * 8], [8, 8, 1])?;
/// let noisy = GaussianNoise::new(0.1)?.apply(image.clone(), &mut Random::new(1, 2, 3))?;
/// assert!(noisy != image && noisy.value(0, 0, 0).is_some_and(|value| (0.0..=1.0).contains(&value)));
///
/// // Normalised pixels leave [0, 1], so nothing may be clamped.
/// let normalised = Normalisation::new([0.5], [0.25])?.apply(image, &mut Random::new(0, 0, 0))?;
/// GaussianNoise::new(0.1)?.unclamped().apply(normalised, &mut Random::new(1, 2, 3))?;
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GaussianNoise {
    deviation: f64,
    is_clamped: bool,
}

impl GaussianNoise {
    /// Adds numbers of this standard deviation, in units of pixels in `[0, 1]`.
    ///
    /// # Errors
    ///
    /// Fails if `deviation` is negative, infinite or NaN.
    #[track_caller]
    pub fn new(deviation: f64) -> Result<GaussianNoise> {
        if !(0.0..f64::INFINITY).contains(&deviation) {
            return Err(Error::argument(format!("{deviation} is no standard deviation of noise")));
        }
        Ok(GaussianNoise { deviation, is_clamped: true })
    }

    /// Lets float results leave `[0, 1]`, as normalised pixels do.
    pub fn unclamped(self) -> GaussianNoise {
        GaussianNoise { is_clamped: false, ..self }
    }
}

impl Augment for GaussianNoise {
    fn name(&self) -> &str {
        "Gaussian noise"
    }

    fn apply(&self, image: Image, random: &mut Random) -> Result<Image> {
        let shape = image.shape();
        let was_bytes = matches!(image.pixels(), Pixels::U8(_));
        let mut values = image.into_floats();
        let mut normal = Normal::new(random);
        for value in &mut values {
            let noisy = (f64::from(*value) + self.deviation * normal.draw()) as f32;
            *value = if self.is_clamped { noisy.clamp(0.0, 1.0) } else { noisy };
        }
        let image = Image::filled(Pixels::F32(values), shape);
        Ok(if was_bytes { image.into_u8() } else { image })
    }
}
