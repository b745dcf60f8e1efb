//! Nests that run block by block have the bits of nests that run one after another, and do so only where rows keep to
//! themselves.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use retape_kernels::ir::random::Rng;
use retape_kernels::{BufferType, Donation, Executable, Input, Modes, Place, Plan, Step};
use retape_runtime::{Buffer, DType, set_n_threads};

use crate::execute::{ramp, step};

/// Rows and columns of all arrays here, which together are larger than what runs whole.
const ROWS: usize = 64;
const COLUMNS: usize = 1100;
/// Elements of an array: a row more than is computed.
const LEN: usize = (ROWS + 1) * COLUMNS;

fn f32s(len: usize) -> BufferType {
    BufferType { dtype: DType::F32, len }
}

fn slot(n: usize) -> Place {
    Place::Slot { offset: n * (LEN * 4).next_multiple_of(64) }
}

/// Writes `value`, of a load `%0` from `read` at `at`, to each element of an array.
fn pointwise(read: Place, at: &str, value: &str, write: Place) -> Step {
    let text = format!(
        "kernel (p0: f32[{LEN}], p1: f32[{LEN}] out) {{\n  axes a0 = {ROWS}, a1 = {COLUMNS}\n%0 = load p0[{at}]\n\
         {value}\nstore p1[a0 * {COLUMNS} + a1], %1\n}}\n"
    );
    step("pointwise", &text, &[read, write])
}

/// Adds what lies at `at`, of each row or column, to each element of an array in place.
fn add(array: Place, other: Place, at: &str) -> Step {
    let text = format!(
        "kernel (p0: f32[{LEN}], p1: f32[{LEN}], p2: f32[{LEN}] out) {{\n  axes a0 = {ROWS}, a1 = {COLUMNS}\n\
         %0 = load p0[a0 * {COLUMNS} + a1]\n%1 = load p1[{at}]\n%2 = add %0, %1\n\
         store p2[a0 * {COLUMNS} + a1], %2\n}}\n"
    );
    step("add", &text, &[array, other, array])
}

/// Sums along rows, or along columns.
fn sums(read: Place, of_rows: bool, write: Place) -> Step {
    let (axes, at) = match of_rows {
        true => (format!("a0 = {ROWS}, a1 = {COLUMNS} reduced"), "a0"),
        false => (format!("a0 = {ROWS} reduced, a1 = {COLUMNS}"), "a1"),
    };
    let text = format!(
        "kernel (p0: f32[{LEN}], p1: f32[{LEN}] out) {{\n  axes {axes}\n%0 = load p0[a0 * {COLUMNS} + a1]\n\
         %1 = reduce sum %0\nstore p1[{at}], %1\n}}\n"
    );
    step("sums", &text, &[read, write])
}

/// Copies all of an array.
fn copy(read: Place, write: Place) -> Step {
    let text = format!(
        "kernel (p0: f32[{LEN}], p1: f32[{LEN}] out) {{\n  axes a0 = {LEN}\n%0 = load p0[a0]\nstore p1[a0], %0\n}}\n"
    );
    step("copy", &text, &[read, write])
}

fn plan(n_slots: usize, steps: Vec<Step>) -> Plan {
    let all = (0..n_slots).map(|n| copy(Place::Input(0), slot(n)));
    let results = (0..n_slots).map(|n| copy(slot(n), Place::Output(n as u32)));
    Plan {
        inputs: vec![f32s(LEN)],
        outputs: vec![f32s(LEN); n_slots],
        arena_bytes: n_slots * (LEN * 4).next_multiple_of(64),
        steps: all.chain(steps).chain(results).collect(),
        donations: vec![],
    }
}

const ROW_BY_ROW: &str = "a0 * 1100 + a1";

/// The launches of some steps between copies that are no part of them.
fn n_launches(steps: Vec<Step>) -> usize {
    let n_slots = 3;
    let all = Executable::compile(plan(n_slots, steps)).unwrap();
    let inner =
        all.launch_steps().filter(|steps| steps.start >= n_slots && steps.start < all.plan().steps.len() - n_slots);
    inner.count()
}

#[test]
fn rows_that_keep_to_themselves_are_a_chain() {
    let halved = |at: &str, from, to| pointwise(slot(from), at, "%1 = mul %0, %0", slot(to));
    let chain = |steps: Vec<Step>| n_launches(steps) == 1;
    let [a, b] = [slot(0), slot(1)];
    assert!(chain(vec![halved(ROW_BY_ROW, 0, 1), sums(b, true, slot(2)), add(b, slot(2), "a0")]));
    assert!(chain(vec![sums(a, true, b), add(a, b, "a0")]), "over what another one reads");
    assert!(!chain(vec![halved("a0 * 1100 + a1 + 1100", 0, 1), halved(ROW_BY_ROW, 1, 0)]), "over the next row");
    assert!(!chain(vec![halved(ROW_BY_ROW, 0, 1), halved("a0 * 1100 + a1 + 1100", 1, 0)]), "the next row");
    assert!(!chain(vec![halved(ROW_BY_ROW, 0, 1), halved("a0 * 1100 + a1 + 1", 1, 0)]), "an element of the next row");
    assert!(!chain(vec![halved(ROW_BY_ROW, 0, 1), halved("a0 * -1100 + a1 + 69300", 1, 2)]), "rows the other way");
    assert!(!chain(vec![sums(a, false, b), add(a, b, "a1")]), "all rows");
    assert!(!chain(vec![sums(a, true, b), add(a, b, "a1")]), "of other rows");
    assert!(!chain(vec![halved(ROW_BY_ROW, 0, 1), sums(a, true, b)]), "over a row, and over the first one");
}

#[test]
fn random_chains_have_the_bits_of_nests_one_by_one() {
    let (mut n_steps, mut n_launches) = (0, 0);
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut steps: Vec<Step> = vec![];
        while steps.len() < 8 {
            let [from, to, other] = [(); 3].map(|()| slot(rng.below(3)));
            let at = ["a0 * 1100 + a1 + 1100", "a0 * 1100 + a1 + 1", "a0 * -1100 + a1 + 69300", "a1", "a0"];
            let at = if rng.one_in(10) { rng.pick(&at) } else { ROW_BY_ROW };
            let value = rng.pick(&["%1 = mul %0, %0", "%1 = neg %0", "%1 = sqrt %0", "%1 = exp %0"]);
            let next = match rng.below(5) {
                0 => sums(from, !rng.one_in(10), to),
                1 => add(to, other, if rng.one_in(10) { "a1" } else { "a0" }),
                _ => pointwise(from, at, value, to),
            };
            steps.push(next);
            // A step that writes over other elements than it reads is none.
            if plan(3, steps.clone()).verify().is_err() {
                steps.pop();
            }
        }
        let plan = plan(3, steps);
        let apart = Executable::compile_with(plan.clone(), Modes { separate: true, ..Modes::default() }).unwrap();
        let together = Executable::compile(plan).unwrap();
        (n_steps, n_launches) = (n_steps + apart.n_launches(), n_launches + together.n_launches());
        let input = ramp(LEN);
        let expected = apart.run(&[&input]).unwrap();
        for n_threads in [1, 2, 4] {
            set_n_threads(n_threads);
            let found = together.run(&[&input]).unwrap();
            let is_equal = found.iter().zip(&expected).all(|(found, expected)| found.bytes() == expected.bytes());
            assert!(is_equal, "seed {seed} with {n_threads} threads:\n{}", together.plan());
        }
        set_n_threads(2);
    }
    assert!(n_steps - n_launches > 400, "{n_launches} launches of {n_steps} steps");
}

/// An argument that is given away may be what a chain writes.
#[test]
fn chains_write_over_donated_arguments() {
    let input = || ramp(LEN);
    let whole = Place::Input(0);
    for (at, is_chain) in [("a0", true), ("a1", false)] {
        let mut last = add(slot(1), slot(0), at);
        last.operands[0].place = whole;
        last.operands[2].place = Place::Output(0);
        let steps = vec![sums(whole, true, slot(0)), last];
        let donations = vec![Donation { output: 0, input: 0 }];
        let (inputs, outputs) = (vec![f32s(LEN)], vec![f32s(LEN)]);
        let arena_bytes = 2 * (LEN * 4).next_multiple_of(64);
        let executable = Executable::compile(Plan { inputs, outputs, arena_bytes, steps, donations }).unwrap();
        assert_eq!(executable.n_launches() == 1, is_chain);
        let kept = executable.run(&[&input()]).unwrap();
        let given = executable.run_donating([Input::donated(input())]).unwrap();
        let computed = ROWS * COLUMNS * 4;
        assert_eq!(kept[0].bytes()[..computed], given[0].bytes()[..computed]);
        let expected: &[Buffer] = &executable.evaluate(&[&input()]).unwrap();
        let [found, expected] =
            [&kept[0], &expected[0]].map(|buffer| buffer.as_slice::<f32>()[..computed / 4].to_vec());
        assert!(found.iter().zip(&expected).all(|(x, y)| (x - y).abs() <= 1e-3 * y.abs().max(1.0)));
    }
}
