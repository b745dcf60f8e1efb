//! Making tensors from numbers.

use std::borrow::Cow;
use std::panic::Location;

use retape_runtime::{Buffer, DType, Element, Scalar, Shape};

use super::Tensor;
use crate::error::{Caller, Error, Result, ill_typed};
use crate::method::method;
use crate::types::TensorType;

impl Tensor {
    /// A tensor over row-major elements, a vector's or a slice's.
    ///
    /// A `Vec` of 4 KiB or more becomes the tensor without a copy, unless it has room for more than a quarter beyond
    /// its elements; its memory goes back to where the vector got it when the tensor is gone. Borrowed elements are copied,
    /// from 4 MiB on into huge pages where the system has them: worth it for large tensors that are read again and again.
    ///
    /// # Errors
    ///
    /// Fails if the number of elements is not that of the shape, or if the memory is refused.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from_vec(vec![1.0_f32, 2.0, 3.0, 4.0], [2, 2])?;
    /// let y = Tensor::from_vec(&[1.0_f32, 2.0], [1, 2])?;
    /// assert_eq!((x.shape(), y.shape()), (&[2, 2][..], &[1, 2][..]));
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn from_vec<'t, T: Element>(elements: impl Into<Cow<'t, [T]>>, shape: impl Into<Shape>) -> Result<Tensor> {
        let at = Location::caller();
        let (elements, ty) = (elements.into(), TensorType { dtype: T::DTYPE, shape: shape.into() });
        if ty.checked_bytes() != Some(size_of_val(&*elements)) {
            let message = format!("{} elements do not fill the shape {}", elements.len(), ty.shape);
            return Err(ill_typed("from_vec", message, at));
        }
        Ok(Tensor::concrete(ty, stored(elements).map_err(|error| Error::from(error).of_op("from_vec", at))?))
    }

    /// A tensor whose elements all equal `value`; its dtype is that of `value`.
    ///
    /// Poisoned if the memory is refused.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::full([2], 0.5_f64).to_vec::<f64>()?, [0.5, 0.5]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn full<T: Element>(shape: impl Into<Shape>, value: T) -> Tensor {
        filled("full", shape.into(), value.to_scalar(), Location::caller())
    }

    /// Zeros of dtype `f32`.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::zeros([2, 1]).to_vec::<f32>()?, [0.0, 0.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn zeros(shape: impl Into<Shape>) -> Tensor {
        let _method = method("zeros");
        Tensor::full(shape, 0.0_f32)
    }

    /// Ones of dtype `f32`.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::ones([2, 1]).to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn ones(shape: impl Into<Shape>) -> Tensor {
        let _method = method("ones");
        Tensor::full(shape, 1.0_f32)
    }

    /// Zeros of the given dtype.
    ///
    /// ```
    /// # use retape::{DType, Tensor};
    /// assert_eq!(Tensor::zeros_of(DType::I64, [2]).to_vec::<i64>()?, [0, 0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn zeros_of(dtype: DType, shape: impl Into<Shape>) -> Tensor {
        filled("zeros_of", shape.into(), Scalar { dtype, bits: 0 }, Location::caller())
    }

    /// The numbers `0, 1, .., n - 1` as `i64`.
    ///
    /// Poisoned if the memory is refused.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::arange(3).to_vec::<i64>()?, [0, 1, 2]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn arange(n: usize) -> Tensor {
        let _method = method("arange");
        Tensor::iota(DType::I64, [n], 0)
    }

    /// The unit matrix of dtype `f32`.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::eye(2).to_vec::<f32>()?, [1.0, 0.0, 0.0, 1.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn eye(n: usize) -> Tensor {
        let _method = method("eye");
        Tensor::eye_of(DType::F32, n)
    }

    /// The unit matrix of the given dtype.
    ///
    /// ```
    /// # use retape::{DType, Tensor};
    /// assert_eq!(Tensor::eye_of(DType::I32, 2).to_vec::<i32>()?, [1, 0, 0, 1]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn eye_of(dtype: DType, n: usize) -> Tensor {
        let _method = method("eye_of");
        Tensor::of_scalar(Scalar::from_f64(1.0, dtype), Location::caller()).broadcast_to([n, n]).tril(0).triu(0)
    }

    /// Zeros of the shape and dtype of `self`.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([7_i32, 8]).zeros_like().to_vec::<i32>()?, [0, 0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn zeros_like(&self) -> Tensor {
        let _method = method("zeros_like");
        self.full_like(0.0)
    }

    /// Ones of the shape and dtype of `self`.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([7_i32, 8]).ones_like().to_vec::<i32>()?, [1, 1]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn ones_like(&self) -> Tensor {
        let _method = method("ones_like");
        self.full_like(1.0)
    }

    /// A constant of the shape and dtype of `self`.
    ///
    /// Poisoned if `self` is of integers or truth values and `value` is none of them, as in formulas.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([1_i32, 2]);
    /// assert_eq!(x.full_like(7).to_vec::<i32>()?, [7, 7]);
    /// assert!(x.full_like(0.5).error().is_some());
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn full_like(&self, value: impl Element) -> Tensor {
        let (at, _method) = (Location::caller(), method("full_like"));
        match (self.as_concrete(), self.element(value.to_scalar(), at)) {
            (_, Err(refused)) => refused,
            (Some(concrete), Ok(value)) => {
                filled("full_like", concrete.ty().shape.clone(), value, at).to(self.device())
            }
            (None, Ok(value)) => self.scalar_like(value, at),
        }
    }
}

/// One element, repeated over a shape; poisoned if the memory is refused.
fn filled(op: &'static str, shape: Shape, value: Scalar, at: Caller) -> Tensor {
    let ty = TensorType { dtype: value.dtype, shape };
    let Some(n_bytes) = ty.checked_bytes() else {
        return Tensor::poisoned(ill_typed(op, format!("{ty} has more bytes than can be addressed"), at));
    };
    let mut bytes = match Buffer::zeroed(n_bytes) {
        Ok(bytes) => bytes,
        Err(refused) => return Tensor::poisoned(Error::from(refused).of_op(op, at)),
    };
    if value.bits != 0 {
        let pattern = value.bits.to_le_bytes();
        bytes.bytes_mut().chunks_exact_mut(ty.dtype.size()).for_each(|x| x.copy_from_slice(&pattern[..x.len()]));
    }
    Tensor::concrete(ty, bytes)
}

/// The elements as bytes: in the vector's memory where that is given.
fn stored<T: Element>(elements: Cow<'_, [T]>) -> retape_runtime::Result<Buffer> {
    match elements {
        Cow::Owned(elements) => Buffer::from_vec(elements),
        Cow::Borrowed(elements) => Buffer::copy_of(elements),
    }
}

/// A dense tensor; poisoned if the memory is refused.
#[track_caller]
pub(super) fn dense<'t, T: Element>(elements: impl Into<Cow<'t, [T]>>, shape: Shape) -> Tensor {
    match stored(elements.into()) {
        Ok(bytes) => Tensor::concrete(TensorType { dtype: T::DTYPE, shape }, bytes),
        Err(e) => Tensor::poisoned(Error::from(e).of_op("from", Location::caller())),
    }
}

macro_rules! from_scalars {
    ($($t:ty),*) => {$(
        impl From<$t> for Tensor {
            #[track_caller]
            fn from(value: $t) -> Tensor {
                Tensor::of_scalar(value.to_scalar(), Location::caller())
            }
        }

        impl Nested for $t {
            type Element = $t;

            fn extents(_: &mut Vec<usize>) {}

            fn flatten(&self, elements: &mut Vec<$t>) {
                elements.push(*self);
            }
        }
    )*};
}

from_scalars!(f32, f64, retape_runtime::f16, retape_runtime::bf16, i32, i64, u32, u8, bool);

impl<T: Element> From<&[T]> for Tensor {
    #[track_caller]
    fn from(elements: &[T]) -> Tensor {
        dense(elements, Shape::new(&[elements.len()]))
    }
}

/// A vector of elements, in its memory if that is worth it; see [`Tensor::from_vec`].
impl<T: Element> From<Vec<T>> for Tensor {
    #[track_caller]
    fn from(elements: Vec<T>) -> Tensor {
        let shape = Shape::new(&[elements.len()]);
        dense(elements, shape)
    }
}

impl<T: Element> From<&Vec<T>> for Tensor {
    #[track_caller]
    fn from(elements: &Vec<T>) -> Tensor {
        Tensor::from(elements.as_slice())
    }
}

impl<T: Element> FromIterator<T> for Tensor {
    #[track_caller]
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Tensor {
        Tensor::from(elements.into_iter().collect::<Vec<T>>())
    }
}

/// An element, or an array of nested elements: `[[1.0, 2.0], [3.0, 4.0]]`.
pub trait Nested {
    /// The type of the innermost elements.
    type Element: Element;

    /// Appends the extents of arrays.
    fn extents(shape: &mut Vec<usize>);

    /// Appends the elements in row-major order.
    fn flatten(&self, elements: &mut Vec<Self::Element>);
}

impl<T: Nested, const N: usize> Nested for [T; N] {
    type Element = T::Element;

    fn extents(shape: &mut Vec<usize>) {
        shape.push(N);
        T::extents(shape);
    }

    fn flatten(&self, elements: &mut Vec<T::Element>) {
        self.iter().for_each(|x| x.flatten(elements));
    }
}

impl<T: Nested, const N: usize> From<[T; N]> for Tensor {
    #[track_caller]
    fn from(array: [T; N]) -> Tensor {
        let (mut shape, mut elements) = (vec![], vec![]);
        <[T; N]>::extents(&mut shape);
        array.flatten(&mut elements);
        dense(elements, shape.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the elements of a tensor are.
    fn address(tensor: &Tensor) -> usize {
        tensor.as_concrete().and_then(|concrete| concrete.host_bytes()).map_or(0, |bytes| bytes.as_ptr().addr())
    }

    #[test]
    fn a_vector_becomes_a_tensor_where_it_lies() {
        let elements: Vec<f32> = (0..2000).map(|i| i as f32).collect();
        let (expected, place) = (elements.clone(), elements.as_ptr().addr());
        let x = Tensor::from_vec(elements, [40, 50]).unwrap();
        assert_eq!((address(&x), x.shape()), (place, &[40, 50][..]));
        assert_eq!(x.to_vec::<f32>().unwrap(), expected);
        // Ops read it, and a view of it is in the same place.
        assert_eq!((&x + 1.0).to_vec::<f32>().unwrap(), expected.iter().map(|x| x + 1.0).collect::<Vec<_>>());
        assert_eq!(address(&x.reshape([2000])), place);

        let elements = vec![7_i64; 1000];
        let place = elements.as_ptr().addr();
        assert_eq!(address(&Tensor::from(elements)), place);

        let elements = vec![1.0_f64; 1000];
        let x = Tensor::from_vec(&elements, [1000]).unwrap();
        assert_ne!(address(&x), elements.as_ptr().addr(), "what is lent is copied");
    }

    #[test]
    fn a_vector_of_another_length_is_refused() {
        let refused = Tensor::from_vec(vec![1.0_f32; 2000], [3]).unwrap_err().to_string();
        assert!(refused.contains("2000 elements do not fill the shape [3]") && refused.contains(file!()), "{refused}");
    }
}
