//! Gradients for optimisers: with weight decay by group, clipped, or accumulated over several batches.
//!
//! Pure functions on trees, to be traced within the step like the optimisers of [`retape::optim`], whose
//! [`Schedule`](retape::optim::Schedule) has the learning rates.
//!
//! ```
//! use retape::optim::{Sgd, SgdState, clip_by_global_norm};
//! use retape::{Tensor, accelerate, nn::Dense};
//! use retape_train::optimise::add_l2;
//!
//! let sgd = Sgd::new().momentum(0.9);
//! let step = accelerate(move |layer: &Dense, state: &SgdState<Dense>, x: &Tensor| {
//!     let gradient = layer.apply(x).square().mean(..).grad(layer);
//!     let gradient = add_l2(layer, &gradient, |name| if name.ends_with("bias") { 0.0 } else { 1e-4 });
//!     sgd.update(layer, &clip_by_global_norm(&gradient, 1.0), state, 0.1)
//! });
//! let layer = Dense::new(1, 2, 3);
//! let (layer, _) = step.call(&layer, &sgd.init(&layer), Tensor::ones([4, 2]))?;
//! # let _ = layer;
//! # Ok::<(), retape::Error>(())
//! ```

mod accumulate;
mod regularise;

pub use accumulate::Accumulated;
pub use regularise::{add_l2, clip_by_value};
