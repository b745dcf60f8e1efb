//! Data sets made from others.

use std::collections::BTreeSet;
use std::sync::Arc;

use retape::Tensor;
use retape_train::Error;
use retape_train::data::augment::{Pipeline, Reflection};
use retape_train::data::synthetic::Objects;
use retape_train::data::{Array, Dataset, Image, Items, Labelled, Stack, from_fn};

/// Pairs of the index and the epoch it was asked for.
struct Epochs(usize);

impl Dataset for Epochs {
    type Item = (usize, u64);

    fn len(&self) -> usize {
        self.0
    }

    fn get(&self, index: usize) -> Result<(usize, u64), Error> {
        self.get_in_epoch(index, 0)
    }

    fn get_in_epoch(&self, index: usize, epoch: u64) -> Result<(usize, u64), Error> {
        Ok((index, epoch))
    }
}

#[test]
fn every_adapter_hands_the_epoch_on() {
    let one = |dataset: &dyn Dataset<Item = (usize, u64)>| {
        assert_eq!(dataset.get_in_epoch(1, 9).unwrap().1, 9);
        assert_eq!(dataset.get(1).unwrap().1, 0);
    };
    one(&Epochs(4));
    one(&Epochs(4).map(Ok));
    one(&Epochs(4).map_random(1, |item, _| Ok(item)));
    one(&Epochs(4).subset(vec![3, 2]).unwrap());
    one(&Epochs(4).split(0.5, 1).unwrap().1);
    one(&Epochs(4).shard(1, 2).unwrap());
    one(&Epochs(4).concat(Epochs(2)));
    one(&Epochs(1).concat(Epochs(2)));
    one(&&Epochs(4));
    one(&Arc::new(Epochs(4)));
    let boxed: Box<dyn Dataset<Item = (usize, u64)>> = Box::new(Epochs(4));
    one(&boxed);
    let zipped = Epochs(4).zip(Epochs(4)).unwrap();
    assert_eq!(zipped.get_in_epoch(1, 9).unwrap(), ((1, 9), (1, 9)));
    assert_eq!(zipped.get(1).unwrap(), ((1, 0), (1, 0)));
}

#[test]
fn adapters_pick_the_right_examples() {
    let numbers = || from_fn(10, Ok);
    let subset = numbers().subset(vec![7, 0, 7]).unwrap();
    assert_eq!((0..3).map(|index| subset.get(index).unwrap()).collect::<Vec<_>>(), [7, 0, 7]);
    assert!(numbers().subset(vec![10]).is_err());
    let joined = numbers().concat(numbers().map(|x| Ok(100 + x)));
    assert_eq!((joined.len(), joined.get(9).unwrap(), joined.get(10).unwrap()), (20, 9, 100));
    for dataset in [&subset as &dyn Dataset<Item = usize>, &joined, &numbers()] {
        assert!(dataset.get(dataset.len()).is_err() && dataset.get(usize::MAX).is_err());
    }
    assert!(numbers().zip(from_fn(9, Ok)).is_err());
    assert!(from_fn(0, Ok).is_empty() && !numbers().is_empty());
}

#[test]
fn shards_are_disjoint_and_complete() {
    for (n, count) in [(10, 3), (2, 5), (0, 2), (7, 1)] {
        let shards: Vec<_> = (0..count).map(|index| from_fn(n, Ok).shard(index, count).unwrap()).collect();
        let mut all: Vec<usize> = shards.iter().flat_map(|shard| shard.indices()).copied().collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..n));
        let lens: Vec<usize> = shards.iter().map(Dataset::len).collect();
        assert!(lens.iter().max().unwrap() - lens.iter().min().unwrap() <= 1, "{lens:?}");
    }
    assert!(from_fn(4, Ok).shard(2, 2).is_err() && from_fn(4, Ok).shard(0, 0).is_err());
}

#[test]
fn splits_are_disjoint_complete_random_and_repeatable() {
    let split = |seed| {
        let (train, held_out) = from_fn(1000, Ok).split(0.25, seed).unwrap();
        (train.indices().to_vec(), held_out.indices().to_vec())
    };
    let (train, held_out) = split(1);
    assert_eq!((train.len(), held_out.len()), (750, 250));
    assert!(train.is_sorted() && held_out.is_sorted());
    let all: BTreeSet<usize> = train.iter().chain(&held_out).copied().collect();
    assert_eq!(all.len(), 1000);
    assert_eq!((train, held_out.clone()), split(1));
    assert_ne!(held_out, split(2).1);
    // Held out everywhere: of each hundred, about a quarter.
    for hundred in 0..10 {
        let count = held_out.iter().filter(|&&index| index / 100 == hundred).count();
        assert!((10..=40).contains(&count), "{hundred}: {count}");
    }
    assert!(from_fn(4, Ok).split(1.5, 1).is_err() && from_fn(4, Ok).split(f64::NAN, 1).is_err());
    assert_eq!(from_fn(4, Ok).split(1.0, 1).unwrap().1.len(), 4);
}

#[test]
fn random_numbers_belong_to_the_example_and_not_to_its_place() {
    let noisy = || from_fn(10, Ok).map_random(3, |x, random| Ok((x, random.stream("noise").bits())));
    let subset = noisy().subset(vec![4, 8]).unwrap();
    assert_eq!(subset.get_in_epoch(1, 6).unwrap(), noisy().get_in_epoch(8, 6).unwrap());
    let mut seen = BTreeSet::new();
    for epoch in 0..5 {
        for index in 0..10 {
            seen.insert(noisy().get_in_epoch(index, epoch).unwrap().1);
        }
    }
    assert_eq!(seen.len(), 50);
    assert_eq!(noisy().get(2).unwrap(), noisy().get_in_epoch(2, 0).unwrap());
}

#[test]
fn labels_pass_through_what_keeps_them() {
    let objects = Objects::generate(1, 40);
    let labels: Vec<i32> = (0..40).map(|index| objects.label(index).unwrap()).collect();
    let augmented = Arc::new(objects.clone()).augment(1, Pipeline::new().then(Reflection::horizontal()));
    let of = |dataset: &dyn Labelled<Item = (Image, i32)>| -> Vec<i32> {
        (0..dataset.len())
            .map(|index| {
                let label = dataset.label(index).unwrap();
                assert_eq!(dataset.get(index).unwrap().1, label);
                label
            })
            .collect()
    };
    assert_eq!(of(&augmented), labels);
    assert_eq!(
        of(&objects.clone().subset((0..40).rev().collect()).unwrap()),
        labels.iter().rev().copied().collect::<Vec<_>>()
    );
    assert_eq!(of(&objects.clone().concat(objects)), labels.repeat(2));
}

#[test]
fn arrays_are_data_sets_of_their_rows() {
    let array = Array::new((0..24).collect::<Vec<i64>>(), [4, 3, 2]).unwrap();
    let row = array.get(2).unwrap();
    assert_eq!((row.values, row.shape), (vec![12, 13, 14, 15, 16, 17], [3, 2].into()));
    let tensor = Tensor::from([[1.0_f32, 2.0], [3.0, 4.0]]);
    assert_eq!(Array::<f32>::from_tensor(&tensor).unwrap().get(1).unwrap().values, [3.0, 4.0]);
    assert!(Array::<f64>::from_tensor(&tensor).is_err());
    assert!(Array::new(vec![1.0_f32], ()).is_err() && Array::new(vec![1.0_f32], [2]).is_err());
    assert_eq!(Array::new(vec![0_u8; 0], [5, 0]).unwrap().get(4).unwrap().values, [0; 0]);
    assert!(Array::new(vec![0_u8; 0], [0, 5]).unwrap().is_empty());
    assert!(array.get(4).is_err() && Items::from(vec![1]).get(1).is_err());
}

#[test]
fn items_stack_part_by_part() {
    let items = vec![(vec![1.0_f32, 2.0], 3_i64, [true, false]), (vec![4.0, 5.0], 6, [false, false])];
    let (rows, numbers, flags) = Stack::stack(items).unwrap();
    assert_eq!((rows.shape(), rows.to_vec::<f32>().unwrap()), (&[2, 2][..], vec![1.0, 2.0, 4.0, 5.0]));
    assert_eq!(numbers.to_vec::<i64>().unwrap(), [3, 6]);
    assert_eq!(flags.to_vec::<bool>().unwrap(), [true, false, false, false]);
    let tensors = Stack::stack(vec![Tensor::from([1_i32, 2]), Tensor::from([3, 4])]).unwrap();
    assert_eq!((tensors.shape(), tensors.to_vec::<i32>().unwrap()), (&[2, 2][..], vec![1, 2, 3, 4]));

    assert!(Stack::stack(vec![vec![1_u8], vec![1, 2]]).is_err());
    assert!(Stack::stack(vec![Tensor::from([1_i32, 2]), Tensor::from([3.0_f32, 4.0])]).is_err());
    assert!(Stack::stack(vec![Tensor::from([1_i32, 2]), Tensor::from([[3, 4]])]).is_err());
    assert!(Vec::<f32>::stack(vec![]).is_err());
}
