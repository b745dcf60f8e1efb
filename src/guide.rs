//! The pages for readers, of which this one is the user's guide. Their examples are compiled and run.
//!
//! [cache]: crate::guide::cache
//! [from-pytorch]: crate::guide::from_pytorch
//! [from-jax]: crate::guide::from_jax
//! [from-matlab]: crate::guide::from_matlab
//! [compile-errors]: crate::guide::compile_errors
//! [cache-change]: crate::guide::cache#closures-that-change
//! [numerics-ties]: crate::guide::numerics#ties-and-kinks
//! [determinism]: crate::guide::determinism
#![doc = include_str!("../docs/guide.md")]

/// Traces and their signatures: when a call makes a new one, what can surprise you, and how to look at the cache.
///
/// [guide]: crate::guide
/// [events]: crate::guide::events
/// [determinism]: crate::guide::determinism
#[doc = include_str!("../docs/cache.md")]
pub mod cache {}

/// Determinism, error bounds, special values.
///
/// [gpu-numbers]: crate::guide::gpu#numbers
/// [determinism]: crate::guide::determinism
#[doc = include_str!("../docs/numerics.md")]
pub mod numerics {}

/// Equal bits in every run: the reasons, the tests that show it, and the switch.
///
/// [numerics-reductions]: crate::guide::numerics#reductions
/// [numerics-eager]: crate::guide::numerics#what-differs-between-eager-and-compiled-results
/// [gpu-shown]: crate::guide::gpu#what-has-been-shown-where
/// [guide-random]: crate::guide#random-numbers
/// [guide-warm]: crate::guide#starting-warm-pinned-and-locked
/// [cache-signature]: crate::guide::cache#what-is-in-the-signature
/// [cache-checks]: crate::guide::cache#check-mode
#[doc = include_str!("../docs/determinism.md")]
pub mod determinism {}

/// Functions on NVIDIA GPUs.
///
/// [numerics-special]: crate::guide::numerics#special-values
/// [determinism]: crate::guide::determinism
#[doc = include_str!("../docs/gpu.md")]
pub mod gpu {}

/// The events that listeners of `tracing` hear.
///
#[doc = include_str!("../docs/events.md")]
pub mod events {}

/// The terms of the code and of these pages.
///
#[doc = include_str!("../docs/glossary.md")]
pub mod glossary {}

/// The text forms of graphs and kernels.
///
#[doc = include_str!("../docs/ir.md")]
pub mod ir {}

/// This for that: PyTorch.
///
/// [guide]: crate::guide
/// [cache]: crate::guide::cache
/// [determinism]: crate::guide::determinism
#[doc = include_str!("../docs/from_pytorch.md")]
pub mod from_pytorch {}

/// This for that: JAX.
///
/// [guide]: crate::guide
/// [cache]: crate::guide::cache
/// [determinism]: crate::guide::determinism
#[doc = include_str!("../docs/from_jax.md")]
pub mod from_jax {}

/// This for that: MATLAB.
///
/// [guide]: crate::guide
/// [cache]: crate::guide::cache
/// [determinism]: crate::guide::determinism
#[doc = include_str!("../docs/from_matlab.md")]
pub mod from_matlab {}

/// The compiler's messages about mistakes around `accelerate`, and the remedies.
///
/// [guide-trees]: crate::guide#trees
/// [guide-keeping]: crate::guide#keeping-an-accelerated-function
/// [guide-donation]: crate::guide#passing-by-value
/// [cache]: crate::guide::cache
#[doc = include_str!("../docs/compile_errors.md")]
pub mod compile_errors {}
