//! Callers that lie: inputs that answer differently each time, inputs that are used twice, plans of impossible sizes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::Cell;
use std::sync::Arc;

use retape_kernels::ir::parse;
use retape_kernels::library::{Label, Print, Token, set_print_sink};
use retape_kernels::{
    BufferType, Donation, Error, Executable, Input, Inputs, Operand, Place, Plan, Result, Step, Work,
};
use retape_runtime::{Buffer, DType, Shape};

const N: usize = 64;

fn operand(place: Place, len: usize) -> Operand {
    Operand { place, dtype: DType::F32, len }
}

/// `output[i] = a[i] + b[i]`, over `a` or `b` if they are given away; both are read twice.
fn sum() -> Plan {
    let kernel = parse(&format!(
        "kernel (p0: f32[{N}], p1: f32[{N}], p2: f32[{N}] out) {{\n  axes a0 = {N}\n%0 = load p0[a0]\n\
         %1 = load p1[a0]\n%2 = add %0, %1\nstore p2[a0], %2\n}}\n"
    ));
    let step = |places: [Place; 3]| Step {
        work: Work::Kernel(kernel.clone().unwrap()),
        operands: places.map(|place| operand(place, N)).into_iter().collect(),
        label: "sum".into(),
    };
    let (a, b, slot) = (Place::Input(0), Place::Input(1), Place::Slot { offset: 0 });
    let ty = BufferType { dtype: DType::F32, len: N };
    Plan {
        inputs: vec![ty; 2],
        outputs: vec![ty],
        arena_bytes: N * 4,
        steps: vec![step([a, b, slot]), step([a, b, Place::Output(0)])],
        donations: vec![Donation { output: 0, input: 0 }, Donation { output: 0, input: 1 }],
    }
}

fn ramp(n: usize) -> Buffer {
    Buffer::copy_of(&(0..n).map(|i| i as f32).collect::<Vec<f32>>()).unwrap()
}

/// Answers each question once as it should, and from then on as `later` says.
struct Fickle<'a> {
    good: &'a Buffer,
    later: Option<&'a Buffer>,
    n_counts: Cell<usize>,
    n_asked: [Cell<usize>; 2],
}

impl Inputs for Fickle<'_> {
    fn count(&self) -> usize {
        self.n_counts.set(self.n_counts.get() + 1);
        if self.n_counts.get() == 1 { 2 } else { usize::MAX }
    }

    fn buffer(&self, input: usize) -> Option<&Buffer> {
        let asked = &self.n_asked[input];
        asked.set(asked.get() + 1);
        if asked.get() == 1 { Some(self.good) } else { self.later }
    }
}

#[test]
fn inputs_are_asked_for_once() {
    let (good, short) = (ramp(N), ramp(1));
    let executable = Executable::compile(sum()).unwrap();
    for later in [None, Some(&short)] {
        let inputs = Fickle { good: &good, later, n_counts: Cell::new(0), n_asked: Default::default() };
        let found = executable.run_from(&inputs).unwrap();
        assert!(found[0].as_slice::<f32>().iter().enumerate().all(|(i, &x)| x == 2.0 * i as f32));
        assert_eq!(inputs.n_asked.map(|n| n.get()), [1, 1]);
        assert_eq!(inputs.n_counts.get(), 1);
    }
}

/// Answers with a fixed count and fixed buffers.
struct Wrong<'a>(usize, Option<&'a Buffer>);

impl Inputs for Wrong<'_> {
    fn count(&self) -> usize {
        self.0
    }

    fn buffer(&self, _: usize) -> Option<&Buffer> {
        self.1
    }
}

#[test]
fn inputs_that_do_not_fit_are_refused() {
    let (good, short, long) = (ramp(N), ramp(N - 1), ramp(N + 1));
    let executable = Executable::compile(sum()).unwrap();
    let refused = |inputs: &Wrong<'_>, because: &str| match executable.run_from(inputs) {
        Err(Error::Buffers(reason)) => assert!(reason.contains(because), "{reason}"),
        other => panic!("{other:?} instead of: {because}"),
    };
    refused(&Wrong(2, None), "there is no input 0");
    refused(&Wrong(2, Some(&short)), "input 0 has 252 bytes instead of 256");
    refused(&Wrong(2, Some(&long)), "input 0 has 260 bytes instead of 256");
    for count in [0, 1, 3, usize::MAX] {
        refused(&Wrong(count, Some(&good)), &format!("{count} inputs instead of 2"));
    }
    assert!(executable.run_from(&Wrong(2, Some(&good))).is_ok());
    assert!(matches!(executable.run_into(&[&good, &good], vec![]), Err(Error::Buffers(_))));
    assert!(matches!(executable.run_into(&[&good, &good], vec![ramp(1)]), Err(Error::Buffers(_))));
}

#[test]
fn inputs_that_a_run_has_taken_are_refused_by_the_next() {
    let executable = Executable::compile(sum()).unwrap();
    let mut inputs = [Input::donated(ramp(N)), Input::donated(ramp(N))];
    let first = executable.run_donating(&mut inputs[..]).unwrap();
    assert_eq!(first[0].as_slice::<f32>()[3], 6.0);
    for _ in 0..2 {
        match executable.run_donating(&mut inputs[..]) {
            Err(Error::Buffers(reason)) => assert_eq!(reason, "input 0 was donated to an earlier run"),
            other => panic!("{other:?}"),
        }
    }
    // The second one was not taken, so it is still there.
    let [_, second] = inputs;
    let again = executable.run_donating([Input::donated(ramp(N)), second]).unwrap();
    assert_eq!(again[0].as_slice::<f32>()[3], 6.0);
}

#[test]
fn plans_of_impossible_sizes_are_refused() {
    let refused = |plan: Plan, because: &str| match Executable::compile(plan) {
        Err(Error::Plan(reason)) => assert!(reason.contains(because), "{reason}"),
        other => panic!("{other:?} instead of: {because}"),
    };
    for bytes in [usize::MAX, usize::MAX - 63, isize::MAX as usize] {
        refused(Plan { arena_bytes: bytes, ..sum() }, &bytes.to_string());
    }
    for len in [usize::MAX, usize::MAX / 4, 1 << 61, (isize::MAX as usize / 4) + 1] {
        let ty = BufferType { dtype: DType::F32, len };
        refused(Plan { inputs: vec![ty; 2], ..sum() }, &len.to_string());
        refused(Plan { outputs: vec![ty], ..sum() }, &len.to_string());
    }
}

/// The evaluator has an arena of its own.
#[test]
fn arenas_that_memory_cannot_hold_are_refused() {
    let executable = Executable::compile(Plan { arena_bytes: Plan::MOST_ARENA, ..sum() }).unwrap();
    let (a, b) = (ramp(N), ramp(N));
    for refused in [executable.run(&[&a, &b]), executable.evaluate(&[&a, &b])] {
        assert!(matches!(refused, Err(Error::Runtime(_))), "{refused:?}");
    }
}

#[test]
fn partial_results_that_cannot_be_addressed_are_refused() {
    // Many sums over 2^62 points, each of one element again and again and with partial results of its own.
    let (n, n_sums) = (1_usize << 60, 600);
    let loads: String = (0..n_sums).map(|i| format!("%{i} = load p0[{i}]\n")).collect();
    let sums: String = (0..n_sums).map(|i| format!("%{} = reduce sum %{i}\n", n_sums + i)).collect();
    let (first, total) = (n_sums, 2 * n_sums);
    let adds: String = (1..n_sums)
        .map(|i| {
            let before = if i == 1 { first } else { total + i - 2 };
            format!("%{} = add %{before}, %{}\n", total + i - 1, first + i)
        })
        .collect();
    let last = total + n_sums - 2;
    let kernel = parse(&format!(
        "kernel (p0: f64[{n_sums}], p1: f64[4] out) {{\n  axes a0 = 4, a1 = {n} reduced\n{loads}{sums}{adds}\
         store p1[a0], %{last}\n}}\n"
    ));
    let operand = |place, len| Operand { place, dtype: DType::F64, len };
    let (from, to) = (operand(Place::Input(0), n_sums), operand(Place::Output(0), 4));
    let work = Work::Kernel(kernel.unwrap());
    let step = Step { work, operands: [from, to].into_iter().collect(), label: "sums".into() };
    let plan = Plan { inputs: vec![from.ty()], outputs: vec![to.ty()], steps: vec![step], ..Plan::default() };
    plan.verify().unwrap();
    let refused = Executable::compile(plan).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("cannot be addressed"), "{refused}");
}

/// A plan that prints its input, and hands it on.
fn printing() -> Plan {
    let copy = parse(&format!(
        "kernel (p0: f32[{N}], p1: f32[{N}] out) {{\n  axes a0 = {N}\n%0 = load p0[a0]\nstore p1[a0], %0\n}}\n"
    ));
    let print = Print { label: Label::from("hostile"), dtype: DType::F32, shape: Shape::new(&[N]) };
    let token = |place| Operand { place, dtype: Token::DTYPE, len: 0 };
    let x = operand(Place::Input(0), N);
    let steps = vec![
        Step {
            work: Work::library(print),
            operands: [x, token(Place::Input(1)), token(Place::Output(1))].into_iter().collect(),
            label: "print".into(),
        },
        Step {
            work: Work::Kernel(copy.unwrap()),
            operands: [x, operand(Place::Output(0), N)].into_iter().collect(),
            label: "copy".into(),
        },
    ];
    let (floats, tokens) = (BufferType { dtype: DType::F32, len: N }, BufferType { dtype: Token::DTYPE, len: 0 });
    Plan { inputs: vec![floats, tokens], outputs: vec![floats, tokens], steps, ..Plan::default() }
}

#[test]
fn a_sink_that_panics_fails_the_run() {
    let executable = Executable::compile(printing()).unwrap();
    let (x, token) = (ramp(N), Buffer::alloc(0).unwrap());
    set_print_sink(Some(Arc::new(|line: &str| {
        if line.starts_with("hostile") {
            panic!("no room for {line:.7}");
        }
    })));
    let is_refused = |run: Result<Vec<Buffer>>| {
        let expected = Error::Panicked("no room for hostile".into());
        assert_eq!(run.map(|_| ()), Err(expected));
    };
    for _ in 0..10 {
        is_refused(executable.run(&[&x, &token]));
        is_refused(executable.evaluate(&[&x, &token]));
        is_refused(executable.profile(&[&x, &token]).map(|(outputs, _)| outputs));
        is_refused(executable.run_donating([Input::donated(ramp(N)), Input::borrowed(&token)]));
    }
    set_print_sink(Some(Arc::new(|_: &str| {})));
    assert_eq!(executable.run(&[&x, &token]).unwrap()[0].bytes(), x.bytes());
}
