//! Adam (Kingma and Ba, 2015), and with decoupled weight decay (Loshchilov and Hutter, 2019).

use std::panic::Location;

use super::fit::{self, Scalars};
use super::scalar_rate;
use crate::error::Result;
use crate::method::method;
use crate::ops::TensorOrScalar;
use crate::tensor::Tensor;
use crate::tree::{Field, Reader, Tree, Writer, leaves, map, zip_map};

/// Adam: steps by the mean of the gradients over the root of the mean of their squares.
///
/// ```
/// use retape::{Tensor, optim::Adam};
///
/// let adam = Adam::new();
/// let (p, g) = (Tensor::from([1.0_f64]), Tensor::from([3.0_f64]));
/// let (p, state) = adam.update(&p, &g, &adam.init(&p), 0.1);
/// assert!((p.to_vec::<f64>()?[0] - 0.9).abs() < 1e-8);
/// assert_eq!(state.step.item::<i64>()?, 1);
/// # Ok::<(), retape::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    beta1: f64,
    beta2: f64,
    epsilon: f64,
    weight_decay: f64,
}

/// The moments of each gradient, and how many there were.
#[derive(Clone, Debug)]
pub struct AdamState<P> {
    /// The number of steps taken, an `i64` scalar.
    pub step: Tensor,
    /// The running means of the gradients; a tree like the parameters.
    pub first: P,
    /// The running means of their squares; a tree like the parameters.
    pub second: P,
}

impl<P: Tree> Tree for AdamState<P> {
    fn write<'t>(&'t self, to: &mut Writer<'t>) {
        to.field(Field::Named("step"), &self.step);
        to.field(Field::Named("first"), &self.first);
        to.field(Field::Named("second"), &self.second);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        Ok(AdamState { step: from.tensor()?, first: P::read(from)?, second: P::read(from)? })
    }
}

impl Default for Adam {
    fn default() -> Adam {
        Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 }
    }
}

impl Adam {
    /// The paper's values: 0.9, 0.999 and 1e-8; no weight decay.
    pub fn new() -> Adam {
        Adam::default()
    }

    /// How much of each moment is kept from step to step.
    #[must_use]
    pub fn betas(self, beta1: f64, beta2: f64) -> Adam {
        Adam { beta1, beta2, ..self }
    }

    /// Sets the number added to the root of the second moment.
    #[must_use]
    pub fn epsilon(self, epsilon: f64) -> Adam {
        Adam { epsilon, ..self }
    }

    /// How much of itself each parameter loses per step, times the learning rate (AdamW).
    #[must_use]
    pub fn weight_decay(self, weight_decay: f64) -> Adam {
        Adam { weight_decay, ..self }
    }

    /// Moments zero, on the device of the parameters.
    #[track_caller]
    pub fn init<P: Tree>(&self, parameters: &P) -> AdamState<P> {
        let _method = method("Adam::init");
        let zeros = || map(parameters, Tensor::zeros_like);
        // The count is where steps leave it, so that the second call has the signature of the first.
        let device = leaves(parameters).first().filter(|p| !p.is_traced()).map(Tensor::device);
        let step = Tensor::from(0_i64).to(device.unwrap_or_default());
        AdamState { step, first: zeros(), second: zeros() }
    }

    /// The parameters and the state after a step.
    #[track_caller]
    pub fn update<P: Tree>(
        &self,
        parameters: &P,
        gradients: &P,
        state: &AdamState<P>,
        learning_rate: impl TensorOrScalar,
    ) -> (P, AdamState<P>) {
        let (at, _method) = (Location::caller(), method("Adam::update"));
        let trees = [("gradients", gradients), ("state.first", &state.first), ("state.second", &state.second)];
        let rate = scalar_rate(learning_rate, parameters, at);
        let scalars = Scalars { rate: &rate, step: Some(&state.step) };
        if let Some(refused) = fit::refused(parameters, &trees, &scalars, at) {
            let moment = || map(&refused, Tensor::clone);
            let state = AdamState { step: state.step.clone(), first: moment(), second: moment() };
            return (refused, state);
        }
        let Adam { beta1, beta2, epsilon, weight_decay } = *self;
        let step = &state.step + 1;
        let first = zip_map([&state.first, gradients], |[m, g]| m * beta1 + g * (1.0 - beta1));
        let second = zip_map([&state.second, gradients], |[v, g]| v * beta2 + g.square() * (1.0 - beta2));
        // The moments begin at zero; dividing by 1 - beta^t, computed by expm1 with all its digits, corrects that. One over it
        // is rounded to the parameters' dtype once, since a quotient of each element takes several times as long as a product.
        let t = step.cast(retape_runtime::DType::F64);
        let whole = |beta: f64| -(&t * beta.ln()).expm1();
        let wholes = [whole(beta1), whole(beta2)];
        let corrected = |moment: &Tensor, whole: &Tensor| match moment.dtype() {
            // One over it may be more than they hold.
            dtype if dtype.is_half() => moment / whole.cast(dtype),
            dtype => moment * whole.reciprocal().cast(dtype),
        };
        let parameters = zip_map([parameters, &first, &second], |[p, m, v]| {
            let rate = rate.cast(p.dtype());
            let towards = corrected(m, &wholes[0]) / (corrected(v, &wholes[1]).sqrt() + epsilon);
            if weight_decay == 0.0 { p - rate * towards } else { p - rate * (towards + p * weight_decay) }
        });
        (parameters, AdamState { step, first, second })
    }
}
