//! A type name means one thing in a crate: two types of the same name, in whatever modules, make a reader ask which one
//! is meant.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::{files, read};

/// The folders of the crates.
const CRATES: [&str; 7] = ["src", "kernels/src", "runtime/src", "derive/src", "report/src", "train/src", "dist/src"];

/// Names that a crate may have several times, each for a reason.
const SHARED: [(&str, &str); 4] = [
    // The op, and the layer that applies it: both are public.
    ("src", "Conv2d"),
    // A module whose functions fail in one way of its own has its own alias, as the crate has.
    ("src", "Result"),
    // The library of NCCL and a link over it: the real ones, or those of a build without the feature.
    ("dist/src", "Library"),
    ("dist/src", "Link"),
];

/// The type that a line defines in the module of its file.
fn defined(line: &str) -> Option<&str> {
    let behind_pub = match line.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ").map(|(_, item)| item),
        None => line.strip_prefix("pub "),
    };
    let (kind, name) = behind_pub.unwrap_or(line).split_once(' ')?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    ["struct", "enum", "union", "trait", "type"].contains(&kind).then_some(&name[..end])
}

/// The types that product code of a source defines in the module of the file.
fn types(text: &str) -> Vec<&str> {
    text.lines().take_while(|line| *line != "mod tests {").filter_map(defined).collect()
}

/// The places of each name that a crate has several times.
fn repeated(folder: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in files(&["rs"]).iter().filter(|path| path.starts_with(folder)) {
        if path.file_name() != Some("tests.rs".as_ref()) {
            for name in types(&read(path)) {
                places.entry(name.to_owned()).or_default().push(path.display().to_string());
            }
        }
    }
    places.into_iter().filter(|(_, at)| at.len() > 1).map(|(name, at)| (name, at.into_iter().collect())).collect()
}

#[test]
fn a_type_name_means_one_thing_in_a_crate() {
    let mut found = vec![];
    for folder in CRATES {
        let repeated = repeated(folder);
        for (_, name) in SHARED.iter().filter(|(of, _)| *of == folder) {
            assert!(repeated.contains_key(*name), "{folder} has one {name} now: it needs no exception");
        }
        let is_shared = |name: &str| SHARED.contains(&(folder, name));
        found.extend(
            repeated.into_iter().filter(|(name, _)| !is_shared(name)).map(|(name, at)| format!("{name}: {at:?}")),
        );
    }
    assert_eq!(found, [""; 0], "call each what the field calls it");
}

#[test]
fn definitions_of_types_are_recognised() {
    let source = [
        "pub(crate) struct One<'a, T>(&'a T);",
        "    struct Within;",
        "enum Two {",
        "pub trait Three: Send {",
        "type Four<T> = Vec<T>;",
        "pub(in crate::x) union Five {",
        "fn six() -> struct_like {",
        "impl Seven {",
        "// struct Eight;",
        "mod tests {",
        "struct Nine;",
    ];
    assert_eq!(types(&source.join("\n")), ["One", "Two", "Three", "Four", "Five"]);
    assert!(types(&read("src/graph/mod.rs")).contains(&"Graph"));
}
