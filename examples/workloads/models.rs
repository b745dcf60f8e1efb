//! The workloads: each a step that can be repeated, with the loss it last had. On a GPU a step is queued, and a
//! measurement waits for the device.

#[path = "vision.rs"]
mod vision;

use retape::nn::{self, BatchNorm, BatchNormState, Conv2d, Dense, LayerNorm, Lstm, Mask};
use retape::optim::{Adam, Sgd, SgdState};
use retape::{DType, Device, MathMode, Result, Tensor, Tree, accelerate, einsum, map, zip_map};

use self::vision::{autoencoder, resnet};
use crate::formula::{Parameters, labels, tensor};
use crate::network::{Params, State, Training};

/// A workload: a step whose results are ready when it returns, on a GPU when the device has done its work.
pub(crate) trait Work {
    /// One full step.
    fn step(&mut self) -> Result<()>;

    /// The loss of the last step.
    fn loss(&mut self) -> Result<f64>;

    /// The untimed update of workloads that only compute gradients.
    fn update(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A step as a closure over what it carries from call to call, and how its loss and update follow from that.
struct Steps<S, F, L, U> {
    state: S,
    step: F,
    loss: L,
    update: U,
}

fn steps<S: 'static>(
    state: S,
    step: impl FnMut(&mut S) -> Result<()> + 'static,
    loss: impl Fn(&S) -> Result<f64> + 'static,
    update: impl Fn(&mut S) -> Result<()> + 'static,
) -> Box<dyn Work> {
    Box::new(Steps { state, step, loss, update })
}

impl<S, F, L, U> Work for Steps<S, F, L, U>
where
    F: FnMut(&mut S) -> Result<()>,
    L: Fn(&S) -> Result<f64>,
    U: Fn(&mut S) -> Result<()>,
{
    fn step(&mut self) -> Result<()> {
        (self.step)(&mut self.state)
    }

    fn loss(&mut self) -> Result<f64> {
        (self.loss)(&self.state)
    }

    fn update(&mut self) -> Result<()> {
        (self.update)(&mut self.state)
    }
}

/// The workload of this name, on a device.
pub(crate) fn make(name: &str, device: Device) -> Option<Box<dyn Work>> {
    let product = |n| matmul(n, DType::F32, MathMode::Strict, device);
    match name {
        "digits_train" => Some(digits_train(32, device)),
        "digits_predict" => Some(digits_predict(32, device)),
        "mlp" => Some(mlp(128, device)),
        "elementwise" => Some(elementwise(4_000_000, Tensor::sin, MathMode::Strict, device)),
        "elementwise_ns" => Some(elementwise(4_000_000, Tensor::sigmoid, MathMode::Strict, device)),
        "tiny" => Some(tiny(device)),
        "lstm" => Some(lstm([32, 32], device)),
        "transformer" => Some(transformer([8, 128], SMALL, device)),
        "matmul512" => Some(product(512)),
        "matmul1024" => Some(product(1024)),
        "matmul2048" => Some(product(2048)),
        "resnet" => Some(resnet(32, device)),
        "autoencoder" => Some(autoencoder(500, device)),
        "dispatch1" => Some(dispatch1(device)),
        "dispatch50" => Some(dispatch50(device)),
        _ => None,
    }
}

/// A tree with all its tensors on a device.
pub(crate) fn on<T: Tree>(device: Device, tree: T) -> T {
    map(&tree, |tensor| tensor.to(device))
}

fn item(loss: &Tensor) -> Result<f64> {
    Ok(loss.item::<f32>()?.into())
}

fn digit_params() -> Params {
    let p = &mut Parameters::default();
    fn conv(p: &mut Parameters, oihw: [usize; 4]) -> (Conv2d, BatchNorm) {
        let conv = Conv2d { weight: p.filter(oihw), bias: Some(p.bias(oihw[0])) };
        (conv, BatchNorm { scale: p.scale(oihw[0]), offset: p.bias(oihw[0]), ..BatchNorm::new(oihw[0]) })
    }
    let (conv1, norm1) = conv(p, [16, 1, 5, 5]);
    let (skip, norm_skip) = conv(p, [32, 16, 1, 1]);
    let (conv2, norm2) = conv(p, [32, 16, 3, 3]);
    let (conv3, norm3) = conv(p, [32, 32, 3, 3]);
    let digit = Dense { weight: p.after_flatten(10, [32, 14, 14]), bias: p.bias(10) };
    let angle = Dense { weight: p.after_flatten(1, [32, 14, 14]), bias: p.bias(1) };
    Params { conv1, norm1, skip, norm_skip, conv2, norm2, conv3, norm3, digit, angle }
}

/// One channel, so that channels first and last are the same.
fn digit_images(batch: usize) -> Tensor {
    tensor(&[batch, 28, 28, 1], 1000, 0.5, 0.5)
}

/// Training of the digit network: gradients and Adam.
pub(crate) fn digits_train(batch: usize, device: Device) -> Box<dyn Work> {
    let fresh = BatchNormState::new;
    let state = State { norm1: fresh(16), norm_skip: fresh(32), norm2: fresh(32), norm3: fresh(32) };
    let params = digit_params();
    let training = on(device, Training { adam: Adam::new().init(&params), params, state });
    let (x, digits, angles) = on(device, (digit_images(batch), labels(batch), tensor(&[batch, 1], 1001, 1.0, 0.0)));
    let step = accelerate(|t: &Training, x: &Tensor, digits: &Tensor, angles: &Tensor, rate: &Tensor| {
        t.step(x, digits, angles, rate)
    });
    carrying(training, move |training| step.call(training, &x, &digits, &angles, 1e-3_f32))
}

/// Prediction of the digit network.
pub(crate) fn digits_predict(batch: usize, device: Device) -> Box<dyn Work> {
    let params = digit_params();
    let state =
        |k: u32, n: usize| BatchNormState { mean: tensor(&[n], k, 0.1, 0.0), variance: tensor(&[n], k + 1, 0.5, 1.0) };
    let state =
        State { norm1: state(500, 16), norm_skip: state(502, 32), norm2: state(504, 32), norm3: state(506, 32) };
    let (params, state, x) = on(device, (params, state, digit_images(batch)));
    let predict = accelerate(|params: &Params, state: &State, x: &Tensor| params.predict(state, x));
    steps(
        (Tensor::from(0.0_f32), Tensor::from(0.0_f32)),
        move |found| {
            *found = predict.call(&params, &state, &x)?;
            Ok(())
        },
        |(digits, angles)| item(&(digits.square().sum(..) + angles.square().sum(..))),
        |_| Ok(()),
    )
}

/// Three dense layers, and the optimiser that trains them.
pub(crate) struct Mlp(Sgd);

/// The state that a step of the layers hands to the next one: parameters and velocities.
pub(crate) type MlpState = (Vec<Dense>, SgdState<Vec<Dense>>);

impl Mlp {
    /// Layers of these numbers of inputs and outputs.
    pub(crate) fn new(sizes: [(usize, usize); 3]) -> (Mlp, MlpState) {
        let p = &mut Parameters::default();
        let layers = sizes.iter().map(|&(i, o)| Dense { weight: p.weight(&[i, o], i), bias: p.bias(o) });
        let params = layers.collect::<Vec<Dense>>();
        let sgd = Sgd::new().momentum(0.9);
        let state = sgd.init(&params);
        (Mlp(sgd), (params, state))
    }

    /// The loss for images and one-hot labels, and the next state.
    pub(crate) fn step(&self, (params, state): &MlpState, x: &Tensor, y: &Tensor) -> (Tensor, MlpState) {
        let mut h = x.clone();
        for (position, layer) in params.iter().enumerate() {
            h = if position == 0 { layer.apply(&h) } else { layer.apply(&h.relu()) };
        }
        let loss = nn::softmax_cross_entropy(&h, y);
        let gradient = loss.grad(params);
        (loss, self.0.update(params, &gradient, state, 0.05_f32))
    }
}

/// A training step of three dense layers.
pub(crate) fn mlp(batch: usize, device: Device) -> Box<dyn Work> {
    let (mlp, start) = Mlp::new([(784, 512), (512, 512), (512, 10)]);
    let (x, y) = on(device, (tensor(&[batch, 784], 1000, 0.5, 0.5), labels(batch)));
    let step = accelerate(move |carried: &MlpState, x: &Tensor, y: &Tensor| mlp.step(carried, x, y));
    carrying(on(device, start), move |carried| step.call(carried, &x, &y))
}

/// Gives each step what the last one made, and keeps the loss.
pub(crate) fn carrying<S: 'static>(first: S, step: impl Fn(S) -> Result<(Tensor, S)> + 'static) -> Box<dyn Work> {
    steps(
        (Some(first), Tensor::from(0.0_f32)),
        move |(carried, loss)| {
            // A step that fails leaves nothing to go on from.
            if let Some(given) = carried.take() {
                let (found, next) = step(given)?;
                (*loss, *carried) = (found, Some(next));
            }
            Ok(())
        },
        |(_, loss)| item(loss),
        |_| Ok(()),
    )
}

/// Carries parameters and the value and gradient of the last step; `descend` is given both for the next parameters. A
/// gradient goes before the next one comes.
fn gradient_only<P: Tree + 'static>(
    params: P,
    step: impl Fn(&P) -> Result<(Tensor, P)> + 'static,
    descend: impl Fn(P, P) -> Result<P> + 'static,
) -> Box<dyn Work> {
    steps(
        (Some(params), Tensor::from(0.0_f32), None),
        move |(params, loss, gradient)| {
            *gradient = None;
            // An update that fails leaves nothing to go on from.
            if let Some(params) = params {
                let (found, next) = step(params)?;
                (*loss, *gradient) = (found, Some(next));
            }
            Ok(())
        },
        |(_, loss, _)| item(loss),
        move |(params, _, gradient)| {
            if let (Some(old), Some(gradient)) = (params.take(), gradient.take()) {
                *params = Some(descend(old, gradient)?);
            }
            Ok(())
        },
    )
}

/// Plain gradient descent by a rate, which writes the next parameters over those that it is given.
fn descent<P: Tree + 'static>(rate: f32) -> impl Fn(P, P) -> Result<P> {
    let descend = accelerate(move |params: &P, gradient: &P| zip_map([params, gradient], |[p, g]| p - g * rate));
    move |params, gradient| descend.call(params, gradient)
}

/// The mean of a formula of `n` elements, and its gradient.
pub(crate) fn elementwise(n: usize, last: fn(&Tensor) -> Tensor, mode: MathMode, device: Device) -> Box<dyn Work> {
    let params = on(device, (tensor(&[n], 1000, 2.0, 0.0), Tensor::from(0.7_f32), Tensor::from(0.1_f32)));
    let step = accelerate(move |params: &(Tensor, Tensor, Tensor)| {
        let (x, a, b) = params;
        let bell = (-x.square()).exp();
        let loss = ((x * a + b).tanh() * bell + x.square().log1p() * last(x)).mean(..);
        let gradient = loss.grad(params);
        (loss, gradient)
    });
    step.configure(|options| options.math = mode);
    let descend = accelerate(move |(x, a, b): &(Tensor, Tensor, Tensor), (dx, da, db): &(Tensor, Tensor, Tensor)| {
        // The gradient of a mean is small, by the number of elements.
        (x - dx * (n as f32 / 40.0), a - da * 0.1_f32, b - db * 0.1_f32)
    });
    gradient_only(params, move |params| step.call(params), move |params, gradient| descend.call(params, gradient))
}

fn tiny(device: Device) -> Box<dyn Work> {
    let p = &mut Parameters::default();
    let params = on(device, (p.weight(&[8, 8], 8), p.bias(8)));
    let h = tensor(&[8], 1000, 1.0, 0.0).to(device);
    let step = accelerate(|params: &(Tensor, Tensor), h: &Tensor| {
        let (w, b) = params;
        let mut h = h.clone();
        for _ in 0..50 {
            h = &h + 0.01 * (w.matmul(&h) + b).tanh();
        }
        let loss = h.square().sum(..);
        let gradient = loss.grad(params);
        (loss, gradient)
    });
    gradient_only(params, move |params| step.call(params, &h), descent(0.01))
}

/// The mean of the squares of the last output of 128 cells, after a batch of sequences of 64 features.
fn lstm([n_steps, batch]: [usize; 2], device: Device) -> Box<dyn Work> {
    let (features, cells) = (64, 128);
    let p = &mut Parameters::default();
    let input_weight = p.weight(&[features, 4 * cells], features);
    let hidden_weight = p.weight(&[cells, 4 * cells], cells);
    let lstm = on(device, Lstm { input_weight, hidden_weight, bias: p.bias(4 * cells) });
    let x = tensor(&[n_steps, batch, features], 1000, 1.0, 0.0).to(device);
    let step = accelerate(move |lstm: &Lstm, x: &Tensor| {
        let start = Tensor::zeros([batch, cells]);
        let last = (0..n_steps).fold((start.clone(), start), |(h, c), time| lstm.step(&x.at(time), (&h, &c)));
        let loss = last.0.square().mean(..);
        let gradient = loss.grad(lstm);
        (loss, gradient)
    });
    gradient_only(lstm, move |lstm| step.call(lstm, &x), descent(1.0))
}

/// Normalisation, attention, a hidden layer.
#[derive(Clone, Tree)]
pub(crate) struct Block {
    norm1: LayerNorm,
    qkv: Dense,
    out: Dense,
    norm2: LayerNorm,
    up: Dense,
    down: Dense,
}

/// The sizes of a block, and the dtype whose products it takes.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) width: usize,
    pub(crate) heads: usize,
    pub(crate) products: DType,
}

/// The block of the workload `transformer`.
const SMALL: Size = Size { width: 256, heads: 4, products: DType::F32 };

impl Size {
    /// The product of two arrays of `f32`, whose elements are rounded to the dtype of products first.
    fn dense(self, layer: &Dense, x: &Tensor) -> Tensor {
        match self.products {
            DType::F32 => layer.apply(x),
            half => x.cast(half).matmul(&layer.weight.cast(half)).cast(DType::F32) + &layer.bias,
        }
    }

    fn attention(self, [q, k, v]: [Tensor; 3]) -> Tensor {
        let scale = 1.0 / ((self.width / self.heads) as f64).sqrt();
        match self.products {
            DType::F32 => nn::attention(&q, &k, &v, scale, Mask::Causal),
            half => {
                let scores = einsum("bqhd,bkhd->bhqk", &[&q.cast(half), &k.cast(half)]).cast(DType::F32) * scale;
                let positions = scores.dim(2) as i64;
                let at: Tensor = (0..positions).collect();
                let is_past = at.reshape([1, positions as usize]).le(at.reshape([positions as usize, 1]));
                let weights = is_past.select(&scores, f64::NEG_INFINITY).softmax(-1);
                einsum("bhqk,bkhd->bqhd", &[&weights.cast(half), &v.cast(half)]).cast(DType::F32)
            }
        }
    }
}

impl Block {
    pub(crate) fn new(width: usize) -> Block {
        let p = &mut Parameters::default();
        let norm =
            |p: &mut Parameters| LayerNorm { scale: p.scale(width), offset: p.bias(width), ..LayerNorm::new(width) };
        fn dense(p: &mut Parameters, i: usize, o: usize) -> Dense {
            Dense { weight: p.weight(&[i, o], i), bias: p.bias(o) }
        }
        Block {
            norm1: norm(p),
            qkv: dense(p, width, 3 * width),
            out: dense(p, width, width),
            norm2: norm(p),
            up: dense(p, width, 4 * width),
            down: dense(p, 4 * width, width),
        }
    }

    pub(crate) fn apply(&self, size: Size, x: &Tensor) -> Tensor {
        let Size { width, heads, .. } = size;
        let [batch, positions] = [x.dim(0), x.dim(1)];
        let qkv = size.dense(&self.qkv, &self.norm1.apply(x));
        let head = |at: usize| {
            let part = qkv.slice_axis(-1, (at * width) as isize..((at + 1) * width) as isize);
            part.reshape([batch, positions, heads, width / heads])
        };
        let mixed = size.attention([head(0), head(1), head(2)]);
        let x = x + size.dense(&self.out, &mixed.reshape([batch, positions, width]));
        let hidden = size.dense(&self.up, &self.norm2.apply(&x)).gelu_tanh();
        &x + size.dense(&self.down, &hidden)
    }
}

/// The mean square of a block's result for so many sequences of so many positions, and its gradient.
pub(crate) fn transformer([batch, positions]: [usize; 2], size: Size, device: Device) -> Box<dyn Work> {
    let x = tensor(&[batch, positions, size.width], 1000, 1.0, 0.0).to(device);
    let step = accelerate(move |block: &Block, x: &Tensor| {
        let loss = block.apply(size, x).square().mean(..);
        let gradient = loss.grad(block);
        (loss, gradient)
    });
    gradient_only(on(device, Block::new(size.width)), move |block| step.call(block, &x), descent(0.1))
}

/// The product of two square matrices.
pub(crate) fn matmul(n: usize, dtype: DType, mode: MathMode, device: Device) -> Box<dyn Work> {
    let operand = |k: u32| tensor(&[n, n], k, 1.0, 0.0).cast(dtype).to(device);
    let (a, b) = (operand(1), operand(2));
    let product = accelerate(|a: &Tensor, b: &Tensor| a.matmul(b));
    product.configure(|options| options.math = mode);
    let mean_square = accelerate(|c: &Tensor| c.cast(DType::F32).square().mean(..));
    steps(
        Tensor::from(0.0_f32),
        move |c| {
            // A product goes before the next one comes.
            *c = Tensor::from(0.0_f32);
            *c = product.call(&a, &b)?;
            Ok(())
        },
        move |c| item(&mean_square.call(c)?),
        |_| Ok(()),
    )
}

fn dispatch1(device: Device) -> Box<dyn Work> {
    let x = tensor(&[8], 1, 1.0, 0.0).to(device);
    let add = accelerate(|x: &Tensor| x + 1.0);
    steps(
        Tensor::from(0.0_f32),
        move |y| {
            *y = add.call(&x)?;
            Ok(())
        },
        |y| item(&y.sum(..)),
        |_| Ok(()),
    )
}

fn dispatch50(device: Device) -> Box<dyn Work> {
    let xs: Vec<Tensor> = (1..=50).map(|k| tensor(&[8], k, 1.0, 0.0).to(device)).collect();
    let sums = accelerate(|xs: &Vec<Tensor>| xs.iter().map(|x| x.sum(..)).collect::<Vec<_>>());
    steps(
        vec![],
        move |found| {
            *found = sums.call(&xs)?;
            Ok(())
        },
        |found: &Vec<Tensor>| found.iter().map(|x| Ok(item(x)?.powi(2))).sum(),
        |_| Ok(()),
    )
}
