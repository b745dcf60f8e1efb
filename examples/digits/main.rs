//! Trains the two-output digit network twice from the same start, un-accelerated and accelerated, predicts both ways,
//! and reports times, hit rates, accuracy and the error of the angle.
//!
//! `--epochs N` (20), `--train N` and `--test N` images (5000 each), `--out FOLDER` for the charts (`out`),
//! `--threads N`, `--device auto|cpu|cuda:N` (`cpu`); `--report FILE` for a page on the cache of the training step, and
//! `--profile FILE` for a trace of one more epoch.

#![allow(clippy::print_stdout, reason = "an example talks to its user")]

mod chart;
mod device;
mod network;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use chart::Chart;
use indicatif::{ProgressBar, ProgressStyle};
use lexopt::prelude::*;
use network::{Params, State, Training};
use retape::data::{Digits, MiniBatches, Partial, gather, one_hot};
use retape::{Accelerated, CompileTimes, Device, Tensor, accelerate, map};
use retape_report::{Report, TraceEvents};

const BATCH: usize = 32;
const RATE: f32 = 1e-3;
const SEED: u64 = 7;

type AnyError = Box<dyn std::error::Error>;

struct Options {
    epochs: u64,
    train: usize,
    test: usize,
    out: PathBuf,
    device: Device,
    report: Option<PathBuf>,
    profile: Option<PathBuf>,
}

fn main() -> Result<(), AnyError> {
    let options = options()?;
    let (train_set, test_set) = (Digits::generate(1, options.train)?, Digits::generate(2, options.test)?);
    let (n_train, n_test) = (train_set.len(), test_set.len());
    println!("{n_train} training images, {n_test} test images, {} epochs, on {}", options.epochs, options.device);

    let step = accelerate(|t: &Training, x: &Tensor, digits: &Tensor, angles: &Tensor, rate: &Tensor| {
        t.step(x, digits, angles, rate)
    })
    .named("train_step");
    step.configure(|options| options.enabled = false);
    let plain = train("training, un-accelerated", &options, &train_set, |t, x, d, a| step.call(t, x, d, a, RATE))?;
    step.configure(|options| options.enabled = true);
    let fast = train("training, accelerated   ", &options, &train_set, |t, x, d, a| step.call(t, x, d, a, RATE))?;

    let predict = accelerate(|params: &Params, state: &State, x: &Tensor| params.predict(state, x)).named("predict");
    predict.configure(|options| options.enabled = false);
    let plain_found = evaluate(&predict, &fast.training, &test_set, options.device)?;
    predict.configure(|options| options.enabled = true);
    let found = evaluate(&predict, &fast.training, &test_set, options.device)?;

    println!();
    report("training", plain.time, fast.time);
    println!("  hit rate   {:.4} %", 100.0 * step.hit_rate());
    println!("  first call {:.1} ms", 1e3 * fast.first_call.as_secs_f64());
    for entry in &step.stats().entries {
        let CompileTimes { trace, optimise, plan, compile, .. } = entry.times;
        // The first run finds no page of its memory mapped.
        let run = fast.first_call.saturating_sub(entry.times.total());
        println!(
            "    trace {trace:.1?}, optimise {optimise:.1?}, plan {plan:.1?}, compile {compile:.1?}, run {run:.1?}"
        );
    }
    println!("  loss       {:.6} un-accelerated, {:.6} accelerated, after the last step", plain.loss, fast.loss);
    report("prediction", plain_found.time, found.time);
    println!("  hit rate   {:.4} %", 100.0 * predict.hit_rate());
    println!("  accuracy   {:.2} %", 100.0 * found.accuracy);
    println!("  angle      {:.2} degrees root mean square error", found.angle_error);
    println!("\n{}\n", step.stats());

    Chart { work: "training", plain: plain.time, fast: fast.time }.save(&options.out)?;
    Chart { work: "prediction", plain: plain_found.time, fast: found.time }.save(&options.out)?;
    if options.report.is_some() || options.profile.is_some() {
        step.configure(|options| options.profiling = true);
        let one = Options { epochs: 1, ..options };
        train("training, profiled", &one, &train_set, |t, x, d, a| step.call(t, x, d, a, RATE))?;
        one.profile.map(|path| step.profile().write_trace_events(path)).transpose()?;
        one.report.map(|path| step.report_html(path)).transpose()?;
    }
    Ok(())
}

/// The outcome of a training.
struct Trained {
    training: Training,
    time: Duration,
    first_call: Duration,
    loss: f32,
}

fn train(
    title: &str,
    options: &Options,
    set: &Digits,
    step: impl Fn(Training, &Tensor, &Tensor, &Tensor) -> retape::Result<(Tensor, Training)>,
) -> Result<Trained, AnyError> {
    let batches = MiniBatches::new(set.len(), BATCH)?.shuffled(SEED).partial(Partial::Discard);
    let bar = progress(title, options.epochs * batches.n_batches() as u64);
    let mut training = map(&Training::new(SEED), |start| start.to(options.device));
    let (mut first_call, mut loss) = (Duration::ZERO, Tensor::from(f32::NAN));
    let start = Instant::now();
    for epoch in 0..options.epochs {
        for batch in &batches.epoch(epoch) {
            let (x, digits, angles) = tensors(set, batch, options.device)?;
            let call = Instant::now();
            // By value: the next parameters are written over these.
            (loss, training) = step(training, &x, &digits, &angles)?;
            if first_call.is_zero() {
                // A GPU may still be at work.
                options.device.sync()?;
                first_call = call.elapsed();
            }
            bar.inc(1);
        }
        bar.set_message(format!("loss {:.4}", loss.item::<f32>()?));
    }
    let time = start.elapsed();
    bar.finish();
    Ok(Trained { training, time, first_call, loss: loss.item()? })
}

/// The outcome of a prediction.
struct Found {
    time: Duration,
    accuracy: f64,
    angle_error: f64,
}

fn evaluate<F>(
    predict: &Accelerated<F, (Params, State, Tensor), (Tensor, Tensor)>,
    training: &Training,
    set: &Digits,
    device: Device,
) -> Result<Found, AnyError>
where
    F: retape::Function<(Params, State, Tensor), (Tensor, Tensor)>,
{
    let batches = MiniBatches::new(set.len(), BATCH)?.partial(Partial::Keep);
    let (mut right, mut squares) = (0_usize, 0.0);
    let start = Instant::now();
    for batch in &batches.epoch(0) {
        let (x, _, _) = tensors(set, batch, device)?;
        let (probabilities, angles) = predict.call(&training.params, &training.state, &x)?;
        let (probabilities, angles) = (probabilities.to_vec::<f32>()?, angles.to_vec::<f32>()?);
        for ((row, angle), &index) in probabilities.chunks(Digits::CLASSES).zip(angles).zip(batch) {
            let best = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]));
            right += usize::from(best == Some(set.labels[index].into()));
            squares += f64::from(angle - set.angles[index]).powi(2);
        }
    }
    let time = start.elapsed();
    let n = set.len() as f64;
    Ok(Found { time, accuracy: right as f64 / n, angle_error: (squares / n).sqrt() })
}

/// A batch as images, one-hot digits and angles, on a device.
fn tensors(set: &Digits, batch: &[usize], device: Device) -> Result<(Tensor, Tensor, Tensor), AnyError> {
    let n = batch.len();
    let images = gather(&set.images, Digits::PIXELS, batch)?;
    let labels = gather(&set.labels, 1, batch)?;
    let angles = gather(&set.angles, 1, batch)?;
    Ok((
        Tensor::from_vec(images, [n, Digits::SIDE, Digits::SIDE, 1])?.to(device),
        Tensor::from_vec(one_hot(&labels, Digits::CLASSES)?, [n, Digits::CLASSES])?.to(device),
        Tensor::from_vec(angles, [n, 1])?.to(device),
    ))
}

fn report(what: &str, plain: Duration, fast: Duration) {
    let (plain, fast) = (plain.as_secs_f64(), fast.as_secs_f64());
    println!("{what}: {plain:.3} s un-accelerated, {fast:.3} s accelerated, {:.2} times faster", plain / fast);
}

fn progress(title: &str, n: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        println!("{title} ({n} steps)");
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg:>16}  {wide_bar} {pos}/{len}  {elapsed}");
    println!("{title}");
    ProgressBar::new(n).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn options() -> Result<Options, AnyError> {
    let mut options = Options {
        epochs: 20,
        train: 5000,
        test: 5000,
        out: "out".into(),
        device: Device::Cpu,
        report: None,
        profile: None,
    };
    let mut args = lexopt::Parser::from_env();
    while let Some(arg) = args.next()? {
        match arg {
            Long("epochs") => options.epochs = args.value()?.parse()?,
            Long("train") => options.train = args.value()?.parse()?,
            Long("test") => options.test = args.value()?.parse()?,
            Long("out") => options.out = args.value()?.into(),
            Long("device") => options.device = device::chosen(&args.value()?.string()?)?,
            Long("report") => options.report = Some(args.value()?.into()),
            Long("profile") => options.profile = Some(args.value()?.into()),
            Long("threads") => retape::set_n_threads(args.value()?.parse()?),
            _ => return Err(arg.unexpected().into()),
        }
    }
    Ok(options)
}
