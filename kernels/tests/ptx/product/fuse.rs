//! Products with what is fused behind them, against the steps one by one: the bits must be equal.

use retape_kernels::ir::parse;
use retape_kernels::library::{CastHalf, Conv2d, ConvPass, Library, MatMul};
use retape_kernels::ptx::{Argument, Launches, Target, fuse, lower};
use retape_kernels::{BufferType, Donation, Operand, Place, Plan, Step, Work};
use retape_runtime::DType;

use super::machine::both;
use super::{Random, target};

fn operand(place: Place, dtype: DType, len: usize) -> Operand {
    Operand { place, dtype, len }
}

/// A product into the arena, and a kernel that reads it there; inputs are the operands and the kernel's others.
fn plan(library: &Library, text: &str, accumulator: usize) -> Plan {
    let kernel = parse(text).unwrap_or_else(|e| panic!("{e} in\n{text}"));
    let slot = Place::Slot { offset: 0 };
    let (dtype, len) = library.outputs()[0];
    let mut inputs: Vec<BufferType> = library.inputs().iter().map(|&(dtype, len)| BufferType { dtype, len }).collect();
    let sources = inputs.iter().enumerate().map(|(n, ty)| operand(Place::Input(n as u32), ty.dtype, ty.len));
    let first = sources.chain([operand(slot, dtype, len)]).collect();
    let mut outputs = vec![];
    let mut second = vec![];
    for (n, param) in kernel.params.iter().enumerate() {
        let ty = BufferType { dtype: param.dtype, len: param.len };
        let place = if n == accumulator {
            slot
        } else if param.written {
            outputs.push(ty);
            Place::Output(outputs.len() as u32 - 1)
        } else {
            inputs.push(ty);
            Place::Input(inputs.len() as u32 - 1)
        };
        second.push(operand(place, param.dtype, param.len));
    }
    let steps = vec![
        Step { work: Work::Library(library.clone()), operands: first, label: "product".into() },
        Step { work: Work::Kernel(kernel), operands: second.into(), label: "tail".into() },
    ];
    Plan { inputs, outputs, arena_bytes: len * dtype.size(), steps, ..Plan::default() }
}

/// The outputs of a plan of two steps, whose launches are fused or not.
fn outputs(plan: &Plan, inputs: &[Vec<u8>], target: Target, fused: bool) -> Vec<Vec<u8>> {
    let steps: Vec<(Launches, Vec<Operand>)> = if fused {
        let steps = fuse(plan, target);
        assert_eq!(steps.iter().map(|step| step.steps.to_vec()).collect::<Vec<_>>(), [[0, 1]]);
        steps.iter().map(|step| (step.lower(plan, target).unwrap(), step.operands.to_vec())).collect()
    } else {
        plan.steps.iter().map(|step| (lower(step, target).unwrap(), step.operands.to_vec())).collect()
    };
    // All buffers of the call: inputs, then the arena and the outputs.
    let (mut all, n_inputs) = (Launches::default(), inputs.len());
    for (launches, operands) in steps {
        for mut launch in launches.launches {
            for argument in &mut launch.arguments {
                if let Argument::Operand(n) = *argument {
                    *argument = Argument::Operand(match operands[n].place {
                        Place::Input(n) => n as usize,
                        Place::Slot { .. } => n_inputs,
                        Place::Output(n) => n_inputs + 1 + n as usize,
                    });
                }
            }
            all.launches.push(launch);
        }
        all.scratch = all.scratch.max(launches.scratch);
    }
    let mut lens = vec![plan.arena_bytes];
    lens.extend(plan.outputs.iter().map(BufferType::bytes));
    let arena = usize::from(fused);
    // Nobody writes the arena of fused steps, so that it cannot be read back.
    let found = if arena == 1 {
        lens[0] = 0;
        both(&all, inputs, &lens)
    } else {
        both(&all, inputs, &lens)
    };
    found[1..].to_vec()
}

fn check(library: impl Into<Library>, text: &str, accumulator: usize, target: Target) {
    check_plan(&plan(&library.into(), text, accumulator), target);
}

fn check_plan(plan: &Plan, target: Target) {
    plan.verify().unwrap();
    let mut random = Random(0x77);
    let inputs: Vec<Vec<u8>> = plan.inputs.iter().map(|ty| random.bytes(ty.dtype, ty.len)).collect();
    let (fused, apart) = (outputs(plan, &inputs, target, true), outputs(plan, &inputs, target, false));
    assert!(fused == apart, "for sm_{}\n{plan}", target.sm);
}

/// A bias for each column, a residual and `tanh`.
fn layer(dtype: DType, rows: usize, cols: usize) -> String {
    let (name, len) = (dtype.name(), rows * cols);
    let place = format!("a0 * {cols} + a1");
    format!(
        "kernel (p0: {name}[{cols}], p1: {name}[{len}], p2: {name}[{len}], p3: {name}[{len}] out) {{\n  \
         axes a0 = {rows}, a1 = {cols}\n%0 = load p1[{place}]\n%1 = load p0[a1]\n%2 = add %0, %1\n%3 = tanh %2\n\
         %4 = load p2[{place}]\n%5 = add %3, %4\nstore p3[{place}], %5\n}}\n"
    )
}

/// Twice the product of halves, computed in single precision and rounded.
fn doubled(dtype: DType, len: usize) -> String {
    let name = dtype.name();
    format!(
        "kernel (p0: {name}[{len}], p1: {name}[{len}] out, p2: f32[{len}] out) {{\n  axes a0 = {len}\n\
         %0 = load p0[a0]\n%1 = cast %0: f32\n%2 = add %1, %1\n%3 = cast %2: {name}\nstore p1[a0], %3\n\
         store p2[{} + a0 * -1], %1\n}}\n",
        len - 1
    )
}

#[test]
fn layers_are_one_launch() {
    for (dtype, t) in [
        (DType::F32, target(75, false)),
        (DType::F32, target(80, false)),
        (DType::F64, target(90, false)),
        (DType::F32, target(90, true)),
    ] {
        for [m, n, k] in [[33, 17, 40], [64, 64, 32], [3, 40, 5], [9, 7, 2000], [4, 5, 0]] {
            check(MatMul::contiguous(dtype, &[], [m, n, k]), &layer(dtype, m, n), 1, t);
        }
        // The rows of a batch of products with operands of their own.
        check(MatMul::contiguous(dtype, &[3], [18, 21, 16]), &layer(dtype, 54, 21), 1, t);
    }
}

#[test]
fn large_tiles_pass_through_shared_memory_in_parts() {
    check(
        MatMul::contiguous(DType::F32, &[5], [517, 516, 8]),
        &doubled(DType::F32, 5 * 517 * 516).replace("cast %0: f32", "neg %0").replace("cast %2: f32", "neg %2"),
        0,
        target(80, false),
    );
    check(
        MatMul::contiguous(DType::Bf16, &[5], [517, 516, 16]),
        &doubled(DType::Bf16, 5 * 517 * 516),
        0,
        target(80, false),
    );
}

#[test]
fn halves() {
    for (dtype, t) in [
        (DType::F16, target(75, false)),
        (DType::F16, target(80, false)),
        (DType::Bf16, target(80, false)),
        (DType::Bf16, target(75, false)),
    ] {
        for [m, n, k] in [[33, 18, 40], [5, 9, 1100]] {
            check(MatMul::contiguous(dtype, &[], [m, n, k]), &doubled(dtype, m * n), 0, t);
        }
    }
}

#[test]
fn casts() {
    // A product of 16-bit floats in single precision, and one in single precision as 16-bit floats.
    for (from, to, t) in [(DType::Bf16, DType::F32, target(80, false)), (DType::F32, DType::F16, target(75, false))] {
        let library = MatMul::contiguous(from, &[], [33, 18, 40]).into();
        let (name, len) = (from.name(), 33 * 18);
        let copy = format!(
            "kernel (p0: {name}[{len}], p1: {name}[{len}] out) {{\n  axes a0 = {len}\n%0 = load p0[a0]\nstore p1[a0], %0\n}}\n"
        );
        let mut plan = plan(&library, &copy, 0);
        plan.steps[1].work = Work::Library(CastHalf { from, to, len }.into());
        plan.steps[1].operands[1].dtype = to;
        plan.outputs[0].dtype = to;
        check_plan(&plan, t);
    }
}

#[test]
fn convolutions() {
    let op = Conv2d {
        dtype: DType::F32,
        batch: 2,
        height: 7,
        width: 8,
        in_channels: 6,
        kernel_height: 3,
        kernel_width: 3,
        out_channels: 4,
        stride: [2, 2],
        padding: [[1, 1], [1, 1]],
        dilation: [1, 1],
        groups: 2,
        pass: ConvPass::Forward,
    };
    let [height, width] = op.out_extent();
    check(op.clone(), &layer(DType::F32, 2 * height * width, 4), 1, target(80, false));
    check(
        Conv2d { pass: ConvPass::InputGradient, ..op.clone() },
        &layer(DType::F32, 2 * 7 * 8, 6),
        1,
        target(80, true),
    );
    check(Conv2d { pass: ConvPass::FilterGradient, ..op }, &layer(DType::F32, 27, 4), 1, target(75, false));
}

/// Steps that must stay apart, and why.
#[test]
fn what_others_need_is_kept() {
    let library: Library = MatMul::contiguous(DType::F32, &[], [4, 4, 4]).into();
    let negated =
        "kernel (p0: f32[16], p1: f32[16] out) {\n  axes a0 = 16\n%0 = load p0[a0]\n%1 = neg %0\nstore p1[a0], %1\n}\n";
    let turned = negated.replace("load p0[a0]", "load p0[15 + a0 * -1]");
    let base = plan(&library, negated, 0);
    let t = target(80, false);
    let n_steps = |plan: &Plan| {
        plan.verify().unwrap();
        fuse(plan, t).len()
    };
    assert_eq!(n_steps(&base), 1);
    assert_eq!(n_steps(&plan(&library, &turned, 0)), 2, "other elements");
    let mut read_again = base.clone();
    read_again.outputs.push(read_again.outputs[0]);
    let mut third = read_again.steps[1].clone();
    third.operands[1].place = Place::Output(1);
    read_again.steps.push(third);
    assert_eq!(n_steps(&read_again), 3, "another reader");
    let mut in_place = base.clone();
    in_place.steps[1].operands[1].place = Place::Slot { offset: 0 };
    let mut copied = base.steps[1].clone();
    copied.operands[0].place = Place::Slot { offset: 0 };
    in_place.steps.push(copied);
    assert_eq!(n_steps(&in_place), 2, "the first two are one; the third reads what the second wrote");
    let mut given = base.clone();
    given.donations.push(Donation { output: 0, input: 0 });
    assert_eq!(n_steps(&given), 2, "the result may lie over an operand");
    let mut over = base.clone();
    over.arena_bytes = 128;
    over.steps[0].operands[0].place = Place::Slot { offset: 64 };
    let copy = Step {
        operands: [operand(Place::Input(0), DType::F32, 16), operand(Place::Slot { offset: 64 }, DType::F32, 16)]
            .into_iter()
            .collect(),
        ..base.steps[1].clone()
    };
    over.steps.insert(0, copy);
    assert_eq!(n_steps(&over), 2);
    over.steps[2].operands[1].place = Place::Slot { offset: 64 };
    let mut last = base.steps[1].clone();
    last.operands[0].place = Place::Slot { offset: 64 };
    over.steps.push(last);
    assert_eq!(n_steps(&over), 4, "the kernel writes over an operand of the product");
}
