//! The modules of the crate know only those below them.

use std::fs;
use std::path::{Path, PathBuf};

/// The modules, lowest first; those of one line do not know each other.
const LAYERS: &[&[&str]] = &[
    &["agree", "error", "frame", "sync", "transport"],
    &["nccl"],
    &["launcher", "link", "mailbox"],
    &["wire"],
    &["mpi"],
    &["exit"],
    &["world"],
    &["threads"],
    &["trees"],
    &["norm"],
];

fn layer(module: &str) -> usize {
    let found = LAYERS.iter().position(|layer| layer.contains(&module));
    found.unwrap_or_else(|| panic!("the module `{module}` has no layer"))
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

#[test]
fn modules_know_only_those_below_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src");
    let mut n_imports = 0;
    for file in sources(&root) {
        let part = file.strip_prefix(&root).unwrap().components().next().unwrap();
        let module = Path::new(part.as_os_str()).file_stem().unwrap().to_str().unwrap();
        if module == "lib" {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        for other in text.split("crate::").skip(1) {
            let end = other.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(other.len());
            let other = &other[..end];
            assert!(layer(other) < layer(module), "{} of `{module}` knows `{other}`", file.display());
            n_imports += 1;
        }
    }
    assert!(n_imports > 15, "only {n_imports} imports found");
}
