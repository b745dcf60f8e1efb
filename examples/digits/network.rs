//! The two-output digit network: which digit it is, and by how many degrees it is turned.
//!
//! A convolution, then two branches that are added: two convolutions, and a 1 x 1 convolution that skips them. Then one
//! dense layer for the digit and one for the angle. Images are `[batch, 28, 28, 1]`, in `[0, 1]`.

use retape::nn::{self, BatchNorm, BatchNormState, Conv2d, Dense};
use retape::ops::ConvOptions;
use retape::optim::{Adam, AdamState};
use retape::{Tensor, Tree};

/// Everything that is learned.
#[derive(Clone, Debug, Tree)]
pub(crate) struct Params {
    pub(crate) conv1: Conv2d,
    pub(crate) norm1: BatchNorm,
    pub(crate) skip: Conv2d,
    pub(crate) norm_skip: BatchNorm,
    pub(crate) conv2: Conv2d,
    pub(crate) norm2: BatchNorm,
    pub(crate) conv3: Conv2d,
    pub(crate) norm3: BatchNorm,
    pub(crate) digit: Dense,
    pub(crate) angle: Dense,
}

/// The running statistics of the batch normalisations.
#[derive(Clone, Debug, Tree)]
pub(crate) struct State {
    pub(crate) norm1: BatchNormState,
    pub(crate) norm_skip: BatchNormState,
    pub(crate) norm2: BatchNormState,
    pub(crate) norm3: BatchNormState,
}

/// The state that training carries from step to step.
#[derive(Clone, Debug, Tree)]
pub(crate) struct Training {
    pub(crate) params: Params,
    pub(crate) state: State,
    pub(crate) adam: AdamState<Params>,
}

/// Features after the branches: 14 x 14 pixels of 32 channels.
const FEATURES: usize = 6272;

impl Params {
    pub(crate) fn new(seed: u64) -> Params {
        Params {
            conv1: Conv2d::new(seed, [5, 5], 1, 16),
            norm1: BatchNorm::new(16),
            skip: Conv2d::new(seed + 1, [1, 1], 16, 32),
            norm_skip: BatchNorm::new(32),
            conv2: Conv2d::new(seed + 2, [3, 3], 16, 32),
            norm2: BatchNorm::new(32),
            conv3: Conv2d::new(seed + 3, [3, 3], 32, 32),
            norm3: BatchNorm::new(32),
            digit: Dense::new(seed + 4, FEATURES, 10),
            angle: Dense::new(seed + 5, FEATURES, 1),
        }
    }

    /// Logits `[batch, 10]` and angles `[batch, 1]`, with `norm` applied after each convolution.
    fn forward(&self, x: &Tensor, mut norm: impl FnMut(&BatchNorm, &Tensor) -> Tensor) -> (Tensor, Tensor) {
        let halved = || ConvOptions::same().stride(2);
        let a = norm(&self.norm1, &self.conv1.apply(x, ConvOptions::same())).relu();
        let skip = norm(&self.norm_skip, &self.skip.apply(&a, halved()));
        let b = norm(&self.norm2, &self.conv2.apply(&a, halved())).relu();
        let b = norm(&self.norm3, &self.conv3.apply(&b, ConvOptions::same()));
        let features = (b + skip).relu().reshape([x.dim(0), FEATURES]);
        (self.digit.apply(&features), self.angle.apply(&features))
    }

    /// In training: by the statistics of the batch, and with the new running statistics.
    pub(crate) fn train(&self, state: &State, x: &Tensor) -> (Tensor, Tensor, State) {
        let mut old = [&state.norm1, &state.norm_skip, &state.norm2, &state.norm3].into_iter();
        let mut new = vec![];
        let (logits, angles) = self.forward(x, |norm, x| {
            let (y, state) = norm.apply(x, old.next().expect("four normalisations"));
            new.push(state);
            y
        });
        let mut new = new.into_iter();
        let mut next = || new.next().expect("four normalisations");
        let state = State { norm1: next(), norm_skip: next(), norm2: next(), norm3: next() };
        (logits, angles, state)
    }

    /// In prediction: by the running statistics. Probabilities `[batch, 10]` and angles `[batch, 1]`.
    pub(crate) fn predict(&self, state: &State, x: &Tensor) -> (Tensor, Tensor) {
        let mut states = [&state.norm1, &state.norm_skip, &state.norm2, &state.norm3].into_iter();
        let (logits, angles) = self.forward(x, |norm, x| norm.infer(x, states.next().expect("four normalisations")));
        (logits.softmax(-1), angles)
    }
}

impl Training {
    pub(crate) fn new(seed: u64) -> Training {
        let params = Params::new(seed);
        let adam = Adam::new().init(&params);
        let state = State {
            norm1: BatchNormState::new(16),
            norm_skip: BatchNormState::new(32),
            norm2: BatchNormState::new(32),
            norm3: BatchNormState::new(32),
        };
        Training { params, state, adam }
    }

    /// The loss of a batch and what training carries on: cross-entropy of the digits plus a tenth of half the mean
    /// squared error of the angles, then a step of Adam.
    pub(crate) fn step(&self, x: &Tensor, digits: &Tensor, angles: &Tensor, rate: &Tensor) -> (Tensor, Training) {
        let (logits, found, state) = self.params.train(&self.state, x);
        let loss = nn::softmax_cross_entropy(&logits, digits) + 0.1 * nn::half_mse(&found, angles);
        let gradient = loss.grad(&self.params);
        let (params, adam) = Adam::new().update(&self.params, &gradient, &self.adam, rate);
        (loss, Training { params, state, adam })
    }
}
