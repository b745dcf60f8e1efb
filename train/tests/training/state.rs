//! States on disk.

use std::collections::BTreeMap;
use std::fs;

use retape::nn::Dense;
use retape::{DType, Tensor, Tree, bf16, f16, tree};
use retape_train::Error;
use retape_train::state::{Load, Problem, Save, Summary, load, save};
use safetensors::SafeTensors;

use crate::Folder;

#[derive(Clone, Debug, Tree)]
struct Block {
    #[tree(rename = "kernel")]
    weight: Tensor,
    n_heads: u32,
}

#[derive(Clone, Debug, Tree)]
struct Net {
    blocks: Vec<Block>,
    by_name: BTreeMap<String, Tensor>,
    head: Option<Dense>,
}

fn every_dtype() -> Vec<Tensor> {
    vec![
        Tensor::from([1.5_f32, f32::NAN, -0.0]),
        Tensor::from([[1e300_f64], [f64::NEG_INFINITY]]),
        Tensor::from_vec(vec![f16::from_bits(0x3c01), f16::from_bits(0x7e01)], [2]).unwrap(),
        Tensor::from_vec(vec![bf16::from_bits(0x3f81), bf16::from_bits(0xff80)], [1, 2]).unwrap(),
        Tensor::from([i32::MIN, 7]),
        Tensor::from(i64::MAX),
        Tensor::from([u32::MAX]),
        Tensor::from([0_u8, 255]),
        Tensor::from([true, false, true]),
        Tensor::zeros([0, 3]),
    ]
}

fn net() -> Net {
    let block = |n| Block { weight: Tensor::full([2, n], n as f32), n_heads: n as u32 };
    let by_name = BTreeMap::from([("a.b".to_owned(), Tensor::from(1_i64)), ("c".to_owned(), Tensor::from([0.5_f64]))]);
    Net { blocks: vec![block(1), block(2)], by_name, head: Some(Dense::new(3, 2, 2)) }
}

#[test]
fn every_dtype_and_bit_survives() {
    let folder = Folder::new("dtypes");
    let path = folder.path().join("all.safetensors");
    let (tensors, zeros) = (every_dtype(), every_dtype().iter().map(Tensor::zeros_like).collect::<Vec<_>>());
    save(&tensors, &path).unwrap();
    assert!(tree::same_bits(&load(&zeros, &path).unwrap(), &tensors).unwrap());
    // A second file of the same tree has the same bytes.
    let other = folder.path().join("again.safetensors");
    Save::new().write(&tensors, &other).unwrap();
    assert_eq!(fs::read(&path).unwrap(), fs::read(&other).unwrap());
}

#[test]
fn another_reader_of_the_format_finds_names_types_and_elements() {
    let folder = Folder::new("reader");
    let path = folder.path().join("net.safetensors");
    Save::new().metadata("made by", "a test").metadata("epoch", "3").write(&net(), &path).unwrap();
    let bytes = fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut names = file.names();
    names.sort_unstable();
    let expected = ["blocks.0.kernel", "blocks.1.kernel", "by_name.\"a.b\"", "by_name.c", "head.bias", "head.weight"];
    assert_eq!(names, expected);
    let kernel = file.tensor("blocks.1.kernel").unwrap();
    assert_eq!((kernel.shape(), kernel.dtype()), (&[2, 2][..], safetensors::Dtype::F32));
    assert_eq!(kernel.data(), [2.0_f32; 4].map(f32::to_le_bytes).concat());
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!(header.metadata().as_ref().unwrap()["made by"], "a test");
}

#[test]
fn a_file_of_another_writer_is_read() {
    let folder = Folder::new("writer");
    let path = folder.path().join("foreign.safetensors");
    let data = [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0].map(f32::to_le_bytes).concat();
    let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![3, 2], &data).unwrap();
    fs::write(&path, safetensors::serialize([("fc.weight", view)], None).unwrap()).unwrap();
    let loaded = Load::new()
        .names(|name| format!("fc.{name}"))
        .convert(|_, x| x.transpose())
        .partial()
        .read(&Dense::new(1, 2, 3), &path)
        .unwrap();
    assert_eq!(loaded.tree.weight.to_vec::<f32>().unwrap(), [1.0, 3.0, 5.0, 2.0, 4.0, 6.0]);
    assert_eq!(loaded.missing, ["bias"]);
}

#[test]
fn all_differences_are_told_at_once() {
    let folder = Folder::new("differences");
    let path = folder.path().join("net.safetensors");
    save(&net(), &path).unwrap();
    let mut other = net();
    other.blocks[0].weight = Tensor::zeros([2, 9]);
    other.blocks[1].weight = Tensor::zeros([2, 2]).cast(DType::F64);
    other.by_name.insert("new".to_owned(), Tensor::zeros([1]));
    other.head = None;
    let error = load(&other, &path).unwrap_err();
    let Error::State { path: told, problems } = &error else { panic!("{error}") };
    assert_eq!(told, &path);
    let text = |text: &str| text.to_owned();
    let expected = [
        Problem::Type { name: text("blocks.0.kernel"), wanted: text("f32[2, 9]"), found: text("f32[2, 1]") },
        Problem::Type { name: text("blocks.1.kernel"), wanted: text("f64[2, 2]"), found: text("f32[2, 2]") },
        Problem::Missing { name: text("by_name.new"), wanted: text("f32[1]") },
        Problem::Extra { name: text("head.bias"), found: text("f32[2]") },
        Problem::Extra { name: text("head.weight"), found: text("f32[2, 2]") },
    ];
    assert_eq!(problems[..], expected);
    assert!(error.to_string().contains("in 5 places:\n  `blocks.0.kernel` is f32[2, 1] instead of f32[2, 9]\n"));
    // A partial load forgives what is missing or extra, and no other type.
    let error = Load::new().partial().read(&other, &path).unwrap_err();
    assert!(matches!(&error, Error::State { problems, .. } if problems.len() == 2), "{error}");
    other.blocks = net().blocks;
    let loaded = Load::new().partial().read(&other, &path).unwrap();
    assert_eq!((loaded.missing, loaded.extra.len()), (vec![text("by_name.new")], 2));
}

#[test]
fn a_partial_load_of_nothing_is_an_error() {
    let folder = Folder::new("nothing");
    let path = folder.path().join("a.safetensors");
    save(&Dense::new(1, 2, 2), &path).unwrap();
    let wrong_prefix = Load::new().names(|name| format!("modle.{name}")).partial().read(&Dense::new(1, 2, 2), &path);
    assert!(matches!(wrong_prefix, Err(Error::State { .. })), "{wrong_prefix:?}");
}

#[test]
fn casts_on_request_only() {
    let folder = Folder::new("casts");
    let path = folder.path().join("half.safetensors");
    let half = Dense::new(1, 2, 2);
    let half = retape::map(&half, |x| x.cast(DType::F16));
    save(&half, &path).unwrap();
    assert!(load(&Dense::new(2, 2, 2), &path).is_err());
    let loaded = Load::new().cast().read(&Dense::new(2, 2, 2), &path).unwrap().tree;
    assert!(tree::same_bits(&loaded, &retape::map(&half, |x| x.cast(DType::F32))).unwrap());
}

#[test]
fn shards_have_an_index_and_take_the_place_of_what_was_there() {
    let folder = Folder::new("shards");
    let path = folder.path().join("model.safetensors");
    let layers: Vec<Dense> = (0..6).map(|seed| Dense::new(seed, 8, 8)).collect();
    let like: Vec<Dense> = (9..15).map(|seed| Dense::new(seed, 8, 8)).collect();
    save(&like, &path).unwrap();
    Save::new().shard_bytes(600).write(&layers, &path).unwrap();
    let names = folder.names();
    assert!(names.contains(&"model.safetensors.index.json".to_owned()) && names.len() == 4, "{names:?}");
    for name in names.iter().filter(|name| name.ends_with(".safetensors")) {
        assert!(fs::metadata(folder.path().join(name)).unwrap().len() < 600 + 1000, "{name}");
    }
    assert!(tree::same_bits(&load(&like, &path).unwrap(), &layers).unwrap());
    // By its index too, and after it was written again with other contents, and as one file.
    let index = folder.path().join("model.safetensors.index.json");
    assert!(tree::same_bits(&load(&like, &index).unwrap(), &layers).unwrap());
    Save::new().shard_bytes(600).write(&like, &path).unwrap();
    assert!(tree::same_bits(&load(&layers, &path).unwrap(), &like).unwrap());
    assert_eq!(folder.names().len(), 4, "{:?}", folder.names());
    save(&layers, &path).unwrap();
    assert_eq!(folder.names(), ["model.safetensors"]);
    assert!(tree::same_bits(&load(&like, &path).unwrap(), &layers).unwrap());
}

#[test]
fn a_tensor_that_has_no_elements_yet_is_refused_and_the_old_file_stays() {
    let folder = Folder::new("poisoned");
    let path = folder.path().join("a.safetensors");
    save(&Tensor::from(1.0_f32), &path).unwrap();
    let poisoned = Tensor::ones([2]) + Tensor::ones([3]);
    assert!(matches!(save(&poisoned, &path), Err(Error::Engine(_))));
    assert_eq!(load(&Tensor::from(0.0_f32), &path).unwrap().item::<f32>().unwrap(), 1.0);
    let there = Save::new().names(|_| "same".to_owned()).write(&Dense::new(1, 1, 1), &path);
    assert!(there.unwrap_err().to_string().contains("`same` is the name of two tensors"));
    assert_eq!(folder.names(), ["a.safetensors"]);
}

#[test]
fn a_summary_is_a_table_with_a_total() {
    let text = Summary::of(&net()).to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 8);
    assert!(lines[1].starts_with("blocks.0.kernel  f32[2, 1]"), "{text}");
    assert!(lines[7].starts_with("total") && lines[7].ends_with("14"), "{text}");
}

#[test]
fn an_index_that_was_there_takes_no_file_with_it_that_is_no_shard() {
    let folder = Folder::new("others");
    let path = folder.path().join("model.safetensors");
    let map = "{\"a\": \"model.safetensors\", \"b\": \"notes.txt\", \"c\": \"model-00001-of-00002.safetensors\"}";
    fs::write(folder.path().join("model.safetensors.index.json"), format!("{{\"weight_map\": {map}}}")).unwrap();
    for name in ["notes.txt", "model-00001-of-00002.safetensors"] {
        fs::write(folder.path().join(name), "old").unwrap();
    }
    let layer = Dense::new(1, 2, 3);
    save(&layer, &path).unwrap();
    assert_eq!(folder.names(), ["model.safetensors", "notes.txt"]);
    assert!(tree::same_bits(&load(&Dense::new(2, 2, 3), &path).unwrap(), &layer).unwrap());
}

#[test]
fn a_partial_load_of_nothing_lists_both_sides() {
    let folder = Folder::new("both");
    let path = folder.path().join("a.safetensors");
    let partial = |path| Load::new().names(|name| format!("modle.{name}")).partial().read(&Dense::new(1, 2, 2), path);
    save(&Dense::new(1, 2, 2), &path).unwrap();
    let message = partial(&path).unwrap_err().to_string();
    assert!(
        message.contains("`modle.weight` is missing") && message.contains("`weight` is not in the tree"),
        "{message}"
    );
    save(&Vec::<Tensor>::new(), &path).unwrap();
    assert!(matches!(partial(&path), Err(Error::State { .. })));
}

/// Only a child of the test below has a path.
#[cfg(unix)]
#[test]
fn child_that_saves() {
    if let Some(path) = std::env::var_os("RETAPE_TRAIN_TEST_MASK") {
        save(&Tensor::zeros([1]), path).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn a_file_has_the_permissions_that_the_user_gives_to_new_files() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("mask");
    for (mask, mode) in [("077", 0o600), ("022", 0o644), ("002", 0o664)] {
        let path = folder.path().join(mask);
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &format!("umask {mask}; exec \"$0\" --exact state::child_that_saves")]);
        let output = shell.arg(std::env::current_exe().unwrap()).env("RETAPE_TRAIN_TEST_MASK", &path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode, "umask {mask}");
    }
}

#[test]
fn a_file_that_a_killed_process_was_writing_goes_with_the_next_save() {
    let folder = Folder::new("left-over");
    let path = |name: &str| folder.path().join(name);
    for name in [".retape-Ab3xY9.tmp", ".retape-locked.tmp", ".tmpAb3xY9", "notes.tmp"] {
        fs::write(path(name), "half").unwrap();
    }
    // The file of a process which is alive.
    let locked = fs::File::open(path(".retape-locked.tmp")).unwrap();
    locked.lock().unwrap();
    let tensor = Tensor::ones([2]);
    save(&tensor, path("model.safetensors")).unwrap();
    assert_eq!(folder.names(), [".retape-locked.tmp", ".tmpAb3xY9", "model.safetensors", "notes.tmp"]);
    assert!(tree::same_bits(&load(&tensor, path("model.safetensors")).unwrap(), &tensor).unwrap());
    drop(locked);
    save(&tensor, path("model.safetensors")).unwrap();
    assert!(!path(".retape-locked.tmp").exists());
}

#[test]
fn a_name_that_would_be_read_as_an_index_is_not_written() {
    let folder = Folder::new("json");
    let tensor = Tensor::ones([2]);
    for path in ["m.json", "model.safetensors.index.json"].map(|name| folder.path().join(name)) {
        let message = save(&tensor, &path).unwrap_err().to_string();
        assert!(message.starts_with(&path.display().to_string()) && message.contains("index"), "{message}");
        assert!(message.contains(file!()), "{message}");
    }
    assert!(folder.names().is_empty());
}
