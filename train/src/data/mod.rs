//! Data sets, augmentation of images, and loaders that make batches in the background.
//!
//! A [`Dataset`] has a length and gives any example by its index: an [`ImageFolder`], [`Cifar10`], [`IdxImages`] (MNIST and
//! what has its form), arrays in memory ([`Array`], [`Items`]), images made here ([`synthetic`]), or a type of the caller's own. Its methods make
//! other data sets of it: [`map`](Dataset::map), [`augment`](Dataset::augment), [`split`](Dataset::split),
//! [`shard`](Dataset::shard) and more. A [`Loader`] makes the batches of an epoch on threads.
//!
//! Guarantees that everything random depends on (seed, epoch, index of the example, name of the choice) alone: see
//! [`ExampleRandom`]. No number of threads and no restart in the middle of an epoch changes a bit.
//!
//! Every piece works alone: an image can be read ([`Decoding::read`]) and augmented
//! ([`Augment::apply`](augment::Augment::apply)) by hand, and a loop over batches is a plain `for`.
//!
//! ```
//! use retape_train::data::augment::{Border, Normalisation, Pipeline, RandomCrop, Reflection};
//! use retape_train::data::synthetic::Objects;
//! use retape_train::data::{Dataset, Labelled, Loader};
//!
//! let (train, held_out) = Objects::generate(1, 200).split_by_label(0.2, 1)?;
//! let pipeline = Pipeline::new()
//!     .then(RandomCrop::new(32, 32).padding(4, Border::Reflect))
//!     .then(Reflection::horizontal())
//!     .then(Normalisation::new([0.5; 3], [0.25; 3])?);
//! let loader = Loader::new(train.augment(1, pipeline), 32)?.shuffled(1);
//! for epoch in 0..2 {
//!     for batch in loader.epoch(epoch) {
//!         let (images, labels) = batch?.data;
//!         assert_eq!((&images.shape()[1..], labels.rank()), (&[32, 32, 3][..], 1));
//!     }
//! }
//! println!("{}; {} held out", loader.stats(), held_out.len());
//! # Ok::<(), retape_train::Error>(())
//! ```

mod adapt;
mod array;
pub mod augment;
mod cifar;
mod collate;
mod dataset;
mod decode;
mod folder;
mod idx;
mod image;
mod keyed;
mod loader;
mod partition;
mod scan;
pub mod synthetic;

pub use adapt::{Augmented, Concat, FromFn, Map, MapRandom, Subset, Zip, from_fn};
pub use array::{Array, Items};
pub use cifar::Cifar10;
pub use collate::{Collate, Row, Stack, Stacked};
pub use dataset::{Dataset, Labelled, Split};
pub use decode::{Channels, Decoding};
pub use folder::{FolderOptions, ImageFolder};
pub use idx::{IdxArray, IdxImages, IdxValues, parse_idx, read_idx};
pub use image::{Image, Pixels};
pub use keyed::ExampleRandom;
pub use loader::{Batch, Batches, Batching, Loader, LoaderStats, Shards};
