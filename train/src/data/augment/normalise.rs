//! Normalisation of channels by a mean and a standard deviation.

use std::borrow::Cow;

use retape::data::Random;

use super::pipeline::Augment;
use crate::data::image::{Image, Pixels};
use crate::error::{Error, Result};

/// Subtracts a mean from each channel and divides by a standard deviation; both are of pixels in `[0, 1]`.
///
/// Results are floats: `(x - mean) / deviation`, a byte `b` counting as `b / 255`.
///
/// ```
/// use retape::data::Random;
/// use retape_train::data::augment::{Augment, Normalisation};
/// use retape_train::data::{Image, Pixels};
///
/// let image = Image::from_u8(vec![0, 255], [1, 2, 1])?;
/// let normalised = Normalisation::new([0.5], [0.25])?.apply(image, &mut Random::new(0, 0, 0))?;
/// assert_eq!(normalised.pixels(), &Pixels::F32(vec![-2.0, 2.0]));
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Normalisation {
    mean: Cow<'static, [f32]>,
    deviation: Cow<'static, [f32]>,
}

impl Normalisation {
    /// The means and standard deviations of the 50,000 training images of CIFAR-10.
    pub const CIFAR10: Normalisation = Normalisation {
        mean: Cow::Borrowed(&[0.4914, 0.4822, 0.4465]),
        deviation: Cow::Borrowed(&[0.2470, 0.2435, 0.2616]),
    };

    /// The means and standard deviations that networks for ImageNet are usually trained with (torchvision's).
    pub const IMAGENET: Normalisation =
        Normalisation { mean: Cow::Borrowed(&[0.485, 0.456, 0.406]), deviation: Cow::Borrowed(&[0.229, 0.224, 0.225]) };

    /// Normalises by one mean and one standard deviation for each channel.
    ///
    /// # Errors
    ///
    /// Fails if their numbers differ, a mean is not finite, or a deviation is not finite and positive.
    #[track_caller]
    pub fn new(mean: impl Into<Vec<f32>>, deviation: impl Into<Vec<f32>>) -> Result<Normalisation> {
        let (mean, deviation): (Vec<f32>, Vec<f32>) = (mean.into(), deviation.into());
        if mean.len() != deviation.len() {
            return Err(Error::argument(format!("{} means and {} deviations", mean.len(), deviation.len())));
        }
        if let Some(mean) = mean.iter().find(|mean| !mean.is_finite()) {
            return Err(Error::argument(format!("{mean} is no mean of pixels")));
        }
        if let Some(deviation) = deviation.iter().find(|&&deviation| !(deviation > 0.0 && deviation.is_finite())) {
            return Err(Error::argument(format!("{deviation} is no standard deviation to divide by")));
        }
        Ok(Normalisation { mean: mean.into(), deviation: deviation.into() })
    }
}

impl Augment for Normalisation {
    fn name(&self) -> &str {
        "normalisation"
    }

    fn apply(&self, image: Image, _: &mut Random) -> Result<Image> {
        let shape = image.shape();
        let n_channels = self.mean.len();
        if shape[2] != n_channels {
            let channels = shape[2];
            return Err(Error::example(format!("{channels} channels cannot be normalised by {n_channels} means")));
        }
        let mut values = image.into_floats();
        for pixel in values.chunks_exact_mut(n_channels) {
            for ((value, mean), deviation) in pixel.iter_mut().zip(self.mean.iter()).zip(self.deviation.iter()) {
                *value = (*value - mean) / deviation;
            }
        }
        Ok(Image::filled(Pixels::F32(values), shape))
    }
}
