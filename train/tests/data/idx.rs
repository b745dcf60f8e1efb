//! IDX files: the reader on whole and damaged ones, plain and compressed, and the data set that they make.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use retape_train::Error;
use retape_train::data::{Dataset, IdxArray, IdxImages, IdxValues, Labelled, parse_idx, read_idx};

use crate::place::{Place, noise};

/// An IDX file of type `code`.
fn file(code: u8, extents: &[u32], values: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, code, extents.len() as u8];
    bytes.extend(extents.iter().flat_map(|extent| extent.to_be_bytes()));
    bytes.extend(values);
    bytes
}

/// An IDX file of bytes.
fn idx(extents: &[u32], values: &[u8]) -> Vec<u8> {
    file(0x08, extents, values)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn message(bytes: &[u8]) -> String {
    parse_idx(bytes).unwrap_err().to_string()
}

#[test]
fn all_types_are_read() {
    let ints = [i32::MIN, -2, 0, 77, 1 << 20, i32::MAX];
    let cases = [
        (0x08, vec![0, 1, 2, 128, 254, 255], IdxValues::U8(vec![0, 1, 2, 128, 254, 255])),
        (0x09, vec![0, 1, 2, 128, 254, 255], IdxValues::I8(vec![0, 1, 2, -128, -2, -1])),
        (
            0x0B,
            ints.iter().flat_map(|&i| (i as i16).to_be_bytes()).collect(),
            IdxValues::I16(ints.iter().map(|&i| i as i16).collect()),
        ),
        (0x0C, ints.iter().flat_map(|i| i.to_be_bytes()).collect(), IdxValues::I32(ints.to_vec())),
        (
            0x0D,
            ints.iter().flat_map(|&i| (i as f32 / 3.0).to_be_bytes()).collect(),
            IdxValues::F32(ints.iter().map(|&i| i as f32 / 3.0).collect()),
        ),
        (
            0x0E,
            ints.iter().flat_map(|&i| (f64::from(i) / 3.0).to_be_bytes()).collect(),
            IdxValues::F64(ints.iter().map(|&i| f64::from(i) / 3.0).collect()),
        ),
    ];
    for (code, bytes, values) in cases {
        let want = IdxArray { extents: vec![2, 3], values };
        let plain = file(code, &[2, 3], &bytes);
        assert_eq!(parse_idx(&plain).unwrap(), want);
        assert_eq!(parse_idx(&gzip(&plain)).unwrap(), want);
    }
}

#[test]
fn odd_but_valid_extents_are_read() {
    assert_eq!(parse_idx(&file(0x08, &[], &[9])).unwrap().values, IdxValues::U8(vec![9]));
    assert!(parse_idx(&file(0x0E, &[u32::MAX, u32::MAX, u32::MAX, 0], &[])).unwrap().values.is_empty());
}

#[test]
fn every_cut_and_every_surplus_is_an_error() {
    let whole = file(0x0B, &[2, 2], &[1; 8]);
    for length in 0..whole.len() {
        assert!(parse_idx(&whole[..length]).is_err(), "{length}");
    }
    let packed = gzip(&whole);
    for length in 0..packed.len() {
        assert!(parse_idx(&packed[..length]).is_err(), "{length}");
    }
    assert!(message(&[&whole[..], &[0]].concat()).contains("goes on"));
    assert!(message(&whole[..15]).contains("need 8 bytes of values, 3 follow"), "{}", message(&whole[..15]));
}

#[test]
fn bad_headers_are_errors_and_cost_no_memory() {
    assert!(message(b"\x89PNG....").contains("no magic number"));
    assert!(message(&file(0x0A, &[1], &[0])).contains("no magic number"));
    assert!(message(&[0, 1, 8, 1, 0, 0, 0, 0]).contains("no magic number"));
    assert!(message(&file(0x08, &[u32::MAX, 4], &[1, 2])).contains("cut off") || usize::BITS == 32);
    assert!(message(&file(0x0E, &[u32::MAX; 3], &[1, 2])).contains("more values than can exist"));
    assert!(message(&file(0x08, &[u32::MAX; 255], &[])).contains("more values than can exist"));
}

#[test]
fn a_damaged_compressed_file_is_an_error() {
    let whole = gzip(&file(0x08, &[1000], &[7; 1000]));
    for at in [3, 12, whole.len() / 2, whole.len() - 6] {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        assert!(parse_idx(&damaged).is_err(), "{at}");
    }
}

#[test]
fn images_and_labels_are_paired() {
    let place = Place::new();
    let pixels = noise(1, 3 * 4 * 5);
    let labels = place.file("labels", &idx(&[3], &[7, 0, 255]));
    let grey = IdxImages::open(place.file("grey", &idx(&[3, 4, 5], &pixels)), &labels).unwrap();
    assert_eq!((grey.len(), grey.label(2).unwrap()), (3, 255));
    let (image, label) = grey.get(1).unwrap();
    assert_eq!((image.shape(), label), ([4, 5, 1], 0));
    assert_eq!(image.value(3, 4, 0), Some(f32::from(pixels[39]) / 255.0));
    let colour = IdxImages::open(place.file("colour", &idx(&[3, 2, 5, 2], &pixels)), &labels).unwrap();
    assert_eq!(colour.get(2).unwrap().0.shape(), [2, 5, 2]);
    assert!(grey.get(3).is_err() && grey.label(3).is_err());
}

#[test]
fn files_that_do_not_fit_are_refused_with_their_path() {
    let place = Place::new();
    let images = place.file("images", &idx(&[2, 1, 3], &[1, 2, 3, 4, 5, 6]));
    let labels = place.file("labels", &idx(&[2], &[1, 2]));
    assert!(IdxImages::open(&images, &labels).is_ok());
    for contents in [
        idx(&[2, 3], &[1, 2, 3, 4, 5, 6]),
        idx(&[2, 0, 3], &[]),
        idx(&[2, 1, 3], &[1, 2, 3, 4, 5]),
        idx(&[u32::MAX; 3], &[1]),
        b"no IDX".to_vec(),
        vec![],
    ] {
        let bad = place.file("bad", &contents);
        let error = IdxImages::open(&bad, &labels).unwrap_err();
        assert!(matches!(&error, Error::Format { path, .. } if *path == bad), "{error:?}");
    }
    for contents in [idx(&[3], &[1, 2, 3]), idx(&[2, 1], &[1, 2]), idx(&[2], &[1])] {
        let bad = place.file("bad", &contents);
        let error = IdxImages::open(&images, &bad).unwrap_err();
        assert!(matches!(&error, Error::Format { path, .. } if *path == bad), "{error:?}");
    }
    let missing = place.path().join("missing");
    assert!(matches!(IdxImages::open(&missing, &labels), Err(Error::Io { path, .. }) if path == missing));
}

/// Writes both parts of a small data set in the form of MNIST, with `n` images each.
fn write_mnist(place: &Place, n: u32) {
    let pixels = noise(2, n as usize * 784);
    let labels: Vec<u8> = (0..n).map(|i| (i % 10) as u8).collect();
    place.file("train-images-idx3-ubyte", &idx(&[n, 28, 28], &pixels));
    place.file("train-labels-idx1-ubyte", &idx(&[n], &labels));
    place.file("t10k-images.idx3-ubyte.gz", &gzip(&idx(&[n, 28, 28], &pixels)));
    place.file("t10k-labels-idx1-ubyte.gz", &gzip(&idx(&[n], &labels)));
}

#[test]
fn mnist_is_found_by_its_usual_names() {
    let place = Place::new();
    write_mnist(&place, 12);
    let train = IdxImages::train(place.path()).unwrap();
    assert_eq!(train, IdxImages::test(place.path()).unwrap());
    assert_eq!((train.len(), train.get(11).unwrap().0.shape()), (12, [28, 28, 1]));
    let labels: Vec<i32> = (0..12).map(|index| train.label(index).unwrap()).collect();
    assert_eq!(labels, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]);
}

#[test]
fn mnist_without_one_of_its_files_is_refused_by_name() {
    let place = Place::new();
    for missing in ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"] {
        write_mnist(&place, 2);
        std::fs::remove_file(place.path().join(missing)).unwrap();
        let error = IdxImages::train(place.path()).unwrap_err();
        assert!(matches!(&error, Error::Io { path, .. } if path == place.path()), "{error:?}");
        let other = missing.replace("-idx", ".idx");
        assert!(error.to_string().ends_with(&format!("found no {missing} or {other}, nor either with .gz")), "{error}");
    }
    write_mnist(&place, 2);
    let labels = place.file("train-labels-idx1-ubyte", &idx(&[3], &[1, 2, 3]));
    let error = IdxImages::train(place.path()).unwrap_err();
    assert!(matches!(&error, Error::Format { path, .. } if *path == labels), "{error:?}");
    assert!(error.to_string().contains("holds 3 labels for 2 images in "), "{error}");
}

#[test]
fn a_file_is_known_by_its_first_bytes_and_named_in_errors() {
    let place = Place::new();
    let whole = file(0x0B, &[2, 2], &[1; 8]);
    for contents in [whole.clone(), gzip(&whole)] {
        let path = place.file("any-name", &contents);
        assert_eq!(read_idx(&path).unwrap(), parse_idx(&whole).unwrap());
    }
    let cut = place.file("cut.gz", &gzip(&whole)[..20]);
    assert!(matches!(read_idx(&cut), Err(Error::Io { path, .. }) if path == cut));
    let cut = place.file("cut", &whole[..9]);
    assert!(matches!(read_idx(&cut), Err(Error::Format { path, .. }) if path == cut));
}
