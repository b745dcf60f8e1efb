//! Synthetic handwritten digits, turned by known angles.
//!
//! Each image depends on `(seed, index)` alone and has the same bits on every platform and number of threads.
//! Classes are balanced: every ten images in a row, counted from the first, hold each digit once, in random order.
//!
//! A digit is one of several paths of a pen whose points jitter; the path is bent, slanted, stretched, turned and
//! moved, then drawn with a pen of random width. About ten microseconds per image.

use std::thread;

use super::error::DataError;
use super::minibatch::reserved;
use super::pen::{Canvas, Point2, spline};
use super::random::Random;
use super::rotate::{rotate_image, sin_cos_degrees};
use super::strokes::{DIGITS, Knot};

/// The streams of random numbers, by what they decide.
const ORDER: u64 = 1;
const SHAPE: u64 = 2;
const TURN: u64 = 3;

/// Grayscale images of digits with their labels and angles.
#[derive(Clone, Debug, PartialEq)]
pub struct Digits {
    /// The pixels, from 0 (paper) to 1 (ink): images, then rows, then columns.
    pub images: Vec<f32>,
    /// The digit on each image.
    pub labels: Vec<u8>,
    /// The angle in degrees by which each digit is turned counter-clockwise.
    pub angles: Vec<f32>,
}

impl Digits {
    /// Pixels along each side of an image.
    pub const SIDE: usize = 28;

    /// Pixels of an image.
    pub const PIXELS: usize = Self::SIDE * Self::SIDE;

    /// The number of different digits.
    pub const CLASSES: usize = 10;

    /// The largest angle, to either side, in degrees.
    pub const MAX_ANGLE: f32 = 45.0;

    /// Draws `n` digits turned by angles uniform in [-45, 45] degrees.
    ///
    /// Training and test sets are drawn with different seeds.
    ///
    /// ```
    /// use retape::data::Digits;
    ///
    /// let digits = Digits::generate(1, 20)?;
    /// assert_eq!(digits.images.len(), 20 * 28 * 28);
    /// assert_eq!(digits.labels.iter().filter(|&&label| label == 7).count(), 2);
    /// # Ok::<(), retape::data::DataError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If memory cannot hold so many images.
    pub fn generate(seed: u64, n: usize) -> Result<Digits, DataError> {
        Self::generate_on(available_threads(), seed, n)
    }

    fn generate_on(n_threads: usize, seed: u64, n: usize) -> Result<Digits, DataError> {
        let n_pixels = n.saturating_mul(Self::PIXELS);
        let mut images: Vec<f32> = reserved(n_pixels)?;
        images.resize(n_pixels, 0.0);
        let labels: Vec<u8> = (0..n as u64).map(|index| label_at(seed, index)).collect();
        let angles: Vec<f32> = (0..n as u64).map(|index| angle_at(seed, index)).collect();
        in_parts(n_threads, &mut images, |first, part| {
            let mut canvas = Canvas::new(Self::SIDE);
            for (index, image) in (first..).zip(part.chunks_exact_mut(Self::PIXELS)) {
                draw(&mut canvas, &mut Random::new(seed, SHAPE, index as u64), labels[index], angles[index]);
                canvas.ink(image);
            }
        });
        Ok(Digits { images, labels, angles })
    }

    /// Turns each image by a further angle uniform in [-45, 45] degrees; `angles` grow by it.
    ///
    /// Bilinear between pixels. Made for photographs of upright digits, such as MNIST.
    pub fn rotated(&self, seed: u64) -> Digits {
        let turns: Vec<f32> = (0..self.len() as u64).map(|index| angle_at(seed, index)).collect();
        let mut images = vec![0.0; self.len() * Self::PIXELS];
        in_parts(available_threads(), &mut images, |first, part| {
            for (index, image) in (first..).zip(part.chunks_exact_mut(Self::PIXELS)) {
                if let Some(source) = self.image(index) {
                    rotate_image(source, image, Self::SIDE, f64::from(turns[index]));
                }
            }
        });
        let angles = self.angles.iter().zip(&turns).map(|(angle, turn)| angle + turn).collect();
        Digits { images, labels: self.labels.clone(), angles }
    }

    /// The number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are no images.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The pixels of image `index`, row by row, if there is one.
    pub fn image(&self, index: usize) -> Option<&[f32]> {
        self.images.chunks_exact(Self::PIXELS).nth(index)
    }
}

fn available_threads() -> usize {
    thread::available_parallelism().map_or(1, |count| count.get())
}

/// Hands `images` out to threads: the index of the first image of each part, and the part.
fn in_parts(n_threads: usize, images: &mut [f32], fill: impl Fn(usize, &mut [f32]) + Sync) {
    let n_images = images.len() / Digits::PIXELS;
    let share = n_images.div_ceil(n_threads.max(1)).max(1);
    thread::scope(|scope| {
        for (part, images) in images.chunks_mut(share * Digits::PIXELS).enumerate() {
            let fill = &fill;
            scope.spawn(move || fill(part * share, images));
        }
    });
}

/// The digit at `index`: its place in the shuffle of its ten.
fn label_at(seed: u64, index: u64) -> u8 {
    let mut order = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    Random::new(seed, ORDER, index / 10).shuffle(&mut order);
    order[(index % 10) as usize]
}

/// The angle at `index`, in degrees.
fn angle_at(seed: u64, index: u64) -> f32 {
    let max = f64::from(Digits::MAX_ANGLE);
    Random::new(seed, TURN, index).uniform(-max, max) as f32
}

/// Draws one digit with all its accidents.
fn draw(canvas: &mut Canvas, random: &mut Random, label: u8, angle: f32) {
    canvas.clear();
    let handwritings = DIGITS[usize::from(label)];
    let handwriting = handwritings[random.below(handwritings.len())];
    let pose = Pose::new(random, f64::from(angle));
    let radius = random.uniform(0.85, 1.55);
    for stroke in handwriting {
        let knots: Vec<Knot> = stroke
            .iter()
            .map(|&Knot { x, y, corner }| {
                let jitter = 0.022;
                Knot { x: x + jitter * random.bell(), y: y + jitter * random.bell(), corner }
            })
            .collect();
        let points: Vec<Point2> = spline(&knots).into_iter().map(|point| pose.place(point)).collect();
        let pressure = (random.uniform(0.85, 1.1), random.uniform(0.8, 1.1));
        canvas.draw(&points, (radius * pressure.0, radius * pressure.1));
    }
}

/// Where the unit box of a digit lies on the picture.
struct Pose {
    /// How much the sides bend, per squared distance from the middle.
    bend: (f64, f64),
    slant: f64,
    size: (f64, f64),
    turn: (f64, f64),
    middle: Point2,
}

impl Pose {
    fn new(random: &mut Random, angle: f64) -> Pose {
        let height = random.uniform(16.5, 20.5);
        let centre = (Digits::SIDE as f64 - 1.0) / 2.0;
        Pose {
            bend: (0.10 * random.bell(), 0.08 * random.bell()),
            slant: 0.05 * random.bell(),
            size: (height * random.uniform(0.8, 1.05), height),
            turn: sin_cos_degrees(angle),
            middle: (centre + random.uniform(-1.2, 1.2), centre + random.uniform(-1.2, 1.2)),
        }
    }

    /// The pixel position of a point of the unit box.
    fn place(&self, point: Point2) -> Point2 {
        let (x, y) = (point.0 - 0.5, point.1 - 0.5);
        let (x, y) = (x - self.slant * y + self.bend.0 * y * y, y + self.bend.1 * x * x);
        let (x, y) = (x * self.size.0, y * self.size.1);
        // Rows grow downwards: this is a counter-clockwise turn by the eye.
        let (sin, cos) = self.turn;
        (self.middle.0 + x * cos + y * sin, self.middle.1 - x * sin + y * cos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_depend_on_seed_and_index_alone() {
        let digits = Digits::generate_on(1, 3, 103).unwrap();
        assert_eq!(digits, Digits::generate_on(4, 3, 103).unwrap());
        assert_eq!(digits, Digits::generate(3, 103).unwrap());
        let longer = Digits::generate(3, 150).unwrap();
        assert_eq!(digits.images, longer.images[..103 * Digits::PIXELS]);
        assert_eq!(digits.labels, longer.labels[..103]);
        assert_eq!(digits.angles, longer.angles[..103]);
        assert_ne!(digits, Digits::generate(4, 103).unwrap());
        assert!(Digits::generate(1, 0).unwrap().is_empty());
    }

    #[test]
    fn classes_are_balanced_and_shuffled() {
        let digits = Digits::generate(11, 1000).unwrap();
        for class in 0..10 {
            assert_eq!(digits.labels.iter().filter(|&&label| label == class).count(), 100);
        }
        let sorted = digits.labels.chunks(10).filter(|ten| ten.is_sorted()).count();
        assert!(sorted <= 1, "{sorted}");
    }

    #[test]
    fn angles_fill_their_range_and_pixels_stay_in_theirs() {
        let digits = Digits::generate(12, 2000).unwrap();
        assert!(digits.angles.iter().all(|angle| angle.abs() <= Digits::MAX_ANGLE));
        for tenth in 0..10 {
            let low = -45.0 + 9.0 * tenth as f32;
            let count = digits.angles.iter().filter(|&&angle| angle >= low && angle < low + 9.0).count();
            assert!((140..=260).contains(&count), "{tenth}: {count}");
        }
        assert!(digits.images.iter().all(|pixel| (0.0..=1.0).contains(pixel)));
        for image in digits.images.chunks_exact(Digits::PIXELS) {
            let ink: f32 = image.iter().sum();
            assert!((20.0..250.0).contains(&ink), "{ink}");
            let border: f32 = (0..28).map(|i| image[i] + image[27 * 28 + i] + image[i * 28] + image[i * 28 + 27]).sum();
            assert!(border < 8.0, "{border}");
        }
    }

    /// The share of `test` whose nearest mean image of `train` has the right label.
    fn accuracy_by_centroid(train: &Digits, test: &Digits) -> f64 {
        let mut centroids = vec![0.0_f32; 10 * Digits::PIXELS];
        for (image, &label) in train.images.chunks_exact(Digits::PIXELS).zip(&train.labels) {
            let centroid = &mut centroids[usize::from(label) * Digits::PIXELS..][..Digits::PIXELS];
            centroid.iter_mut().zip(image).for_each(|(sum, pixel)| *sum += pixel * 10.0 / train.len() as f32);
        }
        let is_right = |(image, label): (&[f32], &u8)| {
            let distance =
                |centroid: &[f32]| -> f32 { centroid.iter().zip(image).map(|(a, b)| (a - b) * (a - b)).sum() };
            let distances: Vec<f32> = centroids.chunks_exact(Digits::PIXELS).map(distance).collect();
            let nearest = (0..10).min_by(|&a, &b| distances[a].total_cmp(&distances[b]));
            nearest == Some(usize::from(*label))
        };
        let right = test.images.chunks_exact(Digits::PIXELS).zip(&test.labels).filter(|&pair| is_right(pair)).count();
        right as f64 / test.len() as f64
    }

    /// `digits` turned by `factor` times their known angles.
    fn turned_by_angle(digits: &Digits, factor: f64) -> Digits {
        let mut images = vec![0.0; digits.images.len()];
        let pairs = digits.images.chunks_exact(Digits::PIXELS).zip(images.chunks_exact_mut(Digits::PIXELS));
        for ((source, target), &angle) in pairs.zip(&digits.angles) {
            rotate_image(source, target, Digits::SIDE, factor * f64::from(angle));
        }
        Digits { images, ..digits.clone() }
    }

    #[test]
    fn classes_can_be_told_apart_and_the_angle_is_what_it_says() {
        let (train, test) = (Digits::generate(1, 2000).unwrap(), Digits::generate(2, 1000).unwrap());
        let [upright, as_drawn, worse] = [-1.0, 0.0, 1.0]
            .map(|factor| accuracy_by_centroid(&turned_by_angle(&train, factor), &turned_by_angle(&test, factor)));
        // Chance is 0.1. Undoing the stated angle must help, or the angle would not be that of the image.
        assert!(upright > 0.88 && as_drawn > 0.65, "{upright} {as_drawn} {worse}");
        assert!(upright > as_drawn + 0.05 && as_drawn > worse + 0.05, "{upright} {as_drawn} {worse}");
    }

    #[test]
    fn further_turns_are_recorded() {
        let digits = Digits::generate(1, 30).unwrap();
        let turned = digits.rotated(9);
        assert_eq!(turned.labels, digits.labels);
        assert_eq!(turned, digits.rotated(9));
        assert_ne!(turned.images, digits.rotated(10).images);
        for (index, (after, before)) in turned.angles.iter().zip(&digits.angles).enumerate() {
            assert_eq!(*after, before + angle_at(9, index as u64));
        }
    }

    #[test]
    fn the_same_bits_as_ever() {
        // Every experiment that names a seed relies on this sum of all bits.
        let digits = Digits::generate(2024, 50).unwrap();
        let sum = digits.images.iter().fold(0_u64, |sum, pixel| {
            sum.rotate_left(5).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(pixel.to_bits())
        });
        assert_eq!(sum, 0xC32B_516E_01D4_FD27);
    }
}
