//! Running kernels on the interpreter, beside the reference evaluator.

use retape_cuda_sim::{Counts, Fault, Machine, Module, Order};
use retape_kernels::expand::expand;
use retape_kernels::ir::random::{exact_values, random_inputs};
use retape_kernels::ir::{Kernel, evaluate};
use retape_kernels::ptx::{Argument, Launches, Target};
use retape_kernels::{Operand, Place, Step, simplify};
use retape_runtime::{DType, Scalar};

use super::{lowered, step};

/// The values in a buffer.
pub(crate) fn scalars(bytes: &[u8], dtype: DType) -> Vec<Scalar> {
    let bits = |part: &[u8]| part.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
    bytes.chunks(dtype.size()).map(|part| Scalar { dtype, bits: bits(part) }).collect()
}

/// Where the operands of a step lie in memory of their own; slots lie in one arena. A buffer that is shorter than its
/// operand is the end of it; nothing else may be accessed.
fn places(machine: &mut Machine, step: &Step, buffers: &[Vec<u8>]) -> Result<Vec<u64>, Fault> {
    let slots = step.operands.iter().zip(buffers).filter_map(|(operand, bytes)| match operand.place {
        Place::Slot { offset } => Some(offset + bytes.len()),
        _ => None,
    });
    let arena = machine.alloc(slots.max().unwrap_or(0));
    let mut addresses = Vec::new();
    // Operands that are read are written last, since results may lie on them.
    for (operand, bytes) in step.operands.iter().zip(buffers).rev() {
        let address = match operand.place {
            Place::Slot { offset } => arena + offset as u64,
            _ => machine.alloc(bytes.len()),
        };
        machine.write(address, bytes)?;
        addresses.push(address - missing(operand, bytes));
    }
    addresses.reverse();
    Ok(addresses)
}

/// The bytes of an operand before its buffer.
fn missing(operand: &Operand, bytes: &[u8]) -> u64 {
    (operand.len * operand.dtype.size() - bytes.len()) as u64
}

/// The counts of the launches of a step on some inputs.
pub(crate) fn counts(step: &Step, kernel: &Kernel, inputs: &[Vec<u8>], target: Target) -> Counts {
    let written = kernel.params.iter().filter(|p| p.written);
    let empty = written.map(|p| vec![0; p.len * p.dtype.size()]);
    let buffers: Vec<Vec<u8>> = inputs.iter().cloned().chain(empty).collect();
    let mut machine = Machine::new();
    run_on(&mut machine, &lowered(step, target), step, &buffers, Order::FORWARD).unwrap_or_else(|e| panic!("{e}"));
    machine.counts().values().fold(Counts::default(), |all, one| Counts {
        launches: all.launches + one.launches,
        instructions: all.instructions + one.instructions,
        warp_instructions: all.warp_instructions + one.warp_instructions,
        global_loaded: all.global_loaded + one.global_loaded,
        global_stored: all.global_stored + one.global_stored,
    })
}

/// Runs launches on copies of the buffers of all operands, and returns what is in them afterwards.
fn run(launches: &Launches, step: &Step, buffers: &[Vec<u8>], order: Order) -> Result<Vec<Vec<u8>>, Fault> {
    run_on(&mut Machine::new(), launches, step, buffers, order)
}

fn run_on(
    machine: &mut Machine,
    launches: &Launches,
    step: &Step,
    buffers: &[Vec<u8>],
    order: Order,
) -> Result<Vec<Vec<u8>>, Fault> {
    let addresses = places(machine, step, buffers)?;
    let scratch = machine.alloc(launches.scratch);
    for launch in &launches.launches {
        let module =
            Module::parse(&launch.module.text()).unwrap_or_else(|e| panic!("{e} in\n{}", launch.module.text()));
        let address = |argument: &Argument| match *argument {
            Argument::Operand(n) => addresses[n],
            Argument::Scratch(at) => scratch + at as u64,
        };
        let arguments: Vec<u64> = launch.arguments.iter().map(address).collect();
        machine.launch(&module, &launch.module.name, launch.grid, launch.block, launch.shared, &arguments, order)?;
    }
    let written = addresses.iter().zip(buffers).zip(&step.operands).map(|((&address, bytes), operand)| {
        let mut bytes = bytes.clone();
        machine.read(address + missing(operand, &bytes), &mut bytes).map(|()| bytes)
    });
    written.collect()
}

/// The contents that the evaluator leaves in the written buffers.
pub(crate) fn expected(kernel: &Kernel, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let written = kernel.params.iter().filter(|p| p.written);
    let mut outputs: Vec<Vec<u8>> = written.map(|p| vec![0; p.len * p.dtype.size()]).collect();
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    evaluate(kernel, &inputs, &mut outputs.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    outputs
}

/// Whether two values are the same, all NaN being one.
pub(crate) fn same(x: Scalar, y: Scalar) -> bool {
    x == y || (x.to_f64().is_nan() && y.to_f64().is_nan())
}

fn close(x: Scalar, y: Scalar, tolerance: f64) -> bool {
    let (a, b) = (x.to_f64(), y.to_f64());
    // Another order of operations may overflow, or not, where the reference has more digits.
    same(x, y) || !a.is_finite() || !b.is_finite() || (a - b).abs() <= tolerance * b.abs().max(1.0)
}

/// The buffers that the launches of a step write, which must be the same in both orders.
pub(crate) fn outputs(step: &Step, kernel: &Kernel, inputs: &[Vec<u8>], target: Target) -> Vec<Vec<u8>> {
    let launches = lowered(step, target);
    let written = kernel.params.iter().filter(|p| p.written);
    let empty = written.map(|p| vec![0; p.len * p.dtype.size()]);
    let buffers: Vec<Vec<u8>> = inputs.iter().cloned().chain(empty).collect();
    let run = |order| {
        run(&launches, step, &buffers, order).unwrap_or_else(|fault| {
            let texts: Vec<String> = launches.launches.iter().map(|l| l.module.text()).collect();
            panic!("sm_{}: {fault}\n{kernel}\n{}", target.sm, texts.join("\n"))
        })
    };
    let (forward, reverse) = (run(Order::FORWARD), run(Order::REVERSE));
    assert!(forward == reverse, "sm_{}: the bits depend on the order of blocks and warps\n{kernel}", target.sm);
    forward[inputs.len()..].to_vec()
}

/// Runs a kernel in both orders and compares with the evaluator: bit for bit where every right way to compute gives
/// the same, within `tolerance` elsewhere.
pub(crate) fn check_within(kernel: &Kernel, target: Target, seed: u64, tolerance: f64) {
    check_step(&step(kernel), kernel, target, seed, tolerance);
}

/// As [`check_within`], at the places of a step.
pub(crate) fn check_step(step: &Step, kernel: &Kernel, target: Target, seed: u64, tolerance: f64) {
    check_on(step, kernel, target, &random_inputs(kernel, seed), tolerance);
}

/// As [`check_step`], on some inputs.
pub(crate) fn check_on(step: &Step, kernel: &Kernel, target: Target, inputs: &[Vec<u8>], tolerance: f64) {
    let found = outputs(step, kernel, inputs, target);
    // Transcendental functions in the form that all machines compute them in.
    let kernel = &simplify(&expand(&simplify(kernel)));
    let exact = exact_values(kernel);
    let written = kernel.params.iter().enumerate().filter(|(_, p)| p.written);
    for (((id, param), found), expected) in written.zip(&found).zip(expected(kernel, inputs)) {
        let mut stores = kernel.stores.iter().filter(|s| s.param.index() == id);
        let exact = stores.all(|s| exact[s.value.index()]);
        let pairs = scalars(found, param.dtype).into_iter().zip(scalars(&expected, param.dtype));
        for (at, (found, expected)) in pairs.enumerate() {
            let right = if exact { same(found, expected) } else { close(found, expected, tolerance) };
            assert!(
                right,
                "sm_{}: p{id}[{at}] is {found:?}, not {expected:?}\n{kernel}\n{}",
                target.sm,
                texts(step, target)
            );
        }
    }
}

/// The text of the modules of a step.
fn texts(step: &Step, target: Target) -> String {
    lowered(step, target).launches.iter().map(|l| format!("{:?}\n{}", l.grid, l.module.text())).collect()
}
