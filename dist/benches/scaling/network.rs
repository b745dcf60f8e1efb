//! The network of the training kit's example `cifar`: three blocks of four (convolution 3x3, batch normalisation, relu),
//! with max-pooling between them, average pooling and one dense layer. Images are `[batch, 32, 32, 3]`.

use retape::nn::{self, BatchNorm, BatchNormState, Conv2d, Dense};
use retape::ops::{ConvOptions, Padding};
use retape::optim::{Sgd, SgdState};
use retape::{Tensor, Tree};
use retape_dist::World;

/// Filters of the convolutions of each block.
const FILTERS: [usize; 3] = [32, 64, 128];

/// Layers of each block.
const DEPTH: usize = 4;

const N_CLASSES: usize = 10;

/// A convolution and its normalisation.
#[derive(Clone, Debug, Tree)]
pub(crate) struct Layer {
    conv: Conv2d,
    norm: BatchNorm,
}

/// Everything that is learned.
#[derive(Clone, Debug, Tree)]
pub(crate) struct Params {
    pub(crate) layers: Vec<Layer>,
    pub(crate) head: Dense,
}

/// The state that training carries from step to step. Running statistics are left out, for they take no time.
#[derive(Clone, Debug, Tree)]
pub(crate) struct Training {
    pub(crate) params: Params,
    sgd: SgdState<Params>,
}

/// Images and labels.
pub(crate) type Batch = (Tensor, Tensor);

/// A layer, with the pooling before the first one of a block.
pub(crate) fn forward(number: usize, layer: &Layer, x: &Tensor) -> Tensor {
    let is_after_block = number > 0 && number.is_multiple_of(DEPTH);
    let x = if is_after_block { x.max_pool2d([2, 2], [2, 2], Padding::Valid) } else { x.clone() };
    let x = layer.conv.apply(&x, ConvOptions::same());
    layer.norm.apply(&x, &BatchNormState::new(layer.norm.scale.dim(0))).0.relu()
}

/// The mean loss of what the last layer made of images.
pub(crate) fn loss(head: &Dense, x: &Tensor, labels: &Tensor) -> Tensor {
    let logits = head.apply(&x.avg_pool2d([8, 8], [8, 8], Padding::Valid).flatten_from(1));
    nn::softmax_cross_entropy_labels(&logits, labels)
}

/// The images and labels of a shard, some numbers.
pub(crate) fn batch(shard: usize, n_rows: usize) -> retape::Result<Batch> {
    let pixel = |n: usize| ((n * 7919 + shard * 104_729) % 1009) as f32 / 504.5 - 1.0;
    let images = Tensor::from_vec((0..n_rows * 32 * 32 * 3).map(pixel).collect::<Vec<f32>>(), [n_rows, 32, 32, 3])?;
    let labels = (0..n_rows).map(|n| ((n + shard) % N_CLASSES) as i32).collect::<Vec<i32>>();
    Ok((images, Tensor::from_vec(labels, [n_rows])?))
}

impl Training {
    pub(crate) fn new() -> Training {
        let mut channels = 3;
        let layer = |(seed, filters): (usize, usize)| {
            // No bias: the normalisation has an offset.
            let conv = Conv2d::new(seed as u64, [3, 3], channels, filters).without_bias();
            channels = filters;
            Layer { conv, norm: BatchNorm::new(filters) }
        };
        let layers = FILTERS.iter().flat_map(|&filters| [filters; DEPTH]).enumerate().map(layer).collect();
        let params = Params { layers, head: Dense::new(1 << 40, FILTERS[2], N_CLASSES) };
        let sgd = optimiser().init(&params);
        Training { params, sgd }
    }

    /// A step of all workers together, with the loss of the whole batch.
    pub(crate) fn step(&self, world: &World, shards: &[Batch]) -> (Tensor, Training) {
        let n_rows: Vec<usize> = shards.iter().map(|(images, _)| images.dim(0)).collect();
        let of_shard = |(params, (images, labels)): (&Params, &Batch)| {
            let layers = params.layers.iter().enumerate();
            let x = layers.fold(images.clone(), |x, (number, layer)| forward(number, layer, &x));
            loss(&params.head, &x, labels)
        };
        let losses = |copies: &Vec<Params>| (copies.iter().zip(shards).map(of_shard).collect(), ());
        let (loss, gradient, ()) = world.value_and_grad(&self.params, &n_rows, losses).expect("the loss is a number");
        (loss, self.updated(&gradient))
    }

    pub(crate) fn updated(&self, gradient: &Params) -> Training {
        let (params, sgd) = optimiser().update(&self.params, gradient, &self.sgd, 0.01_f32);
        Training { params, sgd }
    }
}

fn optimiser() -> Sgd {
    Sgd::new().momentum(0.9)
}
