//! The modules of the kit know only those below them.

use std::fs;
use std::path::{Path, PathBuf};

/// The modules, lowest first; those of one line do not know each other.
const LAYERS: &[&[&str]] = &[
    &["problem", "json", "lock"],
    &["error"],
    &["files", "guarded", "execution", "metrics", "optimise"],
    &["plot", "state", "data"],
    &["progress", "sweep"],
    &["checkpoint", "monitor"],
];

fn sources(folder: &Path, to: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, to);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            to.push(path);
        }
    }
}

fn layer(module: &str) -> usize {
    let found = LAYERS.iter().position(|layer| layer.contains(&module));
    found.unwrap_or_else(|| panic!("the module `{module}` has no layer"))
}

/// The modules of the kit that a source names, those of its documentation aside.
fn named(text: &str) -> Vec<&str> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let parts = code.flat_map(|line| line.split("crate::").skip(1));
    let ends = |part: &str| part.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(part.len());
    // Types at the root of the crate begin with a capital letter.
    let names = parts.map(|part| &part[..ends(part)]);
    names.filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase())).collect()
}

#[test]
fn modules_know_only_those_below_them() {
    assert_eq!(
        named("use crate::error::{A, B}; // x\n/// crate::state\nlet y = crate::Result::Ok(crate::data::f());"),
        ["error", "data"]
    );
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src");
    let mut files = vec![];
    sources(&root, &mut files);
    let mut n_imports = 0;
    for file in files {
        let part = file.strip_prefix(&root).unwrap().components().next().unwrap();
        let module = Path::new(part.as_os_str()).file_stem().unwrap().to_str().unwrap().to_owned();
        if module == "lib" {
            continue;
        }
        for other in named(&fs::read_to_string(&file).unwrap()) {
            let (from, to) = (layer(&module), layer(other));
            assert!(to < from || other == module, "{} of `{module}` knows `{other}`", file.display());
            n_imports += 1;
        }
    }
    assert!(n_imports > 50, "{n_imports} imports found");
}
