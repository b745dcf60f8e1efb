//! Draws a sheet of synthetic digits, one row per class: `cargo run --example digit_sheet [out.png] [seed]`.
//!
//! Images are as generated: turned by up to 45 degrees to either side.

#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::env;
use std::error::Error;
use std::fs::File;
use std::io::BufWriter;

use retape::data::Digits;

/// Images per row, and pixels on the sheet per pixel of an image.
const COLUMNS: usize = 20;
const ZOOM: usize = 2;
const CELL: usize = (Digits::SIDE + 2) * ZOOM;
const WIDTH: usize = COLUMNS * CELL;
const HEIGHT: usize = Digits::CLASSES * CELL;

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).unwrap_or_else(|| "target/digit_sheet.png".into());
    let seed = env::args().nth(2).map_or(Ok(1), |seed| seed.parse())?;
    let digits = Digits::generate(seed, COLUMNS * Digits::CLASSES)?;
    let mut sheet = vec![140; WIDTH * HEIGHT];
    let mut next = [0; Digits::CLASSES];
    for (image, &label) in digits.images.chunks_exact(Digits::PIXELS).zip(&digits.labels) {
        let row = usize::from(label);
        paste(&mut sheet, image, row, next[row]);
        next[row] += 1;
    }
    let mut png = png::Encoder::new(BufWriter::new(File::create(&path)?), WIDTH as u32, HEIGHT as u32);
    png.set_color(png::ColorType::Grayscale);
    png.write_header()?.write_image_data(&sheet)?;
    Ok(())
}

/// Copies `image` to a cell of the sheet, black on white.
fn paste(sheet: &mut [u8], image: &[f32], row: usize, column: usize) {
    for y in 0..Digits::SIDE * ZOOM {
        for x in 0..Digits::SIDE * ZOOM {
            let ink = image[y / ZOOM * Digits::SIDE + x / ZOOM];
            sheet[(row * CELL + ZOOM + y) * WIDTH + column * CELL + ZOOM + x] = ((1.0 - ink) * 255.0).round() as u8;
        }
    }
}
