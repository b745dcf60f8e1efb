//! Launches on the interpreter.

use retape_cuda_sim::{Machine, Module, Order};
use retape_kernels::ptx::{Argument, Launches};

/// Runs launches on these inputs and gives the outputs, of so many bytes, which follow the inputs.
pub(crate) fn run(launches: &Launches, inputs: &[Vec<u8>], outputs: &[usize], order: Order) -> Vec<Vec<u8>> {
    let mut machine = Machine::new();
    let mut operands: Vec<u64> = inputs.iter().map(|bytes| machine.put(bytes)).collect();
    operands.extend(outputs.iter().map(|len| machine.alloc(*len)));
    let scratch = machine.alloc(launches.scratch);
    for launch in &launches.launches {
        let text = &launch.module.text();
        let module = Module::parse(text).unwrap_or_else(|error| panic!("{error} in\n{text}"));
        let address = |argument: &Argument| match *argument {
            Argument::Operand(n) => operands[n],
            Argument::Scratch(offset) => scratch + offset as u64,
        };
        let arguments: Vec<u64> = launch.arguments.iter().map(address).collect();
        let name = &launch.module.name;
        machine
            .launch(&module, name, launch.grid, launch.block, launch.shared, &arguments, order)
            .unwrap_or_else(|fault| panic!("{fault} in\n{text}"));
    }
    let read = |(address, len): (&u64, &usize)| machine.get(*address, *len).unwrap();
    operands[inputs.len()..].iter().zip(outputs).map(read).collect()
}

/// The outputs, which must not depend on the order of blocks and warps.
pub(crate) fn both(launches: &Launches, inputs: &[Vec<u8>], outputs: &[usize]) -> Vec<Vec<u8>> {
    let forward = run(launches, inputs, outputs, Order::FORWARD);
    assert!(forward == run(launches, inputs, outputs, Order::REVERSE), "the bits depend on the order of blocks");
    forward
}
