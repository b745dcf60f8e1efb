//! Networks for images: the digit network, a residual network, an autoencoder.

use burn::tensor::activation::{relu, softmax};
use burn::tensor::module::{batch_norm, batch_norm_train, conv_transpose2d, conv2d, linear, max_pool2d};
use burn::tensor::ops::{ConvOptions, ConvTransposeOptions, MaxPoolOptions};
use burn::tensor::{Device, Tensor};

use crate::formula::{labels, tensor};
use crate::models::{Work, cross_entropy, forward, gradient, squares};
use crate::parameters::{Optimiser, Parameters, Reader};

/// Running statistics of a normalisation.
struct Statistics {
    mean: Tensor<1>,
    variance: Tensor<1>,
}

/// Those of all normalisations, in the order in which images pass them, and whether they follow the batch.
struct Norms {
    list: Vec<Statistics>,
    next: usize,
    is_training: bool,
}

impl Norms {
    /// Fresh ones, which follow the batch.
    fn training(sizes: &[usize], device: &Device) -> Norms {
        let fresh = |&n: &usize| Statistics { mean: Tensor::zeros([n], device), variance: Tensor::ones([n], device) };
        Norms { list: sizes.iter().map(fresh).collect(), next: 0, is_training: true }
    }

    /// A normalisation whose scale and offset come next.
    fn apply(&mut self, x: Tensor<4>, p: &mut Reader<'_>) -> Tensor<4> {
        let at = self.next % self.list.len();
        self.next = at + 1;
        let (scale, offset) = (p.vector(), p.vector());
        let Statistics { mean, variance } = &mut self.list[at];
        if !self.is_training {
            return batch_norm(x, scale, offset, mean.clone(), variance.clone(), 1e-5);
        }
        let found = batch_norm_train(x, scale, offset, 1e-5);
        *mean = mean.clone() * 0.9 + found.mean.inner() * 0.1;
        *variance = variance.clone() * 0.9 + found.variance.inner() * 0.1;
        found.output
    }
}

/// How a convolution moves: its stride, and the padding before and behind.
fn moving(stride: usize, padding: [usize; 2]) -> ConvOptions<2> {
    ConvOptions::new_with_padding([stride; 2], [padding.into(); 2], [1, 1], 1)
}

/// A convolution whose filter comes next.
fn conv(x: Tensor<4>, options: ConvOptions<2>, p: &mut Reader<'_>) -> Tensor<4> {
    conv2d(x, p.filter(), None, options)
}

/// A convolution whose filter and bias come next.
fn conv_with_bias(x: Tensor<4>, options: ConvOptions<2>, p: &mut Reader<'_>) -> Tensor<4> {
    conv2d(x, p.filter(), Some(p.vector()), options)
}

/// Channels of the normalisations of the digit network.
const DIGIT_NORMS: [usize; 4] = [16, 32, 32, 32];

fn digit_parameters(device: &Device) -> Parameters {
    let mut p = Parameters::on(device);
    for [outputs, inputs, size] in [[16, 1, 5], [32, 16, 1], [32, 16, 3], [32, 32, 3]] {
        p.filter([outputs, inputs, size, size], inputs * size * size);
        p.bias(outputs);
        p.norm(outputs);
    }
    for outputs in [10, 1] {
        p.matrix([outputs, 6272], 6272);
        p.bias(outputs);
    }
    p
}

/// Logits of digits, and angles.
fn digit_network(x: Tensor<4>, norms: &mut Norms, p: &mut Reader<'_>) -> (Tensor<2>, Tensor<2>) {
    let a = conv_with_bias(x, moving(1, [2, 2]), p);
    let a = relu(norms.apply(a, p));
    let skip = conv_with_bias(a.clone(), moving(2, [0, 0]), p);
    let skip = norms.apply(skip, p);
    let h = conv_with_bias(a, moving(2, [0, 1]), p);
    let h = relu(norms.apply(h, p));
    let h = conv_with_bias(h, moving(1, [1, 1]), p);
    let h = norms.apply(h, p);
    let h: Tensor<2> = relu(h + skip).flatten(1, 3);
    let mut dense = |h: Tensor<2>| linear(h, p.matrix().transpose(), Some(p.vector()));
    (dense(h.clone()), dense(h))
}

/// Training of the digit network.
pub(crate) fn digits_train(base: &Device) -> Box<dyn Work> {
    let device = base.clone().autodiff();
    let (x, labels) = (tensor([32, 1, 28, 28], 1000, 0.5, 0.5, &device), labels(32, &device));
    let angles: Tensor<2> = tensor([32, 1], 1001, 1.0, 0.0, &device);
    let mut norms = Norms::training(&DIGIT_NORMS, base);
    gradient(digit_parameters(&device), Optimiser::Adam(0), move |p| {
        let (logits, found) = digit_network(x.clone(), &mut norms, p);
        cross_entropy(logits, &labels) + (found - angles.clone()).square().sum() * (0.1 * 0.5 / 32.0)
    })
}

/// Prediction of the digit network.
pub(crate) fn digits_predict(device: &Device) -> Box<dyn Work> {
    let x = tensor([32, 1, 28, 28], 1000, 0.5, 0.5, device);
    let given = |(n, k): (usize, u32)| Statistics {
        mean: tensor([n], k, 0.1, 0.0, device),
        variance: tensor([n], k + 1, 0.5, 1.0, device),
    };
    let statistics = move || DIGIT_NORMS.into_iter().zip((500..).step_by(2)).map(given).collect();
    let norms = std::cell::RefCell::new(Norms { list: statistics(), next: 0, is_training: false });
    let parameters = digit_parameters(device);
    let predict = move || {
        let (logits, angles) = digit_network(x.clone(), &mut norms.borrow_mut(), &mut parameters.read());
        (softmax(logits, 1), angles)
    };
    forward(predict, |(digits, angles)| squares(digits) + squares(angles))
}

/// Training of the residual network.
pub(crate) fn resnet(base: &Device) -> Box<dyn Work> {
    let device = base.clone().autodiff();
    let mut p = Parameters::on(&device);
    let mut sizes = vec![];
    let mut normed = |p: &mut Parameters, outputs: usize, inputs: usize, size: usize| {
        p.filter([outputs, inputs, size, size], inputs * size * size);
        p.norm(outputs);
        sizes.push(outputs);
    };
    normed(&mut p, 16, 3, 3);
    let mut inputs = 16;
    let mut strides = vec![];
    for (n, block) in [16, 32, 64].into_iter().flat_map(|n| [0, 1, 2].map(|block| (n, block))) {
        let stride = if n > 16 && block == 0 { 2 } else { 1 };
        normed(&mut p, n, inputs, 3);
        normed(&mut p, n, n, 3);
        if stride == 2 {
            normed(&mut p, n, inputs, 1);
        }
        strides.push(stride);
        inputs = n;
    }
    p.matrix([64, 10], 64);
    p.bias(10);
    let (x, labels) = (tensor([32, 3, 32, 32], 1000, 1.0, 0.0, &device), labels(32, &device));
    let mut norms = Norms::training(&sizes, base);
    gradient(p, Optimiser::Momentum(0.01), move |p| {
        let mut normed = |x: Tensor<4>, stride: usize, padding: usize, p: &mut Reader<'_>| {
            let y = conv(x, moving(stride, [padding; 2]), p);
            norms.apply(y, p)
        };
        let mut h = relu(normed(x.clone(), 1, 1, p));
        for &stride in &strides {
            let y = relu(normed(h.clone(), stride, 1, p));
            let y = normed(y, 1, 1, p);
            let skip = if stride == 2 { normed(h, stride, 0, p) } else { h };
            h = relu(y + skip);
        }
        let pooled: Tensor<2> = h.mean_dims(&[2, 3]).flatten(1, 3);
        cross_entropy(linear(pooled, p.matrix(), Some(p.vector())), &labels)
    })
}

/// Training of the autoencoder.
pub(crate) fn autoencoder(base: &Device) -> Box<dyn Work> {
    let device = base.clone().autodiff();
    let mut p = Parameters::on(&device);
    for [inputs, outputs] in [[1, 8], [8, 16], [16, 32]] {
        p.filter([outputs, inputs, 3, 3], inputs * 9);
        p.bias(outputs);
    }
    for [inputs, outputs] in [[32, 16], [16, 8], [8, 1]] {
        p.filter([inputs, outputs, 4, 4], inputs * 4);
        p.bias(outputs);
    }
    let x: Tensor<4> = tensor([500, 1, 32, 32], 1000, 0.5, 0.5, &device);
    gradient(p, Optimiser::Adam(0), move |p| {
        let encode = |h, p: &mut Reader<'_>| {
            max_pool2d(relu(conv_with_bias(h, moving(1, [1, 1]), p)), MaxPoolOptions::new([2, 2]))
        };
        let decode = |h, p: &mut Reader<'_>| {
            let options = ConvTransposeOptions::new([2, 2], [1, 1], [0, 0], [1, 1], 1);
            conv_transpose2d(h, p.filter(), Some(p.vector()), options)
        };
        let code = (0..3).fold(x.clone(), |h, _| encode(h, p));
        let h = (0..2).fold(code, |h, _| relu(decode(h, p)));
        (decode(h, p) - x.clone()).square().sum() * (0.5 / 500.0)
    })
}
