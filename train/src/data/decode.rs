//! JPEG and PNG into images, with limits on what a file may ask for.
//!
//! The format is told from the first bytes, never from the name. A header is checked before memory is taken for what it
//! promises, and every mistake becomes an error with the path.

use std::fs::{self, File};
use std::io::{Cursor, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};

use super::image::Image;
use crate::error::{Error, Result};

/// Scans of a JPEG at most: a progressive one has about ten, and each takes the time of a whole image.
const MAX_SCANS: usize = 100;

/// The channels of decoded images.
///
/// ```
/// use retape_train::data::Channels;
///
/// assert_eq!([Channels::Grey, Channels::Rgb, Channels::Rgba].map(Channels::count), [1, 3, 4]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Channels {
    /// One channel; colours become grey by the weights of sRGB (ITU-R BT.709).
    Grey,
    /// Red, green and blue; grey is repeated, and transparency is dropped.
    #[default]
    Rgb,
    /// Red, green, blue and opacity; opaque where the file says nothing.
    Rgba,
}

impl Channels {
    /// The number of channels.
    pub fn count(self) -> usize {
        match self {
            Channels::Grey => 1,
            Channels::Rgb => 3,
            Channels::Rgba => 4,
        }
    }
}

/// How files become images, and the limits that guard it.
///
/// Images have byte pixels; files of 16 bits a channel are rounded to 8.
///
/// ```no_run
/// use retape_train::data::{Channels, Decoding};
///
/// let grey = Decoding { channels: Channels::Grey, ..Decoding::default() };
/// let image = grey.read("scans/0001.png")?;
/// assert_eq!(image.channels(), 1);
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoding {
    /// The channels of the images; red, green and blue by default.
    pub channels: Channels,
    /// Whether images are turned upright by the orientation that a camera wrote into the file (EXIF); not by default.
    pub upright: bool,
    /// Bytes of a file at most; 128 MiB by default.
    pub max_file_bytes: u64,
    /// Bytes of the decoded pixels at most; 128 MiB by default, enough for 44 million pixels in colour.
    ///
    /// A decoder may take a few times that while it works.
    pub max_pixel_bytes: u64,
}

impl Default for Decoding {
    fn default() -> Decoding {
        Decoding { channels: Channels::Rgb, upright: false, max_file_bytes: 128 << 20, max_pixel_bytes: 128 << 20 }
    }
}

impl Decoding {
    /// Reads the image in a file.
    ///
    /// # Errors
    ///
    /// Fails with the path if the file cannot be read, is no file, is larger than allowed, or as
    /// [`decode`](Decoding::decode).
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Image> {
        let path = path.as_ref();
        // Asked before the file is opened: to open a pipe that nobody writes to would wait for ever.
        let metadata = fs::metadata(path).map_err(Error::io(path))?;
        if !metadata.is_file() {
            return Err(Error::format(path, "is no file"));
        }
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(Error::io(path))?;
        file.take(self.max_file_bytes.saturating_add(1)).read_to_end(&mut bytes).map_err(Error::io(path))?;
        self.decoded(&bytes).map_err(|what| Error::format(path, what))
    }

    /// Decodes the bytes of a JPEG or PNG file.
    ///
    /// ```
    /// use retape_train::data::Decoding;
    ///
    /// let error = Decoding::default().decode(b"GIF89a and more").expect_err("neither JPEG nor PNG");
    /// assert_eq!(error.to_string(), "is GIF, and only JPEG and PNG are read");
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the bytes are of another format, damaged, cut off, more than allowed, or promise more pixels than
    /// allowed.
    pub fn decode(&self, bytes: &[u8]) -> Result<Image> {
        self.decoded(bytes).map_err(|what| Error::argument_at(what, None))
    }

    /// As [`decode`](Decoding::decode), with the error in words that follow a path.
    fn decoded(&self, bytes: &[u8]) -> Result<Image, String> {
        if bytes.len() as u64 > self.max_file_bytes {
            return Err(format!("has more than {} bytes", self.max_file_bytes));
        }
        // The decoders are to return errors on any input; a mistake of theirs costs one image and not the program.
        catch_unwind(AssertUnwindSafe(|| self.decoded_by_format(bytes)))
            .unwrap_or_else(|_| Err("made its decoder panic".to_owned()))
    }

    fn decoded_by_format(&self, bytes: &[u8]) -> Result<Image, String> {
        if bytes.is_empty() {
            return Err("is empty".to_owned());
        }
        match image::guess_format(bytes) {
            Ok(ImageFormat::Jpeg) => check_jpeg(bytes)?,
            Ok(ImageFormat::Png) => {}
            Ok(other) => {
                let name = other.extensions_str().first().unwrap_or(&"another format").to_uppercase();
                return Err(format!("is {name}, and only JPEG and PNG are read"));
            }
            Err(_) => return Err("is neither JPEG nor PNG".to_owned()),
        }
        let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(|e| e.to_string())?;
        let mut limits = Limits::default();
        limits.max_alloc = Some(self.max_pixel_bytes);
        reader.limits(limits);
        let mut decoder = reader.into_decoder().map_err(|e| format!("cannot be decoded: {e}"))?;
        self.check_size(&decoder)?;
        let orientation = if self.upright { decoder.orientation().ok() } else { None };
        let mut decoded = DynamicImage::from_decoder(decoder).map_err(|e| format!("cannot be decoded: {e}"))?;
        if let Some(orientation) = orientation {
            decoded.apply_orientation(orientation);
        }
        let (height, width) = (decoded.height() as usize, decoded.width() as usize);
        let values = match self.channels {
            Channels::Grey => decoded.into_luma8().into_raw(),
            Channels::Rgb => decoded.into_rgb8().into_raw(),
            Channels::Rgba => decoded.into_rgba8().into_raw(),
        };
        Image::from_u8(values, [height, width, self.channels.count()]).map_err(|_| "has no pixels".to_owned())
    }

    /// Refuses an image that would take more memory than allowed, as the file has it or as it is asked for.
    fn check_size(&self, decoder: &impl ImageDecoder) -> Result<(), String> {
        let (width, height) = decoder.dimensions();
        let wanted = (u64::from(width) * u64::from(height)).saturating_mul(self.channels.count() as u64);
        let n_bytes = wanted.max(decoder.total_bytes());
        if n_bytes <= self.max_pixel_bytes {
            return Ok(());
        }
        let most = self.max_pixel_bytes;
        Err(format!("promises {width}x{height} pixels, {n_bytes} bytes; at most {most} bytes are decoded"))
    }
}

/// Refuses a JPEG that is cut off or has too many scans.
///
/// The decoder fills up what is missing with grey, so that half an image would go unnoticed. Its markers say where it
/// ends (ITU-T T.81, annex B); bytes after the end are allowed.
fn check_jpeg(bytes: &[u8]) -> Result<(), String> {
    let (mut rest, mut n_scans) = (&bytes[2..], 0);
    // Coded data escape their 0xFF by a zero, so the next 0xFF that no zero follows begins a marker.
    while let Some(start) = rest.iter().position(|&byte| byte == 0xFF) {
        rest = &rest[start + 1..];
        let Some(&marker) = rest.first() else { break };
        match marker {
            // An escaped byte, a fill byte (the next marker may begin at it), or a marker without a segment.
            0x00 | 0xFF | 0x01 | 0xD0..=0xD8 => rest = &rest[usize::from(marker != 0xFF)..],
            0xD9 => return Ok(()),
            _ => {
                n_scans += usize::from(marker == 0xDA);
                if n_scans > MAX_SCANS {
                    return Err(format!("has more than {MAX_SCANS} scans"));
                }
                let [_, high, low, ..] = *rest else { break };
                let end = 1 + usize::from(u16::from_be_bytes([high, low]));
                let Some(after) = rest.get(end..) else { break };
                rest = after;
            }
        }
    }
    Err("is cut off: the end of the JPEG is missing".to_owned())
}
