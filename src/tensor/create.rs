//! Making tensors from numbers.

use std::panic::Location;

use retape_runtime::{Buffer, DType, Element, Scalar, Shape};

use super::Tensor;
use crate::error::{Caller, Error, Result};
use crate::graph::TensorType;

impl Tensor {
    /// A tensor over row-major elements.
    ///
    /// # Errors
    ///
    /// Fails if the number of elements is not that of the shape.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from_vec(vec![1.0_f32, 2.0, 3.0, 4.0], [2, 2])?;
    /// assert_eq!(x.shape(), [2, 2]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn from_vec<T: Element>(elements: impl AsRef<[T]>, shape: impl Into<Shape>) -> Result<Tensor> {
        let (elements, shape, at) = (elements.as_ref(), shape.into(), Location::caller());
        if shape.checked_len() != Some(elements.len()) {
            let message = format!("{} elements do not fill the shape {shape}", elements.len());
            return Err(Error::Type { op: "from_vec", message, at });
        }
        let bytes = Buffer::copy_of(elements).map_err(|error| Error::from(error).of_op("from_vec", at))?;
        Ok(Tensor::concrete(TensorType { dtype: T::DTYPE, shape }, bytes))
    }

    /// A tensor whose elements all equal `value`; its dtype is that of `value`.
    ///
    /// Poisoned if the memory is refused.
    #[track_caller]
    pub fn full<T: Element>(shape: impl Into<Shape>, value: T) -> Tensor {
        filled(shape.into(), value.to_scalar(), Location::caller()).unwrap_or_else(Tensor::poisoned)
    }

    /// Zeros of dtype `f32`.
    #[track_caller]
    pub fn zeros(shape: impl Into<Shape>) -> Tensor {
        Tensor::full(shape, 0.0_f32)
    }

    /// Ones of dtype `f32`.
    #[track_caller]
    pub fn ones(shape: impl Into<Shape>) -> Tensor {
        Tensor::full(shape, 1.0_f32)
    }

    /// Zeros of the given dtype.
    #[track_caller]
    pub fn zeros_of(dtype: DType, shape: impl Into<Shape>) -> Tensor {
        let zero = Scalar { dtype, bits: 0 };
        filled(shape.into(), zero, Location::caller()).unwrap_or_else(Tensor::poisoned)
    }

    /// Zeros of the shape and dtype of `self`.
    #[track_caller]
    pub fn zeros_like(&self) -> Tensor {
        self.full_like(0.0)
    }

    /// Ones of the shape and dtype of `self`.
    #[track_caller]
    pub fn ones_like(&self) -> Tensor {
        self.full_like(1.0)
    }

    /// A constant of the shape and dtype of `self`.
    #[track_caller]
    pub fn full_like(&self, value: f64) -> Tensor {
        let at = Location::caller();
        match self.ty() {
            Some(ty) if !self.is_traced() => {
                let filled = filled(ty.shape.clone(), Scalar::from_f64(value, ty.dtype), at);
                filled.map_or_else(Tensor::poisoned, |tensor| tensor.to(self.device()))
            }
            _ => self.constant_like(value, at),
        }
    }

    /// The numbers `0, 1, .., n - 1` as `i64`.
    ///
    /// Poisoned if the memory is refused.
    #[track_caller]
    pub fn arange(n: usize) -> Tensor {
        Tensor::iota(DType::I64, [n], 0)
    }
}

fn filled(shape: Shape, value: Scalar, at: Caller) -> Result<Tensor> {
    let ty = TensorType { dtype: value.dtype, shape };
    let Some(n_bytes) = ty.checked_bytes() else {
        let message = format!("{ty} has more bytes than can be addressed");
        return Err(Error::Type { op: "full", message, at });
    };
    let mut bytes = Buffer::zeroed(n_bytes).map_err(|error| Error::from(error).of_op("full", at))?;
    if value.bits != 0 {
        let pattern = value.bits.to_le_bytes();
        bytes.bytes_mut().chunks_exact_mut(ty.dtype.size()).for_each(|x| x.copy_from_slice(&pattern[..x.len()]));
    }
    Ok(Tensor::concrete(ty, bytes))
}

/// A dense tensor; poisoned if the memory is refused.
#[track_caller]
pub(super) fn dense<T: Element>(elements: &[T], shape: Shape) -> Tensor {
    match Buffer::copy_of(elements) {
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

impl<T: Element> From<Vec<T>> for Tensor {
    #[track_caller]
    fn from(elements: Vec<T>) -> Tensor {
        Tensor::from(elements.as_slice())
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
        dense(&elements, shape.into())
    }
}
