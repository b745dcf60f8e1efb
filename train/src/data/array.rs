//! Data sets that are in main memory already.

use retape::{Element, Shape, Tensor};

use super::collate::Row;
use super::dataset::{Dataset, check_index};
use crate::error::{Error, Result};

/// Items in main memory, cloned when they are asked for.
///
/// ```
/// use retape_train::data::{Dataset, Items};
///
/// let words = Items::from(vec!["one", "two"]);
/// assert_eq!((words.len(), words.get(1)?), (2, "two"));
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Items<T>(Vec<T>);

impl<T> From<Vec<T>> for Items<T> {
    fn from(items: Vec<T>) -> Items<T> {
        Items(items)
    }
}

impl<T: Clone + Send + Sync> Dataset for Items<T> {
    type Item = T;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, index: usize) -> Result<T> {
        check_index(index, self.0.len())?;
        Ok(self.0[index].clone())
    }
}

/// An array in main memory whose first axis counts the examples.
///
/// Batches are tensors of shape `[batch, ..]`. Features and labels are two arrays, or an array and [`Items`], joined by
/// [`Dataset::zip`].
///
/// ```
/// use retape_train::data::{Array, Dataset, Items, Loader};
///
/// let features = Array::new(vec![1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], [3, 2])?;
/// let mut loader = Loader::new(features.zip(Items::from(vec![0_i32, 1, 0]))?, 2)?;
/// let batch = loader.epoch(0).next().expect("three examples make a batch")?;
/// let (x, labels) = &batch.data;
/// assert_eq!((x.shape(), labels.to_vec::<i32>()?), (&[2, 2][..], vec![0, 1]));
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Array<T> {
    values: Vec<T>,
    n_examples: usize,
    row_shape: Shape,
    row_len: usize,
}

impl<T: Element> Array<T> {
    /// The array of these row-major values.
    ///
    /// # Errors
    ///
    /// Fails if the shape has no axis, or the number of values is not the product of its extents.
    #[track_caller]
    pub fn new(values: Vec<T>, shape: impl Into<Shape>) -> Result<Array<T>> {
        let shape = shape.into();
        let Some((&n_examples, row)) = shape.split_first() else {
            return Err(Error::argument("an array of examples needs a first axis that counts them"));
        };
        if shape.checked_len() != Some(values.len()) {
            return Err(Error::argument(format!("{} values do not fill the shape {shape}", values.len())));
        }
        let row_len = values.len().checked_div(n_examples).unwrap_or(0);
        Ok(Array { row_shape: Shape::new(row), values, n_examples, row_len })
    }

    /// The array of the elements of a tensor, whose first axis counts the examples.
    ///
    /// # Errors
    ///
    /// Fails if the tensor has no axis, holds another dtype, or has no elements because it is poisoned or traced.
    #[track_caller]
    pub fn from_tensor(tensor: &Tensor) -> Result<Array<T>> {
        Array::new(tensor.to_vec()?, tensor.shape())
    }
}

impl<T: Element> Dataset for Array<T> {
    type Item = Row<T>;

    fn len(&self) -> usize {
        self.n_examples
    }

    fn get(&self, index: usize) -> Result<Row<T>> {
        check_index(index, self.n_examples)?;
        let values = self.values[index * self.row_len..][..self.row_len].to_vec();
        Ok(Row { values, shape: self.row_shape.clone() })
    }
}
