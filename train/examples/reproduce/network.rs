//! The network: a denoising autoencoder. Three blocks of convolution, relu and max-pooling down, three transposed
//! convolutions with relu up, and a convolution that is clipped to `[0, 1]`. Images are `[batch, 32, 32, 1]`.

use retape::nn::{self, Conv2d, ConvTranspose2d};
use retape::ops::{ConvOptions, Padding};
use retape::optim::{Adam, AdamState};
use retape::{Boxed, Tensor, Tree, accelerate};

/// Everything that is learned.
#[derive(Clone, Debug, Tree)]
pub(crate) struct Params {
    pub(crate) down: Vec<Conv2d>,
    up: Vec<ConvTranspose2d>,
    last: Conv2d,
}

/// The state that training carries from step to step.
#[derive(Clone, Debug, Tree)]
pub(crate) struct Training {
    pub(crate) params: Params,
    adam: AdamState<Params>,
}

impl Params {
    fn new(seed: u64) -> Params {
        let down = [(1, 8), (8, 16), (16, 8)].into_iter().zip(seed..);
        let up = [8, 8, 16, 8].windows(2).map(|pair| (pair[0], pair[1])).zip(seed + 3..);
        Params {
            down: down.map(|((n_in, n_out), seed)| Conv2d::new(seed, [3, 3], n_in, n_out)).collect(),
            up: up.map(|((n_in, n_out), seed)| ConvTranspose2d::new(seed, [4, 4], [2, 2], n_in, n_out)).collect(),
            last: Conv2d::new(seed + 6, [3, 3], 8, 1),
        }
    }

    /// The images without their noise.
    pub(crate) fn clean(&self, x: &Tensor) -> Tensor {
        let halved = |x: Tensor| x.max_pool2d([2, 2], [2, 2], Padding::Valid);
        let x = self.down.iter().fold(x.clone(), |x, conv| halved(conv.apply(&x, ConvOptions::same()).relu()));
        let doubled = ConvOptions::default().stride(2).padding(1);
        let x = self.up.iter().fold(x, |x, conv| conv.apply(&x, doubled).relu());
        self.last.apply(&x, ConvOptions::same()).clamp(0.0, 1.0)
    }
}

impl Training {
    pub(crate) fn new(seed: u64) -> Training {
        let params = Params::new(seed);
        Training { adam: Adam::new().init(&params), params }
    }

    /// The mean squared error of a batch, and the state after a step of Adam.
    pub(crate) fn step(&self, noisy: &Tensor, clean: &Tensor) -> (Tensor, Training) {
        let loss = nn::mse(&self.params.clean(noisy), clean);
        let (params, adam) = Adam::new().update(&self.params, &loss.grad(&self.params), &self.adam, RATE);
        (loss, Training { params, adam })
    }
}

const RATE: f64 = 1e-3;

/// The functions of a training, accelerated once for all trainings: a second one finds what the first has compiled.
pub(crate) struct Functions {
    /// A step, with noisy and clean images.
    pub(crate) step: Boxed<(Training, Tensor, Tensor), (Tensor, Training)>,
    /// Images without their noise.
    pub(crate) clean: Boxed<(Training, Tensor), Tensor>,
}

impl Functions {
    pub(crate) fn new() -> Functions {
        let clean = accelerate(|training: &Training, noisy: &Tensor| training.params.clean(noisy));
        Functions { step: accelerate(Training::step).named("train_step").boxed(), clean: clean.named("clean").boxed() }
    }
}
