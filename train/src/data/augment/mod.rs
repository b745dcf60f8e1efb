//! Augmentation: images changed at random, or in one way for all, each change a function of an image and random numbers.
//!
//! Every change keeps the kind of pixels (bytes are interpolated in `f32` and rounded, halves up), except
//! [`Normalisation`], whose results are floats. Only additions, multiplications, divisions, square roots and comparisons
//! are used, so results have the same bits on every platform.
//!
//! By hand, with any stream of random numbers:
//!
//! ```
//! use retape::data::Random;
//! use retape_train::data::Image;
//! use retape_train::data::augment::{Augment, Border, RandomCrop};
//!
//! let image = Image::from_u8((0..32 * 32 * 3).map(|i| i as u8).collect(), [32, 32, 3])?;
//! let crop = RandomCrop::new(32, 32).padding(4, Border::Reflect);
//! assert_eq!(crop.apply(image, &mut Random::new(1, 2, 3))?.shape(), [32, 32, 3]);
//! # Ok::<(), retape_train::Error>(())
//! ```

mod colour;
mod crop;
mod noise;
mod normal;
mod normalise;
mod pipeline;
mod resize;
mod rotate;
mod window;

pub use colour::ColourJitter;
pub use crop::{CentreCrop, RandomCrop, Reflection, Translation};
pub use noise::{GaussianNoise, SaltAndPepper};
pub use normalise::Normalisation;
pub use pipeline::{Augment, Pipeline};
pub use resize::Resize;
pub use rotate::Rotation;
pub use window::Border;
