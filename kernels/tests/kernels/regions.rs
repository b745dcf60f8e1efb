//! Launches that threads run on rows of their own, with no barrier between them, have the bits of launches one by one, and
//! do so only where rows keep to themselves.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use retape_kernels::ir::random::Rng;
use retape_kernels::ir::{ParamId, parse};
use retape_kernels::library::{Join, Library, MatMul, MatrixLayout};
use retape_kernels::{BufferType, Donation, Epilogue, Executable, Input, Modes, Operand, Place, Plan, Step, Work};
use retape_runtime::{Buffer, DType, Shape, set_n_threads};

use crate::execute::{ramp, step};

/// Columns of all arrays here, and of the square matrix that they are multiplied by.
const COLUMNS: usize = 256;

/// Arrays of some rows, and one row more, which is not computed.
#[derive(Clone, Copy)]
struct Arrays {
    rows: usize,
}

impl Arrays {
    const N: usize = 4;

    fn len(self) -> usize {
        (self.rows + 1) * COLUMNS
    }

    fn slot(self, n: usize) -> Place {
        Place::Slot { offset: n * (self.len() * 4).next_multiple_of(64) }
    }

    fn f32s(self) -> BufferType {
        BufferType { dtype: DType::F32, len: self.len() }
    }

    /// Writes `value`, of a load `%0` of one array at `at`, to each element of another one.
    fn pointwise(self, from: usize, at: &str, value: &str, to: usize) -> Step {
        let (len, rows) = (self.len(), self.rows);
        let text = format!(
            "kernel (p0: f32[{len}], p1: f32[{len}] out) {{\n  axes a0 = {rows}, a1 = {COLUMNS}\n%0 = load p0[{at}]\n\
             {value}\nstore p1[a0 * {COLUMNS} + a1], %1\n}}\n"
        );
        step("pointwise", &text, &[self.slot(from), self.slot(to)])
    }

    /// Adds what lies at `at` of another array to each element of one, in place.
    fn add(self, array: usize, other: usize, at: &str) -> Step {
        let (len, rows) = (self.len(), self.rows);
        let text = format!(
            "kernel (p0: f32[{len}], p1: f32[{len}], p2: f32[{len}] out) {{\n  axes a0 = {rows}, a1 = {COLUMNS}\n\
             %0 = load p0[a0 * {COLUMNS} + a1]\n%1 = load p1[{at}]\n%2 = add %0, %1\n\
             store p2[a0 * {COLUMNS} + a1], %2\n}}\n"
        );
        step("add", &text, &[self.slot(array), self.slot(other), self.slot(array)])
    }

    /// Sums along rows, or along columns.
    fn sums(self, from: usize, of_rows: bool, to: usize) -> Step {
        let (len, rows) = (self.len(), self.rows);
        let (axes, at) = match of_rows {
            true => (format!("a0 = {rows}, a1 = {COLUMNS} reduced"), "a0"),
            false => (format!("a0 = {rows} reduced, a1 = {COLUMNS}"), "a1"),
        };
        let text = format!(
            "kernel (p0: f32[{len}], p1: f32[{len}] out) {{\n  axes {axes}\n%0 = load p0[a0 * {COLUMNS} + a1]\n\
             %1 = reduce sum %0\nstore p1[{at}], %1\n}}\n"
        );
        step("sums", &text, &[self.slot(from), self.slot(to)])
    }

    fn operand(self, place: Place, len: usize) -> Operand {
        Operand { place, dtype: DType::F32, len }
    }

    /// A library kernel of an array and perhaps others, which writes another one.
    fn library(self, kernel: Library, from: &[Place], to: usize) -> Step {
        let inputs = kernel.inputs();
        let reads = inputs.iter().zip(from).map(|(&(_, len), &place)| self.operand(place, len));
        let (_, len) = kernel.outputs()[0];
        let operands = reads.chain([self.operand(self.slot(to), len)]).collect();
        Step { operands, label: kernel.name().into(), work: Work::library(kernel) }
    }

    /// The product of an array, from a row on, and the matrix.
    fn product(self, from: usize, row: usize, to: usize) -> Step {
        let extents = [self.rows, COLUMNS, COLUMNS];
        let a = MatrixLayout { offset: row * COLUMNS, ..MatrixLayout::contiguous(&[], self.rows, COLUMNS) };
        let product = MatMul { a, ..MatMul::contiguous(DType::F32, &[], extents) };
        self.library(product.into(), &[self.slot(from), Place::Input(1)], to)
    }

    /// The product of an array and the matrix plus another array, from a product that lies in a fourth one.
    fn product_plus(self, from: usize, other: usize, to: usize) -> Step {
        let (n, rows) = (self.rows * COLUMNS, self.rows);
        let kernel = parse(&format!(
            "kernel (p0: f32[{n}], p1: f32[{n}], p2: f32[{n}] out) {{\n  axes a0 = {rows}, a1 = {COLUMNS}\n\
             %0 = load p0[a0 * {COLUMNS} + a1]\n%1 = load p1[a0 * {COLUMNS} + a1]\n%2 = add %0, %1\n\
             store p2[a0 * {COLUMNS} + a1], %2\n}}\n"
        ))
        .unwrap();
        let product: Library = MatMul::contiguous(DType::F32, &[], [rows, COLUMNS, COLUMNS]).into();
        let epilogue = Epilogue::new(&kernel, ParamId(0)).unwrap();
        let [a, b, other, to, accumulator] =
            [self.slot(from), Place::Input(1), self.slot(other), self.slot(to), self.slot(3)];
        let matrix = COLUMNS * COLUMNS;
        let operands = [(a, n), (b, matrix), (other, n), (to, n), (accumulator, n)];
        Step {
            work: Work::Library { kernel: product, epilogue: Some(epilogue) },
            operands: operands.into_iter().map(|(place, len)| self.operand(place, len)).collect(),
            label: "product plus".into(),
        }
    }

    /// The left halves of the rows of two arrays, from a row of the second one on, side by side.
    fn joined(self, left: usize, right: usize, row: usize, to: usize) -> Step {
        let half = COLUMNS / 2;
        let join = Join {
            offsets: Shape::new(&[0, row * COLUMNS]),
            pitches: Shape::new(&[COLUMNS; 2]),
            ..Join::contiguous(DType::F32, self.rows, Shape::new(&[half; 2]), 1)
        };
        self.library(join.into(), &[self.slot(left), self.slot(right)], to)
    }

    fn copy(self, from: Place, to: Place) -> Step {
        let len = self.len();
        let text = format!(
            "kernel (p0: f32[{len}], p1: f32[{len}] out) {{\n  axes a0 = {len}\n%0 = load p0[a0]\nstore p1[a0], %0\n}}\n"
        );
        step("copy", &text, &[from, to])
    }

    /// Copies of an argument, the steps, and copies of all arrays.
    fn plan(self, steps: Vec<Step>) -> Plan {
        let all = (0..Self::N).map(|n| self.copy(Place::Input(0), self.slot(n)));
        let results = (0..Self::N).map(|n| self.copy(self.slot(n), Place::Output(n as u32)));
        Plan {
            inputs: vec![self.f32s(), BufferType { dtype: DType::F32, len: COLUMNS * COLUMNS }],
            outputs: vec![self.f32s(); Self::N],
            arena_bytes: Self::N * (self.len() * 4).next_multiple_of(64),
            steps: all.chain(steps).chain(results).collect(),
            donations: vec![],
        }
    }

    fn inputs(self) -> [Buffer; 2] {
        let matrix: Vec<f32> = (0..COLUMNS * COLUMNS).map(|i| ((i * 6007) % 1999) as f32 * 1e-4 - 0.1).collect();
        [ramp(self.len()), Buffer::copy_of(&matrix).unwrap()]
    }
}

const ROW_BY_ROW: &str = "a0 * 256 + a1";
const NEXT_ROW: &str = "a0 * 256 + a1 + 256";

/// How many phases some steps are, beside copies before and after them.
fn n_phases_of(x: Arrays, steps: Vec<Step>) -> usize {
    let inner = Arrays::N..Arrays::N + steps.len();
    let all = Executable::compile(x.plan(steps)).unwrap();
    let launches: Vec<_> = all.launch_steps().collect();
    let is_inner = |launch: usize| launches[launch].clone().any(|step| inner.contains(&step));
    all.phases().filter(|phase| phase.iter().any(|&launch| is_inner(launch))).count()
}

fn n_phases(steps: Vec<Step>) -> usize {
    n_phases_of(Arrays { rows: 32 }, steps)
}

#[test]
fn rows_that_keep_to_themselves_are_a_region() {
    let x = Arrays { rows: 32 };
    let exp = |at: &str, from, to| x.pointwise(from, at, "%1 = exp %0", to);
    // An array may be written over as soon as a part of the rows has read its rows of it.
    assert_eq!(n_phases(vec![x.product(0, 0, 1), exp(ROW_BY_ROW, 1, 2), x.product(2, 0, 1), x.product(1, 0, 0)]), 1);
    assert_eq!(n_phases(vec![x.product_plus(0, 1, 2), x.joined(2, 1, 0, 0), x.product(0, 0, 1)]), 1);
    assert_eq!(n_phases(vec![x.product(0, 0, 1), x.sums(1, true, 2), x.add(1, 2, "a0"), x.product(1, 0, 0)]), 1);
    // The next row, over the next row, and the first one.
    assert_eq!(n_phases(vec![x.product(0, 0, 1), exp(NEXT_ROW, 1, 2), exp(ROW_BY_ROW, 2, 0)]), 3);
    assert_eq!(n_phases(vec![x.product(0, 1, 1), exp(ROW_BY_ROW, 1, 0)]), 2);
    assert_eq!(n_phases(vec![x.product(0, 0, 1), x.joined(2, 1, 1, 0)]), 2);
    assert_eq!(n_phases(vec![x.product(0, 0, 1), x.product(1, 1, 2)]), 2);
    assert_eq!(n_phases(vec![x.product(0, 0, 1), x.add(2, 1, "a1")]), 2);
}

#[test]
fn launches_of_all_rows_wait_for_the_end_of_a_region() {
    let x = Arrays { rows: 32 };
    let product = |from, to| x.product(from, 0, to);
    // The sums are read by nobody, or only after the region.
    let sums = || x.sums(1, false, 2);
    assert_eq!(n_phases(vec![product(0, 1), sums(), product(1, 0)]), 2);
    assert_eq!(n_phases(vec![product(0, 1), sums(), product(1, 0), x.sums(0, false, 3)]), 2, "both sums at once");
    assert_eq!(n_phases(vec![product(0, 1), sums(), product(1, 0), x.add(3, 2, "a1")]), 3, "one after the other");
    // The next product writes over what they read, or reads them.
    assert_eq!(n_phases(vec![product(0, 1), sums(), product(0, 1)]), 3);
    assert_eq!(n_phases(vec![product(0, 1), sums(), product(2, 3)]), 3);
}

#[test]
fn products_of_few_rows_or_large_matrices_are_for_all_threads() {
    for (rows, n) in [(15, 2), (16, 1), (64, 1), (65, 2)] {
        let x = Arrays { rows };
        assert_eq!(n_phases_of(x, vec![x.product(0, 0, 1), x.product(1, 0, 0)]), n, "{rows} rows");
    }
}

/// An argument that is given away may be the result of a region that reads it row by row.
#[test]
fn regions_write_over_donated_arguments() {
    let x = Arrays { rows: 32 };
    for (row, n) in [(0, 1), (1, 2)] {
        let mut first = x.product(0, row, 1);
        first.operands[0].place = Place::Input(0);
        let mut last = x.pointwise(1, ROW_BY_ROW, "%1 = tanh %0", 0);
        last.operands[1].place = Place::Output(0);
        let plan = Plan {
            inputs: vec![x.f32s(), BufferType { dtype: DType::F32, len: COLUMNS * COLUMNS }],
            outputs: vec![x.f32s()],
            arena_bytes: 2 * (x.len() * 4).next_multiple_of(64),
            steps: vec![first, last],
            donations: vec![Donation { output: 0, input: 0 }],
        };
        let executable = Executable::compile(plan).unwrap();
        assert_eq!(executable.phases().len(), n, "the product reads from row {row} on");
        let [array, matrix] = x.inputs();
        let kept = executable.run(&[&array, &matrix]).unwrap();
        let given = executable.run_donating([Input::donated(array), Input::borrowed(&matrix)]).unwrap();
        let computed = x.rows * COLUMNS * 4;
        assert_eq!(kept[0].bytes()[..computed], given[0].bytes()[..computed]);
    }
}

#[test]
fn random_regions_have_the_bits_of_launches_one_by_one() {
    let (mut n_launches, mut n_phases) = (0, 0);
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let x = Arrays { rows: rng.pick(&[24, 31, 32, 47, 50, 64]) };
        let mut steps: Vec<Step> = vec![];
        while steps.len() < 9 {
            let [from, to, other] = [(); 3].map(|()| rng.below(3));
            let last_row = (x.rows - 1) * COLUMNS;
            let turned = format!("a0 * -256 + a1 + {last_row}");
            let at = [NEXT_ROW, "a0 * 256 + a1 + 1", &turned, "a1", "a0"];
            let at = if rng.one_in(8) { rng.pick(&at) } else { ROW_BY_ROW };
            let row = usize::from(rng.one_in(8));
            let next = match rng.below(8) {
                0 => x.sums(from, !rng.one_in(4), to),
                1 => x.add(to, other, if rng.one_in(8) { "a1" } else { "a0" }),
                2 => x.joined(from, other, row, to),
                3 => x.product_plus(from, other, to),
                4 | 5 => x.product(from, row, to),
                _ => x.pointwise(from, at, rng.pick(&["%1 = sin %0", "%1 = neg %0", "%1 = sigmoid %0"]), to),
            };
            steps.push(next);
            // A step that writes over other elements than it reads is none.
            if x.plan(steps.clone()).verify().is_err() {
                steps.pop();
            }
        }
        let plan = x.plan(steps);
        let apart = Executable::compile_with(plan.clone(), Modes { separate: true, ..Modes::default() }).unwrap();
        let together = Executable::compile(plan).unwrap();
        (n_launches, n_phases) = (n_launches + together.n_launches(), n_phases + together.phases().len());
        let inputs = x.inputs();
        let inputs = [&inputs[0], &inputs[1]];
        let expected = apart.run(&inputs).unwrap();
        for n_threads in [1, 2, 3] {
            set_n_threads(n_threads);
            let found = together.run(&inputs).unwrap();
            let is_equal = found.iter().zip(&expected).all(|(found, expected)| found.bytes() == expected.bytes());
            assert!(is_equal, "seed {seed} with {n_threads} threads:\n{}", together.plan());
        }
        set_n_threads(2);
    }
    assert!(n_launches - n_phases > 400, "{n_phases} phases of {n_launches} launches");
}
