//! CIFAR-10's binary files.

use retape_train::Error;
use retape_train::data::{Cifar10, Dataset, Labelled};

use crate::place::{Place, noise};

/// A record with this label and noise for pixels.
fn record(label: u8, seed: u64) -> Vec<u8> {
    let mut record = vec![label];
    record.extend(noise(seed, 3072));
    record
}

#[test]
fn planes_become_pixels() {
    let place = Place::new();
    let (first, second) = (record(3, 1), record(9, 2));
    let path = place.file("test_batch.bin", &[first, second.clone()].concat());
    let cifar = Cifar10::read([&path]).unwrap();
    assert_eq!(cifar, Cifar10::test(place.path()).unwrap());
    assert_eq!((cifar.len(), cifar.label(0).unwrap(), cifar.label(1).unwrap()), (2, 3, 9));
    let (image, label) = cifar.get(1).unwrap();
    assert_eq!((image.shape(), label), ([32, 32, 3], 9));
    for (row, column, channel) in [(0, 0, 0), (0, 1, 0), (5, 7, 1), (31, 31, 2), (31, 0, 0)] {
        let byte = second[1 + channel * 1024 + row * 32 + column];
        assert_eq!(image.value(row, column, channel), Some(f32::from(byte) / 255.0));
    }
    assert!(cifar.get(2).is_err() && cifar.label(2).is_err());
}

#[test]
fn training_images_are_in_five_files() {
    let place = Place::new();
    for number in 1..=5 {
        place.file(format!("data_batch_{number}.bin"), &record(number, 0));
    }
    let train = Cifar10::train(place.path()).unwrap();
    let labels: Vec<i32> = (0..5).map(|index| train.label(index).unwrap()).collect();
    assert_eq!(labels, [1, 2, 3, 4, 5]);
    std::fs::remove_file(place.path().join("data_batch_4.bin")).unwrap();
    let missing = place.path().join("data_batch_4.bin");
    assert!(matches!(Cifar10::train(place.path()), Err(Error::Io { path, .. }) if path == missing));
}

#[test]
fn what_is_not_cifar_is_refused_with_its_path() {
    let place = Place::new();
    let good = place.file("good.bin", &record(1, 1));
    let two = [record(1, 1), record(255, 2)].concat();
    for (contents, want) in [
        (vec![], "is empty"),
        (two[..3072].to_vec(), "has 3072 bytes, no whole number of records of 3073 bytes"),
        (two[..3074].to_vec(), "has 3074 bytes, no whole number"),
        (two.clone(), "has label 255 in record 1; labels are 0 to 9"),
        (record(10, 3), "has label 10 in record 0"),
        (vec![0; 60_001 * 3073], "has more than 184380000 bytes"),
    ] {
        let bad = place.file("bad.bin", &contents);
        let error = Cifar10::read([&good, &bad]).unwrap_err();
        assert!(matches!(&error, Error::Format { path, .. } if *path == bad), "{error:?}");
        assert!(error.to_string().contains(want), "{error}");
    }
    let folder = place.folder("folder.bin");
    assert!(matches!(Cifar10::read([&folder]), Err(Error::Format { path, .. }) if path == folder));
    assert!(Cifar10::read::<&str>([]).unwrap().is_empty());
}
