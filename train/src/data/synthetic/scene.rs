//! An object before a ground: where it lies, its colours, and the pixels.

use retape::data::{Random, sin_cos_degrees};

use super::Objects;
use super::shape::Shape;

type Colour = [f32; 3];

/// The least distance of the colours of object and ground, both in the unit cube.
const CONTRAST: f32 = 0.5;

/// A way to place points of the image in the unit box of something drawn.
struct Pose {
    middle: (f32, f32),
    /// Columns of the matrix from pixels to the unit box.
    across: (f32, f32),
    down: (f32, f32),
    /// Pixels of a unit.
    size: f32,
    /// The square of the distance in pixels beyond which no shape covers anything.
    reach: f32,
}

impl Pose {
    /// A pose of random place, turn and proportions, of a shape with this radius in pixels.
    fn new(random: &mut Random, size: f64, margin: f64) -> Pose {
        let side = Objects::SIDE as f64 - 1.0;
        let mut place = || random.uniform(margin, side - margin) as f32;
        let middle = (place(), place());
        let (sin, cos) = sin_cos_degrees(random.uniform(0.0, 360.0));
        let stretch = random.uniform(0.85, 1.15);
        let (x_size, y_size) = (size * stretch, size / stretch);
        // Shapes reach 1.1 at most, proportions stretch by 1 / 0.85, and an edge is a pixel wide.
        let reach = 1.3 * size as f32 + 1.0;
        Pose {
            middle,
            across: ((cos / x_size) as f32, (-sin / y_size) as f32),
            down: ((sin / x_size) as f32, (cos / y_size) as f32),
            size: size as f32,
            reach: reach * reach,
        }
    }

    /// How much of the pixel at `(x, y)` a shape covers, from 0 to 1; at its edge by the distance.
    fn coverage(&self, shape: Shape, (x, y): (f32, f32)) -> f32 {
        let (x, y) = (x - self.middle.0, y - self.middle.1);
        if x * x + y * y > self.reach {
            return 0.0;
        }
        let place = (x * self.across.0 + y * self.down.0, x * self.across.1 + y * self.down.1);
        (0.5 - self.size * shape.distance(place)).clamp(0.0, 1.0)
    }
}

/// A colour that changes evenly along a direction.
struct Gradient {
    middle: Colour,
    across: Colour,
    down: Colour,
}

impl Gradient {
    /// A gradient about `middle` whose ends differ from it by `span` at most.
    fn new(random: &mut Random, middle: Colour, span: f64) -> Gradient {
        let half = Objects::SIDE as f64 / 2.0;
        let mut slope = || middle.map(|_| (random.uniform(-span, span) / half) as f32);
        Gradient { middle, across: slope(), down: slope() }
    }

    fn at(&self, (x, y): (f32, f32)) -> Colour {
        let half = (Objects::SIDE as f32 - 1.0) / 2.0;
        [0, 1, 2]
            .map(|channel| self.middle[channel] + (x - half) * self.across[channel] + (y - half) * self.down[channel])
    }
}

/// A small spot or bar on the ground.
struct Clutter {
    pose: Pose,
    shape: Shape,
    colour: Colour,
    opacity: f32,
}

/// Everything on an image except its noise.
pub(super) struct Scene {
    ground: Gradient,
    clutter: Vec<Clutter>,
    object: Gradient,
    pose: Pose,
    shape: Shape,
}

impl Scene {
    pub(super) fn new(random: &mut Random, shape: Shape) -> Scene {
        let ground_colour = colour(random);
        let object_colour = contrasting(random, ground_colour);
        let n_clutter = 2 + random.below(4);
        let clutter = (0..n_clutter).map(|_| Clutter::new(random)).collect();
        let size = random.uniform(8.0, 12.5);
        Scene {
            ground: Gradient::new(random, ground_colour, 0.2),
            clutter,
            object: Gradient::new(random, object_colour, 0.12),
            pose: Pose::new(random, size, size),
            shape,
        }
    }

    /// Writes the pixels, row by row, with noise.
    pub(super) fn paint(&self, random: &mut Random, image: &mut [u8]) {
        let strength = 0.05;
        for (at, pixel) in image.chunks_exact_mut(3).enumerate() {
            let place = ((at % Objects::SIDE) as f32, (at / Objects::SIDE) as f32);
            let mut colour = self.ground.at(place);
            for clutter in &self.clutter {
                let covered = clutter.opacity * clutter.pose.coverage(clutter.shape, place);
                colour = mixed(colour, clutter.colour, covered);
            }
            colour = mixed(colour, self.object.at(place), self.pose.coverage(self.shape, place));
            for (byte, value) in pixel.iter_mut().zip(colour) {
                let noise = strength * random.unit() as f32 - 0.5 * strength;
                *byte = (255.0 * (value + noise) + 0.5) as u8;
            }
        }
    }
}

impl Clutter {
    fn new(random: &mut Random) -> Clutter {
        let shape = if random.below(2) == 0 { Shape::Disc } else { Shape::Square };
        let size = random.uniform(1.5, 4.5);
        let (colour, opacity) = (colour(random), random.uniform(0.3, 0.7) as f32);
        Clutter { pose: Pose::new(random, size, 0.0), shape, colour, opacity }
    }
}

/// A colour uniform in the unit cube, its corners left out.
fn colour(random: &mut Random) -> Colour {
    [0.0; 3].map(|_: f32| random.uniform(0.05, 0.95) as f32)
}

/// A colour that can be told from another: the first of some draws, or else the far side of the cube.
fn contrasting(random: &mut Random, other: Colour) -> Colour {
    for _ in 0..16 {
        let drawn = colour(random);
        let square: f32 = drawn.iter().zip(other).map(|(a, b)| (a - b) * (a - b)).sum();
        if square >= CONTRAST * CONTRAST {
            return drawn;
        }
    }
    other.map(|value| if value < 0.5 { 0.9 } else { 0.1 })
}

fn mixed(below: Colour, above: Colour, share: f32) -> Colour {
    [0, 1, 2].map(|channel| below[channel] + share * (above[channel] - below[channel]))
}
