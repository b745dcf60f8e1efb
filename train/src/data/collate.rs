//! From the examples of a batch to one tree of tensors.

use retape::{DType, Element, Shape, Tensor, bf16, f16};

use super::image::Image;
use crate::error::{Error, Result};

/// Makes a batch of items; a closure `Fn(Vec<Item>) -> Result<Batch>` does.
///
/// ```
/// use retape::Tensor;
/// use retape_train::data::{Loader, from_fn};
///
/// // Sentences of different lengths, filled up with zeros.
/// let sentences = from_fn(4, |index| Ok(vec![7_i64; index + 1]));
/// let mut loader = Loader::new(sentences, 4)?.collate(|items: Vec<Vec<i64>>| {
///     let longest = items.iter().map(Vec::len).max().unwrap_or(0);
///     let padded = items.iter().flat_map(|item| item.iter().copied().chain([0; 8]).take(longest));
///     Ok(Tensor::from_vec(padded.collect::<Vec<i64>>(), [items.len(), longest])?)
/// });
/// let batch = loader.epoch(0).next().expect("one batch")?;
/// assert_eq!(batch.data.shape(), [4, 4]);
/// # Ok::<(), retape_train::Error>(())
/// ```
pub trait Collate<Item>: Send + Sync {
    /// The batch, usually a tree of tensors whose first axis counts the examples.
    type Batch;

    /// Makes the batch of at least one item.
    ///
    /// # Errors
    ///
    /// Fails if the items do not fit together.
    fn collate(&self, items: Vec<Item>) -> Result<Self::Batch>;
}

impl<F, Item, Batch> Collate<Item> for F
where
    F: Fn(Vec<Item>) -> Result<Batch> + Send + Sync,
{
    type Batch = Batch;

    fn collate(&self, items: Vec<Item>) -> Result<Batch> {
        self(items)
    }
}

/// The way of collating that the type of the items says: [`Stack`].
///
/// ```
/// use retape_train::data::{Collate, Stacked};
///
/// let labels = Stacked.collate(vec![3_i64, 1])?;
/// assert_eq!(labels.to_vec::<i64>()?, [3, 1]);
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stacked;

impl<Item: Stack> Collate<Item> for Stacked {
    type Batch = Item::Batch;

    fn collate(&self, items: Vec<Item>) -> Result<Item::Batch> {
        Item::stack(items)
    }
}

/// Items of which several make a batch in one obvious way.
///
/// Images become `f32` tensors of shape `[batch, height, width, channels]`, numbers become tensors `[batch]`, rows and
/// tensors get a first axis, and tuples are stacked part by part.
///
/// ```
/// use retape_train::data::Stack;
///
/// let (features, labels) = Stack::stack(vec![([1.0_f32, 2.0], 0_i32), ([3.0, 4.0], 1)])?;
/// assert_eq!((features.shape(), labels.shape()), (&[2, 2][..], &[2][..]));
/// assert_eq!(labels.to_vec::<i32>()?, [0, 1]);
/// # Ok::<(), retape_train::Error>(())
/// ```
pub trait Stack: Sized {
    /// The batch.
    type Batch;

    /// Makes the batch of at least one item.
    ///
    /// # Errors
    ///
    /// Fails if there are no items, or their shapes or dtypes differ.
    fn stack(items: Vec<Self>) -> Result<Self::Batch>;
}

impl Stack for Image {
    type Batch = Tensor;

    fn stack(items: Vec<Image>) -> Result<Tensor> {
        Image::stack_at(&items, None)
    }
}

macro_rules! stack_numbers {
    ($($number:ty),*) => {$(
        impl Stack for $number {
            type Batch = Tensor;

            fn stack(items: Vec<$number>) -> Result<Tensor> {
                let n = items.len();
                Ok(Tensor::from_vec(items, [n])?)
            }
        }
    )*};
}

stack_numbers!(f32, f64, f16, bf16, i32, i64, u32, u8, bool);

impl<T: Element> Stack for Vec<T> {
    type Batch = Tensor;

    fn stack(items: Vec<Vec<T>>) -> Result<Tensor> {
        stack_rows(&items, |row| (row.as_slice(), Shape::new(&[row.len()])))
    }
}

impl<T: Element, const N: usize> Stack for [T; N] {
    type Batch = Tensor;

    fn stack(items: Vec<[T; N]>) -> Result<Tensor> {
        stack_rows(&items, |row| (row.as_slice(), Shape::new(&[N])))
    }
}

/// Values of one example, row-major, with their shape; the example of an [`Array`](super::Array).
///
/// ```
/// use retape_train::data::{Row, Stack};
///
/// let row = Row { values: vec![1_u8, 2, 3, 4], shape: [2, 2].into() };
/// assert_eq!(Row::stack(vec![row.clone(), row])?.shape(), [2, 2, 2]);
/// # Ok::<(), retape_train::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Row<T> {
    /// The values.
    pub values: Vec<T>,
    /// The shape of the example.
    pub shape: Shape,
}

impl<T: Element> Stack for Row<T> {
    type Batch = Tensor;

    fn stack(items: Vec<Row<T>>) -> Result<Tensor> {
        stack_rows(&items, |row| (row.values.as_slice(), row.shape.clone()))
    }
}

impl Stack for Tensor {
    type Batch = Tensor;

    fn stack(items: Vec<Tensor>) -> Result<Tensor> {
        fn of<T: Element>(items: &[Tensor]) -> Result<Tensor> {
            // A tensor of another dtype than the first is the error of `to_vec`.
            let rows = items.iter().map(|item| Ok(Row { values: item.to_vec()?, shape: item.shape().into() }));
            Row::<T>::stack(rows.collect::<Result<_>>()?)
        }
        match items.first().map_or(DType::F32, Tensor::dtype) {
            DType::F32 => of::<f32>(&items),
            DType::F64 => of::<f64>(&items),
            DType::F16 => of::<f16>(&items),
            DType::Bf16 => of::<bf16>(&items),
            DType::I32 => of::<i32>(&items),
            DType::I64 => of::<i64>(&items),
            DType::U32 => of::<u32>(&items),
            DType::U8 => of::<u8>(&items),
            DType::Bool => of::<bool>(&items),
        }
    }
}

/// The rows as one tensor with a first axis more.
fn stack_rows<T: Element, R>(rows: &[R], parts: impl Fn(&R) -> (&[T], Shape)) -> Result<Tensor> {
    let Some(first) = rows.first() else {
        return Err(Error::example("no rows to stack"));
    };
    let (values, shape) = parts(first);
    let mut all = Vec::with_capacity(rows.len() * values.len());
    for (place, row) in rows.iter().enumerate() {
        let (values, other) = parts(row);
        if other != shape {
            let message = format!("rows of one batch have one shape: row 0 is {shape}, row {place} is {other}");
            return Err(Error::example(message));
        }
        all.extend_from_slice(values);
    }
    let extents: Vec<usize> = std::iter::once(rows.len()).chain(shape.iter().copied()).collect();
    Ok(Tensor::from_vec(all, Shape::from(extents))?)
}

macro_rules! stack_tuples {
    ($(($($part:ident $list:ident),+)),*) => {$(
        impl<$($part: Stack),+> Stack for ($($part,)+) {
            type Batch = ($($part::Batch,)+);

            fn stack(items: Vec<Self>) -> Result<Self::Batch> {
                $(let mut $list = Vec::with_capacity(items.len());)+
                #[expect(non_snake_case, reason = "the parts are named as their types")]
                for ($($part,)+) in items {
                    $($list.push($part);)+
                }
                Ok(($($part::stack($list)?,)+))
            }
        }
    )*};
}

stack_tuples!((A a), (A a, B b), (A a, B b, C c), (A a, B b, C c, D d));
