//! A residual network for small images, and an autoencoder: each a training step with its optimiser.

use retape::nn::{self, BatchNorm, BatchNormState, Conv2d, ConvTranspose2d, Dense};
use retape::ops::ConvOptions;
use retape::optim::{Adam, AdamState, Sgd, SgdState};
use retape::{Device, Tensor, Tree, accelerate};

use super::{Work, carrying, on};
use crate::formula::{Parameters, labels, tensor};

/// A convolution without bias, and its normalisation.
#[derive(Clone, Tree)]
struct Normed {
    conv: Conv2d,
    norm: BatchNorm,
}

/// Two convolutions, and the one that takes the image past them where they halve it.
#[derive(Clone, Tree)]
struct Residual {
    first: Normed,
    second: Normed,
    skip: Option<Normed>,
}

/// A residual network of 20 layers.
#[derive(Clone, Tree)]
struct ResNet {
    stem: Normed,
    blocks: Vec<Residual>,
    dense: Dense,
}

/// The running statistics of the normalisations, in the order in which the images pass them.
type Statistics = Vec<BatchNormState>;

impl Normed {
    fn new(p: &mut Parameters, oihw: [usize; 4]) -> Normed {
        let conv = Conv2d { weight: p.filter(oihw), bias: None };
        Normed { conv, norm: BatchNorm { scale: p.scale(oihw[0]), offset: p.bias(oihw[0]), ..BatchNorm::new(oihw[0]) } }
    }

    /// The normalised convolution; takes the old statistics off the front of `old`, and adds the new ones to `new`.
    fn apply(&self, x: &Tensor, options: ConvOptions, old: &mut &[BatchNormState], new: &mut Statistics) -> Tensor {
        let (state, rest) = old.split_first().expect("statistics for each normalisation");
        *old = rest;
        let (y, state) = self.norm.apply(&self.conv.apply(x, options), state);
        new.push(state);
        y
    }
}

impl Residual {
    fn apply(&self, x: &Tensor, old: &mut &[BatchNormState], new: &mut Statistics) -> Tensor {
        let padded = ConvOptions::default().padding(1);
        let stride = if self.skip.is_some() { 2 } else { 1 };
        let y = self.first.apply(x, padded.stride(stride), old, new).relu();
        let y = self.second.apply(&y, padded, old, new);
        let skip = self.skip.as_ref().map(|skip| skip.apply(x, ConvOptions::default().stride(2), old, new));
        (y + skip.as_ref().unwrap_or(x)).relu()
    }
}

impl ResNet {
    /// The network, and fresh statistics for it.
    fn new() -> (ResNet, Statistics) {
        let p = &mut Parameters::default();
        let stem = Normed::new(p, [16, 3, 3, 3]);
        let (mut blocks, mut widths, mut inputs) = (vec![], vec![16], 16);
        for (stage, n) in [16, 32, 64].into_iter().enumerate() {
            for block in 0..3 {
                let first = Normed::new(p, [n, inputs, 3, 3]);
                let second = Normed::new(p, [n, n, 3, 3]);
                let skip = (stage > 0 && block == 0).then(|| Normed::new(p, [n, inputs, 1, 1]));
                widths.extend([n; 3].into_iter().take(if skip.is_some() { 3 } else { 2 }));
                blocks.push(Residual { first, second, skip });
                inputs = n;
            }
        }
        let dense = Dense { weight: p.weight(&[64, 10], 64), bias: p.bias(10) };
        (ResNet { stem, blocks, dense }, widths.into_iter().map(BatchNormState::new).collect())
    }

    /// Logits, and the new statistics.
    fn train(&self, x: &Tensor, mut old: &[BatchNormState]) -> (Tensor, Statistics) {
        let mut new = vec![];
        let mut x = self.stem.apply(x, ConvOptions::default().padding(1), &mut old, &mut new).relu();
        for block in &self.blocks {
            x = block.apply(&x, &mut old, &mut new);
        }
        (self.dense.apply(&x.global_avg_pool2d()), new)
    }
}

/// Training of the residual network: gradients, and gradient descent with momentum.
pub(crate) fn resnet(batch: usize, device: Device) -> Box<dyn Work> {
    let sgd = Sgd::new().momentum(0.9);
    let (net, statistics) = ResNet::new();
    let state: (ResNet, Statistics, SgdState<ResNet>) = (net.clone(), statistics, sgd.init(&net));
    let x = tensor(&[batch, 3, 32, 32], 1000, 1.0, 0.0).permute([0, 2, 3, 1]);
    let (x, y) = on(device, (x, labels(batch)));
    let step = accelerate(move |(net, statistics, momentum): &(ResNet, Statistics, _), x: &Tensor, y: &Tensor| {
        let (logits, statistics) = net.train(x, statistics);
        let loss = nn::softmax_cross_entropy(&logits, y);
        let gradient = loss.grad(net);
        let (net, momentum) = sgd.update(net, &gradient, momentum, 0.01_f32);
        (loss, (net, statistics, momentum))
    });
    carrying(on(device, state), move |state| step.call(state, &x, &y))
}

/// Three convolutions with pooling, and three transposed ones.
#[derive(Clone, Tree)]
struct Autoencoder {
    encoder: Vec<Conv2d>,
    decoder: Vec<ConvTranspose2d>,
}

impl Autoencoder {
    fn new() -> Autoencoder {
        let p = &mut Parameters::default();
        let encoder = [(1, 8), (8, 16), (16, 32)]
            .map(|(i, o)| Conv2d { weight: p.filter([o, i, 3, 3]), bias: Some(p.bias(o)) })
            .to_vec();
        // Generated as `[in, out, height, width]`.
        let decoder = [(32, 16), (16, 8), (8, 1)].map(|(i, o)| ConvTranspose2d {
            weight: p.weight(&[i, o, 4, 4], 4 * i).permute([2, 3, 1, 0]),
            bias: Some(p.bias(o)),
        });
        Autoencoder { encoder, decoder: decoder.to_vec() }
    }

    /// Half the squared error of a reconstruction, for each image.
    fn loss(&self, x: &Tensor) -> Tensor {
        let mut y = x.clone();
        for layer in &self.encoder {
            y = layer.apply(&y, ConvOptions::same()).relu().max_pool2d([2, 2], [2, 2], 0);
        }
        for (position, layer) in self.decoder.iter().enumerate() {
            y = layer.apply(&y, ConvOptions::same().stride(2));
            if position + 1 < self.decoder.len() {
                y = y.relu();
            }
        }
        0.5 * (y - x).square().sum(..) / x.dim(0) as f64
    }
}

/// Training of the autoencoder: gradients and Adam.
pub(crate) fn autoencoder(batch: usize, device: Device) -> Box<dyn Work> {
    let net = Autoencoder::new();
    let state: (Autoencoder, AdamState<Autoencoder>) = (net.clone(), Adam::new().init(&net));
    // One channel, so that channels first and last are the same.
    let x = tensor(&[batch, 32, 32, 1], 1000, 0.5, 0.5).to(device);
    let step = accelerate(|(net, adam): &(Autoencoder, AdamState<Autoencoder>), x: &Tensor| {
        let loss = net.loss(x);
        let gradient = loss.grad(net);
        (loss, Adam::new().update(net, &gradient, adam, 1e-3_f32))
    });
    carrying(on(device, state), move |state| step.call(state, &x))
}
