//! The trait of data sets, and the adapters that make one from others.
//!
//! An example is asked for by its index; nothing is drawn from a stream. So any thread may load any example, in any
//! order, and a data set says nothing about batches, epochs or threads.

use std::sync::Arc;

use retape::Caller;

use super::adapt::{Augmented, Concat, Map, MapRandom, Subset, Zip};
use super::augment::Pipeline;
use super::image::Image;
use super::keyed::ExampleRandom;
use super::partition;
use crate::error::{Error, Result};

/// The examples to learn from, and those held out; made by [`Dataset::split`] and [`Labelled::split_by_label`].
///
/// ```
/// use retape_train::data::{Dataset, Items, Split};
///
/// let (train, held_out): Split<Items<char>> = Items::from(vec!['a', 'b', 'c']).split(0.3, 1)?;
/// assert_eq!((train.len(), held_out.len()), (2, 1));
/// # Ok::<(), retape_train::Error>(())
/// ```
pub type Split<D> = (Subset<Arc<D>>, Subset<Arc<D>>);

/// Examples with indices `0..len()`.
///
/// The trait is object-safe: a `Box<dyn Dataset<Item = T>>` is a data set. A type of the caller's own needs two methods:
///
/// ```
/// use retape_train::Result;
/// use retape_train::data::Dataset;
///
/// struct Squares;
///
/// impl Dataset for Squares {
///     type Item = (f32, f32);
///
///     fn len(&self) -> usize {
///         100
///     }
///
///     fn get(&self, index: usize) -> Result<(f32, f32)> {
///         let x = index as f32;
///         Ok((x, x * x))
///     }
/// }
///
/// let halves = Squares.map(|(x, y)| Ok((x / 2.0, y))).shard(1, 4)?;
/// assert_eq!((halves.len(), halves.get(2)?), (25, (4.5, 81.0)));
/// # Ok::<(), retape_train::Error>(())
/// ```
pub trait Dataset: Send + Sync {
    /// One example, such as an image and its label.
    type Item;

    /// The number of examples.
    fn len(&self) -> usize;

    /// Loads example `index`, as epoch 0 sees it.
    ///
    /// The same index gives the same example every time, whatever thread asks.
    ///
    /// # Errors
    ///
    /// Fails if there is no such example or it cannot be loaded.
    fn get(&self, index: usize) -> Result<Self::Item>;

    /// Whether there are no examples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Loads example `index` as epoch `epoch` sees it.
    ///
    /// Only data sets with random augmentation differ between epochs. An adapter of the caller's own has to hand the
    /// epoch on to the data set beneath it; any other data set keeps this method as it is.
    ///
    /// # Errors
    ///
    /// As [`get`](Dataset::get).
    fn get_in_epoch(&self, index: usize, epoch: u64) -> Result<Self::Item> {
        let _ = epoch;
        self.get(index)
    }

    /// The data set whose examples are `function` of these.
    ///
    /// ```
    /// use retape_train::data::{Dataset, from_fn};
    ///
    /// let doubled = from_fn(3, Ok).map(|x| Ok(2 * x));
    /// assert_eq!(doubled.get(2)?, 4);
    /// # Ok::<(), retape_train::Error>(())
    /// ```
    fn map<F, T>(self, function: F) -> Map<Self, F>
    where
        Self: Sized,
        F: Fn(Self::Item) -> Result<T> + Send + Sync,
    {
        Map::new(self, function)
    }

    /// The data set whose examples are `function` of these and of random numbers keyed by `(seed, epoch, index)`.
    ///
    /// The index is that of the example in `self`, so a subset taken afterwards sees the same random numbers.
    ///
    /// ```
    /// use retape_train::data::{Dataset, from_fn};
    ///
    /// let noisy = from_fn(3, Ok).map_random(7, |x, random| Ok(x as f64 + random.stream("noise").bell()));
    /// assert_eq!(noisy.get_in_epoch(1, 5)?, noisy.get_in_epoch(1, 5)?);
    /// assert_ne!(noisy.get_in_epoch(1, 5)?, noisy.get_in_epoch(1, 6)?);
    /// # Ok::<(), retape_train::Error>(())
    /// ```
    fn map_random<F, T>(self, seed: u64, function: F) -> MapRandom<Self, F>
    where
        Self: Sized,
        F: Fn(Self::Item, &ExampleRandom) -> Result<T> + Send + Sync,
    {
        MapRandom::new(self, seed, function)
    }

    /// The data set whose images went through `pipeline`, by random numbers keyed by `(seed, epoch, index)`.
    ///
    /// ```
    /// use retape_train::data::augment::{Pipeline, Reflection};
    /// use retape_train::data::synthetic::Objects;
    /// use retape_train::data::Dataset;
    ///
    /// let objects = Objects::generate(1, 10).augment(7, Pipeline::new().then(Reflection::horizontal()));
    /// let (image, label) = objects.get_in_epoch(3, 2)?;
    /// assert_eq!((image.shape(), label), ([32, 32, 3], Objects::generate(1, 10).get(3)?.1));
    /// # Ok::<(), retape_train::Error>(())
    /// ```
    fn augment<L>(self, seed: u64, pipeline: Pipeline) -> Augmented<Self>
    where
        Self: Sized + Dataset<Item = (Image, L)>,
    {
        Augmented::new(self, seed, pipeline)
    }

    /// The examples at `indices`, in that order; an index may come more than once.
    ///
    /// # Errors
    ///
    /// Fails if an index is out of range.
    #[track_caller]
    fn subset(self, indices: Vec<usize>) -> Result<Subset<Self>>
    where
        Self: Sized,
    {
        Subset::new(self, indices)
    }

    /// Divides the examples at random into those to learn from and those held out, `fraction` of them, rounded.
    ///
    /// Each part keeps the order of the whole. [`Labelled::split_by_label`] holds out that fraction of every label.
    ///
    /// ```
    /// use retape_train::data::{Dataset, from_fn};
    ///
    /// let (train, held_out) = from_fn(10, Ok).split(0.3, 1)?;
    /// assert_eq!((train.len(), held_out.len()), (7, 3));
    /// # Ok::<(), retape_train::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if `fraction` is not in `[0, 1]`.
    #[track_caller]
    fn split(self, fraction: f64, seed: u64) -> Result<Split<Self>>
    where
        Self: Sized,
    {
        let (train, held_out) = partition::split(self.len(), fraction, seed)?;
        let whole = Arc::new(self);
        Ok((whole.clone().subset(train)?, whole.subset(held_out)?))
    }

    /// Part `index` of `count`: the examples `index`, `index + count`, `index + 2 count`, and so on.
    ///
    /// Together the parts hold every example once; their lengths differ by one at most.
    ///
    /// ```
    /// use retape_train::data::{Dataset, from_fn};
    ///
    /// let shard = from_fn(7, Ok).shard(2, 3)?;
    /// assert_eq!((shard.len(), shard.get(1)?), (2, 5));
    /// # Ok::<(), retape_train::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if `index` is not below `count`.
    #[track_caller]
    fn shard(self, index: usize, count: usize) -> Result<Subset<Self>>
    where
        Self: Sized,
    {
        let indices = partition::shard(self.len(), index, count)?;
        self.subset(indices)
    }

    /// The examples of `self` and then those of `other`.
    ///
    /// ```
    /// use retape_train::data::{Dataset, from_fn};
    ///
    /// let both = from_fn(2, Ok).concat(from_fn(3, |i| Ok(10 * i)));
    /// assert_eq!((both.len(), both.get(4)?), (5, 20));
    /// # Ok::<(), retape_train::Error>(())
    /// ```
    fn concat<B>(self, other: B) -> Concat<Self, B>
    where
        Self: Sized,
        B: Dataset<Item = Self::Item>,
    {
        Concat::new(self, other)
    }

    /// Pairs of an example of `self` and the one of `other` with the same index.
    ///
    /// ```
    /// use retape_train::data::{Dataset, Items};
    ///
    /// let pairs = Items::from(vec![0.5_f32, 1.5]).zip(Items::from(vec![3_i32, 4]))?;
    /// assert_eq!(pairs.get(1)?, (1.5, 4));
    /// # Ok::<(), retape_train::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the two have different lengths.
    #[track_caller]
    fn zip<B>(self, other: B) -> Result<Zip<Self, B>>
    where
        Self: Sized,
        B: Dataset,
    {
        Zip::new(self, other)
    }
}

/// A data set that knows the label of an example without loading it.
///
/// ```
/// use retape_train::data::synthetic::Objects;
/// use retape_train::data::{Dataset, Labelled};
///
/// let (train, held_out) = Objects::generate(1, 100).split_by_label(0.2, 7)?;
/// assert_eq!((train.len(), held_out.len()), (80, 20));
/// for class in 0..10 {
///     let count = (0..held_out.len()).filter(|&i| held_out.label(i).is_ok_and(|label| label == class)).count();
///     assert_eq!(count, 2);
/// }
/// # Ok::<(), retape_train::Error>(())
/// ```
pub trait Labelled: Dataset {
    /// The label of example `index`.
    ///
    /// # Errors
    ///
    /// Fails if there is no such example.
    fn label(&self, index: usize) -> Result<i32>;

    /// Divides the examples at random into those to learn from and those held out, `fraction` of each label, rounded.
    ///
    /// Each part keeps the order of the whole. The choice within a label depends on `seed`, the label and the number of
    /// its examples, not on other labels.
    ///
    /// # Errors
    ///
    /// Fails if `fraction` is not in `[0, 1]`.
    #[track_caller]
    fn split_by_label(self, fraction: f64, seed: u64) -> Result<Split<Self>>
    where
        Self: Sized,
    {
        let labels: Vec<i32> = (0..self.len()).map(|index| self.label(index)).collect::<Result<_>>()?;
        let (train, held_out) = partition::split_by_label(&labels, fraction, seed)?;
        let whole = Arc::new(self);
        Ok((whole.clone().subset(train)?, whole.subset(held_out)?))
    }
}

/// Fails if there is no example `index` among `n`.
pub(super) fn check_index(index: usize, n: usize) -> Result<()> {
    check_index_at(index, n, None)
}

/// Fails if there is no example `index` among `n`, of a list that was given at a line.
pub(super) fn check_index_at(index: usize, n: usize, at: Option<Caller>) -> Result<()> {
    if index < n {
        return Ok(());
    }
    Err(Error::argument_at(format!("there is no example {index} among {n}"), at))
}

/// Hands everything on to the data set behind a pointer.
macro_rules! behind_pointer {
    ($($pointer:ty),*) => {$(
        impl<D: Dataset + ?Sized> Dataset for $pointer {
            type Item = D::Item;

            fn len(&self) -> usize {
                (**self).len()
            }

            fn get(&self, index: usize) -> Result<D::Item> {
                (**self).get(index)
            }

            fn get_in_epoch(&self, index: usize, epoch: u64) -> Result<D::Item> {
                (**self).get_in_epoch(index, epoch)
            }
        }

        impl<D: Labelled + ?Sized> Labelled for $pointer {
            fn label(&self, index: usize) -> Result<i32> {
                (**self).label(index)
            }
        }
    )*};
}

behind_pointer!(&D, Box<D>, Arc<D>);
