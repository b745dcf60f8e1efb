//! The network: three blocks of four (convolution 3x3, batch normalisation, relu), with max-pooling between them, average
//! pooling and one dense layer. Images are `[batch, 32, 32, 3]`.

use retape::nn::{self, BatchNorm, BatchNormState, Conv2d, Dense};
use retape::ops::{ConvOptions, Padding};
use retape::optim::{Sgd, SgdState};
use retape::{Tensor, Tree};
use retape_train::optimise::add_l2;

/// Filters of the convolutions of each block.
const FILTERS: [usize; 3] = [32, 64, 128];

/// Layers of each block.
const DEPTH: usize = 4;

/// A convolution and its normalisation.
#[derive(Clone, Debug, Tree)]
pub(crate) struct Layer {
    conv: Conv2d,
    norm: BatchNorm,
}

/// Everything that is learned.
#[derive(Clone, Debug, Tree)]
pub(crate) struct Params {
    blocks: Vec<Vec<Layer>>,
    head: Dense,
}

/// The state that training carries from step to step.
#[derive(Clone, Debug, Tree)]
pub(crate) struct Training {
    pub(crate) params: Params,
    /// The running statistics of the normalisations, layer by layer.
    pub(crate) norms: Vec<BatchNormState>,
    sgd: SgdState<Params>,
}

impl Params {
    fn new(seed: u64, n_classes: usize) -> Params {
        let mut channels = 3;
        let mut seeds = seed..;
        let mut layer = |filters: usize| {
            // No bias: the normalisation has an offset.
            let conv = Conv2d::new(seeds.next().unwrap_or(seed), [3, 3], channels, filters).without_bias();
            channels = filters;
            Layer { conv, norm: BatchNorm::new(filters) }
        };
        let blocks = FILTERS.map(|filters| (0..DEPTH).map(|_| layer(filters)).collect()).into();
        Params { blocks, head: Dense::new(seed ^ (1 << 40), FILTERS[2], n_classes) }
    }

    /// Logits `[batch, classes]`, with `norm` applied after each convolution.
    fn forward(&self, x: &Tensor, mut norm: impl FnMut(&BatchNorm, &Tensor) -> Tensor) -> Tensor {
        let mut x = x.clone();
        for (number, block) in self.blocks.iter().enumerate() {
            if number > 0 {
                x = x.max_pool2d([2, 2], [2, 2], Padding::Valid);
            }
            for layer in block {
                x = norm(&layer.norm, &layer.conv.apply(&x, ConvOptions::same())).relu();
            }
        }
        self.head.apply(&x.avg_pool2d([8, 8], [8, 8], Padding::Valid).flatten_from(1))
    }

    /// In prediction: by the running statistics. Logits `[batch, classes]`.
    pub(crate) fn predict(&self, norms: &[BatchNormState], x: &Tensor) -> Tensor {
        let mut norms = norms.iter();
        self.forward(x, |norm, x| match norms.next() {
            Some(state) => norm.infer(x, state),
            None => x.clone(),
        })
    }
}

impl Training {
    pub(crate) fn new(seed: u64, n_classes: usize) -> Training {
        let params = Params::new(seed, n_classes);
        let norms = FILTERS.iter().flat_map(|&filters| vec![BatchNormState::new(filters); DEPTH]).collect();
        let sgd = optimiser().init(&params);
        Training { params, norms, sgd }
    }

    /// The loss and the logits of a batch with labels `[batch]`, and what training carries on.
    pub(crate) fn step(&self, x: &Tensor, labels: &Tensor, rate: &Tensor, l2: f64) -> (Tensor, Tensor, Training) {
        let mut old = self.norms.iter();
        let mut norms = vec![];
        let logits = self.params.forward(x, |norm, x| match old.next() {
            Some(state) => {
                let (y, state) = norm.apply(x, state);
                norms.push(state);
                y
            }
            None => x.clone(),
        });
        let loss = nn::softmax_cross_entropy_labels(&logits, labels);
        let is_weight = |name: &str| name.ends_with("weight");
        let gradient = add_l2(&self.params, &loss.grad(&self.params), |name| if is_weight(name) { l2 } else { 0.0 });
        let (params, sgd) = optimiser().update(&self.params, &gradient, &self.sgd, rate);
        (loss, logits, Training { params, norms, sgd })
    }
}

fn optimiser() -> Sgd {
    Sgd::new().momentum(0.9)
}
