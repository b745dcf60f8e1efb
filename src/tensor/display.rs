//! Tensors as text for people.
//!
//! Elements are aligned in columns; long axes are shortened to their first and last three elements.

use std::fmt;

use retape_kernels::ArrayText;

use super::{Concrete, Repr, Tensor};
use crate::types::TensorType;

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.repr {
            Repr::Concrete(concrete) => print(f, concrete),
            Repr::Traced(traced) => write!(f, "traced {} {}", traced.id, traced.ty),
            Repr::Poisoned(error) => write!(f, "poisoned: {error}"),
        }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn print(f: &mut fmt::Formatter<'_>, concrete: &Concrete) -> fmt::Result {
    let TensorType { dtype, shape } = &concrete.ty;
    let bytes = match concrete.bytes() {
        Ok(bytes) => bytes.bytes(),
        Err(error) => return write!(f, "{} on {}: {error}", concrete.ty, concrete.device()),
    };
    let elements = ArrayText { dtype: *dtype, shape, bytes, one_line: false };
    fmt::Display::fmt(&elements, f)?;
    write!(f, " {}", concrete.ty)
}
