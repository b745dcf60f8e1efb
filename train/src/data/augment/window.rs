//! Windows onto an image that may reach beyond its borders.

use crate::data::image::{Image, PixelValue, Pixels};

/// The pixels beyond the borders of an image.
///
/// ```
/// use retape::data::Random;
/// use retape_train::data::augment::{Augment, Border, RandomCrop};
/// use retape_train::data::{Image, Pixels};
///
/// // A crop as large as the padded image has no choice.
/// let padded = |border| {
///     let image = Image::from_u8(vec![1, 2, 3], [1, 3, 1]).expect("three bytes");
///     RandomCrop::new(5, 7).padding(2, border).apply(image, &mut Random::new(0, 0, 0))
/// };
/// let row = |border| -> retape_train::Result<Vec<u8>> {
///     match padded(border)?.into_pixels() {
///         Pixels::U8(values) => Ok(values[14..21].to_vec()),
///         Pixels::F32(_) => unreachable!("bytes stay bytes"),
///     }
/// };
/// assert_eq!(row(Border::Constant(1.0))?, [255, 255, 1, 2, 3, 255, 255]);
/// assert_eq!(row(Border::Edge)?, [1, 1, 1, 2, 3, 3, 3]);
/// assert_eq!(row(Border::Reflect)?, [3, 2, 1, 2, 3, 2, 1]);
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Border {
    /// One number in every channel, in `[0, 1]` also for images of bytes.
    Constant(f32),
    /// The nearest pixel of the image.
    Edge,
    /// The image reflected in its outermost pixels, which are not repeated; again and again if need be.
    Reflect,
}

impl Border {
    /// The place within `0..len` that place `at` shows; none if a constant is there.
    pub(super) fn place(self, at: isize, len: usize) -> Option<usize> {
        let inside = usize::try_from(at).ok().filter(|&at| at < len);
        match self {
            _ if inside.is_some() => inside,
            Border::Constant(_) => None,
            Border::Edge => Some(if at < 0 { 0 } else { len - 1 }),
            Border::Reflect => {
                let period = (2 * (len - 1)).max(1);
                let within = at.rem_euclid(period as isize) as usize;
                Some(within.min(period - within).min(len - 1))
            }
        }
    }

    /// The value beyond the borders, where no pixel of the image is shown.
    pub(super) fn fill<T: PixelValue>(self) -> T {
        match self {
            Border::Constant(value) => T::of_unit(value),
            Border::Edge | Border::Reflect => T::default(),
        }
    }
}

/// The part of an image of `height` rows and `width` columns whose first pixel is at `(top, left)`.
pub(super) fn window(image: &Image, (top, left): (isize, isize), [height, width]: [usize; 2], border: Border) -> Image {
    let shape = image.shape();
    let columns: Vec<Option<usize>> =
        (0..width).map(|column| border.place(left.saturating_add_unsigned(column), shape[1])).collect();
    let rows: Vec<Option<usize>> =
        (0..height).map(|row| border.place(top.saturating_add_unsigned(row), shape[0])).collect();
    let pixels = match image.pixels() {
        Pixels::U8(values) => Pixels::U8(gather(values, shape, &rows, &columns, border.fill())),
        Pixels::F32(values) => Pixels::F32(gather(values, shape, &rows, &columns, border.fill())),
    };
    Image::filled(pixels, [height, width, shape[2]])
}

/// The pixels at all pairs of these rows and columns, `fill` where there is none.
fn gather<T: PixelValue>(
    values: &[T],
    [_, width, channels]: [usize; 3],
    rows: &[Option<usize>],
    columns: &[Option<usize>],
    fill: T,
) -> Vec<T> {
    let mut out = Vec::with_capacity(rows.len() * columns.len() * channels);
    for row in rows {
        let end = out.len() + columns.len() * channels;
        if let Some(row) = row {
            let row = &values[row * width * channels..][..width * channels];
            for column in columns {
                match column {
                    Some(column) => out.extend_from_slice(&row[column * channels..][..channels]),
                    None => out.resize(out.len() + channels, fill),
                }
            }
        }
        out.resize(end, fill);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps along the line, turning round at both ends.
    fn walked(at: isize, len: usize) -> usize {
        let (mut place, mut step) = (0_isize, 1_isize);
        for _ in 0..at.unsigned_abs() {
            if place + step < 0 || place + step >= len as isize {
                step = -step;
            }
            if len > 1 {
                place += step;
            }
        }
        place as usize
    }

    #[test]
    fn reflection_walks_to_and_fro() {
        for len in 1..6 {
            for at in -20..20 {
                assert_eq!(Border::Reflect.place(at, len), Some(walked(at, len)), "{at} of {len}");
            }
        }
    }

    #[test]
    fn far_places_stay_in_the_image() {
        for border in [Border::Edge, Border::Reflect] {
            for at in [isize::MIN, isize::MIN + 1, -1, 0, isize::MAX - 1, isize::MAX] {
                assert!(border.place(at, 7).is_some_and(|place| place < 7), "{border:?} {at}");
            }
        }
        assert_eq!(Border::Constant(0.0).place(isize::MIN, 7), None);
    }
}
