//! Arithmetic operators on every mix of `Tensor`, `&Tensor` and scalars.

use std::ops::{Add, Div, Mul, Neg, Rem, Sub};
use std::panic::Location;
use std::sync::Arc;

use retape_runtime::{Buffer, Element, Scalar, Shape};

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
}

impl sealed::Sealed for Tensor {}
impl TensorOrScalar for Tensor {
    fn tensor_like(self, _: &Tensor, _: Caller) -> Tensor {
        self
    }
}

impl sealed::Sealed for &Tensor {}
impl TensorOrScalar for &Tensor {
    fn tensor_like(self, _: &Tensor, _: Caller) -> Tensor {
        self.clone()
    }
}

impl Tensor {
    /// A constant of this tensor's dtype that broadcasts to its shape. While tracing it has that shape already.
    pub(crate) fn constant_like(&self, value: f64, at: Caller) -> Tensor {
        let Some(ty) = self.ty() else { return self.clone() };
        let scalar = Scalar::from_f64(value, ty.dtype);
        let exact = ty.dtype.is_float() || ty.dtype.is_half() || scalar.to_f64() == value;
        match &self.repr {
            _ if !exact => {
                let message = format!("the number {value} is not a value of {}; cast the tensor first", ty.dtype);
                let error = Error::Type { op: "scalar", message, at };
                self.as_traced()
                    .map_or_else(|| Tensor::poisoned(error.clone()), |traced| traced.tape.fail(error.clone()))
            }
            Repr::Traced(traced) => {
                traced.tape.record(Splat { value: scalar, shape: ty.shape.clone() }.into(), &[], at)
            }
            Repr::Concrete(_) => Tensor::of_scalar(scalar),
            Repr::Poisoned(_) => self.clone(),
        }
    }

    /// A concrete tensor of rank 0.
    pub(crate) fn of_scalar(scalar: Scalar) -> Tensor {
        let bytes = Buffer::from_bytes(&scalar.bits.to_le_bytes()[..scalar.dtype.size()]);
        match bytes {
            Ok(bytes) => Tensor::concrete(TensorType::new(scalar.dtype, Shape::default()), Arc::new(bytes)),
            Err(e) => Tensor::poisoned(e.into()),
        }
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $op:ident) => {
        operator!(@tensors $trait, $method, $op, Tensor, Tensor);
        operator!(@tensors $trait, $method, $op, Tensor, &Tensor);
        operator!(@tensors $trait, $method, $op, &Tensor, Tensor);
        operator!(@tensors $trait, $method, $op, &Tensor, &Tensor);
        operator!(@scalars $trait, $method, $op, f32, f64, i32, i64, u32, u8);
    };
    (@tensors $trait:ident, $method:ident, $op:ident, $left:ty, $right:ty) => {
        impl $trait<$right> for $left {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, right: $right) -> Tensor {
                super::broadcast_apply(crate::ops::$op, &[&self, &right])
            }
        }
    };
    (@scalars $trait:ident, $method:ident, $op:ident, $($scalar:ty),*) => {$(
        operator!(@scalar $trait, $method, $op, $scalar, Tensor);
        operator!(@scalar $trait, $method, $op, $scalar, &Tensor);
    )*};
    (@scalar $trait:ident, $method:ident, $op:ident, $scalar:ty, $tensor:ty) => {
        impl $trait<$scalar> for $tensor {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, right: $scalar) -> Tensor {
                let right = self.constant_like(right.to_f64(), Location::caller());
                super::broadcast_apply(crate::ops::$op, &[&self, &right])
            }
        }

        impl $trait<$tensor> for $scalar {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, right: $tensor) -> Tensor {
                let left = right.constant_like(self.to_f64(), Location::caller());
                super::broadcast_apply(crate::ops::$op, &[&left, &right])
            }
        }
    };
}

operator!(Add, add, Add);
operator!(Sub, sub, Sub);
operator!(Mul, mul, Mul);
operator!(Div, div, Div);
operator!(Rem, rem, Rem);

macro_rules! scalar_operands {
    ($($scalar:ty),*) => {$(
        impl sealed::Sealed for $scalar {}
        impl TensorOrScalar for $scalar {
            fn tensor_like(self, other: &Tensor, at: Caller) -> Tensor {
                other.constant_like(self.to_f64(), at)
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
