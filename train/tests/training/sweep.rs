//! Many trainings side by side.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use retape::{Device, accelerate};
use retape_train::Error;
use retape_train::sweep::{Sweep, grid, random};

use crate::example::{Training, loader};

#[test]
fn trainings_side_by_side_have_the_bits_that_each_has_alone() {
    let train = |seed: u64| -> retape_train::Result<Vec<u32>> {
        let step = accelerate(Training::step);
        let mut training = Training::new(seed);
        let mut losses = vec![];
        for batch in loader(1).epoch(0) {
            let (images, labels) = batch?.data;
            let loss;
            (loss, training) = step.call(&training, &images, &labels, 0.05_f32)?;
            losses.push(loss.item::<f32>()?.to_bits());
        }
        Ok(losses)
    };
    let outcomes = Sweep::new(1..=4).parallel(4).run(|trial| train(*trial.options));
    for outcome in &outcomes.0 {
        assert_eq!(*outcome.result.as_ref().unwrap(), train(outcome.options).unwrap(), "seed {}", outcome.options);
    }
}

#[test]
fn the_failure_or_panic_of_one_leaves_the_others_alone() {
    let outcomes = Sweep::new(0..6).run(|trial| match trial.options {
        2 => Err(Error::custom("no data")),
        4 => panic!("an index"),
        other => Ok(f64::from(*other)),
    });
    assert_eq!(outcomes.0.len(), 6);
    assert_eq!(outcomes.0[2].result.as_ref().unwrap_err().to_string(), "no data");
    assert_eq!(outcomes.0[4].result.as_ref().unwrap_err().to_string(), "training 4 panicked: an index");
    let best: Vec<i32> = outcomes.ranked(|value| -value).map(|outcome| outcome.options).collect();
    assert_eq!(best, [5, 3, 1, 0]);
    let table = outcomes.table(|value| vec![("value", value.to_string())]);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].ends_with("value") && lines[3].ends_with("failed: no data") && lines[6].ends_with('5'), "{table}");
}

#[test]
fn a_grid_may_have_values_that_are_no_numbers() {
    let outcomes = Sweep::new(grid(&[("optimiser", &["sgd", "adam"]), ("schedule", &["constant"])]))
        .run(|trial| Ok(trial.options.get("optimiser")?.len()));
    let shown: Vec<String> = outcomes.0.iter().map(|outcome| outcome.options.to_string()).collect();
    assert_eq!(shown, ["optimiser sgd, schedule constant", "optimiser adam, schedule constant"]);
    assert_eq!(outcomes.ranked(|n| -(*n as f64)).next().unwrap().options.get("optimiser").unwrap(), "adam");
    assert!(outcomes.table(|n| vec![("letters", n.to_string())]).contains("optimiser sgd"));
}

#[test]
fn no_more_run_at_a_time_than_the_machine_has_cores() {
    let n_cores = thread::available_parallelism().unwrap().get();
    let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let outcomes = Sweep::new(0..4 * n_cores).parallel(1000).run(|trial| {
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(5));
        now.fetch_sub(1, Ordering::SeqCst);
        Ok(trial.n_threads)
    });
    assert!(most.into_inner() <= n_cores);
    assert!(outcomes.0.iter().all(|outcome| *outcome.result.as_ref().unwrap() == 1));
    // One at a time has all the threads, and never a thread of its own.
    let threads = Mutex::new(HashSet::new());
    let outcomes = Sweep::new(0..3).parallel(0).run(|trial| {
        threads.lock().unwrap().insert(thread::current().id());
        Ok(trial.n_threads)
    });
    assert_eq!(threads.into_inner().unwrap(), HashSet::from([thread::current().id()]));
    assert!(outcomes.0.iter().all(|outcome| *outcome.result.as_ref().unwrap() == n_cores));
}

#[test]
fn devices_are_given_out_in_turn() {
    let devices = [Device::Cpu, Device::Cuda(0), Device::Cuda(1)];
    let outcomes = Sweep::new(0..5).devices(devices).run(|trial| Ok(trial.device));
    let given: Vec<Device> = outcomes.0.iter().map(|outcome| *outcome.result.as_ref().unwrap()).collect();
    assert_eq!(given, [devices[0], devices[1], devices[2], devices[0], devices[1]]);
    assert!(outcomes.0.iter().all(|outcome| outcome.result.as_ref().unwrap() == &outcome.device));
    assert!(Sweep::new(Vec::<u8>::new()).devices([]).run(|_| Ok(())).0.is_empty());
}

#[test]
fn grids_and_random_options() {
    let choices = grid(&[("rate", &[0.1, 0.2]), ("l2", &[0.0, 1e-4, 1e-3])]);
    assert_eq!(choices.len(), 6);
    assert_eq!((choices[4].get("rate").unwrap(), choices[4].get("l2").unwrap()), (0.2, 1e-4));
    let message = choices[0].get("rat").unwrap_err().to_string();
    assert!(message.contains("`rat`") && message.contains("rate, l2"), "{message}");
    assert_eq!(grid::<f64>(&[]).len(), 1);
    let (many, few) = (random(5, 1, |r| r.bits()), random(3, 1, |r| r.bits()));
    assert_eq!(many[..3], few);
    assert_eq!(many.iter().collect::<HashSet<_>>().len(), 5);
    assert_ne!(random(3, 2, |r| r.bits()), few);
}

#[test]
fn a_gpu_has_one_training_at_a_time_unless_more_are_asked_for() {
    let devices = [Device::Cuda(0), Device::Cuda(1)];
    let most_on = |sweep: Sweep<usize>| {
        let now = [const { AtomicUsize::new(0) }; 2];
        let most = AtomicUsize::new(0);
        let outcomes = sweep.run(|trial| {
            let now = &now[devices.iter().position(|device| *device == trial.device).unwrap()];
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // Those of one device take longer, so that the others run ahead.
            thread::sleep(Duration::from_millis(if trial.device == devices[0] { 20 } else { 1 }));
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        });
        assert!(outcomes.0.len() == 8 && outcomes.0.iter().all(|outcome| outcome.result.is_ok()));
        most.into_inner()
    };
    assert_eq!(most_on(Sweep::new(0..8).devices(devices)), 1);
    assert_eq!(most_on(Sweep::new(0..8).devices(devices).parallel(2)), 1);
    assert_eq!(most_on(Sweep::new(0..8).devices([devices[0]])), 1);
}
