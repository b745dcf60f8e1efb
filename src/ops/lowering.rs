//! How an op becomes code: the four forms that the planner knows.

use std::fmt;

use retape_kernels::ir::{ReductionOp, Value};
use retape_runtime::Scalar;
use smallvec::SmallVec;

/// The computation of one element of a result.
pub type Body = Box<dyn for<'k> Fn(&dyn Point<'k>) -> Value<'k> + Send + Sync>;

/// The element of the result that is being computed.
pub trait Point<'k> {
    /// The value of argument `arg` at the element's own coordinates (at the mapped ones for a scalar argument).
    fn arg(&self, arg: usize) -> Value<'k>;

    /// The element's coordinate along `axis` of the result, as `i64`.
    fn index(&self, axis: usize) -> Value<'k>;

    /// The value of argument `arg` at other coordinates (`i64`), one per axis of the argument; they must lie
    /// inside it. Only for arguments that the lowering names as `random`.
    fn at(&self, arg: usize, coordinates: &[Value<'k>]) -> Value<'k>;

    /// A constant.
    fn constant(&self, value: Scalar) -> Value<'k>;
}

/// How an op becomes code.
pub enum Lowering {
    /// A formula per element; all arguments have the shape of the result.
    Pointwise(Body),
    /// A formula per element that reads the arguments in `random` at computed coordinates. The other arguments
    /// have the shape of the result.
    Indexed {
        /// The formula.
        body: Body,
        /// The arguments read through [`Point::at`].
        random: SmallVec<[usize; 3]>,
    },
    /// The argument's elements at other coordinates; no arithmetic.
    Movement(Movement),
    /// A reduction of the argument over axes, which disappear from the shape.
    Reduce {
        /// The operation.
        op: ReductionOp,
        /// The axes, ascending.
        axes: SmallVec<[usize; 4]>,
    },
    /// A precompiled kernel over dense arguments.
    Library(retape_kernels::library::Library),
    /// Nothing to compute: a parameter, or a result of a call, which has machine code of its own.
    Parameter,
}

/// How the coordinates of a result map to those of the argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Movement {
    /// Axes align at the right; an argument's extent of 1 is repeated.
    Broadcast,
    /// Axis `i` of the result is axis `perm[i]` of the argument.
    Permute(SmallVec<[usize; 4]>),
    /// The same elements in row-major order.
    Reshape,
    /// Coordinate `c` of axis `i` is coordinate `start[i] + c * step[i]`; steps may be negative.
    Slice {
        /// The coordinate of the first element.
        start: SmallVec<[usize; 4]>,
        /// The distance between elements.
        step: SmallVec<[i64; 4]>,
    },
}

impl fmt::Debug for Lowering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lowering::Pointwise(_) => f.write_str("Pointwise"),
            Lowering::Indexed { random, .. } => write!(f, "Indexed(random {random:?})"),
            Lowering::Movement(movement) => write!(f, "{movement:?}"),
            Lowering::Reduce { op, axes } => write!(f, "Reduce({op:?}, {axes:?})"),
            Lowering::Library(library) => write!(f, "{library:?}"),
            Lowering::Parameter => f.write_str("Parameter"),
        }
    }
}

impl Lowering {
    /// A formula per element.
    pub fn pointwise(body: impl for<'k> Fn(&dyn Point<'k>) -> Value<'k> + Send + Sync + 'static) -> Lowering {
        Lowering::Pointwise(Box::new(body))
    }

    /// A formula per element that reads some arguments at computed coordinates.
    pub fn indexed(
        random: &[usize],
        body: impl for<'k> Fn(&dyn Point<'k>) -> Value<'k> + Send + Sync + 'static,
    ) -> Lowering {
        Lowering::Indexed { body: Box::new(body), random: SmallVec::from_slice(random) }
    }
}
