//! Stochastic gradient descent.

use std::panic::Location;

use super::fit::{self, Scalars};
use super::scalar_rate;
use crate::error::Result;
use crate::method::method;
use crate::ops::TensorOrScalar;
use crate::tensor::Tensor;
use crate::tree::{Field, Reader, Tree, Writer, map, zip_map};

/// Gradient descent with momentum: `v = momentum v + g`, `p -= rate v`.
///
/// ```
/// use retape::{Tensor, optim::Sgd};
///
/// let sgd = Sgd::new().momentum(0.9);
/// let (p, g) = (Tensor::from([1.0_f32]), Tensor::from([2.0_f32]));
/// let (p, _) = sgd.update(&p, &g, &sgd.init(&p), 0.25);
/// assert_eq!(p.to_vec::<f32>()?, [0.5]);
/// # Ok::<(), retape::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sgd {
    momentum: f64,
    nesterov: bool,
}

/// The velocity of each parameter.
#[derive(Clone, Debug)]
pub struct SgdState<P> {
    /// A tree like the parameters.
    pub velocity: P,
}

impl<P: Tree> Tree for SgdState<P> {
    fn write<'t>(&'t self, to: &mut Writer<'t>) {
        to.field(Field::Named("velocity"), &self.velocity);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        Ok(SgdState { velocity: P::read(from)? })
    }
}

impl Sgd {
    /// No momentum.
    pub fn new() -> Sgd {
        Sgd::default()
    }

    /// How much of the velocity is kept from step to step.
    #[must_use]
    pub fn momentum(self, momentum: f64) -> Sgd {
        Sgd { momentum, ..self }
    }

    /// Nesterov's form: steps by `g + momentum v` with the new velocity `v`.
    #[must_use]
    pub fn nesterov(self) -> Sgd {
        Sgd { nesterov: true, ..self }
    }

    /// Velocity zero.
    #[track_caller]
    pub fn init<P: Tree>(&self, parameters: &P) -> SgdState<P> {
        let _method = method("Sgd::init");
        SgdState { velocity: map(parameters, Tensor::zeros_like) }
    }

    /// The parameters and the state after a step.
    #[track_caller]
    pub fn update<P: Tree>(
        &self,
        parameters: &P,
        gradients: &P,
        state: &SgdState<P>,
        learning_rate: impl TensorOrScalar,
    ) -> (P, SgdState<P>) {
        let (at, _method) = (Location::caller(), method("Sgd::update"));
        let trees = [("gradients", gradients), ("state.velocity", &state.velocity)];
        let rate = scalar_rate(learning_rate, parameters, at);
        if let Some(refused) = fit::refused(parameters, &trees, &Scalars { rate: &rate, step: None }, at) {
            let velocity = map(&refused, Tensor::clone);
            return (refused, SgdState { velocity });
        }
        let velocity = zip_map([&state.velocity, gradients], |[v, g]| v * self.momentum + g);
        let parameters = zip_map([parameters, gradients, &velocity], |[p, g, v]| {
            let rate = rate.cast(p.dtype());
            if self.nesterov { p - rate * (g + v * self.momentum) } else { p - rate * v }
        });
        (parameters, SgdState { velocity })
    }
}
