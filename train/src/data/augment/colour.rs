//! Colour jitter: brightness, contrast, saturation and hue.

use retape::data::Random;

use super::pipeline::Augment;
use crate::data::image::{Image, Pixels};
use crate::error::{Error, Result};

/// Changes brightness, contrast, saturation and hue, in this order, each by a number drawn for the whole image.
///
/// With pixels in `[0, 1]`, `grey = 0.299 r + 0.587 g + 0.114 b` (ITU-R BT.601; of an image of one channel, the channel)
/// and every result clamped to `[0, 1]`:
///
/// - brightness: `f x`;
/// - contrast: `f x + (1 - f) m`, where `m` is the mean of `grey` over the image;
/// - saturation: `f x + (1 - f) grey`;
/// - hue: the colour as hue, saturation and value (Smith, "Color gamut transform pairs", 1978), its hue moved by `h`
///   turns.
///
/// The factor `f` is uniform in `[max(0, 1 - a), 1 + a]` for the amount `a` of each, `h` in `[-a, a]`; an amount of zero
/// changes nothing. These are torchvision's formulas, which shuffles the order besides. Images have one channel, of which
/// saturation and hue change nothing, or three.
///
/// ```
/// use retape::data::Random;
/// use retape_train::data::Image;
/// use retape_train::data::augment::{Augment, ColourJitter};
///
/// let jitter = ColourJitter::new().brightness(0.4).contrast(0.4).saturation(0.4).hue(0.1);
/// let image = Image::from_f32(vec![0.2, 0.5, 0.7], [1, 1, 3])?;
/// assert_eq!(jitter.apply(image, &mut Random::new(1, 2, 3))?.shape(), [1, 1, 3]);
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ColourJitter {
    brightness: f64,
    contrast: f64,
    saturation: f64,
    hue: f64,
}

impl ColourJitter {
    /// Changes nothing yet.
    pub fn new() -> ColourJitter {
        ColourJitter::default()
    }

    /// Sets the amount of brightness, not negative.
    pub fn brightness(self, amount: f64) -> ColourJitter {
        ColourJitter { brightness: amount, ..self }
    }

    /// Sets the amount of contrast, not negative.
    pub fn contrast(self, amount: f64) -> ColourJitter {
        ColourJitter { contrast: amount, ..self }
    }

    /// Sets the amount of saturation, not negative.
    pub fn saturation(self, amount: f64) -> ColourJitter {
        ColourJitter { saturation: amount, ..self }
    }

    /// Sets the amount of hue, in turns of the colour wheel from 0 to 0.5.
    pub fn hue(self, amount: f64) -> ColourJitter {
        ColourJitter { hue: amount, ..self }
    }

    fn check(&self, channels: usize) -> Result<()> {
        for (amount, most, of) in [
            (self.brightness, f64::MAX, "brightness"),
            (self.contrast, f64::MAX, "contrast"),
            (self.saturation, f64::MAX, "saturation"),
            (self.hue, 0.5, "hue"),
        ] {
            if !(0.0..=most).contains(&amount) {
                return Err(Error::example(format!("{amount} is no amount of {of} to jitter by")));
            }
        }
        if ![1, 3].contains(&channels) {
            return Err(Error::example(format!("colour jitter of {channels} channels; it takes one or three")));
        }
        Ok(())
    }
}

impl Augment for ColourJitter {
    fn name(&self) -> &str {
        "colour jitter"
    }

    fn apply(&self, image: Image, random: &mut Random) -> Result<Image> {
        let shape = image.shape();
        self.check(shape[2])?;
        // All four are drawn, so that one amount set to zero leaves the others' numbers as they are.
        let mut factor = |amount: f64| random.uniform((1.0 - amount).max(0.0), 1.0 + amount) as f32;
        let [brightness, contrast, saturation] = [self.brightness, self.contrast, self.saturation].map(&mut factor);
        let turns = random.uniform(-self.hue, self.hue) as f32;
        let was_bytes = matches!(image.pixels(), Pixels::U8(_));
        let mut values = image.into_floats();
        if self.brightness > 0.0 {
            values.iter_mut().for_each(|value| *value = (brightness * *value).clamp(0.0, 1.0));
        }
        if self.contrast > 0.0 {
            let mean = mean_grey(&values, shape[2]);
            values.iter_mut().for_each(|value| *value = blend(*value, mean, contrast));
        }
        if shape[2] == 3 {
            let (pixels, _) = values.as_chunks_mut::<3>();
            if self.saturation > 0.0 {
                for pixel in &mut *pixels {
                    let grey = grey(*pixel);
                    *pixel = pixel.map(|value| blend(value, grey, saturation));
                }
            }
            if self.hue > 0.0 {
                pixels.iter_mut().for_each(|pixel| *pixel = with_hue_moved(*pixel, turns));
            }
        }
        let image = Image::filled(Pixels::F32(values), shape);
        Ok(if was_bytes { image.into_u8() } else { image })
    }
}

/// `factor` of one number and the rest of another.
fn blend(value: f32, other: f32, factor: f32) -> f32 {
    (factor * value + (1.0 - factor) * other).clamp(0.0, 1.0)
}

fn grey([r, g, b]: [f32; 3]) -> f32 {
    0.299 * r + 0.587 * g + 0.114 * b
}

fn mean_grey(values: &[f32], channels: usize) -> f32 {
    let sum: f64 = match channels {
        3 => values.as_chunks::<3>().0.iter().map(|&pixel| f64::from(grey(pixel))).sum(),
        _ => values.iter().map(|&value| f64::from(value)).sum(),
    };
    (sum / (values.len() / channels) as f64) as f32
}

/// The colour whose hue is `turns` further round the wheel.
fn with_hue_moved(rgb: [f32; 3], turns: f32) -> [f32; 3] {
    let [r, g, b] = rgb.map(|value| value.clamp(0.0, 1.0));
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    let chroma = most - least;
    if chroma == 0.0 {
        return [r, g, b];
    }
    // In sixths of a turn, red at 0, green at 2 and blue at 4.
    let hue = if most == r {
        (g - b) / chroma
    } else if most == g {
        2.0 + (b - r) / chroma
    } else {
        4.0 + (r - g) / chroma
    };
    let hue = (hue + 6.0 * turns).rem_euclid(6.0);
    // Each primary falls from the most to the least as the hue goes away from it, between one and two sixths.
    [0.0, 2.0, 4.0].map(|primary: f32| {
        let distance = (hue - primary).abs();
        let distance = distance.min(6.0 - distance);
        most - chroma * (distance - 1.0).clamp(0.0, 1.0)
    })
}
