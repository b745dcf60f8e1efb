//! A timeline of a step, computed from times of its parts: layers on one worker, and sums of two lengths.
//!
//! Two timelines, in fact: the one of today, in which gradients are summed when all of them are there, and one in which
//! they travel in buckets as the backward pass makes them, beside the computation.

use std::time::Instant;

use retape::{Tensor, Tree, accelerate, tree, value_and_grad, vjp};
use retape_dist::{Failure, World};

use crate::network::{Layer, Training, batch, forward, loss};
use crate::{Steps, median};

/// Bytes of the short and of the long sum from which latency and bandwidth follow.
const SUMS: [usize; 2] = [128 << 10, 16 << 20];

/// Gradients travel together until they have so many bytes.
const BUCKET: usize = 1 << 20;

/// Seconds for a message on a network, where none is measured.
const MESSAGE: f64 = 10e-6;

/// Seconds and bytes of one layer.
struct Part {
    forward: f64,
    backward: f64,
    gradient: usize,
}

/// What a step consists of, for the rows of one shard.
struct Parts {
    layers: Vec<Part>,
    update: f64,
}

/// How long sums take.
struct Link {
    /// Seconds for a sum of no bytes.
    latency: f64,
    /// Seconds for each byte more.
    per_byte: f64,
}

/// Measures the parts and prints what follows from them beside what was measured.
pub(crate) fn run(world: &World, steps: &Steps, n_rows: usize, n_rounds: usize) -> Result<(), Failure> {
    let link = if world.size() > 1 { Some(Link::measured(world, n_rounds)?) } else { None };
    if world.rank() == 0 {
        let parts = Parts::measured(n_rows, n_rounds)?;
        parts.print();
        parts.compare("1 worker, 1 thread", 2, &Link::NONE, &steps.one_thread);
        if let Some(link) = link {
            println!("a sum: {:.0} us and {:.2} GB/s", 1e6 * link.latency, 1e-9 / link.per_byte);
            parts.compare("2 workers, 1 thread each", 1, &link, &steps.two_workers);
        }
        parts.extrapolate();
    }
    world.barrier()?;
    Ok(())
}

impl Parts {
    fn measured(n_rows: usize, n_rounds: usize) -> Result<Parts, Failure> {
        let training = Training::new();
        let (mut x, labels) = batch(0, n_rows)?;
        let mut layers = vec![];
        for (number, layer) in training.params.layers.iter().enumerate() {
            let (y, part) = layer_times(number, layer, &x, n_rounds)?;
            layers.push(part);
            x = y;
        }
        let head = accelerate(|at: &(retape::nn::Dense, Tensor), labels: &Tensor| {
            value_and_grad(|(head, x)| loss(head, x, labels), at).expect("well-typed")
        });
        let at = (training.params.head.clone(), x);
        let seconds = seconds(n_rounds, || head.call(&at, &labels).map(drop))?;
        layers.push(Part { forward: 0.0, backward: seconds, gradient: bytes(&at.0) });
        let update = accelerate(|training: &Training| training.updated(&training.params));
        Ok(Parts { layers, update: self::seconds(n_rounds, || update.call(&training).map(drop))? })
    }

    /// The seconds of all layers.
    fn compute(&self) -> f64 {
        self.layers.iter().map(|part| part.forward + part.backward).sum()
    }

    /// The bytes of all gradients.
    fn gradient(&self) -> usize {
        self.layers.iter().map(|part| part.gradient).sum()
    }

    /// The seconds of a step in which the sum follows the computation.
    fn step(&self, n_shards: usize, link: &Link) -> f64 {
        n_shards as f64 * self.compute() + link.seconds(self.gradient()) + self.update
    }

    /// The seconds of a step of one shard in which a bucket is summed while gradients of earlier layers are computed.
    fn step_with_overlap(&self, link: &Link) -> f64 {
        let mut now: f64 = self.layers.iter().map(|part| part.forward).sum();
        let (mut is_free_at, mut bucket) = (0.0_f64, 0);
        for (n, part) in self.layers.iter().enumerate().rev() {
            now += part.backward;
            bucket += part.gradient;
            if bucket >= BUCKET || n == 0 {
                is_free_at = is_free_at.max(now) + link.seconds(bucket);
                bucket = 0;
            }
        }
        now.max(is_free_at) + self.update
    }

    /// The same step on a device that computes so many times as fast.
    fn faster(&self, times: f64) -> Parts {
        let part = |part: &Part| Part {
            forward: part.forward / times,
            backward: part.backward / times,
            gradient: part.gradient,
        };
        Parts { layers: self.layers.iter().map(part).collect(), update: self.update / times }
    }

    fn print(&self) {
        println!("\nlayer    forward   backward    gradient");
        for (n, Part { forward, backward, gradient }) in self.layers.iter().enumerate() {
            println!("{n:>5} {:>7.1} ms {:>7.1} ms {gradient:>9} B", 1e3 * forward, 1e3 * backward);
        }
        println!("update {:.1} ms, gradients {} B\n", 1e3 * self.update, self.gradient());
    }

    fn compare(&self, name: &str, n_shards: usize, link: &Link, steps: &[f64]) {
        let (predicted, measured) = (self.step(n_shards, link), median(steps.to_vec()));
        println!(
            "{name:<26} predicted {:>8.1} ms, measured {:>8.1} ms, {:+.1} %; sum {:.2} % of the step",
            1e3 * predicted,
            1e3 * measured,
            1e2 * (predicted / measured - 1.0),
            1e2 * link.seconds(self.gradient()) / predicted
        );
    }

    /// Steps of one shard for each worker, over a network: the part of them that is computation.
    fn extrapolate(&self) {
        println!("\nseconds computed of a second, without and with overlap; one shard a worker");
        println!("{:>8} {:>8} {:>24} {:>24}", "workers", "Gbit/s", "as measured", "100 times as fast");
        for gbits in [25.0, 200.0] {
            for n_workers in [8, 64, 512] {
                let link = Link::network(n_workers, gbits);
                let shares = |parts: &Parts| {
                    let alone = parts.step(1, &Link::NONE);
                    format!("{:.4} {:.4}", alone / parts.step(1, &link), alone / parts.step_with_overlap(&link))
                };
                println!("{n_workers:>8} {gbits:>8} {:>24} {:>24}", shares(self), shares(&self.faster(100.0)));
            }
        }
    }
}

impl Link {
    /// No other worker.
    const NONE: Link = Link { latency: 0.0, per_byte: 0.0 };

    /// The line through the times of a short and a long sum.
    fn measured(world: &World, n_rounds: usize) -> Result<Link, Failure> {
        let mut times = vec![];
        for bytes in SUMS {
            let tensor = Tensor::zeros([bytes / 4]);
            times.push(seconds(10 * n_rounds, || {
                world.barrier().map_err(|error| retape::Error::Communication(error.to_string()))?;
                let sum = world.sum(&tensor);
                sum.error().map_or(Ok(()), |error| Err(error.clone()))
            })?);
        }
        let per_byte = (times[1] - times[0]) / (SUMS[1] - SUMS[0]) as f64;
        Ok(Link { latency: (times[0] - per_byte * SUMS[0] as f64).max(0.0), per_byte })
    }

    /// A network, by arithmetic: two rounds of a message to each other worker.
    fn network(n_workers: usize, gbits: f64) -> Link {
        let others = (n_workers - 1) as f64;
        Link { latency: 2.0 * others * MESSAGE, per_byte: 2.0 * others / n_workers as f64 * 8.0 / (gbits * 1e9) }
    }

    fn seconds(&self, bytes: usize) -> f64 {
        self.latency + self.per_byte * bytes as f64
    }
}

/// A layer's result and its times.
fn layer_times(number: usize, layer: &Layer, x: &Tensor, n_rounds: usize) -> Result<(Tensor, Part), Failure> {
    let alone = accelerate(move |layer: &Layer, x: &Tensor| forward(number, layer, x));
    let y = alone.call(layer, x)?;
    let gradient = bytes(layer);
    let forth = seconds(n_rounds, || alone.call(layer, x).map(drop))?;
    let both = if number == 0 {
        // Nothing asks for the gradient of images.
        let first = accelerate(move |layer: &Layer, x: &Tensor, ct: &Tensor| {
            vjp(|layer: &Layer| forward(number, layer, x), layer, ct).expect("well-typed")
        });
        seconds(n_rounds, || first.call(layer, x, &y).map(drop))?
    } else {
        let at = (layer.clone(), x.clone());
        let other = accelerate(move |at: &(Layer, Tensor), ct: &Tensor| {
            vjp(|(layer, x): &(Layer, Tensor)| forward(number, layer, x), at, ct).expect("well-typed")
        });
        seconds(n_rounds, || other.call(&at, &y).map(drop))?
    };
    Ok((y, Part { forward: forth, backward: both - forth, gradient }))
}

/// The median time of a call, behind a first one that compiles.
fn seconds(n_rounds: usize, call: impl Fn() -> retape::Result<()>) -> Result<f64, Failure> {
    call()?;
    let mut times = vec![];
    for _ in 0..n_rounds {
        let start = Instant::now();
        call()?;
        times.push(start.elapsed().as_secs_f64());
    }
    Ok(median(times))
}

/// The bytes of all tensors of a tree.
fn bytes<T: Tree>(of: &T) -> usize {
    tree::named(of).iter().map(|(_, tensor)| tensor.n_elements() * tensor.dtype().size()).sum()
}
