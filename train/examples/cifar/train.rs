//! One training, with everything around it.

use std::path::Path;

use retape::optim::Schedule;
use retape::{Accelerated, Device, Function, Tensor, accelerate, map};
use retape_dist::World;
use retape_train::checkpoint::{Checkpoint, Checkpoints};
use retape_train::data::Dataset;
use retape_train::metrics::{Confusion, Throughput};
use retape_train::monitor::Monitor;
use retape_train::plot::{ConfusionMatrix, Curves, Plot};
use retape_train::progress::{End, Every, Goal, Loop, Position, nonfinite_error};
use retape_train::{Error, Result, state};
use serde::{Deserialize, Serialize};

use crate::data::{self, Data};
use crate::network::{Shards, Training};
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

/// Trains in the folder `out`, in step with all other workers of the world, told of by `monitor`.
pub(crate) fn train(options: &Options, world: &World, out: &Path, mut monitor: Monitor) -> Result<Trained> {
    let devices = options.device.devices()?;
    let device = devices[world.local_rank() % devices.len()];
    let mut checkpoints = open(world, out)?;
    let Start { world, data, mut training, position, mut history } = begin(options, world, out, device, &mut monitor)?;
    let world = &world;

    let (l2, of) = (options.l2, world.clone());
    let step = accelerate(move |t: &Training, batch: &Shards, rate: &Tensor| {
        t.step(&of, batch, rate, l2).expect("the loss is a number")
    });
    let step = step.named("train_step");
    let predict = accelerate(|t: &Training, x: &Tensor| t.params.predict(&t.norms, x)).named("predict");
    let schedule = schedule(options, world, data.train.n_batches() as u64);

    let stop = monitor.stop();
    let mut steps = Loop::new(&data.train)
        .resume(position)
        .epochs(options.epochs)
        .validate(Every::Epochs(1))
        .save(Every::Epochs(1))
        .dry_run(options.dry_run)
        .overfit(options.overfit);
    monitor = monitor.steps(steps.n_steps().unwrap_or(0));
    describe(&mut monitor, world, device, &training, &data);

    let mut throughput = Throughput::new();
    let mut confusion = Confusion::new(data.classes.len())?;
    let (mut last_loss, mut is_validated) = (None, false);
    while let Some(batch) = throughput.wait(|| steps.next()) {
        let batch = batch?;
        let own = map(&batch.batch.data, |x| x.to(device));
        let rate = schedule.rate(batch.position.step);
        // By reference: if the loss is not finite, the step is done again to find the op.
        let (outcome, after) = step.call(&training, &own, rate as f32)?;
        let [loss, own_loss, n_right] = [&outcome.loss, &outcome.own_loss, &outcome.n_right].map(Tensor::item::<f32>);
        let loss = f64::from(loss?);
        if !loss.is_finite() {
            return Err(nonfinite_error(&step, |step| step.call(&training, &own, rate as f32).map(|_| ())));
        }
        training = after;
        last_loss = Some(loss);
        let accuracy = f64::from(n_right?) / batch.batch.whole as f64;
        throughput.add(own.iter().map(|(x, _)| x.dim(0)).sum());
        let whole = [("loss", loss), ("accuracy", accuracy), ("rate", rate)];
        let speed = [("examples per second", throughput.value()), ("waiting for data", throughput.waiting())];
        let own_loss = (world.size() > 1).then_some(("loss", f64::from(own_loss?)));
        let by_rank = world.by_rank(&speed.into_iter().chain(own_loss).collect::<Vec<_>>()).map_err(Error::custom)?;
        let by_rank = by_rank.iter().map(|(name, value)| (name.as_str(), *value));
        monitor.step(batch.after.step, batch.position.epoch, &whole.into_iter().chain(by_rank).collect::<Vec<_>>());
        history.trained(batch.after, loss, accuracy);
        let mut checkpoint = Checkpoint::at(batch.after).of(&data.train).seed(options.seed).metric("loss", loss);
        // All workers stop behind the same step, whichever of them is asked to.
        if world.any(stop.is_requested()).map_err(Error::custom)? {
            batch.stop();
        }
        if batch.validates() {
            let validation;
            (validation, confusion) = validate(&predict, world, &training, &data, options.dry_run, device)?;
            let scalars = [("loss", validation), ("accuracy", confusion.accuracy())];
            monitor.validation(batch.after.step, batch.position.epoch, &scalars);
            monitor.cache("train_step", &step);
            history.validated(batch.after, validation, confusion.accuracy());
            checkpoint = checkpoint.metric("accuracy", confusion.accuracy());
        }
        if batch.saves()
            && let Some(checkpoints) = &mut checkpoints
        {
            let checkpoint = checkpoint.value("history", &history)?.value("shards", &world.n_shards())?;
            checkpoints.save(checkpoint, &training)?;
        }
        is_validated = batch.validates();
        throughput.restart();
    }
    checkpoints.map_or(Ok(()), |mut checkpoints| checkpoints.wait())?;
    if !is_validated {
        // It was stopped between two validations, or had come to its end before.
        (_, confusion) = validate(&predict, world, &training, &data, false, device)?;
    }
    if world.rank() == 0 {
        state::save(&training.params, out.join("model.safetensors"))?;
        draw(&history, &confusion, &data.classes, out)?;
    }
    let end = steps.end();
    monitor.finish()?;
    let (examples_per_second, waiting) = (throughput.value() * world.size() as f64, throughput.waiting());
    Ok(Trained { confusion, steps: last_loss.map(|loss| Steps { loss, examples_per_second, waiting }), end })
}

/// The checkpoints, which worker 0 alone writes: all have the same state.
fn open(world: &World, out: &Path) -> Result<Option<Checkpoints>> {
    let folder = (world.rank() == 0).then(|| Checkpoints::open(out.join("checkpoints"))).transpose()?;
    Ok(folder.map(|folder| folder.keep_last(2).keep_best(1, "accuracy", Goal::Highest)))
}

/// Where a training begins.
struct Start {
    /// The world, with the shards that batches are divided into.
    world: World,
    data: Data,
    training: Training,
    position: Position,
    history: History,
}

/// The newest checkpoint, if there is one and it is asked for; else the beginning, with a shard for each worker.
fn begin(options: &Options, world: &World, out: &Path, device: Device, monitor: &mut Monitor) -> Result<Start> {
    let source = data::source(options)?;
    let training = map(&Training::new(options.seed, source.classes.len()), |x| x.to(device));
    // Worker 0 has made the folder before the others look into it.
    world.barrier().map_err(Error::custom)?;
    let newest = if options.resume { Checkpoints::read(out.join("checkpoints"))?.latest(&training)? } else { None };
    let n_shards = newest.as_ref().map(|newest| newest.manifest.value("shards")).transpose()?.flatten();
    let world = world.with_shards(n_shards.unwrap_or(world.size())).map_err(Error::custom)?;
    let data = data::data(options, source, &world)?;
    let Some(newest) = newest else {
        return Ok(Start { world, data, training, position: Position::default(), history: History::default() });
    };
    newest.passed_over.iter().for_each(|error| monitor.note(&format!("passed over: {error}")));
    monitor.note(&format!("goes on from {}", newest.path.display()));
    let history = newest.manifest.value("history")?.unwrap_or_default();
    let position = newest.manifest.position_in(&data.train)?;
    Ok(Start { world, data, training: newest.tree, position, history })
}

/// Says what is trained, and where.
fn describe(monitor: &mut Monitor, world: &World, device: Device, training: &Training, data: &Data) {
    monitor.info("device", device);
    monitor.info("workers", format!("{}, of {} shards", world.size(), world.n_shards()));
    monitor.info("parameters", state::Summary::of(&training.params).n_parameters());
    let [n_train, n_test] = [data.train.dataset().len(), data.n_test];
    monitor.info("images", format!("{n_train} to learn from, {n_test} held out"));
}

fn schedule(options: &Options, world: &World, per_epoch: u64) -> Schedule {
    let steps = u32::try_from(per_epoch.saturating_mul(options.drop_every)).unwrap_or(u32::MAX);
    let schedule = Schedule::Step { from: options.rate, factor: 0.1, steps };
    schedule.scaled(options.batch(world) as f64 / 256.0)
}

/// The mean loss over the images held out, and which classes were taken for which. Each worker predicts its shards of
/// them; in a dry run the first batch of each.
fn validate<F>(
    predict: &Predict<F>,
    world: &World,
    training: &Training,
    data: &Data,
    is_dry: bool,
    device: Device,
) -> Result<(f64, Confusion)>
where
    F: Function<(Training, Tensor), Tensor>,
{
    let mut sums = vec![];
    for shard in &data.test {
        let (mut loss, mut confusion) = (0.0, Confusion::new(data.classes.len())?);
        for batch in shard.epoch(0).take(if is_dry { 1 } else { usize::MAX }) {
            let batch = batch?;
            let logits = predict.call(training, batch.data.0.to(device))?.to(Device::Cpu);
            // Rows that only fill the last batch up do not count.
            let n = batch.rows();
            let (logits, labels) = (logits.slice_axis(0, 0..n), batch.data.1.slice_axis(0, 0..n));
            let mean = retape::nn::softmax_cross_entropy_labels(&logits, &labels).item::<f32>()?;
            loss += f64::from(mean) * n as f64;
            confusion.add(&logits, &labels)?;
        }
        sums.push((Tensor::from(loss), counts(&confusion)?));
    }
    let (loss, counts) = world.sum_shards(&sums);
    let rows: Vec<u64> = counts.to_vec::<i64>()?.into_iter().map(i64::unsigned_abs).collect();
    let (unpredicted, rows) = rows.split_at(data.classes.len());
    let rows: Vec<Vec<u64>> = rows.chunks(data.classes.len()).map(<[u64]>::to_vec).collect();
    let confusion = Confusion::from_counts(&rows, unpredicted)?;
    Ok((loss.item::<f64>()? / confusion.n() as f64, confusion))
}

/// The counts of a confusion matrix, to be summed over workers: those without a prediction, then row by row.
fn counts(confusion: &Confusion) -> Result<Tensor> {
    let counts = [confusion.unpredicted().to_vec()].into_iter().chain(confusion.value()).flatten();
    let counts: Vec<i64> = counts.map(u64::cast_signed).collect();
    Ok(Tensor::from_vec(&counts[..], [counts.len()])?)
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
