//! Trace-caching automatic differentiation with a just-in-time compiler.
#![forbid(unsafe_code)]

// Derived code names the crate from outside, also when it stands inside.
extern crate self as retape;

mod accelerate;
mod autodiff;
mod compile;
pub mod data;
mod eager;
mod error;
mod event;
mod grad;
mod graph;
pub mod nn;
pub mod ops;
mod opt;
pub mod optim;
mod plan;
pub mod random;
mod replay;
mod settings;
mod tape;
mod tensor;
mod trace;
mod tree;

pub use accelerate::{Accelerated, Arg, CompileTimes, EntryStats, Function, Signature, Stats, accelerate};
pub use error::{Caller, Error, Result};
pub use event::{Event, Observer};
pub use grad::{value_and_grad, vjp};
pub use graph::{Args, Graph, Node, ParseError, TensorType, ValueId, VerifyError};
pub use ops::{concat, einsum, stack};

pub use retape_runtime::{DType, Device, Element, Scalar, Shape, bf16, f16, n_threads, set_n_threads};
pub use tensor::{Tensor, TensorOrScalar};
pub use tree::{Field, Reader, Static, StaticLeaf, Tree, Writer, map, zip_map};
