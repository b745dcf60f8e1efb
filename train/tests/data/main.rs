//! Data sets, augmentation and loaders of the training kit, from outside.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod augment;
mod cifar;
mod colour;
mod dataset;
mod decode;
mod folder;
mod idx;
mod image;
mod loader;
mod loader_failures;
mod noise;
mod place;
mod resize;
mod shards;
mod synthetic;
