//! Plans run as their slow twins do, whatever the threads, the merging and the places of buffers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use retape_kernels::ir::parse;
use retape_kernels::library::{Library, MatMul};
use retape_kernels::{BufferType, Donation, Error, Executable, Input, Modes, Operand, Place, Plan, Step, Work};
use retape_runtime::{Buffer, DType, Element, set_n_threads};

fn f32s(n: usize) -> BufferType {
    BufferType { dtype: DType::F32, len: n }
}

pub(crate) fn step(label: &str, text: &str, places: &[Place]) -> Step {
    let kernel = parse(text).unwrap();
    let operands =
        kernel.params.iter().zip(places).map(|(p, &place)| Operand { place, dtype: p.dtype, len: p.len }).collect();
    Step { work: Work::Kernel(kernel), operands, label: label.into() }
}

pub(crate) fn ramp(n: usize) -> Buffer {
    Buffer::copy_of(&(0..n).map(|i| ((i * 7919) % 1013) as f32 * 1e-2 - 5.0).collect::<Vec<f32>>()).unwrap()
}

/// Softmax over the last axis of `[rows, columns]`, its exponentials in place.
fn softmax(rows: usize, columns: usize) -> Plan {
    let n = rows * columns;
    let [top, exps, sums] = [0, 1, 2].map(|i| Place::Slot { offset: i * (n * 4).next_multiple_of(64) });
    let row_max = format!(
        "kernel (p0: f32[{n}], p1: f32[{rows}] out) {{\n  axes a0 = {rows}, a1 = {columns} reduced\n\
         %0 = load p0[a0 * {columns} + a1]\n%1 = reduce max %0\nstore p1[a0], %1\n}}\n"
    );
    let shift = format!(
        "kernel (p0: f32[{n}], p1: f32[{rows}], p2: f32[{n}] out) {{\n  axes a0 = {rows}, a1 = {columns}\n\
         %0 = load p0[a0 * {columns} + a1]\n%1 = load p1[a0]\n%2 = sub %0, %1\nstore p2[a0 * {columns} + a1], %2\n}}\n"
    );
    let exp = format!(
        "kernel (p0: f32[{n}], p1: f32[{n}] out) {{\n  axes a0 = {n}\n%0 = load p0[a0]\n%1 = exp %0\n\
         store p1[a0], %1\n}}\n"
    );
    let sum = row_max.replace("max", "sum");
    let divide = shift.replace("sub", "div");
    Plan {
        inputs: vec![f32s(n)],
        outputs: vec![f32s(n)],
        arena_bytes: 4 * n * 4 + 256,
        donations: vec![],
        steps: vec![
            step("row max", &row_max, &[Place::Input(0), top]),
            step("shift", &shift, &[Place::Input(0), top, exps]),
            step("exp", &exp, &[exps, exps]),
            step("row sum", &sum, &[exps, sums]),
            step("divide", &divide, &[exps, sums, Place::Output(0)]),
        ],
    }
}

fn close(x: &Buffer, y: &Buffer) {
    for (at, (x, y)) in x.as_slice::<f32>().iter().zip(y.as_slice::<f32>()).enumerate() {
        assert!((x - y).abs() <= 1e-5 * y.abs().max(1e-3), "element {at} is {x}, not {y}");
    }
}

#[test]
fn plans_agree_with_their_slow_twins() {
    for (rows, columns) in [(1, 1), (3, 5), (64, 10), (7, 1000), (300, 333)] {
        let executable = Executable::compile(softmax(rows, columns)).unwrap();
        let input = ramp(rows * columns);
        let fast = executable.run(&[&input]).unwrap();
        close(&fast[0], &executable.evaluate(&[&input]).unwrap()[0]);
        let again = executable.run_into(&[&input], fast).unwrap();
        let total: f32 = again[0].as_slice::<f32>().iter().sum();
        assert!((total - rows as f32).abs() < 1e-3 * rows as f32, "rows sum to 1");
    }
}

#[test]
fn small_steps_are_merged_and_large_ones_chained() {
    assert_eq!(Executable::compile(softmax(3, 5)).unwrap().n_launches(), 1);
    assert_eq!(Executable::compile(softmax(100, 133)).unwrap().n_launches(), 5);
    assert_eq!(Executable::compile(softmax(300, 333)).unwrap().n_launches(), 1);
}

/// Steps of a formula with two numbers, each of which has its own; into outputs of `n` elements, or of one if it folds.
fn numbered(n: usize, fold: bool, numbers: &[[&str; 2]]) -> Plan {
    let (axis, result, len, at) =
        if fold { (" reduced", "%7 = reduce sum %6", 1, "0") } else { ("", "%7 = abs %6", n, "a0") };
    let text = |[factor, term]: &[&str; 2]| {
        format!(
            "kernel (p0: f32[{n}], p1: f32[{len}] out) {{\n  axes a0 = {n}{axis}\n%0 = load p0[a0]\n\
             %1 = const {factor}: f32\n%2 = mul %0, %1\n%3 = exp %2\n%4 = const {term}: f32\n%5 = add %3, %4\n\
             %6 = div %5, %1\n{result}\nstore p1[{at}], %7\n}}\n"
        )
    };
    let steps = numbers.iter().enumerate();
    Plan {
        inputs: vec![f32s(n)],
        outputs: vec![f32s(len); numbers.len()],
        arena_bytes: 0,
        donations: vec![],
        steps: steps.map(|(k, of)| step("one", &text(of), &[Place::Input(0), Place::Output(k as u32)])).collect(),
    }
}

#[test]
fn steps_that_differ_in_numbers_share_code() {
    let many: Vec<[String; 2]> = (0..40).map(|k| [0.303 + 0.01 * f64::from(k), -1.7].map(|x| x.to_string())).collect();
    let many: Vec<[&str; 2]> = many.iter().map(|[factor, term]| [&**factor, &**term]).collect();
    // Short ones, tasks of many threads, and sums in two steps.
    for (n, fold) in [(7, false), (100_000, false), (5, true), (300, true), (100_000, true)] {
        let separate = Modes { separate: true, ..Modes::default() };
        let shared = Executable::compile_with(numbered(n, fold, &many), separate).unwrap();
        let alone = Executable::compile_with(numbered(n, fold, &many[..1]), separate).unwrap();
        assert_eq!(shared.n_functions(), alone.n_functions(), "of {n} elements");
        let input = ramp(n);
        for trap in [false, true] {
            let shared =
                Executable::compile_with(numbered(n, fold, &many), Modes { trap, ..Modes::default() }).unwrap();
            let found = shared.run(&[&input]).unwrap();
            for (numbers, found) in many.iter().zip(&found) {
                let alone = Executable::compile(numbered(n, fold, &[*numbers])).unwrap();
                assert_eq!(alone.run(&[&input]).unwrap()[0].bytes(), found.bytes(), "{numbers:?} over {n}");
            }
        }
    }
}

/// Steps with numbers of their own behind sums, which long sums are cut at: of a vector, of columns, and two at once.
fn numbered_tails(n: usize, form: usize, numbers: &[f32]) -> Plan {
    let text = |c: &f32| match form {
        0 => format!(
            "kernel (p0: f32[{n}], p1: f32[1] out) {{\n  axes a0 = {n} reduced\n%0 = load p0[a0]\n%1 = reduce sum %0\n\
             %2 = const {c:?}: f32\n%3 = mul %1, %2\nstore p1[0], %3\n}}\n"
        ),
        1 => format!(
            "kernel (p0: f32[{n}], p1: f32[20] out) {{\n  axes a0 = 20, a1 = {} reduced\n%0 = load p0[a0 + a1 * 20]\n\
             %1 = reduce sum %0\n%2 = const {c:?}: f32\n%3 = sub %1, %2\nstore p1[a0], %3\n}}\n",
            n / 20
        ),
        _ => format!(
            "kernel (p0: f32[{n}], p1: f32[1] out, p2: f32[1] out) {{\n  axes a0 = {n} reduced\n%0 = load p0[a0]\n\
             %1 = reduce sum %0\n%2 = reduce max %0\n%3 = const {c:?}: f32\n%4 = mul %1, %3\n%5 = add %2, %3\n\
             store p1[0], %4\nstore p2[0], %5\n}}\n"
        ),
    };
    let (len, n_outputs) = ([1, 20, 1][form], [1, 1, 2][form]);
    let places = |k: usize| {
        let outputs = (k * n_outputs..(k + 1) * n_outputs).map(|output| Place::Output(output as u32));
        std::iter::once(Place::Input(0)).chain(outputs).collect::<Vec<Place>>()
    };
    Plan {
        inputs: vec![f32s(n)],
        outputs: vec![f32s(len); numbers.len() * n_outputs],
        arena_bytes: 0,
        donations: vec![],
        steps: numbers.iter().enumerate().map(|(k, c)| step("one", &text(c), &places(k))).collect(),
    }
}

#[test]
fn numbers_behind_sums_are_shared() {
    for form in 0..3 {
        for n in [60, 100_000] {
            let numbers = [0.3, 0.7, 0.9, -1.7];
            let input = ramp(n);
            let together = Executable::compile(numbered_tails(n, form, &numbers)).unwrap();
            let found = together.run(&[&input]).unwrap();
            let slow = together.evaluate(&[&input]).unwrap();
            let per_step = found.len() / numbers.len();
            for (k, number) in numbers.iter().enumerate() {
                let alone = Executable::compile(numbered_tails(n, form, &[*number])).unwrap();
                for (output, alone) in alone.run(&[&input]).unwrap().iter().enumerate() {
                    let found = &found[k * per_step + output];
                    assert_eq!(found.bytes(), alone.bytes(), "form {form}, {number} over {n}");
                    // In another order, over positive and negative numbers.
                    let pairs = found.as_slice::<f32>().iter().zip(slow[k * per_step + output].as_slice::<f32>());
                    let is_near = |(x, y): (&f32, &f32)| (x - y).abs() <= 1e-3 * y.abs().max(1.0);
                    assert!(pairs.into_iter().all(is_near), "form {form}, {number} over {n}");
                }
            }
        }
    }
}

/// Numbers that rewrites look for, and those that have no equal.
#[test]
fn numbers_that_decide_what_code_is_stay_in_it() {
    let numbers = ["1", "-1", "2", "0.5", "0", "-0", "inf", "nan", "0.3", "1e-40", "-7.5", "3"];
    let pairs: Vec<[&str; 2]> = numbers.iter().flat_map(|&a| numbers.iter().map(move |&b| [a, b])).collect();
    for (n, fold) in [(50, false), (50, true)] {
        let modes = Modes { separate: true, ..Modes::default() };
        let shared = Executable::compile_with(numbered(n, fold, &pairs), modes).unwrap();
        let input = ramp(n);
        for (pair, found) in pairs.iter().zip(shared.run(&[&input]).unwrap()) {
            let alone = Executable::compile(numbered(n, fold, &[*pair])).unwrap().run(&[&input]).unwrap();
            let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
            assert!(alone[0].as_slice().iter().zip(found.as_slice::<f32>()).all(same), "{pair:?}");
        }
    }
}

#[test]
fn steps_show_what_they_wrote() {
    for (rows, columns) in [(3, 5), (300, 333), (1, 100_000)] {
        let input = ramp(rows * columns);
        let modes = Modes { separate: true, ..Modes::default() };
        let apart = Executable::compile_with(softmax(rows, columns), modes).unwrap();
        let merged = Executable::compile(softmax(rows, columns)).unwrap();
        let seen = |executable: &Executable| {
            let mut seen = vec![];
            let outputs = executable.run_stepwise(&[&input], &mut |step, operand, bytes| {
                assert_eq!(operand, 0);
                seen.push((step, bytes.to_vec()));
            });
            (seen, outputs.unwrap().remove(0))
        };
        let ((all, from_apart), (last, from_merged)) = (seen(&apart), seen(&merged));
        assert_eq!(all.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(from_apart.bytes(), from_merged.bytes());
        assert_eq!(all[4].1, from_apart.bytes());
        // Of merged steps the exponentials are seen, and not what they were written over.
        assert!(last.iter().all(|seen| all.contains(seen)), "merging changes no bit");
        assert_eq!(last.iter().any(|(step, _)| *step == 1), merged.n_launches() > 1);
    }
}

#[test]
fn the_first_steps_that_store_what_is_not_finite_are_told() {
    for (rows, columns) in [(3, 5), (300, 333), (1, 100_000)] {
        let plain = Executable::compile(softmax(rows, columns)).unwrap();
        let modes = Modes { trap: true, separate: true, ..Modes::default() };
        let trapped = Executable::compile_with(softmax(rows, columns), modes).unwrap();
        let mut values = ramp(rows * columns).as_slice::<f32>().to_vec();
        // A frame is used again, so flags of the call before must be gone.
        for (last, label) in [(0.0, None), (f32::INFINITY, Some("row max")), (1.0, None)] {
            *values.last_mut().unwrap() = last;
            let input = Buffer::copy_of(&values).unwrap();
            let (outputs, first) = trapped.run_trapped(&[&input]).unwrap();
            assert_eq!(first.as_deref(), label, "{rows} x {columns}, {last}");
            assert_eq!(outputs[0].bytes(), plain.run(&[&input]).unwrap()[0].bytes());
        }
    }
    let plain = Executable::compile(softmax(2, 2)).unwrap();
    assert!(matches!(plain.run_trapped(&[&ramp(4)]), Err(Error::Internal(_))));
}

#[test]
fn library_steps_are_scanned() {
    fn product<T: Element>(large: f64) {
        // More results than are looked at together.
        let matmul = Library::from(MatMul::contiguous(T::DTYPE, &[], [64, 50, 1]));
        let types: Vec<BufferType> =
            matmul.inputs().into_iter().chain(matmul.outputs()).map(|(dtype, len)| BufferType { dtype, len }).collect();
        let places = [Place::Input(0), Place::Input(1), Place::Output(0)];
        let operand = |(t, place): (&BufferType, Place)| Operand { place, dtype: t.dtype, len: t.len };
        let operands = types.iter().zip(places).map(operand).collect();
        let steps = vec![Step { work: Work::library(matmul), operands, label: "matmul".into() }];
        let plan = Plan { inputs: types[..2].to_vec(), outputs: vec![types[2]], steps, ..Plan::default() };
        let executable = Executable::compile_with(plan, Modes { trap: true, ..Modes::default() }).unwrap();
        let column = |large: f64| {
            let values: Vec<T> = (0..64).map(|i| T::from_f64(if i == 63 { large } else { 1.0 })).collect();
            Buffer::copy_of(&values).unwrap()
        };
        let row = Buffer::copy_of(&[T::from_f64(2.0); 50]).unwrap();
        let first = |large: f64| executable.run_trapped(&[&column(large), &row]).unwrap().1;
        assert_eq!((first(1.0), first(large)), (None, Some("matmul".to_owned())));
    }
    product::<f32>(3e38);
    product::<f64>(1e308);
}

#[test]
fn bits_do_not_depend_on_threads_or_callers() {
    let n = 300_007;
    let text = format!(
        "kernel (p0: f32[{n}], p1: f32[1] out, p2: f32[{n}] out) {{\n  axes a0 = {n} reduced\n%0 = load p0[a0]\n\
         %1 = mul %0, %0\n%2 = reduce sum %1\nstore p1[0], %2\nstore p2[a0], %1\n}}\n"
    );
    let places = [Place::Input(0), Place::Output(0), Place::Output(1)];
    let plan = Plan {
        inputs: vec![f32s(n)],
        outputs: vec![f32s(1), f32s(n)],
        steps: vec![step("squares", &text, &places)],
        ..Plan::default()
    };
    let executable = Executable::compile(plan).unwrap();
    let input = ramp(n);
    set_n_threads(1);
    let alone = executable.run(&[&input]).unwrap();
    set_n_threads(2);
    close(&alone[0], &executable.evaluate(&[&input]).unwrap()[0]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let shared = executable.run(&[&input]).unwrap();
                    assert_eq!(shared[0].bytes(), alone[0].bytes());
                    assert_eq!(shared[1].bytes(), alone[1].bytes());
                }
            });
        }
    });
}

#[test]
fn library_steps_run() {
    let matmul = Library::from(MatMul::contiguous(DType::F32, &[], [4, 3, 5]));
    let types: Vec<BufferType> =
        matmul.inputs().into_iter().chain(matmul.outputs()).map(|(dtype, len)| BufferType { dtype, len }).collect();
    let places = [Place::Input(0), Place::Input(1), Place::Output(0)];
    let operands = types.iter().zip(places).map(|(t, place)| Operand { place, dtype: t.dtype, len: t.len }).collect();
    let plan = Plan {
        inputs: types[..2].to_vec(),
        outputs: vec![types[2]],
        arena_bytes: 0,
        steps: vec![Step { work: Work::library(matmul), operands, label: "matmul".into() }],
        ..Plan::default()
    };
    let executable = Executable::compile(plan).unwrap();
    let inputs = [ramp(types[0].len), ramp(types[1].len)];
    let (outputs, times) = executable.profile(&inputs.each_ref()).unwrap();
    close(&outputs[0], &executable.evaluate(&inputs.each_ref()).unwrap()[0]);
    assert_eq!(times.len(), 1);
    assert_eq!((executable.launch_steps().len(), executable.launch_steps().next()), (1, Some(0..1)));
}

#[test]
fn malformed_plans_and_calls_are_refused() {
    let refused = |plan: &Plan, because: &str| match plan.verify() {
        Err(Error::Plan(reason)) => assert!(reason.contains(because), "{reason}"),
        other => panic!("{other:?} instead of: {because}"),
    };
    let good = softmax(3, 5);
    good.verify().unwrap();
    let mut plan = good.clone();
    plan.arena_bytes = 100;
    refused(&plan, "ends at byte");
    let mut plan = good.clone();
    plan.steps[1].operands[2].place = plan.steps[1].operands[1].place;
    refused(&plan, "written over");
    let mut plan = good.clone();
    plan.steps[4].operands[2].place = Place::Input(0);
    refused(&plan, "must not be");
    let mut plan = good.clone();
    plan.steps.pop();
    refused(&plan, "no step writes output 0");
    let mut plan = good.clone();
    plan.steps[2].operands.pop();
    refused(&plan, "1 operands instead of 2");
    let executable = Executable::compile(good).unwrap();
    assert!(matches!(executable.run(&[&ramp(14)]), Err(Error::Buffers(_))));
    assert!(matches!(executable.run(&[]), Err(Error::Buffers(_))));
}

/// A kernel over `n` elements that reads its first parameters at the coordinate and writes to the last.
fn pointwise(n: usize, op: &str) -> String {
    format!(
        "kernel (p0: f32[{n}], p1: f32[{n}], p2: f32[{n}] out) {{\n  axes a0 = {n}\n%0 = load p0[a0]\n\
         %1 = load p1[a0]\n%2 = {op} %0, %1\nstore p2[a0], %2\n}}\n"
    )
}

/// Two sums, a product of them, and a reversed copy of the first input before all that.
fn chain(n: usize) -> Plan {
    let reverse = format!(
        "kernel (p0: f32[{n}], p1: f32[{n}] out) {{\n  axes a0 = {n}\n%0 = load p0[{} + a0 * -1]\n\
         store p1[a0], %0\n}}\n",
        n - 1
    );
    let [a, b, slot] = [Place::Input(0), Place::Input(1), Place::Slot { offset: 0 }];
    Plan {
        inputs: vec![f32s(n); 2],
        outputs: vec![f32s(n); 2],
        arena_bytes: n * 4,
        steps: vec![
            step("reverse", &reverse, &[a, slot]),
            step("sum", &pointwise(n, "add"), &[a, b, Place::Output(0)]),
            step("product", &pointwise(n, "mul"), &[slot, b, Place::Output(1)]),
        ],
        ..Plan::default()
    }
}

fn donation(output: u32, input: u32) -> Donation {
    Donation { output, input }
}

#[test]
fn results_take_the_memory_of_given_inputs() {
    for n in [1, 5, 1000, 200_003] {
        let donations = vec![donation(0, 0), donation(1, 1), donation(1, 0)];
        let executable = Executable::compile(Plan { donations, ..chain(n) }).unwrap();
        let (a, b) = (ramp(n), ramp(n));
        let expected = executable.run(&[&a, &b]).unwrap();
        let same = |found: &[Buffer]| {
            assert!(found.iter().zip(&expected).all(|(found, expected)| found.bytes() == expected.bytes()), "{n}");
        };
        let copy = || Buffer::from_bytes(a.bytes()).unwrap();

        let (given_a, given_b) = (copy(), copy());
        let places = [given_a.as_ptr(), given_b.as_ptr()];
        let found = executable.run_donating([Input::donated(given_a), Input::donated(given_b)]).unwrap();
        assert_eq!([found[0].as_ptr(), found[1].as_ptr()], places);
        same(&found);

        // An output takes one input and an input becomes one output, whatever else is offered.
        let given = copy();
        let place = given.as_ptr();
        let found = executable.run_donating([Input::donated(given), Input::borrowed(&b)]).unwrap();
        assert_eq!(found[0].as_ptr(), place);
        same(&found);

        let found = executable.run_donating([Input::borrowed(&a), Input::borrowed(&b)]).unwrap();
        same(&found);
        assert_eq!(a.bytes(), ramp(n).bytes());
        assert_eq!(b.bytes(), ramp(n).bytes());
        let short = [Input::donated(ramp(n + 1)), Input::donated(copy())];
        assert!(matches!(executable.run_donating(short), Err(Error::Buffers(_))));
        assert!(matches!(executable.run_donating([Input::donated(copy())]), Err(Error::Buffers(_))));
    }
}

#[test]
fn wrong_donations_are_refused() {
    let n = 64;
    let refused = |plan: &Plan, pair: Donation, because: &str| {
        let plan = Plan { donations: vec![pair], ..plan.clone() };
        match plan.verify() {
            Err(Error::Plan(reason)) => assert!(reason.contains(because), "{reason}"),
            other => panic!("{other:?} instead of: {because}"),
        }
    };
    let good = chain(n);
    refused(&good, donation(0, 1), "step 2 reads the input after step 1 wrote");
    refused(&good, donation(0, 2), "does not exist");
    refused(&good, donation(2, 0), "does not exist");
    let mut reversed = good.clone();
    reversed.steps[0].operands[1].place = Place::Output(0);
    reversed.steps.remove(1);
    refused(&reversed, donation(0, 0), "step 0 reads other elements than it writes");
    let mut longer = good.clone();
    longer.inputs.push(f32s(2 * n));
    refused(&longer, donation(0, 2), "has another size");
    longer.inputs[2] = BufferType { dtype: DType::F64, len: n / 2 };
    Plan { donations: vec![donation(0, 2)], ..longer.clone() }.verify().unwrap();

    let matmul = Library::from(MatMul::contiguous(DType::F32, &[], [8, 8, 8]));
    let places = [Place::Input(0), Place::Input(1), Place::Output(0)];
    let operands = places.map(|place| Operand { place, dtype: DType::F32, len: n }).into_iter().collect();
    let product = Plan {
        inputs: vec![f32s(n); 3],
        outputs: vec![f32s(n)],
        steps: vec![Step { work: Work::library(matmul), operands, label: "matmul".into() }],
        ..Plan::default()
    };
    refused(&product, donation(0, 1), "step 0 reads other elements than it writes");
    Plan { donations: vec![donation(0, 2)], ..product }.verify().unwrap();
}
