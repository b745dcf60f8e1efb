//! Folds over axes.

use retape_kernels::ir::Monoid;
use retape_runtime::Shape;
use smallvec::SmallVec;
use std::panic::Location;

use super::attribute::attributes;
use super::axes::Axes;
use super::{Cotangents, Lowering, OpDef, Sample, Site, TypeError, check};
use crate::graph::TensorType;
use crate::tensor::{Tensor, apply, apply_at};

/// Sum over `axes`, which disappear from the shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReduceSum {
    /// The axes, ascending.
    pub axes: SmallVec<[usize; 4]>,
}

attributes! {
    ReduceSum { axes }
}

impl OpDef for ReduceSum {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [x] = check::exactly::<1>(args)?;
        check::number(0, x)?;
        check::axes(&self.axes, x)?;
        Ok(check::without_axes(x, &self.axes))
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        Cotangents::of([at.ct.spread_over(&self.axes, at.args[0].shape())])
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        Lowering::Reduce { monoid: Monoid::Sum, axes: self.axes.clone() }
    }

    fn samples() -> Vec<Sample> {
        let over = |axes: &[usize]| ReduceSum { axes: SmallVec::from_slice(axes) };
        vec![
            Sample::floats(over(&[1]), &[&[2, 5]], -1.0..1.0),
            Sample::floats(over(&[0, 2]), &[&[3, 4, 5]], -1.0..1.0),
            Sample::floats(over(&[]), &[&[3]], -1.0..1.0),
        ]
    }
}

impl Tensor {
    /// The sum over axes, which disappear from the shape: `x.sum(0)`, `x.sum([0, -1])`, `x.sum(..)`.
    #[track_caller]
    pub fn sum(&self, axes: impl Into<Axes>) -> Tensor {
        let at = Location::caller();
        self.over_axes("sum", axes.into(), at, |axes| apply_at(ReduceSum { axes }, &[self], at))
    }

    /// The sum over ascending axes that exist.
    #[track_caller]
    pub(crate) fn reduce_sum(&self, axes: &[usize]) -> Tensor {
        apply(ReduceSum { axes: SmallVec::from_slice(axes) }, &[self])
    }

    /// Repeats a reduced tensor over the axes that were reduced from `shape`.
    #[track_caller]
    pub(crate) fn spread_over(&self, axes: &[usize], shape: &[usize]) -> Tensor {
        let kept = |(axis, &extent): (usize, &usize)| if axes.contains(&axis) { 1 } else { extent };
        let kept: Shape = shape.iter().enumerate().map(kept).collect();
        self.reshape(kept).broadcast_to(shape)
    }
}
