//! Trains a residual network on photos of flowers, on as many workers as there are: processes of a launcher, threads of
//! this process, or this one alone. The weights after it are the same bits for each number of workers. `--help` lists the
//! options.
//!
//! ```text
//! cargo run --release -p retape-dist --example flowers
//! cargo run --release -p retape-dist --example flowers -- --workers 3
//! mpirun -n 4 --oversubscribe target/release/examples/flowers
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to its user")]

mod checkpoints;
mod data;
mod draw;
mod network;
mod options;
mod train;

use std::process::ExitCode;

use options::{USAGE, options};
use retape_dist::{Failure, World};
use train::train;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let options = options()?;
    if options.help {
        println!("{USAGE}");
        return Ok(());
    }
    let world = retape_dist::init()?;
    match options.workers {
        Some(n) if world.size() > 1 => {
            Err(format!("--workers {n} are threads, and a launcher started {} processes", world.size()).into())
        }
        Some(n) => {
            World::threads(n, |world| train(&options, world))?;
            Ok(())
        }
        // Told while the world is there: the others wait, and would only learn that this worker has come to its end.
        None => train(&options, world.clone()).inspect_err(|error| world.fail(&error.to_string())),
    }
}
