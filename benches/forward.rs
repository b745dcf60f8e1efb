//! Training with the gradient outside: the gain if only the forward function is accelerated.
//!
//! Each step is `value_and_grad` of a loss around the forward function, then gradient descent, which is not timed. The
//! un-accelerated and the accelerated function take turns in one run, and the medians of the times are compared. For
//! comparison the value and gradient as one accelerated function: there the loss is compiled too, with all the rest.

#![allow(clippy::print_stdout, reason = "a benchmark reports")]

use std::time::{Duration, Instant};

use retape::nn::{self, Dense};
use retape::{Result, Tensor, Tree, accelerate, value_and_grad, zip_map};

#[allow(dead_code, unreachable_pub, reason = "a module of another program, of which only the forward pass is used")]
#[path = "../examples/digits/network.rs"]
mod network;

use network::{Params, State, Training};

#[derive(Clone, Tree)]
struct Network {
    layers: Vec<Dense>,
}

impl Network {
    fn new(widths: &[usize]) -> Network {
        let layer = |(seed, pair): (usize, &[usize])| Dense::new(seed as u64, pair[0], pair[1]);
        Network { layers: widths.windows(2).enumerate().map(layer).collect() }
    }

    fn apply(&self, x: &Tensor) -> Tensor {
        let (last, hidden) = self.layers.split_last().expect("a network has layers");
        last.apply(&hidden.iter().fold(x.clone(), |x, layer| layer.apply(&x).gelu_tanh()))
    }
}

fn pixels(shape: &[usize]) -> Result<Tensor> {
    let n: usize = shape.iter().product();
    Tensor::from_vec((0..n).map(|i| (i * 7919 % 256) as f32 / 255.0).collect::<Vec<_>>(), shape)
}

fn labels(batch: usize, classes: usize) -> Tensor {
    (0..batch as i64).map(|i| i % classes as i64).collect()
}

/// Times for some steps each way, in turns. `enable` says whether the function in `loss` is accelerated.
fn compare<P: Tree + Clone + 'static>(
    name: &str,
    n_steps: usize,
    start: &P,
    loss: impl Fn(&P) -> Tensor,
    enable: impl Fn(bool),
) -> Result<()> {
    let whole = accelerate(|params: &P| value_and_grad(&loss, params).expect("the network is well-typed"));
    let mut params = start.clone();
    let mut times: [Vec<Duration>; 3] = Default::default();
    for step in 0..n_steps + 3 {
        for (way, times) in times.iter_mut().enumerate() {
            enable(way == 1);
            let start = Instant::now();
            let (_, gradient) = if way == 2 { whole.call(&params)? } else { value_and_grad(&loss, &params)? };
            // The first steps compile.
            if step >= 3 {
                times.push(start.elapsed());
            }
            params = zip_map([&params, &gradient], |[x, g]| x - g * 1e-3);
        }
    }
    let [plain, fast, whole] = times.map(|mut times| {
        times.sort();
        times[times.len() / 2]
    });
    let ratio = |time: Duration| plain.as_secs_f64() / time.as_secs_f64();
    println!("{name:6} un-accelerated {plain:>10.1?}");
    println!("       forward        {fast:>10.1?}, {:.2} times as fast", ratio(fast));
    println!("       whole gradient {whole:>10.1?}, {:.2} times as fast", ratio(whole));
    Ok(())
}

/// A network of dense layers with these widths.
fn dense(name: &str, batch: usize, widths: &[usize], n_steps: usize) -> Result<()> {
    let forward = accelerate(|net: &Network, x: &Tensor| net.apply(x));
    let (x, labels) = (pixels(&[batch, widths[0]])?, labels(batch, widths[widths.len() - 1]));
    let loss = |net: &Network| {
        let logits = forward.call(net, &x).expect("the network is well-typed");
        nn::softmax_cross_entropy_labels(&logits, &labels)
    };
    compare(name, n_steps, &Network::new(widths), loss, |is_on| forward.configure(|options| options.enabled = is_on))
}

/// The network of the digit example, with convolutions and batch normalisation.
fn digits(batch: usize, n_steps: usize) -> Result<()> {
    let forward = accelerate(|params: &Params, state: &State, x: &Tensor| params.train(state, x));
    let (x, digits, angles) = (pixels(&[batch, 28, 28, 1])?, labels(batch, 10), Tensor::zeros([batch, 1]));
    let Training { params, state, .. } = Training::new(1);
    let loss = |params: &Params| {
        let (logits, found, _) = forward.call(params, &state, &x).expect("the network is well-typed");
        nn::softmax_cross_entropy_labels(&logits, &digits) + 0.1 * nn::half_mse(&found, &angles)
    };
    compare("digits", n_steps, &params, loss, |is_on| forward.configure(|options| options.enabled = is_on))
}

fn main() -> Result<()> {
    dense("tiny", 8, &[16, 16, 16, 2], 2000)?;
    dense("small", 32, &[64, 128, 128, 10], 1000)?;
    dense("medium", 128, &[784, 256, 256, 10], 200)?;
    dense("large", 256, &[784, 1024, 1024, 10], 20)?;
    digits(32, 20)
}
