//! The workloads: each a step that can be repeated, with the loss it last had.

use retape::nn::{self, BatchNorm, BatchNormState, Conv2d, Dense, LayerNorm, Mask};
use retape::optim::{Adam, Sgd, SgdState};
use retape::{Result, Tensor, Tree, accelerate, map, zip_map};

use crate::formula::{Parameters, labels, tensor};
use crate::network::{Params, State, Training};

/// A workload: a step whose results are ready when it returns.
pub(crate) trait Work {
    /// One full step.
    fn step(&mut self) -> Result<()>;

    /// The loss of the last step.
    fn loss(&mut self) -> Result<f64>;

    /// The untimed update of workloads that only compute gradients.
    fn update(&mut self) {}
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
    update: impl Fn(&mut S) + 'static,
) -> Box<dyn Work> {
    Box::new(Steps { state, step, loss, update })
}

impl<S, F, L, U> Work for Steps<S, F, L, U>
where
    F: FnMut(&mut S) -> Result<()>,
    L: Fn(&S) -> Result<f64>,
    U: Fn(&mut S),
{
    fn step(&mut self) -> Result<()> {
        (self.step)(&mut self.state)
    }

    fn loss(&mut self) -> Result<f64> {
        (self.loss)(&self.state)
    }

    fn update(&mut self) {
        (self.update)(&mut self.state);
    }
}

/// The workload of this name.
pub(crate) fn make(name: &str) -> Option<Box<dyn Work>> {
    match name {
        "digits_train" => Some(digits_train()),
        "digits_predict" => Some(digits_predict()),
        "mlp" => Some(mlp()),
        "elementwise" => Some(elementwise(Tensor::sin)),
        "elementwise_ns" => Some(elementwise(Tensor::sigmoid)),
        "tiny" => Some(tiny()),
        "transformer" => Some(transformer()),
        "matmul512" => Some(matmul(512)),
        "matmul1024" => Some(matmul(1024)),
        "matmul2048" => Some(matmul(2048)),
        "dispatch1" => Some(dispatch1()),
        "dispatch50" => Some(dispatch50()),
        _ => None,
    }
}

fn item(loss: &Tensor) -> Result<f64> {
    Ok(loss.item::<f32>()?.into())
}

fn digit_params() -> Params {
    let p = &mut Parameters::default();
    fn conv(p: &mut Parameters, oihw: [usize; 4]) -> (Conv2d, BatchNorm) {
        let conv = Conv2d { weight: p.filter(oihw), bias: p.bias(oihw[0]) };
        (conv, BatchNorm { scale: p.scale(oihw[0]), offset: p.bias(oihw[0]) })
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
fn digit_images() -> Tensor {
    tensor(&[32, 28, 28, 1], 1000, 0.5, 0.5)
}

fn digits_train() -> Box<dyn Work> {
    let fresh = BatchNormState::new;
    let state = State { norm1: fresh(16), norm_skip: fresh(32), norm2: fresh(32), norm3: fresh(32) };
    let params = digit_params();
    let training = Training { adam: Adam::new().init(&params), params, state };
    let (x, digits, angles) = (digit_images(), labels(32), tensor(&[32, 1], 1001, 1.0, 0.0));
    let step = accelerate(|t: &Training, x: &Tensor, digits: &Tensor, angles: &Tensor, rate: &Tensor| {
        t.step(x, digits, angles, rate)
    });
    carrying(training, move |training| step.call(training, &x, &digits, &angles, 1e-3_f32))
}

fn digits_predict() -> Box<dyn Work> {
    let params = digit_params();
    let state =
        |k: u32, n: usize| BatchNormState { mean: tensor(&[n], k, 0.1, 0.0), variance: tensor(&[n], k + 1, 0.5, 1.0) };
    let state =
        State { norm1: state(500, 16), norm_skip: state(502, 32), norm2: state(504, 32), norm3: state(506, 32) };
    let x = digit_images();
    let predict = accelerate(|params: &Params, state: &State, x: &Tensor| params.predict(state, x));
    steps(
        (Tensor::from(0.0_f32), Tensor::from(0.0_f32)),
        move |found| {
            *found = predict.call(&params, &state, &x)?;
            Ok(())
        },
        |(digits, angles)| item(&(digits.square().sum(..) + angles.square().sum(..))),
        |_| {},
    )
}

fn mlp() -> Box<dyn Work> {
    let p = &mut Parameters::default();
    let sizes = [(784, 512), (512, 512), (512, 10)];
    let params: Vec<Dense> =
        sizes.iter().map(|&(i, o)| Dense { weight: p.weight(&[i, o], i), bias: p.bias(o) }).collect();
    let sgd = Sgd::new().momentum(0.9);
    let state = sgd.init(&params);
    let (x, y) = (tensor(&[128, 784], 1000, 0.5, 0.5), labels(128));
    let step = accelerate(move |carried: &(Vec<Dense>, SgdState<Vec<Dense>>), x: &Tensor, y: &Tensor| {
        let (params, state) = carried;
        let mut h = x.clone();
        for (position, layer) in params.iter().enumerate() {
            h = if position == 0 { layer.apply(&h) } else { layer.apply(&h.relu()) };
        }
        let loss = nn::softmax_cross_entropy(&h, y);
        let gradient = loss.grad(params);
        (loss, sgd.update(params, &gradient, state, 0.05_f32))
    });
    carrying((params, state), move |carried| step.call(carried, &x, &y))
}

/// Gives each step what the last one made, and keeps the loss.
fn carrying<S: 'static>(first: S, step: impl Fn(S) -> Result<(Tensor, S)> + 'static) -> Box<dyn Work> {
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
        |_| {},
    )
}

/// Carries parameters and the value and gradient of the last step; updates by plain gradient descent.
fn gradient_only<P: Tree + 'static>(
    params: P,
    step: impl Fn(&P) -> Result<(Tensor, P)> + 'static,
    descend: impl Fn(&P, &P) -> P + 'static,
) -> Box<dyn Work> {
    let gradient = map(&params, Tensor::clone);
    steps(
        (params, Tensor::from(0.0_f32), gradient),
        move |(params, loss, gradient)| {
            (*loss, *gradient) = step(params)?;
            Ok(())
        },
        |(_, loss, _)| item(loss),
        move |(params, _, gradient)| *params = descend(params, gradient),
    )
}

fn elementwise(last: fn(&Tensor) -> Tensor) -> Box<dyn Work> {
    let params = (tensor(&[4_000_000], 1000, 2.0, 0.0), Tensor::from(0.7_f32), Tensor::from(0.1_f32));
    let step = accelerate(move |params: &(Tensor, Tensor, Tensor)| {
        let (x, a, b) = params;
        let bell = (-x.square()).exp();
        let loss = ((x * a + b).tanh() * bell + x.square().log1p() * last(x)).mean(..);
        let gradient = loss.grad(params);
        (loss, gradient)
    });
    gradient_only(
        params,
        move |params| step.call(params),
        |(x, a, b), (dx, da, db)| (x - dx * 1e5_f32, a - da * 0.1_f32, b - db * 0.1_f32),
    )
}

fn tiny() -> Box<dyn Work> {
    let p = &mut Parameters::default();
    let params = (p.weight(&[8, 8], 8), p.bias(8));
    let h = tensor(&[8], 1000, 1.0, 0.0);
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
    gradient_only(
        params,
        move |params| step.call(params, &h),
        |params, gradient| zip_map([params, gradient], |[p, g]| p - g * 0.01_f32),
    )
}

#[derive(Clone, Tree)]
struct Block {
    norm1: LayerNorm,
    qkv: Dense,
    out: Dense,
    norm2: LayerNorm,
    up: Dense,
    down: Dense,
}

const WIDTH: usize = 256;
const HEADS: usize = 4;

impl Block {
    fn new() -> Block {
        let p = &mut Parameters::default();
        fn norm(p: &mut Parameters) -> LayerNorm {
            LayerNorm { scale: p.scale(WIDTH), offset: p.bias(WIDTH) }
        }
        fn dense(p: &mut Parameters, i: usize, o: usize) -> Dense {
            Dense { weight: p.weight(&[i, o], i), bias: p.bias(o) }
        }
        Block {
            norm1: norm(p),
            qkv: dense(p, WIDTH, 3 * WIDTH),
            out: dense(p, WIDTH, WIDTH),
            norm2: norm(p),
            up: dense(p, WIDTH, 4 * WIDTH),
            down: dense(p, 4 * WIDTH, WIDTH),
        }
    }

    fn apply(&self, x: &Tensor) -> Tensor {
        let [batch, positions] = [x.dim(0), x.dim(1)];
        let qkv = self.qkv.apply(&self.norm1.apply(x));
        let head = |at: isize| {
            let width = WIDTH as isize;
            let part = qkv.slice_axis(-1, at * width..(at + 1) * width);
            part.reshape([batch, positions, HEADS, WIDTH / HEADS])
        };
        let mixed = nn::attention(&head(0), &head(1), &head(2), 0.125, Mask::Causal);
        let x = x + self.out.apply(&mixed.reshape([batch, positions, WIDTH]));
        let hidden = self.up.apply(&self.norm2.apply(&x)).gelu_tanh();
        &x + self.down.apply(&hidden)
    }
}

fn transformer() -> Box<dyn Work> {
    let x = tensor(&[8, 128, WIDTH], 1000, 1.0, 0.0);
    let step = accelerate(|block: &Block, x: &Tensor| {
        let loss = block.apply(x).square().mean(..);
        let gradient = loss.grad(block);
        (loss, gradient)
    });
    gradient_only(
        Block::new(),
        move |block| step.call(block, &x),
        |block, gradient| zip_map([block, gradient], |[p, g]| p - g * 0.1_f32),
    )
}

fn matmul(n: usize) -> Box<dyn Work> {
    let (a, b) = (tensor(&[n, n], 1, 1.0, 0.0), tensor(&[n, n], 2, 1.0, 0.0));
    let product = accelerate(|a: &Tensor, b: &Tensor| a.matmul(b));
    steps(
        Tensor::from(0.0_f32),
        move |c| {
            *c = product.call(&a, &b)?;
            Ok(())
        },
        |c| item(&c.square().mean(..)),
        |_| {},
    )
}

fn dispatch1() -> Box<dyn Work> {
    let x = tensor(&[8], 1, 1.0, 0.0);
    let add = accelerate(|x: &Tensor| x + 1.0);
    steps(
        Tensor::from(0.0_f32),
        move |y| {
            *y = add.call(&x)?;
            Ok(())
        },
        |y| item(&y.sum(..)),
        |_| {},
    )
}

fn dispatch50() -> Box<dyn Work> {
    let xs: Vec<Tensor> = (1..=50).map(|k| tensor(&[8], k, 1.0, 0.0)).collect();
    let sums = accelerate(|xs: &Vec<Tensor>| xs.iter().map(|x| x.sum(..)).collect::<Vec<_>>());
    steps(
        vec![],
        move |found| {
            *found = sums.call(&xs)?;
            Ok(())
        },
        |found: &Vec<Tensor>| found.iter().map(|x| Ok(item(x)?.powi(2))).sum(),
        |_| {},
    )
}
