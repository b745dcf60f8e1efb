//! One worker's part of the training.

use retape::{Device, Tensor, accelerate, map};
use retape_dist::{Failure, World};
use retape_train::metrics::{Accuracy, Mean, Throughput};
use retape_train::monitor::{Monitor, Web};
use retape_train::progress::{Every, Loop, Position};

use crate::checkpoints::{begin, checkpoint, open};
use crate::data::{Data, data};
use crate::draw::KINDS;
use crate::network::{Outcome, Shards, Training};
use crate::options::Options;

/// Trains, in step with all other workers.
pub(crate) fn train(options: &Options, world: World) -> Result<(), Failure> {
    let devices = options.device.devices()?;
    let device = devices[world.local_rank() % devices.len()];
    let mut checkpoints = open(options, &world)?;
    let start = begin(options, &world, checkpoints.as_ref(), Training::new(options.seed, KINDS.len()))?;
    let world = world.with_shards(start.n_shards)?;
    let data = data(options, &world)?;
    if data.classes.len() != KINDS.len() {
        return Err(format!("{} classes, and the network is for {}", data.classes.len(), KINDS.len()).into());
    }
    let mut training = map(&start.training, |x| x.to(device));
    let (of, sync) = (world.clone(), options.sync);
    let step = accelerate(move |training: &Training, batch: &Shards, rate: &Tensor| {
        training.step(&of, batch, rate, sync).expect("the loss is a number")
    })
    .named("train_step");

    let mut monitor = monitor(options, &world, device)?;
    let stop = monitor.stop();
    let mut steps = Loop::new(&data.train).resume(start.position).epochs(options.epochs).save(Every::Epochs(1));
    monitor = monitor.steps(steps.n_steps().unwrap_or(0));
    let mut throughput = Throughput::new();
    let mut last_loss = f64::NAN;
    while let Some(batch) = throughput.wait(|| steps.next()) {
        let batch = batch?;
        let own = Shards { whole: batch.batch.whole, shards: batch.batch.data.clone() };
        let rate = options.rate / (1.0 + 0.01 * batch.position.step as f64);
        let own = map(&own, |x| x.to(device));
        let (outcome, after) = step.call(&training, &own, rate as f32)?;
        training = after;
        let Outcome { loss, own_loss, n_right } = outcome;
        if options.log_digests && world.rank() == 0 {
            println!("step {:<6} {}", batch.after.step, world.digest(&(loss.clone(), training.clone()))?);
        }
        last_loss = f64::from(loss.item::<f32>()?);
        let accuracy = f64::from(n_right.item::<f32>()?) / own.whole as f64;
        throughput.add(own.shards.iter().map(|(images, _)| images.dim(0)).sum());
        let own_loss = (world.size() > 1).then_some(("loss", f64::from(own_loss.item::<f32>()?)));
        let own = own_loss.into_iter().chain([("examples per second", throughput.value())]);
        let by_rank = world.by_rank(&own.collect::<Vec<_>>())?;
        let whole = [("loss", last_loss), ("accuracy", accuracy)].into_iter();
        let by_rank = by_rank.iter().map(|(name, value)| (name.as_str(), *value));
        monitor.step(batch.after.step, batch.position.epoch, &whole.chain(by_rank).collect::<Vec<_>>());
        if batch.ends_epoch() {
            monitor.cache("train_step", &step);
        }
        // All workers stop behind the same step, whichever of them is asked to.
        if world.any(stop.is_requested())? {
            batch.stop();
        }
        // Asked on all workers, for a training that is stopped ends when a step has said so.
        if batch.saves()
            && let Some(checkpoints) = &mut checkpoints
        {
            checkpoints.save(checkpoint(options, &world, batch.after)?, &training)?;
        }
        throughput.restart();
    }
    checkpoints.as_mut().map_or(Ok(()), |checkpoints| checkpoints.wait())?;
    let (accuracy, loss) = test(&training, &world, &data, device)?;
    let digest = world.digest(&(training.params, training.norms))?;
    world.agree("the weights", digest.as_bytes(), &|| digest.clone())?;
    let Position { step, epoch, .. } = steps.position();
    monitor.validation(step, epoch, &[("loss", loss), ("accuracy", accuracy)]);
    monitor.finish()?;
    if world.rank() == 0 {
        println!("workers   {}, of {} shards", world.size(), world.n_shards());
        println!("ended     {}", steps.end().map_or("before the first step".to_owned(), |end| format!("{end:?}")));
        println!("loss      {last_loss:.4} of the last batch, {loss:.4} of photos held out");
        println!("accuracy  {:.2} % of {} photos held out", 100.0 * accuracy, data.n_test);
        println!("weights   {digest}");
    }
    Ok(())
}

/// The monitor of a worker: each may have a log, that of worker 0 shows all.
fn monitor(options: &Options, world: &World, device: Device) -> Result<Monitor, Failure> {
    // A launcher sends Ctrl-C to all processes.
    let mut monitor = Monitor::new("flowers").of_rank(world.rank()).stop_on_ctrl_c()?;
    if let Some(folder) = &options.logs {
        monitor = monitor.json_lines(folder.join(format!("rank-{}.jsonl", world.rank())))?;
    }
    if world.rank() == 0 && options.web {
        monitor = monitor.web(Web::default())?;
    }
    monitor.info("device", device);
    monitor.info("workers", world.size());
    monitor.info("shards", world.n_shards());
    monitor.info("machines", world.hosts().join(", "));
    Ok(monitor)
}

/// The part of the photos held out that are taken for what they are, and their mean loss. Each worker tests its shards of them.
fn test(training: &Training, world: &World, data: &Data, device: Device) -> Result<(f64, f64), Failure> {
    let predict = accelerate(|t: &Training, images: &Tensor| t.params.predict(&t.norms, images)).named("predict");
    let mut sums = vec![];
    for shard in &data.test {
        let (mut accuracy, mut loss) = (Accuracy::new(), Mean::new());
        for batch in shard.epoch(0) {
            let batch = batch?;
            let (images, labels) = &batch.data;
            // Rows that only fill the last batch up do not count.
            let logits = predict.call(training, images.to(device))?.to(Device::Cpu).slice_axis(0, 0..batch.rows());
            let labels = labels.slice_axis(0, 0..batch.rows());
            accuracy.add(&logits, &labels)?;
            loss.add(&retape::nn::softmax_cross_entropy_labels(&logits, &labels), batch.rows())?;
        }
        let total = if accuracy.n() == 0 { 0.0 } else { loss.value() * loss.n() as f64 };
        sums.push(Tensor::from([accuracy.n_right() as f64, total]));
    }
    let sums = world.sum_shards(&sums).to_vec::<f64>()?;
    let n = data.n_test as f64;
    Ok((sums[0] / n, sums[1] / n))
}
