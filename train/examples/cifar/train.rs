//! One training, with everything around it.

use std::path::Path;

use retape::optim::Schedule;
use retape::{Accelerated, Device, Function, Tensor, accelerate, map};
use retape_train::checkpoint::{Checkpoint, Checkpoints};
use retape_train::data::{Batch, Dataset};
use retape_train::metrics::{Accuracy, Confusion, Mean, Throughput};
use retape_train::monitor::Monitor;
use retape_train::plot::{ConfusionMatrix, Curves, Plot};
use retape_train::progress::{End, Every, Goal, Loop, Position, nonfinite_error};
use retape_train::{Result, state};
use serde::{Deserialize, Serialize};

use crate::data::Data;
use crate::network::Training;
use crate::options::Options;

/// The outcome of a training.
pub(crate) struct Trained {
    pub(crate) confusion: Confusion,
    /// None if a resumed training had no step left.
    pub(crate) steps: Option<Steps>,
    pub(crate) end: Option<End>,
}

/// The steps of a run.
pub(crate) struct Steps {
    /// The loss of the last batch.
    pub(crate) loss: f64,
    pub(crate) examples_per_second: f64,
    /// The share of the time that was spent waiting for data.
    pub(crate) waiting: f64,
}

/// The curves of a training: points of steps and values, which a checkpoint keeps.
#[derive(Default, Serialize, Deserialize)]
struct History {
    loss: Vec<(f64, f64)>,
    validation_loss: Vec<(f64, f64)>,
    accuracy: Vec<(f64, f64)>,
    validation_accuracy: Vec<(f64, f64)>,
}

impl History {
    fn trained(&mut self, after: Position, loss: f64, accuracy: f64) {
        self.loss.push((after.step as f64, loss));
        self.accuracy.push((after.step as f64, accuracy));
    }

    fn validated(&mut self, after: Position, loss: f64, accuracy: f64) {
        // A loss that is not finite has no place on a chart, nor in JSON.
        self.validation_loss.extend(loss.is_finite().then_some((after.step as f64, loss)));
        self.validation_accuracy.push((after.step as f64, accuracy));
    }
}

type Predict<F> = Accelerated<F, (Training, Tensor), Tensor>;

/// Trains in the folder `out`, told of by `monitor`.
pub(crate) fn train(options: &Options, device: Device, out: &Path, mut monitor: Monitor) -> Result<Trained> {
    let data = crate::data::data(options)?;
    let n_classes = data.classes.len();
    let l2 = options.l2;
    let step = accelerate(move |t: &Training, x: &Tensor, labels: &Tensor, rate: &Tensor| t.step(x, labels, rate, l2));
    let step = step.named("train_step");
    let predict = accelerate(|t: &Training, x: &Tensor| t.params.predict(&t.norms, x)).named("predict");

    let mut checkpoints =
        Checkpoints::open(out.join("checkpoints"))?.keep_last(2).keep_best(1, "accuracy", Goal::Highest);
    let (mut training, position, mut history) = begin(options, device, &data, &checkpoints, &mut monitor)?;
    let schedule = schedule(options, data.train.n_batches() as u64);

    let stop = monitor.stop();
    let mut steps = Loop::new(&data.train)
        .resume(position)
        .epochs(options.epochs)
        .validate(Every::Epochs(1))
        .save(Every::Epochs(1))
        .until(&stop)
        .dry_run(options.dry_run)
        .overfit(options.overfit);
    monitor = monitor.steps(steps.n_steps().unwrap_or(0));
    describe(&mut monitor, device, &training, &data);

    let mut throughput = Throughput::new();
    let mut confusion = Confusion::new(n_classes)?;
    let (mut last_loss, mut is_validated) = (None, false);
    while let Some(batch) = throughput.wait(|| steps.next()) {
        let batch = batch?;
        let (x, labels) = (batch.batch.data.0.to(device), batch.batch.data.1.to(device));
        let rate = schedule.rate(batch.position.step);
        // By reference: if the loss is not finite, the step is done again to find the op.
        let (loss, logits, after) = step.call(&training, &x, &labels, rate as f32)?;
        let loss = f64::from(loss.item::<f32>()?);
        if !loss.is_finite() {
            return Err(nonfinite_error(&step, |step| step.call(&training, &x, &labels, rate as f32).map(|_| ())));
        }
        training = after;
        last_loss = Some(loss);
        let mut accuracy = Accuracy::new();
        accuracy.add(&logits, &labels)?;
        throughput.add(batch.batch.rows());
        let scalars = [
            ("loss", loss),
            ("accuracy", accuracy.value()),
            ("rate", rate),
            ("examples per second", throughput.value()),
            ("waiting for data", throughput.waiting()),
        ];
        monitor.step(batch.after.step, batch.position.epoch, &scalars);
        history.trained(batch.after, loss, accuracy.value());
        let mut checkpoint = Checkpoint::at(batch.after).of(&data.train).seed(options.seed).metric("loss", loss);
        if batch.validates() {
            let validation;
            (validation, confusion) = validate(&predict, &training, &data, batch.batches_of(&data.test), device)?;
            let scalars = [("loss", validation), ("accuracy", confusion.accuracy())];
            monitor.validation(batch.after.step, batch.position.epoch, &scalars);
            monitor.cache("train_step", &step);
            history.validated(batch.after, validation, confusion.accuracy());
            checkpoint = checkpoint.metric("accuracy", confusion.accuracy());
        }
        if batch.saves() {
            checkpoints.save(checkpoint.value("history", &history)?, &training)?;
        }
        is_validated = batch.validates();
        throughput.restart();
    }
    checkpoints.wait()?;
    if !is_validated {
        // It was stopped between two validations, or had come to its end before.
        (_, confusion) = validate(&predict, &training, &data, data.test.epoch(0), device)?;
    }
    state::save(&training.params, out.join("model.safetensors"))?;
    draw(&history, &confusion, &data.classes, out)?;
    let end = steps.end();
    monitor.finish()?;
    let (examples_per_second, waiting) = (throughput.value(), throughput.waiting());
    Ok(Trained { confusion, steps: last_loss.map(|loss| Steps { loss, examples_per_second, waiting }), end })
}

/// Where to begin: at the newest checkpoint, if there is one and it is asked for.
fn begin(
    options: &Options,
    device: Device,
    data: &Data,
    checkpoints: &Checkpoints,
    monitor: &mut Monitor,
) -> Result<(Training, Position, History)> {
    let training = map(&Training::new(options.seed, data.classes.len()), |x| x.to(device));
    if options.resume
        && let Some(restored) = checkpoints.latest(&training)?
    {
        restored.passed_over.iter().for_each(|error| monitor.note(&format!("passed over: {error}")));
        monitor.note(&format!("goes on from {}", restored.path.display()));
        let history = restored.manifest.value("history")?.unwrap_or_default();
        let position = restored.manifest.position_in(&data.train)?;
        return Ok((restored.tree, position, history));
    }
    Ok((training, Position::default(), History::default()))
}

/// Says what is trained, and where.
fn describe(monitor: &mut Monitor, device: Device, training: &Training, data: &Data) {
    let [n_train, n_test] = [&data.train, &data.test].map(|loader| loader.dataset().len());
    monitor.info("device", device);
    monitor.info("parameters", state::Summary::of(&training.params).n_parameters());
    monitor.info("images", format!("{n_train} to learn from, {n_test} held out"));
}

fn schedule(options: &Options, per_epoch: u64) -> Schedule {
    let steps = u32::try_from(per_epoch.saturating_mul(options.drop_every)).unwrap_or(u32::MAX);
    let schedule = Schedule::Step { from: options.rate, factor: 0.1, steps };
    schedule.scaled(options.batch as f64 / 256.0)
}

/// The mean loss over the images held out, and which classes were taken for which.
fn validate<F>(
    predict: &Predict<F>,
    training: &Training,
    data: &Data,
    batches: impl Iterator<Item = Result<Batch<(Tensor, Tensor)>>>,
    device: Device,
) -> Result<(f64, Confusion)>
where
    F: Function<(Training, Tensor), Tensor>,
{
    let (mut loss, mut confusion) = (Mean::new(), Confusion::new(data.classes.len())?);
    for batch in batches {
        let batch = batch?;
        let logits = predict.call(training, batch.data.0.to(device))?.to(Device::Cpu);
        // Rows that only fill the last batch up do not count.
        let n = batch.rows();
        let (logits, labels) = (logits.slice_axis(0, 0..n), batch.data.1.slice_axis(0, 0..n));
        loss.add(&retape::nn::softmax_cross_entropy_labels(&logits, &labels), batch.rows())?;
        confusion.add(&logits, &labels)?;
    }
    Ok((loss.value(), confusion))
}

fn draw(history: &History, confusion: &Confusion, classes: &[String], out: &Path) -> Result<()> {
    let curves = |title: &str, training: &[(f64, f64)], validation: &[(f64, f64)]| {
        let curves = Curves::new(title).x_name("step").curve("training", training.iter().copied());
        curves.curve("validation", validation.iter().copied())
    };
    let loss = curves("Loss", &history.loss, &history.validation_loss).log();
    let accuracy = curves("Accuracy", &history.accuracy, &history.validation_accuracy);
    let matrix = ConfusionMatrix::new("Images held out", confusion).names(classes.iter().cloned())?;
    for ending in ["svg", "png"] {
        loss.save(out.join(format!("loss.{ending}")))?;
        accuracy.save(out.join(format!("accuracy.{ending}")))?;
        matrix.save(out.join(format!("confusion.{ending}")))?;
    }
    Ok(())
}
