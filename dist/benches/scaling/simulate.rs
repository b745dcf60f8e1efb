//! A timeline of a step, computed from times of its parts: layers on one worker, and sums of two lengths.
//!
//! Two timelines, in fact: the one of today, in which gradients are summed when all of them are there, and one in which
//! they travel in buckets as the backward pass makes them, beside the computation.

use std::time::Instant;

use retape::nn::Dense;
use retape::{Tensor, Tree, accelerate, tree, value_and_grad, vjp};
use retape_dist::{Failure, World};

use crate::network::{Layer, Training, batch, forward, loss};
use crate::{Steps, median};

/// Bytes of the short and of the long sum from which latency and bandwidth follow.
const SUMS: [usize; 2] = [256 << 10, 4 << 20];

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

/// The parts of a step, for the rows of one shard.
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

/// A call whose time is measured.
type Probe = Box<dyn Fn() -> retape::Result<()>>;

/// The calls that measure the parts of a step, one round after the other.
pub(crate) struct Probes {
    /// For each layer and the head its forward pass, and both passes; at last the update.
    calls: Vec<Probe>,
    times: Vec<Vec<f64>>,
    gradients: Vec<usize>,
}

impl Probes {
    pub(crate) fn new(n_rows: usize) -> Result<Probes, Failure> {
        let training = Training::new();
        let (mut x, labels) = batch(0, n_rows)?;
        let (mut calls, mut gradients): (Vec<Probe>, _) = (vec![], vec![]);
        for (number, layer) in training.params.layers.iter().enumerate() {
            let (y, forth, both) = of_layer(number, layer.clone(), x)?;
            calls.extend([forth, both]);
            gradients.push(bytes(layer));
            x = y;
        }
        let head = training.params.head.clone();
        gradients.push(bytes(&head));
        let losses = accelerate(|head: &Dense, x: &Tensor, labels: &Tensor| loss(head, x, labels));
        let slopes = accelerate(|at: &(Dense, Tensor), labels: &Tensor| {
            value_and_grad(|(head, x)| loss(head, x, labels), at).expect("the loss is a number")
        });
        let (at, of) = ((head, x), labels.clone());
        let forth_at = at.clone();
        calls.push(Box::new(move || losses.call(&forth_at.0, &forth_at.1, &of).map(drop)));
        calls.push(Box::new(move || slopes.call(&at, &labels).map(drop)));
        let update = accelerate(|training: &Training| training.updated(&training.params));
        calls.push(Box::new(move || update.call(&training).map(drop)));
        let probes = Probes { times: vec![vec![]; calls.len()], calls, gradients };
        // The first calls compile.
        probes.calls.iter().try_for_each(|call| call())?;
        Ok(probes)
    }

    /// Measures each part once.
    pub(crate) fn round(&mut self) -> Result<(), Failure> {
        for (call, times) in self.calls.iter().zip(&mut self.times) {
            let start = Instant::now();
            call()?;
            times.push(start.elapsed().as_secs_f64());
        }
        Ok(())
    }

    fn parts(&self) -> Parts {
        let times: Vec<f64> = self.times.iter().map(|times| median(times.clone())).collect();
        let part = |(passes, &gradient): (&[f64], &usize)| Part {
            forward: passes[0],
            backward: (passes[1] - passes[0]).max(0.0),
            gradient,
        };
        let layers = times.chunks_exact(2).zip(&self.gradients).map(part).collect();
        Parts { layers, update: times.last().copied().unwrap_or(0.0) }
    }
}

/// Prints what follows from the parts beside what was measured.
pub(crate) fn run(world: &World, steps: &Steps, probes: &Probes, n_rounds: usize) -> Result<(), Failure> {
    let link = if world.size() > 1 { Some(Link::measured(world, 20 * n_rounds)?) } else { None };
    if world.rank() == 0 {
        let parts = probes.parts();
        parts.print();
        parts.compare("1 worker, 1 thread", 2, &Link::NONE, &steps.one_thread);
        if let Some(link) = link {
            parts.compare("2 workers, 1 thread each", 1, &link, &steps.two_workers);
            println!("a sum of the gradients {:.2} ms", 1e3 * link.seconds(parts.gradient()));
        }
        parts.extrapolate();
    }
    world.barrier()?;
    Ok(())
}

impl Parts {
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
        println!("\npart of a step that is computation, without and with overlap; one shard a worker");
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
        let tensors = SUMS.map(|bytes| Tensor::zeros([bytes / 4]));
        let mut times = [vec![], vec![]];
        for round in 0..=n_rounds {
            for (tensor, times) in tensors.iter().zip(&mut times) {
                world.barrier()?;
                let start = Instant::now();
                let sum = world.sum(tensor);
                let seconds = start.elapsed().as_secs_f64();
                if let Some(error) = sum.error() {
                    return Err(error.clone().into());
                }
                // The first round compiles.
                times.extend((round > 0).then_some(seconds));
            }
        }
        let [short, long] = times.map(median);
        let per_byte = (long - short) / (SUMS[1] - SUMS[0]) as f64;
        Ok(Link { latency: (short - per_byte * SUMS[0] as f64).max(0.0), per_byte })
    }

    /// A network, by arithmetic: a head and two rounds of a body to each other worker.
    fn network(n_workers: usize, gbits: f64) -> Link {
        let others = (n_workers - 1) as f64;
        Link { latency: 3.0 * others * MESSAGE, per_byte: 2.0 * others / n_workers as f64 * 8.0 / (gbits * 1e9) }
    }

    fn seconds(&self, bytes: usize) -> f64 {
        self.latency + self.per_byte * bytes as f64
    }
}

/// The output of a layer, and calls of its forward pass and of both passes.
fn of_layer(number: usize, layer: Layer, x: Tensor) -> retape::Result<(Tensor, Probe, Probe)> {
    let alone = accelerate(move |layer: &Layer, x: &Tensor| forward(number, layer, x));
    let y = alone.call(&layer, &x)?;
    let at = (layer, x);
    let (forth_at, ct) = (at.clone(), y.clone());
    let forth: Probe = Box::new(move || alone.call(&forth_at.0, &forth_at.1).map(drop));
    if number == 0 {
        // Nothing asks for the gradient of images.
        let both = accelerate(move |layer: &Layer, x: &Tensor, ct: &Tensor| {
            vjp(|layer: &Layer| forward(number, layer, x), layer, ct).expect("well-typed")
        });
        return Ok((y, forth, Box::new(move || both.call(&at.0, &at.1, &ct).map(drop))));
    }
    let both = accelerate(move |at: &(Layer, Tensor), ct: &Tensor| {
        vjp(|(layer, x): &(Layer, Tensor)| forward(number, layer, x), at, ct).expect("well-typed")
    });
    Ok((y, forth, Box::new(move || both.call(&at, &ct).map(drop))))
}

/// The bytes of all tensors of a tree.
fn bytes<T: Tree>(of: &T) -> usize {
    tree::named(of).iter().map(|(_, tensor)| tensor.n_elements() * tensor.dtype().size()).sum()
}
