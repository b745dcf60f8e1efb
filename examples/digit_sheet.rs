//! Draws a sheet of synthetic digits, one row per class: `cargo run --example digit_sheet [out.png] [seed]`.
//!
//! Images are as generated: turned by up to 45 degrees to either side.

#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::env;
use std::error::Error;

use retape::data::Digits;
use tiny_skia::{Color, Pixmap, PremultipliedColorU8};

/// Images per row, and pixels on the sheet per pixel of an image.
const COLUMNS: usize = 20;
const ZOOM: usize = 2;
const CELL: usize = (Digits::SIDE + 2) * ZOOM;

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).unwrap_or_else(|| "target/digit_sheet.png".into());
    let seed = env::args().nth(2).map_or(Ok(1), |seed| seed.parse())?;
    let digits = Digits::generate(seed, COLUMNS * Digits::CLASSES)?;
    let side = |cells: usize| (cells * CELL) as u32;
    let mut sheet = Pixmap::new(side(COLUMNS), side(Digits::CLASSES)).ok_or("the sheet is empty")?;
    sheet.fill(Color::from_rgba8(120, 140, 160, 255));
    let mut next = [0; Digits::CLASSES];
    for (image, &label) in digits.images.chunks_exact(Digits::PIXELS).zip(&digits.labels) {
        let row = usize::from(label);
        paste(&mut sheet, image, row, next[row]);
        next[row] += 1;
    }
    sheet.save_png(&path)?;
    Ok(())
}

/// Copies `image` to a cell of the sheet, black on white.
fn paste(sheet: &mut Pixmap, image: &[f32], row: usize, column: usize) {
    let width = sheet.width() as usize;
    for y in 0..Digits::SIDE * ZOOM {
        for x in 0..Digits::SIDE * ZOOM {
            let ink = image[y / ZOOM * Digits::SIDE + x / ZOOM];
            let gray = ((1.0 - ink) * 255.0).round() as u8;
            let at = (row * CELL + ZOOM + y) * width + column * CELL + ZOOM + x;
            if let Some(color) = PremultipliedColorU8::from_rgba(gray, gray, gray, 255) {
                sheet.pixels_mut()[at] = color;
            }
        }
    }
}
