//! Cumulative folds along an axis, and the positions of extremes.

use retape_kernels::library::{ArgReduce, Extreme, Scan, ScanKind};
use retape_runtime::DType;
use smallvec::SmallVec;
use std::panic::Location;

use super::attribute::attributes;
use super::check::{self, refuse};
use super::{AsIndex, Cotangents, Facts, Lowering, Op, OpDef, Sample, Site, TypeError};
use crate::method::method;
use crate::tensor::Tensor;
use crate::types::TensorType;

/// Sums of all elements up to each along an axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CumSum {
    /// The axis.
    pub axis: usize,
    /// Whether to start at the end.
    pub reverse: bool,
    /// Whether an element's result excludes the element itself.
    pub exclusive: bool,
}

/// Products of all elements up to each along an axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CumProd {
    /// The axis.
    pub axis: usize,
    /// Whether to start at the end.
    pub reverse: bool,
    /// Whether an element's result excludes the element itself.
    pub exclusive: bool,
}

/// Largest of all elements up to each along an axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CumMax {
    /// The axis.
    pub axis: usize,
}

/// Smallest of all elements up to each along an axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CumMin {
    /// The axis.
    pub axis: usize,
}

/// Elements moved along an axis; zeros move in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shift {
    /// The axis.
    pub axis: usize,
    /// Element `i` of the result is element `i + distance` of the argument.
    pub distance: i64,
}

/// Position of the first largest element along an axis, which disappears from the shape; the first NaN wins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArgMax {
    /// The axis.
    pub axis: usize,
}

/// Position of the first smallest element along an axis, which disappears from the shape; the first NaN wins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArgMin {
    /// The axis.
    pub axis: usize,
}

attributes! {
    CumSum { axis, reverse, exclusive }
    CumProd { axis, reverse, exclusive }
    CumMax { axis }
    CumMin { axis }
    Shift { axis, distance }
    ArgMax { axis }
    ArgMin { axis }
}

/// One number argument with that axis.
fn along<'t>(args: &[&'t TensorType], axis: usize) -> Result<&'t TensorType, TypeError> {
    let [x] = check::exactly::<1>(args)?;
    check::number(0, x)?;
    check::axes(&[axis], x)?;
    Ok(x)
}

/// The extents before, at and after an axis.
fn split(x: &TensorType, axis: usize) -> [usize; 3] {
    let product = |extents: &[usize]| extents.iter().product();
    [product(&x.shape[..axis]), x.shape[axis], product(&x.shape[axis + 1..])]
}

fn scan(x: &TensorType, axis: usize, kind: ScanKind, reverse: bool, exclusive: bool) -> Lowering {
    let [outer, len, inner] = split(x, axis);
    Lowering::Library(Scan { dtype: x.dtype, outer, len, inner, kind, reverse, exclusive }.into())
}

impl OpDef for CumSum {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        along(args, self.axis).cloned()
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        Cotangents::of([Tensor::apply(CumSum { reverse: !self.reverse, ..self.clone() }, &[at.ct])])
    }

    fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
        scan(args[0], self.axis, ScanKind::Sum, self.reverse, self.exclusive)
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let of = |axis, reverse, exclusive| Sample::floats(CumSum { axis, reverse, exclusive }, &[&[4, 6]], -2.0..2.0);
        vec![of(0, false, false), of(1, true, false), of(1, false, true)]
    }
}

impl OpDef for CumProd {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        along(args, self.axis).cloned()
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        // The cotangent of an element is the product of those before it, times the sum over all results behind it of
        // their cotangents times the products in between. No division, so that zeros are like other elements.
        let x = &at.args[0];
        let before = Tensor::apply(CumProd { exclusive: true, ..self.clone() }, &[x]);
        let next = |of: &Tensor| of.shifted(self.axis, if self.reverse { -1 } else { 1 });
        let ct = if self.exclusive { next(at.ct) } else { at.ct.clone() };
        Cotangents::of([before * recurrence(&ct, &next(x), self.axis, self.reverse)])
    }

    fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
        scan(args[0], self.axis, ScanKind::Prod, self.reverse, self.exclusive)
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let of = |axis, reverse, exclusive| Sample::floats(CumProd { axis, reverse, exclusive }, &[&[4, 6]], -1.5..1.5);
        vec![of(0, false, false), of(1, true, false), of(1, false, true), of(0, true, true)]
    }
}

/// The solution of `s[i] = b[i] + a[i] * s[i + 1]` along an axis, from its end (`i - 1`, from its start, if `reverse`).
///
/// By doubling: each of the log2(n) rounds composes every step with the one that follows it.
fn recurrence(b: &Tensor, a: &Tensor, axis: usize, reverse: bool) -> Tensor {
    let n = b.shape()[axis] as i64;
    let (mut b, mut a, mut distance) = (b.clone(), a.clone(), 1);
    while distance < n {
        let step = if reverse { -distance } else { distance };
        b = &b + &a * b.shifted(axis, step);
        distance *= 2;
        if distance < n {
            a = &a * a.shifted(axis, step);
        }
    }
    b
}

/// Implements [`OpDef`] for a cumulative extreme.
///
/// A result takes its value from the last element up to it that was an extreme when it came, so an element which is
/// one gathers the cotangents from itself up to the next.
macro_rules! extremes {
    ($($op:ident $kind:ident;)*) => {$(
        impl OpDef for $op {
            fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
                along(args, self.axis).cloned()
            }

            fn vjp(&self, at: &Site<'_>) -> Cotangents {
                let came = at.args[0].eq(at.output);
                let carried = (!&came).cast(at.ct.dtype()).shifted(self.axis, 1);
                let gathered = recurrence(at.ct, &carried, self.axis, false);
                Cotangents::of([came.select(gathered, 0.0)])
            }

            fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
                scan(args[0], self.axis, ScanKind::$kind, false, false)
            }

            fn facts(&self) -> Facts {
                Facts::PLAIN
            }

            fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
                self.clone()
            }

            fn samples() -> Vec<Sample> {
                let of = |axis| Sample::floats($op { axis }, &[&[4, 6]], -2.0..2.0);
                vec![of(0), of(1)]
            }
        }
    )*};
}

extremes! {
    CumMax Max;
    CumMin Min;
}

impl OpDef for Shift {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        along(args, self.axis).cloned()
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        Cotangents::of([at.ct.shifted(self.axis, self.distance.saturating_neg())])
    }

    fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
        let (axis, distance, rank) = (self.axis, self.distance, args[0].rank());
        let last = args[0].shape[axis].saturating_sub(1) as i64;
        Lowering::indexed(&[0], move |at| {
            let mut coordinates: SmallVec<[_; 4]> = (0..rank).map(|axis| at.index(axis)).collect();
            let from = coordinates[axis] + distance;
            coordinates[axis] = from.max(0_i64).min(last);
            let x = at.at(0, &coordinates);
            (from.ge(0_i64) & from.le(last)).select(x, 0.0)
        })
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let of = |axis, distance| Sample::floats(Shift { axis, distance }, &[&[4, 6]], -2.0..2.0);
        vec![of(0, 1), of(1, -2), of(1, 7)]
    }
}

/// Implements [`OpDef`] for the position of an extreme.
macro_rules! positions {
    ($($op:ident $kind:ident;)*) => {$(
        impl OpDef for $op {
            fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
                let x = along(args, self.axis)?;
                if x.shape[self.axis] == 0 {
                    refuse!("axis {} of {x} is empty: no element is the largest or smallest", self.axis);
                }
                Ok(check::without_axes(x, &[self.axis]).with_dtype(DType::I64))
            }

            fn vjp(&self, _: &Site<'_>) -> Cotangents {
                Cotangents::zero("positions are integers")
            }

            fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
                let [outer, len, inner] = split(args[0], self.axis);
                let kind = Extreme::$kind;
                Lowering::Library(ArgReduce { dtype: args[0].dtype, outer, len, inner, kind }.into())
            }

            fn facts(&self) -> Facts {
                Facts::PLAIN
            }

            fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
                self.clone()
            }

            fn samples() -> Vec<Sample> {
                let of = |axis| Sample::floats($op { axis }, &[&[4, 6]], -2.0..2.0);
                vec![of(0), of(1)]
            }
        }
    )*};
}

positions! {
    ArgMax Max;
    ArgMin Min;
}

impl Tensor {
    /// Applies an op along one axis, counted from the end if negative.
    #[track_caller]
    fn along_axis<O: Into<Op>>(&self, name: &'static str, axis: impl AsIndex, op: impl Fn(usize) -> O) -> Tensor {
        let (at, _method) = (Location::caller(), method(name));
        self.over_axis(axis, at, |axis| Tensor::apply_at(op(axis), &[self], at))
    }

    /// Element `i` along the axis is the present element `i + distance`, or 0 if there is none.
    #[track_caller]
    fn shifted(&self, axis: usize, distance: i64) -> Tensor {
        Tensor::apply(Shift { axis, distance }, &[self])
    }

    /// The sums of all elements up to each along an axis, counted from the end if negative.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([1.0_f32, 2.0, 3.0]).cumsum(0).to_vec::<f32>()?, [1.0, 3.0, 6.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn cumsum(&self, axis: impl AsIndex) -> Tensor {
        let op = |axis| CumSum { axis, reverse: false, exclusive: false };
        self.along_axis("cumsum", axis, op)
    }

    /// The products of all elements up to each along an axis, counted from the end if negative.
    ///
    /// The derivative is right for zeros as well; it takes log2(n) passes over the elements for an axis of extent n.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([1.0_f32, 2.0, 3.0]).cumprod(0).to_vec::<f32>()?, [1.0, 2.0, 6.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn cumprod(&self, axis: impl AsIndex) -> Tensor {
        let op = |axis| CumProd { axis, reverse: false, exclusive: false };
        self.along_axis("cumprod", axis, op)
    }

    /// The largest of all elements up to each along an axis, counted from the end if negative; from the first NaN on,
    /// NaN. The derivative goes to the last of equal elements.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([1.0_f32, 3.0, 2.0]).cummax(0).to_vec::<f32>()?, [1.0, 3.0, 3.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn cummax(&self, axis: impl AsIndex) -> Tensor {
        self.along_axis("cummax", axis, |axis| CumMax { axis })
    }

    /// The smallest of all elements up to each along an axis, counted from the end if negative; from the first NaN
    /// on, NaN. The derivative goes to the last of equal elements.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([2.0_f32, 3.0, 1.0]).cummin(0).to_vec::<f32>()?, [2.0, 2.0, 1.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn cummin(&self, axis: impl AsIndex) -> Tensor {
        self.along_axis("cummin", axis, |axis| CumMin { axis })
    }

    /// The position (`i64`) of the first largest element along an axis, which disappears from the shape; of the first
    /// NaN if there is one.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([[1.0_f32, 2.0], [3.0, 0.0]]).argmax(1).to_vec::<i64>()?, [1, 0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn argmax(&self, axis: impl AsIndex) -> Tensor {
        self.along_axis("argmax", axis, |axis| ArgMax { axis })
    }

    /// The position (`i64`) of the first smallest element along an axis, which disappears from the shape; of the first
    /// NaN if there is one.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([[1.0_f32, 2.0], [3.0, 0.0]]).argmin(1).to_vec::<i64>()?, [0, 1]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn argmin(&self, axis: impl AsIndex) -> Tensor {
        self.along_axis("argmin", axis, |axis| ArgMin { axis })
    }
}
