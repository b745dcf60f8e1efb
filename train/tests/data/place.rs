//! Folders of one test, and files in them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};

use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};
use retape::data::Random;

/// A new folder, removed with all its contents when it is dropped.
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new() -> Place {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("retape-data-{}-{number}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file, and the folders above it.
    pub(crate) fn file(&self, name: impl AsRef<Path>, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    pub(crate) fn folder(&self, name: impl AsRef<Path>) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Bytes drawn at random.
pub(crate) fn noise(seed: u64, n: usize) -> Vec<u8> {
    let mut random = Random::new(seed, 77, 0);
    (0..n).map(|_| random.below(256) as u8).collect()
}

/// A PNG file of bytes in this form.
pub(crate) fn png(pixels: &[u8], width: u32, height: u32, form: ExtendedColorType) -> Vec<u8> {
    let mut file = vec![];
    PngEncoder::new(&mut file).write_image(pixels, width, height, form).unwrap();
    file
}

/// A JPEG file of colours.
pub(crate) fn jpeg(pixels: &[u8], width: u32, height: u32) -> Vec<u8> {
    let mut file = vec![];
    JpegEncoder::new_with_quality(&mut file, 95).write_image(pixels, width, height, ExtendedColorType::Rgb8).unwrap();
    file
}

/// Colours that change slowly, so that a JPEG keeps them.
pub(crate) fn smooth(width: usize, height: usize) -> Vec<u8> {
    let pixel = |at: usize| {
        let (row, column) = (at / width, at % width);
        [255 * column / width, 255 * row / height, 128].map(|value| value as u8)
    };
    (0..width * height).flat_map(pixel).collect()
}
