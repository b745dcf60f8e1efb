//! Values of the kernel IR in registers.

use retape_runtime::DType;

use super::function::{Class, Reg};

/// A value in a register of the class of its dtype; see [`Class::of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RegValue {
    pub(crate) dtype: DType,
    pub(crate) reg: Reg,
}

impl RegValue {
    pub(crate) fn new(dtype: DType, reg: Reg) -> RegValue {
        debug_assert_eq!(reg.class, Class::of(dtype));
        RegValue { dtype, reg }
    }
}

/// The suffix of operations on the bits of a dtype.
pub(super) const fn bits_suffix(dtype: DType) -> &'static str {
    match Class::of(dtype) {
        Class::Pred => "pred",
        Class::B16 => "b16",
        Class::B32 | Class::F32 => "b32",
        Class::B64 | Class::F64 => "b64",
    }
}
