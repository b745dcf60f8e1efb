//! The network: three blocks of four (convolution 3x3, batch normalisation, relu), with max-pooling between them, average
//! pooling and one dense layer. Images are `[batch, 32, 32, 3]`.

use retape::nn::{self, BatchNorm, BatchNormState, Conv2d, Dense};
use retape::ops::{ConvOptions, Padding};
use retape::optim::{Sgd, SgdState};
use retape::{DType, Tensor, Tree};
use retape_dist::World;
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

/// The state that training carries from step to step, the same on all workers.
#[derive(Clone, Debug, Tree)]
pub(crate) struct Training {
    pub(crate) params: Params,
    /// The running statistics of the normalisations, layer by layer.
    pub(crate) norms: Vec<BatchNormState>,
    sgd: SgdState<Params>,
}

/// The images `[rows, 32, 32, 3]` and labels `[rows]` of the shards of a batch that a worker holds.
pub(crate) type Shards = Vec<(Tensor, Tensor)>;

/// The things that a step gives to look at.
#[derive(Clone, Debug, Tree)]
pub(crate) struct Outcome {
    /// The mean loss of the whole batch.
    pub(crate) loss: Tensor,
    /// The mean loss of this worker's rows.
    pub(crate) own_loss: Tensor,
    /// How many images of the whole batch were taken for what they are.
    pub(crate) n_right: Tensor,
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

    /// A step of all workers together: loss, gradients, running statistics and parameters are those of the whole batch.
    pub(crate) fn step(
        &self,
        world: &World,
        batch: &Shards,
        rate: &Tensor,
        l2: f64,
    ) -> retape::Result<(Outcome, Training)> {
        let n_rows: Vec<usize> = batch.iter().map(|(x, _)| x.dim(0)).collect();
        let losses = |copies: &Vec<Params>| {
            let (mut losses, mut norms, mut n_right) = (vec![], vec![], vec![]);
            for (params, (x, labels)) in copies.iter().zip(batch) {
                let (logits, state) = self.normalised(params, x);
                losses.push(nn::softmax_cross_entropy_labels(&logits, labels));
                norms.push(state);
                n_right.push(logits.argmax(-1).eq(labels.cast(DType::I64)).cast(DType::F32).sum(..));
            }
            let weighed = losses.iter().zip(&n_rows).map(|(loss, &rows)| loss * rows as f64);
            let own = weighed.sum::<Tensor>() / n_rows.iter().sum::<usize>() as f64;
            (losses, (norms, n_right, own))
        };
        let (loss, gradient, (norms, n_right, own_loss)) = world.value_and_grad(&self.params, &n_rows, losses)?;
        let (norms, n_right) = (world.combined(&norms, &n_rows), world.sum_shards(&n_right));
        let is_weight = |name: &str| name.ends_with("weight");
        let gradient = add_l2(&self.params, &gradient, |name| if is_weight(name) { l2 } else { 0.0 });
        let (params, sgd) = optimiser().update(&self.params, &gradient, &self.sgd, rate);
        Ok((Outcome { loss, own_loss, n_right }, Training { params, norms, sgd }))
    }

    /// The logits of a shard by the statistics of its own rows, and the new running ones.
    fn normalised(&self, params: &Params, x: &Tensor) -> (Tensor, Vec<BatchNormState>) {
        let mut old = self.norms.iter();
        let mut norms = vec![];
        let logits = params.forward(x, |norm, x| match old.next() {
            Some(state) => {
                let (y, state) = norm.apply(x, state);
                norms.push(state);
                y
            }
            None => x.clone(),
        });
        (logits, norms)
    }
}

fn optimiser() -> Sgd {
    Sgd::new().momentum(0.9)
}
