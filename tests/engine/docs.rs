//! The docs that a compiler does not check: examples of methods, the order of constructors, links between pages.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::tidy::{files, read, root};

/// A public method of `Tensor`, as its source has it.
#[derive(Debug)]
struct Method {
    name: String,
    file: PathBuf,
    has_example: bool,
    takes_self: bool,
}

/// The file of a module that another file declares.
fn module_file(parent: &Path, name: &str) -> PathBuf {
    let folder = match parent.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "mod") | None => parent.parent().unwrap_or(parent).to_owned(),
        Some(stem) => parent.with_file_name(stem),
    };
    let [flat, nested] = [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")];
    if root().join(&flat).exists() { flat } else { nested }
}

/// Whether a line begins an inherent `impl` of `Tensor`.
fn begins_impl(line: &str) -> bool {
    line.trim_start().strip_prefix("impl ").is_some_and(|rest| {
        let of = rest.trim_start_matches("$crate::tensor::");
        of.starts_with("Tensor {")
    })
}

/// The macros of a crate that write public methods of `Tensor`: `pub fn $name` in an `impl` of it.
fn method_macros(sources: &[PathBuf]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for path in sources {
        let (mut current, mut is_impl) = (None, false);
        for line in read(path).lines() {
            if let Some(rest) = line.strip_prefix("macro_rules! ") {
                (current, is_impl) = (rest.split([' ', '{']).next().map(str::to_owned), false);
            } else if line == "}" {
                current = None;
            }
            is_impl |= begins_impl(line);
            if is_impl && line.trim_start().starts_with("pub fn $") {
                found.extend(current.clone());
            }
        }
    }
    found
}

/// The methods of a module and those that it declares, in the order of the source, which is that of rustdoc.
fn methods(path: &Path, macros: &BTreeSet<String>, found: &mut Vec<Method>) {
    let text = read(path);
    let (mut docs, mut block_end) = (Vec::new(), None);
    let (mut is_macro, mut is_definition) = (false, false);
    for line in text.lines() {
        let code = line.trim();
        if let Some(doc) = code.strip_prefix("///") {
            docs.push(doc.trim());
            continue;
        }
        if code.starts_with("#[") {
            continue;
        }
        if let Some(name) =
            code.strip_prefix("pub mod ").or(code.strip_prefix("mod ")).and_then(|m| m.strip_suffix(';'))
        {
            let child = module_file(path, name);
            methods(&child, macros, found);
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        is_definition |= line.starts_with("macro_rules! ");
        if block_end.is_none() && !is_definition {
            is_macro = code.strip_suffix("! {").is_some_and(|name| macros.contains(name));
            if is_macro || begins_impl(line) {
                block_end = Some(format!("{indent}}}"));
            }
        } else if block_end.as_deref() == Some(line) || (is_definition && line == "}") {
            (block_end, is_definition) = (None, false);
        } else if block_end.is_some() {
            let declared = code.strip_prefix("pub fn ").or(code.strip_prefix("pub const fn "));
            // A row of a macro follows its docs; the name of the method begins with a small letter.
            let row = code.split(|c: char| !c.is_alphanumeric() && c != '_');
            let in_row = || row.clone().find(|word| word.starts_with(|c: char| c.is_ascii_lowercase()));
            let name = if is_macro && !docs.is_empty() { in_row() } else { declared };
            if let Some(name) = name {
                found.push(Method {
                    name: name.split(['(', '<']).next().unwrap_or(name).to_owned(),
                    file: path.to_owned(),
                    has_example: docs.contains(&"```"),
                    takes_self: is_macro
                        || declared.is_some_and(|text| text.contains("(&self") || text.contains("(self")),
                });
            }
        }
        docs.clear();
    }
}

fn tensor_methods() -> Vec<Method> {
    let sources: Vec<PathBuf> = files(&["rs"]).into_iter().filter(|path| path.starts_with("src")).collect();
    let macros = method_macros(&sources);
    assert!(
        ["unary", "fold_methods", "comparisons", "over_axes"].iter().all(|name| macros.contains(*name)),
        "{macros:?}"
    );
    let mut found = vec![];
    methods(Path::new("src/lib.rs"), &macros, &mut found);
    let names: BTreeSet<&str> = found.iter().map(|method| &*method.name).collect();
    assert_eq!(names.len(), found.len(), "a method is found twice");
    // Every method listed in the docs of `retape::ops` has been found, and nothing is missed without notice.
    let listed = read("src/ops/mod.rs");
    let mut listed_names: Vec<&str> = vec![];
    for row in listed.lines().filter(|line| line.starts_with("//! | ")) {
        let pieces: Vec<&str> = row.split('`').collect();
        let is_name = |word: &str| word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        // Functions are links, in brackets.
        let names = pieces.chunks_exact(2).filter(|pair| !pair[0].ends_with('[') && is_name(pair[1]));
        listed_names.extend(names.map(|pair| pair[1]));
    }
    assert!(listed_names.len() > 100, "{listed_names:?}");
    let missed: Vec<&&str> = listed_names.iter().filter(|name| **name != "_keep" && !names.contains(**name)).collect();
    assert!(missed.is_empty(), "not found in the sources: {missed:?}");
    found
}

#[test]
fn every_method_of_tensors_has_an_example() {
    let bare: Vec<String> = tensor_methods()
        .into_iter()
        .filter(|method| !method.has_example)
        .map(|method| format!("{}: {}", method.file.display(), method.name))
        .collect();
    assert!(bare.is_empty(), "{} methods have no example:\n{}", bare.len(), bare.join("\n"));
    let text = read("src/accelerate/mod.rs");
    let before = text.split("pub fn call(").next().expect("a split has a first part");
    let docs: Vec<&str> = before.lines().rev().skip(1).skip_while(|line| line.trim().starts_with("#[")).collect();
    let docs = docs.iter().take_while(|line| line.trim().starts_with("///"));
    assert!(docs.filter(|line| line.trim() == "/// ```").count() >= 2, "`Accelerated::call` has no example");
}

#[test]
fn constructors_of_tensors_come_first() {
    let found = tensor_methods();
    let first: Vec<&str> = found.iter().take_while(|method| !method.takes_self).map(|method| &*method.name).collect();
    assert_eq!(first, ["from_vec", "full", "zeros", "ones", "zeros_of", "arange", "eye", "eye_of"]);
}

/// A link of a page: as it is written there, in a line, or in a definition `[label]: target`.
#[derive(Debug)]
struct Link {
    label: Option<String>,
    target: String,
}

/// The links of a page, code aside.
fn links(text: &str) -> Vec<Link> {
    let mut found = vec![];
    let mut is_code = false;
    for line in text.lines() {
        is_code ^= line.trim_start().starts_with("```");
        if is_code {
            continue;
        }
        if let Some((label, target)) = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")) {
            found.push(Link { label: Some(label.to_owned()), target: target.to_owned() });
            continue;
        }
        for piece in line.split("](").skip(1) {
            let target = piece.split(')').next().unwrap_or(piece);
            found.push(Link { label: None, target: target.to_owned() });
        }
    }
    found
}

/// The anchors of a page: its headings as GitHub and rustdoc write them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let heading = |line: &&str| {
        is_code ^= line.trim_start().starts_with("```");
        !is_code && line.starts_with('#')
    };
    let slug = |line: &str| {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>().replace(' ', "-")
    };
    text.lines().filter(heading).map(slug).collect()
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut dead = vec![];
    let mut n_links = 0;
    for page in files(&["md"]) {
        let text = read(&page);
        for Link { target, .. } in links(&text).into_iter().filter(|link| !link.target.contains("://")) {
            n_links += 1;
            let (file, anchor) = target.split_once('#').map_or((&*target, None), |(file, anchor)| (file, Some(anchor)));
            let file = if file.is_empty() { page.clone() } else { page.parent().unwrap_or(&page).join(file) };
            let has_anchor = |anchor: &str| anchors(&read(&file)).contains(anchor);
            if !root().join(&file).exists() || anchor.is_some_and(|anchor| !has_anchor(anchor)) {
                dead.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(n_links > 20, "{n_links}");
    assert_eq!(dead, [""; 0]);
}

/// Pages are shown by GitHub and, as modules, by rustdoc. There a path of a file leads nowhere; so links to other pages
/// have labels, which `src/guide.rs` defines as links to modules.
#[test]
fn links_of_pages_lead_somewhere_as_modules_too() {
    let source = read("src/guide.rs");
    let mut labels: Vec<&str> = vec![];
    let mut pages: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for line in source.lines() {
        let doc = line.trim_start().trim_start_matches("//!").trim_start_matches("///").trim_start();
        if let Some((label, _)) = doc.strip_prefix('[').and_then(|rest| rest.split_once("]: crate::")) {
            labels.push(label);
        } else if let Some((_, rest)) = line.split_once("include_str!(\"../") {
            let page = rest.split('"').next().unwrap_or(rest);
            pages.insert(page.to_owned(), std::mem::take(&mut labels));
        }
    }
    let shown: BTreeSet<&str> = pages.keys().map(String::as_str).collect();
    let all: BTreeSet<String> = files(&["md"])
        .into_iter()
        .filter(|path| path.parent() == Some(Path::new("docs")))
        .map(|path| path.display().to_string())
        // The page of another crate, which runs its programs.
        .filter(|page| {
            !["train/src/lib.rs", "dist/src/lib.rs"]
                .iter()
                .any(|source| read(source).contains(&format!("include_str!(\"../../{page}\")")))
        })
        .collect();
    assert_eq!(shown, all.iter().map(String::as_str).collect(), "every page of `docs` is a module of `guide`");
    let mut dead = vec![];
    for (page, labels) in &pages {
        for Link { label, target } in links(&read(page)) {
            let is_elsewhere = !target.contains("://") && !target.starts_with('#');
            if is_elsewhere && !label.as_ref().is_some_and(|label| labels.contains(&&**label)) {
                dead.push(format!("{page}: {target}"));
            }
        }
    }
    assert_eq!(dead, [""; 0]);
}

#[test]
fn links_and_headings_are_recognised() {
    let page = "# A `b` page: c, d\n[x](y.md) and [z](#w)\n```text\n[not](one.md)\n```\n[l]: m.md#n\n";
    let found: Vec<(Option<String>, String)> = links(page).into_iter().map(|link| (link.label, link.target)).collect();
    let expected = [(None, "y.md"), (None, "#w"), (Some("l".to_owned()), "m.md#n")];
    assert_eq!(found, expected.map(|(label, target)| (label, target.to_owned())));
    assert!(anchors(page).contains("a-b-page-c-d"));
}

/// The source files that a text names, with each of `{a,b}` in turn.
fn named_sources(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_/{},.-".contains(c);
    let words = text.split(|c| !is_part(c)).filter(|word| word.len() > 3 && word.ends_with(".rs"));
    let mut found = BTreeSet::new();
    for word in words {
        match (word.split_once('{'), word.split_once('}')) {
            (Some((before, _)), Some((_, after))) => {
                let inner = &word[before.len() + 1..word.len() - after.len() - 1];
                found.extend(inner.split(',').map(|name| format!("{before}{name}{after}")));
            }
            _ => found.extend(word.split(',').filter(|name| name.ends_with(".rs")).map(str::to_owned)),
        }
    }
    found
}

#[test]
fn source_files_that_pages_name_are_there() {
    assert_eq!(
        named_sources("`a.rs`, (`b/{c,d}.rs`), src/<family>.rs x.rst").into_iter().collect::<Vec<_>>(),
        ["a.rs", "b/c.rs", "b/d.rs"]
    );
    let sources = files(&["rs"]);
    let mut n_names = 0;
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"] {
        for name in named_sources(&read(page)) {
            n_names += 1;
            assert!(sources.iter().any(|path| path.ends_with(&name)), "{page} names `{name}`, which is no source file");
        }
    }
    assert!(n_names > 200, "{n_names}");
}
