//! A training that is killed at any step and resumed has the bits of one that was not.

use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use retape::data::Random;
use retape::{accelerate, tree};
use retape_train::checkpoint::{Checkpoint, Checkpoints};
use retape_train::progress::{Every, Goal, Loop, Patience, Position};

use crate::Folder;
use crate::example::{Training, loader};

const EPOCHS: u64 = 3;
const FOLDER: &str = "RETAPE_TRAIN_TEST_FOLDER";
const SEED: u64 = 11;

/// Trains to the end, from the newest checkpoint if there is one, and tells of each step: its number, the bits of its
/// loss, and the hash of everything after it.
fn train(folder: &Path, n_threads: usize, mut tell: impl FnMut(String)) -> Training {
    let loader = loader(n_threads);
    let step = accelerate(Training::step);
    let mut checkpoints = Checkpoints::open(folder).unwrap().keep_last(2).keep_best(1, "loss", Goal::Lowest);
    let (mut training, mut position) = (Training::new(SEED), Position::default());
    let mut patience = Patience::new(100, Goal::Lowest);
    if let Some(restored) = checkpoints.latest(&training).unwrap() {
        assert!(restored.passed_over.is_empty());
        patience = restored.manifest.value("patience").unwrap().unwrap();
        (training, position) = (restored.tree, restored.manifest.position_in(&loader).unwrap());
    }
    for batch in Loop::new(&loader).epochs(EPOCHS).resume(position).save(Every::Steps(1)) {
        let batch = batch.unwrap();
        let (images, labels) = &batch.batch.data;
        let loss;
        (loss, training) = step.call(&training, images, labels, 0.05_f32).unwrap();
        let loss = loss.item::<f32>().unwrap();
        patience.observe(loss.into());
        if batch.saves() {
            let checkpoint = Checkpoint::at(batch.after).of(&loader).seed(SEED).metric("loss", loss.into());
            checkpoints.save(checkpoint.value("patience", &patience).unwrap(), &training).unwrap();
        }
        let state = hash(&training);
        tell(format!("step {} {:08x} {state} {:?}", batch.after.step, loss.to_bits(), patience.best()));
    }
    checkpoints.wait().unwrap();
    training
}

fn hash(training: &Training) -> String {
    let mut hasher = blake3::Hasher::new();
    for (name, tensor) in tree::named(training) {
        hasher.update(name.as_bytes()).update(&tensor.to_le_bytes().unwrap());
    }
    hasher.finalize().to_hex()[..16].to_owned()
}

#[test]
fn child_that_trains() {
    // Only a child of the test below has a folder.
    if let Ok(folder) = env::var(FOLDER) {
        train(Path::new(&folder), 2, |line| println!("\n{line}"));
        println!("\nfinished");
    }
}

/// Runs a child until it has told of `n` more steps, and kills it there; the lines, and whether it came to its end.
fn killed_after(n: usize, folder: &Path) -> (Vec<String>, bool) {
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", "resume::child_that_trains", "--nocapture"]).env(FOLDER, folder);
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (mut lines, mut is_finished) = (vec![], false);
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        is_finished |= line == "finished";
        if line.starts_with("step ") {
            lines.push(line);
            if lines.len() == n {
                break;
            }
        }
    }
    // On Unix this is SIGKILL, which no program can handle.
    let _ = child.kill();
    child.wait().unwrap();
    (lines, is_finished)
}

#[test]
fn a_training_killed_at_random_steps_has_the_bits_of_one_that_was_not() {
    let (whole, torn) = (Folder::new("whole"), Folder::new("torn"));
    let mut expected = vec![];
    train(whole.path(), 1, |line| expected.push(line));
    assert_eq!(expected.len(), 15);

    let mut random = Random::new(u64::from(std::process::id()), 0, 0);
    let mut seen = vec![None; expected.len()];
    let (mut n_killed, mut is_finished) = (0, false);
    while !is_finished {
        let lines;
        (lines, is_finished) = killed_after(1 + random.below(4), torn.path());
        n_killed += usize::from(!is_finished);
        assert!(n_killed < 200, "no step is ever saved");
        for line in lines {
            let number: usize = line.split(' ').nth(1).unwrap().parse().unwrap();
            assert_eq!(line, expected[number - 1], "after {n_killed} kills");
            seen[number - 1] = Some(line);
        }
    }
    assert!(n_killed >= 3, "killed {n_killed} times only");
    // A step that was done and saved just before a kill may not have been told.
    assert!(seen.iter().filter(|line| line.is_some()).count() > 10 && seen[14].is_some());
    assert!(torn.names().iter().all(|name| name == ".lock" || name.starts_with("step-")), "{:?}", torn.names());
}

#[test]
fn a_run_in_two_halves_has_the_bits_of_the_whole_for_any_number_of_threads() {
    let (whole, halves) = (Folder::new("run-whole"), Folder::new("run-halves"));
    let mut expected = vec![];
    let end = train(whole.path(), 0, |line| expected.push(line));
    // As if killed after step 7, in the middle of the second epoch.
    let mut checkpoints = Checkpoints::open(halves.path()).unwrap();
    let (step, loader) = (accelerate(Training::step), loader(3));
    let (mut training, mut patience) = (Training::new(SEED), Patience::new(100, Goal::Lowest));
    for batch in Loop::new(&loader).steps(7) {
        let batch = batch.unwrap();
        let loss;
        (loss, training) = step.call(&training, &batch.batch.data.0, &batch.batch.data.1, 0.05_f32).unwrap();
        patience.observe(loss.item::<f32>().unwrap().into());
        if batch.after.step == 7 {
            let checkpoint = Checkpoint::at(batch.after).value("patience", &patience).unwrap();
            checkpoints.save(checkpoint, &training).unwrap();
        }
    }
    drop(checkpoints);
    let mut rest = vec![];
    let resumed = train(halves.path(), 2, |line| rest.push(line));
    assert_eq!(rest, expected[7..]);
    assert!(tree::same_bits(&resumed, &end).unwrap());
}
