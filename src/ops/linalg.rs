//! Matrix products.

use super::attribute::attributes;
use super::check::{self, refuse};
use super::{Cotangents, Lowering, OpDef, Sample, Site, TypeError};
use crate::graph::TensorType;
use crate::tensor::{Tensor, apply};

/// Product of two matrices, `[m, k]` by `[k, n]`, over leading batch axes that are equal in both.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MatMul;

attributes! {
    MatMul {}
}
