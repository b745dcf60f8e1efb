//! The rules of the repository that a compiler does not know: sizes and names of files, layers, where unsafe code is,
//! how sentences begin.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Lines of a source file at most.
const MAX_LINES: usize = 800;

/// File names that say nothing.
const BANNED: [&str; 9] = ["utils", "util", "helpers", "helper", "common", "misc", "base", "types2", "manager"];

/// The files that may hold unsafe code.
const UNSAFE: [&str; 77] = [
    "dist/benches/collectives.rs",
    "dist/src/exit.rs",
    "dist/src/mpi/binding.rs",
    "dist/src/mpi/requests.rs",
    "dist/src/nccl/binding.rs",
    "dist/src/nccl/mod.rs",
    "dist/tests/processes/worker.rs",
    "kernels/examples/gemm_speed.rs",
    "kernels/src/call.rs",
    "kernels/src/cpu/tests.rs",
    "kernels/src/gpu/call.rs",
    "kernels/src/library/cast_half.rs",
    "kernels/src/library/conv.rs",
    "kernels/src/library/dense.rs",
    "kernels/src/library/exchange.rs",
    "kernels/src/library/matmul.rs",
    "kernels/src/library/micro/attention/gradient.rs",
    "kernels/src/library/micro/attention/operand.rs",
    "kernels/src/library/micro/attention/panels.rs",
    "kernels/src/library/micro/attention.rs",
    "kernels/src/library/micro/column.rs",
    "kernels/src/library/micro/copy.rs",
    "kernels/src/library/micro/depthwise.rs",
    "kernels/src/library/micro/direct.rs",
    "kernels/src/library/micro/dots.rs",
    "kernels/src/library/micro/drive.rs",
    "kernels/src/library/micro/filter.rs",
    "kernels/src/library/micro/groups.rs",
    "kernels/src/library/micro/mod.rs",
    "kernels/src/library/micro/moves.rs",
    "kernels/src/library/micro/narrow.rs",
    "kernels/src/library/micro/near.rs",
    "kernels/src/library/micro/one_channel.rs",
    "kernels/src/library/micro/one_tap.rs",
    "kernels/src/library/micro/pack.rs",
    "kernels/src/library/micro/pairs.rs",
    "kernels/src/library/micro/peak.rs",
    "kernels/src/library/micro/planes.rs",
    "kernels/src/library/micro/scratch.rs",
    "kernels/src/library/micro/shallow.rs",
    "kernels/src/library/micro/simd.rs",
    "kernels/src/library/micro/sliding.rs",
    "kernels/src/library/micro/small.rs",
    "kernels/src/library/micro/softmax.rs",
    "kernels/src/library/micro/split_k.rs",
    "kernels/src/library/micro/stored.rs",
    "kernels/src/library/micro/strip.rs",
    "kernels/src/library/micro/tile.rs",
    "kernels/src/library/micro/turned.rs",
    "kernels/src/library/micro/wide.rs",
    "kernels/src/library/tests.rs",
    "kernels/src/library/view.rs",
    "runtime/src/block.rs",
    "runtime/src/buffer.rs",
    "runtime/src/chunk.rs",
    "runtime/src/code.rs",
    "runtime/src/cuda/api.rs",
    "runtime/src/cuda/chain.rs",
    "runtime/src/cuda/driver.rs",
    "runtime/src/cuda/staging.rs",
    "runtime/src/threads.rs",
    "runtime/tests/cuda.rs",
    "tests/cuda-sim/src/alu/fused.rs",
    "tests/cuda-sim/src/driver/control.rs",
    "tests/cuda-sim/src/driver/device_calls.rs",
    "tests/cuda-sim/src/driver/foreign.rs",
    "tests/cuda-sim/src/driver/graph_calls.rs",
    "tests/cuda-sim/src/driver/install.rs",
    "tests/cuda-sim/src/driver/launch_calls.rs",
    "tests/cuda-sim/src/driver/memory_calls.rs",
    "tests/cuda-sim/src/driver/module_calls.rs",
    "tests/cuda-sim/src/driver/stream_calls.rs",
    "tests/cuda-sim/tests/driver.rs",
    "tests/nccl-sim/src/calls.rs",
    "tests/nccl-sim/src/cuda.rs",
    "tests/nccl-sim/src/install.rs",
    "tests/nccl-sim/tests/refusals.rs",
];

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is a folder of the repository")
}

/// All files below the root with one of these extensions, as paths from the root; no build outputs.
pub(crate) fn files(extensions: &[&str]) -> Vec<PathBuf> {
    let (mut found, mut folders) = (vec![], vec![root().to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let is_output = folder == root() && ["target", "out", "wip", ".git"].contains(&name)
                || folder == root().join("fuzz") && name == "target";
            if path.is_dir() && !is_output {
                folders.push(path);
            } else if path.extension().is_some_and(|own| extensions.iter().any(|extension| own == *extension)) {
                found.push(path.strip_prefix(root()).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

pub(crate) fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn sources() -> Vec<PathBuf> {
    let sources = files(&["rs"]);
    assert!(sources.len() > 100, "only {} source files found", sources.len());
    sources
}

#[test]
fn files_are_short() {
    let long: Vec<String> = sources()
        .iter()
        .map(|path| (path, read(path).lines().count()))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .map(|(path, lines)| format!("{} has {lines} lines", path.display()))
        .collect();
    assert_eq!(long, [""; 0]);
}

#[test]
fn file_names_say_something() {
    let banned = |path: &PathBuf| path.file_stem().is_some_and(|stem| BANNED.iter().any(|name| stem == *name));
    let banned: Vec<PathBuf> = sources().into_iter().filter(banned).collect();
    assert!(banned.is_empty(), "{banned:?}");
}

#[test]
fn files_begin_with_what_they_are() {
    // Programs of compile-fail tests are as users write them.
    let speaks = |path: &PathBuf| path.starts_with("tests/derive/cases") || read(path).starts_with("//!");
    let silent: Vec<PathBuf> = sources().into_iter().filter(|path| !speaks(path)).collect();
    assert!(silent.is_empty(), "{silent:?}");
}

/// The crates of this workspace that a manifest names among its dependencies, those of tests aside.
fn own_dependencies(manifest: &str) -> Vec<String> {
    let mut found = BTreeSet::new();
    let mut section = "";
    for line in read(manifest).lines() {
        if let Some(header) = line.strip_prefix('[') {
            section = if header.contains("dependencies") && !header.contains("workspace") && !header.contains("dev-") {
                "dependencies"
            } else {
                ""
            };
        } else if section == "dependencies" && line.starts_with("retape") {
            found.extend(line.split(['.', ' ', '=']).next().map(str::to_owned));
        }
    }
    found.into_iter().collect()
}

#[test]
fn lower_layers_know_no_higher_one() {
    assert_eq!(own_dependencies("runtime/Cargo.toml"), [""; 0]);
    assert_eq!(own_dependencies("derive/Cargo.toml"), [""; 0]);
    assert_eq!(own_dependencies("kernels/Cargo.toml"), ["retape-runtime"]);
    assert_eq!(own_dependencies("report/Cargo.toml"), ["retape"]);
    assert_eq!(own_dependencies("Cargo.toml"), ["retape-derive", "retape-kernels", "retape-runtime"]);
}

/// Whether a file has unsafe code, comments aside.
fn is_unsafe(text: &str) -> bool {
    let has = |code: &str| {
        let words: Vec<&str> = code.split_whitespace().collect();
        let after = |word: &str| ["{", "fn", "impl", "extern", "trait"].iter().any(|next| word.starts_with(next));
        words.windows(2).any(|pair| pair[0].ends_with("unsafe") && after(pair[1])) || code.contains("unsafe(")
    };
    text.lines().any(|line| has(line.split("//").next().unwrap_or(line)))
}

#[test]
fn unsafe_code_is_where_it_is_known_to_be() {
    assert!(is_unsafe("let x = unsafe { *p };") && is_unsafe("pub unsafe fn f() {}") && !is_unsafe("// unsafe { }"));
    let own = Path::new("tests/engine/tidy.rs");
    let found: Vec<PathBuf> = sources().into_iter().filter(|path| path != own && is_unsafe(&read(path))).collect();
    assert_eq!(found, UNSAFE.map(PathBuf::from));
    for safe in ["src/lib.rs", "derive/src/lib.rs", "report/src/lib.rs"] {
        assert!(read(safe).contains("#![forbid(unsafe_code)]"), "{safe}");
    }
}

#[test]
fn no_file_names_a_place_on_one_machine() {
    let folders = ["home", "root", "work", "tmp", "Users", "mnt"].map(|folder| format!("/{folder}/"));
    let mut found = vec![];
    for path in files(&["rs", "toml", "md", "rt", "py", "sh", "stderr", "yml"]) {
        for (n, line) in read(&path).lines().enumerate() {
            // An address on the web may have any path.
            let is_local = |folder: &String| line.contains(folder.as_str()) && !line.contains("://");
            if folders.iter().any(is_local) {
                found.push(format!("{}:{}: {line}", path.display(), n + 1));
            }
        }
    }
    assert_eq!(found, [""; 0]);
}

/// A line of a source as a line of prose: the marker of the comment, and its text.
fn comment(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    match ["///", "//!", "//"].into_iter().find(|marker| line.starts_with(marker)) {
        Some(marker) => Some((marker, &line[marker.len()..])),
        // Behind code. With a quote in it, it may be a piece of a string.
        None => line.split_once(" // ").filter(|(_, text)| !text.contains('"')).map(|(_, text)| ("", text)),
    }
}

/// The paragraphs of prose, each with the number of its first line. Lines of one marker belong together; headings, rows
/// of tables and blocks of code are left out.
fn paragraphs<'t>(lines: impl Iterator<Item = Option<(&'t str, &'t str)>>) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = vec![];
    let (mut open, mut is_code) = ("", false);
    for (n, line) in lines.enumerate() {
        let Some((marker, text)) = line.map(|(marker, text)| (marker, text.trim())) else {
            (open, is_code) = ("", false);
            continue;
        };
        let is_fence = text.starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence || text.is_empty() || text.starts_with(['#', '|']) {
            open = "";
            continue;
        }
        match (text.strip_prefix("- "), found.last_mut()) {
            (None, Some((_, before))) if !marker.is_empty() && open == marker => *before += &format!(" {text}"),
            (item, _) => found.push((n + 1, item.unwrap_or(text).to_owned())),
        }
        open = marker;
    }
    found
}

/// The beginnings of sentences whose subject is no noun, and the phrases that plain English has shorter words for.
/// Spans of code count as one word.
fn obscure(paragraph: &str) -> Vec<String> {
    const NO_NOUNS: [&str; 7] = ["What", "Who", "Whom", "Whose", "Whoever", "Whatever", "That"];
    let prose = paragraph.split('`').step_by(2).collect::<Vec<_>>().join("_");
    let words: Vec<&str> = prose.split_whitespace().map(|word| word.trim_matches(|c| "()[]\"*".contains(c))).collect();
    let is_obscure = |at: &usize| {
        let begins = *at == 0 || words[at - 1].ends_with(['.', '!', '?', ':']);
        let next = words.get(at + 1).copied();
        match words[*at].split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default() {
            "So" => begins && matches!(next, Some("many" | "much")),
            "but" => next == Some("for"),
            "be" => next == Some("it"),
            word => begins && NO_NOUNS.contains(&word),
        }
    };
    let some_words = |at: usize| words[at..].iter().take(6).copied().collect::<Vec<_>>().join(" ");
    (0..words.len()).filter(is_obscure).map(some_words).collect()
}

#[test]
fn sentences_have_nouns_as_subjects() {
    let mut found = vec![];
    for path in files(&["rs", "md"]) {
        let text = read(&path);
        let is_source = path.extension().is_some_and(|extension| extension == "rs");
        let lines = text.lines().map(|line| if is_source { comment(line) } else { Some(("page", line)) });
        for (n, paragraph) in paragraphs(lines) {
            found.extend(obscure(&paragraph).iter().map(|words| format!("{}:{n}: {words} ...", path.display())));
        }
    }
    assert_eq!(
        found, [""; 0],
        "begin with a noun or a verb; say \"except\" for \"but for\" and \"even\" for \"be it\""
    );
}

#[test]
fn obscure_sentences_are_recognised() {
    let source = [
        "/// A line. What",
        "/// follows (`x. What`). So",
        "/// many of them; what is meant.",
        "",
        "//! Fine:",
        "//! - That is not.",
        "//! ```",
        "//! What a program writes.",
        "//! ```",
        "let x = 1; // Who knows, but",
        "let y = 2; // For all that, be it \"so\"",
        "// All but",
        "// for one.",
    ];
    let found: Vec<(usize, Vec<String>)> = paragraphs(source.into_iter().map(comment))
        .into_iter()
        .map(|(n, paragraph)| (n, obscure(&paragraph)))
        .filter(|(_, found)| !found.is_empty())
        .collect();
    let expected: [(usize, &[&str]); 4] = [
        (1, &["What follows _). So many of", "So many of them; what is"]),
        (6, &["That is not."]),
        (10, &["Who knows, but"]),
        (12, &["but for one."]),
    ];
    let expected = expected.map(|(n, found)| (n, found.iter().map(|words| (*words).to_owned()).collect()));
    assert_eq!(found, expected);
}
