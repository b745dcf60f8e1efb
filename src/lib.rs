//! Trace-caching automatic differentiation with a just-in-time compiler.
#![forbid(unsafe_code)]

mod accelerate;
mod autodiff;
mod compile;
pub mod data;
mod eager;
mod error;
mod grad;
mod graph;
pub mod ops;
mod opt;
mod plan;
mod tape;
mod tensor;
mod trace;
mod tree;

pub use accelerate::{Accelerated, Arg, CompileTimes, EntryStats, Function, Signature, Stats, accelerate};
pub use error::{Caller, Error, Result};
pub use grad::{value_and_grad, vjp};
pub use graph::{Args, Graph, Node, ParseError, TensorType, ValueId, VerifyError};

pub use retape_runtime::{DType, Device, Element, Scalar, Shape, bf16, f16};
pub use tensor::{Tensor, TensorOrScalar};
pub use tree::{Field, Reader, Tree, Writer};
