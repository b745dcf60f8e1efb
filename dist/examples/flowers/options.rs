//! The options of the command line.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use lexopt::Parser;
use lexopt::prelude::*;
use retape::Device;
use retape_dist::Failure;
use retape_train::Execution;

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
  --device D            auto, cpu, cuda:N, cuda:all (cpu); workers take the devices in turn
  --threads N           threads of the engine (all)
  --loaders N           threads of each worker that load and augment (1)";

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) help: bool,
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
    pub(crate) device: Execution,
    pub(crate) loaders: usize,
}

pub(crate) fn options() -> Result<Options, Failure> {
    let mut options = Options {
        help: false,
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
        device: Execution::On(Device::Cpu),
        loaders: 1,
    };
    let mut args = lexopt::Parser::from_env();
    while let Some(arg) = args.next()? {
        match arg {
            Long("help") | Short('h') => options.help = true,
            Long("data") => options.data = Some(args.value()?.into()),
            Long("images") => options.images = parsed(&mut args, "images")?,
            Long("out") => options.out = args.value()?.into(),
            Long("size") => options.size = parsed(&mut args, "size")?,
            Long("epochs") => options.epochs = parsed(&mut args, "epochs")?,
            Long("batch") => options.batch = parsed(&mut args, "batch")?,
            Long("rate") => options.rate = parsed(&mut args, "rate")?,
            Long("seed") => options.seed = parsed(&mut args, "seed")?,
            Long("shards") => options.shards = Some(parsed(&mut args, "shards")?),
            Long("workers") => options.workers = Some(parsed(&mut args, "workers")?),
            Long("sync") => options.sync = true,
            Long("checkpoints") => options.checkpoints = Some(args.value()?.into()),
            Long("resume") => options.resume = true,
            Long("logs") => options.logs = Some(args.value()?.into()),
            Long("log-digests") => options.log_digests = true,
            Long("web") => options.web = true,
            Long("device") => options.device = parsed(&mut args, "device")?,
            Long("threads") => retape::set_n_threads(parsed(&mut args, "threads")?),
            Long("loaders") => options.loaders = parsed(&mut args, "loaders")?,
            _ => return Err(format!("{}\n{USAGE}", arg.unexpected()).into()),
        }
    }
    if options.resume && options.checkpoints.is_none() {
        return Err("--resume goes on from --checkpoints FOLDER".into());
    }
    Ok(options)
}

/// The value of an option; the error names both.
fn parsed<T: FromStr<Err: Display>>(args: &mut Parser, name: &str) -> Result<T, Failure> {
    let text = args.value()?.string()?;
    text.parse().map_err(|error| format!("--{name} {text}: {error}").into())
}
