//! Trace-caching automatic differentiation with a just-in-time compiler.
//!
//! [`accelerate`] wraps a closure over tensors. The first call with a new signature (structure, dtypes, shapes and
//! static values of the arguments) records the closure on a tape, differentiates what it asks to be differentiated,
//! optimises, fuses and compiles; later calls with that signature run the machine code.
//!
//! ```
//! use retape::{Tensor, Tree, accelerate};
//!
//! #[derive(Clone, Tree)]
//! struct Params {
//!     w: Tensor,
//!     b: Tensor,
//! }
//!
//! let step = accelerate(|p: &Params, x: &Tensor, y: &Tensor| {
//!     let loss = (x.matmul(&p.w) + &p.b - y).square().mean(..);
//!     let grad: Params = loss.grad(p);
//!     (loss, grad)
//! });
//!
//! let params = Params { w: Tensor::ones([2, 1]), b: Tensor::zeros([1]) };
//! let (x, y) = (Tensor::ones([3, 2]), Tensor::zeros([3, 1]));
//! let (loss, grad) = step.call(&params, &x, &y)?; // traces, differentiates, compiles
//! assert_eq!(loss.item::<f32>()?, 4.0);
//! assert_eq!(grad.w.to_vec::<f32>()?, [4.0, 4.0]);
//! let (_loss, _grad) = step.call(&params, &x, &y)?; // runs machine code
//! assert_eq!((step.stats().hits, step.stats().misses), (1, 1));
//! # Ok::<(), retape::Error>(())
//! ```
//!
//! Tracing has consequences for the closure: side effects happen only while tracing; a concrete tensor that it captures
//! keeps the value it had, and a few hits enter the closure once more to warn if that has changed; values of tensors
//! cannot be read inside, while shapes and dtypes can. [`Tensor::debug_print`] prints on every call all the same. The
//! page on [the cache](guide::cache) has the rest.
//!
//! # Where to look
//!
//! - [`guide`]: the user's guide, with pages on [the cache](guide::cache), [numerics](guide::numerics),
//!   [determinism](guide::determinism), [GPUs](guide::gpu), [events](guide::events), [the text forms](guide::ir) and
//!   [the terms](guide::glossary); for those who come [from PyTorch](guide::from_pytorch), [from JAX](guide::from_jax)
//!   or [from MATLAB](guide::from_matlab). [Common compile errors](guide::compile_errors) has the compiler's messages
//!   about mistakes around [`accelerate`].
//! - [`Tensor`]: arrays, operators and every op as a method; [`concat()`], [`stack`], [`einsum`]. [`ops`] lists the
//!   families.
//! - [`Tree`](trait@Tree): structured arguments and results, with `#[derive(Tree)]`; [`Static`] values, [`map`] and
//!   [`zip_map`]; [`tree`] has names of leaves, trees as vectors and comparisons.
//! - [`accelerate`] and [`Accelerated`]: the cache, its [`Stats`] and settings, and the [inside](inspection) of entries; [`Accelerable`] and [`Arg`] say what can be
//!   wrapped and passed, and [`Boxed`] is for fields.
//! - [`Tensor::grad`], [`value_and_grad`], [`vjp`]: gradients, of every order.
//! - [`nn`], [`optim`], [`random`], [`data`]: layers, optimisers, random numbers, data sets.
//! - [`Graph`]: the recorded form, with text that prints and reads back, for tests and tools.
//! - [`Error`]: formulas never panic; an ill-typed op gives a poisoned tensor, and every method that leaves the world
//!   of tensors returns its error with the caller's line.
//! - [`set_n_threads`]: threads, which change no bit of a result; [`set_deterministic`]: whether a GPU may change some
//!   from run to run.
#![forbid(unsafe_code)]

// Derived code names the crate from outside, also when it stands inside.
extern crate self as retape;

// Methods are listed in the order of modules: those that make tensors come first.
mod tensor;

mod accelerate;
mod apply;
mod artefact;
mod autodiff;
mod call;
mod callable;
mod code;
pub mod collective;
mod compile;
pub mod data;
mod determinism;
mod diagnose;
mod eager;
mod error;
mod grad;
mod graph;
pub mod guide;
mod identity;
mod method;
pub mod nn;
mod observe;
pub mod ops;
mod opt;
pub mod optim;
mod options;
mod placement;
mod plan;
pub mod random;
mod replay;
#[cfg(feature = "serde")]
mod serialise;
mod settings;
mod signature;
mod tape;
mod trace;
pub mod tree;
mod types;
mod warnings;

pub use accelerate::{Accelerated, Boxed, Pinned, accelerate};
pub use artefact::{Loaded, Saved, SkipReason, Skipped};
pub use call::GradientStats;
pub use callable::{Accelerable, Arg, Donated, Function, Held, Holder};
pub use compile::CompileTimes;
pub use determinism::{deterministic, set_deterministic};
pub use diagnose::{
    BisectCause, Bisection, Check, CheckMode, CheckWhen, FusedGroup, GraphValue, OnDifference, Tolerance,
};
pub use error::{
    ArtefactError, Caller, Deviation, ElementPair, Error, Gap, InputSummary, NonFinite, Origin, OutOfMemory, Panic,
    Result, TracedCall,
};
pub use grad::{value_and_grad, value_and_grad_aux, vjp};
pub use graph::{Args, Graph, Node, ParseError, VerifyError};
pub use observe::{
    Advice, AdviceKind, Aspect, CallKind, CheckCounts, Difference, EntryStats, Form, GroupTime, Latency, Miss,
    MissReason, Profile, ProfiledCall, ProfiledSpan, ProfiledThread, Stats, inspection,
};
pub use ops::{TensorOrScalar, concat, einsum, reset_debug_sink, set_debug_sink, stack};
pub use options::{MathMode, OnRetrace, Options, RetracePolicy};
pub use signature::Signature;
pub use types::{TensorType, ValueId};

pub use retape_runtime::{
    Budget, ByteCount, DType, Device, DeviceInfo, Element, Refusal, Scalar, Shape, Shortage, bf16, f16, n_threads,
    patience, set_n_threads, set_patience,
};
pub use tensor::Tensor;
pub use trace::trace;
pub use tree::{Field, Reader, Static, StaticLeaf, Tree, Writer, map, zip_map};
#[doc(hidden)]
pub use tree::{HasField, HasStaticField};
pub use warnings::set_warnings;

/// The version of this crate, for files that say what wrote them.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The examples of the front page, run as tests; those of other pages are in [`guide`].
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
