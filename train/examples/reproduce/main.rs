//! Trains a denoising autoencoder of digits several times, and compares all parameters bit by bit: twice from one seed,
//! from two seeds, with one thread and with two, on a GPU if there is one, and with a training that is killed and resumed.
//!
//! `--epochs N` (5), `--train N` (4000) and `--test N` (1000) images, `--batch N` (500), `--seed N` (1),
//! `--out FOLDER` for the pictures (`out/reproduce`).

#![allow(clippy::print_stdout, reason = "an example talks to its user")]

mod network;

use std::fmt::Display;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::str::FromStr;
use std::{env, fs};

use lexopt::Parser;
use lexopt::prelude::*;
use network::{Functions, Training};
use retape::data::Digits;
use retape::{Device, map, tree};
use retape_train::checkpoint::{Checkpoint, Checkpoints};
use retape_train::data::augment::{Pipeline, Resize, SaltAndPepper};
use retape_train::data::{Dataset, ExampleRandom, Image, Loader, from_fn};
use retape_train::metrics::Mean;
use retape_train::plot::{ContactSheet, Difference, Plot};
use retape_train::progress::{End, Every, Goal, Loop, Patience, Position, Stop, Verdict};
use retape_train::{DeviceTable, Error, Execution, Result};

type AnyError = Box<dyn std::error::Error>;

/// Pixels along each side of an image.
const SIDE: usize = 32;

#[derive(Clone, Debug)]
struct Options {
    epochs: u64,
    train: usize,
    test: usize,
    batch: usize,
    seed: u64,
    out: PathBuf,
    /// The folder of a training that is to be killed, in the process that runs it.
    child: Option<PathBuf>,
}

/// A training, to be compared with others.
#[derive(Clone, Debug)]
struct Run<'r> {
    seed: u64,
    n_threads: usize,
    device: Device,
    /// The folder of its checkpoints, if it has any: one after each step.
    folder: Option<&'r Path>,
}

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
    let options = options()?;
    if let Some(folder) = &options.child {
        train(&Functions::new(), &options, &Run { folder: Some(folder), ..first(&options) }, |step| {
            println!("step {step}")
        })?;
        return Ok(());
    }
    fs::create_dir_all(&options.out)?;
    print!("{}", DeviceTable::read());
    // On is the default; a program that needs it says so all the same, and leaves it as it was.
    let previous = retape::set_deterministic(true);
    let outcome = compare(&options);
    let inside = retape::set_deterministic(previous);
    println!("deterministic algorithms only: {previous} before, {inside} within, {previous} again");
    outcome
}

/// The training that the others are compared with.
fn first(options: &Options) -> Run<'static> {
    Run { seed: options.seed, n_threads: retape::n_threads(), device: Device::Cpu, folder: None }
}

fn compare(options: &Options) -> std::result::Result<(), AnyError> {
    let base = first(options);
    println!("\n{} images, {} epochs with batches of {}", options.train, options.epochs, options.batch);
    let functions = Functions::new();
    let quietly = |run: &Run<'_>| train(&functions, options, run, |_| ());
    let (one, loss) = quietly(&base)?;
    println!("mean squared error of {} images held out: {loss:.5}\n", options.test);
    draw_images(options, &one)?;

    let (again, _) = quietly(&base)?;
    let (other, _) = quietly(&Run { seed: options.seed + 1, ..base.clone() })?;
    let mut are_right = said("one seed, twice", &one, &again, true)?;
    are_right &= said("two seeds", &one, &other, false)?;
    let bars = [("difference-one-seed", "one seed, twice", &again), ("difference-two-seeds", "two seeds", &other)];
    for (file, title, after) in bars {
        let weights = [&one, after].map(|training| &training.params.down[0].weight);
        let bars = Difference::between(&format!("Weights of the first convolution: {title}"), weights[0], weights[1])?;
        bars.save(options.out.join(format!("{file}.svg")))?;
        bars.save(options.out.join(format!("{file}.png")))?;
    }
    for n_threads in [1, 2] {
        let (threaded, _) = quietly(&Run { n_threads, ..base.clone() })?;
        are_right &= said(&format!("threads: {n_threads}, and {}", base.n_threads), &one, &threaded, true)?;
    }
    retape::set_n_threads(base.n_threads);
    if let Ok(device) = Execution::EveryGpu.device() {
        let on_gpu = Run { device, ..base.clone() };
        are_right &= said(&format!("twice on {device}"), &quietly(&on_gpu)?.0, &quietly(&on_gpu)?.0, true)?;
    }
    let (resumed, n_done) = killed_and_resumed(&functions, options, &base)?;
    are_right &= said(&format!("killed after step {n_done}, and resumed"), &one, &resumed, true)?;
    println!("\npictures are in {}", options.out.display());
    if are_right { Ok(()) } else { Err("a comparison did not come out as it must".into()) }
}

/// Prints whether two trainings have equal bits, and returns whether that is as it must be.
fn said(title: &str, a: &Training, b: &Training, must: bool) -> Result<bool> {
    let is_equal = tree::same_bits(&map(a, |x| x.to(Device::Cpu)), &map(b, |x| x.to(Device::Cpu)))?;
    println!("equal: {is_equal:<5}  {title}");
    Ok(is_equal == must)
}

/// Noisy images `[32, 32, 1]` with clean ones as targets; every pixel of the noise follows from seed, epoch and index.
fn pairs(n: usize, images: u64, seed: u64) -> Result<impl Dataset<Item = (Image, Image)> + 'static> {
    let digits = Digits::generate(images, n)?;
    let (resize, noise) =
        (Pipeline::new().then(Resize::to(SIDE, SIDE)), Pipeline::new().then(SaltAndPepper::new(0.2)?));
    let image = move |index: usize| {
        let pixels = digits.images[index * Digits::PIXELS..][..Digits::PIXELS].to_vec();
        let image = Image::from_f32(pixels, [Digits::SIDE, Digits::SIDE, 1])?;
        resize.apply(image, &ExampleRandom::new(0, 0, index))
    };
    Ok(from_fn(n, image).map_random(seed, move |clean: Image, random| Ok((noise.apply(clean.clone(), random)?, clean))))
}

/// Trains to the end, or until a validation has not been better for five of them; the last state, and its loss.
fn train(
    functions: &Functions,
    options: &Options,
    run: &Run<'_>,
    mut done: impl FnMut(u64),
) -> Result<(Training, f64)> {
    let Functions { step, clean } = functions;
    retape::set_n_threads(run.n_threads);
    let loader = Loader::new(pairs(options.train, 1, run.seed)?, options.batch)?.shuffled(run.seed);
    let held_out = Loader::new(pairs(options.test, 2, 0)?, options.batch)?.filled();

    let mut training = map(&Training::new(run.seed), |x| x.to(run.device));
    let (mut position, mut patience) = (Position::default(), Patience::new(5, Goal::Lowest));
    let mut checkpoints =
        run.folder.map(|folder| Ok::<_, Error>(Checkpoints::open(folder)?.keep_last(2))).transpose()?;
    if let Some(restored) = checkpoints.as_ref().map(|saved| saved.latest(&training)).transpose()?.flatten() {
        patience = restored.manifest.value("patience")?.unwrap_or(patience);
        (training, position) = (restored.tree, restored.manifest.position_in(&loader)?);
    }
    let stop = Stop::new();
    if patience.is_exhausted() {
        // It had come to its end before it was resumed.
        stop.request();
    }
    let mut steps = Loop::new(&loader).epochs(options.epochs).resume(position).until(&stop);
    steps = steps.validate(Every::Steps(4)).save(Every::Steps(1));
    let mut validation = f64::NAN;
    for batch in &mut steps {
        let batch = batch?;
        let (noisy, target) = &batch.batch.data;
        (_, training) = step.call(training, noisy.to(run.device), target.to(run.device))?;
        if batch.validates() {
            let mut loss = Mean::new();
            for images in batch.batches_of(&held_out) {
                let images = images?;
                let found = clean.call(&training, images.data.0.to(run.device))?.to(Device::Cpu);
                let n = images.rows();
                let [found, wanted] = [&found, &images.data.1].map(|x| x.slice_axis(0, 0..n));
                loss.add(&retape::nn::mse(&found, &wanted), n)?;
            }
            validation = loss.value();
            if patience.observe(validation) == Verdict::Exhausted {
                batch.stop();
            }
        }
        if let Some(checkpoints) = checkpoints.as_mut().filter(|_| batch.saves()) {
            let checkpoint = Checkpoint::at(batch.after).of(&loader).seed(run.seed);
            checkpoints.save(checkpoint.value("patience", &patience)?, &training)?;
        }
        done(batch.after.step);
    }
    checkpoints.as_mut().map_or(Ok(()), Checkpoints::wait)?;
    match steps.end() {
        Some(End::Failed) | None => Err(Error::custom("the training did not come to its end")),
        Some(_) => Ok((training, validation)),
    }
}

/// A training in a process that is killed in its middle, and resumed here.
fn killed_and_resumed(
    functions: &Functions,
    options: &Options,
    run: &Run<'_>,
) -> std::result::Result<(Training, u64), AnyError> {
    let folder = options.out.join("killed");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let sizes = [("--epochs", options.epochs), ("--train", options.train as u64), ("--test", options.test as u64)];
    let more = [("--batch", options.batch as u64), ("--seed", options.seed)];
    let mut child = Command::new(env::current_exe()?);
    for (name, value) in sizes.into_iter().chain(more) {
        child.args([name, &value.to_string()]);
    }
    let mut child = child.arg("--child").arg(&folder).stdout(Stdio::piped()).spawn()?;
    let n_steps = options.epochs * options.train.div_ceil(options.batch) as u64;
    let mut n_done = 0;
    for line in BufReader::new(child.stdout.take().ok_or("a child has an output")?).lines() {
        n_done = line?.strip_prefix("step ").map_or(Ok(n_done), str::parse)?;
        if n_done > n_steps / 2 {
            break;
        }
    }
    // No process can handle this signal: nothing is tidied up.
    child.kill()?;
    child.wait()?;
    if n_done == 0 {
        return Err("the training that was to be killed did not begin".into());
    }
    let (training, _) = train(functions, options, &Run { folder: Some(&folder), ..run.clone() }, |_| ())?;
    Ok((training, n_done))
}

/// A sheet of the first images held out: with noise, without it, and as they were.
fn draw_images(options: &Options, training: &Training) -> Result<()> {
    const COLUMNS: usize = 8;
    let images = Loader::new(pairs(COLUMNS.min(options.test), 2, 0)?, COLUMNS)?;
    let mut sheet = ContactSheet::new("Input, output, target", COLUMNS)?;
    for batch in images.epoch(0) {
        let (noisy, clean) = batch?.data;
        let found = training.params.clean(&noisy);
        for (images, caption) in [(&noisy, "input"), (&found, "output"), (&clean, "target")] {
            sheet = sheet.batch(images, [caption; COLUMNS])?;
        }
    }
    sheet.save(options.out.join("images.png"))
}

fn options() -> std::result::Result<Options, AnyError> {
    let mut options =
        Options { epochs: 5, train: 4000, test: 1000, batch: 500, seed: 1, out: "out/reproduce".into(), child: None };
    let mut args = lexopt::Parser::from_env();
    while let Some(arg) = args.next()? {
        match arg {
            Long("epochs") => options.epochs = parsed(&mut args, "epochs")?,
            Long("train") => options.train = parsed(&mut args, "train")?,
            Long("test") => options.test = parsed(&mut args, "test")?,
            Long("batch") => options.batch = parsed(&mut args, "batch")?,
            Long("seed") => options.seed = parsed(&mut args, "seed")?,
            Long("out") => options.out = args.value()?.into(),
            Long("child") => options.child = Some(args.value()?.into()),
            _ => return Err(arg.unexpected().into()),
        }
    }
    Ok(options)
}

/// The value of an option; the error names both.
fn parsed<T: FromStr<Err: Display>>(args: &mut Parser, name: &str) -> std::result::Result<T, AnyError> {
    let text = args.value()?.string()?;
    text.parse().map_err(|error| format!("--{name} {text}: {error}").into())
}
