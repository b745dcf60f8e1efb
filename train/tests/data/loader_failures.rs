//! Loaders over data sets that fail, panic, or do worse.

use std::panic;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use retape_train::data::augment::Pipeline;
use retape_train::data::synthetic::Objects;
use retape_train::data::{Dataset, Loader, from_fn};
use retape_train::{Error, Result};

/// Runs a test that must not hang.
fn in_time<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    let thread = thread::spawn(move || {
        let _ = done.send(test());
    });
    match result.recv_timeout(Duration::from_secs(60)) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the loader hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => panic::resume_unwind(thread.join().expect_err("it panicked")),
    }
}

/// Numbers of which some fail.
fn failing(n: usize, broken: &'static [usize]) -> impl Dataset<Item = f32> + 'static {
    from_fn(n, move |index| if broken.contains(&index) { Err(Error::custom("torn")) } else { Ok(index as f32) })
}

/// The results of an epoch in words.
fn outcome<D>(loader: &Loader<D>) -> Vec<Result<Vec<usize>, String>>
where
    D: Dataset<Item = f32> + 'static,
{
    loader.epoch(0).map(|batch| batch.map(|batch| batch.indices).map_err(|error| error.to_string())).collect()
}

#[test]
fn a_failure_is_an_error_in_its_place() {
    let want = [
        Ok(vec![0, 1, 2]),
        // Of two failures in a batch, the first by rows, whichever thread was faster.
        Err("example 4: torn".to_owned()),
        Ok(vec![6, 7, 8]),
        Err("example 9: torn".to_owned()),
    ];
    for n_threads in [0, 1, 2, 8] {
        for _ in 0..20 {
            let loader = Loader::new(failing(10, &[5, 4, 9]), 3).unwrap().threads(n_threads);
            assert_eq!(in_time(move || outcome(&loader)), want);
        }
    }
}

#[test]
fn an_error_keeps_its_cause() {
    let loader = Loader::new(failing(1, &[0]), 1).unwrap();
    let error = loader.epoch(0).next().unwrap().unwrap_err();
    let Error::Example { index: 0, source } = &error else { panic!("{error:?}") };
    assert!(matches!(&**source, Error::Custom(_)));
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "torn");
}

#[test]
fn failures_are_skipped_and_counted() {
    for n_threads in [0, 3] {
        let loader = Loader::new(failing(10, &[0, 4, 6, 7, 8]), 3).unwrap().threads(n_threads).skip_broken();
        let mut batches = loader.epoch(0);
        let got: Vec<(usize, Vec<usize>)> =
            batches.by_ref().map(|batch| batch.map(|batch| (batch.number, batch.indices)).unwrap()).collect();
        // Batch 2 is gone as a whole; the others keep their numbers.
        assert_eq!(got, [(0, vec![1, 2]), (1, vec![3, 5]), (3, vec![9])]);
        let skipped: Vec<String> = batches.skipped().iter().map(Error::to_string).collect();
        assert_eq!(skipped, [0, 4, 6, 7, 8].map(|index| format!("example {index}: torn")));
        let stats = loader.stats();
        assert_eq!((stats.examples, stats.batches, stats.skipped), (5, 3, 5));
        // From the middle on, with nothing left: no error, for the epoch gave something before.
        assert_eq!(loader.epoch_from(0, 2).count(), 1);
        let filled: Vec<usize> = loader.filled().epoch(0).map(|batch| batch.unwrap().data.dim(0)).collect();
        assert_eq!(filled, [3, 3, 3]);
    }
}

#[test]
fn an_epoch_of_failures_alone_is_an_error() {
    let loader = Loader::new(failing(5, &[0, 1, 2, 3, 4]), 2).unwrap().skip_broken();
    let want = "all 5 examples of the epoch were skipped; the first: example 0: torn";
    assert_eq!(in_time(move || outcome(&loader)), [Err(want.to_owned())]);
}

#[test]
fn panics_of_a_data_set_become_errors() {
    for n_threads in [0, 1, 4] {
        for skip in [false, true] {
            let dataset = from_fn(9, |index| if index == 4 { panic!("no sensor {index}") } else { Ok(index as f32) });
            let loader = Loader::new(dataset, 3).unwrap().threads(n_threads);
            // A panic is a mistake in a program and never skipped.
            let loader = if skip { loader.skip_broken() } else { loader };
            let want = [
                Ok(vec![0, 1, 2]),
                Err("loading example 4 of epoch 0 panicked: no sensor 4".to_owned()),
                Ok(vec![6, 7, 8]),
            ];
            assert_eq!(in_time(move || outcome(&loader)), want);
        }
    }
}

#[test]
fn panics_of_augmentation_become_errors() {
    let pipeline = Pipeline::new().then_fn("mistake", |_, _| panic!("no such filter"));
    let loader = Loader::new(Objects::generate(1, 10).augment(1, pipeline), 10).unwrap();
    let error = in_time(move || loader.epoch(2).next().unwrap().unwrap_err());
    assert_eq!(error.to_string(), "loading example 0 of epoch 2 panicked: no such filter");
}

#[test]
fn panics_and_errors_of_collation_are_errors() {
    for n_threads in [0, 2] {
        let loader = Loader::new(failing(6, &[]), 3).unwrap().threads(n_threads).collate(|items: Vec<f32>| {
            assert!(items[0] > 0.0, "a batch without a zero");
            if items[0] == 3.0 { Err(Error::custom("odd")) } else { Ok(()) }
        });
        let errors: Vec<String> =
            in_time(move || loader.epoch(0).map(|batch| batch.unwrap_err().to_string()).collect());
        assert_eq!(errors, ["making batch 0 of epoch 0 panicked: a batch without a zero", "odd"]);
    }
}

#[test]
fn items_that_do_not_fit_together_are_an_error() {
    let loader = Loader::new(from_fn(4, |index| Ok(vec![0_u8; index / 2])), 4).unwrap();
    let message = loader.epoch(0).next().unwrap().unwrap_err().to_string();
    assert_eq!(message, "rows of one batch have one shape: row 0 is [0], row 2 is [1]");
}

/// An item whose destructor panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(thread::panicking(), "the destructor fails");
    }
}

#[test]
fn panics_of_destructors_end_the_epoch_with_an_error() {
    for n_threads in [0, 1, 4] {
        let loader =
            Loader::new(from_fn(100, |index| if index % 2 == 1 { Err(Error::custom("torn")) } else { Ok(Bomb) }), 4)
                .unwrap()
                .threads(n_threads)
                .collate(|_: Vec<Bomb>| Ok(()));
        let results: Vec<Result<()>> = in_time(move || {
            let mut batches = loader.epoch(0);
            let results = batches.by_ref().map(|batch| batch.map(|_| ())).collect();
            // Items that are left over are not dropped here: their destructors would panic in this thread.
            std::mem::forget(batches);
            results
        });
        let last = results.last().unwrap().as_ref().unwrap_err().to_string();
        assert!(last.contains("panicked: the destructor fails"), "{last}");
        assert!(results.len() < 25);
    }
}

#[test]
fn a_consumer_that_panics_stops_the_threads() {
    let loader = Loader::new(failing(1000, &[]), 2).unwrap().threads(2);
    let result = in_time(move || {
        panic::catch_unwind(panic::AssertUnwindSafe(|| {
            for batch in loader.epoch(0) {
                assert!(batch.unwrap().number < 5, "the step fails");
            }
        }))
    });
    assert!(result.is_err());
}

#[test]
fn a_lying_length_is_an_error() {
    struct Liar;
    impl Dataset for Liar {
        type Item = f32;

        fn len(&self) -> usize {
            5
        }

        fn get(&self, index: usize) -> Result<f32> {
            let data = [1.0, 2.0, 3.0];
            Ok(data[index])
        }
    }
    let loader = Loader::new(Liar, 2).unwrap();
    let results = in_time(move || outcome(&loader));
    assert_eq!(results[0], Ok(vec![0, 1]));
    assert!(results[1].as_ref().unwrap_err().contains("example 3 of epoch 0 panicked: index out of bounds"));
    assert!(results[2].as_ref().unwrap_err().contains("example 4"));
}
