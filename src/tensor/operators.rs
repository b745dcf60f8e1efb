//! Arithmetic operators on every mix of `Tensor`, `&Tensor` and scalars.

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Rem, Shl, Shr, Sub};
use std::panic::Location;

use retape_runtime::{Buffer, DType, Element, Scalar, Shape};

use super::{Repr, Tensor};
use crate::error::{Caller, Error};
use crate::graph::TensorType;
use crate::ops::Splat;

mod sealed {
    pub trait Sealed {}
}

/// What the second operand of an op can be: a tensor, or a number that takes the dtype of the other operand.
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
    fn scalar_like(&self, value: Scalar, at: Caller) -> Tensor {
        let Some(ty) = self.ty() else { return self.clone() };
        let Some(scalar) = converted(value, ty.dtype) else {
            let message = format!("the number {value} is not a value of {}; cast the tensor first", ty.dtype);
            return self.refused("scalar", message, at);
        };
        match &self.repr {
            Repr::Traced(traced) => {
                traced.tape.record(Splat { value: scalar, shape: ty.shape.clone() }.into(), &[], at)
            }
            Repr::Concrete(_) => Tensor::of_scalar(scalar, at),
            Repr::Poisoned(_) => self.clone(),
        }
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

/// A number as another dtype: rounded towards floats, else none if it is not exact.
fn converted(value: Scalar, dtype: DType) -> Option<Scalar> {
    if value.dtype == dtype {
        return Some(value);
    }
    let scalar = Scalar::from_f64(value.to_f64(), dtype);
    let exact = scalar.to_f64() == value.to_f64() && (value.to_i64().is_none() || value.to_i64() == scalar.to_i64());
    (dtype.is_float() || dtype.is_half() || exact).then_some(scalar)
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
                let right = right.tensor_like(&self, Location::caller());
                super::broadcast_apply(crate::ops::$trait, &[&self, &right])
            }
        }
    };
    (@scalar $trait:ident, $method:ident, $scalar:ty, $tensor:ty) => {
        impl $trait<$tensor> for $scalar {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, right: $tensor) -> Tensor {
                let left = right.scalar_like(self.to_scalar(), Location::caller());
                super::broadcast_apply(crate::ops::$trait, &[&left, &right])
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
    ($($trait:ident $method:ident $op:ident: $left:ty;)*) => {$(
        impl<T: TensorOrScalar> $trait<T> for $left {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, right: T) -> Tensor {
                let right = right.tensor_like(&self, Location::caller());
                super::broadcast_apply(crate::ops::$op, &[&self, &right])
            }
        }
    )*};
}

bit_operator! {
    BitAnd bitand And: Tensor;
    BitAnd bitand And: &Tensor;
    BitOr bitor Or: Tensor;
    BitOr bitor Or: &Tensor;
    BitXor bitxor Xor: Tensor;
    BitXor bitxor Xor: &Tensor;
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

impl Neg for Tensor {
    type Output = Tensor;

    #[track_caller]
    fn neg(self) -> Tensor {
        super::apply(crate::ops::Neg, &[&self])
    }
}

impl Neg for &Tensor {
    type Output = Tensor;

    #[track_caller]
    fn neg(self) -> Tensor {
        super::apply(crate::ops::Neg, &[self])
    }
}
