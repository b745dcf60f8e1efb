//! The program of docs/train.md, as it stands there, and the files it leaves behind.

use retape::nn::{self, Conv2d, Dense};
use retape::ops::{ConvOptions, Padding};
use retape::optim::{Adam, AdamState, Schedule};
use retape::{Tensor, Tree, accelerate};
use retape_train::checkpoint::{Checkpoint, Checkpoints};
use retape_train::data::augment::{Border, Normalisation, Pipeline, RandomCrop, Reflection};
use retape_train::data::synthetic::Objects;
use retape_train::data::{Dataset, Labelled, Loader};
use retape_train::metrics::Accuracy;
use retape_train::monitor::Monitor;
use retape_train::progress::{Every, Goal, Loop, Patience, Position, Verdict};
use retape_train::state;

#[derive(Clone, Tree)]
struct Net {
    conv: Vec<Conv2d>,
    head: Dense,
}

#[derive(Clone, Tree)]
struct Training {
    net: Net,
    adam: AdamState<Net>,
}

impl Net {
    fn new(seed: u64) -> Net {
        let conv = vec![Conv2d::new(seed, [3, 3], 3, 8), Conv2d::new(seed + 1, [3, 3], 8, 16)];
        Net { conv, head: Dense::new(seed + 2, 8 * 8 * 16, 10) }
    }

    /// Logits `[batch, 10]` of images `[batch, 32, 32, 3]`.
    fn apply(&self, x: &Tensor) -> Tensor {
        let x = self.conv.iter().fold(x.clone(), |x, conv| {
            conv.apply(&x, ConvOptions::same()).relu().max_pool2d([2, 2], [2, 2], Padding::Valid)
        });
        self.head.apply(&x.flatten_from(1))
    }
}

fn main() -> Result<(), retape_train::Error> {
    let out = std::path::PathBuf::from("out/first");

    // 1. Data: an image and a label per example, augmented anew in each epoch.
    let (train, held_out) = Objects::generate(1, 200).split_by_label(0.2, 1)?;
    let normal = || Normalisation::new([0.5; 3], [0.25; 3]);
    let augmented = Pipeline::new()
        .then(RandomCrop::new(32, 32).padding(4, Border::Reflect))
        .then(Reflection::horizontal())
        .then(normal()?);
    let train = Loader::new(train.augment(1, augmented), 32)?.shuffled(1);
    let held_out = Loader::new(held_out.augment(1, Pipeline::new().then(normal()?)), 32)?;

    // 2. The step: one accelerated function of everything that changes.
    let adam = Adam::new();
    let step = accelerate(move |t: &Training, x: &Tensor, labels: &Tensor, rate: &Tensor| {
        let loss = nn::softmax_cross_entropy_labels(&t.net.apply(x), labels);
        let (net, adam) = adam.update(&t.net, &loss.grad(&t.net), &t.adam, rate);
        (loss, Training { net, adam })
    });
    let predict = accelerate(|net: &Net, x: &Tensor| net.apply(x));

    // 3. Where to begin: at the newest checkpoint, if there is one.
    let net = Net::new(1);
    let mut training = Training { adam: Adam::new().init(&net), net };
    let mut checkpoints =
        Checkpoints::open(out.join("checkpoints"))?.keep_last(2).keep_best(1, "accuracy", Goal::Highest);
    let (mut position, mut patience) = (Position::default(), Patience::new(5, Goal::Highest));
    if let Some(restored) = checkpoints.latest(&training)? {
        patience = restored.manifest.value("patience")?.unwrap_or(patience);
        (training, position) = (restored.tree, restored.manifest.position_in(&train)?);
    }

    // 4. The loop.
    let schedule = Schedule::Cosine { from: 2e-3, to: 0.0, steps: 3 * train.n_batches() as u32 }.warmup(2);
    let mut monitor = Monitor::new("first").json_lines(out.join("log.jsonl"))?.stop_on_ctrl_c()?;
    let stop = monitor.stop();
    if patience.is_exhausted() {
        stop.request(); // it had come to its end
    }
    let steps = Loop::new(&train).resume(position).epochs(3);
    for batch in steps.validate(Every::Epochs(1)).save(Every::Epochs(1)).until(&stop) {
        let batch = batch?;
        let (x, labels) = &batch.batch.data;
        let rate = schedule.rate(batch.position.step);
        let loss;
        (loss, training) = step.call(&training, x, labels, rate as f32)?;
        monitor.step(batch.after.step, batch.position.epoch, &[("loss", loss.item::<f32>()?.into()), ("rate", rate)]);
        let mut checkpoint = Checkpoint::at(batch.after).of(&train);
        if batch.validates() {
            let mut accuracy = Accuracy::new();
            for images in batch.batches_of(&held_out) {
                let (x, labels) = images?.data;
                accuracy.add(&predict.call(&training.net, &x)?, &labels)?;
            }
            monitor.validation(batch.after.step, batch.position.epoch, &[("accuracy", accuracy.value())]);
            checkpoint = checkpoint.metric("accuracy", accuracy.value());
            if patience.observe(accuracy.value()) == Verdict::Exhausted {
                batch.stop();
            }
        }
        if batch.saves() {
            checkpoints.save(checkpoint.value("patience", &patience)?, &training)?;
        }
    }
    checkpoints.wait()?;

    // 5. The best model, of all runs, as a file that other programs read too.
    if let Some(best) = checkpoints.best(&training)? {
        let (net, accuracy) = (&best.tree.net, best.manifest.metrics["accuracy"]);
        println!("{}the best accuracy is {:.1} %", state::Summary::of(net), 100.0 * accuracy);
        state::save(net, out.join("model.safetensors"))?;
    }
    monitor.finish()
}

// The program ends here.

mod page {
    use std::env;
    use std::path::Path;
    use std::process::Command;

    use crate::Folder;

    const FOLDER: &str = "RETAPE_TRAIN_TEST_GUIDE";

    #[test]
    fn child_that_is_the_program() {
        // Only a child of the test below is told to.
        if env::var_os(FOLDER).is_some() {
            super::main().unwrap();
        }
    }

    /// Runs the program in a folder, and gives its last line.
    fn run(folder: &Path) -> String {
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", "guide::page::child_that_is_the_program", "--nocapture"]);
        let output = child.env(FOLDER, "yes").current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find(|line| line.contains("the best accuracy is"));
        line.unwrap_or_else(|| panic!("no best accuracy: {text}")).to_owned()
    }

    #[test]
    fn the_program_on_the_page_is_this_one() {
        let page = include_str!("../../../docs/train.md");
        let source = include_str!("guide.rs");
        let (_, program) = page.split_once("```rust,no_run\n").unwrap();
        let (program, _) = program.split_once("```").unwrap();
        assert!(program.starts_with("use retape") && program.contains("fn main()"), "{program}");
        // A program that is pasted has no line that only a documentation tool understands.
        assert!(!program.lines().any(|line| line == "#" || line.starts_with("# ") || line.starts_with("#  ")));
        assert!(source.contains(program), "the page and `guide.rs` differ");
    }

    #[test]
    fn it_trains_exports_the_best_and_does_so_again_when_it_is_started_again() {
        let folder = Folder::new("guide");
        let first = run(folder.path());
        let out = folder.path().join("out/first");
        let model = std::fs::read(out.join("model.safetensors")).unwrap();
        assert!(out.join("checkpoints/step-0000000015/manifest.json").exists() && out.join("log.jsonl").exists());
        std::fs::remove_file(out.join("model.safetensors")).unwrap();
        assert_eq!(run(folder.path()), first);
        assert_eq!(std::fs::read(out.join("model.safetensors")).unwrap(), model);
    }
}
