//! Products with an epilogue in their launch, against one in a launch of its own: the bits must be equal.

use retape_kernels::ir::{Kernel, ParamId, parse};
use retape_kernels::library::{CastHalf, Conv2d, ConvPass, Library, MatMul};
use retape_kernels::ptx::{Argument, Launches, Target, lower, lower_separately};
use retape_kernels::{BufferType, Epilogue, Operand, Place, Plan, Step, Work};
use retape_runtime::DType;

use super::machine::both;
use super::{Random, target};

fn operand(place: Place, dtype: DType, len: usize) -> Operand {
    Operand { place, dtype, len }
}

/// A product and the kernel that follows it as one step; inputs are the operands and the kernel's others. The product
/// itself is a last output if it is kept, and lies in the arena otherwise.
fn plan(library: &Library, kernel: &Kernel, accumulator: usize, kept: bool) -> Plan {
    let (dtype, len) = library.outputs()[0];
    let mut inputs: Vec<BufferType> = library.inputs().iter().map(|&(dtype, len)| BufferType { dtype, len }).collect();
    let sources = inputs.iter().enumerate().map(|(n, ty)| operand(Place::Input(n as u32), ty.dtype, ty.len));
    let mut operands: Vec<Operand> = sources.collect();
    let mut outputs = vec![];
    for (_, param) in kernel.params.iter().enumerate().filter(|(n, _)| *n != accumulator) {
        let ty = BufferType { dtype: param.dtype, len: param.len };
        let list = if param.written { &mut outputs } else { &mut inputs };
        list.push(ty);
        let n = list.len() as u32 - 1;
        operands.push(operand(if param.written { Place::Output(n) } else { Place::Input(n) }, ty.dtype, ty.len));
    }
    let mut arena_bytes = len * dtype.size();
    let mut place = Place::Slot { offset: 0 };
    if kept {
        outputs.push(BufferType { dtype, len });
        (place, arena_bytes) = (Place::Output(outputs.len() as u32 - 1), 0);
    }
    operands.push(operand(place, dtype, len));
    let epilogue = Epilogue::new(kernel, ParamId(accumulator as u32)).unwrap().keeping_accumulator(kept);
    let work = Work::Library { kernel: library.clone(), epilogue: Some(epilogue) };
    let steps = vec![Step { work, operands: operands.into(), label: "both".into() }];
    Plan { inputs, outputs, arena_bytes, steps, ..Plan::default() }
}

/// The outputs of a plan of one step, whose launches are fused or not.
fn outputs(plan: &Plan, inputs: &[Vec<u8>], target: Target, fused: bool) -> Vec<Vec<u8>> {
    let step = &plan.steps[0];
    let mut all: Launches = if fused { lower(step, target) } else { lower_separately(step, target) }.unwrap();
    // All buffers of the call: inputs, then the arena and the outputs.
    let n_inputs = inputs.len();
    let mut touches_arena = false;
    for argument in all.launches.iter_mut().flat_map(|launch| &mut launch.arguments) {
        if let Argument::Operand(n) = *argument {
            *argument = Argument::Operand(match step.operands[n].place {
                Place::Input(n) => n as usize,
                Place::Slot { .. } => {
                    touches_arena = true;
                    n_inputs
                }
                Place::Output(n) => n_inputs + 1 + n as usize,
            });
        }
    }
    assert!(!(fused && touches_arena), "a product whose epilogue is in its launch is not stored");
    // Memory that nobody writes cannot be read back.
    let mut lens = vec![if touches_arena { plan.arena_bytes } else { 0 }];
    lens.extend(plan.outputs.iter().map(BufferType::bytes));
    both(&all, inputs, &lens)[1..].to_vec()
}

fn check(library: impl Into<Library>, text: &str, accumulator: usize, target: Target) {
    let (library, kernel) = (library.into(), parse(text).unwrap_or_else(|e| panic!("{e} in\n{text}")));
    for kept in [false, true] {
        check_plan(&plan(&library, &kernel, accumulator, kept), target);
    }
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
        let library: Library = MatMul::contiguous(from, &[], [33, 18, 40]).into();
        check_plan(&plan(&library, &CastHalf { from, to, len: 33 * 18 }.kernel(), 0, false), t);
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

/// An epilogue that is too long for the launch of a product runs in a launch of its own.
#[test]
fn long_epilogues_are_launches() {
    let library: Library = MatMul::contiguous(DType::F32, &[], [5, 6, 7]).into();
    let mut text = String::from("kernel (p0: f32[30], p1: f32[30] out) {\n  axes a0 = 30\n%0 = load p0[a0]\n");
    (1..500).for_each(|n| text.push_str(&format!("%{n} = fma %{0}, %0, %{0}\n", n - 1)));
    text.push_str("store p1[a0], %499\n}\n");
    let plan = plan(&library, &parse(&text).unwrap(), 0, false);
    plan.verify().unwrap();
    assert_eq!(lower(&plan.steps[0], target(80, false)).unwrap().launches.len(), 2);
}
