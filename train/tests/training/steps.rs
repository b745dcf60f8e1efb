//! The loop over steps: when it validates, saves and ends.

use std::cell::RefCell;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use retape::{Tensor, accelerate};
use retape_train::data::{Dataset, FromFn, Loader, from_fn};
use retape_train::progress::{End, Every, Goal, Loop, Moment, Patience, Position, Stop, Verdict, nonfinite_error};
use retape_train::{Error, Result};

type Numbers = FromFn<fn(usize) -> Result<f32>>;

/// Epochs of three batches: 4, 4 and 2 numbers.
fn loader() -> Loader<Numbers> {
    let number: fn(usize) -> Result<f32> = |index| Ok(index as f32);
    Loader::new(from_fn(10, number), 4).unwrap().shuffled(1).threads(1)
}

#[test]
fn it_ends_after_epochs_or_steps_whichever_comes_first() {
    let loader = loader();
    for (steps, expected) in [
        (Loop::new(&loader).epochs(2), (6, End::Epochs)),
        (Loop::new(&loader).steps(5), (5, End::Steps)),
        (Loop::new(&loader).epochs(2).steps(5), (5, End::Steps)),
        (Loop::new(&loader).epochs(1).steps(5), (3, End::Epochs)),
        (Loop::new(&loader).epochs(2).resume(Position { step: 4, epoch: 1, batch: 1 }), (2, End::Epochs)),
        (Loop::new(&loader).epochs(0), (0, End::Epochs)),
        (Loop::new(&loader).steps(5).resume(Position { step: 9, epoch: 3, batch: 0 }), (0, End::Steps)),
    ] {
        let mut steps = steps;
        let n_steps = steps.n_steps().unwrap();
        let position = steps.position();
        let n = steps.by_ref().filter(|step| step.is_ok()).count();
        assert_eq!((n, steps.end()), (expected.0, Some(expected.1)));
        assert_eq!(n_steps.max(position.step), position.step + n as u64);
        assert!(steps.next().is_none());
    }
}

#[test]
fn positions_and_batches_are_those_of_the_loader() {
    let loader = loader();
    let whole: Vec<_> = (0..2).flat_map(|epoch| loader.epoch(epoch)).map(|batch| batch.unwrap().indices).collect();
    let walked: Vec<_> = Loop::new(&loader).epochs(2).map(|step| step.unwrap()).collect();
    for (number, (step, indices)) in walked.iter().zip(whole).enumerate() {
        assert_eq!(step.batch.indices, indices);
        assert_eq!(step.position, Position { step: number as u64, epoch: number as u64 / 3, batch: number % 3 });
        assert_eq!((step.after, step.ends_epoch()), (step.position.after(3), number % 3 == 2));
    }
}

/// Tells of the epoch of each number that is loaded.
struct Told(Sender<u64>);

impl Dataset for Told {
    type Item = f32;

    fn len(&self) -> usize {
        10
    }

    fn get(&self, index: usize) -> Result<f32> {
        self.get_in_epoch(index, 0)
    }

    fn get_in_epoch(&self, index: usize, epoch: u64) -> Result<f32> {
        self.0.send(epoch).map_err(Error::custom)?;
        Ok(index as f32)
    }
}

#[test]
fn the_next_epoch_is_loaded_while_the_last_step_of_one_is_done() {
    let (sender, told) = channel();
    let loader = Loader::new(Told(sender), 4).unwrap().shuffled(1).threads(1);
    let mut steps = Loop::new(&loader).epochs(2);
    for step in steps.by_ref().take(3) {
        assert_eq!(step.unwrap().position.epoch, 0);
    }
    // The third step ends its epoch, and nobody has asked for a fourth.
    let next = || told.recv_timeout(Duration::from_secs(60)).unwrap();
    let before: Vec<u64> = (0..10).map(|_| next()).collect();
    assert_eq!((before, next()), (vec![0; 10], 1));
    assert_eq!(steps.count(), 3);
    // None of a third epoch, which is not to be.
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [1; 9]);
}

#[test]
fn validations_and_saves_are_due_by_steps_or_epochs_and_at_the_end() {
    let loader = loader();
    let due = |every: Every, n: u64| -> Vec<u64> {
        let steps = Loop::new(&loader).steps(n).validate(every).save(every).map(|step| step.unwrap());
        steps
            .filter(|step| {
                assert_eq!(step.validates(), step.saves());
                step.saves()
            })
            .map(|step| step.after.step)
            .collect()
    };
    assert_eq!(due(Every::Steps(3), 8), [3, 6, 8]);
    assert_eq!(due(Every::Epochs(2), 13), [6, 12, 13]);
    assert_eq!(due(Every::Steps(0), 4), [4]);
    let none = Loop::new(&loader).epochs(1).map(|step| step.unwrap()).filter(|step| step.validates() || step.saves());
    assert_eq!(none.count(), 0);
}

#[test]
fn a_stop_ends_it_after_the_step_under_way_and_what_there_is_gets_saved() {
    let loader = loader();
    let stop = Stop::new();
    let mut steps = Loop::new(&loader).save(Every::Epochs(100)).until(&stop);
    let mut saved = vec![];
    for step in &mut steps {
        let step = step.unwrap();
        if step.after.step == 4 {
            stop.request();
        }
        if step.saves() {
            saved.push(step.after.step);
        }
    }
    assert_eq!((saved, steps.end()), (vec![4], Some(End::Stopped)));

    // A stop that comes after the question is answered by one more step, which saves.
    let stop = Stop::new();
    let mut steps = Loop::new(&loader).save(Every::Epochs(100)).until(&stop);
    let mut saved = vec![];
    for step in &mut steps {
        let step = step.unwrap();
        if step.saves() {
            saved.push(step.after.step);
        }
        if step.after.step == 4 {
            stop.request();
        }
    }
    assert_eq!((saved, steps.position().step, steps.end()), (vec![5], 5, Some(End::Stopped)));

    // One that never asks ends all the same.
    let stop = Stop::new();
    let steps = Loop::new(&loader).save(Every::Epochs(100)).until(&stop);
    let n = steps
        .map(|step| step.unwrap())
        .inspect(|step| {
            if step.after.step == 4 {
                stop.request()
            }
        })
        .count();
    assert_eq!(n, 5);

    // Without anything to save there is no step more; a stop from before allows none.
    let stop = Stop::new();
    let steps = Loop::new(&loader).until(&stop);
    assert_eq!(
        steps
            .map(|step| step.unwrap())
            .inspect(|step| if step.after.step == 4 {
                stop.request()
            })
            .count(),
        4
    );
    assert_eq!(Loop::new(&loader).until(&stop).count(), 0);
}

#[test]
fn time_ends_it_like_a_stop() {
    let loader = loader();
    let mut steps = Loop::new(&loader).time(Duration::ZERO).save(Every::Steps(1000));
    let saved: Vec<u64> =
        steps.by_ref().map(|step| step.unwrap()).filter(|s| s.saves()).map(|s| s.after.step).collect();
    assert_eq!((saved, steps.end()), (vec![1], Some(End::Time)));
}

#[test]
fn patience_ends_it_through_its_step() {
    let loader = loader();
    let mut patience = Patience::new(2, Goal::Lowest);
    let mut steps = Loop::new(&loader).validate(Every::Steps(1)).epochs(100);
    let losses = [1.0, 0.5, 0.4, 0.6, 0.4, 0.1];
    for step in &mut steps {
        let step = step.unwrap();
        if patience.observe(losses[step.position.step as usize]) == Verdict::Exhausted {
            step.stop();
        }
    }
    assert_eq!((steps.position().step, steps.end(), patience.best()), (5, Some(End::Stopped), Some(0.4)));
}

#[test]
fn a_dry_run_does_one_of_everything() {
    let loader = loader();
    let steps = Loop::new(&loader).epochs(9).validate(Every::Epochs(3)).save(Every::Epochs(3)).dry_run(true);
    let mut n_validated = 0;
    for step in steps {
        let step = step.unwrap();
        assert!(step.validates() && step.saves());
        n_validated += step.batches_of(&loader).filter(|batch| batch.is_ok()).count();
    }
    assert_eq!(n_validated, 1);
    let step = Loop::new(&loader).next().unwrap().unwrap();
    assert_eq!(step.batches_of(&loader).count(), 3);
}

#[test]
fn over_fitting_has_one_batch_for_all_steps() {
    let loader = loader();
    let first = loader.epoch(0).next().unwrap().unwrap().indices;
    let batches: Vec<_> = Loop::new(&loader).epochs(3).overfit(true).map(|step| step.unwrap().batch.indices).collect();
    assert_eq!(batches, vec![first; 9]);
}

#[test]
fn hooks_hear_of_epochs_and_the_end() {
    let loader = loader();
    let heard = RefCell::new(vec![]);
    let start = Position { step: 1, epoch: 0, batch: 1 };
    Loop::new(&loader).epochs(2).resume(start).hook(|moment| heard.borrow_mut().push(moment)).for_each(drop);
    let at = |step, epoch| Position { step, epoch, batch: 0 };
    let expected = [
        Moment::EpochStart(start),
        Moment::EpochEnd(at(3, 1)),
        Moment::EpochStart(at(3, 1)),
        Moment::EpochEnd(at(6, 2)),
        Moment::End(at(6, 2), End::Epochs),
    ];
    assert_eq!(heard.into_inner(), expected);
}

#[test]
fn an_error_of_the_data_comes_once_and_is_the_end() {
    let number: fn(usize) -> Result<f32> =
        |index| if index == 5 { Err(Error::custom("torn")) } else { Ok(index as f32) };
    let loader = Loader::new(from_fn(10, number), 4).unwrap();
    let mut steps = Loop::new(&loader).epochs(2);
    assert!(steps.next().unwrap().is_ok());
    let error = steps.next().unwrap().unwrap_err().to_string();
    assert!(error.contains("example 5") && error.contains("torn"), "{error}");
    assert!(steps.next().is_none());
    assert_eq!(steps.end(), Some(End::Failed));
    let nothing = Loader::new(from_fn(0, number), 4).unwrap();
    assert!(Loop::new(&nothing).next().unwrap().unwrap_err().to_string().contains("no batch"));
}

#[test]
fn an_epoch_whose_last_batches_are_skipped_is_followed_by_the_next() {
    let number: fn(usize) -> Result<f32> =
        |index| if index >= 8 { Err(Error::custom("torn")) } else { Ok(index as f32) };
    let loader = Loader::new(from_fn(10, number), 4).unwrap().skip_broken();
    let epochs: Vec<u64> = Loop::new(&loader).epochs(2).map(|step| step.unwrap().batch.epoch).collect();
    assert_eq!(epochs, [0, 0, 1, 1]);
}

#[test]
fn a_loss_that_is_not_finite_is_traced_to_its_op() {
    let step = accelerate(|w: &Tensor, x: &Tensor| ((w * x).sqrt().sum(..), w * 2.0));
    let (w, x) = (Tensor::from([1.0_f32, -1.0]), Tensor::ones([2]));
    assert!(step.call(&w, &x).unwrap().0.item::<f32>().unwrap().is_nan());
    let error = nonfinite_error(&step, |step| step.call(&w, &x).map(|_| ()));
    assert!(error.to_string().contains("sqrt") && error.to_string().contains("steps.rs"), "{error}");
    assert!(!step.options().trap_nonfinite);
    let fine = nonfinite_error(&step, |step| step.call(&x, &x).map(|_| ()));
    assert!(fine.to_string().contains("no op of the step"), "{fine}");
    let torn = nonfinite_error(&step, |_| panic!("torn"));
    assert!(torn.to_string().contains("the step panicked: torn") && !step.options().trap_nonfinite, "{torn}");
}

#[test]
fn patience_counts_from_the_best_and_survives_a_checkpoint() {
    let mut patience = Patience::new(2, Goal::Highest).least_change(0.1);
    assert_eq!(patience.observe(0.5), Verdict::Best);
    assert_eq!(patience.observe(0.55), Verdict::Worse);
    let text = serde_json::to_string(&patience).unwrap();
    let mut again: Patience = serde_json::from_str(&text).unwrap();
    assert_eq!(again, patience);
    assert_eq!((again.observe(0.58), patience.observe(0.61)), (Verdict::Exhausted, Verdict::Best));
    let mut never = Patience::new(0, Goal::Lowest);
    assert!((0..100).all(|_| never.observe(f64::NAN) == Verdict::Worse));
    assert_eq!((never.observe(1.0), never.observe(f64::NEG_INFINITY)), (Verdict::Best, Verdict::Best));
}

#[test]
fn an_epoch_whose_last_batches_are_skipped_is_validated_and_saved_all_the_same() {
    let number: fn(usize) -> Result<f32> =
        |index| if index >= 8 { Err(Error::custom("torn")) } else { Ok(index as f32) };
    // The third batch of each epoch has nothing that can be read.
    let loader = Loader::new(from_fn(10, number), 4).unwrap().skip_broken();
    let mut steps = Loop::new(&loader).epochs(2).validate(Every::Epochs(1)).save(Every::Epochs(1));
    let mut heard = vec![];
    for step in &mut steps {
        let step = step.unwrap();
        heard.push((step.after, step.validates(), step.saves(), step.ends_epoch()));
    }
    let at = |step, epoch, batch| Position { step, epoch, batch };
    let expected = [
        (at(1, 0, 1), false, false, false),
        (at(2, 1, 0), true, true, true),
        (at(3, 1, 1), false, false, false),
        (at(4, 2, 0), true, true, true),
    ];
    assert_eq!((&heard[..], steps.end()), (&expected[..], Some(End::Epochs)));
    // Going on from any of these positions gives the same steps.
    for done in 1..4 {
        let rest: Vec<_> =
            Loop::new(&loader).epochs(2).resume(heard[done - 1].0).map(|step| step.unwrap().after).collect();
        assert_eq!(rest, heard[done..].iter().map(|step| step.0).collect::<Vec<_>>());
    }
}

#[test]
fn a_step_ends_its_own_training_and_not_those_that_share_its_stop() {
    let loader = loader();
    let stop = Stop::new();
    let mut one = Loop::new(&loader).until(&stop).epochs(2);
    one.next().unwrap().unwrap().stop();
    assert!(one.next().is_none() && !stop.is_requested());
    assert_eq!(one.end(), Some(End::Stopped));
    assert_eq!(Loop::new(&loader).until(&stop).epochs(2).count(), 6);
}

#[test]
fn infinite_losses_are_as_patient_after_a_checkpoint_as_before() {
    let mut patience = Patience::new(2, Goal::Lowest);
    assert_eq!(patience.observe(f64::INFINITY), Verdict::Best);
    let kept = serde_json::to_value(patience).unwrap();
    let mut again: Patience = serde_json::from_value(kept).unwrap();
    assert_eq!(again.best(), Some(f64::INFINITY));
    assert_eq!(again.observe(f64::INFINITY), Verdict::Worse);
    assert!(Goal::Lowest.is_better(1.0, Some(f64::NAN), 0.0) && !Goal::Lowest.is_better(f64::NAN, Some(1.0), 0.0));
}
