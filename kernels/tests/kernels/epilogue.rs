//! Library kernels with an epilogue, as one step and as two: the bits must be equal.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use retape_kernels::ir::{Kernel, ParamId, parse};
use retape_kernels::library::{CastHalf, Conv2d, ConvPass, Library, MatMul, Transpose};
use retape_kernels::{
    BufferType, Donation, Epilogue, Error, Executable, Input, Modes, Operand, Place, Plan, Step, Work,
};
use retape_runtime::{Buffer, DType, Element, bf16, f16, set_n_threads};

/// A product, and the kernel that reads it as its first parameter.
struct Pair {
    library: Library,
    kernel: Kernel,
}

impl Pair {
    fn new(library: impl Into<Library>, kernel: &str) -> Pair {
        Pair { library: library.into(), kernel: parse(kernel).unwrap_or_else(|e| panic!("{e} in\n{kernel}")) }
    }

    fn result(&self) -> BufferType {
        let (dtype, len) = self.library.outputs()[0];
        BufferType { dtype, len }
    }

    /// One step: the result of the product lies in the arena, over the first output, or is a last output.
    fn fused(&self, result: Accumulator) -> Plan {
        let (mut plan, sources, others) = self.start();
        let place = match result {
            Accumulator::Slot => Place::Slot { offset: 0 },
            Accumulator::InPlace => Place::Output(0),
            Accumulator::Kept => {
                plan.outputs.push(self.result());
                Place::Output(plan.outputs.len() as u32 - 1)
            }
        };
        let epilogue = Epilogue::new(&self.kernel, ParamId(0)).unwrap();
        let epilogue = Some(epilogue.keeping_accumulator(result == Accumulator::Kept));
        let operands = [sources, others, vec![operand(place, self.result())]].concat();
        let work = Work::Library { kernel: self.library.clone(), epilogue };
        plan.steps = vec![Step { work, operands: operands.into(), label: "both".into() }];
        plan
    }

    /// Two steps, and the result of the product as a last output.
    fn apart(&self) -> Plan {
        let (mut plan, sources, others) = self.start();
        plan.outputs.push(self.result());
        let result = operand(Place::Output(plan.outputs.len() as u32 - 1), self.result());
        let step = |work, operands: Vec<Operand>| Step { work, operands: operands.into(), label: "one".into() };
        plan.steps = vec![
            step(Work::library(self.library.clone()), [sources, vec![result]].concat()),
            step(Work::Kernel(self.kernel.clone()), [vec![result], others].concat()),
        ];
        plan
    }

    /// The buffers, the operands of the product, and the kernel's operands after the first.
    fn start(&self) -> (Plan, Vec<Operand>, Vec<Operand>) {
        let ty = |(dtype, len)| BufferType { dtype, len };
        let mut plan = Plan { inputs: self.library.inputs().into_iter().map(ty).collect(), ..Plan::default() };
        plan.arena_bytes = self.result().bytes();
        let sources = plan.inputs.iter().enumerate().map(|(n, &ty)| operand(Place::Input(n as u32), ty)).collect();
        let mut others = vec![];
        for param in &self.kernel.params[1..] {
            let ty = BufferType { dtype: param.dtype, len: param.len };
            let list = if param.written { &mut plan.outputs } else { &mut plan.inputs };
            list.push(ty);
            let n = list.len() as u32 - 1;
            others.push(operand(if param.written { Place::Output(n) } else { Place::Input(n) }, ty));
        }
        (plan, sources, others)
    }
}

/// Where the result of a product lies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Accumulator {
    Slot,
    InPlace,
    Kept,
}

fn operand(place: Place, ty: BufferType) -> Operand {
    Operand { place, dtype: ty.dtype, len: ty.len }
}

fn filled(seed: usize, ty: &BufferType) -> Buffer {
    let value = |i: usize| (((i + seed) * 7919) % 1013) as f64 * 2e-3 - 1.0;
    let values = (0..ty.len).map(value);
    match ty.dtype {
        DType::F32 => Buffer::copy_of(&values.map(f32::from_f64).collect::<Vec<_>>()).unwrap(),
        DType::F64 => Buffer::copy_of(&values.collect::<Vec<_>>()).unwrap(),
        DType::F16 => Buffer::copy_of(&values.map(f16::from_f64).collect::<Vec<_>>()).unwrap(),
        DType::Bf16 => Buffer::copy_of(&values.map(bf16::from_f64).collect::<Vec<_>>()).unwrap(),
        dtype => panic!("{dtype}"),
    }
}

fn bytes(outputs: &[Buffer]) -> Vec<Vec<u8>> {
    outputs.iter().map(|output| output.bytes().to_vec()).collect()
}

/// Runs both forms of a pair in all modes and on several threads.
fn check(pair: &Pair, accumulators: &[Accumulator]) {
    let plan = pair.apart();
    let inputs: Vec<Buffer> = plan.inputs.iter().enumerate().map(|(n, ty)| filled(n, ty)).collect();
    let inputs: Vec<&Buffer> = inputs.iter().collect();
    let expected = bytes(&Executable::compile(plan).unwrap().run(&inputs).unwrap());
    for &accumulator in accumulators {
        let plan = pair.fused(accumulator);
        let n = plan.outputs.len();
        for modes in
            [Modes::default(), Modes { separate: true, ..Modes::default() }, Modes { trap: true, ..Modes::default() }]
        {
            let code = Executable::compile_with(plan.clone(), modes).unwrap();
            for n_threads in [1, 4] {
                set_n_threads(n_threads);
                let made = bytes(&code.run(&inputs).unwrap());
                assert!(made == expected[..n], "{accumulator:?}, {modes:?}, {n_threads} threads\n{plan}");
            }
        }
        set_n_threads(2);
    }
}

/// The number of launches of a pair as one step.
fn n_launches(pair: &Pair, accumulator: Accumulator) -> usize {
    Executable::compile(pair.fused(accumulator)).unwrap().n_launches()
}

/// A bias for each column and a rectifier, and perhaps whether it was the identity.
fn relu(dtype: DType, rows: usize, cols: usize, mask: bool) -> String {
    let (name, len) = (dtype.name(), rows * cols);
    let [param, store] = match mask {
        true => [format!(", p3: bool[{len}] out"), format!("store p3[a0 * {cols} + a1], %5\n")],
        false => [String::new(), String::new()],
    };
    format!(
        "kernel (p0: {name}[{len}], p1: {name}[{cols}], p2: {name}[{len}] out{param}) {{\n  \
         axes a0 = {rows}, a1 = {cols}\n%0 = load p0[a0 * {cols} + a1]\n%1 = load p1[a1]\n%2 = add %0, %1\n\
         %3 = const 0.0: {name}\n%4 = max %2, %3\n%5 = lt %3, %2\nstore p2[a0 * {cols} + a1], %4\n{store}}}\n"
    )
}

/// The sum with another matrix, in units of one number for each row.
fn residual(rows: usize, cols: usize) -> String {
    let len = rows * cols;
    format!(
        "kernel (p0: f32[{len}], p1: f32[{len}], p2: f32[{rows}], p3: f32[{len}] out) {{\n  \
         axes a0 = {rows}, a1 = {cols}\n%0 = load p1[a0 * {cols} + a1]\n%1 = load p0[a0 * {cols} + a1]\n\
         %2 = add %0, %1\n%3 = load p2[a0]\n%4 = mul %2, %3\nstore p3[a0 * {cols} + a1], %4\n}}\n"
    )
}

/// Elements with their number subtracted where a table has them below zero, the first two axes swapped.
fn swapped([batch, rows, cols]: [usize; 3]) -> String {
    let len = batch * rows * cols;
    format!(
        "kernel (p0: f32[{len}], p1: f32[7], p2: f32[{len}] out) {{\n  axes a0 = {rows}, a1 = {batch}, a2 = {cols}\n\
         %0 = load p0[a0 * {cols} + a1 * {} + a2]\n%1 = index a2\n%2 = load_at p1, %1\n%3 = cast %1: f32\n\
         %4 = mul %2, %3\n%5 = sub %0, %4\nstore p2[a0 * {} + a1 * {cols} + a2], %5\n}}\n",
        rows * cols,
        batch * cols
    )
}

fn conv(pass: ConvPass, groups: usize, stride: usize) -> Conv2d {
    Conv2d {
        dtype: DType::F32,
        batch: 3,
        height: 13,
        width: 14,
        in_channels: 6,
        kernel_height: 3,
        kernel_width: 3,
        out_channels: 18,
        stride: [stride; 2],
        padding: [[1, 1], [1, 1]],
        dilation: [1, 1],
        groups,
        pass,
    }
}

#[test]
fn layers() {
    let all = [Accumulator::Slot, Accumulator::InPlace, Accumulator::Kept];
    // Partial tiles, several strips, products without packing, and a depth of several blocks.
    for [m, n, k] in [[5, 64, 3], [33, 70, 40], [200, 131, 300], [250, 333, 9], [64, 64, 1], [3, 80, 0]] {
        for dtype in [DType::F32, DType::F64] {
            let product = MatMul::contiguous(dtype, &[], [m, n, k]);
            check(&Pair::new(product.clone(), &relu(dtype, m, n, false)), &all);
            check(&Pair::new(product, &relu(dtype, m, n, true)), &all);
        }
        check(&Pair::new(MatMul::contiguous(DType::F32, &[], [m, n, k]), &residual(m, n)), &all);
    }
    let halves = MatMul::contiguous(DType::F16, &[], [33, 70, 40]);
    let doubled = "kernel (p0: f16[2310], p1: f16[2310] out) {\n  axes a0 = 2310\n%0 = load p0[a0]\n%1 = cast %0: f32\n\
                   %2 = add %1, %1\n%3 = cast %2: f16\nstore p1[a0], %3\n}\n";
    check(&Pair::new(halves, doubled), &all);
}

#[test]
fn random_shapes() {
    let mut state = 0x2545_f491_u64;
    let mut below = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n + 1
    };
    for _ in 0..12 {
        let (batch, [m, n, k]) = (below(3), [below(150), 63 + below(200), below(400)]);
        let product = MatMul::contiguous(DType::F32, &[batch], [m, n, k]);
        let pairs = [relu(DType::F32, batch * m, n, true), residual(batch * m, n)];
        for kernel in pairs {
            let pair = Pair::new(product.clone(), &kernel);
            check(&pair, &[Accumulator::InPlace]);
        }
        check(&Pair::new(product, &swapped([batch, m, n])), &[Accumulator::Slot, Accumulator::Kept]);
    }
}

/// Of blocks exchanged in place, by panels, and by those of large results, with rests of each.
#[test]
fn transposes() {
    let all = [Accumulator::Slot, Accumulator::InPlace, Accumulator::Kept];
    for [batch, rows, cols] in [[1, 100, 70], [3, 90, 200], [1, 384, 150], [2, 256, 64], [1, 1024, 130], [1, 70, 5]] {
        for dtype in [DType::F32, DType::F64] {
            let pair =
                Pair::new(Transpose::contiguous(dtype, [batch, rows, cols]), &relu(dtype, batch * cols, rows, true));
            check(&pair, &all);
        }
        let transpose = Transpose::contiguous(DType::F32, [batch, rows, cols]);
        check(&Pair::new(transpose.clone(), &residual(batch * cols, rows)), &all);
        check(&Pair::new(transpose, &swapped([batch, cols, rows])), &[Accumulator::Slot, Accumulator::Kept]);
    }
    // Of parts of matrices, whose rows take turns, for a batch.
    for (rows, cols, strides) in [(100, 70, [9000, 80, 90]), (256, 64, [64, 128, 256])] {
        let ([batch, between], [of_batch, of_turn, pitch]) = ([2, 2], strides);
        let strides = [0, of_batch, 0, of_turn, pitch];
        let transpose =
            Transpose { dtype: DType::F32, batch: [1, batch], between: [1, between], rows, cols, offset: 3, strides };
        check(&Pair::new(transpose.clone(), &residual(batch * cols, between * rows)), &all);
        check(&Pair::new(transpose, &relu(DType::F32, batch * cols, between * rows, true)), &all);
    }
    for [rows, cols] in [[(1 << 18) + 16, 8], [2800, 1000]] {
        let transpose = Transpose::contiguous(DType::F32, [1, rows, cols]);
        check(&Pair::new(transpose, &relu(DType::F32, cols, rows, false)), &[Accumulator::InPlace, Accumulator::Kept]);
    }
    let launches = |rows: usize, cols: usize| {
        let transpose = Transpose::contiguous(DType::F32, [1, rows, cols]);
        n_launches(&Pair::new(transpose, &relu(DType::F32, cols, rows, false)), Accumulator::InPlace)
    };
    assert_eq!((launches(1024, 130), launches(1 << 18, 8)), (1, 1));
    assert_eq!((launches(2800, 1000), launches(20, 500)), (2, 2), "from page to page, and of short rows");
}

#[test]
fn batches_convolutions_and_casts() {
    let all = [Accumulator::Slot, Accumulator::InPlace, Accumulator::Kept];
    // Large and small matrices of a batch, and one right matrix for all.
    for [batch, m, n, k] in [[4, 100, 130, 70], [9, 6, 66, 5]] {
        let mut product = MatMul::contiguous(DType::F32, &[batch], [m, n, k]);
        check(&Pair::new(product.clone(), &residual(batch * m, n)), &all);
        product.b.batch_strides[0] = 0;
        check(&Pair::new(product.clone(), &residual(batch * m, n)), &all);
        check(&Pair::new(product, &swapped([batch, m, n])), &[Accumulator::Slot]);
    }
    for (groups, stride) in [(1, 1), (1, 2), (2, 1), (6, 1), (6, 2)] {
        for pass in [ConvPass::Forward, ConvPass::InputGradient, ConvPass::FilterGradient] {
            let op = conv(pass, groups, stride);
            let width = match pass {
                ConvPass::InputGradient => op.in_channels,
                ConvPass::Forward | ConvPass::FilterGradient => op.out_channels,
            };
            let rows = op.outputs()[0].1 / width;
            check(&Pair::new(op.clone(), &relu(DType::F32, rows, width, true)), &all);
            check(&Pair::new(op, &residual(rows, width)), &all);
        }
    }
    for (from, to) in [(DType::F32, DType::F16), (DType::F32, DType::Bf16), (DType::F64, DType::F16)] {
        let library = MatMul::contiguous(from, &[], [70, 90, 30]).into();
        let cast = CastHalf { from, to, len: 70 * 90 };
        check(&Pair { library, kernel: cast.kernel() }, &[Accumulator::Slot, Accumulator::Kept]);
        let mut apart =
            Pair { library: MatMul::contiguous(from, &[], [70, 90, 30]).into(), kernel: cast.kernel() }.apart();
        let inputs: Vec<Buffer> = apart.inputs.iter().enumerate().map(|(n, ty)| filled(n, ty)).collect();
        let inputs: Vec<&Buffer> = inputs.iter().collect();
        let expected = bytes(&Executable::compile(apart.clone()).unwrap().run(&inputs).unwrap());
        apart.steps[1].work = Work::library(cast);
        assert_eq!(bytes(&Executable::compile(apart).unwrap().run(&inputs).unwrap()), expected, "{from} to {to}");
    }
}

/// Blocks meet the epilogue where that saves traffic, and the whole does elsewhere.
#[test]
fn blocks_that_pay() {
    let product = |m, n, k| MatMul::contiguous(DType::F32, &[], [m, n, k]);
    let large = || product(100, 100, 50);
    assert_eq!(n_launches(&Pair::new(large(), &relu(DType::F32, 100, 100, false)), Accumulator::InPlace), 1);
    assert_eq!(n_launches(&Pair::new(large(), &residual(100, 100)), Accumulator::InPlace), 1);
    assert_eq!(n_launches(&Pair::new(large(), &residual(100, 100)), Accumulator::Slot), 2, "more is moved than saved");
    let narrow = product(100, 10, 50);
    assert_eq!(n_launches(&Pair::new(narrow, &relu(DType::F32, 100, 10, false)), Accumulator::InPlace), 2);
    let deep = product(64, 64, 1 << 14);
    assert_eq!(
        n_launches(&Pair::new(deep, &relu(DType::F32, 64, 64, false)), Accumulator::InPlace),
        2,
        "sums of parts"
    );
    let op = conv(ConvPass::Forward, 1, 1);
    let kernel = relu(DType::F32, 3 * 13 * 14, 18, false);
    assert_eq!(n_launches(&Pair::new(op, &kernel), Accumulator::InPlace), 1, "whole rows");
}

/// An argument that is given away takes the result, while other blocks are still to be computed.
#[test]
fn results_over_arguments() {
    let pair = Pair::new(MatMul::contiguous(DType::F32, &[], [90, 130, 60]), &residual(90, 130));
    let mut plan = pair.fused(Accumulator::Slot);
    plan.donations = vec![Donation { output: 0, input: 2 }];
    let inputs: Vec<Buffer> = plan.inputs.iter().enumerate().map(|(n, ty)| filled(n, ty)).collect();
    let code = Executable::compile(plan.clone()).unwrap();
    let expected = bytes(&code.run(&inputs.iter().collect::<Vec<_>>()).unwrap());
    let given = filled(2, &plan.inputs[2]);
    let address = given.as_ptr();
    let mut all: Vec<Input<'_>> = inputs.iter().map(Input::borrowed).collect();
    all[2] = Input::donated(given);
    let made = code.run_donating(all).unwrap();
    assert_eq!((made[0].as_ptr(), bytes(&made)), (address, expected));

    plan.steps[0].operands[5].place = Place::Output(0);
    assert!(matches!(plan.verify(), Err(Error::Plan(_))), "the product would be written over what the epilogue reads");
}

#[test]
fn wrong_places_are_refused() {
    let square = MatMul::contiguous(DType::F32, &[], [32, 32, 32]);
    let pair = Pair::new(square, &relu(DType::F32, 32, 32, false));
    let base = pair.fused(Accumulator::InPlace);
    base.verify().unwrap();
    let refused = |change: &dyn Fn(&mut Plan)| {
        let mut plan = base.clone();
        change(&mut plan);
        assert!(plan.verify().is_err(), "{plan}");
    };
    let slot = |offset| Place::Slot { offset };
    refused(&|plan| plan.steps[0].operands[3].place = slot(0));
    refused(&|plan| {
        // The epilogue over an operand of the product.
        plan.steps[0].operands[0].place = slot(0);
        plan.steps[0].operands[3].place = slot(0);
    });
    refused(&|plan| plan.steps[0].operands[4].dtype = DType::F64);
    refused(&|plan| plan.donations = vec![Donation { output: 0, input: 0 }]);
    refused(&|plan| {
        let Work::Library { epilogue, .. } = &mut plan.steps[0].work else { return };
        // A result that is kept cannot be written over.
        *epilogue = epilogue.take().map(|epilogue| epilogue.keeping_accumulator(true));
    });
    refused(&|plan| {
        let Work::Library { kernel, .. } = &mut plan.steps[0].work else { return };
        *kernel = MatMul::contiguous(DType::F32, &[], [16, 64, 16]).into();
    });
    let text = base.to_string();
    assert!(text.contains("-> (output 0: f32[1024]) through output 0: f32[1024]"), "{text}");
    assert!(text.contains("epilogue of p0\n    kernel (p0: f32[1024]"), "{text}");
}

/// Kernels that are no epilogues.
#[test]
fn others_are_none() {
    let epilogue = |text: &str, accumulator| Epilogue::new(&parse(text).unwrap(), ParamId(accumulator));
    let negated =
        "kernel (p0: f32[16], p1: f32[16] out) {\n  axes a0 = 16\n%0 = load p0[a0]\n%1 = neg %0\nstore p1[a0], %1\n}\n";
    assert!(epilogue(negated, 0).is_some());
    assert!(epilogue(negated, 1).is_none() && epilogue(negated, 2).is_none(), "no parameter that is read");
    assert!(epilogue(&negated.replace("load p0[a0]", "load p0[15 + a0 * -1]"), 0).is_none(), "other elements");
    assert!(epilogue(&negated.replace("f32[16],", "f32[17],"), 0).is_none(), "more elements than points");
    let sum = "kernel (p0: f32[16], p1: f32[1] out) {\n  axes a0 = 16 reduced\n%0 = load p0[a0]\n%1 = reduce sum %0\n\
               store p1[0], %1\n}\n";
    assert!(epilogue(sum, 0).is_none(), "a sum");
    let gathered = negated.replace("%1 = neg %0", "%1 = index a0\n%2 = load_at p0, %1").replace("], %1", "], %2");
    assert!(epilogue(&gathered, 0).is_none(), "elements anywhere");
}

/// A watched run shows what the epilogue stores, and the product only if it is kept.
#[test]
fn watched_runs_show_results() {
    let pair = Pair::new(MatMul::contiguous(DType::F32, &[], [80, 70, 20]), &relu(DType::F32, 80, 70, true));
    for (accumulator, n_shown) in [(Accumulator::InPlace, 2), (Accumulator::Kept, 3)] {
        let plan = pair.fused(accumulator);
        let inputs: Vec<Buffer> = plan.inputs.iter().enumerate().map(|(n, ty)| filled(n, ty)).collect();
        let inputs: Vec<&Buffer> = inputs.iter().collect();
        let expected = bytes(&Executable::compile(plan.clone()).unwrap().run(&inputs).unwrap());
        for separate in [false, true] {
            let code = Executable::compile_with(plan.clone(), Modes { separate, ..Modes::default() }).unwrap();
            let mut seen = vec![];
            code.run_stepwise(&inputs, &mut |step, position, bytes| seen.push((step, position, bytes.to_vec())))
                .unwrap();
            let shown: Vec<_> = expected.iter().take(n_shown).enumerate().map(|(n, b)| (0, n, b.clone())).collect();
            assert!(seen == shown, "{accumulator:?}");
        }
        let trapping = Executable::compile_with(plan, Modes { trap: true, ..Modes::default() }).unwrap();
        assert_eq!(trapping.run_trapped(&inputs).unwrap().1, None);
        let nan = Buffer::copy_of(&[f32::NAN; 80 * 20]).unwrap();
        let found = trapping.run_trapped(&[&[&nan], &inputs[1..]].concat()).unwrap().1;
        assert_eq!(found.as_deref(), Some("both"));
        let slow = trapping.evaluate(&inputs).unwrap();
        let close = |x: &f32, y: &f32| (x - y).abs() <= 1e-5;
        assert!(slow[0].as_slice().iter().zip(trapping.run(&inputs).unwrap()[0].as_slice()).all(|(x, y)| close(x, y)));
    }
}

/// The same in processes whose code has narrower vectors.
#[test]
fn narrower_vectors() {
    const NAME: &str = "RETAPE_VECTOR_BITS";
    if std::env::var_os(NAME).is_some() {
        return;
    }
    for bits in ["128", "256"] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let ran = child.arg("epilogue::").env(NAME, bits).output().unwrap();
        assert!(ran.status.success(), "{bits} bits: {}", String::from_utf8_lossy(&ran.stdout));
    }
}

/// The epilogue of a trapped run is a launch of its own: until it has run, its results hold what was there before.
#[test]
fn traps_look_at_what_is_written() {
    let (rows, cols) = (12, 10);
    let len = rows * cols;
    let pair = Pair::new(MatMul::contiguous(DType::F32, &[], [rows, cols, 20]), &relu(DType::F32, rows, cols, false));
    let mut plan = pair.fused(Accumulator::Kept);
    let slot = Place::Slot { offset: 0 };
    plan.steps[0].operands.iter_mut().filter(|it| it.place == Place::Output(0)).for_each(|it| it.place = slot);
    let copy = format!(
        "kernel (p0: f32[{len}], p1: f32[{len}] out) {{\n  axes a0 = {len}\n%0 = load p0[a0]\nstore p1[a0], %0\n}}\n"
    );
    let ends = [slot, Place::Output(0)].map(|place| operand(place, pair.result()));
    let work = Work::Kernel(parse(&copy).unwrap());
    plan.steps.push(Step { work, operands: ends.as_slice().into(), label: "copy".into() });
    let trapped = Executable::compile_with(plan.clone(), Modes { trap: true, ..Modes::default() }).unwrap();
    let finite: Vec<Buffer> = plan.inputs.iter().enumerate().map(|(n, ty)| filled(n, ty)).collect();
    let infinite = Buffer::copy_of(&vec![f32::INFINITY; plan.inputs[0].len]).unwrap();
    let first = |a: &Buffer| {
        let inputs: Vec<&Buffer> = std::iter::once(a).chain(&finite[1..]).collect();
        trapped.run_trapped(&inputs).unwrap().1
    };
    assert_eq!(first(&finite[0]), None);
    assert_eq!(first(&infinite).as_deref(), Some("both"));
    assert_eq!(first(&finite[0]), None, "the call before left infinities in the arena");
}
