//! Photos to learn from and photos held out, of which each worker loads its shards.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use retape_dist::{Failure, World};
use retape_train::data::augment::{Border, Normalisation, Pipeline, RandomCrop, Reflection, Resize};
use retape_train::data::{Augmented, Dataset, Image, ImageFolder, Labelled, Loader, Shards, Stacked};

use crate::draw;
use crate::options::Options;

/// Any photos with labels.
type Images = Arc<dyn Dataset<Item = (Image, i32)>>;

pub(crate) struct Data {
    pub(crate) train: Loader<Augmented<Images>, Shards<Stacked>>,
    /// The photos held out, divided into shards as batches are: those of this worker.
    pub(crate) test: Vec<Loader<Augmented<Images>>>,
    pub(crate) n_test: usize,
    pub(crate) classes: Vec<String>,
}

/// The data of a worker.
pub(crate) fn data(options: &Options, world: &World) -> Result<Data, Failure> {
    let folder = match &options.data {
        Some(folder) => folder.clone(),
        None => draw::photos(&options.out, options.images, world.rank())?,
    };
    let images = ImageFolder::open(&folder)?;
    agree(world, &images)?;
    let classes = images.classes().iter().map(|name| name.to_string_lossy().into_owned()).collect();
    let (train, test) = images.split_by_label(0.1, options.seed)?;
    let (train, test): (Images, Images) = (Arc::new(train), Arc::new(test));
    let (size, border) = (options.size, u32::try_from(options.size / 12)?);
    let normal = || Normalisation::new([0.5; 3], [0.25; 3]);
    let augmented = Pipeline::new()
        .then(Resize::to(size, size))
        .then(RandomCrop::new(size, size).padding(border, Border::Reflect))
        .then(Reflection::horizontal())
        .then(normal()?);
    let n_shards = world.n_shards();
    let train = Loader::new(train.augment(options.seed, augmented), options.batch)?
        .shuffled(options.seed)
        .threads(options.loaders)
        .shards(n_shards, world.shards())?;
    let n_test = test.len();
    let part = |shard: usize| -> Result<_, Failure> {
        let resized = Pipeline::new().then(Resize::to(size, size)).then(normal()?);
        let part: Images = Arc::new(test.clone().shard(shard, n_shards)?);
        // Filled up, so that the last batch needs no code of its own.
        let loader = Loader::new(part.augment(options.seed, resized), options.batch.div_ceil(n_shards))?;
        Ok(loader.filled().threads(options.loaders))
    };
    let test = world.shards().map(part).collect::<Result<_, _>>()?;
    Ok(Data { train, test, n_test, classes })
}

/// Makes sure that all workers see the same files.
fn agree(world: &World, images: &ImageFolder) -> Result<(), Failure> {
    let list = (0..images.len()).filter_map(|index| images.path(index)).map(|path| line(images.root(), path));
    let list = list.collect::<Result<String, Failure>>()?;
    Ok(world.agree("the list of photos", blake3::hash(list.as_bytes()).as_bytes(), &|| list.clone())?)
}

/// The name and the length of a file.
fn line(root: &Path, path: &Path) -> Result<String, Failure> {
    let name = path.strip_prefix(root).unwrap_or(path);
    Ok(format!("{} has {} bytes\n", name.display(), fs::metadata(path)?.len()))
}
