//! Arithmetic operators on every mix of `Tensor`, `&Tensor` and scalars.

use std::iter::Sum;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Rem, Shl, Shr, Sub};
use std::panic::Location;

use retape_runtime::{Buffer, Element, Scalar, Shape};

use super::Splat;
use crate::error::{Caller, Error, ill_typed};
use crate::method::{method, method_at};
use crate::tensor::Tensor;
use crate::types::TensorType;

mod sealed {
    pub trait Sealed {}
}

/// The second operand of an op: a tensor, or a number that takes the dtype of the other operand.
pub trait TensorOrScalar: sealed::Sealed {
    /// The operand as a tensor of the dtype of `other`.
    #[doc(hidden)]
    fn tensor_like(self, other: &Tensor, at: Caller) -> Tensor;

    /// The operand if it is a number.
    #[doc(hidden)]
    fn number(&self) -> Option<f64>;
}

impl sealed::Sealed for Tensor {}
impl TensorOrScalar for Tensor {
    fn tensor_like(self, _: &Tensor, _: Caller) -> Tensor {
        self
    }

    fn number(&self) -> Option<f64> {
        None
    }
}

impl sealed::Sealed for &Tensor {}
impl TensorOrScalar for &Tensor {
    fn tensor_like(self, _: &Tensor, _: Caller) -> Tensor {
        self.clone()
    }

    fn number(&self) -> Option<f64> {
        None
    }
}

impl Tensor {
    /// A constant of this tensor's dtype that broadcasts to its shape. While tracing it has that shape already.
    pub(crate) fn constant_like(&self, value: f64, at: Caller) -> Tensor {
        self.scalar_like(value.into(), at)
    }

    /// As [`constant_like`](Tensor::constant_like), for a number that need not be exact as `f64`.
    pub(crate) fn scalar_like(&self, value: Scalar, at: Caller) -> Tensor {
        let value = match self.element(value, at) {
            Ok(value) => value,
            Err(refused) => return refused,
        };
        match self.as_traced() {
            Some(traced) => self.nullary(Splat { value, shape: traced.ty.shape.clone() }, at),
            None => Tensor::of_scalar(value, at),
        }
    }

    /// A number as an element of this tensor: rounded once if that is a float, else equal to the number.
    ///
    /// # Errors
    ///
    /// Gives the poisoned result of the method that runs if the dtype has no such element, or if the tensor is poisoned.
    pub(crate) fn element(&self, value: Scalar, at: Caller) -> Result<Scalar, Tensor> {
        let Some(ty) = self.ty() else { return Err(self.clone()) };
        value.element(ty.dtype).ok_or_else(|| {
            let message = format!("the number {value} is not a value of {}; cast the tensor first", ty.dtype);
            self.refused(message, at)
        })
    }

    /// A concrete tensor of rank 0; poisoned if the memory is refused.
    pub(crate) fn of_scalar(scalar: Scalar, at: Caller) -> Tensor {
        let bytes = Buffer::from_bytes(&scalar.bits.to_le_bytes()[..scalar.dtype.size()]);
        match bytes {
            Ok(bytes) => Tensor::concrete(TensorType::new(scalar.dtype, Shape::default()), bytes),
            Err(e) => Tensor::poisoned(Error::from(e).of_op("scalar", at)),
        }
    }
}

/// Implements an operator for its op. The right operand is generic, so that the type of `x + 1.0` is known before
/// that of the number.
macro_rules! operator {
    ($trait:ident, $method:ident, $($scalar:ty),*) => {
        operator!(@tensor $trait, $method, Tensor);
        operator!(@tensor $trait, $method, &Tensor);
        $(
            operator!(@scalar $trait, $method, $scalar, Tensor);
            operator!(@scalar $trait, $method, $scalar, &Tensor);
        )*
    };
    (@tensor $trait:ident, $method:ident, $left:ty) => {
        impl<T: TensorOrScalar> $trait<T> for $left {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, right: T) -> Tensor {
                let _method = method(stringify!($method));
                let right = right.tensor_like(&self, Location::caller());
                Tensor::broadcast_apply(crate::ops::$trait, &[&self, &right])
            }
        }
    };
    (@scalar $trait:ident, $method:ident, $scalar:ty, $tensor:ty) => {
        impl $trait<$tensor> for $scalar {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, right: $tensor) -> Tensor {
                let _method = method(stringify!($method));
                let left = right.scalar_like(self.to_scalar(), Location::caller());
                Tensor::broadcast_apply(crate::ops::$trait, &[&left, &right])
            }
        }
    };
}

operator!(Add, add, f32, f64, i32, i64, u32, u8);
operator!(Sub, sub, f32, f64, i32, i64, u32, u8);
operator!(Mul, mul, f32, f64, i32, i64, u32, u8);
operator!(Div, div, f32, f64, i32, i64, u32, u8);
operator!(Rem, rem, f32, f64, i32, i64, u32, u8);
operator!(Shl, shl, i32, i64, u32, u8);
operator!(Shr, shr, i32, i64, u32, u8);

/// As `operator`, for ops that are not named as the trait.
macro_rules! bit_operator {
    ($($trait:ident $method:ident $op:ident $name:literal: $left:ty;)*) => {$(
        impl<T: TensorOrScalar> $trait<T> for $left {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, right: T) -> Tensor {
                let _method = method($name);
                let right = right.tensor_like(&self, Location::caller());
                Tensor::broadcast_apply(crate::ops::$op, &[&self, &right])
            }
        }
    )*};
}

bit_operator! {
    BitAnd bitand And "and": Tensor;
    BitAnd bitand And "and": &Tensor;
    BitOr bitor Or "or": Tensor;
    BitOr bitor Or "or": &Tensor;
    BitXor bitxor Xor "xor": Tensor;
    BitXor bitxor Xor "xor": &Tensor;
}

macro_rules! scalar_operands {
    ($($scalar:ty),*) => {$(
        impl sealed::Sealed for $scalar {}
        impl TensorOrScalar for $scalar {
            fn tensor_like(self, other: &Tensor, at: Caller) -> Tensor {
                other.scalar_like(self.to_scalar(), at)
            }

            fn number(&self) -> Option<f64> {
                Some(self.to_f64())
            }
        }
    )*};
}

scalar_operands!(f32, f64, i32, i64, u32, u8);

/// The sum of tensors in their order, as in `a + b + c`; their shapes broadcast.
///
/// The sum of no tensors has neither a dtype nor a shape: it is poisoned. Where there may be none, begin with one, as in
/// `tensors.iter().fold(Tensor::zeros([]), |sum, x| sum + x)`. [`Iterator::sum`] does not tell from where it is called,
/// so an error names a line of the standard library; with `fold` and `reduce` it is the line of the `+`.
///
/// ```
/// # use retape::Tensor;
/// let losses = [Tensor::from(1.0_f32), Tensor::from(2.5_f32)];
/// let loss: Tensor = losses.iter().sum();
/// assert_eq!(loss.item::<f32>()?, 3.5);
/// let squares: Tensor = losses.iter().map(|x| x.square()).sum();
/// assert_eq!(squares.item::<f32>()?, 7.25);
/// # Ok::<(), retape::Error>(())
/// ```
impl Sum for Tensor {
    #[track_caller]
    fn sum<I: Iterator<Item = Tensor>>(tensors: I) -> Tensor {
        sum_at(tensors, Location::caller())
    }
}

impl<'t> Sum<&'t Tensor> for Tensor {
    #[track_caller]
    fn sum<I: Iterator<Item = &'t Tensor>>(tensors: I) -> Tensor {
        sum_at(tensors.cloned(), Location::caller())
    }
}

fn sum_at(tensors: impl Iterator<Item = Tensor>, at: Caller) -> Tensor {
    let sum = tensors.reduce(|sum, next| {
        // For the addition alone: ops inside the iterator have their own names and lines.
        let _method = method_at("sum", at);
        Tensor::broadcast_apply_at(crate::ops::Add, &[&sum, &next], at)
    });
    sum.unwrap_or_else(|| {
        let message = "no tensors have neither a dtype nor a shape; begin with one, by `fold`".to_owned();
        Tensor::poisoned(ill_typed("sum", message, at))
    })
}

impl Neg for Tensor {
    type Output = Tensor;

    #[track_caller]
    fn neg(self) -> Tensor {
        Tensor::apply(crate::ops::Neg, &[&self])
    }
}

impl Neg for &Tensor {
    type Output = Tensor;

    #[track_caller]
    fn neg(self) -> Tensor {
        Tensor::apply(crate::ops::Neg, &[self])
    }
}
