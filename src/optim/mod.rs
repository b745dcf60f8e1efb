//! Optimisers and learning-rate schedules: pure functions on trees of parameters, to be traced with the gradient.
//!
//! An optimiser's state is a tree like the parameters. The learning rate is an argument of each update: a number is
//! part of the trace, a tensor an input of it, which can change from step to step without tracing again.
//!
//! [`Sgd`] (momentum, Nesterov), [`Adam`] (AdamW with a weight decay), [`Schedule`] and [`clip_by_global_norm`].
//!
//! ```
//! use retape::{Tensor, accelerate, optim::{Schedule, Sgd, SgdState}};
//!
//! let sgd = Sgd::new().momentum(0.9);
//! let step = accelerate(|p: &Tensor, state: &SgdState<Tensor>, rate: &Tensor| {
//!     let gradient = p.square().sum(..).grad(p);
//!     sgd.update(p, &gradient, state, rate)
//! });
//! let schedule = Schedule::Cosine { from: 0.1, to: 0.0, steps: 100 };
//! let mut p = Tensor::from([1.0_f32, -2.0]);
//! let mut state = sgd.init(&p);
//! for i in 0..100 {
//!     (p, state) = step.call(p, state, schedule.rate(i))?; // by value: written over by the next ones
//! }
//! assert!(p.to_vec::<f32>()?.iter().all(|x| x.abs() < 0.05));
//! assert_eq!(step.stats().misses, 1);
//! # Ok::<(), retape::Error>(())
//! ```

mod adam;
mod fit;
mod schedule;
mod sgd;

pub use adam::{Adam, AdamState};
pub use schedule::Schedule;
pub use sgd::{Sgd, SgdState};

use retape_runtime::Shape;

use crate::error::Caller;
use crate::method::method;
use crate::ops::{Splat, TensorOrScalar};
use crate::tensor::Tensor;
use crate::tree::{Tree, leaves, map};

/// Gradients scaled down together so that the root of the sum of all squares is at most `limit`.
///
/// ```
/// use retape::{Tensor, optim};
///
/// let clipped = optim::clip_by_global_norm(&Tensor::from([3.0_f32, 4.0]), 1.0);
/// assert_eq!(clipped.to_vec::<f32>()?, [0.6, 0.8]);
/// # Ok::<(), retape::Error>(())
/// ```
#[track_caller]
pub fn clip_by_global_norm<P: Tree>(gradients: &P, limit: f64) -> P {
    let _method = method("clip_by_global_norm");
    let squares = leaves(gradients).into_iter().map(|leaf| leaf.square().sum(..));
    let Some(square) = squares.reduce(|sum, square| sum + square) else { return map(gradients, Tensor::clone) };
    let factor = limit / square.sqrt().maximum(limit);
    map(gradients, |leaf| leaf * factor.cast(leaf.dtype()))
}

/// The learning rate of an update as an `f64` scalar. A number is a constant of the trace that parameters are on, and no
/// hidden input.
fn scalar_rate<P: Tree>(rate: impl TensorOrScalar, parameters: &P, at: Caller) -> Tensor {
    let traced = leaves(parameters).into_iter().find(Tensor::is_traced);
    match (rate.number(), traced) {
        (Some(number), Some(traced)) => traced.nullary(Splat { value: number.into(), shape: Shape::default() }, at),
        _ => rate.tensor_like(&Tensor::from(0.0_f64), at),
    }
}
