//! Drawn photos: five kinds of flowers before grass, leaves and other clutter, as JPEG files in a folder.
//!
//! Each photo depends on its number alone. Kinds differ in their shapes: colours, sizes, places and turns are random.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use image::codecs::jpeg::JpegEncoder;
use image::{ExtendedColorType, ImageEncoder};
use retape::data::{Random, sin_cos_degrees};
use retape_dist::Failure;

pub(crate) const KINDS: [&str; 5] = ["daisy", "dandelion", "rose", "sunflower", "tulip"];

/// The stream of random numbers that draw photos.
const PHOTO: u64 = 0x70686F746F;

type Colour = [f64; 3];

/// The folder of `n` photos in `out`; they are drawn if they are not there.
///
/// Several workers may do so at once, on a disk that they share or not: the folder gets its name when it is complete.
pub(crate) fn photos(out: &Path, n: usize, rank: usize) -> Result<PathBuf, Failure> {
    let folder = out.join(format!("photos-{n}"));
    if folder.is_dir() {
        return Ok(folder);
    }
    let unfinished = out.join(format!("photos-{n}-{}-{rank}", std::process::id()));
    for number in 0..n {
        let kind = number % KINDS.len();
        let class = unfinished.join(KINDS[kind]);
        fs::create_dir_all(&class)?;
        let photo = Photo::draw(&mut Random::new(1, PHOTO, number as u64), kind);
        let (width, height) = (photo.width as u32, photo.height as u32);
        let file = BufWriter::new(File::create(class.join(format!("{number:05}.jpg")))?);
        JpegEncoder::new_with_quality(file, 90).write_image(&photo.bytes(), width, height, ExtendedColorType::Rgb8)?;
    }
    let renamed = fs::rename(&unfinished, &folder);
    if renamed.is_err() && folder.is_dir() {
        // Another worker was faster, with the same photos.
        fs::remove_dir_all(&unfinished)?;
        return Ok(folder);
    }
    renamed?;
    Ok(folder)
}

struct Photo {
    width: usize,
    height: usize,
    pixels: Vec<Colour>,
}

/// Where a flower stands, and how large it is.
#[derive(Clone, Copy)]
struct Pose {
    x: f64,
    y: f64,
    radius: f64,
    /// In degrees.
    turn: f64,
}

/// An ellipse about a point.
#[derive(Clone, Copy)]
struct Ellipse {
    x: f64,
    y: f64,
    half_length: f64,
    half_width: f64,
    /// The direction of its length, in degrees.
    turn: f64,
}

impl Photo {
    fn draw(random: &mut Random, kind: usize) -> Photo {
        let (width, height) = (100 + random.below(61), 100 + random.below(61));
        let ground = [random.uniform(0.1, 0.5), random.uniform(0.25, 0.6), random.uniform(0.1, 0.45)];
        let mut photo = Photo { width, height, pixels: vec![ground; width * height] };
        for _ in 0..20 + random.below(25) {
            let colour = [random.uniform(0.05, 0.6), random.uniform(0.2, 0.7), random.uniform(0.05, 0.5)];
            photo.clutter(random, colour, 0.25);
        }
        let side = width.min(height) as f64;
        let pose = Pose {
            x: width as f64 * random.uniform(0.35, 0.65),
            y: height as f64 * random.uniform(0.35, 0.6),
            radius: side * random.uniform(0.26, 0.42),
            turn: random.uniform(0.0, 360.0),
        };
        match kind {
            0 => photo.daisy(random, pose),
            1 => photo.dandelion(random, pose),
            2 => photo.rose(random, pose),
            3 => photo.sunflower(random, pose),
            _ => {
                let turn = random.uniform(-25.0, 25.0);
                photo.tulip(random, Pose { turn, ..pose });
            }
        }
        for _ in 0..random.below(8) {
            photo.clutter(random, [0.2, 0.5, 0.15], 0.02);
        }
        photo
    }

    /// An ellipse anywhere, of a width of at most a part of the photo.
    fn clutter(&mut self, random: &mut Random, colour: Colour, most: f64) {
        let side = self.width as f64;
        let ellipse = Ellipse {
            x: random.uniform(0.0, self.width as f64),
            y: random.uniform(0.0, self.height as f64),
            half_length: side * random.uniform(0.05, 0.3),
            half_width: side * random.uniform(0.01, most),
            turn: random.uniform(0.0, 180.0),
        };
        self.paint(ellipse, colour);
    }

    /// Long petals that do not touch, about a small middle.
    fn daisy(&mut self, random: &mut Random, pose: Pose) {
        let (colour, n) = (bright(random), 11 + random.below(5));
        self.petals(random, pose, n, [0.6, 0.4, 0.09], colour);
        self.paint(disc(pose, 0.22), [0.95, 0.8, 0.15]);
    }

    /// Many thin rays.
    fn dandelion(&mut self, random: &mut Random, pose: Pose) {
        let colour = bright(random);
        for distance in [0.5, 0.3, 0.2] {
            self.petals(random, pose, 45, [distance, distance, 0.025], shaded(colour, 0.6 + 0.5 * distance));
        }
    }

    /// Rings of broad petals, each one over the ring outside it, and darker.
    fn rose(&mut self, random: &mut Random, pose: Pose) {
        let colour = bright(random);
        for ring in 0..5 {
            let size = 1.0 - 0.19 * f64::from(ring);
            let turned = Pose { turn: pose.turn + 31.0 * f64::from(ring), radius: pose.radius * size, ..pose };
            for (part, shade) in [(0.62, 0.75), (0.56, 1.0)] {
                let shade = shade * (1.0 - 0.11 * f64::from(ring));
                self.petals(random, turned, 5, [part, 0.38, 0.42], shaded(colour, shade));
            }
        }
    }

    /// Many short petals about a large dark middle with seeds.
    fn sunflower(&mut self, random: &mut Random, pose: Pose) {
        let colour = bright(random);
        self.petals(random, pose, 22, [0.75, 0.27, 0.11], colour);
        self.paint(disc(pose, 0.58), [0.3, 0.18, 0.08]);
        for _ in 0..40 {
            let (sin, cos) = sin_cos_degrees(random.uniform(0.0, 360.0));
            let from_middle = 0.52 * pose.radius * random.unit().sqrt();
            let seed = Pose { x: pose.x + cos * from_middle, y: pose.y + sin * from_middle, ..pose };
            self.paint(disc(seed, 0.04), [0.55, 0.4, 0.2]);
        }
    }

    /// A cup of three petals on a stem with two leaves.
    fn tulip(&mut self, random: &mut Random, pose: Pose) {
        let colour = bright(random);
        let radius = pose.radius;
        let mut part = |(right, down): (f64, f64), half_length: f64, half_width: f64, turn: f64, colour: Colour| {
            let (sin, cos) = sin_cos_degrees(pose.turn);
            let (x, y) = (pose.x + radius * (cos * right - sin * down), pose.y + radius * (sin * right + cos * down));
            let (half_length, half_width) = (radius * half_length, radius * half_width);
            self.paint(Ellipse { x, y, half_length, half_width, turn: turn + pose.turn }, colour);
        };
        let green = [0.2, 0.55, 0.2];
        part((0.0, 1.1), 0.9, 0.07, 90.0, green);
        part((-0.3, 1.3), 0.6, 0.11, 65.0, green);
        part((0.3, 1.3), 0.6, 0.11, 115.0, green);
        part((0.0, -0.2), 0.62, 0.3, 90.0, shaded(colour, 0.75));
        part((-0.25, -0.1), 0.62, 0.25, 76.0, colour);
        part((0.25, -0.1), 0.62, 0.25, 104.0, shaded(colour, 0.9));
    }

    /// A ring of `n` petals: distance from the middle, half the length and half the width, in radii.
    fn petals(&mut self, random: &mut Random, pose: Pose, n: usize, part: [f64; 3], colour: Colour) {
        for petal in 0..n {
            let turn = pose.turn + (petal as f64 + random.uniform(-0.12, 0.12)) * 360.0 / n as f64;
            let (sin, cos) = sin_cos_degrees(turn);
            let [distance, half_length, half_width] = part.map(|part| part * pose.radius);
            let (x, y) = (pose.x + cos * distance, pose.y + sin * distance);
            let shade = random.uniform(0.88, 1.0);
            self.paint(Ellipse { x, y, half_length, half_width, turn }, shaded(colour, shade));
        }
    }

    /// Paints an ellipse, at its edge over part of what is there.
    fn paint(&mut self, ellipse: Ellipse, colour: Colour) {
        let Ellipse { x, y, half_length, half_width, turn } = ellipse;
        let (sin, cos) = sin_cos_degrees(turn);
        let reach = half_length.max(half_width) + 1.0;
        let range =
            |middle: f64, n: usize| (middle - reach).max(0.0) as usize..n.min((middle + reach).max(0.0) as usize);
        for row in range(y, self.height) {
            for column in range(x, self.width) {
                let (right, down) = (column as f64 + 0.5 - x, row as f64 + 0.5 - y);
                let along = (right * cos + down * sin) / half_length;
                let across = (down * cos - right * sin) / half_width;
                let covered = ((1.0 - (along * along + across * across).sqrt()) * half_width + 0.5).clamp(0.0, 1.0);
                let pixel = &mut self.pixels[row * self.width + column];
                for (old, new) in pixel.iter_mut().zip(colour) {
                    *old += covered * (new - *old);
                }
            }
        }
    }

    fn bytes(&self) -> Vec<u8> {
        self.pixels.iter().flatten().map(|value| (255.0 * value.clamp(0.0, 1.0)).round() as u8).collect()
    }
}

fn disc(pose: Pose, part: f64) -> Ellipse {
    let half = part * pose.radius;
    Ellipse { x: pose.x, y: pose.y, half_length: half, half_width: half, turn: 0.0 }
}

/// A colour that petals of any kind may have: white, yellow, red, or one between.
fn bright(random: &mut Random) -> Colour {
    [random.uniform(0.75, 1.0), random.uniform(0.15, 1.0), random.uniform(0.1, 0.9)]
}

fn shaded(colour: Colour, shade: f64) -> Colour {
    colour.map(|value| value * shade)
}
