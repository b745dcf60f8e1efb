//! A step of the training kit's network for CIFAR on two workers of one thread each, beside one worker of one thread and
//! one of two threads, in alternating rounds of one run; with `--simulate`, beside a timeline that is computed.
//!
//! `mpirun -n 2 --bind-to none PROGRAM [--simulate]`, with the program that `cargo bench -p retape-dist --bench scaling
//! --no-run` names: launchers bind a process to one core, unless they are told not to, and two threads need two.
//! All of them divide a batch of 256 images into two shards, so they train to the same bits, which is checked. Without a
//! launcher there are no two workers.

#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]

mod network;
mod simulate;

use std::hint::black_box;
use std::time::Instant;

use retape::{Tensor, accelerate, set_n_threads};
use retape_dist::{Failure, World};

use network::{Batch, Training, batch};
use simulate::Probes;

const N_SHARDS: usize = 2;

fn main() -> Result<(), Failure> {
    let is_given = |name: &str| std::env::args().any(|argument| argument == name);
    let is_test = is_given("--test");
    let (n_rows, n_rounds) = if is_test { (2, 1) } else { (128, 7) };
    let world = retape_dist::init()?.with_shards(N_SHARDS)?;
    World::threads(1, |alone| {
        let simulates = is_given("--simulate") || is_test;
        let mut probes = if simulates { Some(Probes::new(n_rows)?) } else { None };
        let steps = rounds(&world, &alone.with_shards(N_SHARDS)?, n_rows, n_rounds, probes.as_mut())?;
        if world.rank() == 0 {
            steps.print();
        }
        probes.map_or(Ok(()), |probes| simulate::run(&world, &steps, &probes, n_rounds))
    })?;
    Ok(())
}

/// Seconds of each step, by round.
#[derive(Default)]
struct Steps {
    two_workers: Vec<f64>,
    one_thread: Vec<f64>,
    two_threads: Vec<f64>,
}

/// Worker 0 steps together with worker 1, then alone, and measures the parts of a step, round by round.
fn rounds(
    world: &World,
    alone: &World,
    n_rows: usize,
    n_rounds: usize,
    mut probes: Option<&mut Probes>,
) -> Result<Steps, Failure> {
    let shards: Vec<Batch> = (0..N_SHARDS).map(|shard| batch(shard, n_rows)).collect::<Result<_, _>>()?;
    let own = shards[world.shards()].to_vec();
    let step_of = |world: &World| {
        let world = world.clone();
        accelerate(move |training: &Training, shards: &Vec<Batch>| training.step(&world, shards))
    };
    let (together, by_itself) = (step_of(world), step_of(alone));
    let mut states = [Training::new(), Training::new(), Training::new()];
    let mut steps = Steps::default();
    for _ in 0..=n_rounds {
        world.barrier()?;
        set_n_threads(1);
        if world.size() > 1 {
            steps.two_workers.push(timed(&mut states[0], |state| together.call(state, &own))?);
        }
        if world.rank() == 0 {
            steps.one_thread.push(timed(&mut states[1], |state| by_itself.call(state, &shards))?);
            set_n_threads(2);
            steps.two_threads.push(timed(&mut states[2], |state| by_itself.call(state, &shards))?);
            set_n_threads(1);
            probes.as_mut().map_or(Ok(()), |probes| probes.round())?;
        }
    }
    let digests = [world.digest(&states[0])?, world.digest(&states[1])?, world.digest(&states[2])?];
    let is_same = digests[1] == digests[2] && (world.size() == 1 || digests[0] == digests[1]);
    if world.rank() == 0 && !is_same {
        return Err(format!("the steps have other bits: {digests:?}").into());
    }
    // The first round compiles.
    for times in [&mut steps.two_workers, &mut steps.one_thread, &mut steps.two_threads] {
        times.drain(..times.len().min(1));
    }
    Ok(steps)
}

/// The seconds that a step takes.
fn timed(state: &mut Training, step: impl Fn(&Training) -> retape::Result<(Tensor, Training)>) -> Result<f64, Failure> {
    let start = Instant::now();
    let (loss, after) = step(state)?;
    black_box(loss.item::<f32>()?);
    let seconds = start.elapsed().as_secs_f64();
    *state = after;
    Ok(seconds)
}

impl Steps {
    fn print(&self) {
        let rows = [
            ("1 worker, 1 thread", &self.one_thread),
            ("1 worker, 2 threads", &self.two_threads),
            ("2 workers, 1 thread each", &self.two_workers),
        ];
        println!("{:<26} {:>12} {:>22}", "step", "median", "times as fast (median)");
        for (name, times) in rows.into_iter().filter(|(_, times)| !times.is_empty()) {
            let ratios = self.one_thread.iter().zip(times).map(|(one, other)| one / other).collect();
            println!("{name:<26} {:>9.1} ms {:>22.2}", 1e3 * median(times.clone()), median(ratios));
        }
    }
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(f64::NAN)
}
