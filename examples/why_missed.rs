//! A training loop that traces in nearly every epoch, what the cache says of it, and the mended loop.
//!
//! The last batch of an epoch has another size each time, as data comes in, and the learning rate is a static value.

use retape::data::{MiniBatches, Partial};
use retape::{OnRetrace, RetracePolicy, Static, Tensor, accelerate};

const EPOCHS: u64 = 12;

/// The rows of a batch: points on the line `3 x - 1`.
fn batch(rows: &[usize]) -> Result<(Tensor, Tensor), retape::Error> {
    let x: Vec<f32> = rows.iter().map(|&row| (row as f32 * 0.61).fract()).collect();
    let y: Vec<f32> = x.iter().map(|x| 3.0 * x - 1.0).collect();
    Ok((Tensor::from_vec(x, [rows.len()])?, Tensor::from_vec(y, [rows.len()])?))
}

fn batches(epoch: u64) -> Result<MiniBatches, retape::data::DataError> {
    Ok(MiniBatches::new(100 + 3 * epoch as usize, 32)?.shuffled(1))
}

/// One step of gradient descent on `(slope, offset)`.
fn descend(line: &(Tensor, Tensor), x: &Tensor, y: &Tensor, rate: impl Into<Tensor>) -> (Tensor, Tensor) {
    let loss = (x * &line.0 + &line.1 - y).square().mean(..);
    let (rate, grad): (Tensor, (Tensor, Tensor)) = (rate.into(), loss.grad(line));
    (&line.0 - grad.0 * &rate, &line.1 - grad.1 * &rate)
}

#[allow(clippy::print_stdout, reason = "an example shows its results")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let start = (Tensor::from(0.0_f32), Tensor::from(0.0_f32));
    let rate = |epoch: u64| 0.5 / (1.0 + 0.1 * epoch as f32);
    let step = accelerate(|l: &(Tensor, Tensor), x: &Tensor, y: &Tensor, rate: &Static<f32>| descend(l, x, y, rate.0));
    let mut line = start.clone();
    for epoch in 0..EPOCHS {
        for rows in batches(epoch)?.epoch(epoch).iter() {
            let (x, y) = batch(rows)?;
            line = step.call(&line, &x, &y, Static(rate(epoch)))?;
        }
    }
    println!("hit rate {:.1} %; the last misses of {}:", 100.0 * step.hit_rate(), step.stats().misses);
    step.explain().iter().rev().take(4).rev().for_each(|miss| println!("  {miss}"));
    println!("advice:");
    step.advice().iter().for_each(|advice| println!("  {advice}"));

    // The rate is an input, batches have one size, and from now on another trace would be an error.
    let step = accelerate(|l: &(Tensor, Tensor), x: &Tensor, y: &Tensor, rate: &Tensor| descend(l, x, y, rate.clone()));
    step.configure(|options| options.retrace = RetracePolicy::from(OnRetrace::Error).after_misses(1));
    let mut line = start;
    for epoch in 0..EPOCHS {
        for rows in batches(epoch)?.partial(Partial::Discard).epoch(epoch).iter() {
            let (x, y) = batch(rows)?;
            line = step.call(&line, &x, &y, rate(epoch))?;
        }
    }
    let (slope, offset) = (line.0.item::<f32>()?, line.1.item::<f32>()?);
    println!("mended: hit rate {:.1} %; slope {slope:.3}, offset {offset:.3}", 100.0 * step.hit_rate());
    Ok(())
}
