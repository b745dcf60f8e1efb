//! Snapshots of graphs: each file under `tests/golden` holds an input, what is done to it, and the expected text.
//!
//! A file is a comment, a line `; run:` with steps, a graph, a line `; ==>` and the expected text. Steps are the names
//! of passes, `optimize` for all of them, `gradient`, or `parse` for nothing more. In `verify`, where every graph is
//! bad, the expected text is the message. In `plan` it is the plan of the graph. In `tape` a line `; function:` names a
//! closure of this file in place of a graph. `RETAPE_BLESS=1` writes the text that came out into the files.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use retape::ops::Op;
use retape::{Graph, Tensor, trace};

const ARROW: &str = "\n; ==>\n";

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

/// The files of a folder, in order.
fn files(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(golden().join(folder)).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "rt"));
    files.sort();
    files
}

/// Does the steps of the `; run:` line to the graph in `input`.
fn run(input: &str) -> Result<Graph, Box<dyn Error>> {
    let steps = input.lines().find_map(|line| line.strip_prefix("; run:")).ok_or("no line starts with `; run:`")?;
    let mut graph: Graph = input.parse()?;
    for step in steps.split(',').map(str::trim) {
        graph = match step {
            "parse" => graph,
            "gradient" => graph.with_gradient()?,
            "optimize" => graph.optimized()?,
            pass => graph.optimized_by(&[pass])?,
        };
        graph.verify()?;
    }
    let printed = graph.to_string();
    assert_eq!(printed.parse::<Graph>()?.to_string(), printed, "the text reads back as the same graph");
    Ok(graph)
}

/// Compares the files of a folder with what `text` makes of their inputs.
fn check(folder: &str, text: impl Fn(&str) -> String) {
    let bless = std::env::var("RETAPE_BLESS").is_ok_and(|value| value == "1");
    let files = files(folder);
    assert!(!files.is_empty(), "no files in {folder}");
    let mut wrong = vec![];
    for path in files {
        let file = fs::read_to_string(&path).unwrap();
        let (input, expected) = file.split_once(ARROW).unwrap_or((file.trim_end(), ""));
        let made = text(input);
        if bless {
            fs::write(&path, format!("{}\n{ARROW}{made}\n", input.trim_end())).unwrap();
        } else if made != expected.trim_end() {
            wrong.push(format!("{}\nexpected:\n{}\nmade:\n{made}\n", path.display(), expected.trim_end()));
        }
    }
    assert!(wrong.is_empty(), "{} files differ; RETAPE_BLESS=1 rewrites them\n\n{}", wrong.len(), wrong.join("\n"));
}

fn graph_text(input: &str) -> String {
    run(input).map_or_else(|e| panic!("{e} in\n{input}"), |graph| graph.to_string())
}

#[test]
fn passes() {
    check("opt", graph_text);
}

#[test]
fn plans() {
    check("plan", |input| {
        let planned = run(input).and_then(|graph| Ok(graph.planned()?));
        planned.unwrap_or_else(|e| panic!("{e} in\n{input}")).trim_end().to_owned()
    });
}

/// Functions whose tapes are kept as files, each with an argument.
fn recorded(name: &str) -> Graph {
    let x = &Tensor::zeros([2, 3]);
    let captured = Tensor::ones([3]);
    let graph = match name {
        "broadcast" => trace(|x: &Tensor| x * 2.0 + &captured, x),
        "debug_print" => {
            let print = |x: &Tensor| {
                x.exp().debug_print("unused, but printed");
                x.debug_print("x").sum(..)
            };
            trace(print, x)
        }
        "gradient" => trace(|x: &Tensor| (x.tanh().sum(..)).grad(x), x),
        "second_order" => trace(|x: &Tensor| (x.square().sum(..).grad(x) * x).sum(..).grad(x), x),
        "shared_result" => trace(|x: &Tensor| (x.exp(), x.exp(), x.clone()), x),
        "softmax" => trace(|x: &Tensor| x.softmax(-1), x),
        _ => panic!("no function is called {name}"),
    };
    graph.unwrap()
}

#[test]
fn tapes() {
    check("tape", |input| {
        let name = input.lines().find_map(|line| line.strip_prefix("; function:")).expect("a function is named");
        recorded(name.trim()).to_string()
    });
}

#[test]
fn gradients() {
    check("autodiff", graph_text);
}

#[test]
fn text_is_read_and_printed_in_one_form() {
    check("parse", graph_text);
}

#[test]
fn bad_graphs_are_refused() {
    check("verify", |input| match run(input) {
        Ok(graph) => panic!("nothing is wrong with\n{graph}"),
        Err(e) => e.to_string(),
    });
}

/// Each file of a rule has to show that rule at work, so its output differs from its input.
#[test]
fn every_rewrite_has_an_example() {
    let known: Vec<PathBuf> = files("opt");
    for name in Graph::rewrite_names().chain(Graph::PASSES) {
        let path = golden().join("opt").join(format!("{name}.rt"));
        assert!(known.contains(&path), "{name} has no file {}", path.display());
        let file = fs::read_to_string(&path).unwrap();
        let (input, _) = file.split_once(ARROW).unwrap();
        assert_ne!(input.parse::<Graph>().unwrap(), run(input).unwrap(), "{name} does nothing in {}", path.display());
    }
}

/// The fenced blocks of a language in `docs/ir.md`.
fn examples(language: &str) -> Vec<String> {
    let document = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ir.md")).unwrap();
    let fence = format!("```{language}\n");
    let blocks = document.split(&fence).skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn documented_graphs_and_kernels_are_such() {
    let graphs = examples("graph");
    assert!(graphs.len() > 10);
    for text in graphs {
        text.parse::<Graph>().unwrap_or_else(|e| panic!("{e} in\n{text}"));
    }
    let kernels = examples("kernel");
    assert!(!kernels.is_empty());
    for text in kernels {
        let kernel: retape_kernels::ir::Kernel = text.parse().unwrap_or_else(|e| panic!("{e} in\n{text}"));
        kernel.verify().unwrap_or_else(|e| panic!("{e:?} in\n{text}"));
    }
}

#[test]
fn every_op_is_documented() {
    let document = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ir.md")).unwrap();
    for name in Op::NAMES {
        assert!(document.contains(&format!("`{name}`")), "docs/ir.md does not name {name}");
    }
}
