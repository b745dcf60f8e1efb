//! Functions with something to see in their reports, each written as a page.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::network::Training;
use retape::data::{Digits, one_hot};
use retape::{Accelerated, Function, Static, Tensor, Tree, accelerate, value_and_grad};
use retape_report::Report;
use serde_json::Value;

/// A page with its name.
pub(super) struct Subject {
    pub(super) name: &'static str,
    pub(super) page: PathBuf,
}

/// All of them; they are written once.
pub(super) fn all() -> &'static [Subject] {
    static ALL: LazyLock<Vec<Subject>> = LazyLock::new(|| {
        let folder = super::folder("subjects");
        let subject = |name: &'static str, write: fn(&Path)| {
            let page = folder.join(format!("{name}.html"));
            write(&page);
            Subject { name, page }
        };
        vec![
            subject("training", training),
            subject("small", small),
            subject("many_misses", many_misses),
            subject("no_calls", no_calls),
            subject("errors", errors),
            subject("long_names", long_names),
            subject("gradients", gradients),
        ]
    });
    &ALL
}

/// The one with this name.
pub(super) fn named(name: &str) -> &'static Subject {
    all().iter().find(|subject| subject.name == name).unwrap()
}

impl Subject {
    pub(super) fn data(&self) -> Value {
        super::data(&std::fs::read_to_string(&self.page).unwrap())
    }
}

fn write<F: Function<Args, R>, Args, R: Tree>(f: &Accelerated<F, Args, R>, page: &Path) {
    f.report_html(page).unwrap();
}

/// A step of the digit network: some sixty groups.
fn training(page: &Path) {
    const BATCH: usize = 4;
    let set = Digits::generate(1, BATCH).unwrap();
    let x = Tensor::from_vec(&set.images[..], [BATCH, Digits::SIDE, Digits::SIDE, 1]).unwrap();
    let digits = Tensor::from_vec(one_hot(&set.labels, Digits::CLASSES).unwrap(), [BATCH, Digits::CLASSES]).unwrap();
    let angles = Tensor::from_vec(&set.angles[..], [BATCH, 1]).unwrap();
    let step = accelerate(|t: &Training, x: &Tensor, digits: &Tensor, angles: &Tensor, rate: &Tensor| {
        t.step(x, digits, angles, rate)
    })
    .named("train_step");
    let mut training = Training::new(7);
    step.configure(|options| options.profiling = true);
    for _ in 0..3 {
        (_, training) = step.call(training, &x, &digits, &angles, 1e-3_f32).unwrap();
    }
    write(&step, page);
}

/// Nothing has been called.
fn no_calls(page: &Path) {
    write(&accelerate(|x: &Tensor| x.sum(..)).named("never_called"), page);
}

/// One group and no name.
fn small(page: &Path) {
    let double = accelerate(|x: &Tensor| x + x);
    for _ in 0..2 {
        double.call(Tensor::ones([4])).unwrap();
    }
    write(&double, page);
}

/// More misses than the log remembers, of many kinds.
fn many_misses(page: &Path) {
    let f = accelerate(|x: &Tensor, by: &Static<f32>, _: &Vec<bool>| x * by.0).named("scale_rows");
    f.configure(|options| options.capacity = 20);
    let call = |n: usize, by: f32, flags: usize| f.call(Tensor::ones([n]), Static(by), vec![true; flags]).unwrap();
    (1..=270).for_each(|n| drop(call(n, 1.0, 0)));
    (1..=4).for_each(|n| drop(call(3, n as f32, n)));
    (0..40).for_each(|_| drop(call(3, 1.0, 1)));
    f.clear_cache();
    (268..=270).chain(1..=3).for_each(|n| drop(call(n, 1.0, 0)));
    write(&f, page);
}

/// Calls that fail: shapes that do not fit, a trap, a lock.
fn errors(page: &Path) {
    let f = accelerate(|x: &Tensor, w: &Tensor| x.matmul(w).log().sum(..)).named("log_product");
    let ones = |rows: usize, columns: usize| Tensor::ones([rows, columns]);
    f.call(ones(2, 3), ones(3, 2)).unwrap();
    for rows in 4..7 {
        f.call(ones(2, 3), ones(rows, 2)).unwrap_err();
    }
    f.configure(|options| options.trap_nonfinite = true);
    f.call(ones(2, 3) * -1.0, ones(3, 2)).unwrap_err();
    f.configure(|options| options.locked = true);
    f.call(ones(9, 3), ones(3, 2)).unwrap_err();
    write(&f, page);
}

#[derive(Clone, Tree)]
struct ParametersOfTheEncoderWithItsEmbeddingsAndPositions {
    weights_by_name: BTreeMap<String, Tensor>,
    configuration_of_the_experiment: String,
}

/// Names that are longer than a window is wide, with and without places to break.
fn long_names(page: &Path) {
    let f = accelerate(|p: &ParametersOfTheEncoderWithItsEmbeddingsAndPositions, x: &Tensor| {
        p.weights_by_name.values().fold(x.clone(), |y, w| (y.matmul(w) + 1.0_f32).tanh()).sum(..)
    })
    .named("a_function_whose_name_is_longer_than_any_window_is_wide_".repeat(4) + "and then some words, which break");
    let key = |n: usize| format!("block_{n}.attention.{}", "query_key_value_projection_".repeat(6));
    let parameters = |n: usize| ParametersOfTheEncoderWithItsEmbeddingsAndPositions {
        weights_by_name: (0..3).map(|n| (key(n), Tensor::ones([8, 8]))).collect(),
        configuration_of_the_experiment: "unbroken".repeat(30) + &n.to_string(),
    };
    f.configure(|options| options.profiling = true);
    for n in [0, 0, 1, 2] {
        f.call(parameters(n), Tensor::ones([4, 8])).unwrap();
    }
    write(&f, page);
}

/// Code for gradients from outside, and a captured tensor.
fn gradients(page: &Path) {
    let shift = Tensor::ones([1, 3]);
    let model = accelerate(|w: &Tensor, x: &Tensor| (x.matmul(w) + &shift).tanh().sum(..)).named("model");
    for rows in [4, 4, 5] {
        let x = Tensor::ones([rows, 3]);
        value_and_grad(|w: &Tensor| model.call(w, &x).unwrap(), &Tensor::full([3, 3], 0.3_f32)).unwrap();
    }
    write(&model, page);
}
