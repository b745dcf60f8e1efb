//! Errors of arguments name the line of the program that gave them.

use std::panic::Location;

use retape::Tensor;
use retape_train::checkpoint::{Checkpoint, Checkpoints};
use retape_train::data::augment::{GaussianNoise, Normalisation, Reflection, Rotation, SaltAndPepper};
use retape_train::data::synthetic::Objects;
use retape_train::data::{Array, Dataset, FolderOptions, Image, ImageFolder, Items, Labelled, Loader, from_fn};
use retape_train::metrics::Confusion;
use retape_train::monitor::{Monitor, Web};
use retape_train::plot::{ConfusionMatrix, ContactSheet, Curves, Plot};
use retape_train::progress::{Loop, Position};
use retape_train::state::Frozen;
use retape_train::sweep::grid;
use retape_train::{Error, Result, state};

use super::Folder;

/// Compares the end of a message with the line that this was called from.
#[track_caller]
fn names_this_line<T>(result: Result<T>) {
    let at = Location::caller();
    let Err(error) = result else { panic!("{at}: no error") };
    let message = error.to_string();
    assert!(message.contains(&format!(" (at {}:{}:", at.file(), at.line())), "{at}: {message}");
    assert_eq!(message.matches("(at ").count(), 1, "{at}: {message}");
    assert!(message.ends_with(')'), "{at}: {message}");
}

#[test]
fn of_data_and_augmentation() {
    let numbers = || from_fn(4, |index| Ok(index as f32));
    names_this_line(Loader::new(numbers(), 0));
    names_this_line(Loader::new(numbers(), 2).unwrap().epoch_from(1, 9).next().unwrap());
    names_this_line(numbers().split(1.5, 1));
    names_this_line(numbers().shard(3, 2));
    names_this_line(numbers().subset(vec![0, 4]));
    names_this_line(numbers().zip(Items::from(vec![0; 5])));
    names_this_line(Objects::generate(1, 20).split_by_label(-0.5, 1));
    names_this_line(Array::new(vec![1.0_f32; 5], [2, 3]));
    names_this_line(Array::<f64>::from_tensor(&Tensor::ones([3])));
    names_this_line(Image::from_u8(vec![1, 2], [1, 1, 1]));
    names_this_line(Image::stack_f32(&[]));
    names_this_line(Image::stack_u8(&[Image::from_f32(vec![0.5], [1, 1, 1]).unwrap()]));
    names_this_line(Rotation::within(-1.0));
    names_this_line(Rotation::by(f64::NAN));
    names_this_line(Reflection::horizontal().probability(2.0));
    names_this_line(Normalisation::new([0.5], [0.0]));
    names_this_line(SaltAndPepper::new(-0.1));
    names_this_line(SaltAndPepper::new(0.1).unwrap().white(2.0));
    names_this_line(GaussianNoise::new(f64::INFINITY));

    let folder = Folder::new("caller-images");
    std::fs::create_dir(folder.path().join("cat")).unwrap();
    let classes = Some(vec!["cat".into(), "cat".into()]);
    names_this_line(ImageFolder::open_with(folder.path(), FolderOptions { classes, ..Default::default() }));
}

#[test]
fn of_states_checkpoints_and_loops() {
    let folder = Folder::new("caller");
    let weight = Tensor::ones([2]);
    names_this_line(Frozen::parts(&weight, ["bias"]));
    retape::accelerate(|x: &Tensor| {
        names_this_line(state::save(x, "never-written.safetensors"));
        x + 1.0
    })
    .call(&weight)
    .unwrap();

    let checkpoint = Checkpoint::at(Position::default());
    names_this_line(checkpoint.clone().value("pairs", &std::collections::BTreeMap::from([([1, 2], 3)])));
    let mut checkpoints = Checkpoints::open(folder.path()).unwrap();
    names_this_line(checkpoints.best(&weight));
    checkpoints.save(checkpoint.value("text", &"seven").unwrap(), &weight).unwrap();
    checkpoints.wait().unwrap();
    let manifest = checkpoints.latest(&weight).unwrap().unwrap().manifest;
    names_this_line(manifest.value::<u32>("text"));

    let nothing = Loader::new(from_fn(0, |index| Ok(index as f32)), 2).unwrap();
    names_this_line(Loop::new(&nothing).next().unwrap());
    names_this_line(grid(&[("rate", &[0.1])])[0].get("l2"));
}

#[test]
fn of_what_is_watched_and_drawn() {
    let confusion = Confusion::new(3).unwrap();
    names_this_line(Confusion::new(0));
    names_this_line(ConfusionMatrix::new("classes", &confusion).names(["one"]));
    names_this_line(ContactSheet::new("none", 0));
    names_this_line(Curves::new("loss").save("never-written.gif"));
    names_this_line(Monitor::new("open").web(Web::default().token("short")));
}

/// A thread of a loader meets these, and a line of this crate would help nobody.
#[test]
fn of_examples_name_no_line() {
    let shapes = from_fn(2, |index| Image::from_u8(vec![0; 3 * (1 + index)], [1 + index, 3, 1]));
    let mixed = Loader::new(shapes, 2).unwrap().epoch(0).next().unwrap();
    let Err(Error::Argument { message, at: None }) = mixed else { panic!("{mixed:?}") };
    assert!(message.starts_with("images of one batch have one shape"), "{message}");
    assert!(matches!("gpu".parse::<retape_train::Execution>(), Err(Error::Argument { at: None, .. })));
    assert!(matches!(from_fn(1, Ok::<usize, Error>).get(1), Err(Error::Argument { at: None, .. })));
}
