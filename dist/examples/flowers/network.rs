//! A residual network: a convolution, stacks of two residual blocks with batch normalisation, the mean of each channel and
//! one dense layer. Images are `[batch, height, width, 3]`.
//!
//! The forward pass goes through all shards of a worker side by side, each with its copy of the parameters, because a
//! normalisation may need the statistics of all of them.

use retape::nn::{self, BatchNorm, BatchNormState, Conv2d, Dense};
use retape::ops::{ConvOptions, Padding};
use retape::optim::{Sgd, SgdState};
use retape::{DType, Tensor, Tree};
use retape_dist::World;

/// Filters of the first convolution.
const FIRST: usize = 16;

/// Filters of each stack; every stack except the first halves height and width.
const STACKS: [usize; 3] = [16, 32, 64];

/// Residual blocks of each stack.
const BLOCKS: usize = 2;

/// A convolution and its normalisation.
#[derive(Clone, Debug, Tree)]
struct Layer {
    conv: Conv2d,
    norm: BatchNorm,
}

/// Two layers, added to what goes in; where that has another shape, it goes through a layer too.
#[derive(Clone, Debug, Tree)]
struct Block {
    first: Layer,
    second: Layer,
    shortcut: Option<Layer>,
}

/// Everything that is learned.
#[derive(Clone, Debug, Tree)]
pub(crate) struct Params {
    first: Layer,
    blocks: Vec<Block>,
    head: Dense,
}

/// The state that training carries from step to step, the same on all workers.
#[derive(Clone, Debug, Tree)]
pub(crate) struct Training {
    pub(crate) params: Params,
    /// The running statistics of the normalisations, in the order in which they are passed.
    pub(crate) norms: Vec<BatchNormState>,
    sgd: SgdState<Params>,
}

/// The images and labels of the shards that a worker holds.
#[derive(Clone, Debug, Tree)]
pub(crate) struct Shards {
    pub(crate) shards: Vec<(Tensor, Tensor)>,
    /// The rows of all workers. All of them trace a step when it changes, also one whose own shards keep their sizes.
    #[tree(static)]
    pub(crate) whole: usize,
}

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

/// Normalises the activations of each shard by its copy of a layer.
type Normalise<'n> = dyn FnMut(&[&BatchNorm], &[Tensor]) -> Vec<Tensor> + 'n;

/// The activations of each shard after a convolution and its normalisation.
fn apply(layers: &[&Layer], x: &[Tensor], stride: usize, norm: &mut Normalise<'_>) -> Vec<Tensor> {
    let options = ConvOptions::same().stride(stride);
    let x: Vec<Tensor> = layers.iter().zip(x).map(|(layer, x)| layer.conv.apply(x, options)).collect();
    let norms: Vec<&BatchNorm> = layers.iter().map(|layer| &layer.norm).collect();
    norm(&norms, &x)
}

fn relu(x: Vec<Tensor>) -> Vec<Tensor> {
    x.iter().map(Tensor::relu).collect()
}

impl Params {
    fn new(seed: u64, n_classes: usize) -> Params {
        let mut seeds = seed..;
        let mut layer = |window: usize, channels: usize, filters: usize| {
            let seed = seeds.next().unwrap_or(seed);
            // No bias: the normalisation has an offset.
            let conv = Conv2d::new(seed, [window; 2], channels, filters).without_bias();
            Layer { conv, norm: BatchNorm::new(filters) }
        };
        let first = layer(7, 3, FIRST);
        let (mut blocks, mut channels) = (vec![], FIRST);
        for filters in STACKS {
            for _ in 0..BLOCKS {
                let shortcut = (channels != filters).then(|| layer(1, channels, filters));
                blocks.push(Block { first: layer(3, channels, filters), second: layer(3, filters, filters), shortcut });
                channels = filters;
            }
        }
        Params { first, blocks, head: Dense::new(seed ^ (1 << 40), channels, n_classes) }
    }

    /// The channels of the normalisations, in the order in which they are passed.
    fn channels(&self) -> Vec<usize> {
        let mut all = vec![FIRST];
        for block in &self.blocks {
            let channels = block.second.norm.scale.dim(0);
            all.extend(vec![channels; if block.shortcut.is_some() { 3 } else { 2 }]);
        }
        all
    }

    /// Logits `[batch, classes]` of the images of each shard, by its copy of the parameters.
    fn forward(copies: &[&Params], images: &[Tensor], norm: &mut Normalise<'_>) -> Vec<Tensor> {
        let first: Vec<&Layer> = copies.iter().map(|params| &params.first).collect();
        let x = relu(apply(&first, images, 2, norm));
        let mut x: Vec<Tensor> = x.iter().map(|x| x.max_pool2d([2, 2], [2, 2], Padding::Same)).collect();
        for number in 0..copies[0].blocks.len() {
            let blocks: Vec<&Block> = copies.iter().map(|params| &params.blocks[number]).collect();
            let shortcuts: Vec<&Layer> = blocks.iter().filter_map(|block| block.shortcut.as_ref()).collect();
            let (kept, stride) = match shortcuts.is_empty() {
                true => (x.clone(), 1),
                false => (apply(&shortcuts, &x, 2, norm), 2),
            };
            let first: Vec<&Layer> = blocks.iter().map(|block| &block.first).collect();
            let second: Vec<&Layer> = blocks.iter().map(|block| &block.second).collect();
            let hidden = relu(apply(&first, &x, stride, norm));
            let hidden = apply(&second, &hidden, 1, norm);
            x = hidden.iter().zip(&kept).map(|(hidden, kept)| (hidden + kept).relu()).collect();
        }
        copies.iter().zip(&x).map(|(params, x)| params.head.apply(&x.mean([1, 2]))).collect()
    }

    /// In prediction: by the running statistics. Logits `[batch, classes]`.
    pub(crate) fn predict(&self, norms: &[BatchNormState], images: &Tensor) -> Tensor {
        let mut norms = norms.iter();
        let mut norm = |layers: &[&BatchNorm], x: &[Tensor]| match norms.next() {
            Some(state) => vec![layers[0].infer(&x[0], state)],
            None => x.to_vec(),
        };
        Params::forward(&[self], std::slice::from_ref(images), &mut norm).swap_remove(0)
    }
}

impl Training {
    pub(crate) fn new(seed: u64, n_classes: usize) -> Training {
        let params = Params::new(seed, n_classes);
        let norms = params.channels().into_iter().map(BatchNormState::new).collect();
        let sgd = optimiser().init(&params);
        Training { params, norms, sgd }
    }

    /// A step of all workers together: loss, gradients, running statistics and parameters are those of the whole batch.
    pub(crate) fn step(
        &self,
        world: &World,
        batch: &Shards,
        rate: &Tensor,
        sync: bool,
    ) -> retape::Result<(Outcome, Training)> {
        let n_rows: Vec<usize> = batch.shards.iter().map(|(images, _)| images.dim(0)).collect();
        let images: Vec<Tensor> = batch.shards.iter().map(|(images, _)| images.clone()).collect();
        let losses = |copies: &Vec<Params>| {
            // By layer: the statistics of each shard, or those of the whole batch.
            let mut norms: Vec<Vec<BatchNormState>> = vec![];
            let mut norm = |layers: &[&BatchNorm], x: &[Tensor]| {
                let old = &self.norms[norms.len()];
                let (x, new) = match sync {
                    true => {
                        let (x, new) = world.batch_norm(layers, x, old);
                        (x, vec![new])
                    }
                    false => layers.iter().zip(x).map(|(layer, x)| layer.apply(x, old)).unzip(),
                };
                norms.push(new);
                x
            };
            let logits = Params::forward(&copies.iter().collect::<Vec<_>>(), &images, &mut norm);
            let labels = || logits.iter().zip(&batch.shards).map(|(logits, (_, labels))| (logits, labels));
            let is_right = |(logits, labels): (&Tensor, &Tensor)| {
                logits.argmax(-1).eq(labels.cast(DType::I64)).cast(DType::F32).sum(..)
            };
            let n_right: Vec<Tensor> = labels().map(is_right).collect();
            let losses: Vec<Tensor> =
                labels().map(|(logits, labels)| nn::softmax_cross_entropy_labels(logits, labels)).collect();
            let own_loss = losses.iter().zip(&n_rows).map(|(loss, &rows)| loss * rows as f64);
            let own_loss = own_loss.sum::<Tensor>() / n_rows.iter().sum::<usize>() as f64;
            (losses, (norms, n_right, own_loss))
        };
        let (loss, gradient, (norms, n_right, own_loss)) = world.value_and_grad(&self.params, &n_rows, losses)?;
        let norms = match sync {
            true => norms.into_iter().flatten().collect(),
            false => {
                let of_shard = |shard: usize| norms.iter().map(|layer| layer[shard].clone()).collect();
                world.combined(&(0..n_rows.len()).map(of_shard).collect::<Vec<_>>(), &n_rows)
            }
        };
        let n_right = world.sum_shards(&n_right);
        let (params, sgd) = optimiser().update(&self.params, &gradient, &self.sgd, rate);
        Ok((Outcome { loss, own_loss, n_right }, Training { params, norms, sgd }))
    }
}

fn optimiser() -> Sgd {
    Sgd::new().momentum(0.9)
}
