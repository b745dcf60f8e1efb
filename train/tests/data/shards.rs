//! Shards of batches: the rows of all workers together are those of one loader, bit for bit.

use retape::Tensor;
use retape::collective::share;
use retape::data::Partial;
use retape_train::data::augment::{Border, Normalisation, Pipeline, RandomCrop, Reflection};
use retape_train::data::synthetic::Objects;
use retape_train::data::{Augmented, Batch, Dataset, Loader, Shards, Stacked, from_fn};

/// Augmented images in shuffled batches of 14, the last one of 8.
fn loader() -> Loader<Augmented<Objects>> {
    let pipeline = Pipeline::new()
        .then(RandomCrop::new(32, 32).padding(4, Border::Reflect))
        .then(Reflection::horizontal())
        .then(Normalisation::IMAGENET);
    Loader::new(Objects::generate(3, 50).augment(5, pipeline), 14).unwrap().shuffled(7).threads(2)
}

/// The bits of images and labels.
fn bits<'b>(tensors: impl IntoIterator<Item = &'b (Tensor, Tensor)>) -> (Vec<u32>, Vec<i32>) {
    let (mut pixels, mut labels) = (vec![], vec![]);
    for (images, of) in tensors {
        pixels.extend(images.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits));
        labels.extend(of.to_vec::<i32>().unwrap());
    }
    (pixels, labels)
}

type Images = (Tensor, Tensor);

#[test]
fn all_workers_together_have_the_rows_of_one_loader() {
    let whole: Vec<Batch<Images>> = (0..2).flat_map(|epoch| loader().epoch(epoch)).map(Result::unwrap).collect();
    assert_eq!(whole.iter().map(Batch::rows).collect::<Vec<_>>(), [14, 14, 14, 8, 14, 14, 14, 8]);
    for n_workers in 1..=4 {
        let of_worker = |rank| -> Vec<Batch<Vec<Images>>> {
            let own = loader().shards(4, share(4, rank, n_workers)).unwrap();
            assert_eq!(own.n_batches(), 4);
            (0..2).flat_map(|epoch| own.epoch(epoch)).map(Result::unwrap).collect()
        };
        let workers: Vec<Vec<Batch<Vec<Images>>>> = (0..n_workers).map(of_worker).collect();
        assert!(workers.iter().all(|batches| batches.len() == whole.len()));
        for (number, whole) in whole.iter().enumerate() {
            let parts: Vec<&Batch<Vec<Images>>> = workers.iter().map(|batches| &batches[number]).collect();
            assert!(parts.iter().all(|part| (part.epoch, part.number) == (whole.epoch, whole.number)));
            assert!(parts.iter().all(|part| part.whole == whole.rows() && whole.whole == whole.rows()));
            let indices: Vec<usize> = parts.iter().flat_map(|part| part.indices.clone()).collect();
            assert_eq!(indices, whole.indices, "batch {number} of {n_workers} workers");
            let shards: Vec<&Images> = parts.iter().flat_map(|part| &part.data).collect();
            let rows: Vec<usize> = parts.iter().flat_map(|part| part.shard_rows()).collect();
            assert_eq!(rows, shards.iter().map(|shard| shard.0.dim(0)).collect::<Vec<_>>());
            assert_eq!(rows, (0..4).map(|shard| share(whole.rows(), shard, 4).len()).collect::<Vec<_>>());
            assert_eq!(bits(shards), bits([&whole.data]), "batch {number} of {n_workers} workers");
        }
    }
}

#[test]
fn an_epoch_of_shards_goes_on_from_any_batch() {
    let own = loader().shards(4, 1..3).unwrap();
    let all: Vec<_> = own.epoch(1).map(|batch| bits(&batch.unwrap().data)).collect();
    for first in 0..4 {
        let rest: Vec<_> = own.epoch_from(1, first).map(|batch| bits(&batch.unwrap().data)).collect();
        assert_eq!(rest, all[first..]);
    }
}

type Numbers<D> = Loader<D, Shards<Stacked>>;

/// The values of each held shard of each batch.
fn values<D: Dataset<Item = f32> + 'static>(loader: &Numbers<D>) -> Vec<Vec<Vec<f32>>> {
    let shards = |batch: Batch<Vec<Tensor>>| batch.data.iter().map(|shard| shard.to_vec().unwrap()).collect();
    loader.epoch(0).map(|batch| shards(batch.unwrap())).collect()
}

#[test]
fn no_shard_is_empty() {
    let numbers = |n: usize| Loader::new(from_fn(n, |index| Ok(index as f32)), 5).unwrap();
    // The last two rows are too few for three shards, three are enough.
    for (n, n_batches) in [(0, 0), (2, 0), (3, 1), (5, 1), (7, 1), (8, 2)] {
        for held in [0..3, 0..1, 1..3] {
            let loader = numbers(n).shards(3, held.clone()).unwrap();
            let values = values(&loader);
            assert_eq!((loader.n_batches(), values.len()), (n_batches, n_batches), "{n} numbers");
            assert!(values.iter().flatten().all(|shard| !shard.is_empty()));
        }
    }
    assert_eq!(values(&numbers(8).shards(3, 0..2).unwrap())[1], [[5.0], [6.0]]);
    let discarded = numbers(8).partial(Partial::Discard).shards(3, 0..2).unwrap();
    assert_eq!(values(&discarded), [[[0.0, 1.0], [2.0, 3.0]]]);
    let error = |result: Result<_, retape_train::Error>| result.map(|_: Numbers<_>| ()).unwrap_err().to_string();
    for (refused, message) in [
        (numbers(9).shards(6, 0..1), "5 rows in 6 shards: each must have one (at "),
        (numbers(9).shards(3, 2..4), "2..4 are no shards among 3 (at "),
        (numbers(9).shards(3, 1..1), "1..1 are no shards among 3 (at "),
    ] {
        let error = error(refused);
        assert!(error.starts_with(message) && error.contains("shards.rs"), "{error}");
    }
}

#[test]
fn shards_are_filled_one_by_one() {
    let numbers = from_fn(12, |index| Ok(index as f32));
    let loader = Loader::new(numbers, 8).unwrap().filled().shards(3, 0..2).unwrap();
    let last = loader.epoch(0).last().unwrap().unwrap();
    // Four rows of eight: shards of 2, 1 and 1 instead of 3, 3 and 2.
    assert_eq!((last.shard_rows(), last.indices.clone(), last.whole), (vec![2, 1], vec![8, 9, 10], 4));
    assert_eq!(values(&loader)[1], [[8.0, 9.0, 8.0], [10.0, 10.0, 10.0]]);
}

#[test]
fn a_broken_example_fails_where_other_workers_would_not_hear_of_it() {
    let torn = from_fn(8, |index| if index == 5 { Err(retape_train::Error::custom("torn")) } else { Ok(index as f32) });
    let loader = Loader::new(torn, 4).unwrap().skip_broken().shards(2, 0..1).unwrap();
    let batches: Vec<_> = loader.epoch(0).collect();
    assert!(batches[0].is_ok());
    assert_eq!(batches[1].as_ref().unwrap_err().to_string(), "example 5: torn");
}
