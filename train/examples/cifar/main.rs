//! Trains the network of a published experiment with CIFAR-10's images, a folder of images, or synthetic objects in ten
//! classes, with everything around it: augmentation, schedule, validation, checkpoints, plots, a page to watch it, and
//! several trainings side by side. `--help` lists the options.

#![allow(clippy::print_stdout, reason = "an example talks to its user")]

mod data;
mod network;
mod options;
mod train;

use std::fs;
use std::process::ExitCode;

use options::{Options, USAGE, options};
use retape_dist::World;
use retape_train::metrics::Confusion;
use retape_train::monitor::Monitor;
#[cfg(feature = "web")]
use retape_train::monitor::Web;
use retape_train::sweep::Sweep;
use retape_train::{DeviceTable, Execution, Result};
use train::{Steps, Trained, train};

type AnyError = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> std::result::Result<(), AnyError> {
    let mut options = options()?;
    if options.help {
        println!("{USAGE}");
        return Ok(());
    }
    if options.dry_run {
        // Its accuracy is that of one batch, and may be better than any.
        options.out.push("dry-run");
    }
    if options.devices {
        print!("{}", DeviceTable::read());
        return Ok(());
    }
    let world = retape_dist::init()?;
    if options.models > 1 {
        return side_by_side(&options, &world);
    }
    let one = |world: &World| -> Result<Trained> {
        fs::create_dir_all(&options.out).map_err(retape_train::Error::custom)?;
        train(&options, world, &options.out, monitor(&options, world)?)
    };
    let trained = match options.workers {
        Some(n) if world.size() > 1 => {
            return Err(format!("--workers {n} are threads, and a launcher started {} processes", world.size()).into());
        }
        Some(n) => World::threads(n, |world| Ok(one(&world)?))?.swap_remove(0),
        // Told while the world is there: the others wait, and would only learn that this worker has come to its end.
        None => one(&world).inspect_err(|error| world.fail(&error.to_string()))?,
    };
    if world.rank() == 0 {
        report(&options, &trained);
    }
    Ok(())
}

fn report(options: &Options, trained: &Trained) {
    let Trained { confusion, steps, end } = trained;
    println!();
    print!("{}", Table(confusion));
    println!("ended        {}", end.as_ref().map_or("before the first step".to_owned(), |end| format!("{end:?}")));
    match steps {
        Some(Steps { loss, examples_per_second: speed, waiting }) => {
            println!("loss         {loss:.4} of the last batch");
            println!(
                "speed        {speed:.0} images per second, {:.1} % of the time waiting for data",
                100.0 * waiting
            );
        }
        None => println!("steps        none was left to be done; a larger --epochs goes on"),
    }
    println!("accuracy     {:.2} % of {} images held out", 100.0 * confusion.accuracy(), confusion.n());
    println!("plots, log, model and checkpoints are in {}", options.out.display());
}

/// The monitor of a worker: each has a log, that of worker 0 shows all.
fn monitor(options: &Options, world: &World) -> Result<Monitor> {
    let rank = world.rank();
    let monitor = Monitor::new("cifar").of_rank(rank).stop_on_ctrl_c()?;
    if rank > 0 {
        return monitor.json_lines(options.out.join(format!("log.{rank}.jsonl")));
    }
    let monitor = monitor.json_lines(options.out.join("log.jsonl"))?;
    let monitor = monitor.tensor_board(options.out.join("board"))?;
    if !options.web {
        return Ok(monitor);
    }
    #[cfg(feature = "web")]
    return monitor.web(Web::default());
    #[cfg(not(feature = "web"))]
    Err(retape_train::Error::custom("--web needs the feature: run it with `--features web`"))
}

/// Several trainings side by side, which differ in seed and rate.
fn side_by_side(options: &Options, world: &World) -> std::result::Result<(), AnyError> {
    if world.size() > 1 || options.workers.is_some() {
        return Err("--models trains each model on one worker".into());
    }
    let rates = [1.0, 0.5, 2.0];
    let one = |number: usize| Options {
        seed: options.seed + number as u64,
        rate: options.rate * rates[number % rates.len()],
        out: options.out.join(format!("model-{number}")),
        ..options.clone()
    };
    let devices = options.device.devices()?;
    let sweep = Sweep::new((0..options.models).map(one).map(Named)).devices(devices);
    let outcomes = sweep.run(|trial| {
        let Named(options) = trial.options;
        let options = Options { loaders: options.loaders.min(trial.n_threads), ..options.clone() };
        fs::create_dir_all(&options.out).map_err(retape_train::Error::custom)?;
        let options = Options { device: Execution::On(trial.device), ..options };
        train(&options, world, &options.out, Monitor::new(&format!("model {}", trial.number)))
    });
    let table = outcomes.table(|trained| {
        let accuracy = format!("{:.2} %", 100.0 * trained.confusion.accuracy());
        let loss = trained.steps.as_ref().map_or("no step was left".to_owned(), |steps| format!("{:.4}", steps.loss));
        vec![("accuracy", accuracy), ("loss", loss)]
    });
    print!("\n{table}");
    match outcomes.ranked(|trained| -trained.confusion.accuracy()).next() {
        Some(best) => println!("the best: {}", best.options),
        None => return Err("all trainings failed".into()),
    }
    Ok(())
}

/// Options by what tells the trainings apart.
struct Named(Options);

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "seed {}, rate {}", self.0.seed, self.0.rate)
    }
}

/// A confusion matrix as text: a row for each class, a column for each that it was taken for.
struct Table<'c>(&'c Confusion);

impl std::fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (class, counts) in self.0.value().iter().enumerate() {
            write!(f, "class {class:<3}")?;
            counts.iter().try_for_each(|n| write!(f, "{n:>6}"))?;
            writeln!(f, "   {:>5.1} % found", 100.0 * self.0.recall(class))?;
        }
        Ok(())
    }
}
