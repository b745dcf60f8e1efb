//! Images to learn from and images held out: CIFAR-10, a folder of images, or synthetic objects.

use std::path::Path;
use std::sync::Arc;

use retape::data::Partial;
use retape_dist::World;
use retape_train::Result;
use retape_train::data::augment::{Border, Normalisation, Pipeline, RandomCrop, Reflection, Resize};
use retape_train::data::synthetic::Objects;
use retape_train::data::{Augmented, Cifar10, Dataset, Image, ImageFolder, Labelled, Loader, Shards, Stacked};

use crate::options::Options;

/// Any images with labels.
pub(crate) type Images = Arc<dyn Dataset<Item = (Image, i32)>>;

/// The images of a worker, with the names of the classes.
pub(crate) struct Data {
    /// Those to learn from: of each batch the shards that the worker holds.
    pub(crate) train: Loader<Augmented<Images>, Shards<Stacked>>,
    /// Those held out, divided into shards as batches are: those of the worker.
    pub(crate) test: Vec<Loader<Augmented<Images>>>,
    pub(crate) n_test: usize,
    pub(crate) classes: Vec<String>,
}

/// All images, with the names of their classes.
pub(crate) struct Source {
    train: Images,
    test: Images,
    pub(crate) classes: Vec<String>,
}

pub(crate) fn source(options: &Options) -> Result<Source> {
    let (train, test, classes) = match &options.data {
        None => synthetic(options),
        Some(folder) => on_disk(folder, options.seed)?,
    };
    Ok(Source { train, test, classes })
}

pub(crate) fn data(options: &Options, Source { train, test, classes }: Source, world: &World) -> Result<Data> {
    let normal = || Normalisation::new([0.5; 3], [0.25; 3]);
    // Reflections, and translations by up to four pixels each way.
    let augmented = Pipeline::new()
        .then(RandomCrop::new(32, 32).padding(4, Border::Reflect))
        .then(Reflection::horizontal())
        .then(normal()?);
    let (batch, n_shards) = (options.batch(world), world.n_shards());
    let train = Loader::new(train.augment(options.seed, augmented), batch)?
        .shuffled(options.seed)
        .partial(Partial::Discard)
        .threads(options.loaders)
        .shards(n_shards, world.shards())?;
    let n_test = test.len();
    let part = |shard: usize| -> Result<_> {
        let part: Images = Arc::new(test.clone().shard(shard, n_shards)?);
        let part = part.augment(options.seed, Pipeline::new().then(normal()?));
        // Filled up, so that the last batch needs no code of its own.
        Ok(Loader::new(part, batch.div_ceil(n_shards))?.filled().threads(options.loaders))
    };
    let test = world.shards().map(part).collect::<Result<_>>()?;
    Ok(Data { train, test, n_test, classes })
}

fn synthetic(options: &Options) -> (Images, Images, Vec<String>) {
    let classes = Objects::CLASSES.map(str::to_owned).into();
    (Arc::new(Objects::generate(1, options.train)), Arc::new(Objects::generate(2, options.test)), classes)
}

fn on_disk(folder: &Path, seed: u64) -> Result<(Images, Images, Vec<String>)> {
    if folder.join("data_batch_1.bin").exists() {
        let classes = Cifar10::CLASSES.map(str::to_owned).into();
        return Ok((Arc::new(Cifar10::train(folder)?), Arc::new(Cifar10::test(folder)?), classes));
    }
    let images = ImageFolder::open(folder)?;
    let classes = images.classes().iter().map(|name| name.to_string_lossy().into_owned()).collect();
    let (train, test) = images.split_by_label(0.1, seed)?;
    let resize = || Pipeline::new().then(Resize::to(32, 32));
    Ok((Arc::new(train.augment(seed, resize())), Arc::new(test.augment(seed, resize())), classes))
}
