//! Constant folding: values computed from constants alone are computed now.
//!
//! Only what every machine computes alike is folded: not the transcendental functions, and no result of NaN.

use retape_kernels::ir::ReductionOp;
use retape_runtime::Scalar;
use smallvec::SmallVec;

use super::element;
use super::rewrite::{RewriteSite, Rule, rules};
use crate::ops::{Lowering, Op};
use crate::types::ValueId;

pub(super) const RULES: &[Rule] = rules![fold_pointwise, fold_movement, fold_reduction,];

/// A formula over constants is a constant.
fn fold_pointwise(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    // A constant is itself a formula over none.
    if matches!(at.op, Op::Splat(_)) {
        return None;
    }
    let args: SmallVec<[Scalar; 3]> = (0..at.args.len()).map(|arg| at.splat(arg)).collect::<Option<_>>()?;
    let value = element::of_constants(at.op, &at.arg_types(), at.ty, &args)?;
    at.constant(value, &at.ty.shape)
}

/// A constant at other coordinates is the constant in another shape.
fn fold_movement(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let [_] = at.args else { return None };
    let value = at.splat(0)?;
    let Lowering::Movement(_) = at.op.lower(&at.arg_types(), at.ty) else { return None };
    at.constant(value, &at.ty.shape)
}

/// The sum of zeros is zero; an extreme of equal elements is that element.
fn fold_reduction(at: &mut RewriteSite<'_>) -> Option<ValueId> {
    let [_] = at.args else { return None };
    let value = at.splat(0)?;
    let Lowering::Reduce { op, axes } = at.op.lower(&at.arg_types(), at.ty) else { return None };
    let some = axes.iter().all(|&axis| at.arg_ty(0).shape[axis] > 0);
    let exact = match op {
        // Sums start from +0, so that those of -0 are +0.
        ReductionOp::Sum => value.bits == 0,
        // An extreme of NaN need not have its bits.
        ReductionOp::Max | ReductionOp::Min | ReductionOp::All | ReductionOp::Any => some && !value.to_f64().is_nan(),
        ReductionOp::Prod => value == Scalar::from_f64(1.0, value.dtype),
    };
    if exact { at.constant(value, &at.ty.shape) } else { None }
}
