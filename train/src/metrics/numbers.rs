//! The elements of tensors as numbers of one type, and refusals that name the line of the caller.

use retape::{Caller, DType, Element, Tensor, bf16, f16};

use crate::{Error, Result};

/// The error of an argument of `op`.
pub(crate) fn refuse(op: &str, what: &str, at: Caller) -> Error {
    Error::argument_at(format!("{op}: {what}"), Some(at))
}

/// The shape and dtype, such as `f32[3, 4]`.
pub(crate) fn type_of(x: &Tensor) -> String {
    format!("{}{:?}", x.dtype(), x.shape())
}

/// The elements of a tensor of floats, all of which an `f64` holds exactly.
#[track_caller]
pub(crate) fn floats(op: &str, name: &str, x: &Tensor, at: Caller) -> Result<Vec<f64>> {
    if x.error().is_none() && !x.dtype().is_float() && !x.dtype().is_half() {
        return Err(refuse(op, &format!("the {name} are {}, not floats", type_of(x)), at));
    }
    numbers(x)
}

/// The elements of any tensor, those of `i64` rounded.
#[track_caller]
pub(crate) fn numbers(x: &Tensor) -> Result<Vec<f64>> {
    match x.dtype() {
        DType::F32 => elements::<f32>(x),
        DType::F64 => elements::<f64>(x),
        DType::F16 => elements::<f16>(x),
        DType::Bf16 => elements::<bf16>(x),
        DType::I32 => elements::<i32>(x),
        DType::I64 => elements::<i64>(x),
        DType::U32 => elements::<u32>(x),
        DType::U8 => elements::<u8>(x),
        DType::Bool => elements::<bool>(x),
    }
}

#[track_caller]
fn elements<T: Element>(x: &Tensor) -> Result<Vec<f64>> {
    Ok(x.to_vec::<T>()?.into_iter().map(T::to_f64).collect())
}

/// The elements of a tensor of integers.
#[track_caller]
pub(crate) fn integers(op: &str, name: &str, x: &Tensor, at: Caller) -> Result<Vec<i64>> {
    #[track_caller]
    fn wide<T: Element + Into<i64>>(x: &Tensor) -> Result<Vec<i64>> {
        Ok(x.to_vec::<T>()?.into_iter().map(T::into).collect())
    }
    if let Some(error) = x.error() {
        return Err(error.clone().into());
    }
    match x.dtype() {
        DType::I64 => wide::<i64>(x),
        DType::I32 => wide::<i32>(x),
        DType::U32 => wide::<u32>(x),
        DType::U8 => wide::<u8>(x),
        DType::F32 | DType::F64 | DType::F16 | DType::Bf16 | DType::Bool => {
            Err(refuse(op, &format!("the {name} are {}, not integers", type_of(x)), at))
        }
    }
}
