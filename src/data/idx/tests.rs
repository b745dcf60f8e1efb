//! Tests of the reader on files made here, whole and damaged.

use std::fs;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

/// An IDX file of type `code`.
fn file(code: u8, extents: &[u32], values: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, code, extents.len() as u8];
    bytes.extend(extents.iter().flat_map(|extent| extent.to_be_bytes()));
    bytes.extend(values);
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// An empty folder of its own for each test, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("retape-idx-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.0.join(name), bytes).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left over lies in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
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

/// Writes both parts of a small MNIST, with `n` images each.
fn write_mnist(folder: &Folder, n: u32) {
    let pixels: Vec<u8> = (0..n * 784).map(|i| (i % 256) as u8).collect();
    let labels: Vec<u8> = (0..n).map(|i| (i % 10) as u8).collect();
    folder.write("train-images-idx3-ubyte", &file(0x08, &[n, 28, 28], &pixels));
    folder.write("train-labels-idx1-ubyte", &file(0x08, &[n], &labels));
    folder.write("t10k-images.idx3-ubyte.gz", &gzip(&file(0x08, &[n, 28, 28], &pixels)));
    folder.write("t10k-labels-idx1-ubyte.gz", &gzip(&file(0x08, &[n], &labels)));
}

#[test]
fn mnist_is_found_by_its_usual_names() {
    let folder = Folder::new("names");
    write_mnist(&folder, 12);
    let mnist = load_mnist(&folder.0).unwrap();
    assert_eq!(mnist.train, mnist.test);
    assert_eq!(mnist.train.len(), 12);
    assert_eq!(mnist.train.labels[..3], [0, 1, 2]);
    assert_eq!(mnist.train.image(0).unwrap()[255], 1.0);
    assert!(mnist.train.image(12).is_none());
    assert!(mnist.train.angles.iter().all(|&angle| angle == 0.0));
    let turned = mnist.train.rotated(1);
    assert!(turned.angles.iter().all(|&angle| angle != 0.0 && angle.abs() <= Digits::MAX_ANGLE));
}

#[test]
fn mnist_that_does_not_fit_together_is_an_error() {
    let folder = Folder::new("misfits");
    let error = || load_mnist(&folder.0).unwrap_err().to_string();
    assert!(error().contains("found no train-images-idx3-ubyte"), "{}", error());
    write_mnist(&folder, 3);
    for (bytes, what) in [
        (file(0x08, &[2], &[1, 2]), "holds 2 labels for 3 images"),
        (file(0x08, &[3], &[1, 2, 10]), "holds label 10"),
        (file(0x08, &[3, 1], &[1, 2, 3]), "not bytes of shape [count]"),
        (file(0x09, &[3], &[1, 2, 3]), "not bytes of shape [count]"),
    ] {
        folder.write("train-labels-idx1-ubyte", &bytes);
        assert!(error().contains(what), "{}", error());
    }
    folder.write("train-images-idx3-ubyte", &file(0x08, &[1, 2, 2], &[1; 4]));
    assert!(error().contains("not bytes of shape [count, 28, 28]"), "{}", error());
}
