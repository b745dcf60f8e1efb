//! A small training with everything that a checkpoint has to keep: parameters, running statistics, the state of an
//! optimiser, a random key, and augmented images in shuffled batches, the last of which is smaller.

use retape::nn::{self, BatchNorm, BatchNormState, Conv2d, Dense};
use retape::ops::ConvOptions;
use retape::optim::{Sgd, SgdState};
use retape::random::{self, Key};
use retape::{Tensor, Tree};
use retape_train::data::augment::{Pipeline, Reflection};
use retape_train::data::synthetic::Objects;
use retape_train::data::{Augmented, Dataset, Loader};

#[derive(Clone, Debug, Tree)]
pub(crate) struct Params {
    pub(crate) conv: Conv2d,
    pub(crate) norm: BatchNorm,
    pub(crate) head: Dense,
}

#[derive(Clone, Debug, Tree)]
pub(crate) struct Training {
    pub(crate) params: Params,
    pub(crate) norm: BatchNormState,
    pub(crate) sgd: SgdState<Params>,
    pub(crate) key: Key,
}

const SGD: fn() -> Sgd = || Sgd::new().momentum(0.9);

impl Training {
    pub(crate) fn new(seed: u64) -> Training {
        let params = Params {
            conv: Conv2d::new(seed, [3, 3], 3, 4),
            norm: BatchNorm::new(4),
            head: Dense::new(seed + 1, 4, 10),
        };
        let sgd = SGD().init(&params);
        Training { params, norm: BatchNormState::new(4), sgd, key: Key::new(seed) }
    }

    /// A step with dropout: the loss, and the next state.
    pub(crate) fn step(&self, images: &Tensor, labels: &Tensor, rate: &Tensor) -> (Tensor, Training) {
        let [key, mask] = self.key.split();
        let x = self.params.conv.apply(images, ConvOptions::same());
        let (x, norm) = self.params.norm.apply(&x, &self.norm);
        let features = x.relu().mean([1, 2]);
        let kept = random::bernoulli(&mask, 0.8, [features.dim(0), 4]).select(&features / 0.8, 0.0);
        let loss = nn::softmax_cross_entropy_labels(&self.params.head.apply(&kept), labels);
        let (params, sgd) = SGD().update(&self.params, &loss.grad(&self.params), &self.sgd, rate);
        (loss, Training { params, norm, sgd, key })
    }
}

/// Five batches of up to 8 images.
pub(crate) fn loader(n_threads: usize) -> Loader<Augmented<Objects>> {
    let images = Objects::generate(3, 36).augment(5, Pipeline::new().then(Reflection::horizontal()));
    Loader::new(images, 8).unwrap().shuffled(5).threads(n_threads)
}
