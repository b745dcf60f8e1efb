//! Coloured objects on cluttered grounds, in ten classes: images to learn from without a download.
//!
//! Each image depends on `(seed, index)` alone and has the same bits on every platform and number of threads. Classes are
//! balanced: every ten images in a row, counted from the first, hold each class once, in random order.
//!
//! The class is a shape. Its place, size, turn and proportions are random, and so are its colours and those of the
//! ground, so that neither a pixel nor a colour nor the mean says anything about the class: a linear model of the pixels
//! finds next to nothing, a small convolutional network learns them.

mod scene;
mod shape;

use std::sync::Arc;
use std::thread;

use retape::data::Random;

use super::dataset::{Dataset, Labelled, check_index};
use super::image::Image;
use crate::error::Result;
use scene::Scene;
use shape::Shape;

/// The streams of random numbers, by what they decide.
const ORDER: u64 = 0x6F72646572;
const SCENE: u64 = 0x7363656E65;

/// Images of 32x32 pixels in colour, each of an object of one of ten shapes.
///
/// Examples are an image of shape `[32, 32, 3]` with byte pixels, and its label. Training and test sets are generated
/// with different seeds.
///
/// ```
/// use retape_train::data::synthetic::Objects;
/// use retape_train::data::{Dataset, Labelled};
///
/// let objects = Objects::generate(1, 20);
/// assert_eq!(objects.get(0)?.0.shape(), [32, 32, 3]);
/// let stars = (0..20).filter(|&i| objects.label(i).is_ok_and(|label| Objects::CLASSES[label as usize] == "star"));
/// assert_eq!(stars.count(), 2);
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objects {
    pixels: Arc<[u8]>,
    labels: Arc<[u8]>,
}

impl Objects {
    /// Pixels along each side of an image.
    pub const SIDE: usize = 32;

    /// The names of the classes; label `i` is the name at `i`.
    pub const CLASSES: [&str; 10] =
        ["disc", "ring", "square", "triangle", "cross", "stripes", "star", "crescent", "angle", "bow tie"];

    /// Values of an image.
    const VALUES: usize = Self::SIDE * Self::SIDE * 3;

    /// Draws `n` objects, on all processor cores.
    pub fn generate(seed: u64, n: usize) -> Objects {
        Self::generate_on(thread::available_parallelism().map_or(1, |count| count.get()), seed, n)
    }

    fn generate_on(n_threads: usize, seed: u64, n: usize) -> Objects {
        let labels: Vec<u8> = (0..n as u64).map(|index| label_at(seed, index)).collect();
        let mut pixels = vec![0; n * Self::VALUES];
        let share = n.div_ceil(n_threads.max(1)).max(1);
        thread::scope(|scope| {
            for (part, images) in pixels.chunks_mut(share * Self::VALUES).enumerate() {
                let labels = &labels;
                scope.spawn(move || {
                    for (index, image) in (part * share..).zip(images.chunks_exact_mut(Self::VALUES)) {
                        let mut random = Random::new(seed, SCENE, index as u64);
                        Scene::new(&mut random, Shape::ALL[usize::from(labels[index])]).paint(&mut random, image);
                    }
                });
            }
        });
        Objects { pixels: pixels.into(), labels: labels.into() }
    }
}

/// The class at `index`: its place in the shuffle of its ten.
fn label_at(seed: u64, index: u64) -> u8 {
    let mut order = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    Random::new(seed, ORDER, index / 10).shuffle(&mut order);
    order[(index % 10) as usize]
}

impl Dataset for Objects {
    type Item = (Image, i32);

    fn len(&self) -> usize {
        self.labels.len()
    }

    fn get(&self, index: usize) -> Result<(Image, i32)> {
        let label = self.label(index)?;
        let pixels = self.pixels[index * Self::VALUES..][..Self::VALUES].to_vec();
        Ok((Image::from_u8(pixels, [Self::SIDE, Self::SIDE, 3])?, label))
    }
}

impl Labelled for Objects {
    fn label(&self, index: usize) -> Result<i32> {
        check_index(index, self.labels.len())?;
        Ok(i32::from(self.labels[index]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_depend_on_seed_and_index_alone() {
        let objects = Objects::generate_on(1, 3, 103);
        assert_eq!(objects, Objects::generate_on(4, 3, 103));
        assert_eq!(objects, Objects::generate(3, 103));
        let longer = Objects::generate(3, 150);
        assert_eq!(objects.pixels[..], longer.pixels[..103 * Objects::VALUES]);
        assert_eq!(objects.labels[..], longer.labels[..103]);
        assert_ne!(objects, Objects::generate(4, 103));
        assert!(Objects::generate(1, 0).is_empty());
    }
}
