//! Many trainings side by side: a search over options, or the same training from several seeds.
//!
//! The trainings are independent: one that fails or panics leaves the others alone. They share the threads of the engine
//! and run at most as many at a time as the machine has processor cores, so that the number of threads at work stays
//! bounded; the bits of each are those that it would have alone.
//!
//! ```
//! use retape::{Tensor, accelerate};
//! use retape_train::sweep::{Sweep, grid};
//!
//! let outcomes = Sweep::new(grid(&[("rate", &[0.1, 0.01]), ("start", &[1.0, 2.0])])).run(|trial| {
//!     let (rate, start) = (trial.options.get("rate")?, trial.options.get("start")?);
//!     let step = accelerate(move |w: &Tensor| w - w.square().sum(..).grad(w) * rate);
//!     let mut w = Tensor::from(start);
//!     for _ in 0..20 {
//!         w = step.call(w)?;
//!     }
//!     Ok(w.item::<f64>()?)
//! });
//! let best = outcomes.ranked(|w| w.abs()).next().expect("four trainings");
//! assert_eq!(best.options.to_string(), "rate 0.1, start 1");
//! println!("{}", outcomes.table(|w| vec![("weight", format!("{w:.4}"))]));
//! # Ok::<(), retape_train::Error>(())
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use retape::Device;
use retape::data::Random;

use crate::error::{Error, Result};
use crate::guarded::guarded;
use crate::lock::{into_inner, lock};

/// The stream of random numbers for options.
const CHOICE: u64 = 0x63686F696365;

/// Values by name: a point of a [`grid`].
#[derive(Clone, Debug, PartialEq)]
pub struct Choice<V = f64>(Vec<(String, V)>);

impl<V: Clone> Choice<V> {
    /// The value of this name.
    ///
    /// # Errors
    ///
    /// Fails if there is none, and lists the names that there are.
    #[track_caller]
    pub fn get(&self, name: &str) -> Result<V> {
        let at = Location::caller();
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone()).ok_or_else(|| {
            let names: Vec<&str> = self.0.iter().map(|(name, _)| name.as_str()).collect();
            Error::argument_at(format!("no option is called `{name}`; there are {}", names.join(", ")), Some(at))
        })
    }
}

impl<V: fmt::Display> fmt::Display for Choice<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(name, value)| format!("{name} {value}")).collect();
        f.write_str(&parts.join(", "))
    }
}

/// Every combination of the values of each option; the last option changes first.
///
/// The values have one type. Options of several types are variants of an enum:
///
/// ```
/// use retape_train::sweep::{Choice, grid};
///
/// #[derive(Clone, Debug, PartialEq)]
/// enum Value {
///     Rate(f64),
///     Optimiser(&'static str),
/// }
/// use Value::{Optimiser, Rate};
///
/// let choices: Vec<Choice<Value>> =
///     grid(&[("optimiser", &[Optimiser("sgd"), Optimiser("adam")]), ("rate", &[Rate(0.1), Rate(0.01), Rate(0.001)])]);
/// assert_eq!(choices.len(), 6);
/// assert_eq!((choices[4].get("optimiser")?, choices[4].get("rate")?), (Optimiser("adam"), Rate(0.01)));
/// # Ok::<(), retape_train::Error>(())
/// ```
pub fn grid<V: Clone>(axes: &[(&str, &[V])]) -> Vec<Choice<V>> {
    let mut choices = vec![Choice(vec![])];
    for (name, values) in axes {
        let with = |choice: &Choice<V>, value: &V| {
            let mut choice = choice.clone();
            choice.0.push(((*name).to_owned(), value.clone()));
            choice
        };
        choices = choices.iter().flat_map(|choice| values.iter().map(move |value| with(choice, value))).collect();
    }
    choices
}

/// `n` options drawn at random, each from a generator that follows from `seed` and its number alone.
///
/// ```
/// let rates = retape_train::sweep::random(3, 7, |random| 10_f64.powf(-4.0 + 3.0 * random.unit()));
/// assert!(rates.iter().all(|rate| (1e-4..1e-1).contains(rate)));
/// assert_eq!(rates[..2], retape_train::sweep::random(2, 7, |random| 10_f64.powf(-4.0 + 3.0 * random.unit())));
/// ```
pub fn random<O>(n: usize, seed: u64, mut draw: impl FnMut(&mut Random) -> O) -> Vec<O> {
    (0..n).map(|number| draw(&mut Random::new(seed, CHOICE, number as u64))).collect()
}

/// Trainings to be done, each with its options.
#[derive(Clone, Debug)]
pub struct Sweep<O> {
    options: Vec<O>,
    /// How many run at a time, if it was said.
    n_parallel: Option<usize>,
    devices: Vec<Device>,
}

/// A training under way.
#[derive(Clone, Copy, Debug)]
pub struct Trial<'o, O> {
    /// Its number, from 0.
    pub number: usize,
    /// Its options.
    pub options: &'o O,
    /// The device that it is to use.
    pub device: Device,
    /// How many threads of its own it may have, such as those of a loader.
    pub n_threads: usize,
}

/// The outcome of a training.
#[derive(Debug)]
pub struct Outcome<O, R> {
    /// Its options.
    pub options: O,
    /// Its device.
    pub device: Device,
    /// Its result, or how it failed.
    pub result: Result<R>,
    /// How long it took.
    pub time: Duration,
}

/// The outcomes of all trainings, in the order of their options.
#[derive(Debug)]
pub struct Outcomes<O, R>(pub Vec<Outcome<O, R>>);

impl<O: Send + Sync> Sweep<O> {
    /// A training for each of these options, on the processor.
    pub fn new(options: impl IntoIterator<Item = O>) -> Sweep<O> {
        Sweep { options: options.into_iter().collect(), n_parallel: None, devices: vec![Device::Cpu] }
    }

    /// Sets how many run at a time: at least one, and at most as many as there are processor cores.
    ///
    /// Unless it is set, they are as many as there are cores; if there is a GPU among the devices, whose memory they would
    /// share, one on each device.
    #[must_use]
    pub fn parallel(self, n: usize) -> Sweep<O> {
        Sweep { n_parallel: Some(n), ..self }
    }

    /// Sets the devices, which are given out in turn: training `i` gets device `i` modulo their number. No device has more
    /// than its share of those that run at a time, rounded up.
    #[must_use]
    pub fn devices(self, devices: impl IntoIterator<Item = Device>) -> Sweep<O> {
        let devices: Vec<Device> = devices.into_iter().collect();
        Sweep { devices: if devices.is_empty() { vec![Device::Cpu] } else { devices }, ..self }
    }

    /// Does all trainings. One that fails or panics is an error in its place.
    pub fn run<R: Send>(self, train: impl Fn(&Trial<'_, O>) -> Result<R> + Sync) -> Outcomes<O, R> {
        let n_devices = self.devices.len();
        let has_gpu = self.devices.iter().any(|device| *device != Device::Cpu);
        let n_parallel = self.n_parallel.unwrap_or(if has_gpu { n_devices } else { n_cores() });
        let n_parallel = n_parallel.clamp(1, n_cores()).min(self.options.len());
        let n_threads = (n_cores() / n_parallel.max(1)).max(1);
        let queue = Mutex::new(Queue::new(self.options.len(), n_devices, n_parallel.div_ceil(n_devices)));
        let done = Mutex::new(vec![]);
        // In a closure, so that the lock is not held for as long as the training runs.
        let next = || lock(&queue).start();
        let work = || {
            while let Some(number) = next() {
                let start = Instant::now();
                let device = self.devices[number % n_devices];
                let trial = Trial { number, options: &self.options[number], device, n_threads };
                let result = guarded(|| format!("training {number}"), || train(&trial));
                lock(&queue).n_running[number % n_devices] -= 1;
                lock(&done).push((number, result, start.elapsed()));
            }
        };
        thread::scope(|scope| {
            // The caller's thread works too: without any other, one training follows another.
            for _ in 1..n_parallel {
                let _ = thread::Builder::new().name("sweep".to_owned()).spawn_scoped(scope, work);
            }
            work();
        });
        let mut done = into_inner(done);
        done.sort_by_key(|(number, ..)| *number);
        let devices = self.devices;
        let outcomes = self.options.into_iter().zip(done).map(|(options, (number, result, time))| Outcome {
            options,
            device: devices[number % devices.len()],
            result,
            time,
        });
        Outcomes(outcomes.collect())
    }
}

/// The trainings that have not begun, and how many run on each device.
struct Queue {
    waiting: VecDeque<usize>,
    n_running: Vec<usize>,
    /// How many may run on a device.
    most: usize,
}

impl Queue {
    fn new(n: usize, n_devices: usize, most: usize) -> Queue {
        Queue { waiting: (0..n).collect(), n_running: vec![0; n_devices], most }
    }

    /// The first training whose device has room. If there is none, those that run on the devices begin what is left.
    fn start(&mut self) -> Option<usize> {
        let n_devices = self.n_running.len();
        let place = self.waiting.iter().position(|number| self.n_running[number % n_devices] < self.most)?;
        let number = self.waiting.remove(place)?;
        self.n_running[number % n_devices] += 1;
        Some(number)
    }
}

impl<O, R> Outcomes<O, R> {
    /// The trainings that did not fail, the one of the smallest key first; those of which it is NaN come last.
    pub fn ranked(&self, key: impl Fn(&R) -> f64) -> impl Iterator<Item = &Outcome<O, R>> {
        let with_key = |outcome| match outcome {
            &Outcome { result: Ok(ref result), .. } => Some((key(result), outcome)),
            _ => None,
        };
        let mut ranked: Vec<(f64, &Outcome<O, R>)> = self.0.iter().filter_map(with_key).collect();
        ranked.sort_by(|(a, _), (b, _)| a.is_nan().cmp(&b.is_nan()).then(a.total_cmp(b)));
        ranked.into_iter().map(|(_, outcome)| outcome)
    }

    /// A table with a row per training: its options, its device, its time, and the columns that `columns` makes of what
    /// it gave; the error in their place if it failed.
    pub fn table(&self, columns: impl Fn(&R) -> Vec<(&'static str, String)>) -> String
    where
        O: fmt::Display,
    {
        let results: Vec<_> = self.0.iter().map(|outcome| outcome.result.as_ref().map(&columns)).collect();
        let names: Vec<&str> = results.iter().flatten().next().into_iter().flatten().map(|(name, _)| *name).collect();
        let mut lines = vec![["options", "device", "seconds"].into_iter().chain(names).map(str::to_owned).collect()];
        for (outcome, result) in self.0.iter().zip(results) {
            let seconds = format!("{:.1}", outcome.time.as_secs_f64());
            let mut line: Vec<String> = vec![outcome.options.to_string(), outcome.device.to_string(), seconds];
            match result {
                Ok(cells) => line.extend(cells.into_iter().map(|(_, cell)| cell)),
                Err(error) => line.push(format!("failed: {}", error.to_string().replace('\n', " "))),
            }
            lines.push(line);
        }
        aligned(&lines)
    }
}

/// Lines of cells with columns as wide as their widest cell; the last of a line may be longer.
fn aligned(lines: &[Vec<String>]) -> String {
    let n_columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = lines.iter().filter(|line| line.len() > column + 1).map(|line| line[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..n_columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

fn n_cores() -> usize {
    thread::available_parallelism().map_or(1, |n| n.get())
}
