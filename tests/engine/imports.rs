//! Modules of the engine's crates import in one direction: the layers of `src` stand here, and no crate has a circle.
//!
//! Imports are read from the sources: `use` declarations and paths that begin with `crate`, `super` or `self`, those of
//! tests aside. A name that a module re-exports is followed to the module that it comes from. Modules of one folder are
//! compared with each other; a folder's `mod.rs` and the files in the folder may know each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use crate::tidy::{files, read};

/// The modules of `src`, lowest first; those of one line do not know each other.
const LAYERS: &[&[&str]] = &[
    &["determinism", "method", "serialise", "settings"],
    &["signature", "types"],
    &["error", "identity"],
    &["data", "tensor", "warnings"],
    &["ops", "placement"],
    &["graph", "tree"],
    &["callable", "opt", "plan", "random", "tape"],
    &["autodiff", "code", "collective", "nn", "optim", "trace"],
    &["compile"],
    &["call"],
    &["eager"],
    &["apply", "observe", "replay"],
    &["diagnose"],
    &["options"],
    &["accelerate", "grad"],
    &["artefact"],
];

/// The folders of the engine's crates.
const CRATES: [&str; 4] = ["src", "kernels/src", "runtime/src", "derive/src"];

/// The steps of a path, such as those of `crate::graph::Node` without the first.
type Steps = Vec<String>;

/// A source file as its imports need it.
struct Source {
    module: Steps,
    /// The paths that it names.
    paths: Vec<Steps>,
    /// Names that it passes on, with where they come from.
    passed_on: BTreeMap<String, Steps>,
}

/// Imports among the modules of each folder, with an example of each.
type Imports = BTreeMap<Steps, BTreeMap<(String, String), String>>;

/// The words and marks of a source; no comments, texts or characters.
fn tokens(text: &str) -> Vec<&str> {
    let mut found = vec![];
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let hashes = rest.trim_start_matches('r').len() - rest.trim_start_matches('r').trim_start_matches('#').len();
        let raw = format!("r{}\"", "#".repeat(hashes));
        let end_of =
            |close: &str, from: usize| rest[from..].find(close).map_or(rest.len(), |at| from + at + close.len());
        let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (len, is_token) = match c {
            '/' if rest.starts_with("//") => (end_of("\n", 0), false),
            'r' if rest.starts_with(&raw) => (end_of(&format!("\"{}", "#".repeat(hashes)), raw.len()), false),
            '"' => (text_len(rest), false),
            '\'' if rest[1..].starts_with('\\') => (end_of("'", 3), false),
            '\'' if rest[1..].chars().nth(1) == Some('\'') => {
                (2 + rest[1..].chars().next().map_or(0, char::len_utf8), false)
            }
            ':' if rest.starts_with("::") => (2, true),
            _ if word > 0 => (word, true),
            _ => (c.len_utf8(), !c.is_whitespace()),
        };
        if is_token {
            found.push(&rest[..len]);
        }
        rest = &rest[len..];
    }
    found
}

/// The length of a text in quotes.
fn text_len(rest: &str) -> usize {
    let mut is_escaped = true;
    let end = rest.bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    });
    end.map_or(rest.len(), |end| end + 1)
}

/// Where the item or the brackets that begin at `from` end.
fn end_of_item(tokens: &[&str], from: usize) -> usize {
    let mut depth = 0_usize;
    for (n, token) in tokens.iter().enumerate().skip(from) {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" => depth -= 1,
            "}" if depth == 1 => return n + 1,
            "}" => depth -= 1,
            ";" if depth == 0 => return n + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// The tokens without the items that only tests have, and the names of modules among these.
fn product<'t>(tokens: &[&'t str]) -> (Vec<&'t str>, Vec<&'t str>) {
    let (mut kept, mut test_modules, mut n) = (vec![], vec![], 0);
    while n < tokens.len() {
        let is_attribute = tokens[n] == "#" && tokens.get(n + 1) == Some(&"[");
        let close = n + tokens[n..].iter().position(|token| *token == "]").unwrap_or(0);
        let attribute = if is_attribute { &tokens[n..=close] } else { &[] };
        let has = |word: &str| attribute.contains(&word);
        if !(has("cfg") && has("test") && !has("not")) {
            kept.push(tokens[n]);
            n += 1;
            continue;
        }
        let end = end_of_item(tokens, close + 1);
        let item = &tokens[close + 1..end];
        test_modules.extend(item.windows(2).find(|pair| pair[0] == "mod").map(|pair| pair[1]));
        n = end;
    }
    (kept, test_modules)
}

/// Reads what a `use` declaration names, from after `use` or an open brace on; gives where it ends.
fn read_use(tokens: &[&str], mut n: usize, before: &[String], found: &mut Vec<(Steps, String)>) -> usize {
    let mut steps = before.to_vec();
    loop {
        match tokens[n] {
            "{" => {
                n += 1;
                while !["}", ";"].contains(&tokens[n]) {
                    n = read_use(tokens, n, &steps, found);
                    n += usize::from(tokens[n] == ",");
                }
                return n + 1;
            }
            ";" | "," | "}" => {
                let name = steps.last().cloned().unwrap_or_default();
                found.push((steps, name));
                return n;
            }
            "as" => {
                found.push((steps, tokens[n + 1].to_owned()));
                return n + 2;
            }
            "::" => {}
            step => steps.push(step.to_owned()),
        }
        n += 1;
    }
}

/// A path from the root of the crate, if it is one of this crate.
fn absolute(module: &Steps, path: &[String], modules: &BTreeSet<Steps>) -> Option<Steps> {
    let n_supers = path.iter().take_while(|step| *step == "super").count();
    let (from, rest) = match path.first()?.as_str() {
        "crate" => (0, &path[1..]),
        "self" => (module.len(), &path[1..]),
        "super" => (module.len().checked_sub(n_supers)?, &path[n_supers..]),
        first => {
            let child = [&module[..], &[first.to_owned()]].concat();
            modules.contains(&child).then_some((module.len(), path))?
        }
    };
    let rest = rest.iter().filter(|step| *step != "self").cloned();
    Some(module[..from].iter().cloned().chain(rest).collect())
}

/// The paths that a file of a module names, those of tests aside.
fn source(module: Steps, text: &str, modules: &BTreeSet<Steps>) -> Source {
    let all = tokens(text);
    let (tokens, _) = product(&all);
    let (mut paths, mut passed_on) = (vec![], BTreeMap::new());
    let mut n = 0;
    while n < tokens.len() {
        // The bounds of a type may be captured by `use<..>`.
        if tokens[n] == "use" && tokens.get(n + 1) != Some(&"<") {
            let mut found = vec![];
            let is_passed_on = n > 0 && ["pub", ")"].contains(&tokens[n - 1]);
            n = read_use(&tokens, n + 1, &[], &mut found);
            for (path, name) in found {
                let Some(path) = absolute(&module, &path, modules) else { continue };
                if is_passed_on {
                    passed_on.insert(name, path.clone());
                }
                paths.push(path);
            }
            continue;
        }
        let is_start = ["crate", "super", "self"].contains(&tokens[n]) && (n == 0 || tokens[n - 1] != "::");
        let steps = tokens[n..].chunks(2).take_while(|pair| pair[0].starts_with(|c: char| c.is_alphabetic()));
        let n_steps = steps.clone().position(|pair| pair.get(1) != Some(&"::")).map_or(0, |last| last + 1);
        if is_start && n_steps > 1 {
            let path: Steps = steps.take(n_steps).map(|pair| pair[0].to_owned()).collect();
            paths.extend(absolute(&module, &path, modules));
        }
        n += 1;
    }
    Source { module, paths, passed_on }
}

/// The sources of a crate, without those that only tests have.
fn sources(folder: &str) -> Vec<Source> {
    let all: Vec<_> = files(&["rs"]).into_iter().filter(|path| path.starts_with(folder)).collect();
    let texts: BTreeMap<Steps, String> =
        all.iter().map(|path| (module(path.strip_prefix(folder).unwrap()), read(path))).collect();
    let modules: BTreeSet<Steps> = texts.keys().cloned().collect();
    let of_tests: BTreeSet<Steps> = texts
        .iter()
        .flat_map(|(module, text)| {
            let names = product(&tokens(text)).1;
            names.into_iter().map(|name| [&module[..], &[name.to_owned()]].concat()).collect::<Vec<_>>()
        })
        .collect();
    let product = texts.into_iter().filter(|(module, _)| !of_tests.contains(module));
    product.map(|(module, text)| source(module, &text, &modules)).collect()
}

/// The module of a file.
fn module(path: &Path) -> Steps {
    let step = |part: Component<'_>| part.as_os_str().to_str().unwrap().trim_end_matches(".rs").to_owned();
    let mut steps: Steps = path.components().map(step).collect();
    steps.pop_if(|last| ["mod", "lib"].contains(&last.as_str()));
    steps
}

/// The module that a path leads to, through names that modules pass on.
fn target(path: &Steps, sources: &BTreeMap<Steps, &Source>) -> Steps {
    let mut path = path.clone();
    // A name is passed on a few times at most.
    for _ in 0..8 {
        let n = (0..=path.len()).rev().find(|&n| sources.contains_key(&path[..n])).unwrap_or(0);
        let passed_on = path.get(n).and_then(|name| sources.get(&path[..n])?.passed_on.get(name));
        match passed_on {
            Some(from) if *from != path => path = from.iter().chain(&path[n + 1..]).cloned().collect(),
            _ => return path[..n].to_vec(),
        }
    }
    path
}

fn imports(sources: &[Source]) -> Imports {
    let by_module = sources.iter().map(|source| (source.module.clone(), source)).collect();
    let mut found = Imports::new();
    for source in sources {
        for path in &source.paths {
            let target = target(path, &by_module);
            let n = source.module.iter().zip(&target).take_while(|(one, other)| one == other).count();
            if let (Some(from), Some(to)) = (source.module.get(n), target.get(n)) {
                let example = format!("{} names {}", source.module.join("::"), path.join("::"));
                found.entry(target[..n].to_vec()).or_default().entry((from.clone(), to.clone())).or_insert(example);
            }
        }
    }
    found
}

/// Imports that lead from a module back to it, if there are any.
fn circle(imports: &BTreeMap<(String, String), String>) -> Vec<&str> {
    let mut left: Vec<(&(String, String), &String)> = imports.iter().collect();
    loop {
        let from: BTreeSet<&String> = left.iter().map(|((from, _), _)| from).collect();
        let to: BTreeSet<&String> = left.iter().map(|((_, to), _)| to).collect();
        let n_before = left.len();
        left.retain(|((one, other), _)| to.contains(one) && from.contains(other));
        if left.len() == n_before {
            return left.into_iter().map(|(_, example)| example.as_str()).collect();
        }
    }
}

#[test]
fn no_crate_imports_in_a_circle() {
    let mut n_imports = 0;
    for folder in CRATES {
        let imports = imports(&sources(folder));
        for (level, imports) in &imports {
            let circle = circle(imports);
            assert!(circle.is_empty(), "in {folder}, {}:\n{}", level.join("::"), circle.join("\n"));
            n_imports += imports.len();
        }
    }
    assert!(n_imports > 400, "{n_imports} imports found");
}

#[test]
fn modules_of_the_front_crate_know_only_those_below_them() {
    let layer = |module: &str| {
        let found = LAYERS.iter().position(|layer| layer.contains(&module));
        found.unwrap_or_else(|| panic!("the module `{module}` has no layer"))
    };
    let imports = imports(&sources("src"));
    let upward: Vec<&String> = imports[&vec![]]
        .iter()
        .filter(|((from, to), _)| layer(to) >= layer(from))
        .map(|(_, example)| example)
        .collect();
    assert!(upward.is_empty(), "{upward:#?}");
    let folders = files(&["rs"]).into_iter().filter_map(|path| module(path.strip_prefix("src").ok()?).first().cloned());
    let known: BTreeSet<&str> = LAYERS.iter().flat_map(|layer| layer.iter().copied()).collect();
    let unlisted: BTreeSet<String> = folders.filter(|module| !known.contains(module.as_str())).collect();
    assert_eq!(unlisted, BTreeSet::from(["guide".to_owned()]));
}

#[test]
fn imports_are_found_however_they_are_written() {
    let texts = [
        ("", "mod a; mod b; mod c; pub use b::Thing as Other;"),
        ("a", "use crate::{b::{self, X as Y}, c}; fn f() { let t = \"crate::d\"; /* */ crate::Other::new('\"') }"),
        ("b", "// crate::a\n#[cfg(test)] mod tests { use crate::a::A; } impl X { fn g() -> super::c::C<'static> {} }"),
        ("c", r##"const T: &str = r#"crate::a"#; #[cfg(not(test))] use crate::c::c1::C; pub(crate) use c1::C;"##),
        ("c::c1", "use super::c2::D; #[cfg(test)] use crate::a::A;"),
        ("c::c2", "use super::C;"),
    ];
    let steps = |path: &str| path.split("::").filter(|step| !step.is_empty()).map(str::to_owned).collect::<Steps>();
    let modules: BTreeSet<Steps> = texts.iter().map(|(module, _)| steps(module)).collect();
    let sources: Vec<Source> = texts.iter().map(|(module, text)| source(steps(module), text, &modules)).collect();
    let imports = imports(&sources);
    let pairs = |level: &str| -> Vec<String> {
        imports[&steps(level)].keys().map(|(from, to)| format!("{from} {to}")).collect()
    };
    assert_eq!(pairs(""), ["a b", "a c", "b c"]);
    assert_eq!(circle(&imports[&steps("")]), [""; 0]);
    assert_eq!(pairs("c"), ["c1 c2", "c2 c1"]);
    assert_eq!(circle(&imports[&steps("c")]), ["c::c1 names c::c2::D", "c::c2 names c::C"]);
}
