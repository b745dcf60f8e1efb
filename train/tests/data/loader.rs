//! Loaders: the same bits for every number of threads, positions, shapes, bounds, statistics.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use image::ExtendedColorType;
use retape::data::{MiniBatches, Partial};
use retape::{DType, Tensor};
use retape_train::data::augment::{
    Border, CentreCrop, ColourJitter, Normalisation, Pipeline, RandomCrop, Reflection, Resize, Rotation,
};
use retape_train::data::{Batch, Dataset, Image, ImageFolder, Loader, from_fn};

use crate::place::{Place, jpeg, noise, png, smooth};

/// Everything of a batch, bit by bit.
type Bits = (u64, usize, Vec<usize>, Vec<u32>, Vec<i32>);

fn bits(batch: Batch<(Tensor, Tensor)>) -> Bits {
    let (images, labels) = &batch.data;
    let pixels = images.to_vec::<f32>().unwrap().iter().map(|value| value.to_bits()).collect();
    (batch.epoch, batch.number, batch.indices, pixels, labels.to_vec().unwrap())
}

/// A folder of JPEG and PNG files of different sizes in three classes.
fn photographs() -> Place {
    let place = Place::new();
    for index in 0..23 {
        let (width, height) = (20 + index % 7, 30 - index % 5);
        let class = ["a", "b", "c"][index % 3];
        if index % 2 == 0 {
            place.file(format!("{class}/{index:02}.jpg"), &jpeg(&smooth(width, height), width as u32, height as u32));
        } else {
            let pixels = noise(index as u64, width * height * 3);
            let file = png(&pixels, width as u32, height as u32, ExtendedColorType::Rgb8);
            place.file(format!("{class}/{index:02}.png"), &file);
        }
    }
    place
}

fn everything() -> Pipeline {
    Pipeline::new()
        .then(Resize::shorter_side(18))
        .then(CentreCrop::new(16, 16))
        .then(RandomCrop::new(16, 16).padding(4, Border::Reflect))
        .then(Reflection::horizontal())
        .then(Rotation::within(15.0).unwrap())
        .then(ColourJitter::new().brightness(0.4).contrast(0.4).saturation(0.4).hue(0.1))
        .then(Normalisation::IMAGENET)
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let place = photographs();
    let epochs = |n_threads: usize, prefetch: usize| -> Vec<Bits> {
        let dataset = ImageFolder::open(place.path()).unwrap().augment(5, everything());
        let loader = Loader::new(dataset, 5).unwrap().shuffled(3).threads(n_threads).prefetch(prefetch);
        (0..3).flat_map(|epoch| loader.epoch(epoch)).map(|batch| bits(batch.unwrap())).collect()
    };
    let alone = epochs(0, 1);
    assert_eq!(alone.len(), 15);
    for (n_threads, prefetch) in [(1, 1), (1, 4), (2, 2), (3, 1), (8, 3), (40, 7)] {
        assert_eq!(epochs(n_threads, prefetch), alone, "{n_threads} threads");
    }
    // The rows are those of the engine's mini-batches, and epochs differ in order and in augmentation.
    let rows = MiniBatches::new(23, 5).unwrap().shuffled(3);
    for (at, (epoch, number, indices, ..)) in alone.iter().enumerate() {
        assert_eq!((*epoch, *number), ((at / 5) as u64, at % 5));
        assert_eq!(Some(&indices[..]), rows.epoch(*epoch).iter().nth(*number));
    }
    let pixels_of = |epoch: usize, index: usize| {
        let (_, _, indices, pixels, _) =
            alone[5 * epoch..][..5].iter().find(|(_, _, indices, ..)| indices.contains(&index)).unwrap();
        let row = indices.iter().position(|&at| at == index).unwrap();
        pixels[row * 16 * 16 * 3..][..16 * 16 * 3].to_vec()
    };
    assert!((0..23).all(|index| pixels_of(0, index) != pixels_of(1, index)));
}

#[test]
fn one_example_by_hand_is_that_of_the_loader() {
    let place = photographs();
    let dataset = ImageFolder::open(place.path()).unwrap();
    let (image, label) = dataset.get(7).unwrap();
    let by_hand = everything().apply(image, &retape_train::data::ExampleRandom::new(5, 2, 7)).unwrap();
    let loader = Loader::new(dataset.augment(5, everything()), 1).unwrap();
    let batch = loader.epoch_from(2, 7).next().unwrap().unwrap();
    let tensor = Image::stack_f32(&[by_hand]).unwrap();
    assert_eq!(batch.data.0.to_vec::<f32>().unwrap(), tensor.to_vec::<f32>().unwrap());
    assert_eq!(batch.data.1.to_vec::<i32>().unwrap(), [label]);
}

#[test]
fn an_epoch_goes_on_from_any_batch() {
    let place = photographs();
    let dataset = ImageFolder::open(place.path()).unwrap().augment(5, everything());
    let loader = Loader::new(dataset, 4).unwrap().shuffled(3).threads(3);
    let whole: Vec<Bits> = loader.epoch(6).map(|batch| bits(batch.unwrap())).collect();
    assert_eq!((whole.len(), loader.n_batches()), (6, 6));
    for first in 0..=6 {
        let rest: Vec<Bits> = loader.epoch_from(6, first).map(|batch| bits(batch.unwrap())).collect();
        assert_eq!(rest, whole[first..], "from batch {first}");
    }
    let mut beyond = loader.epoch_from(6, 7);
    let message = beyond.next().unwrap().unwrap_err().to_string();
    assert!(message.starts_with("there is no batch 7 in an epoch of 6 batches"), "{message}");
    assert!(beyond.next().is_none());
}

/// The indices as floats.
fn numbers(n: usize) -> impl Dataset<Item = f32> + 'static {
    from_fn(n, |index| Ok(index as f32))
}

/// The rows that count and the rows there are, of every batch.
fn lens<D: Dataset<Item = f32> + 'static>(loader: &Loader<D>) -> Vec<(usize, usize)> {
    let len = |batch: Batch<Tensor>| (batch.rows(), batch.data.dim(0));
    loader.epoch(1).map(|batch| len(batch.unwrap())).collect()
}

#[test]
fn partial_batches_are_kept_discarded_or_filled() {
    let loader = Loader::new(numbers(10), 4).unwrap();
    assert_eq!(lens(&loader), [(4, 4), (4, 4), (2, 2)]);
    let loader = loader.partial(Partial::Discard);
    assert_eq!((lens(&loader), loader.n_batches()), (vec![(4, 4), (4, 4)], 2));
    let loader = loader.partial(Partial::Keep).filled();
    assert_eq!(lens(&loader), [(4, 4), (4, 4), (2, 4)]);
    let last = loader.epoch(0).last().unwrap().unwrap();
    assert_eq!((last.indices, last.data.to_vec::<f32>().unwrap()), (vec![8, 9], vec![8.0, 9.0, 8.0, 9.0]));

    assert!(Loader::new(numbers(10), 0).is_err());
    assert_eq!(Loader::new(numbers(0), 4).unwrap().epoch(0).count(), 0);
    let short = Loader::new(numbers(3), 4).unwrap().partial(Partial::Discard);
    assert_eq!(short.epoch(0).count(), 0);
}

#[test]
fn batches_are_made_as_asked() {
    let images = from_fn(6, |index| Image::from_u8(vec![index as u8; 12], [2, 2, 3]));
    let loader = Loader::new(images, 4).unwrap().collate(|items: Vec<Image>| Image::stack_u8(&items));
    let batch = loader.epoch(0).next().unwrap().unwrap();
    assert_eq!((batch.data.shape(), batch.data.dtype()), (&[4, 2, 2, 3][..], DType::U8));

    let sums = Loader::new(numbers(6), 4).unwrap().collate(|items: Vec<f32>| Ok(items.iter().sum::<f32>()));
    let sums: Vec<f32> = sums.epoch(0).map(|batch| batch.unwrap().data).collect();
    assert_eq!(sums, [6.0, 9.0]);

    let boxed: Box<dyn Dataset<Item = f32>> = Box::new(numbers(5));
    assert_eq!(Loader::new(boxed, 2).unwrap().epoch(0).count(), 3);

    let wide = numbers(6).map(|x| Ok((x, x as i64)));
    let batch = Loader::new(wide, 6).unwrap().epoch(0).next().unwrap().unwrap();
    assert_eq!((batch.data.0.dtype(), batch.data.1.dtype()), (DType::F32, DType::I64));
}

/// Waits until a count stands still.
fn settled(count: &AtomicUsize) -> usize {
    let mut last = count.load(Ordering::SeqCst);
    loop {
        thread::sleep(Duration::from_millis(150));
        let now = count.load(Ordering::SeqCst);
        if now == last {
            return now;
        }
        last = now;
    }
}

/// The indices as floats, counted as they are loaded, each after a while.
fn counted(n: usize, pause: Duration) -> (impl Dataset<Item = f32> + 'static, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    let dataset = from_fn(n, move |index| {
        thread::sleep(pause);
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(index as f32)
    });
    (dataset, count)
}

#[test]
fn a_slow_consumer_bounds_the_work() {
    let (dataset, count) = counted(1000, Duration::ZERO);
    let loader = Loader::new(dataset, 10).unwrap().threads(4).prefetch(3);
    let mut batches = loader.epoch(0);
    assert_eq!(settled(&count), 30);
    for n_taken in 1..4 {
        batches.next().unwrap().unwrap();
        assert_eq!(settled(&count), 30 + 10 * n_taken);
    }
    drop(batches);
    assert_eq!(settled(&count), 60);
    // Without threads, nothing is loaded before it is asked for.
    let (dataset, count) = counted(1000, Duration::ZERO);
    let loader = Loader::new(dataset, 10).unwrap().threads(0);
    let mut batches = loader.epoch(0);
    assert_eq!(settled(&count), 0);
    batches.next().unwrap().unwrap();
    assert_eq!(settled(&count), 10);
}

#[test]
fn dropping_an_epoch_stops_its_threads_at_once() {
    // Whole batches would take ten seconds, the epoch hours.
    let (dataset, count) = counted(1_000_000, Duration::from_millis(10));
    let loader = Loader::new(dataset, 1000).unwrap().threads(2);
    for pause in [0, 30] {
        let batches = loader.epoch(0);
        thread::sleep(Duration::from_millis(pause));
        let start = Instant::now();
        drop(batches);
        assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
        let at_end = count.load(Ordering::SeqCst);
        assert_eq!(settled(&count), at_end);
    }
}

#[test]
fn threads_end_with_the_epoch() {
    let token = Arc::new(());
    let held = token.clone();
    let dataset = from_fn(100, move |index| {
        let _ = &held;
        Ok(index as f32)
    });
    let loader = Loader::new(dataset, 10).unwrap().threads(4);
    let mut batches = loader.epoch(0);
    assert_eq!(batches.by_ref().count(), 10);
    assert!(batches.next().is_none() && batches.next().is_none());
    // Both keep the data set until they are gone.
    drop(loader);
    assert_eq!(Arc::strong_count(&token), 2);
    drop(batches);
    assert_eq!(Arc::strong_count(&token), 1);
}

#[test]
fn epochs_may_overlap() {
    let loader = Loader::new(numbers(50), 7).unwrap().shuffled(1).threads(2);
    let alone: Vec<Vec<usize>> = loader.epoch(1).map(|batch| batch.unwrap().indices).collect();
    let (mut first, second) = (loader.epoch(0), loader.epoch(1));
    let mut interleaved = vec![];
    for batch in second {
        first.next().unwrap().unwrap();
        interleaved.push(batch.unwrap().indices);
    }
    assert_eq!(interleaved, alone);
}

#[test]
fn the_share_of_waiting_is_measured() {
    // Nothing to do but to wait: ten examples of ten milliseconds, one after the other.
    let (dataset, _) = counted(10, Duration::from_millis(10));
    let loader = Loader::new(dataset, 2).unwrap().threads(1);
    assert_eq!(loader.epoch(0).count(), 5);
    let stats = loader.stats();
    assert_eq!((stats.examples, stats.batches, stats.skipped), (10, 5, 0));
    assert!(stats.elapsed >= Duration::from_millis(100) && stats.waiting_share() > 0.9, "{stats}");
    assert!(stats.examples_per_second() <= 100.0, "{stats}");

    // A slow step: the data are there before they are asked for, except the first.
    let loader = Loader::new(numbers(10), 2).unwrap().threads(1);
    let mut batches = loader.epoch(0);
    while batches.next().is_some() {
        thread::sleep(Duration::from_millis(50));
    }
    let stats = batches.stats();
    assert!(stats.elapsed >= Duration::from_millis(250) && stats.waiting_share() < 0.5, "{stats}");
    assert_eq!((stats, 10), (loader.stats(), stats.examples));
    // The sums of the loader go on with every epoch.
    assert_eq!(loader.epoch(1).count(), 5);
    assert_eq!((loader.stats().examples, loader.stats().batches), (20, 10));
    assert!(loader.stats().elapsed >= stats.elapsed);
    assert!(stats.to_string().contains("10 examples"), "{stats}");
}
