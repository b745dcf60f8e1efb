//! Cumulative folds and linear recurrences along an axis, and the positions of extremes.

use retape_kernels::library::{ArgReduce, Extreme, Recurrence, Scan, ScanKind};
use retape_runtime::DType;
use smallvec::SmallVec;
use std::panic::Location;

use super::attribute::attributes;
use super::check::{self, refuse};
use super::{AsIndex, Cotangents, Facts, Lowering, Op, OpDef, Sample, Site, TensorOrScalar, TypeError};
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

/// The states `s[i] = terms[i] + coefficients[i] * s[i - 1]` along an axis, from `s[0] = terms[0]`; the arguments are the
/// terms and the coefficients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LinearRecurrence {
    /// The axis.
    pub axis: usize,
    /// Whether to start at the end: `s[i]` then follows from `s[i + 1]`.
    pub reverse: bool,
    /// Whether the coefficient is that at the state before, `coefficients[i - 1]`.
    pub lagging: bool,
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
    LinearRecurrence { axis, reverse, lagging }
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
        let ct =
            if self.exclusive { at.ct.shifted(self.axis, if self.reverse { -1 } else { 1 }) } else { at.ct.clone() };
        let back = LinearRecurrence { axis: self.axis, reverse: !self.reverse, lagging: true };
        Cotangents::of([before * Tensor::apply(back, &[&ct, x])])
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

impl OpDef for LinearRecurrence {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let ty = check::number_elementwise::<2>(args)?;
        check::axes(&[self.axis], &ty)?;
        Ok(ty)
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        // A state gets what comes of it directly, and its coefficient's share of what the next one gets: a recurrence
        // from the other end, whose coefficients are those at the state that comes before in its order.
        let LinearRecurrence { axis, reverse, lagging } = *self;
        let back = LinearRecurrence { axis, reverse: !reverse, lagging: !lagging };
        let terms = Tensor::apply(back, &[at.ct, &at.args[1]]);
        // Zero moves in behind the product, so that the place without a coefficient gets it beside infinite states.
        let (before, after) = if reverse { (1, -1) } else { (-1, 1) };
        let coefficients = match lagging {
            false => (terms.shifted(axis, after) * at.output).shifted(axis, before),
            true => (&terms * at.output.shifted(axis, before)).shifted(axis, after),
        };
        Cotangents::of([terms, coefficients])
    }

    fn lower(&self, args: &[&TensorType], _: &TensorType) -> Lowering {
        let [outer, len, inner] = split(args[0], self.axis);
        let LinearRecurrence { reverse, lagging, .. } = *self;
        Lowering::Library(Recurrence { dtype: args[0].dtype, outer, len, inner, reverse, lagging }.into())
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let of = |axis, reverse, lagging| {
            Sample::floats(LinearRecurrence { axis, reverse, lagging }, &[&[4, 6], &[4, 6]], -1.5..1.5)
        };
        vec![of(0, false, false), of(1, true, false), of(1, false, true), of(0, true, true)]
    }
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
                let carried = (!&came).cast(at.ct.dtype());
                let back = LinearRecurrence { axis: self.axis, reverse: true, lagging: true };
                let gathered = Tensor::apply(back, &[at.ct, &carried]);
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
    /// The derivative is right for zeros as well.
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

    /// The states of a linear recurrence along an axis, counted from the end if negative: `s[i] = self[i] +
    /// coefficients[i] * s[i - 1]`, from `s[0] = self[0]`. The coefficients, one number or an array that broadcasts to this
    /// one, have its dtype, a float or an integer; the first ones are not read.
    ///
    /// Moving averages, discounted sums and linear layers with a state are such recurrences. States of `f32` are kept in
    /// `f64` and rounded once per element. The processor computes a line in order; a GPU joins parts of a long one by the
    /// products of their coefficients, and where these are infinite or overflow, states behind are infinite or NaN. The
    /// derivative is a recurrence from the other end.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let states = Tensor::from([1.0_f32, 1.0, 1.0]).linear_recurrence(0.5, 0);
    /// assert_eq!(states.to_vec::<f32>()?, [1.0, 1.5, 1.75]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn linear_recurrence(&self, coefficients: impl TensorOrScalar, axis: impl AsIndex) -> Tensor {
        let (at, _method) = (Location::caller(), method("linear_recurrence"));
        let coefficients = coefficients.tensor_like(self, at).broadcast_to(self.shape());
        let op = |axis| LinearRecurrence { axis, reverse: false, lagging: false };
        self.over_axis(axis, at, |axis| Tensor::apply_at(op(axis), &[self, &coefficients], at))
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
