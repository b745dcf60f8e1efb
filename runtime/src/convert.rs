//! Numbers as other dtypes: rounded once, or exactly or not at all.
//!
//! [`Scalar::cast`] is the numeric conversion of the whole system; constants, the interpreter and generated code share
//! it.

use half::{bf16, f16};

use crate::dtype::{DType, Element, Scalar};
use crate::half_format::{BF16, F16};

impl Scalar {
    /// The value as another dtype: towards floats the nearest, of two the even one; towards integers truncated and
    /// saturated, NaN 0; towards `bool` whether it is not zero.
    ///
    /// ```
    /// # use retape_runtime::{bf16, DType, Element};
    /// let tie_and_one = (1_i64 << 62) + (1 << 54) + 1;
    /// assert_eq!(tie_and_one.to_scalar().cast(DType::Bf16), bf16::from_bits(0x5E81).to_scalar());
    /// assert_eq!((-7).to_scalar().cast(DType::U8), 0_u8.to_scalar());
    /// ```
    pub fn cast(self, dtype: DType) -> Scalar {
        if self.dtype == dtype {
            return self;
        }
        let Some(i) = self.to_i64() else { return Scalar::from_f64(self.to_f64(), dtype) };
        match dtype {
            DType::F32 => (i as f32).to_scalar(),
            DType::F64 => (i as f64).to_scalar(),
            DType::F16 => f16::from_bits(F16.of_i64(i)).to_scalar(),
            DType::Bf16 => bf16::from_bits(BF16.of_i64(i)).to_scalar(),
            DType::I32 => (i.clamp(i32::MIN.into(), i32::MAX.into()) as i32).to_scalar(),
            DType::I64 => i.to_scalar(),
            DType::U32 => (i.clamp(0, u32::MAX.into()) as u32).to_scalar(),
            DType::U8 => (i.clamp(0, u8::MAX.into()) as u8).to_scalar(),
            DType::Bool => (i != 0).to_scalar(),
        }
    }

    /// The number as an element of another dtype: the nearest value of a float, and of an integer or `bool` the equal
    /// one; `None` if there is none.
    ///
    /// ```
    /// # use retape_runtime::{DType, Element};
    /// assert_eq!(3.0.to_scalar().element(DType::U8), Some(3_u8.to_scalar()));
    /// assert_eq!(0.1.to_scalar().element(DType::F32), Some(0.1_f32.to_scalar()));
    /// assert_eq!(256.0.to_scalar().element(DType::U8), None);
    /// assert_eq!(9_223_372_036_854_775_808.0.to_scalar().element(DType::I64), None);
    /// ```
    pub fn element(self, dtype: DType) -> Option<Scalar> {
        let cast = self.cast(dtype);
        if dtype.is_float() || dtype.is_half() {
            return Some(cast);
        }
        let is_equal = match (self.to_i64(), cast.to_i64()) {
            (Some(before), Some(after)) => before == after,
            // 2^63 is the only float that the largest integer is rounded to and that it does not equal.
            _ => self.to_f64() == cast.to_f64() && self.to_f64() < (1_u64 << 63) as f64,
        };
        is_equal.then_some(cast)
    }
}
