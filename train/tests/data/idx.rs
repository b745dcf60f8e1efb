//! IDX files as a data set.

use retape_train::Error;
use retape_train::data::{Dataset, IdxImages, Labelled};

use crate::place::{Place, noise};

/// An IDX file of bytes.
fn idx(extents: &[u32], values: &[u8]) -> Vec<u8> {
    let mut file = vec![0, 0, 0x08, extents.len() as u8];
    extents.iter().for_each(|extent| file.extend(extent.to_be_bytes()));
    file.extend(values);
    file
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
