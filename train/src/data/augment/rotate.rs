//! Rotation by an angle, bilinear between pixels.

use retape::data::{Random, sin_cos_degrees};

use super::pipeline::Augment;
use super::window::Border;
use crate::data::image::{Image, PixelValue, Pixels};
use crate::error::{Error, Result};

/// Turns an image about its centre by an angle uniform in a range; the size stays.
///
/// Pixel `(y, x)` of the result is the bilinear mean of the four pixels about the place that the turn takes there. The
/// centre is `((height - 1) / 2, (width - 1) / 2)`. Positive angles turn counter-clockwise by the eye.
///
/// ```
/// use retape::data::Random;
/// use retape_train::data::augment::{Augment, Rotation};
/// use retape_train::data::{Image, Pixels};
///
/// let image = Image::from_u8(vec![0, 0, 0, 0, 0, 5, 0, 0, 9], [3, 3, 1])?;
/// let quarter = Rotation::by(90.0)?.apply(image, &mut Random::new(0, 0, 0))?;
/// assert_eq!(quarter.pixels(), &Pixels::U8(vec![0, 5, 9, 0, 0, 0, 0, 0, 0]));
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rotation {
    least: f64,
    most: f64,
    border: Border,
}

impl Rotation {
    /// Turns by an angle uniform in `[-degrees, degrees]`; black comes in.
    ///
    /// # Errors
    ///
    /// Fails if `degrees` is negative, infinite or NaN.
    #[track_caller]
    pub fn within(degrees: f64) -> Result<Rotation> {
        if !(0.0..f64::INFINITY).contains(&degrees) {
            return Err(Error::argument(format!("rotation within {degrees} degrees: not a range about zero")));
        }
        Ok(Rotation { least: -degrees, most: degrees, border: Border::Constant(0.0) })
    }

    /// Turns every image by the same angle; black comes in.
    ///
    /// # Errors
    ///
    /// Fails if `degrees` is infinite or NaN.
    #[track_caller]
    pub fn by(degrees: f64) -> Result<Rotation> {
        if !degrees.is_finite() {
            return Err(Error::argument(format!("rotation by {degrees} degrees: not an angle")));
        }
        Ok(Rotation { least: degrees, most: degrees, border: Border::Constant(0.0) })
    }

    /// Says what comes in from beyond the borders.
    pub fn border(self, border: Border) -> Rotation {
        Rotation { border, ..self }
    }
}

impl Augment for Rotation {
    fn name(&self) -> &str {
        "rotation"
    }

    fn apply(&self, image: Image, random: &mut Random) -> Result<Image> {
        let degrees = random.uniform(self.least, self.most);
        let shape = image.shape();
        let pixels = match image.pixels() {
            Pixels::U8(values) => Pixels::U8(rotated(values, shape, degrees, self.border)),
            Pixels::F32(values) => Pixels::F32(rotated(values, shape, degrees, self.border)),
        };
        Ok(Image::filled(pixels, shape))
    }
}

fn rotated<T: PixelValue>(values: &[T], shape: [usize; 3], degrees: f64, border: Border) -> Vec<T> {
    let [height, width, channels] = shape;
    let (sin, cos) = sin_cos_degrees(degrees);
    let (middle_y, middle_x) = ((height as f64 - 1.0) / 2.0, (width as f64 - 1.0) / 2.0);
    let fill: T = border.fill();
    let pixel = |row: isize, column: isize| {
        let (row, column) = border.place(row, height).zip(border.place(column, width))?;
        Some(&values[(row * width + column) * channels..][..channels])
    };
    let mut out = Vec::with_capacity(values.len());
    for at in 0..height * width {
        // Rows grow downwards, so a counter-clockwise turn by the eye is undone by this matrix.
        let (y, x) = ((at / width) as f64 - middle_y, (at % width) as f64 - middle_x);
        let (row, column) = (middle_y + x * sin + y * cos, middle_x + x * cos - y * sin);
        let (top, left) = (row.floor(), column.floor());
        let (down, right) = ((row - top) as f32, (column - left) as f32);
        let (top, left) = (top as isize, left as isize);
        let corners = [pixel(top, left), pixel(top, left + 1), pixel(top + 1, left), pixel(top + 1, left + 1)];
        for channel in 0..channels {
            let [nw, ne, sw, se] = corners.map(|corner| corner.map_or(fill, |values| values[channel]).float());
            let (upper, lower) = (nw * (1.0 - right) + ne * right, sw * (1.0 - right) + se * right);
            out.push(T::rounded(upper * (1.0 - down) + lower * down));
        }
    }
    out
}
