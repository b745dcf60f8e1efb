//! Comparisons, and the ops that choose by them: the larger, the smaller, either of two.

use retape_runtime::DType;
use std::panic::Location;

use super::attribute::attributes;
use super::check::{self, refuse};
use super::operators::TensorOrScalar;
use super::{Cotangents, Facts, Lowering, OpDef, Sample, Site, TypeError};
use crate::method::method;
use crate::tensor::Tensor;
use crate::types::TensorType;

/// Whether elements are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Equal;

/// Whether elements differ.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NotEqual;

/// Whether elements are less than others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Less;

/// Whether elements are less than others or equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LessEqual;

/// The larger of two elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Maximum;

/// The smaller of two elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Minimum;

/// The smaller of the third and the larger of the first two elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Clamp;

/// The element of one tensor or of another, by a condition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Select;

attributes! {
    Equal {}
    NotEqual {}
    Less {}
    LessEqual {}
    Maximum {}
    Minimum {}
    Clamp {}
    Select {}
}

/// Any dtype but the 16-bit floats.
fn comparable(position: usize, arg: &TensorType) -> Result<(), TypeError> {
    check::of_dtype(position, arg, "a float, an integer or bool", |dtype| !dtype.is_half())
}

/// Implements [`OpDef`] and the public methods of a comparison.
macro_rules! comparisons {
    ($($(#[$doc:meta])* $op:ident $method:ident $lowered:ident, commutes: $commutes:literal;)*) => {$(
        impl OpDef for $op {
            fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
                let [x, _] = check::same::<2>(args)?;
                comparable(0, x)?;
                Ok(x.with_dtype(DType::Bool))
            }

            fn vjp(&self, _: &Site<'_>) -> Cotangents {
                Cotangents::zero("truth values have no derivatives")
            }

            fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
                Lowering::pointwise(|at| at.arg(0).$lowered(at.arg(1)))
            }

            fn facts(&self) -> Facts {
                Facts { commutes: $commutes, ..Facts::PLAIN }
            }

            fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
                self.clone()
            }

            fn samples() -> Vec<Sample> {
                let sample = |dtype| {
                    let arg = (TensorType::new(dtype, [4, 5]), 0.0..2.0);
                    Sample::typed($op, &[arg.clone(), arg])
                };
                vec![sample(DType::F64), sample(DType::I64), sample(DType::U8), sample(DType::Bool)]
            }
        }

        impl Tensor {
            $(#[$doc])*
            #[track_caller]
            pub fn $method(&self, other: impl TensorOrScalar) -> Tensor {
                let _method = method(stringify!($method));
                let other = other.tensor_like(self, Location::caller());
                Tensor::broadcast_apply($op, &[self, &other])
            }
        }
    )*};
}

comparisons! {
    /// Whether elements equal those of `other`; false for NaN.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([1.0_f32, 2.0]).eq(2.0).to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Equal eq eq, commutes: true;

    /// Whether elements differ from those of `other`; true for NaN.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([1.0_f32, 2.0]).ne(2.0).to_vec::<bool>()?, [true, false]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    NotEqual ne ne, commutes: true;

    /// Whether elements are less than those of `other`; false for NaN.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([1.0_f32, 2.0]).lt(2.0).to_vec::<bool>()?, [true, false]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    Less lt lt, commutes: false;

    /// Whether elements are less than those of `other` or equal; false for NaN.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([1.0_f32, 2.0]).le(2.0).to_vec::<bool>()?, [true, true]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    LessEqual le le, commutes: false;
}

/// Two tensors in the other order; as they are if they do not go together, so that the error counts them as the caller
/// does.
fn exchanged<'t>(x: &'t Tensor, y: &'t Tensor) -> [&'t Tensor; 2] {
    let goes = x.dtype() == y.dtype() && check::broadcast_all(&[x, y]).is_ok();
    if goes { [y, x] } else { [x, y] }
}

impl Tensor {
    /// Whether elements are greater than those of `other`; false for NaN.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([1.0_f32, 2.0]).gt(1.0).to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn gt(&self, other: impl TensorOrScalar) -> Tensor {
        let _method = method("gt");
        let other = other.tensor_like(self, Location::caller());
        Tensor::broadcast_apply(Less, &exchanged(self, &other))
    }

    /// Whether elements are greater than those of `other` or equal; false for NaN.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([1.0_f32, 2.0]).ge(1.0).to_vec::<bool>()?, [true, true]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn ge(&self, other: impl TensorOrScalar) -> Tensor {
        let _method = method("ge");
        let other = other.tensor_like(self, Location::caller());
        Tensor::broadcast_apply(LessEqual, &exchanged(self, &other))
    }

    /// Whether elements are NaN.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([f32::NAN, f32::INFINITY]).is_nan().to_vec::<bool>()?, [true, false]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn is_nan(&self) -> Tensor {
        let _method = method("is_nan");
        self.ne(self)
    }

    /// Whether elements are neither infinite nor NaN, as all integers and truth values are.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([1.0_f32, f32::INFINITY, f32::NAN]).is_finite().to_vec::<bool>()?, [true, false, false]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn is_finite(&self) -> Tensor {
        let _method = method("is_finite");
        if self.dtype().is_float() { self.abs().lt(f64::INFINITY) } else { self.eq(self) }
    }
}

/// The cotangents of an extreme of `x` and `y`: all to the one that won, half to each of two that are equal.
fn share(at: &Site<'_>, first_wins: &Tensor) -> Cotangents {
    let tie = at.args[0].eq(&at.args[1]);
    let (half, zero) = (at.ct * 0.5, at.ct.zeros_like());
    let x = first_wins.select(at.ct, tie.select(&half, &zero));
    let lost = first_wins | at.output.is_nan();
    let y = lost.select(&zero, tie.select(half, at.ct));
    Cotangents::of([x, y])
}

impl OpDef for Maximum {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        check::number_elementwise::<2>(args)
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        share(at, &at.args[0].gt(&at.args[1]))
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        Lowering::pointwise(|at| at.arg(0).max(at.arg(1)))
    }

    fn facts(&self) -> Facts {
        Facts { commutes: true, ..Facts::PLAIN }
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::floats(Maximum, &[&[3, 4], &[3, 4]], -2.0..2.0)]
    }
}

impl OpDef for Minimum {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        check::number_elementwise::<2>(args)
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        share(at, &at.args[0].lt(&at.args[1]))
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        Lowering::pointwise(|at| at.arg(0).min(at.arg(1)))
    }

    fn facts(&self) -> Facts {
        Facts { commutes: true, ..Facts::PLAIN }
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::floats(Minimum, &[&[3, 4], &[3, 4]], -2.0..2.0)]
    }
}

impl OpDef for Clamp {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        check::number_elementwise::<3>(args)
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        let [x, low, high] = [&at.args[0], &at.args[1], &at.args[2]];
        // The limit that is the result gets the cotangent: of limits in the wrong order always the upper one.
        let to = |chosen: Tensor| Some(chosen.select(at.ct, at.ct.zeros_like()));
        Cotangents::some([to(x.ge(low) & x.le(high)), to(x.lt(low) & low.le(high)), to(x.gt(high) | low.gt(high))])
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        Lowering::pointwise(|at| at.arg(0).max(at.arg(1)).min(at.arg(2)))
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let of = |range| (TensorType::new(DType::F64, [3, 4]), range);
        vec![Sample::typed(Clamp, &[of(-2.0..2.0), of(-1.5..-0.5), of(0.5..1.5)])]
    }
}

impl OpDef for Select {
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError> {
        let [condition, x, y] = check::exactly::<3>(args)?;
        if condition.dtype != DType::Bool {
            refuse!("the condition is {condition}, but must be bool: compare, for instance with `ne(0)`");
        }
        if x.dtype != y.dtype {
            refuse!("the choices are {x} and {y}: {}", check::UNLIKE_DTYPES);
        }
        if x != y || condition.shape != x.shape {
            refuse!("the condition is {condition}, the choices are {x} and {y}: dtypes and shapes must be equal");
        }
        comparable(1, x)?;
        Ok(x.clone())
    }

    fn vjp(&self, at: &Site<'_>) -> Cotangents {
        let (condition, zero) = (&at.args[0], at.ct.zeros_like());
        Cotangents::some([None, Some(condition.select(at.ct, &zero)), Some(condition.select(&zero, at.ct))])
    }

    fn lower(&self, _: &[&TensorType], _: &TensorType) -> Lowering {
        Lowering::pointwise(|at| at.arg(0).select(at.arg(1), at.arg(2)))
    }

    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    fn in_dtypes(&self, _: fn(DType) -> DType) -> Self {
        self.clone()
    }

    fn samples() -> Vec<Sample> {
        let sample = |dtype| {
            let condition = (TensorType::new(DType::Bool, [4, 5]), 0.0..2.0);
            let choice = (TensorType::new(dtype, [4, 5]), -2.0..2.0);
            Sample::typed(Select, &[condition, choice.clone(), choice])
        };
        vec![sample(DType::F64), sample(DType::I64)]
    }
}

impl Tensor {
    /// The larger of each pair of elements; NaN if either is NaN. Equal elements share the derivative.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([1.0_f32, 5.0]).maximum(3.0).to_vec::<f32>()?, [3.0, 5.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn maximum(&self, other: impl TensorOrScalar) -> Tensor {
        let _method = method("maximum");
        let other = other.tensor_like(self, Location::caller());
        Tensor::broadcast_apply(Maximum, &[self, &other])
    }

    /// The smaller of each pair of elements; NaN if either is NaN. Equal elements share the derivative.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([1.0_f32, 5.0]).minimum(3.0).to_vec::<f32>()?, [1.0, 3.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn minimum(&self, other: impl TensorOrScalar) -> Tensor {
        let _method = method("minimum");
        let other = other.tensor_like(self, Location::caller());
        Tensor::broadcast_apply(Minimum, &[self, &other])
    }

    /// Every element, but no smaller than `low` and no larger than `high`, which comes before `low` where they
    /// contradict each other. The derivative is 1 between the limits and on them, and 0 beyond, where it goes to the
    /// limit; see [`relu6`](Tensor::relu6) for the activation, which has none on its limits.
    ///
    /// ```
    /// # use retape::Tensor;
    /// assert_eq!(Tensor::from([-2.0_f32, 0.5, 3.0]).clamp(-1.0, 1.0).to_vec::<f32>()?, [-1.0, 0.5, 1.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn clamp(&self, low: impl TensorOrScalar, high: impl TensorOrScalar) -> Tensor {
        let (at, _method) = (Location::caller(), method("clamp"));
        let (low, high) = (low.tensor_like(self, at), high.tensor_like(self, at));
        Tensor::broadcast_apply(Clamp, &[self, &low, &high])
    }

    /// The elements of `x` where this `bool` tensor is true, those of `y` elsewhere; one of the two may be a number.
    ///
    /// ```
    /// # use retape::Tensor;
    /// let x = Tensor::from([1.0_f32, -2.0]);
    /// assert_eq!(x.lt(0.0).select(0.0, &x).to_vec::<f32>()?, [1.0, 0.0]);
    /// # Ok::<(), retape::Error>(())
    /// ```
    #[track_caller]
    pub fn select(&self, x: impl TensorOrScalar, y: impl TensorOrScalar) -> Tensor {
        let (at, _method) = (Location::caller(), method("select"));
        if x.number().is_some() && y.number().is_some() {
            return self.refused("the choices are two numbers, of no dtype: give one as a tensor".to_owned(), at);
        }
        // A number takes the dtype of the other choice; a tensor ignores what it is given here.
        let (x, y) = if x.number().is_some() {
            let y = y.tensor_like(self, at);
            (x.tensor_like(&y, at), y)
        } else {
            let x = x.tensor_like(self, at);
            let y = y.tensor_like(&x, at);
            (x, y)
        };
        Tensor::broadcast_apply(Select, &[self, &x, &y])
    }
}
