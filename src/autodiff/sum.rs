//! Sums of the cotangents that meet at a value.

use std::sync::Arc;

use retape_runtime::DType;

use super::{products, windows};
use crate::error::Caller;
use crate::tape::Tape;
use crate::tensor::Tensor;

/// The sum of the cotangents of one value, of which there is at least one.
///
/// Cotangents that are better made at once than added are replaced first.
pub(super) fn sum(tape: &Arc<Tape>, cts: Vec<Tensor>, at: Caller) -> Option<Tensor> {
    let mut terms: Vec<Option<Tensor>> = cts.into_iter().map(Some).collect();
    if terms.len() > 1 {
        windows::join(tape, &mut terms, at);
        products::merge(tape, &mut terms, at);
    }
    terms.into_iter().flatten().reduce(plus)
}

fn plus(sum: Tensor, ct: Tensor) -> Tensor {
    match ct.dtype() {
        // 16-bit floats are not computed with.
        half if half.is_half() => (sum.cast(DType::F32) + ct.cast(DType::F32)).cast(half),
        _ => sum + ct,
    }
}
