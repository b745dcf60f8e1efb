//! Files that lie: each is an error that names it, and nothing panics.

use std::fs;
use std::path::Path;

use retape::Tensor;
use retape::data::Random;
use retape::nn::Dense;
use retape_train::Error;
use retape_train::checkpoint::{Checkpoint, Checkpoints};
use retape_train::progress::Position;
use retape_train::state::{Save, load, save};

use crate::Folder;

fn write_raw(path: &Path, header: &str, data: &[u8]) {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    fs::write(path, bytes).unwrap();
}

#[test]
fn headers_that_lie() {
    let folder = Folder::new("headers");
    let path = folder.path().join("a.safetensors");
    let entry = |dtype: &str, shape: &str, start: u64, end: u64| {
        format!("{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"data_offsets\":[{start},{end}]}}")
    };
    let one = |entry: String| format!("{{\"value\":{entry}}}");
    let overlapping = format!("{{\"value\":{},\"b\":{}}}", entry("F32", "[2]", 0, 8), entry("F32", "[2]", 4, 12));
    let gap = format!("{{\"value\":{},\"b\":{}}}", entry("F32", "[2]", 0, 8), entry("F32", "[1]", 12, 16));
    let cases = [
        ("overlapping offsets", overlapping, 12),
        ("a gap", gap, 16),
        ("backwards", one(entry("F32", "[2]", 8, 0)), 8),
        ("more than is there", one(entry("F32", "[2]", 0, 1 << 60)), 8),
        ("a shape of another size", one(entry("F32", "[3]", 0, 8)), 8),
        ("a product that overflows", one(entry("F32", "[4294967296, 4294967296, 4]", 0, 8)), 8),
        ("negative", one("{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}".to_owned()), 8),
        ("an unknown dtype", one(entry("F31", "[2]", 0, 8)), 8),
        ("bytes after the end", one(entry("F32", "[2]", 0, 8)), 9),
        ("too few bytes", one(entry("F32", "[2]", 0, 8)), 7),
        ("no JSON", "{\"value\"".to_owned(), 8),
        ("a list", "[]".to_owned(), 0),
    ];
    for (what, header, n_bytes) in cases {
        write_raw(&path, &header, &vec![0; n_bytes]);
        let error = load(&Tensor::zeros([2]), &path).unwrap_err();
        assert!(matches!(&error, Error::Format { path: told, .. } if *told == path), "{what}: {error}");
    }
    for bytes in [vec![], vec![1; 7], vec![0xff; 8], [1_u64 << 40, 0].map(u64::to_le_bytes).concat()] {
        fs::write(&path, &bytes).unwrap();
        assert!(matches!(load(&Tensor::zeros([2]), &path), Err(Error::Format { .. })), "{bytes:?}");
    }
    // A truth value that is none.
    write_raw(&path, &one(entry("BOOL", "[2]", 0, 2)), &[1, 2]);
    let error = load(&Tensor::from([true, false]), &path).unwrap_err().to_string();
    assert!(error.contains("`value`") && error.contains("no truth value"), "{error}");
    // A dtype of the format that tensors do not have.
    write_raw(&path, &one(entry("I16", "[2]", 0, 4)), &[0; 4]);
    let error = load(&Tensor::from([1_i32, 2]), &path).unwrap_err().to_string();
    assert!(error.contains("`value` is i16[2] instead of i32[2]"), "{error}");
}

#[test]
fn indices_that_lie() {
    let folder = Folder::new("indices");
    let path = folder.path().join("m.safetensors.index.json");
    save(&Dense::new(1, 1, 1), folder.path().join("part.safetensors")).unwrap();
    save(&Tensor::zeros([1]), folder.path().parent().unwrap().join("outside.safetensors")).unwrap();
    let index = |map: &str| fs::write(&path, format!("{{\"weight_map\": {map}}}")).unwrap();
    let whole = "{\"weight\": \"part.safetensors\", \"bias\": \"part.safetensors\"}";
    index(whole);
    assert!(load(&Dense::new(2, 1, 1), &path).is_ok());
    let cases = [
        ("{\"value\": \"../outside.safetensors\"}", "not beside it"),
        ("{\"value\": \"/etc/passwd\"}", "not beside it"),
        ("{\"value\": \"..\"}", "not beside it"),
        ("{\"value\": \"a\\\\b\"}", "not beside it"),
        ("{\"value\": \"\"}", "not beside it"),
        ("{\"weight\": \"part.safetensors\"}", "does not say that `bias` is in part.safetensors"),
        (&whole.replace("bias", "bios"), "`bios` is in part.safetensors, where it is not"),
        ("[1]", "is not the JSON that it has to be"),
    ];
    for (map, expected) in cases {
        index(map);
        let error = load(&Dense::new(2, 1, 1), &path).unwrap_err().to_string();
        assert!(error.contains(expected), "{map}: {error}");
    }
    index("{\"value\": \"gone.safetensors\"}");
    assert!(
        matches!(load(&Tensor::zeros([1]), &path), Err(Error::Io { path, .. }) if path.ends_with("gone.safetensors"))
    );
    let _ = fs::remove_file(folder.path().parent().unwrap().join("outside.safetensors"));
}

#[test]
fn every_single_change_of_a_checkpoint_is_found() {
    let folder = Folder::new("mutations");
    let mut checkpoints = Checkpoints::open(folder.path()).unwrap();
    let tensors = vec![Tensor::from([1.0_f32, 2.0]), Tensor::from([3.0_f32])];
    let like: Vec<Tensor> = tensors.iter().map(Tensor::zeros_like).collect();
    checkpoints.save(Checkpoint::at(Position { step: 1, epoch: 0, batch: 1 }), &tensors).unwrap();
    checkpoints.wait().unwrap();
    let path = folder.path().join("step-0000000001/state.safetensors");
    let whole = fs::read(&path).unwrap();
    let mut random = Random::new(1, 2, 3);
    for round in 0..400 {
        let mut bytes = whole.clone();
        match round % 3 {
            0 => bytes[random.below(whole.len())] ^= 1 << random.below(8),
            1 => bytes.truncate(random.below(whole.len())),
            _ => bytes.push(0),
        }
        fs::write(&path, &bytes).unwrap();
        assert!(matches!(checkpoints.latest(&like), Err(Error::Format { .. })), "round {round}");
    }
    fs::write(&path, &whole).unwrap();
    assert!(checkpoints.latest(&like).is_ok());
}

#[test]
fn no_change_of_a_manifest_or_a_header_panics() {
    let folder = Folder::new("manifests");
    let mut checkpoints = Checkpoints::open(folder.path()).unwrap();
    let like = Tensor::from([1.0_f32, 2.0]);
    checkpoints.save(Checkpoint::at(Position { step: 1, epoch: 0, batch: 1 }).metric("loss", 0.5), &like).unwrap();
    checkpoints.wait().unwrap();
    let path = folder.path().join("step-0000000001/manifest.json");
    let whole = fs::read(&path).unwrap();
    let alone = folder.path().join("alone.safetensors");
    Save::new().metadata("a", "b").write(&like, &alone).unwrap();
    let state = fs::read(&alone).unwrap();
    let mut random = Random::new(9, 2, 3);
    let (mut n_good, n_rounds) = (0, 2000);
    for _ in 0..n_rounds {
        let mut bytes = whole.clone();
        bytes[random.below(whole.len())] = random.bits() as u8;
        fs::write(&path, &bytes).unwrap();
        // Some changes, such as of the time, are none that can be found; none may be worse than an error.
        n_good += usize::from(checkpoints.latest(&like).is_ok());
        let mut bytes = state.clone();
        bytes[random.below(state.len())] = random.bits() as u8;
        fs::write(&alone, &bytes).unwrap();
        let _ = load(&like, &alone);
    }
    assert!(n_good < n_rounds / 2, "{n_good} of {n_rounds} changed manifests are good");
}

#[test]
fn manifests_lead_to_no_file_elsewhere() {
    let folder = Folder::new("traversal");
    let mut checkpoints = Checkpoints::open(folder.path()).unwrap();
    checkpoints.save(Checkpoint::at(Position::default()), &Tensor::zeros([1])).unwrap();
    checkpoints.wait().unwrap();
    let path = folder.path().join("step-0000000000/manifest.json");
    let text = fs::read_to_string(&path).unwrap().replace("\"state.safetensors\"", "\"../../etc/passwd\"");
    fs::write(&path, text).unwrap();
    let error = checkpoints.latest(&Tensor::zeros([1])).unwrap_err().to_string();
    assert!(error.contains("../../etc/passwd") && error.contains("not beside it"), "{error}");
}
