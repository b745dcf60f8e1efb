//! Resizing: bilinear, with antialiasing where the image shrinks.

use retape::data::Random;

use super::pipeline::Augment;
use crate::data::image::{Image, PixelValue, Pixels};
use crate::error::{Error, Result};

/// Values of a resized image at most; 2^28, a gibibyte of floats.
const MAX_VALUES: usize = 1 << 28;

/// Resizes an image by a triangle filter: bilinear interpolation where it grows, an antialiased mean where it shrinks.
///
/// Along an axis that goes from `n` to `m` pixels, let `s = n / m`. Result `i` lies at `c = (i + 0.5) s`, and pixel `j`
/// counts by `max(0, 1 - |j + 0.5 - c| / max(s, 1))`, over the sum of all such weights. Rows and columns are filtered in
/// turn. This is what Pillow's `BILINEAR` and torchvision with `antialias=True` compute.
///
/// ```
/// use retape::data::Random;
/// use retape_train::data::Image;
/// use retape_train::data::augment::{Augment, Resize};
///
/// let image = Image::from_u8(vec![9; 100 * 200 * 3], [100, 200, 3])?;
/// let mut none = Random::new(0, 0, 0);
/// assert_eq!(Resize::to(64, 64).apply(image.clone(), &mut none)?.shape(), [64, 64, 3]);
/// assert_eq!(Resize::shorter_side(32).apply(image, &mut none)?.shape(), [32, 64, 3]);
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resize {
    target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Size([usize; 2]),
    ShorterSide(usize),
}

impl Resize {
    /// Resizes to `height` rows and `width` columns.
    pub fn to(height: usize, width: usize) -> Resize {
        Resize { target: Target::Size([height, width]) }
    }

    /// Resizes so that the shorter side has `pixels` pixels, and the longer one as many as keep the proportions, rounded
    /// down.
    pub fn shorter_side(pixels: usize) -> Resize {
        Resize { target: Target::ShorterSide(pixels) }
    }

    /// The size that an image of these extents gets; none if it is too large for the numbers of this machine.
    fn size(&self, height: usize, width: usize) -> Option<[usize; 2]> {
        match self.target {
            Target::Size(size) => Some(size),
            Target::ShorterSide(pixels) if height <= width => Some([pixels, width.checked_mul(pixels)? / height]),
            Target::ShorterSide(pixels) => Some([height.checked_mul(pixels)? / width, pixels]),
        }
    }
}

impl Augment for Resize {
    fn name(&self) -> &str {
        "resize"
    }

    fn apply(&self, image: Image, _: &mut Random) -> Result<Image> {
        let [height, width, channels] = image.shape();
        let fits = |&[rows, columns]: &[usize; 2]| {
            // Between the two filters, the image has the new columns and the old rows.
            let n_values = rows.max(height).checked_mul(columns).and_then(|n| n.checked_mul(channels));
            rows > 0 && columns > 0 && n_values.is_some_and(|n| n <= MAX_VALUES)
        };
        let Some([rows, columns]) = self.size(height, width).filter(fits) else {
            let target = match self.target {
                Target::Size([rows, columns]) => format!("{rows}x{columns}"),
                Target::ShorterSide(pixels) => format!("a shorter side of {pixels}"),
            };
            return Err(Error::example(format!(
                "an image of {height}x{width}x{channels} cannot be resized to {target}: a result has at least one pixel \
                 and at most {MAX_VALUES} values"
            )));
        };
        if [rows, columns] == [height, width] {
            return Ok(image);
        }
        let pixels = match image.pixels() {
            Pixels::U8(values) => Pixels::U8(resized(values, image.shape(), [rows, columns])),
            Pixels::F32(values) => Pixels::F32(resized(values, image.shape(), [rows, columns])),
        };
        Ok(Image::filled(pixels, [rows, columns, channels]))
    }
}

/// The pixels that one pixel of the result is a mean of, along one axis.
struct Taps {
    first: usize,
    /// They sum to one.
    weights: Vec<f32>,
}

/// The taps of every result along an axis that goes from `n` to `m` pixels.
fn taps(n: usize, m: usize) -> Vec<Taps> {
    let scale = n as f64 / m as f64;
    let support = scale.max(1.0);
    let at = |i: usize| {
        let centre = (i as f64 + 0.5) * scale;
        let first = (centre - support - 0.5).ceil().max(0.0) as usize;
        let last = ((centre + support - 0.5).floor() as usize).min(n - 1);
        let weight = |j: usize| (1.0 - (j as f64 + 0.5 - centre).abs() / support).max(0.0);
        let sum: f64 = (first..=last).map(weight).sum();
        Taps { first, weights: (first..=last).map(|j| (weight(j) / sum) as f32).collect() }
    };
    (0..m).map(at).collect()
}

/// Filters along columns, then along rows.
fn resized<T: PixelValue>(values: &[T], [height, width, channels]: [usize; 3], [rows, columns]: [usize; 2]) -> Vec<T> {
    let horizontal = taps(width, columns);
    let row_len = columns * channels;
    let mut narrowed = vec![0.0_f32; height * row_len];
    for (source, target) in values.chunks_exact(width * channels).zip(narrowed.chunks_exact_mut(row_len)) {
        for (taps, pixel) in horizontal.iter().zip(target.chunks_exact_mut(channels)) {
            let sources = source[taps.first * channels..].chunks_exact(channels);
            for (weight, source) in taps.weights.iter().zip(sources) {
                pixel.iter_mut().zip(source).for_each(|(sum, value)| *sum += weight * value.float());
            }
        }
    }
    let mut out = Vec::with_capacity(rows * row_len);
    let mut sums = vec![0.0_f32; row_len];
    for taps in taps(height, rows) {
        sums.fill(0.0);
        let sources = narrowed[taps.first * row_len..].chunks_exact(row_len);
        for (weight, source) in taps.weights.iter().zip(sources) {
            sums.iter_mut().zip(source).for_each(|(sum, value)| *sum += weight * value);
        }
        out.extend(sums.iter().map(|&sum| T::rounded(sum)));
    }
    out
}
