//! Joins: a launch per input, which copies it to its part of the result.

use retape_runtime::DType;

use super::{BLOCK, KernelWriter, NumberType, blocks};
use crate::library::Join;
use crate::ptx::{Argument, Launch, Launches, Target};

/// The launches of [`Join`].
pub(in crate::ptx) fn join(kernel: &Join, target: Target) -> Launches {
    let result = Argument::Operand(kernel.lens.len());
    let inputs = kernel.parts().enumerate().filter(|&(_, (_, width))| kernel.outer * width > 0);
    let launches = inputs.map(|(input, part)| copy(kernel, part, &[Argument::Operand(input), result], target));
    Launches { launches: launches.collect(), scratch: 0 }
}

/// Copies one input, a thread per element.
fn copy(kernel: &Join, (start, width): (usize, usize), arguments: &[Argument], target: Target) -> Launch {
    let (items, line) = (kernel.outer * width, kernel.line());
    let number = bits(kernel.dtype);
    let mut c = KernelWriter::new("join", target, BLOCK, arguments.len(), kernel.outer * line + BLOCK as usize);
    let (x, out) = (c.param(0), c.param(1));
    let item = c.global_thread(BLOCK);
    let exists = c.test("lt", item, items);
    c.if_then(exists, |c| {
        let (outer, column) = c.div_rem(item, width);
        let column = c.add(column, start);
        let place = c.mad(outer, line, column);
        let (from, to) = (c.at(x, item, number.size()), c.at(out, place, number.size()));
        let element = c.load(number, from, 0);
        c.store(number, to, 0, element);
    });
    c.launch(blocks(items), BLOCK, arguments)
}

/// A dtype of the same size that is loaded and stored as it is: a copy changes no bit.
fn bits(dtype: DType) -> NumberType {
    NumberType(match dtype.size() {
        1 => DType::U8,
        2 => DType::Bf16,
        4 => DType::U32,
        _ => DType::I64,
    })
}
