//! Training with the gradient outside: what it gains if only the forward function is accelerated.
//!
//! Each step is `value_and_grad` of a loss around the forward function, then gradient descent, which is not timed. The
//! un-accelerated and the accelerated function take turns in one run, and the medians of the times are compared. For
//! comparison the value and gradient as one accelerated function: there the loss is compiled too, with all the rest.

#![allow(clippy::print_stdout, reason = "a benchmark reports")]

use std::time::{Duration, Instant};

use retape::nn::{self, Dense};
use retape::{Result, Tensor, Tree, accelerate, value_and_grad, zip_map};

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

    fn descend(&self, gradient: &Network) -> Network {
        zip_map([self, gradient], |[x, g]| x - g * 1e-3)
    }
}

/// Times for some steps each way, in turns.
fn compare(name: &str, batch: usize, widths: &[usize], n_steps: usize) -> Result<()> {
    let forward = accelerate(|net: &Network, x: &Tensor| net.apply(x));
    let pixels = (0..batch * widths[0]).map(|i| (i * 7919 % 256) as f32 / 255.0).collect::<Vec<_>>();
    let x = Tensor::from_vec(pixels, [batch, widths[0]])?;
    let classes = widths.last().map_or(1, |&n| n as i64);
    let labels: Tensor = (0..batch as i64).map(|i| i % classes).collect();
    let loss = |net: &Network| {
        let logits = forward.call(net, &x).expect("the network is well-typed");
        nn::softmax_cross_entropy_labels(&logits, &labels)
    };
    let whole = accelerate(|net: &Network| value_and_grad(loss, net).expect("the network is well-typed"));
    let mut net = Network::new(widths);
    let mut times: [Vec<Duration>; 3] = Default::default();
    for step in 0..n_steps + 3 {
        for (way, times) in times.iter_mut().enumerate() {
            forward.set_enabled(way == 1);
            let start = Instant::now();
            let (_, gradient) = if way == 2 { whole.call(&net)? } else { value_and_grad(loss, &net)? };
            // The first steps compile.
            if step >= 3 {
                times.push(start.elapsed());
            }
            net = net.descend(&gradient);
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

fn main() -> Result<()> {
    compare("tiny", 8, &[16, 16, 16, 2], 2000)?;
    compare("small", 32, &[64, 128, 128, 10], 1000)?;
    compare("medium", 128, &[784, 256, 256, 10], 100)?;
    compare("large", 256, &[784, 1024, 1024, 10], 20)
}
