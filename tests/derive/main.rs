//! Programs that use the crate: the compiler accepts the right ones, and says of each mistake one error whose first line
//! names it. `TRYBUILD=overwrite` writes the expected messages anew.
//!
//! A program in `cases` begins with the words that the first three lines must have, and goes on to call the function
//! after its mistake.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::BTreeMap;
use std::fs;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use retape::{Static, Tensor, Tree, accelerate};

#[test]
fn refusals() {
    trybuild::TestCases::new().compile_fail("cases/*.rs");
}

/// A program with a mistake, and the compiler's output.
struct Case {
    name: String,
    program: String,
    output: String,
}

impl Case {
    fn all() -> Vec<Case> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let case = |path: PathBuf| Case {
            name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
            program: read(&path),
            output: read(&path.with_extension("stderr")),
        };
        let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let programs = paths.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
        let mut cases: Vec<Case> = programs.map(case).collect();
        cases.sort_by(|a, b| a.name.cmp(&b.name));
        assert!(cases.len() > 50, "only {} programs found", cases.len());
        cases
    }

    /// The words that the first lines of the output must have.
    fn words(&self) -> Vec<&str> {
        let first = self.program.lines().next().unwrap();
        first.strip_prefix("// Says: ").unwrap_or_else(|| panic!("{} has no words", self.name)).split(" | ").collect()
    }

    /// The message of the error.
    fn message(&self) -> &str {
        self.output.lines().next().unwrap()
    }
}

#[test]
fn each_mistake_is_one_error_that_names_it_at_once() {
    for case in Case::all() {
        let Case { name, program, output } = &case;
        let begins = |level: &str| output.lines().filter(|line| line.starts_with(level)).count();
        assert_eq!((begins("error"), begins("warning")), (1, 0), "{name}:\n{output}");
        let top: Vec<&str> = output.lines().take(3).collect();
        for word in case.words() {
            assert!(top.join("\n").contains(word), "the first lines for {name} lack `{word}`:\n{output}");
        }
        // Every program uses the function after its mistake.
        assert!(program.contains(".call(") || name == "no_function", "{name} has no call");
    }
}

/// The blocks of a page that are marked as of this language.
fn blocks<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    let fence = format!("\n```{language}\n");
    page.split(&*fence).skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect()
}

/// A message without the types that it is about.
fn form(message: &str) -> String {
    message.split('`').step_by(2).collect::<Vec<_>>().join("`..`")
}

/// Each mistake on the page is in a program, and its message is the compiler's for that program; each form of message
/// is on the page.
#[test]
fn the_page_on_compile_errors_is_true() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compile_errors.md")).unwrap();
    let (mistakes, messages) = (blocks(&page, "rs"), blocks(&page, "text"));
    assert_eq!(mistakes.len(), messages.len());
    let cases = Case::all();
    for (mistake, message) in mistakes.iter().zip(&messages) {
        let lines: Vec<&str> = mistake.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let has = |case: &&Case| {
            let program: Vec<&str> = case.program.lines().map(str::trim).collect();
            case.message() == *message && lines.iter().all(|line| program.contains(line))
        };
        assert!(cases.iter().any(|case| has(&case)), "no program has this mistake and message:\n{mistake}\n{message}");
    }
    let told: Vec<String> = messages.iter().map(|message| form(message)).collect();
    for case in &cases {
        assert!(
            told.contains(&form(case.message())),
            "the page lacks the message of {}: {}",
            case.name,
            case.message()
        );
    }
}

#[derive(Clone, Debug, Tree)]
struct Dense {
    weights: Tensor,
    bias: Option<Tensor>,
}

#[derive(Clone, Copy, Debug, PartialEq, Tree)]
enum Activation {
    Identity,
    Relu { slope: Static<f32> },
    Scale(#[tree(static)] f32),
}

#[derive(Clone, Debug, Tree)]
struct Model<L, M: Copy = ()> {
    layers: Vec<(L, Activation)>,
    by_name: BTreeMap<String, L>,
    marker: PhantomData<M>,
}

impl Dense {
    fn new(weight: f32, bias: Option<f32>) -> Dense {
        Dense { weights: Tensor::from([[weight]]), bias: bias.map(Tensor::from) }
    }

    fn apply(&self, x: &Tensor, activation: Activation) -> Tensor {
        let y = x * &self.weights;
        let y = self.bias.iter().fold(y, |y, bias| y + bias);
        match activation {
            Activation::Identity => y,
            Activation::Relu { slope } => y.maximum(&y * slope.0),
            Activation::Scale(by) => y * by,
        }
    }
}

type TwoLayers = Model<Dense, u8>;

fn model(activation: Activation, bias: Option<f32>, name: &str) -> TwoLayers {
    let layers = vec![(Dense::new(2.0, None), Activation::Identity), (Dense::new(-3.0, bias), activation)];
    Model { layers, by_name: BTreeMap::from([(name.to_owned(), Dense::new(1.0, None))]), marker: PhantomData }
}

fn forward(model: &TwoLayers, x: &Tensor) -> Tensor {
    let y = model.layers.iter().fold(x.clone(), |y, (layer, activation)| layer.apply(&y, *activation));
    model.by_name.values().fold(y, |y, layer| layer.apply(&y, Activation::Identity)).sum(..)
}

#[test]
fn derived_trees_go_through_calls_and_gradients() {
    let step = accelerate(|model: &TwoLayers, x: &Tensor| {
        let loss = forward(model, x);
        let grad = loss.grad(model);
        (loss, grad)
    });
    let (loss, grad) = step.call(model(Activation::Scale(0.5), Some(1.0), "out"), Tensor::from([[1.0_f32]])).unwrap();
    assert_eq!(loss.item::<f32>().unwrap(), -2.5);
    assert_eq!(grad.layers[0].0.weights.to_vec::<f32>().unwrap(), [-1.5]);
    assert_eq!(grad.layers[1].0.bias.as_ref().unwrap().item::<f32>().unwrap(), 0.5);
    assert_eq!(grad.layers[1].1, Activation::Scale(0.5));
    assert_eq!(grad.by_name["out"].weights.to_vec::<f32>().unwrap(), [-2.5]);
}

/// A type without values: nothing can call the function, and the derived code is sound and free of warnings.
#[derive(Tree)]
enum Never {}

#[test]
fn an_enum_without_variants_is_a_tree() {
    let f = accelerate(|xs: &Vec<Never>, x: &Tensor| x * (xs.len() as f64 + 2.0));
    assert_eq!(f.call(vec![], Tensor::from(2.0_f32)).unwrap().item::<f32>().unwrap(), 4.0);
}

#[test]
fn a_static_value_is_part_of_the_signature() {
    let run = accelerate(forward);
    let x = Tensor::from([[1.0_f32]]);
    let mut misses = 0;
    let mut check = |model: &TwoLayers, expected: f32, new: bool| {
        misses += u64::from(new);
        assert_eq!(run.call(model, &x).unwrap().item::<f32>().unwrap(), expected);
        assert_eq!(run.stats().misses, misses);
    };
    let leaky = |slope| Activation::Relu { slope: Static(slope) };
    check(&model(Activation::Identity, None, "a"), -6.0, true);
    check(&model(Activation::Identity, None, "a"), -6.0, false);
    check(&model(Activation::Scale(0.5), None, "a"), -3.0, true);
    check(&model(Activation::Scale(2.0), None, "a"), -12.0, true);
    check(&model(leaky(0.0), None, "a"), 0.0, true);
    check(&model(leaky(0.5), None, "a"), -3.0, true);
    check(&model(leaky(0.5), Some(2.0), "a"), -2.0, true);
    check(&model(leaky(0.5), Some(4.0), "a"), -1.0, false);
    check(&model(leaky(0.5), Some(4.0), "b"), -1.0, true);
    check(&model(leaky(0.5), Some(4.0), "b"), -1.0, false);
}
