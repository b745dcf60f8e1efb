//! A small network learns which of three arms of a spiral a point is on.

#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use retape::nn::{self, Dense};
use retape::optim::{Adam, AdamState};
use retape::{Tensor, Tree, accelerate};

#[derive(Clone, Tree)]
struct Network {
    hidden: Dense,
    deeper: Dense,
    out: Dense,
}

impl Network {
    fn apply(&self, x: &Tensor) -> Tensor {
        let h = self.hidden.apply(x).tanh();
        self.out.apply(&self.deeper.apply(&h).tanh())
    }
}

/// Points on three arms, with the number of the arm.
fn spiral(n: usize) -> retape::Result<(Tensor, Tensor)> {
    let (mut points, mut arms) = (vec![], vec![]);
    for i in 0..n {
        let (arm, radius) = (i % 3, i as f32 / n as f32);
        let wobble = 0.1 * ((i * 37 % 19) as f32 / 9.0 - 1.0);
        let angle = 4.0 * radius + arm as f32 * std::f32::consts::TAU / 3.0 + wobble;
        points.extend([radius * angle.cos(), radius * angle.sin()]);
        arms.push(arm as i64);
    }
    Ok((Tensor::from_vec(points, [n, 2])?, Tensor::from(arms)))
}

fn main() -> retape::Result<()> {
    let (x, arms) = spiral(300)?;
    let adam = Adam::new();
    let step = accelerate(|net: &Network, state: &AdamState<Network>, x: &Tensor, arms: &Tensor, rate: &Tensor| {
        let loss = nn::softmax_cross_entropy_labels(&net.apply(x), arms);
        let gradient = loss.grad(net);
        (loss, adam.update(net, &gradient, state, rate))
    });
    let mut net = Network { hidden: Dense::new(1, 2, 32), deeper: Dense::new(2, 32, 32), out: Dense::new(3, 32, 3) };
    let mut state = adam.init(&net);
    for i in 0..=400 {
        let rate = 0.01 / (1.0 + 0.01 * i as f32);
        // Passed by value, the network and its state are written over by the next ones.
        let (loss, next) = step.call(net, state, &x, &arms, rate)?;
        (net, state) = next;
        if i % 100 == 0 {
            println!("step {i:3}  loss {:.4}  hit rate {:.2} %", loss.item::<f32>()?, 100.0 * step.hit_rate());
        }
    }
    let right = net.apply(&x).argmax(-1).eq(&arms).cast(retape::DType::F32).mean(..);
    println!("{:.1} % of the points on their arm", 100.0 * right.item::<f32>()?);
    Ok(())
}
