//! Launches on the interpreter.

use std::collections::HashMap;

use retape_cuda_sim::{Machine, Module, Order};
use retape_kernels::ptx::{Argument, Launches};

/// Runs the launches of a step on these inputs and gives its outputs, of so many bytes.
pub(crate) fn run(
    launches: &Launches,
    inputs: &[Vec<u8>],
    outputs: &[usize],
    order: Order,
) -> Result<Vec<Vec<u8>>, String> {
    let mut machine = Machine::new();
    let mut operands: Vec<u64> = inputs.iter().map(|bytes| machine.put(bytes)).collect();
    operands.extend(outputs.iter().map(|len| machine.alloc(*len)));
    let scratch = machine.alloc(launches.scratch);
    let mut modules = HashMap::new();
    for launch in &launches.launches {
        let text = launch.module.text();
        if !modules.contains_key(&text) {
            modules.insert(text.clone(), Module::parse(&text).map_err(|error| error.to_string())?);
        }
        let address = |argument: &Argument| match *argument {
            Argument::Operand(n) => operands[n],
            Argument::Scratch(offset) => scratch + offset as u64,
        };
        let arguments: Vec<u64> = launch.arguments.iter().map(address).collect();
        machine
            .launch(&modules[&text], &launch.module.name, launch.grid, launch.block, launch.shared, &arguments, order)
            .map_err(|fault| fault.to_string())?;
    }
    let read = |(address, len): (&u64, &usize)| machine.get(*address, *len).map_err(|fault| fault.to_string());
    operands[inputs.len()..].iter().zip(outputs).map(read).collect()
}
