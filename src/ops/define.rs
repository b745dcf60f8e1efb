//! The definition of an op: [`OpDef`] and the types in its rules.

use std::fmt;

use retape_runtime::{DType, Scalar};
use smallvec::SmallVec;

use super::{Attributes, Lowering, Op};
use crate::tensor::Tensor;
use crate::types::TensorType;

/// Why arguments do not fit an op; the caller adds the op's name and the source line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeError(pub String);

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TypeError {}

/// Facts of an op that passes and checks ask for.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Whether the order of the arguments does not matter.
    pub commutes: bool,
    /// Whether the value stands for an effect, which must happen on every run, once, and in order. The last argument
    /// and the value of such an op are tokens.
    pub has_effect: bool,
    /// The number that the op puts into its result besides elements of its arguments.
    pub constant: Option<Scalar>,
    /// The axes of a reduction, and how to make the same one over others.
    pub reduction: Option<Reduction>,
}

/// The axes of a reduction, and how to make the same one over others.
#[derive(Clone, Debug)]
pub struct Reduction {
    /// The axes, ascending.
    pub axes: SmallVec<[usize; 4]>,
    /// Makes the same reduction over other axes.
    pub over: fn(SmallVec<[usize; 4]>) -> Op,
}

impl Facts {
    /// Those of an op of which nothing is special.
    pub const PLAIN: Facts = Facts { commutes: false, has_effect: false, constant: None, reduction: None };
}

/// One op. No rule has a default: an op says explicitly which it lacks.
pub trait OpDef: Attributes + Clone + fmt::Debug + PartialEq + Eq + std::hash::Hash + Into<Op> {
    /// The type of the result.
    ///
    /// # Errors
    ///
    /// Says which argument does not fit, and why.
    fn infer(&self, args: &[&TensorType]) -> Result<TensorType, TypeError>;

    /// The cotangent of each argument, as formulas over tensors, so that they can be differentiated again.
    fn vjp(&self, at: &Site<'_>) -> Cotangents;

    /// How the op becomes code, for arguments that `infer` accepts.
    fn lower(&self, args: &[&TensorType], result: &TensorType) -> Lowering;

    /// The facts that passes and checks ask for.
    fn facts(&self) -> Facts;

    /// The op with other dtypes among its attributes: `to` says which takes the place of one.
    #[must_use]
    fn in_dtypes(&self, to: fn(DType) -> DType) -> Self;

    /// Sample applications: at least one per form of the attributes and per dtype class.
    fn samples() -> Vec<Sample>;
}

/// Where a derivative is asked for: an application of an op and the cotangent of its result.
#[derive(Debug)]
pub struct Site<'t> {
    /// The arguments.
    pub args: &'t [Tensor],
    /// The result.
    pub output: &'t Tensor,
    /// The cotangent of the result; the same shape and dtype.
    pub ct: &'t Tensor,
}

/// The cotangents of an op's arguments; none where the derivative is zero or does not exist.
#[derive(Debug)]
pub struct Cotangents(pub(crate) SmallVec<[Option<Tensor>; 3]>);

impl Cotangents {
    /// A cotangent for each argument.
    pub fn of<const N: usize>(cotangents: [Tensor; N]) -> Cotangents {
        Cotangents(cotangents.into_iter().map(Some).collect())
    }

    /// A cotangent for some arguments.
    pub fn some<const N: usize>(cotangents: [Option<Tensor>; N]) -> Cotangents {
        Cotangents(cotangents.into_iter().collect())
    }

    /// A cotangent for each of a variable number of arguments.
    pub fn each(cotangents: impl IntoIterator<Item = Tensor>) -> Cotangents {
        Cotangents(cotangents.into_iter().map(Some).collect())
    }

    /// No argument has a cotangent, for this reason.
    pub fn zero(_reason: &'static str) -> Cotangents {
        Cotangents(SmallVec::new())
    }
}

/// A sample application of an op: argument types and the interval its values are drawn from.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The op.
    pub op: Op,
    /// The arguments.
    pub args: Vec<SampleArg>,
}

/// How one argument of a sample is made.
#[derive(Clone, Debug)]
pub struct SampleArg {
    /// Its type; `f64` arguments are also tried as `f32`.
    pub ty: TensorType,
    /// The half-open interval of its values. Values are spread so that none coincide and that, for an interval
    /// around zero, none lies close to it: kinks and ties are tested apart.
    pub range: std::ops::Range<f64>,
}

impl Sample {
    /// A sample over `f64` arguments of the given shapes, all with values in `range`.
    pub fn floats(op: impl Into<Op>, shapes: &[&[usize]], range: std::ops::Range<f64>) -> Sample {
        Sample::of(DType::F64, op, shapes, range)
    }

    /// A sample over arguments of one dtype and the given shapes, all with values in `range`.
    pub fn of(dtype: DType, op: impl Into<Op>, shapes: &[&[usize]], range: std::ops::Range<f64>) -> Sample {
        let arg = |shape: &&[usize]| SampleArg { ty: TensorType::new(dtype, *shape), range: range.clone() };
        Sample { op: op.into(), args: shapes.iter().map(arg).collect() }
    }

    /// A sample over arguments of the given types and intervals.
    pub fn typed(op: impl Into<Op>, args: &[(TensorType, std::ops::Range<f64>)]) -> Sample {
        let arg = |(ty, range): &(TensorType, std::ops::Range<f64>)| SampleArg { ty: ty.clone(), range: range.clone() };
        Sample { op: op.into(), args: args.iter().map(arg).collect() }
    }
}
