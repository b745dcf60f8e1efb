//! The throughput of loaders, and their share of a training step.
//!
//! `cargo bench -p retape-train --bench loader` measures; `-- --test` runs everything once on small sizes.

#![allow(clippy::print_stdout, reason = "a benchmark prints numbers")]

use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use image::ImageEncoder;
use image::codecs::jpeg::JpegEncoder;
use retape::data::Random;
use retape::nn::{self, Conv2d, Dense};
use retape::ops::{ConvOptions, Padding};
use retape::optim::{Sgd, SgdState};
use retape::{Tensor, Tree, accelerate};
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
    /// Repetitions of what takes microseconds.
    n_images: u64,
}

fn main() -> Outcome {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let amount = match is_test {
        true => Amount { n_objects: 200, n_photographs: 4, n_steps: 2, n_images: 2 },
        false => Amount { n_objects: 20_000, n_photographs: 200, n_steps: 150, n_images: 500 },
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

/// A small convolutional network.
#[derive(Clone, Tree)]
struct Network {
    first: Conv2d,
    second: Conv2d,
    out: Dense,
}

impl Network {
    fn apply(&self, x: &Tensor) -> Tensor {
        let halved = |x: Tensor| x.relu().max_pool2d([2, 2], [2, 2], Padding::Valid);
        let x = halved(self.first.apply(x, ConvOptions::same()));
        let x = halved(self.second.apply(&x, ConvOptions::same()));
        self.out.apply(&x.flatten_from(1))
    }
}

/// The loader's share of training steps, with the default number of threads.
fn step(amount: Amount, objects: Objects) -> Outcome {
    let sgd = Sgd::new().momentum(0.9);
    let step = accelerate(|net: &Network, state: &SgdState<Network>, x: &Tensor, labels: &Tensor, rate: &Tensor| {
        let loss = nn::softmax_cross_entropy_labels(&net.apply(x), labels);
        let gradient = loss.grad(net);
        (loss, sgd.update(net, &gradient, state, rate))
    });
    let mut net = Network {
        first: Conv2d::new(1, [3, 3], 3, 16),
        second: Conv2d::new(2, [3, 3], 16, 32),
        out: Dense::new(3, 8 * 8 * 32, 10),
    };
    let mut state = sgd.init(&net);
    let loader = Loader::new(objects.augment(1, small()), 64)?.shuffled(1).filled();
    for epoch in 0.. {
        let mut batches = loader.epoch(epoch);
        for batch in batches.by_ref().take(amount.n_steps) {
            let (images, labels) = batch?.data;
            let (loss, next) = step.call(net, state, &images, &labels, 0.01_f32)?;
            loss.item::<f32>()?;
            (net, state) = next;
        }
        let stats = batches.stats();
        let seconds = stats.elapsed.as_secs_f64() / stats.batches as f64;
        println!("step       epoch {epoch}: {:.2} ms for 64 examples; {stats}", 1e3 * seconds);
        // The first compiles the step.
        if epoch == 1 {
            break;
        }
    }
    Ok(())
}
