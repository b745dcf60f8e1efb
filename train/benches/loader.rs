//! The throughput of loaders, and their share of a training step.
//!
//! `cargo bench -p retape-train --bench loader` measures, and fails if steps of the example `cifar` wait for data for more
//! than 5 % of their time; `-- --test` runs everything once on small sizes.

#![allow(clippy::print_stdout, reason = "a benchmark prints numbers")]

#[expect(dead_code, reason = "steps are measured here, and the example predicts too")]
#[path = "../examples/cifar/network.rs"]
mod network;

use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use image::ImageEncoder;
use image::codecs::jpeg::JpegEncoder;
use network::{Shards, Training};
use retape::data::Random;
use retape::{Tensor, accelerate};
use retape_train::data::augment::{
    Augment, Border, CentreCrop, ColourJitter, Normalisation, Pipeline, RandomCrop, Reflection, Resize, Rotation,
};
use retape_train::data::synthetic::Objects;
use retape_train::data::{Dataset, Decoding, Image, ImageFolder, Loader};

type Outcome = Result<(), Box<dyn Error>>;

/// How much to measure.
#[derive(Clone, Copy)]
struct Amount {
    n_objects: usize,
    n_photographs: usize,
    n_steps: usize,
    batch_size: usize,
    /// Epochs of steps, besides the one that compiles.
    n_rounds: u64,
    /// Repetitions of what takes microseconds.
    n_images: u64,
    /// Whether times say anything.
    is_measured: bool,
}

fn main() -> Outcome {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let amount = match is_test {
        true => Amount {
            n_objects: 200,
            n_photographs: 4,
            n_steps: 2,
            n_rounds: 1,
            batch_size: 4,
            n_images: 2,
            is_measured: false,
        },
        false => Amount {
            n_objects: 20_000,
            n_photographs: 200,
            n_steps: 4,
            n_rounds: 5,
            batch_size: 256,
            n_images: 500,
            is_measured: true,
        },
    };
    let start = Instant::now();
    let objects = Objects::generate(1, amount.n_objects);
    println!("objects    {} generated in {:.3} s", objects.len(), start.elapsed().as_secs_f64());
    stages(amount)?;
    threads("objects", &objects.clone().augment(1, small()), 128)?;
    photographs(amount)?;
    step(amount, objects)
}

/// Photographs of CIFAR's size, as they are usually augmented.
fn small() -> Pipeline {
    Pipeline::new()
        .then(RandomCrop::new(32, 32).padding(4, Border::Reflect))
        .then(Reflection::horizontal())
        .then(Normalisation::CIFAR10)
}

/// An image of noise that is not quite noise, so that it compresses as a photograph does.
fn photograph(seed: u64, [height, width]: [usize; 2]) -> retape_train::Result<Image> {
    let mut random = Random::new(seed, 1, 2);
    let coarse = (0..24 * 32 * 3).map(|_| random.below(256) as u8).collect();
    let image = Image::from_u8(coarse, [24, 32, 3])?;
    Resize::to(height, width).apply(image, &mut random)
}

/// Each change of an image, on one thread.
fn stages(amount: Amount) -> Outcome {
    let large = photograph(1, [375, 500])?;
    let stages: [(&str, Box<dyn Augment>); 6] = [
        ("resize to 256", Box::new(Resize::shorter_side(256))),
        ("random crop", Box::new(RandomCrop::new(224, 224))),
        ("reflection", Box::new(Reflection::horizontal().probability(1.0)?)),
        ("rotation", Box::new(Rotation::within(10.0)?)),
        ("jitter", Box::new(ColourJitter::new().brightness(0.4).contrast(0.4).saturation(0.4).hue(0.1))),
        ("normalise", Box::new(Normalisation::IMAGENET)),
    ];
    for (name, stage) in stages {
        let n = amount.n_images.min(100);
        let start = Instant::now();
        for index in 0..n {
            stage.apply(large.clone(), &mut Random::new(1, 2, index))?;
        }
        println!("stage      {name:<14} {:>9.1} us for 375x500x3", micros(start.elapsed(), n));
    }
    Ok(())
}

fn micros(time: Duration, n: u64) -> f64 {
    time.as_secs_f64() * 1e6 / n as f64
}

/// Throughput with nothing to do for the consumer, by the number of threads.
fn threads<D>(name: &str, dataset: &D, batch_size: usize) -> Outcome
where
    D: Dataset<Item = (Image, i32)> + Clone + 'static,
{
    for n_threads in [0, 1, 2, 4, 8] {
        let loader = Loader::new(dataset.clone(), batch_size)?.shuffled(1).threads(n_threads);
        for batch in loader.epoch(0) {
            batch?;
        }
        let rate = loader.stats().examples_per_second();
        println!("loader     {name:<14} {n_threads} threads {rate:>9.0} examples/s in batches of {batch_size}");
    }
    Ok(())
}

/// JPEG files of an ordinary size, decoded and augmented as for networks of 224x224 pixels.
fn photographs(amount: Amount) -> Outcome {
    let root = std::env::temp_dir().join(format!("retape-bench-loader-{}", std::process::id()));
    let result = photographs_in(&root, amount);
    fs::remove_dir_all(&root)?;
    result
}

fn photographs_in(root: &Path, amount: Amount) -> Outcome {
    fs::create_dir_all(root.join("class"))?;
    for index in 0..amount.n_photographs {
        let image = photograph(index as u64, [375, 500])?;
        let retape_train::data::Pixels::U8(pixels) = image.pixels() else { return Err("bytes stay bytes".into()) };
        let file = fs::File::create(root.join(format!("class/{index:04}.jpg")))?;
        JpegEncoder::new_with_quality(file, 90).write_image(pixels, 500, 375, image::ExtendedColorType::Rgb8)?;
    }
    let folder = ImageFolder::open(root)?;
    let (path, n) = (folder.path(0).ok_or("there is a file")?, amount.n_images.min(100));
    let start = Instant::now();
    for _ in 0..n {
        Decoding::default().read(path)?;
    }
    println!("decode     JPEG           {:>9.1} us for 375x500x3", micros(start.elapsed(), n));
    let pipeline = Pipeline::new()
        .then(Resize::shorter_side(256))
        .then(CentreCrop::new(224, 224))
        .then(Reflection::horizontal())
        .then(Normalisation::IMAGENET);
    threads("photographs", &folder.augment(1, pipeline), 32)
}

/// The share of its time that a training may wait for data.
const MOST_WAITING: f64 = 0.05;

/// The loader's share of training steps of the example `cifar`, with two threads; too large a share is an error, where it
/// is measured.
fn step(amount: Amount, objects: Objects) -> Outcome {
    let world = retape_dist::init()?;
    let step = accelerate(move |training: &Training, batch: &Shards, rate: &Tensor| {
        training.step(&world, batch, rate, 1e-10).expect("the loss is a number")
    });
    let mut training = Training::new(1, Objects::CLASSES.len());
    let loader = Loader::new(objects.augment(1, small()), amount.batch_size)?.shuffled(1).threads(2);
    let mut shares = vec![];
    for epoch in 0..=amount.n_rounds {
        let mut batches = loader.epoch(epoch);
        for batch in batches.by_ref().take(amount.n_steps) {
            let outcome;
            (outcome, training) = step.call(training, vec![batch?.data], 0.01_f32)?;
            outcome.loss.item::<f32>()?;
        }
        let stats = batches.stats();
        let seconds = stats.elapsed.as_secs_f64() / stats.batches as f64;
        println!("step       epoch {epoch}: {:.2} ms for {} examples; {stats}", 1e3 * seconds, amount.batch_size);
        // The first compiles the step.
        if epoch > 0 {
            shares.push(stats.waiting_share());
        }
    }
    shares.sort_by(f64::total_cmp);
    let median = shares[shares.len() / 2];
    println!("step       {:.2} % of the time waiting for data, the median of {} rounds", 100.0 * median, shares.len());
    if amount.is_measured && median > MOST_WAITING {
        return Err(format!("more than {:.0} % of the time is spent waiting for data", 100.0 * MOST_WAITING).into());
    }
    Ok(())
}
