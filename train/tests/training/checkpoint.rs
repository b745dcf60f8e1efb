//! The checkpoints there are, and their contents.

use std::fs;

use retape::data::Partial;
use retape::{Tensor, tree};
use retape_train::Error;
use retape_train::checkpoint::{Checkpoint, Checkpoints, Manifest};
use retape_train::data::{Loader, from_fn};
use retape_train::progress::{Goal, Position};

use crate::Folder;

fn at(step: u64) -> Checkpoint {
    Checkpoint::at(Position { step, epoch: step / 10, batch: step as usize % 10 })
}

fn steps(checkpoints: &Checkpoints) -> Vec<u64> {
    checkpoints.list().unwrap().iter().map(|saved| saved.step).collect()
}

#[test]
fn the_last_and_the_best_are_kept() {
    let folder = Folder::new("keep");
    let mut checkpoints = Checkpoints::open(folder.path()).unwrap().keep_last(2).keep_best(2, "loss", Goal::Lowest);
    for (step, loss) in [(1, 0.5), (2, f64::NAN), (3, 0.1), (4, 0.9), (5, 0.2), (6, 0.8), (7, 0.7)] {
        checkpoints.save(at(step).metric("loss", loss), &Tensor::from(step as i64)).unwrap();
    }
    checkpoints.save(at(8), &Tensor::from(8_i64)).unwrap();
    checkpoints.wait().unwrap();
    assert_eq!(steps(&checkpoints), [3, 5, 7, 8]);
    let zero = Tensor::from(0_i64);
    let best = checkpoints.best(&zero).unwrap().unwrap();
    assert_eq!((best.manifest.position.step, best.tree.item::<i64>().unwrap()), (3, 3));
    assert_eq!(checkpoints.latest(&zero).unwrap().unwrap().tree.item::<i64>().unwrap(), 8);
    assert_eq!(checkpoints.at(5, &zero).unwrap().manifest.metrics["loss"], 0.2);
    let message = checkpoints.at(6, &zero).unwrap_err().to_string();
    assert!(message.contains("no checkpoint of step 6; there are 3, 5, 7, 8"), "{message}");
}

#[test]
fn the_manifest_says_everything_and_any_program_can_read_it() {
    let folder = Folder::new("manifest");
    let mut checkpoints = Checkpoints::open(folder.path()).unwrap();
    let given = at(123).seed(7).metric("loss", f64::INFINITY).value("notes", &("a", [1, 2])).unwrap();
    let tensor = Tensor::from([1.0_f32, 2.0]);
    checkpoints.save(given, &tensor).unwrap();
    checkpoints.wait().unwrap();
    let path = folder.path().join("step-0000000123");
    let json: serde_json::Value = serde_json::from_slice(&fs::read(path.join("manifest.json")).unwrap()).unwrap();
    assert_eq!(
        (&json["format"], &json["step"], &json["epoch"], &json["batch"]),
        (&1.into(), &123.into(), &12.into(), &3.into())
    );
    assert_eq!((&json["seed"], &json["metrics"]["loss"]), (&7.into(), &"inf".into()));
    let state = fs::read(path.join("state.safetensors")).unwrap();
    assert_eq!(json["versions"]["retape"], retape::VERSION);
    let info = &json["files"]["state.safetensors"];
    assert_eq!(info["bytes"], state.len());
    assert_eq!(info["blake3"], blake3::hash(&state).to_hex().as_str());
    let restored = checkpoints.latest(&tensor).unwrap().unwrap();
    assert_eq!(restored.manifest.metrics["loss"], f64::INFINITY);
    assert_eq!(restored.manifest.value::<(String, [u8; 2])>("notes").unwrap().unwrap(), ("a".to_owned(), [1, 2]));
    assert_eq!(restored.manifest.value::<u8>("nothing").unwrap(), None);
    assert!(restored.manifest.value::<u8>("notes").unwrap_err().to_string().contains("`notes`"));
}

#[test]
fn writing_goes_on_beside_the_training_and_a_snapshot_is_of_its_moment() {
    let folder = Folder::new("snapshot");
    let mut checkpoints = Checkpoints::open(folder.path()).unwrap().keep_last(100);
    let step = retape::accelerate(|w: &Tensor| w * 1.5 + 1.0);
    let mut w = Tensor::ones([300_000]);
    let mut expected = vec![];
    for number in 1..=20 {
        // By value: the step writes over what no snapshot holds.
        w = step.call(w).unwrap();
        checkpoints.save(at(number), &w).unwrap();
        expected.push(w.to_vec::<f32>().unwrap()[7]);
    }
    checkpoints.wait().unwrap();
    for (number, expected) in (1..=20).zip(expected) {
        let restored = checkpoints.at(number, &w).unwrap().tree.to_vec::<f32>().unwrap();
        assert!(restored.iter().all(|&x| x == expected), "step {number}");
    }
}

#[test]
fn the_same_step_again_takes_the_place_of_the_first() {
    let folder = Folder::new("again");
    let mut checkpoints = Checkpoints::open(folder.path()).unwrap().keep_last(1);
    for value in [1.0_f32, 2.0] {
        checkpoints.save(at(5), &Tensor::from(value)).unwrap();
        checkpoints.wait().unwrap();
        assert_eq!(checkpoints.latest(&Tensor::from(0.0_f32)).unwrap().unwrap().tree.item::<f32>().unwrap(), value);
    }
    assert_eq!(checkpoints.list().unwrap().len(), 1);
}

#[test]
fn a_damaged_file_is_passed_over_and_said_to_be() {
    let folder = Folder::new("damaged");
    let mut checkpoints = Checkpoints::open(folder.path()).unwrap();
    for step in 1..=3 {
        checkpoints.save(at(step), &Tensor::full([50], step as f32)).unwrap();
    }
    checkpoints.wait().unwrap();
    let file = |step: u64, name: &str| folder.path().join(format!("step-{step:010}")).join(name);
    let mut bytes = fs::read(file(3, "state.safetensors")).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(file(3, "state.safetensors"), &bytes).unwrap();
    fs::write(file(2, "manifest.json"), "{\"format\": 1").unwrap();
    let like = Tensor::zeros([50]);
    let restored = checkpoints.latest(&like).unwrap().unwrap();
    assert_eq!(restored.manifest.position.step, 1);
    let told: Vec<String> = restored.passed_over.iter().map(ToString::to_string).collect();
    assert!(told[0].contains("state.safetensors: was changed") && told[1].contains("no manifest"), "{told:?}");
    fs::remove_file(file(1, "state.safetensors")).unwrap();
    assert!(checkpoints.latest(&like).unwrap_err().to_string().contains("was changed"));
}

#[test]
fn a_tree_that_does_not_fit_is_an_error_and_not_a_reason_to_go_back() {
    let folder = Folder::new("unfit");
    let mut checkpoints = Checkpoints::open(folder.path()).unwrap();
    checkpoints.save(at(1), &Tensor::zeros([2])).unwrap();
    checkpoints.save(at(2), &Tensor::zeros([3])).unwrap();
    checkpoints.wait().unwrap();
    let error = checkpoints.latest(&Tensor::zeros([2])).unwrap_err();
    assert!(error.to_string().contains("`value` is f32[3] instead of f32[2]"), "{error}");
}

#[test]
fn a_newer_format_is_an_error_and_not_a_reason_to_go_back() {
    let folder = Folder::new("newer");
    let mut checkpoints = Checkpoints::open(folder.path()).unwrap();
    for step in 1..=2 {
        checkpoints.save(at(step), &Tensor::zeros([1])).unwrap();
    }
    checkpoints.wait().unwrap();
    let path = folder.path().join("step-0000000002/manifest.json");
    fs::write(&path, "{\"format\": 2, \"anything\": []}").unwrap();
    let error = checkpoints.latest(&Tensor::zeros([1])).unwrap_err();
    assert!(matches!(error, Error::Version { .. }), "{error}");
    assert!(error.to_string().contains("is of format 2; this version of retape-train reads up to 1"), "{error}");
    assert_eq!(checkpoints.at(1, &Tensor::zeros([1])).unwrap().manifest.position.step, 1);
}

#[test]
fn what_a_process_left_in_the_middle_is_no_checkpoint_and_is_removed() {
    let folder = Folder::new("middle");
    for name in [".writing-step-0000000009", ".removing-step-0000000001"] {
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("state.safetensors"), "half").unwrap();
    }
    fs::create_dir(folder.path().join("notes")).unwrap();
    fs::write(folder.path().join("step-7"), "a file").unwrap();
    let checkpoints = Checkpoints::open(folder.path()).unwrap();
    assert!(checkpoints.list().unwrap().is_empty());
    assert_eq!(folder.names(), [".lock", "notes", "step-7"]);
    assert!(checkpoints.latest(&Tensor::zeros([1])).unwrap().is_none());
}

#[test]
fn a_folder_belongs_to_one_run_at_a_time() {
    let folder = Folder::new("lock");
    let first = Checkpoints::open(folder.path()).unwrap();
    let message = Checkpoints::open(folder.path()).err().unwrap().to_string();
    assert!(message.contains("in use by another run"), "{message}");
    drop(first);
    assert!(Checkpoints::open(folder.path()).is_ok());
}

#[test]
fn a_position_is_refused_in_the_batches_of_another_loader() {
    let folder = Folder::new("batching");
    let loader = |n: usize, size: usize| Loader::new(from_fn(n, |index| Ok(index as f32)), size).unwrap();
    let mut checkpoints = Checkpoints::open(folder.path()).unwrap();
    let zero = Tensor::zeros([1]);
    let mut restored = |checkpoint: Checkpoint| {
        checkpoints.save(checkpoint, &zero).unwrap();
        checkpoints.wait().unwrap();
        checkpoints.latest(&zero).unwrap().unwrap().manifest
    };
    let manifest = restored(at(12).of(&loader(40, 4).shuffled(7)));
    // Threads and a limit on what is loaded ahead change no batch.
    let same = loader(40, 4).shuffled(7).threads(3).prefetch(9);
    assert_eq!(manifest.position_in(&same).unwrap(), manifest.position);
    let cases = [
        (loader(40, 5).shuffled(7), "the batch size was 4 and is 5"),
        (loader(41, 4).shuffled(7), "the number of examples was 40 and is 41"),
        (loader(40, 4).shuffled(8), "the seed of the shuffling was 7 and is 8"),
        (loader(40, 4), "the seed of the shuffling was 7 and is none"),
        (loader(40, 4).shuffled(7).partial(Partial::Discard), "not full was kept and is left out"),
        (loader(20, 8), "was 40 and is 20; the batch size was 4 and is 8; the seed"),
    ];
    for (other, differences) in cases {
        let message = manifest.position_in(&other).unwrap_err().to_string();
        assert!(message.contains(differences) && message.contains("step 12"), "{message}");
        assert!(message.contains(file!()), "{message}");
    }
    // One that says nothing of its data, as those of older versions.
    let mut json = serde_json::to_value(restored(at(13))).unwrap();
    json.as_object_mut().unwrap().remove("data").unwrap();
    let silent: Manifest = serde_json::from_value(json).unwrap();
    assert_eq!(silent.position_in(&loader(3, 1)).unwrap().step, 13);
}

#[test]
fn checkpoints_are_read_beside_a_training_and_where_nothing_may_be_written() {
    let folder = Folder::new("reader");
    let zero = Tensor::from(0_i64);
    assert!(matches!(Checkpoints::read(folder.path().join("none")), Err(Error::Io { .. })));
    let mut training = Checkpoints::open(folder.path()).unwrap().keep_best(1, "loss", Goal::Lowest);
    for (step, loss) in [(1, 0.5), (2, 0.1), (3, 0.4), (4, 0.3), (5, 0.2)] {
        training.save(at(step).metric("loss", loss), &Tensor::from(step as i64)).unwrap();
    }
    training.wait().unwrap();
    let saved = Checkpoints::read(folder.path()).unwrap();
    assert_eq!(saved.list().unwrap(), training.list().unwrap());
    assert_eq!(saved.latest(&zero).unwrap().unwrap().tree.item::<i64>().unwrap(), 5);
    assert_eq!(saved.best("loss", Goal::Lowest, &zero).unwrap().unwrap().tree.item::<i64>().unwrap(), 2);
    assert_eq!(saved.best("loss", Goal::Highest, &zero).unwrap().unwrap().manifest.metrics["loss"], 0.4);
    assert!(saved.best("accuracy", Goal::Highest, &zero).unwrap().is_none());
    assert_eq!(saved.at(3, &zero).unwrap().manifest.position.step, 3);
    drop(training);

    // A copy on a medium that is read only: no lock is there, and none is made.
    fs::remove_file(folder.path().join(".lock")).unwrap();
    let before = folder.names();
    let writable = fs::metadata(folder.path()).unwrap().permissions();
    let mut read_only = writable.clone();
    read_only.set_readonly(true);
    fs::set_permissions(folder.path(), read_only).unwrap();
    let latest = Checkpoints::read(folder.path()).and_then(|saved| saved.latest(&zero));
    fs::set_permissions(folder.path(), writable).unwrap();
    assert_eq!(latest.unwrap().unwrap().manifest.position.step, 5);
    assert_eq!(folder.names(), before);
}

#[test]
fn a_reader_finds_the_newest_and_the_best_while_others_are_removed() {
    let folder = Folder::new("beside");
    let mut training = Checkpoints::open(folder.path()).unwrap().keep_last(1).keep_best(1, "loss", Goal::Lowest);
    training.save(at(1).metric("loss", -1.0), &Tensor::from(1_i64)).unwrap();
    training.wait().unwrap();
    let saved = Checkpoints::read(folder.path()).unwrap();
    let writer = std::thread::spawn(move || {
        for step in 2..=150 {
            // Better each time, so that the one before is removed.
            training.save(at(step).metric("loss", -(step as f64)), &Tensor::from(step as i64)).unwrap();
        }
        training.wait().unwrap();
    });
    let (zero, mut seen) = (Tensor::from(0_i64), [0, 0]);
    while !writer.is_finished() {
        let found = [saved.latest(&zero), saved.best("loss", Goal::Lowest, &zero)].map(|found| {
            let found = found.unwrap().unwrap();
            assert!(found.passed_over.is_empty(), "{:?}", found.passed_over);
            found.tree.item::<i64>().unwrap()
        });
        assert!(found[0] >= seen[0] && found[1] >= seen[1], "{found:?} after {seen:?}");
        seen = found;
    }
    writer.join().unwrap();
    assert_eq!(saved.latest(&zero).unwrap().unwrap().tree.item::<i64>().unwrap(), 150);
}

/// No training that removes checkpoints makes such a thing, so that to wait for its end would be to wait for ever.
#[cfg(unix)]
#[test]
fn a_link_that_leads_nowhere_is_no_checkpoint_and_one_to_a_checkpoint_is() {
    let (folder, links) = (Folder::new("linked"), Folder::new("links"));
    let mut training = Checkpoints::open(folder.path()).unwrap();
    training.save(at(3).metric("loss", 0.5), &Tensor::from(3_i64)).unwrap();
    training.wait().unwrap();
    let link =
        |to: &str, name: &str| std::os::unix::fs::symlink(folder.path().join(to), links.path().join(name)).unwrap();
    link("nothing", "step-0000000009");
    let saved = Checkpoints::read(links.path()).unwrap();
    let zero = Tensor::from(0_i64);
    assert!(saved.latest(&zero).unwrap().is_none());
    link("step-0000000003", "step-0000000003");
    assert_eq!(saved.latest(&zero).unwrap().unwrap().tree.item::<i64>().unwrap(), 3);
    assert_eq!(saved.best("loss", Goal::Lowest, &zero).unwrap().unwrap().manifest.position.step, 3);
}

#[cfg(unix)]
#[test]
fn the_error_of_writing_is_told_by_a_later_call_and_the_checkpoints_before_it_stay() {
    let folder = Folder::new("gone");
    let mut checkpoints = Checkpoints::open(folder.path().join("run")).unwrap();
    checkpoints.save(at(1), &Tensor::zeros([1])).unwrap();
    checkpoints.wait().unwrap();
    fs::rename(folder.path().join("run"), folder.path().join("moved")).unwrap();
    checkpoints.save(at(2), &Tensor::zeros([1])).unwrap();
    let error = checkpoints.wait().unwrap_err();
    assert!(matches!(&error, Error::Io { path, .. } if path.starts_with(folder.path())), "{error}");
    fs::rename(folder.path().join("moved"), folder.path().join("run")).unwrap();
    checkpoints.save(at(3), &Tensor::zeros([1])).unwrap();
    checkpoints.wait().unwrap();
    assert_eq!(steps(&checkpoints), [1, 3]);
}

#[test]
fn the_manifest_of_every_checkpoint_can_be_read_alone() {
    let folder = Folder::new("alone");
    let mut checkpoints = Checkpoints::open(folder.path()).unwrap();
    checkpoints.save(at(4).metric("accuracy", 0.5), &vec![Tensor::zeros([1]), Tensor::ones([2])]).unwrap();
    checkpoints.wait().unwrap();
    let manifest: Manifest = checkpoints.list().unwrap()[0].manifest().unwrap();
    assert_eq!((manifest.position.step, manifest.metrics["accuracy"]), (4, 0.5));
    let state = folder.path().join("step-0000000004/state.safetensors");
    let tensors = vec![Tensor::ones([1]), Tensor::zeros([2])];
    let loaded = retape_train::state::load(&tensors, state).unwrap();
    assert!(tree::same_bits(&loaded, &vec![Tensor::zeros([1]), Tensor::ones([2])]).unwrap());
}

#[test]
fn a_training_that_begins_again_or_goes_back_keeps_what_it_writes() {
    let folder = Folder::new("back");
    let mut checkpoints = Checkpoints::open(folder.path()).unwrap().keep_last(2);
    let mut write = |steps_to_do: &[u64]| {
        for &step in steps_to_do {
            checkpoints.save(at(step), &Tensor::from(step as i64)).unwrap();
        }
        checkpoints.wait().unwrap();
        let latest = checkpoints.latest(&Tensor::from(0_i64)).unwrap().unwrap();
        assert_eq!(latest.manifest.position.step, *steps_to_do.last().unwrap());
        steps(&checkpoints)
    };
    assert_eq!(write(&[10, 20, 30]), [20, 30]);
    assert_eq!(write(&[5]), [30, 5]);
    assert_eq!(write(&[6]), [5, 6]);
    // A second time, and beyond where the first ones came to.
    assert_eq!(write(&[2, 40]), [2, 40]);
    assert_eq!(folder.names(), [".lock", "step-0000000002-2", "step-0000000040-2"]);
}

#[test]
fn the_best_stays_while_its_manifest_cannot_be_read() {
    let folder = Folder::new("unreadable");
    let mut checkpoints = Checkpoints::open(folder.path()).unwrap().keep_last(1).keep_best(1, "loss", Goal::Lowest);
    checkpoints.save(at(1).metric("loss", 0.1), &Tensor::from(1_i64)).unwrap();
    checkpoints.wait().unwrap();
    let manifest = folder.path().join("step-0000000001/manifest.json");
    let aside = folder.path().join("aside");
    fs::rename(&manifest, &aside).unwrap();
    // A folder cannot be read as a file.
    fs::create_dir(&manifest).unwrap();
    checkpoints.save(at(2).metric("loss", 0.5), &Tensor::from(2_i64)).unwrap();
    checkpoints.save(at(3).metric("loss", 0.4), &Tensor::from(3_i64)).unwrap();
    checkpoints.wait().unwrap();
    fs::remove_dir(&manifest).unwrap();
    fs::rename(&aside, &manifest).unwrap();
    let best = checkpoints.best(&Tensor::from(0_i64)).unwrap().unwrap();
    assert_eq!(best.tree.item::<i64>().unwrap(), 1);
}

#[test]
fn what_was_not_wholly_removed_is_removed_with_its_namesake() {
    let folder = Folder::new("namesake");
    let mut checkpoints = Checkpoints::open(folder.path()).unwrap().keep_last(1);
    let removing = folder.path().join(".removing-step-0000000001");
    fs::create_dir(&removing).unwrap();
    fs::write(removing.join("state.safetensors"), "half").unwrap();
    for step in 1..=2 {
        checkpoints.save(at(step), &Tensor::zeros([1])).unwrap();
    }
    checkpoints.wait().unwrap();
    assert_eq!(folder.names(), [".lock", "step-0000000002"]);
}
