//! The scalar kernel IR: one loop nest, a straight-line body per element, at most one level of reduction.
//!
//! A [`Kernel`] visits every point of its iteration space (`axes`, outermost first). Instructions that depend on no
//! [`Inst::Reduce`] run once per point; a reduction combines its operand over all reduced axes; instructions that depend
//! on a reduction run once per point of the kept axes (the *tail*). A store whose value lies in the tail, or that does
//! not use reduced axes, writes once per kept point; any other store writes at every point.
//!
//! Invariant: instructions are in SSA order; operands have smaller ids. [`verify`](Kernel::verify) checks this, the
//! dtypes, that affine maps stay inside their parameters, and that no two points store to the same element.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod arith;
mod build;
mod eval;
mod inst;
mod overlap;
mod parse;
mod print;
#[doc(hidden)]
pub mod random;
mod special;
mod types;
mod verify;

use retape_runtime::DType;
use smallvec::SmallVec;

pub use arith::eval_inst;
pub use build::{IntoValue, KernelBuilder, Value};
pub use eval::evaluate;
pub(crate) use inst::operation;
pub use inst::{Binary, Compare, Func1, Func2, Inst, ReductionOp, Unary};
pub use parse::{ParseError, parse};
pub use types::Stage;
pub(crate) use types::int_range;
pub use verify::{VerifyError, verify};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// The id as an index into its table.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    )*};
}

ids! {
    /// An instruction of a kernel and the value it makes.
    ValueId "%";
    /// An axis of a kernel's iteration space.
    AxisId "a";
    /// A buffer that a kernel reads or writes.
    ParamId "p";
}

/// An axis of the iteration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Axis {
    /// The number of points along it.
    pub extent: usize,
    /// Whether reductions run over it.
    pub reduced: bool,
}

/// A buffer that a kernel reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Param {
    /// The dtype of its elements.
    pub dtype: DType,
    /// The number of its elements.
    pub len: usize,
    /// Whether the kernel writes it; written parameters are never read.
    pub written: bool,
}

/// `offset + sum(strides[a] * coordinate(a))`, in elements; one stride per axis.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Affine {
    /// The position of the point at the origin.
    pub offset: i64,
    /// The distance between neighbours along each axis.
    pub strides: SmallVec<[i64; 4]>,
}

impl Clone for Affine {
    /// Copies the strides as bytes, which the derived form does one by one.
    fn clone(&self) -> Affine {
        Affine::new(self.offset, &self.strides)
    }
}

/// A value written to a parameter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Store {
    /// Where to.
    pub param: ParamId,
    /// At which element.
    pub at: Affine,
    /// The value.
    pub value: ValueId,
}

/// A loop nest with a straight-line body.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Kernel {
    /// The buffers, read ones first.
    pub params: Vec<Param>,
    /// The iteration space, outermost axis first.
    pub axes: Vec<Axis>,
    /// The body in SSA order.
    pub insts: Vec<Inst<ValueId>>,
    /// The writes.
    pub stores: Vec<Store>,
}
