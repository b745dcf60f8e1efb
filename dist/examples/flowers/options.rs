//! The options of the command line.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use retape_dist::Failure;

pub(crate) const USAGE: &str = "\
usage: flowers [options], alone or under a launcher such as mpirun
  --data FOLDER         photos in a subfolder for each class (drawn ones)
  --images N            photos to draw (700)
  --out FOLDER          where they are drawn, once (out/flowers)
  --size N              pixels along each side that photos are resized to (100)
  --epochs N            epochs (100)
  --batch N             photos per step, of all workers together (128)
  --rate R              initial learning rate (0.05)
  --seed N              (1)
  --shards N            shards of a batch, at least as many as workers (4)
  --workers N           workers that are threads of this process, where there is no launcher (1)
  --sync                normalises by the statistics of the whole batch, and not by those of each shard
  --checkpoints FOLDER  writes a checkpoint there after every epoch, and where it is stopped
  --resume              goes on from the newest checkpoint, with any number of workers up to that of its shards
  --logs FOLDER         writes a log of each worker there, with its rank
  --log-digests         prints the digest of loss and state after every step
  --web                 serves a page to watch it, from worker 0
  --threads N           threads of the engine (all)
  --loaders N           threads of each worker that load and augment (1)";

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) data: Option<PathBuf>,
    pub(crate) images: usize,
    pub(crate) out: PathBuf,
    pub(crate) size: usize,
    pub(crate) epochs: u64,
    pub(crate) batch: usize,
    pub(crate) rate: f64,
    pub(crate) seed: u64,
    pub(crate) shards: Option<usize>,
    pub(crate) workers: Option<usize>,
    pub(crate) sync: bool,
    pub(crate) checkpoints: Option<PathBuf>,
    pub(crate) resume: bool,
    pub(crate) logs: Option<PathBuf>,
    pub(crate) log_digests: bool,
    pub(crate) web: bool,
    pub(crate) loaders: usize,
}

pub(crate) fn options(mut args: impl Iterator<Item = String>) -> Result<Options, Failure> {
    let mut options = Options {
        data: None,
        images: 700,
        out: "out/flowers".into(),
        size: 100,
        epochs: 100,
        batch: 128,
        rate: 0.05,
        seed: 1,
        shards: None,
        workers: None,
        sync: false,
        checkpoints: None,
        resume: false,
        logs: None,
        log_digests: false,
        web: false,
        loaders: 1,
    };
    while let Some(name) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{name} needs a value\n{USAGE}"));
        match name.as_str() {
            "--data" => options.data = Some(value()?.into()),
            "--images" => options.images = parsed(&name, &value()?)?,
            "--out" => options.out = value()?.into(),
            "--size" => options.size = parsed(&name, &value()?)?,
            "--epochs" => options.epochs = parsed(&name, &value()?)?,
            "--batch" => options.batch = parsed(&name, &value()?)?,
            "--rate" => options.rate = parsed(&name, &value()?)?,
            "--seed" => options.seed = parsed(&name, &value()?)?,
            "--shards" => options.shards = Some(parsed(&name, &value()?)?),
            "--workers" => options.workers = Some(parsed(&name, &value()?)?),
            "--sync" => options.sync = true,
            "--checkpoints" => options.checkpoints = Some(value()?.into()),
            "--resume" => options.resume = true,
            "--logs" => options.logs = Some(value()?.into()),
            "--log-digests" => options.log_digests = true,
            "--web" => options.web = true,
            "--threads" => retape::set_n_threads(parsed(&name, &value()?)?),
            "--loaders" => options.loaders = parsed(&name, &value()?)?,
            _ => return Err(format!("{name} is not an option\n{USAGE}").into()),
        }
    }
    if options.resume && options.checkpoints.is_none() {
        return Err("--resume goes on from --checkpoints FOLDER".into());
    }
    Ok(options)
}

/// The value of an option; the error names both.
fn parsed<T: FromStr<Err: Display>>(name: &str, text: &str) -> Result<T, Failure> {
    text.parse().map_err(|error| format!("{name} {text}: {error}").into())
}
