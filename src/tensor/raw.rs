//! Tensors as plain bytes, for files and messages.

use std::borrow::Cow;
use std::panic::Location;

use retape_runtime::{DType, Shape, bf16, f16};

use super::{Concrete, Tensor};
use crate::error::{Error, Result, ill_typed};
use crate::method::method;
use crate::types::TensorType;

impl Concrete {
    /// The bytes of the elements; of truth values those that their kernels would write.
    pub(crate) fn element_bytes(&self) -> Result<Cow<'_, [u8]>> {
        let bytes = &self.bytes()?.bytes()[..self.ty.n_elements() * self.ty.dtype.size()];
        Ok(match self.ty.dtype {
            DType::Bool => bytes.iter().map(|&byte| u8::from(byte != 0)).collect(),
            _ => bytes.into(),
        })
    }
}

impl Tensor {
    /// The elements as bytes, in row-major order, each little-endian; a `bool` is a byte 0 or 1.
    ///
    /// # Errors
    ///
    /// Fails if the tensor is poisoned (with the error it carries) or is being traced.
    ///
    /// ```
    /// # use retape::{DType, Tensor};
    /// let x = Tensor::from([1.0_f32, -2.0]);
    /// let bytes = x.to_le_bytes()?;
    /// assert_eq!(bytes, [0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]);
    /// assert_eq!(Tensor::from_le_bytes(DType::F32, [2], &bytes)?.to_vec::<f32>()?, [1.0, -2.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn to_le_bytes(&self) -> Result<Vec<u8>> {
        let at = Location::caller();
        let concrete = self.value_for("to_le_bytes", at)?;
        Ok(concrete.element_bytes().map_err(|error| error.of_op("to_le_bytes", at))?.into_owned())
    }

    /// The tensor whose elements [`to_le_bytes`](Tensor::to_le_bytes) gives as these bytes.
    ///
    /// # Errors
    ///
    /// Fails if the number of bytes is not that of the shape and dtype, if a `bool` is neither 0 nor 1, or if the memory
    /// is refused.
    ///
    /// ```
    /// # use retape::{DType, Tensor};
    /// assert_eq!(Tensor::from_le_bytes(DType::Bool, [2], &[1, 0])?.to_vec::<bool>()?, [true, false]);
    /// assert!(Tensor::from_le_bytes(DType::F64, [2], &[0; 15]).is_err());
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn from_le_bytes(dtype: DType, shape: impl Into<Shape>, bytes: &[u8]) -> Result<Tensor> {
        let (at, _method) = (Location::caller(), method("from_le_bytes"));
        let ty = TensorType { dtype, shape: shape.into() };
        if ty.checked_bytes() != Some(bytes.len()) {
            let message = format!("{} bytes do not fill {ty}", bytes.len());
            return Err(ill_typed("from_le_bytes", message, at));
        }
        if let Some(byte) = bytes.iter().find(|&&byte| dtype == DType::Bool && byte > 1) {
            return Err(ill_typed("from_le_bytes", format!("the byte {byte} is no truth value"), at));
        }
        macro_rules! elements {
            ($($dtype:ident $t:ident,)*) => {
                match dtype {
                    $(DType::$dtype => {
                        let parts = bytes.as_chunks().0.iter();
                        Tensor::from_vec(parts.map(|&part| $t::from_le_bytes(part)).collect::<Vec<$t>>(), ty.shape)
                    })*
                    DType::Bool => Tensor::from_vec(bytes.iter().map(|&byte| byte == 1).collect::<Vec<bool>>(), ty.shape),
                }
            };
        }
        let tensor: Result<Tensor> =
            elements! { F32 f32, F64 f64, F16 f16, Bf16 bf16, I32 i32, I64 i64, U32 u32, U8 u8, };
        tensor.map_err(|error: Error| error.of_op("from_le_bytes", at))
    }
}
