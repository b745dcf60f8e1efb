//! The options of the command line.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use lexopt::Parser;
use lexopt::prelude::*;
use retape_dist::World;
use retape_train::Execution;

use crate::AnyError;

pub(crate) const USAGE: &str = "\
usage: cifar [options]
  --epochs N        epochs (3)
  --batch N         examples per step of all workers (256 for each); the rate grows with it
  --workers N       workers that share each batch: threads of this process, or the processes of a launcher (1)
  --rate R          initial rate for a batch of 256 (0.1)
  --drop-every N    epochs after which the rate drops by 0.1 (45)
  --l2 R            strength of the L2 penalty of weights (1e-10)
  --train N         synthetic images to learn from (20480)
  --test N          synthetic images held out (2000)
  --data FOLDER     CIFAR-10's binary files, or a folder of images with a subfolder per class
  --seed N          (1)
  --device D        auto, cpu, cuda:N, cuda:all (cpu); workers take the devices in turn
  --threads N       threads of the engine (all)
  --loaders N       threads that load and augment (2)
  --models N        N trainings side by side, with seeds from --seed on and other rates
  --out FOLDER      plots, log and checkpoints (out/cifar)
  --resume          goes on from the newest checkpoint
  --dry-run         one step of everything
  --overfit         every step has the first batch
  --web             serves a page to watch it
  --devices         lists the devices, and does nothing else";

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) help: bool,
    pub(crate) epochs: u64,
    /// 256 for each worker, if nothing is said.
    pub(crate) batch: Option<usize>,
    pub(crate) workers: Option<usize>,
    pub(crate) rate: f64,
    pub(crate) drop_every: u64,
    pub(crate) l2: f64,
    pub(crate) train: usize,
    pub(crate) test: usize,
    pub(crate) data: Option<PathBuf>,
    pub(crate) seed: u64,
    pub(crate) device: Execution,
    pub(crate) loaders: usize,
    pub(crate) models: usize,
    pub(crate) out: PathBuf,
    pub(crate) resume: bool,
    pub(crate) dry_run: bool,
    pub(crate) overfit: bool,
    pub(crate) web: bool,
    pub(crate) devices: bool,
}

impl Options {
    /// The examples of a step of all workers.
    pub(crate) fn batch(&self, world: &World) -> usize {
        self.batch.unwrap_or(256 * world.size())
    }
}

pub(crate) fn options() -> Result<Options, AnyError> {
    let mut options = Options {
        help: false,
        epochs: 3,
        batch: None,
        workers: None,
        rate: 0.1,
        drop_every: 45,
        l2: 1e-10,
        train: 20_480,
        test: 2000,
        data: None,
        seed: 1,
        device: Execution::On(retape::Device::Cpu),
        loaders: 2,
        models: 1,
        out: "out/cifar".into(),
        resume: false,
        dry_run: false,
        overfit: false,
        web: false,
        devices: false,
    };
    let mut args = lexopt::Parser::from_env();
    while let Some(arg) = args.next()? {
        match arg {
            Long("help") | Short('h') => options.help = true,
            Long("epochs") => options.epochs = parsed(&mut args, "epochs")?,
            Long("batch") => options.batch = Some(parsed(&mut args, "batch")?),
            Long("workers") => options.workers = Some(parsed(&mut args, "workers")?),
            Long("rate") => options.rate = parsed(&mut args, "rate")?,
            Long("drop-every") => options.drop_every = parsed(&mut args, "drop-every")?,
            Long("l2") => options.l2 = parsed(&mut args, "l2")?,
            Long("train") => options.train = parsed(&mut args, "train")?,
            Long("test") => options.test = parsed(&mut args, "test")?,
            Long("data") => options.data = Some(args.value()?.into()),
            Long("seed") => options.seed = parsed(&mut args, "seed")?,
            Long("device") => options.device = parsed(&mut args, "device")?,
            Long("threads") => retape::set_n_threads(parsed(&mut args, "threads")?),
            Long("loaders") => options.loaders = parsed(&mut args, "loaders")?,
            Long("models") => options.models = parsed(&mut args, "models")?,
            Long("out") => options.out = args.value()?.into(),
            Long("resume") => options.resume = true,
            Long("dry-run") => options.dry_run = true,
            Long("overfit") => options.overfit = true,
            Long("web") => options.web = true,
            Long("devices") => options.devices = true,
            _ => return Err(format!("{}\n{USAGE}", arg.unexpected()).into()),
        }
    }
    Ok(options)
}

/// The value of an option; the error names both.
fn parsed<T: FromStr<Err: Display>>(args: &mut Parser, name: &str) -> Result<T, AnyError> {
    let text = args.value()?.string()?;
    text.parse().map_err(|error| format!("--{name} {text}: {error}").into())
}
