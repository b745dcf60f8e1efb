//! Pictures of a training: curves, bars, confusion matrices, differences of weights as SVG and PNG, and sheets of images.
//!
//! Pictures are on white, in colours that people tell apart however they see colours (M. Okabe and K. Ito's palette,
//! darkened where it is faint on white). Sizes are in units of SVG; a PNG has two pixels for each.
//!
//! ```
//! use retape_train::plot::{Curves, Plot};
//!
//! let training = (1..=100).map(|step| (step as f64, 1.0 / step as f64));
//! let validation = (1..=10).map(|step| (10.0 * step as f64, 0.2 / step as f64));
//! let curves = Curves::new("Loss").curve("training", training).curve("validation", validation).log();
//! let svg = curves.svg()?; // or `curves.save("loss.png")?`
//! assert!(svg.starts_with("<svg") && svg.contains("validation"));
//! # Ok::<(), retape_train::Error>(())
//! ```

mod bars;
mod canvas;
mod confusion_matrix;
mod contact_sheet;
mod curves;
mod difference;
mod lettering;
pub(crate) mod number;
mod ticks;

use std::fs;
use std::path::Path;

use plotters::prelude::{BitMapBackend, IntoDrawingArea, SVGBackend};

pub use bars::Bars;
pub use confusion_matrix::ConfusionMatrix;
pub use contact_sheet::ContactSheet;
pub use curves::Curves;
pub use difference::Difference;

use self::canvas::{Canvas, Draw, drawn};
use crate::{Error, Result};

/// Pixels of a PNG for each unit.
const PIXELS: usize = 2;

/// Pixels that are drawn for each pixel of a PNG, along each axis; their mean makes smooth edges.
const SAMPLES: usize = 3;

/// A picture, as the text of an SVG file and the bytes of a PNG file.
pub trait Plot: Draw {
    /// The picture as the text of an SVG file.
    ///
    /// # Errors
    ///
    /// Fails if the picture cannot be drawn: a defect of this library.
    fn svg(&self) -> Result<String> {
        let (width, height) = self.size();
        let mut text = String::new();
        {
            let area = SVGBackend::with_string(&mut text, (width, height)).into_drawing_area();
            self.draw(&Canvas::vector(&area))?;
            area.present().map_err(drawn)?;
        }
        Ok(named(&text, &self.title()))
    }

    /// The picture as the bytes of a PNG file.
    ///
    /// # Errors
    ///
    /// Fails if the picture cannot be drawn: a defect of this library.
    fn png(&self) -> Result<Vec<u8>> {
        encoded(&pixels(self)?)
    }

    /// Writes the picture to a file, whose name ends in `.svg` or `.png`, and makes the folders it is to be in.
    ///
    /// # Errors
    ///
    /// Fails if the name ends otherwise, or the system refuses.
    #[track_caller]
    fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let extension = path.extension().and_then(|extension| extension.to_str()).map(str::to_ascii_lowercase);
        let bytes = match extension.as_deref() {
            Some("svg") => self.svg()?.into_bytes(),
            Some("png") => self.png()?,
            _ => return Err(Error::argument(format!("{}: a picture is written as .svg or .png", path.display()))),
        };
        write(path, &bytes)
    }
}

impl<D: Draw> Plot for D {}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(Error::io(folder))?;
    }
    fs::write(path, bytes).map_err(Error::io(path))
}

/// The text of an SVG file with a title, which programs read to people who do not see the picture.
fn named(text: &str, title: &str) -> String {
    let escaped = title.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    match text.split_once('>') {
        Some((root, rest)) => format!("{root} role=\"img\"><title>{escaped}</title>{rest}"),
        None => text.to_owned(),
    }
}

/// The pixels of a picture.
fn pixels<D: Draw + ?Sized>(picture: &D) -> Result<image::RgbImage> {
    let unit = PIXELS * SAMPLES;
    let (width, height) = (picture.size().0 as usize * unit, picture.size().1 as usize * unit);
    let mut samples = vec![255; 3 * width * height];
    {
        let area = BitMapBackend::with_buffer(&mut samples, (width as u32, height as u32)).into_drawing_area();
        picture.draw(&Canvas::raster(&area, unit as f64))?;
        area.present().map_err(drawn)?;
    }
    Ok(means(&samples, width))
}

/// Squares of samples as pixels.
fn means(samples: &[u8], width: usize) -> image::RgbImage {
    let (columns, rows) = (width / SAMPLES, samples.len() / (3 * width) / SAMPLES);
    image::RgbImage::from_fn(columns as u32, rows as u32, |x, y| {
        let channel = |channel: usize| {
            let sample = |n: usize| {
                let (row, column) = (y as usize * SAMPLES + n / SAMPLES, x as usize * SAMPLES + n % SAMPLES);
                u32::from(samples[3 * (row * width + column) + channel])
            };
            let n_samples = (SAMPLES * SAMPLES) as u32;
            ((0..SAMPLES * SAMPLES).map(sample).sum::<u32>() + n_samples / 2) / n_samples
        };
        image::Rgb([0, 1, 2].map(|n| channel(n) as u8))
    })
}

fn encoded(picture: &image::RgbImage) -> Result<Vec<u8>> {
    let mut bytes = std::io::Cursor::new(vec![]);
    let written = picture.write_to(&mut bytes, image::ImageFormat::Png);
    written.map_err(|error| Error::Drawing(error.to_string()))?;
    Ok(bytes.into_inner())
}
