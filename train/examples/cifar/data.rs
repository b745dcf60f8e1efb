//! Images to learn from and images held out: CIFAR-10, a folder of images, or synthetic objects.

use std::path::Path;

use retape::data::Partial;
use retape_train::Result;
use retape_train::data::augment::{Border, Normalisation, Pipeline, RandomCrop, Reflection, Resize};
use retape_train::data::synthetic::Objects;
use retape_train::data::{Augmented, Cifar10, Dataset, Image, ImageFolder, Labelled, Loader};

use crate::options::Options;

/// Any images with labels.
pub(crate) type Images = Box<dyn Dataset<Item = (Image, i32)>>;

/// The images to learn from and those held out, with the names of the classes.
pub(crate) struct Data {
    pub(crate) train: Loader<Augmented<Images>>,
    pub(crate) test: Loader<Augmented<Images>>,
    pub(crate) classes: Vec<String>,
}

pub(crate) fn data(options: &Options) -> Result<Data> {
    let (train, test, classes) = match &options.data {
        None => synthetic(options),
        Some(folder) => on_disk(folder, options.seed)?,
    };
    let normal = || Normalisation::new([0.5; 3], [0.25; 3]);
    // Reflections, and translations by up to four pixels each way.
    let augmented = Pipeline::new()
        .then(RandomCrop::new(32, 32).padding(4, Border::Reflect))
        .then(Reflection::horizontal())
        .then(normal()?);
    let train = Loader::new(train.augment(options.seed, augmented), options.batch)?;
    let test = Loader::new(test.augment(options.seed, Pipeline::new().then(normal()?)), options.batch)?;
    Ok(Data {
        train: train.shuffled(options.seed).partial(Partial::Discard).threads(options.loaders),
        // Filled up, so that the last batch needs no code of its own.
        test: test.filled().threads(options.loaders),
        classes,
    })
}

fn synthetic(options: &Options) -> (Images, Images, Vec<String>) {
    let classes = Objects::CLASSES.map(str::to_owned).into();
    (Box::new(Objects::generate(1, options.train)), Box::new(Objects::generate(2, options.test)), classes)
}

fn on_disk(folder: &Path, seed: u64) -> Result<(Images, Images, Vec<String>)> {
    if folder.join("data_batch_1.bin").exists() {
        let classes = Cifar10::CLASSES.map(str::to_owned).into();
        return Ok((Box::new(Cifar10::train(folder)?), Box::new(Cifar10::test(folder)?), classes));
    }
    let images = ImageFolder::open(folder)?;
    let classes = images.classes().iter().map(|name| name.to_string_lossy().into_owned()).collect();
    let (train, test) = images.split_by_label(0.1, seed)?;
    let resize = || Pipeline::new().then(Resize::to(32, 32));
    Ok((Box::new(train.augment(seed, resize())), Box::new(test.augment(seed, resize())), classes))
}
