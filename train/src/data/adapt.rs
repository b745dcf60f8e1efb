//! Data sets made from other data sets.
//!
//! Every adapter hands the epoch on, so that random augmentation beneath it works as if it stood alone.

use std::panic::Location;

use super::augment::Pipeline;
use super::dataset::{Dataset, Labelled, check_index, check_index_at};
use super::image::Image;
use super::keyed::ExampleRandom;
use crate::error::{Error, Result};

/// A data set from a length and a function of the index; made by [`from_fn`].
///
/// ```
/// use retape_train::data::{Dataset, FromFn, from_fn};
///
/// let numbers: FromFn<fn(usize) -> retape_train::Result<usize>> = from_fn(3, Ok as _);
/// assert_eq!(numbers.len(), 3);
/// ```
#[derive(Clone, Debug)]
pub struct FromFn<F> {
    n_examples: usize,
    function: F,
}

/// The data set of `n` examples whose example `index` is `function(index)`.
///
/// ```
/// use retape_train::data::{Dataset, from_fn};
///
/// let squares = from_fn(10, |index| Ok(index * index));
/// assert_eq!((squares.len(), squares.get(3)?), (10, 9));
/// # Ok::<(), retape_train::Error>(())
/// ```
pub fn from_fn<F, T>(n: usize, function: F) -> FromFn<F>
where
    F: Fn(usize) -> Result<T> + Send + Sync,
{
    FromFn { n_examples: n, function }
}

impl<F, T> Dataset for FromFn<F>
where
    F: Fn(usize) -> Result<T> + Send + Sync,
{
    type Item = T;

    fn len(&self) -> usize {
        self.n_examples
    }

    fn get(&self, index: usize) -> Result<T> {
        check_index(index, self.n_examples)?;
        (self.function)(index)
    }
}

/// The examples of [`Dataset::map`].
///
/// ```
/// use retape_train::data::{Dataset, FromFn, Map, from_fn};
///
/// type Numbers = FromFn<fn(usize) -> retape_train::Result<usize>>;
/// let next: Map<Numbers, fn(usize) -> retape_train::Result<usize>> = from_fn(3, Ok as _).map(|x| Ok(x + 1));
/// assert_eq!(next.get(2)?, 3);
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Map<D, F> {
    inner: D,
    function: F,
}

impl<D, F> Map<D, F> {
    pub(super) fn new(inner: D, function: F) -> Map<D, F> {
        Map { inner, function }
    }
}

impl<D, F, T> Dataset for Map<D, F>
where
    D: Dataset,
    F: Fn(D::Item) -> Result<T> + Send + Sync,
{
    type Item = T;

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn get(&self, index: usize) -> Result<T> {
        (self.function)(self.inner.get(index)?)
    }

    fn get_in_epoch(&self, index: usize, epoch: u64) -> Result<T> {
        (self.function)(self.inner.get_in_epoch(index, epoch)?)
    }
}

/// The examples of [`Dataset::map_random`].
///
/// ```
/// use retape_train::data::{Dataset, from_fn};
///
/// let coins = from_fn(100, Ok).map_random(7, |_, random| Ok(random.stream("coin").below(2)));
/// let heads = (0..100).filter(|&index| coins.get(index).is_ok_and(|side| side == 0)).count();
/// assert!((30..70).contains(&heads));
/// ```
#[derive(Clone, Debug)]
pub struct MapRandom<D, F> {
    inner: D,
    seed: u64,
    function: F,
}

impl<D, F> MapRandom<D, F> {
    pub(super) fn new(inner: D, seed: u64, function: F) -> MapRandom<D, F> {
        MapRandom { inner, seed, function }
    }
}

impl<D, F, T> Dataset for MapRandom<D, F>
where
    D: Dataset,
    F: Fn(D::Item, &ExampleRandom) -> Result<T> + Send + Sync,
{
    type Item = T;

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn get(&self, index: usize) -> Result<T> {
        self.get_in_epoch(index, 0)
    }

    fn get_in_epoch(&self, index: usize, epoch: u64) -> Result<T> {
        let item = self.inner.get_in_epoch(index, epoch)?;
        (self.function)(item, &ExampleRandom::new(self.seed, epoch, index))
    }
}

/// The examples of [`Dataset::augment`].
///
/// ```
/// use retape_train::data::augment::{CentreCrop, Pipeline};
/// use retape_train::data::synthetic::Objects;
/// use retape_train::data::{Dataset, Labelled};
///
/// let small = Objects::generate(1, 10).augment(7, Pipeline::new().then(CentreCrop::new(24, 24)));
/// assert_eq!((small.get(0)?.0.shape(), small.get(0)?.1), ([24, 24, 3], small.label(0)?));
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Augmented<D> {
    inner: D,
    seed: u64,
    pipeline: Pipeline,
}

impl<D> Augmented<D> {
    pub(super) fn new(inner: D, seed: u64, pipeline: Pipeline) -> Augmented<D> {
        Augmented { inner, seed, pipeline }
    }
}

impl<D, L> Dataset for Augmented<D>
where
    D: Dataset<Item = (Image, L)>,
{
    type Item = (Image, L);

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn get(&self, index: usize) -> Result<(Image, L)> {
        self.get_in_epoch(index, 0)
    }

    fn get_in_epoch(&self, index: usize, epoch: u64) -> Result<(Image, L)> {
        let (image, label) = self.inner.get_in_epoch(index, epoch)?;
        Ok((self.pipeline.apply(image, &ExampleRandom::new(self.seed, epoch, index))?, label))
    }
}

impl<D, L> Labelled for Augmented<D>
where
    D: Labelled<Item = (Image, L)>,
{
    fn label(&self, index: usize) -> Result<i32> {
        self.inner.label(index)
    }
}

/// Some examples of a data set, in an order of their own; made by [`Dataset::subset`], [`Dataset::split`] and
/// [`Dataset::shard`].
///
/// ```
/// use retape_train::data::{Dataset, from_fn};
///
/// let odd = from_fn(10, Ok).subset(vec![1, 3, 5, 7, 9])?;
/// assert_eq!((odd.get(2)?, odd.indices()[2]), (5, 5));
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Subset<D> {
    inner: D,
    indices: Vec<usize>,
}

impl<D: Dataset> Subset<D> {
    #[track_caller]
    pub(super) fn new(inner: D, indices: Vec<usize>) -> Result<Subset<D>> {
        let n = inner.len();
        let at = Some(Location::caller());
        indices.iter().try_for_each(|&index| check_index_at(index, n, at))?;
        Ok(Subset { inner, indices })
    }

    /// The indices of the examples in the data set they are taken from.
    pub fn indices(&self) -> &[usize] {
        &self.indices
    }

    /// The data set that the examples are taken from.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The index in `inner` of example `index`.
    fn original(&self, index: usize) -> Result<usize> {
        check_index(index, self.indices.len())?;
        Ok(self.indices[index])
    }
}

impl<D: Dataset> Dataset for Subset<D> {
    type Item = D::Item;

    fn len(&self) -> usize {
        self.indices.len()
    }

    fn get(&self, index: usize) -> Result<D::Item> {
        self.inner.get(self.original(index)?)
    }

    fn get_in_epoch(&self, index: usize, epoch: u64) -> Result<D::Item> {
        self.inner.get_in_epoch(self.original(index)?, epoch)
    }
}

impl<D: Labelled> Labelled for Subset<D> {
    fn label(&self, index: usize) -> Result<i32> {
        self.inner.label(self.original(index)?)
    }
}

/// The examples of [`Dataset::concat`].
///
/// ```
/// use retape_train::data::{Concat, Dataset, Items};
///
/// let all: Concat<Items<char>, Items<char>> = Items::from(vec!['a', 'b']).concat(Items::from(vec!['c']));
/// assert_eq!(all.get(2)?, 'c');
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Concat<A, B> {
    first: A,
    second: B,
}

impl<A: Dataset, B: Dataset<Item = A::Item>> Concat<A, B> {
    pub(super) fn new(first: A, second: B) -> Concat<A, B> {
        Concat { first, second }
    }

    /// The index in the second data set, if `index` lies beyond the first.
    fn in_second(&self, index: usize) -> Result<Option<usize>> {
        check_index(index, self.len())?;
        Ok(index.checked_sub(self.first.len()))
    }
}

impl<A: Dataset, B: Dataset<Item = A::Item>> Dataset for Concat<A, B> {
    type Item = A::Item;

    fn len(&self) -> usize {
        self.first.len() + self.second.len()
    }

    fn get(&self, index: usize) -> Result<A::Item> {
        match self.in_second(index)? {
            None => self.first.get(index),
            Some(index) => self.second.get(index),
        }
    }

    fn get_in_epoch(&self, index: usize, epoch: u64) -> Result<A::Item> {
        match self.in_second(index)? {
            None => self.first.get_in_epoch(index, epoch),
            Some(index) => self.second.get_in_epoch(index, epoch),
        }
    }
}

impl<A: Labelled, B: Labelled<Item = A::Item>> Labelled for Concat<A, B> {
    fn label(&self, index: usize) -> Result<i32> {
        match self.in_second(index)? {
            None => self.first.label(index),
            Some(index) => self.second.label(index),
        }
    }
}

/// The examples of [`Dataset::zip`].
///
/// ```
/// use retape_train::data::{Dataset, Items, Zip};
///
/// let pairs: Zip<Items<char>, Items<i32>> = Items::from(vec!['a', 'b']).zip(Items::from(vec![1, 2]))?;
/// assert_eq!(pairs.get(1)?, ('b', 2));
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Zip<A, B> {
    first: A,
    second: B,
}

impl<A: Dataset, B: Dataset> Zip<A, B> {
    #[track_caller]
    pub(super) fn new(first: A, second: B) -> Result<Zip<A, B>> {
        let (n, m) = (first.len(), second.len());
        if n != m {
            return Err(Error::argument(format!("{n} examples cannot be paired with {m}")));
        }
        Ok(Zip { first, second })
    }
}

impl<A: Dataset, B: Dataset> Dataset for Zip<A, B> {
    type Item = (A::Item, B::Item);

    fn len(&self) -> usize {
        self.first.len()
    }

    fn get(&self, index: usize) -> Result<Self::Item> {
        Ok((self.first.get(index)?, self.second.get(index)?))
    }

    fn get_in_epoch(&self, index: usize, epoch: u64) -> Result<Self::Item> {
        Ok((self.first.get_in_epoch(index, epoch)?, self.second.get_in_epoch(index, epoch)?))
    }
}
