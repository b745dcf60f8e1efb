//! Folds over axes.

use retape_kernels::ir::ReductionOp;
use retape_runtime::{DType, Shape};
use smallvec::SmallVec;
use std::panic::Location;

use super::attribute::attributes;
use super::axes::Axes;
use super::check::{self, refuse};
use super::{Cotangents, CumProd, Facts, Lowering, Op, OpDef, Permute, Reduction, Reshape, Sample, Site, TypeError};
use crate::error::Caller;
use crate::method::method;
use crate::tensor::Tensor;
use crate::types::TensorType;

/// Sum over `axes`, which disappear from the shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReduceSum {
    /// The axes, ascending.
    pub axes: SmallVec<[usize; 4]>,
}

/// Product over `axes`, which disappear from the shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReduceProd {
    /// The axes, ascending.
    pub axes: SmallVec<[usize; 4]>,
}

/// Largest element over `axes`, which disappear from the shape and are not empty; NaN wins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReduceMax {
    /// The axes, ascending.
    pub axes: SmallVec<[usize; 4]>,
}

/// Smallest element over `axes`, which disappear from the shape and are not empty; NaN wins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReduceMin {
    /// The axes, ascending.
    pub axes: SmallVec<[usize; 4]>,
}

/// Whether all elements over `axes`, which disappear from the shape, are true.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReduceAll {
    /// The axes, ascending.
    pub axes: SmallVec<[usize; 4]>,
}

/// Whether any element over `axes`, which disappear from the shape, is true.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReduceAny {
    /// The axes, ascending.
    pub axes: SmallVec<[usize; 4]>,
}

attributes! {
    ReduceSum { axes }
    ReduceProd { axes }
    ReduceMax { axes }
    ReduceMin { axes }
    ReduceAll { axes }
    ReduceAny { axes }
}

/// Implements [`OpDef`] except for the differences between reductions.
macro_rules! folds {
    ($($op:ident $reduction:ident: $check:expr, $vjp:expr, $samples:expr;)*) => {$(
        impl OpDef for $op {
            fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
                let [x] = check::exactly::<1>(args)?;
                let check: fn(&TensorType, &[usize]) -> Result<(), TypeError> = $check;
                check::axes(&self.axes, x)?;
                check(x, &self.axes)?;
                Ok(check::without_axes(x, &self.axes))
            }

            fn vjp(&self, at: &Site<'_>) -> Cotangents {
                let vjp: fn(&Site<'_>, &[usize]) -> Cotangents = $vjp;
                vjp(at, &self.axes)
            }

            fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
                Lowering::Reduce { op: ReductionOp::$reduction, axes: self.axes.clone() }
            }

            fn facts(&self) -> Facts {
            let reduction = Reduction { axes: self.axes.clone(), over: |axes| $op { axes }.into() };
            Facts { reduction: Some(reduction), ..Facts::PLAIN }
        }

            fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
                self.clone()
            }

            fn samples() -> Vec<Sample> {
                let over = |axes: &[usize]| $op { axes: SmallVec::from_slice(axes) };
                let sample = |(ty, axes): (TensorType, &[usize])| Sample::typed(over(axes), &[(ty, -1.5..1.5)]);
                $samples.into_iter().map(sample).collect()
            }
        }
    )*};
}

folds! {
    ReduceSum Sum: |x, _| check::number(0, x), spread, floats();
    ReduceProd Prod: |x, _| check::number(0, x), leave_one_out, floats().into_iter().chain(columns());
    ReduceMax Max: not_empty, to_the_extremes, floats();
    ReduceMin Min: not_empty, to_the_extremes, floats();
    ReduceAll All: truth, |_, _| Cotangents::zero("truth values have no derivatives"), truths();
    ReduceAny Any: truth, |_, _| Cotangents::zero("truth values have no derivatives"), truths();
}

fn floats() -> [(TensorType, &'static [usize]); 3] {
    let of = |shape: &[usize]| TensorType::new(DType::F64, shape);
    [(of(&[2, 5]), &[1]), (of(&[3, 4, 5]), &[0, 2]), (of(&[3]), &[])]
}

/// Many columns.
fn columns() -> [(TensorType, &'static [usize]); 2] {
    let of = |shape: &[usize]| TensorType::new(DType::F64, shape);
    [(of(&[3, 33]), &[0]), (of(&[2, 3, 32]), &[1])]
}

fn truths() -> [(TensorType, &'static [usize]); 2] {
    let of = |shape: &[usize]| TensorType::new(DType::Bool, shape);
    [(of(&[2, 5]), &[1]), (of(&[3, 4, 5]), &[0, 2])]
}

fn truth(x: &TensorType, _: &[usize]) -> Result<(), TypeError> {
    check::of_dtype(0, x, "bool: compare first, for instance with `ne(0)`", |dtype| dtype == DType::Bool)
}

fn not_empty(x: &TensorType, axes: &[usize]) -> Result<(), TypeError> {
    check::number(0, x)?;
    match axes.iter().find(|&&axis| x.shape[axis] == 0) {
        Some(axis) => refuse!("axis {axis} of {x} is empty: nothing is the largest or smallest of no elements"),
        None => Ok(()),
    }
}

fn spread(at: &Site<'_>, axes: &[usize]) -> Cotangents {
    Cotangents::of([at.ct.spread_over(axes, at.args[0].shape())])
}

/// Elements that equal the extreme share the cotangent.
fn to_the_extremes(at: &Site<'_>, axes: &[usize]) -> Cotangents {
    let x = &at.args[0];
    let is_extreme = x.eq(at.output.spread_over(axes, x.shape()));
    let count = is_extreme.cast(x.dtype()).reduce_sum(axes);
    let ct = (at.ct / count).spread_over(axes, x.shape());
    Cotangents::of([is_extreme.select(ct, 0.0)])
}

/// The derivative with respect to an element is the product of all others: of those before it and those after it, so
/// that nothing is divided by an element, which may be 0.
fn leave_one_out(at: &Site<'_>, axes: &[usize]) -> Cotangents {
    /// Columns that products are accumulated along; fewer are turned to lines.
    const COLUMNS: usize = 32;
    let x = &at.args[0];
    let others_along = |lines: &Tensor, axis: usize| {
        let others = |reverse| Tensor::apply(CumProd { axis, reverse, exclusive: true }, &[lines]);
        others(false) * others(true)
    };
    if let &[axis] = axes
        && x.shape()[axis + 1..].iter().product::<usize>() >= COLUMNS
    {
        return Cotangents::of([at.ct.spread_over(axes, x.shape()) * others_along(x, axis)]);
    }
    let kept = (0..x.rank()).filter(|axis| !axes.contains(axis));
    let perm: SmallVec<[usize; 4]> = kept.chain(axes.iter().copied()).collect();
    let moved = Tensor::apply(Permute { perm: perm.clone() }, &[x]);
    let n = axes.iter().map(|&axis| x.shape()[axis]).product();
    let lines = moved.reshape(Shape::new(&[at.output.n_elements(), n]));
    let others = others_along(&lines, 1).reshape(Shape::new(moved.shape()));
    let mut inverse = perm.clone();
    perm.iter().enumerate().for_each(|(to, &from)| inverse[from] = to);
    Cotangents::of([at.ct.spread_over(axes, x.shape()) * Tensor::apply(Permute { perm: inverse }, &[&others])])
}

impl Tensor {
    /// A reduction over axes that keeps them with extent 1 if `keep`.
    fn fold<O: Into<Op>>(
        &self,
        (axes, keep): (Axes, bool),
        at: Caller,
        op: impl FnOnce(SmallVec<[usize; 4]>) -> O,
    ) -> Tensor {
        self.over_axes(axes, at, |axes| {
            let extent = |(axis, &extent): (usize, &usize)| if axes.contains(&axis) { 1 } else { extent };
            let shape: Shape = self.shape().iter().enumerate().map(extent).collect();
            let folded = Tensor::apply_at(op(axes), &[self], at);
            if keep && folded.shape() != &*shape { Tensor::apply_at(Reshape { shape }, &[&folded], at) } else { folded }
        })
    }

    /// The sum over ascending axes that exist.
    #[track_caller]
    pub(crate) fn reduce_sum(&self, axes: &[usize]) -> Tensor {
        Tensor::apply(ReduceSum { axes: SmallVec::from_slice(axes) }, &[self])
    }

    /// Repeats a reduced tensor over the axes that were reduced from `shape`.
    #[track_caller]
    pub(crate) fn spread_over(&self, axes: &[usize], shape: &[usize]) -> Tensor {
        let kept = |(axis, &extent): (usize, &usize)| if axes.contains(&axis) { 1 } else { extent };
        let kept: Shape = shape.iter().enumerate().map(kept).collect();
        self.reshape(kept).broadcast_to(shape)
    }
}

/// The two public methods of a reduction, each after its docs.
macro_rules! fold_methods {
    ($($(#[$doc:meta])* $method:ident $(#[$keeping_doc:meta])* $keeping:ident $op:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $method(&self, axes: impl Into<Axes>) -> Tensor {
                let _method = method(stringify!($method));
                self.fold((axes.into(), false), Location::caller(), |axes| $op { axes })
            }

            $(#[$keeping_doc])*
            #[track_caller]
            pub fn $keeping(&self, axes: impl Into<Axes>) -> Tensor {
                let _method = method(stringify!($keeping));
                self.fold((axes.into(), true), Location::caller(), |axes| $op { axes })
            }
        )*}
    };
}

fold_methods! {
    /// The sum over axes, which disappear from the shape: `x.sum(0)`, `x.sum([0, -1])`, `x.sum(..)`.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([[1.0_f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.sum(0).to_vec::<f32>()?, [4.0, 6.0]);
    /// assert_eq!(x.sum_keep(-1).shape(), [2, 1]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    sum
    /// As [`sum`](Tensor::sum), keeping the axes with extent 1.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([[1.0_f32, 2.0], [3.0, 4.0]]);
    /// let kept = x.sum_keep(1);
    /// assert_eq!((kept.shape(), kept.to_vec::<f32>()?), (&[2, 1][..], vec![3.0, 7.0]));
    /// # Ok::<(), retape::Error>(())
    /// ```
    sum_keep ReduceSum;

    /// The product over axes, which disappear from the shape. The derivative is right for zeros as well.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([[1.0_f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.prod(1).to_vec::<f32>()?, [2.0, 12.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    prod
    /// As [`prod`](Tensor::prod), keeping the axes with extent 1.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([[1.0_f32, 2.0], [3.0, 4.0]]);
    /// let kept = x.prod_keep(1);
    /// assert_eq!((kept.shape(), kept.to_vec::<f32>()?), (&[2, 1][..], vec![2.0, 12.0]));
    /// # Ok::<(), retape::Error>(())
    /// ```
    prod_keep ReduceProd;

    /// The largest element over axes, which disappear from the shape; NaN if there is one. Equal largest elements
    /// share the derivative.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([[1.0_f32, 2.0], [3.0, 0.0]]).max(1).to_vec::<f32>()?, [2.0, 3.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    max
    /// As [`max`](Tensor::max), keeping the axes with extent 1.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([[1.0_f32, 2.0], [3.0, 4.0]]);
    /// let kept = x.max_keep(0);
    /// assert_eq!((kept.shape(), kept.to_vec::<f32>()?), (&[1, 2][..], vec![3.0, 4.0]));
    /// # Ok::<(), retape::Error>(())
    /// ```
    max_keep ReduceMax;

    /// The smallest element over axes, which disappear from the shape; NaN if there is one. Equal smallest elements
    /// share the derivative.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([[1.0_f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.min(0).to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    min
    /// As [`min`](Tensor::min), keeping the axes with extent 1.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([[1.0_f32, 2.0], [3.0, 4.0]]);
    /// let kept = x.min_keep(0);
    /// assert_eq!((kept.shape(), kept.to_vec::<f32>()?), (&[1, 2][..], vec![1.0, 2.0]));
    /// # Ok::<(), retape::Error>(())
    /// ```
    min_keep ReduceMin;

    /// Whether all elements over axes, which disappear from the shape, are true.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([[true, false], [true, true]]);
    /// assert_eq!(x.all(1).to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    all
    /// As [`all`](Tensor::all), keeping the axes with extent 1.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([[true, false], [true, true]]);
    /// assert_eq!(x.all_keep(1).shape(), [2, 1]);
    /// ```
    all_keep ReduceAll;

    /// Whether any element over axes, which disappear from the shape, is true.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([[false, false], [true, false]]);
    /// assert_eq!(x.any(1).to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    any
    /// As [`any`](Tensor::any), keeping the axes with extent 1.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([[false, false], [true, false]]);
    /// assert_eq!(x.any_keep(0).shape(), [1, 2]);
    /// ```
    any_keep ReduceAny;
}
